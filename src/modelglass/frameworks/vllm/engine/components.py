"""The parts of an engine and their settings, as the engine itself has them.

Settings are read off vLLM's configuration objects without a list of their names: what another version calls
otherwise is found, and what it does not have is absent. Only plain values are taken, and no secrets.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isfinite
from pathlib import PurePath
from typing import Any

from modelglass.report import Component, Json

LONGEST = 64  # items of a list that is still a setting
NO_LIMIT = 10**15  # tokenizers without a greatest length have a number above this

# Whose text is nobody's business. Numbers are: there are many settings of how many tokens.
_SECRET = re.compile(r"(^|_)(token|password|passwd|secret|key|credentials?|auth)(_|$)")
_SIGNED_ADDRESS = re.compile(r"://([^/\s]*@|\S*\?)")
# Where processes meet: other at each start, and of no interest to anybody else.
_MEETING = re.compile(r"(^_|_(ip|addr|port|address)$|^placement_group$|^rank$)")


def components(vllm_config: Any, tokenizer: Any = None, engine: Any = None) -> tuple[Component, ...]:
    """What an engine is made of. Without `engine`: what one of this configuration would be."""
    made = (
        _tokenizer(tokenizer),
        _model_engine(vllm_config, engine),
        _scheduler(vllm_config, engine),
        _describe_part(vllm_config, "model", _model_description),
        _describe_part(vllm_config, "cache", _cache_description, name="kv_cache"),
        _describe_part(vllm_config, "parallel", _parallel_description),
        _quantization(vllm_config),
        _describe_part(vllm_config, "load", _load_description),
        _describe_part(vllm_config, "speculative", _speculative_description),
        _describe_part(vllm_config, "lora", _lora_description),
    )
    return tuple(each for each in made if each is not None)


def settings(config: Any) -> dict[str, Json]:
    """The plain values among the fields of a configuration object."""
    if is_dataclass(config):
        named: Mapping[str, Any] = {field.name: getattr(config, field.name, None) for field in fields(config)}
    else:
        named = vars(config) if hasattr(config, "__dict__") else {}
    found = ((name, plain_value(value)) for name, value in named.items() if not _MEETING.search(name))
    return {name: value for name, value in found if value is not _OTHER and not _is_secret(name, value)}


_OTHER = object()  # a value that is not plain


def plain_value(value: Any) -> Json:
    """A value as JSON has it; `_OTHER` for what is more than text, a number or a short list of them."""
    if isinstance(value, Enum):
        return value.name.lower()
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, str):
        return _OTHER if _SIGNED_ADDRESS.search(value) else value
    if isinstance(value, PurePath):
        return plain_value(str(value))
    if isinstance(value, type):
        return value.__name__
    if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
        return str(value).removeprefix("torch.")
    if isinstance(value, (list, tuple, set, frozenset)) and len(value) <= LONGEST:
        items = [plain_value(each) for each in value]
        if not any(each is _OTHER or isinstance(each, list) for each in items):
            return items if isinstance(value, (list, tuple)) else sorted(items, key=str)
    return _OTHER


def _is_secret(name: str, value: Json) -> bool:
    return isinstance(value, (str, list)) and value != "" and _SECRET.search(name.lower()) is not None


def _describe_part(
    vllm_config: Any, part: str, describe: Callable[[Any], str], name: str | None = None
) -> Component | None:
    """The part that one object of the whole configuration describes."""
    config = getattr(vllm_config, f"{part}_config", None)
    if config is None:
        return None
    return Component(
        name=name or part, type=type(config).__name__, description=describe(config), settings=settings(config)
    )


def _tokenizer(tokenizer: Any) -> Component | None:
    if tokenizer is None:
        return None
    found = dict(_tokenizer_settings(tokenizer))
    known, special = found.get("length"), found.get("special_tokens")
    texts = [f"Knows {known:,} tokens" if isinstance(known, int) else "Turns text into tokens"]
    if isinstance(special, list):
        texts.append(f"{len(special)} of them special")
    return Component(
        name="tokenizer", type=_public_class(tokenizer), description=", ".join(texts), settings=found
    )


def _public_class(native: Any) -> str:
    """The name of the first class that is not made up on the way, as vLLM does to tokenizers."""
    mro = type(native).__mro__
    return next((cls.__name__ for cls in mro if "<locals>" not in cls.__qualname__), mro[0].__name__)


def _tokenizer_settings(tokenizer: Any) -> Iterator[tuple[str, Json]]:
    reads: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("vocab_size", lambda: tokenizer.vocab_size),
        ("length", lambda: len(tokenizer)),
        ("max_length", lambda: _limit(tokenizer.model_max_length)),
        ("special_tokens", lambda: [str(token) for token in tokenizer.all_special_tokens]),
        *((f"{role}_token", _role(tokenizer, role)) for role in ("bos", "eos", "pad", "unk")),
        ("padding_side", lambda: tokenizer.padding_side),
        ("is_fast", lambda: tokenizer.is_fast),
        ("name_or_path", lambda: tokenizer.name_or_path),
    )
    for name, read in reads:
        value = _OTHER
        with suppress(Exception):  # a tokenizer of somebody's own making may lack it, or raise anything
            value = plain_value(read())
        if value is not _OTHER:
            yield name, value


def _role(tokenizer: Any, role: str) -> Callable[[], Any]:
    def read() -> Any:
        token = getattr(tokenizer, f"{role}_token")
        return None if token is None else str(token)

    return read


def _limit(length: Any) -> Any:
    return None if isinstance(length, (int, float)) and length >= NO_LIMIT else length


def _model_engine(vllm_config: Any, engine: Any) -> Component:
    model = getattr(vllm_config, "model_config", None)
    compilation = getattr(vllm_config, "compilation_config", None)
    parallel = getattr(vllm_config, "parallel_config", None)
    core = getattr(engine, "engine_core", None)
    found = {
        "vllm_version": version(),
        "architecture": architecture(vllm_config),
        "dtype": getattr(model, "dtype", None),
        "device": getattr(getattr(vllm_config, "device_config", None), "device_type", None),
        "runner": getattr(model, "runner_type", None),
        "enforce_eager": getattr(model, "enforce_eager", None),
        "compilation": getattr(compilation, "mode", None),
        "cuda_graphs": getattr(compilation, "cudagraph_mode", None),
        "optimization_level": getattr(vllm_config, "optimization_level", None),
        "executor": getattr(parallel, "distributed_executor_backend", None),
        "worker": getattr(parallel, "worker_cls", None),
        "client": None if core is None else type(core).__name__,
        "own_process": None if engine is None else not is_in_process(engine),
    }
    taken = {name: plain_value(value) for name, value in found.items()}
    return Component(
        name="model_engine",
        type="VllmConfig" if engine is None else type(engine).__name__,
        description=_engine_description(taken, runs=engine is not None),
        settings={name: value for name, value in taken.items() if value is not None and value is not _OTHER},
    )


def version() -> str:
    """The version of the vLLM that is loaded here."""
    return str(getattr(sys.modules.get("vllm"), "__version__", "unknown"))


def architecture(vllm_config: Any) -> str | None:
    """The class that vLLM chose for the model, or the one that the model's configuration names."""
    model = getattr(vllm_config, "model_config", None)
    named = getattr(model, "architecture", None)
    if isinstance(named, str):
        return named
    listed = getattr(getattr(model, "hf_config", None), "architectures", None) or ()
    return next((each for each in listed if isinstance(each, str)), None)


