"""What a checkpoint is made of: the model under whatever key it stands, and all that is beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from modelglass.formats.pickles.objects import Pairs, as_text
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.tensors.kinds import is_named_as_parameter, may_be_buffer
from modelglass.formats.tensors.location import Place
from modelglass.formats.torch.contents import MOST_DEPTH, Contents, contents_of, is_module, settings
from modelglass.formats.torch.memory import Memory, Places
from modelglass.formats.torch.optimizers import algorithm, is_optimizer, matched
from modelglass.formats.torch.plain import MOST_NUMBERS, shown
from modelglass.formats.torch.tensors import is_tensor, items_of
from modelglass.report import CheckpointPart, Json, PartKind
from modelglass.report.dtypes import nbytes_of

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
MOST_PARTS = 1000
SEARCHED = 1000  # things looked at to find one

# How a key says what it holds: by the words it is made of, which may have an "s" at their end; those with a
# star only begin so. The first kind that fits is taken.
_WORDS: tuple[tuple[PartKind, frozenset[str]], ...] = (
    ("scheduler", frozenset({"sched*"})),
    ("optimizer", frozenset({"optim*"})),
    (
        "training",
        frozenset({"callback", "loop", "rng", "random", "scaler", "amp", "sampler", "seed", "version"}),
    ),
    ("loss", frozenset({"loss", "losses", "metric", "score", "acc", "accuracy", "best", "fitness"})),
    ("progress", frozenset({"epoch", "step", "iter", "iteration", "progress", "round"})),
    (
        "normalisation",
        frozenset({"norm", "normali*", "mean", "std", "offset", "scale", "affine", "stat", "transform"}),
    ),
    (
        "hyper-parameters",
        frozenset({"hyper*", "hparam", "arg", "config", "cfg", "option", "setting", "opt", "lr", "arch"}),
    ),
)
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_NEVER_MODEL: tuple[PartKind, ...] = ("scheduler", "optimizer", "training", "loss", "progress")
_WASTE_FREELY = 4096  # bytes of storages that no tensor uses, before it is worth a word
_OVERHEAD = 700  # bytes that an archive takes for a tensor beside its values


def fill(root: Any, memory: Memory, reading: Reading, source: Source) -> None:
    """Fill the reading with the model's tensors, and with the parts that are beside it."""
    key, model, beside = _divided(root)
    seen: set[int] = set()
    found = contents_of(model, seen)
    if not reading.one_of_several:
        _take_off_prefix(found, reading)
    reading.tensors = memory.tensors(found.tensors)
    reading.modules = {path: (each.path, settings(each)) for path, each in found.modules.items()}
    _tell(found, reading, source)
    reading.places, memory.places = memory.places, Places()  # parts may have the names of the model's tensors
    _forget_parts(reading)
    if is_optimizer(root):
        reading.parts.append(
            CheckpointPart(kind="optimizer", key="", value=_options(root), type=algorithm(root))
        )
        reading.tensors = [replace(tensor, kind="buffer") for tensor in reading.tensors]
    elif key is not None or len(beside.flat):
        reading.parts.append(CheckpointPart(kind="model", key=key or ""))
    for number, (name, value) in enumerate(_apart(beside)):
        if number == MOST_PARTS:
            text = f"more than {MOST_PARTS:,} entries are beside the model; the others are not listed"
            reading.found(source, "torch.parts", "limit", text)
            break
        part = _part(name, value, memory, reading, seen)
        reading.parts.append(part)
    _know_buffers(reading)
    _tell_waste(reading, source)


def _forget_parts(reading: Reading) -> None:
    """Sparse tensors are made of several; the numbers of one of these are not theirs."""
    sparse = {
        tensor.name
        for tensor in reading.tensors
        if tensor.packing is not None and tensor.packing.scheme.startswith("sparse")
    }
    if sparse:
        reading.places = {name: reading.places[name] for name in reading.places if name not in sparse}


def _name(key: Any) -> str:
    return as_text(key) if isinstance(key, (str, bytes)) else str(shown(key))


def _divided(root: Any) -> tuple[str | None, Any, Pairs]:
    """The key of the model if it has one, the model, and what is beside it."""
    items = items_of(root)
    if items is None or is_module(root) or is_optimizer(root) or all(map(is_tensor, items.flat[1::2])):
        return None, root, Pairs()
    key = next(_model_keys(items), None)
    model, beside = Pairs(), Pairs()
    nested = key is None and any(not is_tensor(value) and _belongs("", value) for _, value in items.items())
    for name, value in items.items():
        belongs = key is None and _belongs(_name(name) if nested else "", value)
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


def _apart(beside: Pairs) -> Iterator[tuple[str, Any]]:
    """What is beside the model, by name; of several optimizers under one key, each."""
    for key, value in beside.items():
        name = _name(key)
        items = items_of(value)
        inside = list(items.items()) if items is not None else []
        if isinstance(value, (list, tuple)):
            inside = list(enumerate(value))
        if 0 < len(inside) <= SEARCHED and all(is_optimizer(each) for _, each in inside):
            yield from ((f"{name}.{_name(below)}", each) for below, each in inside)
        else:
            yield name, value


