"""How the parameters of one model become as many as those of the other: each term with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from modelglass.report import Note
from modelglass.report.comparison import ParameterTerm

if TYPE_CHECKING:
    from modelglass.analyses.compare.sides import Side
    from modelglass.report import Model, Tensor
    from modelglass.report.comparison import Pair, Standing, TensorPair

_TEXTS = {  # in the order in which they are reported
    "tied": "shared memory in one only",
    "buffer": "a parameter in one only",
    "folded": "kept in parts by one only",
    "zeros": "in place of a bias that there is not",
    "missing-in-b": "only in a",
    "extra-in-b": "only in b",
    "shape": "other shapes",
    "unexplained": "unexplained",
    "ranks": "what other ranks hold",
    "padding": "padding elements",
}
_EXPLAINED = frozenset({"buffer", "folded", "zeros", "ranks", "padding"})


class Counted:
    """One of the two models: its tensors as they are held, and those of them that count as its parameters."""

    def __init__(self, model: Model, names: frozenset[str], side: Side) -> None:
        self.tensors = {tensor.name: tensor for tensor in model.tensors}
        self.side = side
        self.owners: dict[str, Tensor] = {}  # by storage
        for tensor in model.tensors:
            if tensor.name in names and tensor.kind != "buffer":
                self.owners.setdefault(tensor.storage, tensor)

    @property
    def params(self) -> int | None:
        """All of them, each memory once, packed ones as many as they stand for; None: some have no size."""
        sizes = [tensor.logical_numel for tensor in self.owners.values()]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def size(self, name: str) -> int:
        """Elements of a whole weight, whatever a rank has of it."""
        shard = self.side.shards.get(name)
        return (self.tensors[name].logical_numel or 0) if shard is None else prod(shard.whole)


def explain_difference(a: Counted, b: Counted, pairs: Sequence[Pair]) -> tuple[ParameterTerm, ...]:
    """The terms between two numbers of parameters; none where one is unknown, or nothing is to be said."""
    if a.params is None or b.params is None:
        return ()
    amounts = _Amounts()
    for group in _groups(a, b, pairs):
        group.explain(amounts)
    amounts.add("unexplained", b.params - a.params - amounts.total, (), ())
    terms = amounts.terms()
    if not terms and not (a.side.served or b.side.served):
        return ()
    return (
        ParameterTerm(code="total", text=f"parameters of a{a.side.rank}", params=a.params),
        *terms,
        ParameterTerm(code="total", text=f"parameters of b{b.side.rank}", params=b.params),
    )


def note_unknown_sizes(name: str, counted: Counted) -> Iterator[Note]:
    """What an engine holds of which nobody knows how much it is, so that nothing adds up."""
    unknown = [each.name for each in counted.owners.values() if each.logical_numel is None]
    if unknown and counted.side.served:
        yield Note(
            code="not-reconciled",
            text=f"the parameters of {name} are not all known, and the two numbers not reconciled",
            severity="warning",
            where=tuple(unknown),
        )


class _Amounts:
    """What was found so far, by its reason."""

    def __init__(self) -> None:
        self._params: dict[str, int] = defaultdict(int)
        self._tensors: dict[str, tuple[dict[str, None], dict[str, None]]] = defaultdict(lambda: ({}, {}))

    @property
    def total(self) -> int:
        return sum(self._params.values())

    def add(self, code: str, params: int, names_a: Iterable[str], names_b: Iterable[str]) -> int:
        """Add a number of parameters, and give it back."""
        if params:
            self._params[code] += params
            for known, names in zip(self._tensors[code], (names_a, names_b), strict=True):
                known.update(dict.fromkeys(names))
        return params

    def terms(self) -> tuple[ParameterTerm, ...]:
        found = (self._term(code) for code in _TEXTS if code in self._params)
        return tuple(term for term in found if term.params or term.standing == "different")

    def _term(self, code: str) -> ParameterTerm:
        standing: Standing = "framework" if code in _EXPLAINED else "different"
        of_a, of_b = map(tuple, self._tensors[code])
        params = self._params[code]
        return ParameterTerm(
            code=code, text=_TEXTS[code], params=params, standing=standing, tensors_a=of_a, tensors_b=of_b
        )


@dataclass
class _Part:
    """What one model has of a group: tensors that hold it, and those of them that have counterparts."""

    counted: Counted
    owners: list[Tensor] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Elements that count, of whole weights."""
        return sum(self.counted.size(tensor.name) for tensor in self.owners)

    @property
    def repeated(self) -> int:
        """Elements of tensors that have counterparts of their own, and yet share their memory."""
        storages = {self.counted.tensors[name].storage: name for name in self.names}
        return sum(map(self.counted.size, self.names)) - sum(map(self.counted.size, storages.values()))

    def outside(self) -> Iterator[tuple[str, int, str]]:
        """What there is beside the weights that have counterparts, and what of them is elsewhere."""
        for tensor in self.owners:
            shard = self.counted.side.shards.get(tensor.name)
            if shard is not None:
                held = tensor.logical_numel or 0
                yield "padding", shard.padding, tensor.name
                yield "ranks", held - shard.padding - prod(shard.whole), tensor.name


