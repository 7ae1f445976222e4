"""vLLM's modules as a model: what one rank holds, and what that is of the whole.

An engine packs, empties, pads, fuses and divides weights. Its layers know what they hold, and are believed
rather than their tensors. Nothing is changed and no value is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from modelglass.frameworks.torch.privates import DisableTorchFunctionSubclass
from modelglass.frameworks.torch.structure import modules as structure
from modelglass.frameworks.vllm.structure.stored_tensor import find_integer
from modelglass.frameworks.vllm.structure.tensors import TensorReader
from modelglass.report import Json, Model, Module, Note, Shard, Tensor


@dataclass(frozen=True)
class Reading:
    """The modules of one rank; how its tensors relate to the whole model's; what was odd."""

    model: Model
    shards: Mapping[str, Shard] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


def read(native: nn.Module) -> Reading:
    """What this rank holds of a model that vLLM built or serves.

    It is called where the model is, and while vLLM's groups are as they were when the model was built.
    """
    model, notes = structure.read(native)
    found = TensorReader(native, {tensor.name: tensor for tensor in model.tensors})
    with DisableTorchFunctionSubclass():  # parameters may have ideas of their own
        for path, module in structure.walk(native):
            found.add(path, module)
        found.join_views()
    modules = tuple(_module(module, found) for module in model.modules)
    tensors = [found.tensors[name] for module in modules for name in module.tensors]
    tensors.sort(key=lambda tensor: _is_view(tensor, found))  # who comes first counts
    untrained = tuple(replace(tensor, trainable=None) for tensor in tensors)  # nothing trains in an engine
    read_model = replace(model, source="vllm", modules=modules, tensors=untrained)
    return Reading(read_model, found.shards, (*_drop_false(notes, found), *found.notes()))


def _module(module: Module, found: TensorReader) -> Module:
    added = tuple(found.added.get(module.path, ()))
    config = {key: value for key, value in module.config.items() if not _is_place(value, module.path)}
    settings = dict(_settings(config, found.modules[module.path]))
    return replace(module, config=settings, tensors=(*module.tensors, *added))


def _is_view(tensor: Tensor, found: TensorReader) -> bool:
    """Whether a buffer shows the elements of a parameter."""
    return tensor.kind == "buffer" and found.tensors[tensor.storage].kind != "buffer"


def _is_place(value: Json, path: str) -> bool:
    """Whether a setting is the layer's own path, which vLLM's layers keep, or what it is under in files."""
    return isinstance(value, str) and "." in value and (path.endswith(value) or value.endswith(path))


def _settings(config: Mapping[str, Json], native: nn.Module) -> Iterator[tuple[str, Json]]:
    """A layer's settings, without the engine's and without objects of which only the class would show."""
    for key, value in config.items():
        if not (isinstance(value, str) and value.startswith(("vllm.", "transformers."))):
            yield key, value
    for key in ("quant_method", "quant_config"):
        value = getattr(native, key, None)
        if value is not None:
            yield key, type(value).__name__
    moe: Any = getattr(native, "moe_config", None)
    for key in ("num_experts", "num_local_experts", "num_logical_experts", "intermediate_size"):
        number = find_integer(moe, key)
        if number is not None and key not in config:
            yield key, number
    for key in ("tp_size", "ep_size"):
        number = find_integer(getattr(moe, "moe_parallel_config", None), key)
        if number is not None and key not in config:
            yield key, number


def _drop_false(notes: Sequence[Note], found: TensorReader) -> Iterator[Note]:
    """vLLM's models keep lists of modules that hang elsewhere in the tree, which hides nothing."""
    for note in notes:
        if note.code != "unregistered-module":
            yield note
            continue
        where = tuple(place for place in note.where if found.hides_modules(place))
        if where:
            yield replace(note, where=where)