def _belongs(name: str, value: Any) -> bool:
    """Whether something in a dictionary without a model's key is a part of the model.

    Beside dictionaries of tensors, a name such as "rng_state" says that it is not.
    """
    kind = kind_by_name(name)
    if is_tensor(value):
        return kind not in (*_NEVER_MODEL, "normalisation")
    return kind not in _NEVER_MODEL and not is_optimizer(value) and _holds_tensors(value)


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
    prefix = reading.prefix = common_prefix([name for name, _, _ in found.tensors])
    if prefix:
        found.tensors = [(name.removeprefix(prefix), thing, kind) for name, thing, kind in found.tensors]
        wrapped = found.modules
        found.modules = {
            path.removeprefix(prefix): each for path, each in wrapped.items() if path.startswith(prefix)
        }


def common_prefix(names: Sequence[str]) -> str:
    """What wrappers put before all of the names."""
    prefix = ""
    while names:
        more = next((each for each in PREFIXES if all(name.startswith(prefix + each) for name in names)), "")
        if not more:
            break
        prefix += more
    return prefix


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


def _part(key: str, value: Any, memory: Memory, reading: Reading, seen: set[int]) -> CheckpointPart:
    kind = _kind(key, value)
    held = contents_of(value, seen).tensors if not isinstance(value, (str, bytes, int, float)) else []
    inside = [(f"{key}.{name}" if key and name else key or name, thing, said) for name, thing, said in held]
    tensors = tuple(replace(tensor, kind="buffer") for tensor in memory.tensors(inside))
    if is_optimizer(value):
        names = matched(value, reading.tensors, reading.prefix)
        options, type = _options(value), algorithm(value)
        return CheckpointPart(kind=kind, key=key, value=options, tensors=tensors, type=type, matched=names)
    if kind == "copy":
        return CheckpointPart(kind=kind, key=key, tensors=tensors)
    return CheckpointPart(
        kind=kind, key=key, value=shown(value, _small(inside, memory.places)), tensors=tensors
    )


def _small(held: list[tuple[str, Any, str | None]], places: Places) -> Mapping[int, Place]:
    """Where the few numbers of small tensors are, for each call that would make one."""
    found = {}
    for name, thing, _ in held[:SEARCHED]:
        if name in places:
            place = places[name]
            if prod(place.shape) <= MOST_NUMBERS:
                found[id(thing)] = place
    return found


def _kind(key: str, value: Any) -> PartKind:
    if is_optimizer(value):
        return "optimizer"
    if key in MODEL_KEYS and _holds_tensors(value):
        return "copy"
    return kind_by_name(key)


def kind_by_name(key: str) -> PartKind:
    for kind, known in _WORDS:
        for word in _WORD.findall(key[:200]):
            lower = word.lower()
            if lower in known or lower.removesuffix("s") in known:
                return kind
            if any(each[-1] == "*" and lower.startswith(each[:-1]) for each in known):
                return kind
    return "other"


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
    """An optimizer says what is trained: when all its states found their parameters, others are buffers.

    Unless they are frozen parameters, which have names of parameters, or more dimensions than most buffers.
    """
    optimizers = [part for part in reading.parts if part.kind == "optimizer" and part.tensors]
    trained = {name for part in optimizers for name in part.matched.values()}
    memories = {tensor.storage for tensor in reading.tensors if tensor.name in trained}
    if not memories or not all(part.matched for part in optimizers):
        return
    others = [t for t in reading.tensors if t.kind == "parameter" and t.storage not in memories]
    frozen = any(is_named_as_parameter(tensor) for tensor in others)
    buffers = {
        t.name
        for t in others
        if may_be_buffer(t) or (not frozen and len(t.shape or ()) < 2 and t.packing is None)
    }
    if buffers:
        reading.tensors = [
            replace(tensor, kind="buffer") if tensor.name in buffers else tensor for tensor in reading.tensors
        ]


def _tell_waste(reading: Reading, source: Source) -> None:
    """Storages are saved whole, also when a tensor is only a slice of one."""
    used = sum(tensor.nbytes or 0 for tensor in reading.tensors)
    used += sum(part.nbytes for part in reading.parts)
    if source.nbytes - used < _WASTE_FREELY + _OVERHEAD * len(reading.tensors):
        return
    stored: dict[tuple[int, int], int] = {}
    views: dict[tuple[int, int], dict[object, int]] = {}
    first: dict[tuple[int, int], str] = {}
    for name, place in reading.places.items():
        memory = id(place.source), place.offset
        nbytes = nbytes_of(place.dtype, prod(place.shape)) or 0
        stored[memory] = place.nbytes
        views.setdefault(memory, {})[place.first, place.shape, place.strides] = nbytes
        first.setdefault(memory, name)
    waste = {memory: stored[memory] - sum(views[memory].values()) for memory in stored}
    wasted = sum(nbytes for nbytes in waste.values() if nbytes > 0)
    if wasted < _WASTE_FREELY:
        return
    most = first[max(waste, key=lambda memory: waste[memory])]
    text = (
        f"the file keeps {wasted:,} bytes that no tensor uses: it has whole storages of which tensors are "
        f"slices, such as {most[:200]!r}; clones of them would take less"
    )
    reading.found(source, "torch.storage-waste", "info", text, nbytes=wasted, tensor=most)
