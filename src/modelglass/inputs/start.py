"""The first guesses: by names, annotations and the layers that a model begins with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from modelglass.inputs.described import (
    BATCH,
    BOOL,
    FLOAT,
    LENGTH,
    WHOLE,
    Call,
    Named,
    Node,
    Plain,
    Several,
    Shape,
    Tensor,
)
from modelglass.inputs.signature import Parameter
from modelglass.inputs.trial import Want

SIDE, EDGES = 224, 256
ORDINARY: Mapping[int, Shape] = {
    0: (),
    1: (BATCH,),
    2: (BATCH, LENGTH),
    3: (BATCH, LENGTH, LENGTH),
    4: (BATCH, 3, SIDE, SIDE),
    5: (BATCH, 3, 16, 64, 64),
}
# What names of inputs stand for, the first that fits; None: the layers show the sizes.
_ROLES: tuple[tuple[str, Tensor], ...] = (
    (r"edge_index", Tensor((2, EDGES), WHOLE)),
    (r"edge_", Tensor((EDGES, LENGTH))),
    (r"adj", Tensor((LENGTH, LENGTH))),
    (r"mask", Tensor((BATCH, LENGTH), BOOL)),
    (r"len(gth)?s?$", Tensor((BATCH,), WHOLE)),
    (r"^t$|time|sigma|noise_level|^step", Tensor((BATCH,))),
    (r"label|^y$|class", Tensor((BATCH,), WHOLE)),
    (r"ids?$|token|idx|indices|^src$|^tgt$|words|^users?$|^items?$", Tensor((BATCH, LENGTH), WHOLE)),
    (r"audio|wav|speech|signal", Tensor((BATCH, 16000))),
    (r"video|clip|volume|voxel", Tensor(ORDINARY[5])),
    (r"img|image|pixel|picture|photo", Tensor(ORDINARY[4])),
    (r"point|xyz|coord", Tensor((BATCH, 1024, 3))),
)
_SIDES = ("img_size", "image_size", "input_size", "input_resolution", "resolution")
_LEAST_SIDE = 28  # of a picture: parts of models have sizes of their own
_CHANNELS = ("in_chans", "in_channels", "num_channels", "input_channels")


def starts(
    parameters: Sequence[Parameter], wants: Sequence[tuple[str, Want]], hints: Mapping[str, int], floors: int
) -> Iterator[Call]:
    """Calls to begin with, the likeliest first."""
    required = [each for each in parameters if each.required] or list(parameters[:1])
    firsts = _firsts(wants)
    called = {layer for each in required for layer in each.layers}
    free = [first for first in firsts if first[0] not in called] or firsts
    spread = next((each.name for each in required if each.spread), None)
    for way in range(4):
        arguments = []
        for index, parameter in enumerate(required):
            layers = firsts if way == 1 or called.intersection(parameter.layers) else free
            node = _node(parameter, index, layers, hints, floors, way)
            arguments.append((parameter.name, node))
        yield _of_graph(Call(tuple(arguments), spread))


def _of_graph(call: Call) -> Call:
    """The call with many nodes in place of a batch, where edges join them."""
    tensors = call.tensors()
    if not any("edge" in str(path[-1]) for path in tensors):
        return call
    nodes = {
        path: replace(each, shape=(LENGTH, *(each.shape[1:] if each.dtype == FLOAT else ())))
        for path, each in tensors.items()
        if each.shape[:1] == (BATCH,) and "edge" not in str(path[-1])
    }
    groups = {path: Tensor((LENGTH,), WHOLE) for path in tensors if path[-1] == "batch"}
    return call.having_all(nodes | groups)


def optional_node(
    parameter: Parameter, wants: Sequence[tuple[str, Want]], hints: Mapping[str, int], floors: int
) -> Node:
    """A value for a parameter that could be left out."""
    return _node(parameter, 0, _firsts(wants), hints, floors, 0)


def _firsts(wants: Sequence[tuple[str, Want]]) -> list[tuple[str, Want]]:
    """The first layer of each part of the model."""
    found: dict[str, Want] = {}
    for path, want in wants:
        found.setdefault(path.partition(".")[0], want)
    return list(found.items())


def _node(
    parameter: Parameter,
    index: int,
    firsts: list[tuple[str, Want]],
    hints: Mapping[str, int],
    floors: int,
    way: int,
) -> Node:
    """A guess. `way` 1 gives each input the next part's layer, 2 takes lists for lists, 3 more dimensions."""
    if parameter.number is not None:
        return Plain(parameter.default if parameter.default is not None else parameter.number)
    if parameter.keys:
        named = {path: _tensor(path[-1], 0, firsts, hints, way, 0) for path in parameter.keys}
        return _nested(named)
    called = next((want for path, want in firsts if path in parameter.layers), None)
    if called is not None and not parameter.rank:
        made = _fitting(_role(parameter.name), called, hints)
    else:
        made = _tensor(parameter.name, index if way == 1 else 0, firsts, hints, way, parameter.rank)
    if parameter.spread:
        return Several((made,) * max(1, parameter.count))
    if "tuple" in parameter.annotation.lower():
        return Several((made,) * (parameter.count or max(2, parameter.annotation.count("Tensor"))))
    if (
        parameter.count
        and not parameter.rank
        and not (made.dtype == WHOLE and made.shape[0] == parameter.count)
    ):
        parts = (_tensor("", at, firsts, hints, 1, 0) for at in range(parameter.count))
        return Several(tuple(parts) if way == 1 else (made,) * parameter.count)
    if parameter.is_list or (parameter.is_walked and way == 2):
        return Several((made,) * (parameter.count or floors or 3), is_list=True)
    return made


