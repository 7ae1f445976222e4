"""What to change after a trial that failed: a table of rules, each from what was seen to other calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from modelglass.inputs.described import (
    BOOL,
    FLOAT,
    LENGTH,
    WHOLE,
    Call,
    Named,
    Node,
    Path,
    Plain,
    Several,
    Shape,
    Tensor,
    sides,
    with_sides,
)
from modelglass.inputs.start import ORDINARY, sized, wanted
from modelglass.inputs.trial import Trial

_ROUND = (8, 14, 16, 24, 28, 32, 48, 56, 64, 96, 112, 128, 160, 192, 224, 256, 299, 320, 384, 448, 512)
_SIDES = (32, 64, 128, 256, 96, 28, 384, 299, 512, 48, 16, 192, 8)
_DIVISIBLE = (256, 384, 288, 240, 192, 448, 512, 128)
_MULTIPLE = re.compile(r"divisible|multiple of")
_LENGTHS = (64, 32, 16, 256, 512, 1024, 100, 50, 16000)
_MOST = 9  # numbers of a message that are looked at
_RANK = re.compile(
    r"unpack|[Dd]imension|\d-?[dD]\b|dims|subscript|rank|permute|index \d+ is out|ndim|tuple index", re.ASCII
)
_TYPES: tuple[tuple[str, str], ...] = (  # of the message, and what an input should be instead
    (r"one of the following scalar types: Long|long, int|expected .*(Long|Int)\b|int64|must be long", WHOLE),
    (r"(bool|Bool)", BOOL),
    (r"Float|float|same dtype|floating|'Long'|not implemented for", FLOAT),
)
_SHAPE = re.compile(r"[\[(]\d+(?:, ?\d+)+[\])]")
_WANTS_SEVERAL = re.compile(r"\btuple\b|(?<!in the )\blist\b|not Tensor|sequence")
_WANTS_ONE = re.compile(r"(not|got) (list|tuple|int|float)\b|'(list|tuple|int|float)' object")
_ONLY_SIZES = re.compile(r"broadcast a dimension|match except in dimension|must match the size")
_KEY = re.compile(r"""(\w+)(?:\[|\.get\()["'](\w+)["']""")
_INDEX = re.compile(r"(\w+)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A call that failed, how it did, and what else could be given."""

    call: Call
    trial: Trial
    optional: tuple[tuple[str, Node], ...]
    hints: dict[str, int]

    def near(self) -> list[tuple[Path, Tensor]]:
        """The tensors, those first that were met as they are, then those that share most sizes."""
        met = self.trial.met[0] if self.trial.met else ()

        def far(item: tuple[Path, Tensor]) -> tuple[bool, int]:
            shape = item[1].shape
            return shape != met, -len(set(shape) & set(met))

        return sorted(self.call.tensors().items(), key=far)


Rule: TypeAlias = Callable[[Evidence], Iterator[Call]]


def repairs(evidence: Evidence) -> Iterator[Call]:
    """Calls to try next, the likeliest first."""
    turned = any(isinstance(node, (Several, Plain)) for _, node in evidence.call.arguments)
    if turned and _WANTS_ONE.search(evidence.trial.message):
        return  # a wrong turn: what was there before has repairs of its own
    for rule in RULES:
        yield from rule(evidence)


def _given_too(seen: Evidence) -> Iterator[Call]:
    """Optional inputs that the message or the line names, and all of them where None was met."""
    text = f"{seen.trial.message} {seen.trial.line}"
    words = set(re.findall(r"\w+", text))
    missing = [(name, node) for name, node in seen.optional if seen.call.get(name) is None]
    for name, node in missing:
        if name in words:
            yield seen.call.having((name,), node)
            if len(seen.call.arguments) == 1:
                yield Call(((name, node),))
    if "NoneType" in text:
        yield from (seen.call.having((name,), node) for name, node in missing if name not in words)


def _structured(seen: Evidence) -> Iterator[Call]:
    """Dictionaries where the line looks a name up, tuples where a tensor was one too few."""
    keys = _KEY.findall(seen.trial.line)
    if seen.trial.error == "KeyError":
        keys += [("", seen.trial.message.strip("'\""))]
    fresh = wanted(seen.trial.want, seen.hints) if seen.trial.want else Tensor(ORDINARY[2])
    for name, node in seen.call.arguments:
        if isinstance(node, Named):
            held = dict(node.items)
            for _, key in keys:
                if key not in held:
                    yield seen.call.having((name, key), fresh)
        elif keys and "dict" not in seen.trial.error:
            yield seen.call.having((name,), Named(tuple((key, fresh) for _, key in keys)))
        if isinstance(node, Several) and re.search(
            r"index out|values to unpack|out of range", seen.trial.message
        ):
            yield seen.call.having((name,), replace(node, items=(*node.items, node.items[-1])))
            if len(node.items) > 1:
                yield seen.call.having((name,), replace(node, items=node.items[:-1]))
        if isinstance(node, Tensor) and _WANTS_SEVERAL.search(seen.trial.message):
            yield seen.call.having((name,), Several((node, node), is_list=True))
            yield seen.call.having((name,), Several((node, node)))


def _plain(seen: Evidence) -> Iterator[Call]:
    """A number where the code counts with it."""
    if not re.search(
        r"integer|Integer|number|item|Value|DataDependent|(?<!at )index",
        seen.trial.error + seen.trial.message,
    ):
        return
    for path, tensor in seen.call.tensors().items():
        if len(tensor.shape) < 2 and len(path) == 1:
            yield seen.call.having(path, Plain(8))
            yield seen.call.having(path, Plain(1))


def _typed(seen: Evidence) -> Iterator[Call]:
    """Another element type."""
    if seen.trial.want is not None and seen.trial.want.whole:
        for path, tensor in seen.near():
            if tensor.dtype != WHOLE:
                shape = tensor.shape if len(tensor.shape) < 3 else ORDINARY[2]
                yield seen.call.having(path, Tensor(shape, WHOLE))
    for pattern, dtype in _TYPES:
        if re.search(pattern, seen.trial.message):
            for path, tensor in seen.near():
                if tensor.dtype != dtype:
                    yield seen.call.having(path, replace(tensor, dtype=dtype))


def _as_wanted(seen: Evidence) -> Iterator[Call]:
    """The rank and sizes of the layer that stopped."""
    want = seen.trial.want
    if want is None or want.whole:
        return
    met = seen.trial.met[0] if seen.trial.met else ()
    for path, tensor in seen.near():
        if tensor.shape == met:
            rank = len(tensor.shape)
            if want.ranks and (rank not in want.ranks or rank >= 4):
                yield seen.call.having(path, wanted(want, seen.hints))
            fitted = sized(tensor.shape, want)
            if fitted != tensor.shape and _is_batch(tensor.shape, seen.call):
                yield seen.call.having(path, Tensor((*tensor.shape, *fitted), FLOAT))
            if fitted != tensor.shape:
                yield seen.call.having(path, Tensor(fitted, FLOAT))
            if tensor.dtype != FLOAT:
                yield seen.call.having(path, wanted(want, seen.hints))


def _is_batch(shape: Shape, call: Call) -> bool:
    """Whether a shape is one size, the batch that larger inputs have."""
    return any(each.shape[:1] == shape for each in call.tensors().values() if len(each.shape) > 1)


def _transposed(seen: Evidence) -> Iterator[Call]:
    """The sizes as a layer met them, where the model exchanges two dimensions before it."""
    met = seen.trial.met[0] if seen.trial.met else ()
    for path, tensor in seen.near():
        if tensor.shape[:1] == met[:1] and tensor.shape != met and sorted(tensor.shape) == sorted(met):
            yield seen.call.having(path, replace(tensor, shape=met))


def _told(seen: Evidence) -> Iterator[Call]:
    """The whole shape that a message names beside the one of an input."""
    shapes = [tuple(map(int, re.findall(r"\d+", each))) for each in _SHAPE.findall(seen.trial.message)]
    for path, tensor in seen.near():
        for shape in shapes:
            if tensor.shape in shapes and shape != tensor.shape and 0 not in shape:
                yield seen.call.having(path, replace(tensor, shape=shape))


def _exchanged(seen: Evidence) -> Iterator[Call]:
    """A size that met another one is set to it, or follows it in proportion or by the difference."""
    pairs = _pairs(seen.trial)
    near = seen.near()
    for before, after in pairs:
        changed = {}
        for path, tensor in near:
            if before not in tensor.shape[1:]:
                continue
            changed[path] = _exchange(tensor, before, after)
            last = len(tensor.shape) - 1 - tensor.shape[::-1].index(before)
            if len(tensor.shape) < 4:
                yield seen.call.having(path, _with(tensor, last, after))
            yield seen.call.having(path, changed[path])
        if len(changed) > 1:
            yield seen.call.having_all(changed)
    for before, after in pairs:
        for path, tensor in near:
            for dim, size in enumerate(tensor.shape):
                if size == before and (dim or len(tensor.shape) < 3):
                    yield seen.call.having(path, _with(tensor, dim, after))
    for before, after in pairs:
        for path, tensor in near:
            yield from (seen.call.having(path, each) for each in _in_proportion(tensor, before, after))
    for before, after in pairs:
        for path, tensor in near:
            for dim in (len(tensor.shape) - 1, 1):
                if 0 < dim < len(tensor.shape) and (size := tensor.shape[dim] + after - before) > 0:
                    yield seen.call.having(path, _with(tensor, dim, size))
    yield from _shared(seen, pairs)


def _shared(seen: Evidence, pairs: list[tuple[int, int]]) -> Iterator[Call]:
    """A size in parts, where several inputs are joined; and one that gives what another one takes."""
    want = seen.trial.want
    place = want.sizes[-1][0] if want is not None and want.sizes else -1
    near = [
        (path, tensor, place % len(tensor.shape))
        for path, tensor in seen.near()
        if tensor.dtype == FLOAT and len(tensor.shape) > max(1, place)
    ]
    if not pairs or len(near) < 2:
        return
    before, after = pairs[0]
    for path, tensor, dim in near:
        for other, its, at in near:
            for times in (1, 2):
                left = its.shape[at] - times * (after - before)
                if path != other and tensor.shape[dim] == before and left > 0:
                    given = {path: _with(tensor, dim, after), other: _with(its, at, left)}
                    yield seen.call.having_all(given)
    for parts in (2, 3, 4):
        part, rest = divmod(after, parts)
        if part:
            sizes = [part + (rest if index == 0 else 0) for index in range(len(near))]
            yield seen.call.having_all(
                {
                    path: _with(tensor, dim, size)
                    for (path, tensor, dim), size in zip(near, sizes, strict=True)
                }
            )


def _exchange(tensor: Tensor, before: int, after: int) -> Tensor:
    sizes = (after if size == before else size for size in tensor.shape[1:])
    return replace(tensor, shape=(*tensor.shape[:1], *sizes))


def _pairs(trial: Trial) -> list[tuple[int, int]]:
    """Sizes that met, and what each should have been: by the layer, then by the message and the shapes."""
    found: dict[tuple[int, int], None] = {}
    met = trial.met[0] if trial.met else ()
    for dim, size in trial.want.sizes if trial.want is not None else ():
        if -len(met) <= dim < len(met) and met[dim] != size:
            found[met[dim], size] = None
    if found:
        return list(found)
    fixed = {size for shape in trial.weights for size in shape}
    numbers = [each for each in trial.numbers[:_MOST] if each > 0]
    sizes = [size for shape in trial.met for size in shape]
    named = list(dict.fromkeys([*numbers, *sizes]))[: 2 * _MOST]
    ordered = sorted(
        ((before, after) for before in named for after in named if before != after),
        key=lambda pair: (pair[0] in fixed, pair[1] not in fixed, 1 in pair),
    )
    return ordered[:40]


def _in_proportion(tensor: Tensor, before: int, after: int) -> Iterator[Tensor]:
    rank = len(tensor.shape)
    if rank >= 3 and before > 0:
        old = [tensor.shape[dim] for dim in sides(tensor.shape)]
        factor = (after / before) ** (1 / len(old))
        scaled = [max(1, round(side * factor)) for side in old]
        if scaled != old:
            yield with_sides(tensor, [min(_ROUND, key=lambda each: abs(each - side)) for side in scaled])
            yield with_sides(tensor, scaled)
    for dim in range(rank - 1, 0, -1):
        size, rest = divmod(tensor.shape[dim] * after, before)
        if not rest and 0 < size != tensor.shape[dim] and size < 1 << 20:
            yield _with(tensor, dim, size)


def _lettered(seen: Evidence) -> Iterator[Call]:
    """The ranks that the letters of an einsum stand for, with the sizes of weights that have them."""
    written = re.search(r"""einsum\(\s*["']([a-zA-Z, ]+)->""", seen.trial.line)
    operands = written.group(1).replace(" ", "").split(",") if written is not None else []
    if not operands or len(operands) != len(seen.trial.met):
        return
    sizes: dict[str, int] = {}
    for letters, shape in zip(operands, seen.trial.met, strict=True):
        if shape in seen.trial.weights and len(shape) == len(letters):
            sizes.update(zip(letters, shape, strict=True))
    for letters, shape in zip(operands, seen.trial.met, strict=True):
        for path, tensor in seen.near():
            if tensor.shape == shape and shape not in seen.trial.weights:
                ordinary = (ORDINARY.get(len(letters)) or shape)[: len(letters)]
                made = tuple(sizes.get(letter, size) for letter, size in zip(letters, ordinary, strict=False))
                yield seen.call.having(path, replace(tensor, shape=made))


def _ranked(seen: Evidence) -> Iterator[Call]:
    """More or fewer dimensions."""
    alike = len({len(shape) for shape in seen.trial.met}) < 2
    if not _RANK.search(seen.trial.message) or (alike and _ONLY_SIZES.search(seen.trial.message)):
        return
    expected = re.search(r"expected (\d)", seen.trial.message)
    for path, tensor in seen.near():
        rank = len(tensor.shape)
        order = [rank + 1, rank - 1, rank + 2, rank - 2]
        if expected is not None:
            order.insert(0, int(expected.group(1)))
        for other in dict.fromkeys(order):
            if (rank, other) == (1, 2):
                yield seen.call.having(path, replace(tensor, shape=(*tensor.shape, 1)))
            if 0 <= other <= 5 and other != rank:
                yield seen.call.having(path, _of_rank(tensor, other))


def _of_rank(tensor: Tensor, rank: int) -> Tensor:
    shape = tensor.shape
    if rank == 4 and tensor.dtype == FLOAT and len(shape) < 3:
        return replace(tensor, shape=ORDINARY[4])
    if rank == 1 < len(shape) and tensor.dtype == FLOAT:
        return replace(tensor, shape=shape[:1])  # one number for each of the batch
    if rank < len(shape):
        return replace(tensor, shape=(*shape[: rank - 1], *shape[-1:]) if rank else ())
    more = (LENGTH,) * (rank - len(shape))
    return replace(tensor, shape=(*shape[:1], *more, *shape[1:]) if shape else more)


def _swept(seen: Evidence) -> Iterator[Call]:
    """Other ordinary sizes, of all pictures and lengths together."""
    tensors = seen.call.tensors()
    own = tuple(size for size in seen.hints.values() if 1 < size < 5000)
    yield from _with_all_sides(seen.call, (*own[:6], *_SIDES))
    for length in dict.fromkeys((*own[:6], *_LENGTHS)):
        longer = {
            path: replace(each, shape=tuple(length if size == LENGTH else size for size in each.shape))
            for path, each in tensors.items()
            if LENGTH in each.shape
        }
        if longer:
            yield seen.call.having_all(longer)


def _with_all_sides(call: Call, chosen: Iterable[int]) -> Iterator[Call]:
    """The call with all pictures and volumes in other sizes."""
    pictures = {path: each for path, each in call.tensors().items() if len(each.shape) >= 4}
    for side in dict.fromkeys(chosen) if pictures else ():
        yield call.having_all(
            {path: with_sides(each, (side,) * (len(each.shape) - 2)) for path, each in pictures.items()}
        )


def _anything(seen: Evidence) -> Iterator[Call]:
    """Other ranks and types, whatever the message says."""
    for path, tensor in seen.near():
        for rank in (len(tensor.shape) + 1, len(tensor.shape) - 1):
            if 1 <= rank <= 5:
                yield seen.call.having(path, _of_rank(tensor, rank))
        other = WHOLE if tensor.dtype == FLOAT else FLOAT
        yield seen.call.having(path, replace(tensor, dtype=other))
    yield from (
        seen.call.having((name,), node) for name, node in seen.optional if seen.call.get(name) is None
    )


def _with(tensor: Tensor, dim: int, size: int) -> Tensor:
    return replace(tensor, shape=(*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]))


def _divisible(seen: Evidence) -> Iterator[Call]:
    """Other sides of pictures at once, where a model insists on some."""
    if seen.trial.error == "AssertionError" or _MULTIPLE.search(seen.trial.message):
        yield from _with_all_sides(seen.call, _DIVISIBLE)


RULES: tuple[Rule, ...] = (
    _given_too,
    _divisible,
    _structured,
    _as_wanted,
    _typed,
    _plain,
    _lettered,
    _told,
    _ranked,
    _transposed,
    _exchanged,
    _swept,
    _anything,
)
