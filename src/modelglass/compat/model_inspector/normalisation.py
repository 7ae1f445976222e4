"""How a model's data are scaled, as far as the names of its constants and settings tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from modelglass.report.scaling import CENTRES, SPREADS

if TYPE_CHECKING:
    from modelglass.report import CheckpointPart, Json, Model

_CENTRES = CENTRES | {"bias"}  # of a buffer, which no layer learns
_ALONE = frozenset(
    {"mean", "means", "std", "stds", "offset", "offsets"}
)  # that need no second one beside them
_SETTINGS = _ALONE | {"affine", "scale", "scales"}
_NODE = re.compile(r"normali[sz]|(?:^|_)norm_stat|(?:^|_)(?:data|input|feature|label)_stats")
_DEPTH = 6  # of nested settings that are looked at


def constants(model: Model) -> tuple[str, ...]:
    """The buffers that say how data are scaled: an offset or mean, a scale or deviation beside it."""
    buffers = [tensor.name for tensor in model.tensors if tensor.kind == "buffer"]
    stems = {_stem(name): set[str]() for name in buffers}
    for name in buffers:
        stems[_stem(name)].add(_last_word(name))
    return tuple(name for name in buffers if _is_constant(name, stems[_stem(name)]))


def _is_constant(name: str, beside: set[str]) -> bool:
    last = name.rpartition(".")[2]
    if last.startswith("running_"):  # a layer's own, of what passes through it
        return False
    word = _last_word(name)
    paired = not beside.isdisjoint(_CENTRES) and not beside.isdisjoint(SPREADS)
    return word in _ALONE or (paired and word in _CENTRES | SPREADS)


def _stem(name: str) -> str:
    return name[: len(name) - len(_last_word(name))]


def _last_word(name: str) -> str:
    return re.split(r"[._]", name)[-1].lower()


def settings(config: Json) -> dict[str, Json]:
    """What a configuration says about it, by dotted keys: lists of offsets and scales, transforms by name."""
    return dict(_settings(config, "", False, 0))


def checkpoint_settings(parts: Iterable[CheckpointPart]) -> dict[str, Json]:
    """What a checkpoint holds about it beside the model: as such, or among its hyper-parameters."""
    said: dict[str, Json] = {}
    for part in parts:
        if part.kind == "normalisation":
            said[part.key] = part.value
        elif part.kind == "hyper-parameters":
            said |= settings({part.key: part.value})
    return said


def _settings(node: Json, path: str, inside: bool, depth: int) -> Iterator[tuple[str, Json]]:
    if not isinstance(node, Mapping) or depth > _DEPTH:
        return
    for key, value in node.items():
        name = str(key)
        place = f"{path}.{name}" if path else name
        below = inside or _NODE.search(name.lower()) is not None
        if isinstance(value, Mapping):
            yield from _settings(value, place, below, depth + 1)
        elif (below and depth > 0) or _tells(name.lower(), value):
            yield place, value


def _tells(name: str, value: Json) -> bool:
    words = set(name.split("_"))
    numbers = isinstance(value, list) and bool(value) and all(type(item) in (int, float) for item in value)
    if numbers:
        return not words.isdisjoint(_SETTINGS)
    return isinstance(value, str) and len(words) > 1 and name.endswith("_transform")