def is_in_process(engine: Any) -> bool:
    """Whether the engine's core is an object of this process, rather than another process."""
    return hasattr(getattr(engine, "engine_core", None), "engine_core")


def has_workers_here(engine: Any) -> bool:
    """Whether the modules are in this process: an engine here may have workers elsewhere."""
    return is_in_process(engine) and hasattr(getattr(engine, "model_executor", None), "driver_worker")


def tokenizer_of(engine: Any) -> Any:
    """The tokenizer that the engine has made; None if it runs without."""
    renderer = getattr(engine, "renderer", None)
    return getattr(engine, "tokenizer", None) if renderer is None else getattr(renderer, "tokenizer", None)


def _engine_description(found: Mapping[str, Json], *, runs: bool) -> str:
    model = found["architecture"] or "a model"
    text = f"vLLM {found['vllm_version']} {'runs' if runs else 'would run'} {model}"
    text += f" in {found['dtype']}" if isinstance(found["dtype"], str) else ""
    text += f" on {found['device']}" if isinstance(found["device"], str) else ""
    if not runs:
        return text
    if isinstance(found["enforce_eager"], bool):
        text += ", eagerly" if found["enforce_eager"] else ", compiled where its settings say so"
    return text + (", in a process of its own" if found["own_process"] else ", in this process")


