"""What a checkpoint is made of: the model under whatever key it stands, and all that is beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from modelglass.formats.pickles.objects import Pairs, as_text
from modelglass.formats.reading import Reading
from modelglass.formats.sidecars import code_references
from modelglass.formats.source import Source
from modelglass.formats.torch.contents import MOST_DEPTH, Contents, contents_of, is_module, settings
from modelglass.formats.torch.memory import Memory
from modelglass.formats.torch.optimizers import algorithm, is_optimizer, matched
from modelglass.formats.torch.plain import shown
from modelglass.formats.torch.tensors import is_tensor, items_of
from modelglass.report import Json, Part, PartKind

# Where models stand, the likeliest first.
MODEL_KEYS = (
    "state_dict",
    "model_state_dict",
    "model_state",
    "model",
    "module",
    "net",
    "network",
    "weights",
    "params",
    "model_weights",
    "student",
    "generator",
    "params_ema",
    "ema",
    "model_ema",
    "ema_state_dict",
    "state_dict_ema",
    "teacher",
)
PREFIXES = ("module.", "_orig_mod.")  # of wrappers for several devices, and of compiled models
DEPTH_OF_TENSORS = 4  # how deep below a key a tensor may be for the key to hold a model
SEARCHED = 1000  # things looked at to find one

# How a key says what it holds: by any of these words in it. The first kind that fits is taken.
_WORDS: tuple[tuple[PartKind, tuple[str, ...]], ...] = (
    ("scheduler", ("scheduler", "lr_sched")),
    ("optimizer", ("optim",)),
    ("loss", ("loss", "metric", "score", "accuracy", "best")),
    ("progress", ("epoch", "step", "iter", "progress", "version")),
    ("normalisation", ("norm", "mean", "std", "offset", "scale", "affine", "stats", "transform")),
    ("hyper-parameters", ("hyper", "hparam", "args", "config", "cfg", "options", "settings", "opt")),
    ("training", ("callback", "loop", "rng", "random", "scaler", "amp", "sampler", "seed")),
)


def fill(root: Any, memory: Memory, reading: Reading, source: Source) -> None:
    """Fill the reading with the model's tensors, and with the parts that are beside it."""
    key, model, beside = _divided(root)
    found = contents_of(model)
    _take_off_prefix(found, reading)
    reading.tensors = memory.tensors(found.tensors)
    reading.modules = {path: (each.path, settings(each)) for path, each in found.modules.items()}
    _tell(found, reading, source)
    if is_optimizer(root):
        reading.parts.append(_part("", root, memory, reading))
        reading.tensors = [replace(tensor, kind="buffer") for tensor in reading.tensors]
    elif key is not None or len(beside.flat):
        reading.parts.append(Part(kind="model", key=key or ""))
    for name, value in beside.items():
        part = _part(_name(name), value, memory, reading)
        reading.parts.append(part)
        code_references(part.value, source, reading)
    _know_buffers(reading)
    reading.places = memory.places


def _name(key: Any) -> str:
    return as_text(key) if isinstance(key, (str, bytes)) else str(shown(key))


def _divided(root: Any) -> tuple[str | None, Any, Pairs]:
    """The key of the model if it has one, the model, and what is beside it."""
    items = items_of(root)
    if items is None or is_module(root) or is_optimizer(root):
        return None, root, Pairs()
    key = next(_model_keys(items), None)
    model, beside = Pairs(), Pairs()
    for name, value in items.items():
        belongs = key is None and _belongs(value)
        if not (key is not None and _name(name) == key):
            (model if belongs else beside).flat += (name, value)
    if key is not None:
        return key, items.get(key), beside
    return None, model, beside


def _model_keys(items: Pairs) -> Iterator[str]:
    names = {as_text(name): value for name, value in items.items() if isinstance(name, (str, bytes))}
    for key in MODEL_KEYS:
        value = names.get(key)
        if value is not None and not is_tensor(value) and not is_optimizer(value) and _holds_tensors(value):
            yield key