def _nested(tensors: Mapping[tuple[str, ...], Tensor]) -> Named:
    """Dictionaries in dictionaries; a path that others go on from is one."""
    found: dict[str, Node] = {}
    for name in dict.fromkeys(path[0] for path in tensors):
        inner = {path[1:]: each for path, each in tensors.items() if path[0] == name and len(path) > 1}
        found[name] = _nested(inner) if inner else tensors[(name,)]
    return Named(tuple(found.items()))


def _role(name: str) -> Tensor | None:
    """What the name of an input stands for."""
    return next((made for pattern, made in _ROLES if re.search(pattern, name.lower())), None)


def _fitting(known: Tensor | None, want: Want, hints: Mapping[str, int]) -> Tensor:
    """What a layer is called with first; a name may say how many there are."""
    if want.whole:
        return (
            Tensor(known.shape, WHOLE) if known is not None and len(known.shape) < 3 else wanted(want, hints)
        )
    is_same_rank = known is not None and known.dtype == FLOAT and len(known.shape) in want.ranks
    return wanted(want, hints, len(known.shape) if known is not None and is_same_rank else 0)


def _tensor(
    name: str, index: int, firsts: list[tuple[str, Want]], hints: Mapping[str, int], way: int, rank: int
) -> Tensor:
    known = _role(name)
    named = next(
        (want for path, want in firsts if name and len(name) > 2 and name.lower() in path.lower()), None
    )
    want = named or (firsts[min(index, len(firsts) - 1)][1] if firsts else Want())
    if known is not None and not rank:
        fitting = want.ranks and len(known.shape) in want.ranks and known.dtype == FLOAT
        holds = all(size in known.shape for _, size in want.sizes)
        if len(known.shape) >= 4 and fitting:
            return wanted(want, hints, len(known.shape))
        return Tensor(sized(known.shape, want), FLOAT) if fitting and not holds else known
    return wanted(want, hints, rank or (3 if way == 3 and not want.ranks else 0))


def wanted(want: Want, hints: Mapping[str, int], rank: int = 0) -> Tensor:
    """A tensor that a layer accepts, in ordinary sizes."""
    if want.whole:
        return Tensor(ORDINARY[rank or 2], WHOLE)
    rank = rank or (want.ranks[0] if want.ranks else 2)
    made = Tensor(ORDINARY.get(rank, (BATCH,) * rank))
    if rank >= 4:
        channels = next((hints[name] for name in _CHANNELS if name in hints), made.shape[1])
        side = next((hints[name] for name in _SIDES if hints.get(name, 0) >= _LEAST_SIDE), None)
        shape = (BATCH, channels, *(made.shape[2:] if side is None else [side] * (rank - 2)))
        made = Tensor((BATCH, *shape[2:], channels) if _has_channels_last(want) else shape)
    return replace(made, shape=sized(made.shape, want))


def _has_channels_last(want: Want) -> bool:
    return any(dim == -1 for dim, _ in want.sizes)


def sized(shape: Shape, want: Want) -> Shape:
    """A shape with the sizes that a layer accepts."""
    made = list(shape)
    for dim, size in want.sizes:
        if -len(made) <= dim < len(made):
            made[dim] = size
    return tuple(made)