def _scheduler(vllm_config: Any, engine: Any) -> Component | None:
    config = getattr(vllm_config, "scheduler_config", None)
    if config is None:
        return None
    sequences, tokens = getattr(config, "max_num_seqs", None), getattr(config, "max_num_batched_tokens", None)
    text = f"Takes up to {_amount(sequences)} sequences and {_amount(tokens)} tokens in one step"
    policy = getattr(config, "policy", None)
    text += {"fcfs": ", first come, first served", "priority": ", by priority"}.get(str(policy), "")
    chunked = getattr(config, "enable_chunked_prefill", None)
    if isinstance(chunked, bool):
        text += ", long prompts in chunks" if chunked else ", each prompt at once"
    return Component(
        name="scheduler", type=_scheduler_class(config, engine), description=text, settings=settings(config)
    )


def _scheduler_class(config: Any, engine: Any) -> str:
    core = getattr(getattr(engine, "engine_core", None), "engine_core", None)
    scheduler = getattr(core, "scheduler", None)
    if scheduler is not None:
        return type(scheduler).__name__
    named = getattr(config, "scheduler_cls", None)
    if isinstance(named, type):
        return named.__name__
    if isinstance(named, str) and named:
        return named.rpartition(".")[2]
    return "AsyncScheduler" if getattr(config, "async_scheduling", None) else "Scheduler"  # vLLM's own two


def _quantization(vllm_config: Any) -> Component | None:
    config = getattr(vllm_config, "quant_config", None)
    if config is None:
        return None
    found = settings(config)
    get_name = getattr(config, "get_name", None)
    method = plain_value(get_name()) if callable(get_name) else _OTHER
    if method is _OTHER:
        method = plain_value(getattr(getattr(vllm_config, "model_config", None), "quantization", None))
    bits = next((found[key] for key in ("weight_bits", "bits") if isinstance(found.get(key), int)), None)
    text = f"Weights are stored as {method} has them"
    text += f", {bits} bits each" if bits is not None else ""
    group = found.get("group_size")
    text += f", in groups of {group}" if isinstance(group, int) and group > 0 else ""
    return Component(
        name="quantization",
        type=type(config).__name__,
        description=text,
        settings={"method": method, **found},
    )


def _model_description(config: Any) -> str:
    length, name = getattr(config, "max_model_len", None), plain_value(getattr(config, "model", None))
    by = f", by {name}" if isinstance(name, str) else ""  # an address with a password is not shown
    return f"Sequences of up to {_amount(length)} tokens{by}"


def _cache_description(config: Any) -> str:
    blocks, size = getattr(config, "num_gpu_blocks", None), getattr(config, "block_size", None)
    if not isinstance(blocks, int):
        return f"Keeps tokens in blocks of {_amount(size)}; how many fit is known when an engine runs"
    return f"Keeps tokens in {blocks:,} blocks of {_amount(size)}"


def _parallel_description(config: Any) -> str:
    kinds = (("tensor", "tensor_parallel_size"), ("pipeline", "pipeline_parallel_size"))
    parts = [f"{kind}-parallel {_amount(getattr(config, name, None))}" for kind, name in kinds]
    parts.append(f"data-parallel {_amount(getattr(config, 'data_parallel_size', None))}")
    if getattr(config, "enable_expert_parallel", False):
        parts.append("experts divided among ranks")
    ranks = getattr(config, "world_size", None)
    return f"{_amount(ranks)} {'rank' if ranks == 1 else 'ranks'}: {', '.join(parts)}"


def _load_description(config: Any) -> str:
    form = plain_value(getattr(config, "load_format", None))
    if form == "dummy":
        return "Weights are random, not loaded"
    return "Weights are loaded from files" if form == "auto" else f"Weights are loaded by {form}"


def _speculative_description(config: Any) -> str:
    method, count = getattr(config, "method", None), getattr(config, "num_speculative_tokens", None)
    return f"Drafts {_amount(count)} tokens ahead by {method}"


def _lora_description(config: Any) -> str:
    return (
        f"Serves up to {_amount(getattr(config, 'max_loras', None))} adapters at once, "
        f"of ranks up to {_amount(getattr(config, 'max_lora_rank', None))}"
    )


def _amount(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "an unknown number of"