@dataclass
class _Group:
    """Tensors of both models that hold the same weights, however they are joined, stacked or shared."""

    a: _Part
    b: _Part
    pairs: list[TensorPair] = field(default_factory=list)
    codes: set[str] = field(default_factory=set)

    def explain(self, amounts: _Amounts) -> None:
        """Say what one has more than the other, and why."""
        for code, params, name in self.a.outside():
            amounts.add(code, -params, (name,), ())
        for code, params, name in self.b.outside():
            amounts.add(code, params, (), (name,))
        left = self.b.size - self.a.size
        if not left:
            return
        names = self.a.names or [each.name for each in self.a.owners]
        others = self.b.names or [each.name for each in self.b.owners]
        if not self.pairs:
            amounts.add("missing-in-b" if names else "extra-in-b", left, names, others)
            return
        left -= amounts.add("tied", self.a.repeated - self.b.repeated, names, others)
        left -= amounts.add("buffer", self._buffers(), names, others)
        code = next((code for code in ("folded", "zeros", "shape") if code in self.codes), "unexplained")
        amounts.add(code, left, names, others)

    def _buffers(self) -> int:
        """What only one of the two counts, since it is a buffer in the other."""
        found = 0
        for pair in self.pairs:
            is_a, is_b = (
                all(part.counted.tensors[name].kind == "buffer" for name in names)
                for part, names in ((self.a, pair.a), (self.b, pair.b))
            )
            if is_a and not is_b:
                found += sum(map(self.b.counted.size, pair.b))
            elif is_b and not is_a:
                found -= sum(map(self.a.counted.size, pair.a))
        return found


def _groups(a: Counted, b: Counted, pairs: Sequence[Pair]) -> Iterator[_Group]:
    """Everything that either has, in groups of what belongs together."""
    links = _UnionFind()
    told = [(each, pair) for pair in pairs for each in pair.tensors]
    for each, _ in told:
        nodes = [("a", a.tensors[name].storage) for name in each.a]
        links.join(nodes + [("b", b.tensors[name].storage) for name in each.b])
    groups: dict[tuple[str, str], _Group] = defaultdict(lambda: _Group(_Part(a), _Part(b)))
    for counted, key in ((a, "a"), (b, "b")):
        for storage, tensor in counted.owners.items():
            group = groups[links.find((key, storage))]
            (group.a if key == "a" else group.b).owners.append(tensor)
    for each, pair in told:
        group = groups[links.find(("a", a.tensors[each.a[0]].storage))]
        group.pairs.append(each)
        group.a.names += (name for name in each.a if name not in group.a.names)
        group.b.names += (name for name in each.b if name not in group.b.names)
        group.codes.update(found.code for found in pair.deviations)
    yield from groups.values()


class _UnionFind:
    """Disjoint sets of nodes."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, str], tuple[str, str]] = {}

    def find(self, node: tuple[str, str]) -> tuple[str, str]:
        """The one node that stands for all that belong to this one."""
        while (above := self._next.get(node, node)) != node:
            self._next[node] = self._next.get(above, above)
            node = above
        return node

    def join(self, nodes: Sequence[tuple[str, str]]) -> None:
        for node in nodes[1:]:
            self._next[self.find(node)] = self.find(nodes[0])