def _belongs(value: Any) -> bool:
    """Whether something in a dictionary without a model's key is a part of the model."""
    return is_tensor(value) or (not is_optimizer(value) and _holds_tensors(value))


def _holds_tensors(value: Any) -> bool:
    waiting, looked = [(value, 0)], 0
    while waiting and looked < SEARCHED:
        each, depth = waiting.pop()
        looked += 1
        if is_tensor(each) or is_module(each):
            return True
        if depth < DEPTH_OF_TENSORS:
            items = items_of(each)
            inside = items.flat[1:64:2] if items is not None else each if isinstance(each, list) else ()
            waiting += [(item, depth + 1) for item in inside[:64]]
    return False


def _take_off_prefix(found: Contents, reading: Reading) -> None:
    """Names of wrapped models all begin alike, with something that is not a part of the model."""
    prefix = ""
    names = [name for name, _, _ in found.tensors]
    while names:
        more = next((each for each in PREFIXES if all(name.startswith(prefix + each) for name in names)), "")
        if not more:
            break
        prefix += more
    reading.prefix = prefix
    if prefix:
        found.tensors = [(name.removeprefix(prefix), thing, kind) for name, thing, kind in found.tensors]
        wrapped = found.modules
        found.modules = {
            path.removeprefix(prefix): each for path, each in wrapped.items() if path.startswith(prefix)
        }


def _tell(found: Contents, reading: Reading, source: Source) -> None:
    if found.duplicates:
        text = f"a dictionary has the key {found.duplicates[0][:200]!r} twice; loaders keep the last value"
        reading.found(source, "torch.duplicate-key", "notice", text, keys=found.duplicates[:20])
    if found.too_deep:
        text = f"containers are nested more than {MOST_DEPTH} deep; what is below that is not listed"
        reading.found(source, "torch.deep", "info", text)
    if found.repeated:
        text = f"{found.repeated:,} containers hang in several places; each is listed in the first"
        reading.found(source, "torch.shared", "info", text)


def _part(key: str, value: Any, memory: Memory, reading: Reading) -> Part:
    kind = _kind(key, value)
    held = contents_of(value).tensors if not isinstance(value, (str, bytes, int, float)) else []
    inside = [(f"{key}.{name}" if key and name else key or name, thing, said) for name, thing, said in held]
    tensors = memory.tensors(inside)
    data = _options(value) if kind == "optimizer" and is_optimizer(value) else shown(value)
    single = is_optimizer(value)
    return Part(
        kind=kind,
        key=key,
        value=None if kind == "copy" else data,
        tensors=() if key == "" else tuple(replace(tensor, kind="buffer") for tensor in tensors),
        type=algorithm(value) if single else None,
        matched=matched(value, reading.tensors) if single else {},
    )


def _kind(key: str, value: Any) -> PartKind:
    if is_optimizer(value):
        return "optimizer"
    if key in MODEL_KEYS and _holds_tensors(value):
        return "copy"
    lower = key.lower()
    return next((kind for kind, words in _WORDS if any(word in lower for word in words)), "other")


def _options(optimizer: Any) -> Json:
    """The settings of an optimizer's groups, without the lists of their parameters."""
    items = items_of(optimizer)
    groups = shown(items.get("param_groups")) if items is not None else None
    if not isinstance(groups, list):
        return None
    return [
        {name: item for name, item in group.items() if name not in ("params", "param_names")}
        for group in groups
        if isinstance(group, dict)
    ]


def _know_buffers(reading: Reading) -> None:
    """An optimizer says what is trained: when all its states found their parameters, others are buffers."""
    trained = next((set(part.matched.values()) for part in reading.parts if part.matched), None)
    names = {tensor.name for tensor in reading.tensors}
    if trained is None or not trained <= names:
        return
    parameters = [t for t in reading.tensors if t.kind == "parameter" and t.name not in trained]
    if all(len(t.shape or ()) <= 1 for t in parameters):  # a frozen layer has matrices, and is no buffer
        lost = {tensor.name for tensor in parameters}
        reading.tensors = [
            replace(t, kind="buffer") if t.name in lost and t.packing is None else t for t in reading.tensors
        ]
