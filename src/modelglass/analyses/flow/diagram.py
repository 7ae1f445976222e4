"""From a picture to the nouns: nodes and edges with labels and shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from modelglass.analyses.flow.drawn_calls import DrawnCalls, DrawnItem, every
from modelglass.analyses.flow.level import Item, origin
from modelglass.analyses.flow.words import label, word
from modelglass.report import Counts, Dims, FlowEdge, FlowNode, Model, Symbols

_Ends = tuple[str, str, bool]  # source, target, whether it is carried


@dataclass(slots=True)
class Diagram:
    """Nodes by id in the order of drawing, and edges with the shape of what goes along them."""

    nodes: dict[str, FlowNode] = field(default_factory=dict)
    edges: dict[_Ends, Dims] = field(default_factory=dict)
    made: dict[_Ends, set[int]] = field(default_factory=dict)  # the operators that made what goes along them
    dims: dict[str, dict[Dims, None]] = field(default_factory=dict)  # of what nodes give to others
    tensors: dict[str, dict[str, None]] = field(default_factory=dict)
    at: dict[int, str] = field(default_factory=dict)  # the node that an operator is drawn in
    drawn: dict[str, DrawnItem] = field(default_factory=dict)

    def add(self, node: FlowNode) -> str:
        """Put a node after all others."""
        self.nodes[node.id] = node
        return node.id

    @property
    def next_id(self) -> str:
        """What the next node is called."""
        return f"n{len(self.nodes)}"

    def connect(
        self, source: str, target: str, dims: Dims, *, carried: bool = False, maker: int | None = None
    ) -> None:
        """Put an edge between two nodes, which have at most one of a kind."""
        self.edges.setdefault((source, target, carried), dims)
        if maker is not None:
            self.made.setdefault((source, target, carried), set()).add(maker)
        self.dims.setdefault(source, {})[dims] = None


class DiagramBuilder:
    """Puts what a picture shows on a sheet."""

    def __init__(
        self,
        picture: DrawnCalls,
        model: Model,
        symbols: Symbols | None,
        counts: Counts | None,
        sheet: Diagram,
    ) -> None:
        self.picture, self.model, self.counts, self.sheet = picture, model, counts, sheet
        self.trace = picture.trace
        self.shapes: Mapping[int, Dims] = {} if symbols is None else symbols.shapes
        self.types = {module.path: module.type for module in model.modules}
        self.inputs: dict[int, list[str]] = {}

    def draw_calls(self) -> None:
        """Draw all nodes between inputs and outputs."""
        self._draw(self.picture.open[self.trace.root].drawn, "", None)

    def dims(self, number: int) -> Dims:
        """The shape of a tensor, with names where it follows the inputs."""
        found = self.shapes.get(number)
        return tuple(str(size) for size in self.trace.shapes.get(number, ())) if found is None else found

    def connect(self, number: int, target: str, *, carried: bool = False) -> None:
        """Draw an edge from whatever made a number; what was made from parameters alone is named instead."""
        original = self.trace.made_by.get(origin(number, self.picture.passed))
        number = self.picture.source(number)
        maker = self.trace.made_by.get(number)
        sources = self.inputs.get(number, []) if maker is None else []
        if maker is not None and maker in self.sheet.at:
            sources = [self.sheet.at[maker]]
        for source in sources:
            self.sheet.connect(source, target, self.dims(number), carried=carried, maker=original)
        if not sources:
            held = self.picture.relevance.held.get(number, ())
            self.sheet.tensors.setdefault(target, {}).update(dict.fromkeys(held))

    def connect_calls(self) -> None:
        """Draw all edges between nodes, those from inputs included."""
        for name, drawn in self.sheet.drawn.items():
            for number in drawn.items[0].reads:
                self.connect(number, name)
        for looked in self.picture.open.values():
            for repeat in every(looked.repeats):
                first = range(repeat.first, repeat.first + repeat.length)
                for place in first:
                    again = looked.level.items[place + repeat.length]
                    self._carry(again, [looked.level.items[each] for each in first])

    def readers(self, number: int) -> set[str]:
        """The nodes that read a number, or would in the repetition that is drawn."""
        found = self.trace.readers.get(number, ())
        return {name for reader in found for name in self._nodes_of(self.picture.drawn_for(reader))}

    def _carry(self, again: Item, turn: list[Item]) -> None:
        made = {number for each in turn for number in each.exports}
        for number in again.reads:
            if origin(number, self.picture.passed) in made:
                for target in self._targets(number, again):
                    self.connect(number, target, carried=True)

    def _targets(self, number: int, item: Item) -> Iterator[str]:
        """The nodes in which an item reads a number, of the repetition that is drawn."""
        readers = set(self.trace.readers.get(number, ())).intersection(item.ops)
        for reader in sorted(readers):
            yield from self._nodes_of(self.picture.drawn_for(reader))

    def _nodes_of(self, op: int) -> Iterator[str]:
        if op in self.sheet.at:
            yield self.sheet.at[op]
        elif self.trace.writes[op][0] in self.picture.passed:
            for number in self.trace.writes[op]:
                for reader in self.trace.readers.get(number, ()):
                    yield from self._nodes_of(self.picture.drawn_for(reader))

    def _draw(self, drawn: list[DrawnItem], path: str, group: str | None) -> None:
        for each in drawn:
            if each.parts:
                self._draw_turn(each, path, group)
            elif each.call is None:
                self._draw_operators(each, path, group)
            else:
                self._draw_call(each, each.call, path, group)

    def _draw_turn(self, drawn: DrawnItem, path: str, group: str | None) -> None:
        paths = self._paths(drawn)
        first = [_below(each, path) for part in drawn.parts for each in self._paths(part)[:1]]
        node = FlowNode(
            id=self.sheet.next_id,
            kind="group",
            label=", ".join(first) if len(first) < 3 else f"{first[0]} … {first[-1]}",
            stage="blocks",
            path=path,
            group=group,
            count=drawn.count,
            paths=paths,
            params=self._params(paths),
        )
        self._draw(drawn.parts, path, self.sheet.add(node))

    def _draw_call(self, drawn: DrawnItem, call: int, path: str, group: str | None) -> None:
        is_open = call in self.picture.open
        paths = self._paths(drawn)
        node = FlowNode(
            id=self.sheet.next_id,
            kind="group" if is_open else "module",
            label=_below(paths[0], path),
            stage="blocks",
            path=paths[0],
            type=self.types.get(paths[0], ""),
            group=group,
            count=drawn.count,
            paths=paths if drawn.count > 1 else (),
            params=self._params(paths),
        )
        name = self.sheet.add(node)
        if is_open:
            self._draw(self.picture.open[call].drawn, paths[0], name)
        else:
            self._place(name, drawn)

    def _draw_operators(self, drawn: DrawnItem, path: str, group: str | None) -> None:
        ops = drawn.items[0].ops
        words = [word(self.trace.ops[at]) for at in ops]
        node = FlowNode(
            id=self.sheet.next_id,
            kind="operators",
            label=label(words),
            stage="blocks",
            path=path,
            group=group,
            count=drawn.count,
            operators=tuple(self.trace.ops[at].name for at in ops),
        )
        name = self.sheet.add(node)
        self._place(name, drawn)
        read = (tensor for at in ops for tensor in self.trace.tensors(at))
        self.sheet.tensors.setdefault(name, {}).update(dict.fromkeys(read))

    def _place(self, name: str, drawn: DrawnItem) -> None:
        self.sheet.drawn[name] = drawn
        self.sheet.at.update(dict.fromkeys(drawn.items[0].ops, name))

    def _paths(self, drawn: DrawnItem) -> tuple[str, ...]:
        calls = (item.call for item in drawn.items)
        return tuple(dict.fromkeys(self.trace.module[call] for call in calls if call is not None))

    def _params(self, paths: tuple[str, ...]) -> int | None:
        if self.counts is None:
            return None
        counted = (self.counts.by_module.get(path) for path in paths)
        return sum(each.total.params for each in counted if each is not None) or None


def edges_of(sheet: Diagram, picture: DrawnCalls) -> tuple[FlowEdge, ...]:
    """The edges, in the order of their sources."""
    order = {name: place for place, name in enumerate(sheet.nodes)}
    found = sorted(sheet.edges.items(), key=lambda each: (order[each[0][0]], order[each[0][1]], each[0][2]))
    return tuple(
        FlowEdge(
            source=source,
            target=target,
            dims=dims,
            carried=carried,
            each=not carried and _from_each(sheet.made.get((source, target, carried), set()), picture),
        )
        for (source, target, carried), dims in found
    )


def _from_each(makers: set[int], picture: DrawnCalls) -> bool:
    """Whether one operator, as it is drawn, stands for several of those that made what goes along an edge."""
    return len({picture.drawn_for(maker) for maker in makers}) < len(makers)


def _below(path: str, group: str) -> str:
    return path.removeprefix(f"{group}.") if group else path
