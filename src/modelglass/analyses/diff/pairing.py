"""Which stored elements of two models are each other's counterparts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from modelglass.report import Comparison, Model, Shape, Tensor
    from modelglass.report.comparison import Pair, TensorPair


class Piece(NamedTuple):
    """A tensor, or some elements of it that follow each other."""

    tensor: Tensor
    shape: Shape
    start: int = 0

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def is_part(self) -> bool:
        """Whether it is only a part of its tensor."""
        return self.numel < whole(self.tensor).numel

    @property
    def kept_as(self) -> str:
        """The element type, or how it is packed."""
        packing = self.tensor.packing
        return self.tensor.dtype if packing is None else packing.scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Counterparts. `turned`: the frameworks of both keep the axes in another order.

    `trouble` says why their elements are not each other's counterparts one by one.
    """

    a: Piece | None
    b: Piece | None
    turned: bool = False
    trouble: str | None = None


_SHARED = "joined otherwise than one after the other"


def pair_tensors(comparison: Comparison, a: Model, b: Model) -> list[Paired]:
    """The tensors of both models in pairs, in the order of the first; what has no counterpart comes alone.

    What the alignment of parts does not reach, such as scales beside packed weights, is paired by name.
    """
    tensors_a, tensors_b = ({tensor.name: tensor for tensor in model.tensors} for model in (a, b))
    found = [
        paired
        for pair, turned, each in _tensor_pairs(comparison)
        for paired in _of_pair(each, turned, _Joined(pair, tensors_a, tensors_b))
    ]
    found = list(_consecutive(found))
    met_a = {each.a.name for each in found if each.a is not None}
    met_b = {each.b.name for each in found if each.b is not None}
    left_a = [tensor for name, tensor in tensors_a.items() if name not in met_a]
    left_b = {name: tensor for name, tensor in tensors_b.items() if name not in met_b}
    for tensor in left_a:
        twin = left_b.pop(tensor.name, None)
        found.append(Paired(a=whole(tensor), b=None if twin is None else whole(twin)))
    found += [Paired(a=None, b=whole(tensor)) for tensor in left_b.values()]
    order = {name: place for place, name in enumerate((*tensors_a, *tensors_b))}
    return sorted(found, key=lambda each: order[(each.a or each.b).name])  # type: ignore[union-attr]


def whole(tensor: Tensor) -> Piece:
    """All of a tensor, in the shape of what it stands for."""
    shape = tensor.shape if tensor.packing is None else tensor.packing.logical_shape
    return Piece(tensor, shape or ())


class _Joined(NamedTuple):
    """A pair of parts, and the tensors of both models."""

    pair: Pair
    a: Mapping[str, Tensor]
    b: Mapping[str, Tensor]


def _tensor_pairs(comparison: Comparison) -> Iterator[tuple[Pair, bool, TensorPair]]:
    """Pairs of tensors, and whether only frameworks have their axes in another order; each once."""
    met = set()
    for pair in comparison.pairs:
        turned = {
            each.tensor_a
            for each in pair.deviations
            if each.code == "layout" and each.standing == "framework"
        }
        for each in pair.tensors:
            key = (pair.a, pair.b, each.a, each.b)
            if key not in met:
                met.add(key)
                yield pair, each.a[0] in turned, each


def _of_pair(each: TensorPair, turned: bool, within: _Joined) -> Iterator[Paired]:
    tensors_a = [within.a[name] for name in each.a if name in within.a]
    tensors_b = [within.b[name] for name in each.b if name in within.b]
    if not tensors_a or not tensors_b:
        return
    pieces_a, pieces_b = _pieces(tensors_a, each.shape_a), _pieces(tensors_b, each.shape_b)
    if len(pieces_a) == len(pieces_b):
        for one, other in zip(pieces_a, pieces_b, strict=True):
            yield Paired(a=one, b=other, turned=turned)
    elif len(pieces_b) == 1:
        for one, part in _apart(pieces_a, pieces_b[0]):
            yield Paired(a=one, b=part, trouble=None if part.numel == one.numel else _SHARED)
    elif len(pieces_a) == 1:
        for other, part in _apart(pieces_b, pieces_a[0]):
            yield Paired(a=part, b=other, trouble=None if part.numel == other.numel else _SHARED)
    else:
        yield Paired(a=pieces_a[0], b=pieces_b[0], trouble=_SHARED)


def _pieces(tensors: Sequence[Tensor], shape: Shape | None) -> list[Piece]:
    """The tensors, of which a single one may be only a part, as its shape tells."""
    if len(tensors) == 1 and shape is not None and prod(shape) < whole(tensors[0]).numel:
        return [Piece(tensors[0], shape)]
    return [whole(tensor) for tensor in tensors]


def _apart(several: Sequence[Piece], joined: Piece) -> Iterator[tuple[Piece, Piece]]:
    """Each of several with what lies at its place in the joined one."""
    if sum(each.numel for each in several) != joined.numel:
        yield from ((each, joined) for each in several)
        return
    start = joined.start
    for each in several:
        yield each, Piece(joined.tensor, each.shape, start)
        start += each.numel


def _consecutive(pairs: Iterable[Paired]) -> Iterator[Paired]:
    """Parts of one tensor that pairs name one after the other lie there one after the other."""
    ends: dict[tuple[str, str], int] = defaultdict(int)
    for each in pairs:
        sides = {}
        for side in ("a", "b"):
            piece: Piece | None = getattr(each, side)
            if piece is not None and piece.start == 0 and piece.is_part:
                piece = piece._replace(start=ends[side, piece.name])
            if piece is not None:
                ends[side, piece.name] = piece.start + piece.numel
            sides[side] = piece
        yield Paired(a=sides["a"], b=sides["b"], turned=each.turned, trouble=each.trouble)
