"""What vLLM's modules and engines are asked: modules answer as those of torch, engines as far as they can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from modelglass.errors import TargetError, UsageError
from modelglass.frameworks.shared.request import Request
from modelglass.frameworks.torch import session as of_torch
from modelglass.frameworks.torch.inputs.reproduce import reproducer as reproducer
from modelglass.frameworks.torch.inputs.shapes import array as array, picture as picture
from modelglass.frameworks.torch.process import seeded as seeded, untouched_process as untouched_process
from modelglass.frameworks.vllm.engine.components import version
from modelglass.frameworks.vllm.engine.live import observe_engine
from modelglass.frameworks.vllm.structure.modules import Reading, read
from modelglass.frameworks.vllm.versions import version_notes
from modelglass.report import Engine, Lifetimes, Observation, RankModel
from modelglass.report.values import Values

if TYPE_CHECKING:
    from modelglass.frameworks.protocol import Trials

FRAMEWORK = "vllm"

_ENGINES = ("LLM", "LLMEngine")
_ASYNCHRONOUS = ("AsyncLLM", "AsyncLLMEngine")


def accepts(native: object) -> bool:
    """Whether this is an engine of vLLM, or one of its modules."""
    return isinstance(native, nn.Module) or _is_a(native, *_ENGINES, *_ASYNCHRONOUS)


def trials(native: Any) -> Trials | None:
    """Engines take texts, which need not be looked for."""
    return None


def observe(native: Any, request: Request) -> Observation:
    """Read the structure; an engine generates when there are prompts, a module runs when there are inputs."""
    if not isinstance(native, nn.Module):
        return observe_engine(native, _engine_of(native), request)
    reading, found = read(native), of_torch.observe(native, request)
    model = replace(reading.model, calls=found.model.calls, ops=found.model.ops)
    notes = (*reading.notes, *found.notes, *version_notes(version()))
    engine, ranks = _engine_around(native, reading)
    return replace(found, model=model, notes=tuple(dict.fromkeys(notes)), engine=engine, ranks=ranks)


def run_shortened(native: Any, request: Request, place: Any) -> Lifetimes | None:
    """What `observe` would find of a module's memory, from short runs with few of its equal blocks."""
    _require_module(native, "memory is not followed inside it")
    return of_torch.run_shortened(native, request, place)


def run_resized(native: Any, request: Request, sizes: Mapping[tuple[int, int], int]) -> Observation:
    """What a fake forward pass of a module shows with other sizes of the inputs."""
    _require_module(native, "it is not run with other sizes")
    return of_torch.run_resized(native, request, sizes)


def sizes(native: Any, request: Request) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that a module's inputs show, None for what they do not."""
    _require_module(native, "it builds its own batches")
    return of_torch.sizes(native, request)


def values(native: Any) -> Mapping[str, Values | str]:
    """How to read the values of each tensor of a module, or a few words on why that cannot be."""
    if not isinstance(native, nn.Module):
        raise UsageError(
            "the weights of an engine are not read: they are packed for its kernels, or in other processes",
            hint="pass the checkpoint's folder instead of the engine",
        )
    found = dict(of_torch.values(native))
    for tensor in read(native).model.tensors:
        if tensor.name in found and tensor.packing is not None:
            found[tensor.name] = f"packed by vLLM ({tensor.packing.scheme})"
    return found


def training_mode(native: Any) -> AbstractContextManager[None]:
    """A module in training mode inside; afterwards each module is in the mode it was in."""
    _require_module(native, "it does not train")
    return of_torch.training_mode(native)


def non_persistent_names(native: Any) -> frozenset[str]:
    """The names of a module's tensors that its checkpoint does not have; an engine does not report them."""
    return of_torch.non_persistent_names(native) if isinstance(native, nn.Module) else frozenset()


def _require_module(native: Any, reason: str) -> None:
    if not isinstance(native, nn.Module):
        raise UsageError(
            f"this is a vLLM engine, and {reason}",
            hint="pass the model itself, as transformers builds it, or its configuration",
        )


def _is_a(native: object, *names: str) -> bool:
    """Whether an object's class is one of vLLM's of these names, or is made of one."""
    return any(cls.__name__ in names and cls.__module__.startswith("vllm.") for cls in type(native).__mro__)


def _engine_of(native: Any) -> Any:
    """The engine that answers."""
    if _is_a(native, *_ASYNCHRONOUS):
        raise UsageError(
            f"{type(native).__name__} answers only inside an event loop of its own",
            hint="start vllm.LLM with the same settings, or pass the model's folder with framework='vllm'",
        )
    engine = native if _is_a(native, "LLMEngine") else getattr(native, "llm_engine", None)
    if engine is None:
        raise TargetError("the engine of this LLM was released", hint="start it again")
    return engine


def _engine_around(native: nn.Module, reading: Reading) -> tuple[Engine | None, tuple[RankModel, ...]]:
    """What is known of the engine that a module was made for: how ranks divide its weights."""
    if not reading.shards:
        return None, ()
    sizes = [(size, rank) for size, rank in _divisions(native) if size > 1]
    size, rank = max(sizes, default=(1, 0))
    engine = Engine(
        version=version(), reached="in-process", rank=rank, tensor_parallel=size, shards=reading.shards
    )
    return engine, (RankModel(rank, reading.model, reading.shards),)


def _divisions(native: nn.Module) -> Iterator[tuple[int, int]]:
    """The number of ranks that divide each layer, and which of them this is."""
    for module in native.modules():
        size, rank = getattr(module, "tp_size", None), getattr(module, "tp_rank", None)
        if type(size) is int and type(rank) is int:
            yield size, rank
