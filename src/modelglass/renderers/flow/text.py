"""A flow for a terminal: a line for each node, and beside it the lines along which data runs down."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from modelglass.page import flow_words as _words
from modelglass.renderers._escape import cell_width, fitted, printable
from modelglass.renderers._terminal import BOLD, CYAN, DIM, Paint, wrapped
from modelglass.renderers.flow import lanes
from modelglass.renderers.flow._naming import Names
from modelglass.report import Flow, FlowNode, Stage

_MARKS = {"input": "◆", "output": "◆", "module": "●", "operators": "○"}
_LANE_STYLES = ("36", "33", "35", "32", "34", "31")
_LANES_SHARE = 3  # at most one part in so many of the width is for lanes
_LEAST_TEXT = 16  # cells of names
_LEAST_SHAPE = 10
_COMFORT = 44  # cells; names with their sources wrap beyond
_PARAMS_FROM = 64  # cells of width
_INDENT = 2  # of nodes under a stage's heading
_FAR = 12  # lines; a source further up is named, though its line leads there


def diagram(flow: Flow, width: int, paint: Paint, words: Mapping[str, str] | None = None) -> str:
    """The diagram in lines of `width` cells."""
    return _Diagram(flow, width, paint, words or _words.ENGLISH).text()


@dataclass(frozen=True, slots=True)
class _Line:
    """One line before its columns are known: lanes, then texts."""

    lanes: str
    below: str = ""  # the lanes of further lines, if the text takes more
    heading: str = ""
    bars: str = ""  # of the groups it is in
    name: str = ""
    type: str = ""
    sources: str = ""
    shape: str = ""
    params: str = ""

    @property
    def texts(self) -> list[str]:
        return [text for text in (self.name, self.type, self.sources) if text]


class _Diagram:
    """The lines of a flow, and their columns."""

    def __init__(self, flow: Flow, width: int, paint: Paint, words: Mapping[str, str]) -> None:
        self._flow, self._width, self._paint, self._say = flow, width, paint, words
        self._nodes = {node.id: node for node in flow.nodes}
        self._order = [node for node in _words.drawn_order(flow) if node.kind != "group"]
        self._place = {node.id: index for index, node in enumerate(self._order)}
        self._sources: dict[str, list[str]] = defaultdict(list)
        self._next: dict[str, list[str]] = defaultdict(list)
        self._each: set[tuple[str, str]] = set()
        for edge in flow.edges:
            if edge.each:
                self._each.add((edge.source, edge.target))
            known = self._next[edge.source] if edge.carried else self._sources[edge.target]
            end = edge.target if edge.carried else edge.source
            if end not in known:
                known.append(end)
        self._stages = _stages(flow)
        self._loops = _words.self_repeating(flow)
        self._rows = self._lanes()
        self._names = Names(flow, self._order, self._sources, self._next)

    def text(self) -> str:
        lines = list(self._lines())
        columns = _Columns.of(lines, self._width)
        return "\n".join(part for line in lines for part in columns.texts(line, self._paint))

    def _lanes(self) -> Mapping[str, lanes.Row]:
        order = [node.id for node in self._order]
        marks = "".join(_MARKS[node.kind] for node in self._order)
        most = max(3, self._width // _LANES_SHARE // 2)
        rows = lanes.rows(order, self._sources, marks, most)
        return dict(zip(order, rows, strict=True))

    def _lines(self) -> Iterator[_Line]:
        below, stage, groups = "", None, list[FlowNode]()
        for node in _words.drawn_order(self._flow):
            while groups and node.group != groups[-1].id:
                yield self._closing(groups.pop(), len(groups), below)
            begun = self._stages[node.id]
            if begun is not None and begun != stage:
                yield from self._heading(begun, len(groups), below, first=stage is None)
                stage = begun
            if node.kind == "group":
                yield self._opening(node, len(groups), below)
                groups.append(node)
                continue
            yield self._node(node, len(groups))
            below = self._rows[node.id].below
        while groups:
            yield self._closing(groups.pop(), len(groups), below)

    def _heading(self, stage: Stage, depth: int, below: str, *, first: bool) -> Iterator[_Line]:
        bars = "│ " * depth
        if not first:
            yield _Line(lanes=below, bars=bars)
        heads = {"shape": self._say["shape"], "params": self._say["parameters"]} if first else {}
        yield _Line(lanes=below, heading=self._say[stage], bars=bars, **heads)

    def _opening(self, group: FlowNode, depth: int, below: str) -> _Line:
        return _Line(
            lanes=below,
            below=below,
            bars="│ " * depth + "╭ ",
            name=printable(_words.name_of(group)),
            type=printable(group.type),
            params=_params(group),
        )

    def _closing(self, group: FlowNode, depth: int, below: str) -> _Line:
        """The end of a group; if it repeats, what goes from one repetition to the next."""
        goes = []
        for source, targets in self._next.items():
            if source not in self._loops and self._repeats_in(source) == group.id:
                first, *names = (self._names.within(id, group) for id in (source, *targets))
                goes.append(f"{first} → {', '.join(names)}")
        text = f"{self._say['next']}: {'; '.join(goes)}" if goes else ""
        return _Line(lanes=below, below=below, bars="│ " * depth + "╰ ", sources=printable(text))

    def _repeats_in(self, id: str) -> str | None:
        """The innermost group around the node that repeats."""
        around = self._nodes[id].group
        while around is not None and self._nodes[around].count == 1:
            around = self._nodes[around].group
        return around

    def _node(self, node: FlowNode, depth: int) -> _Line:
        row = self._rows[node.id]
        name = printable(_words.name_of(node)) + self._names.tags.get(node.id, "")
        if node.id in self._loops:
            name += self._say["each-next"]
        gives = printable(_words.shapes(node))
        if node.kind in ("input", "output"):
            gives = f"{gives} {node.dtype or ''}".rstrip()
        elif gives:
            gives = f"→ {gives}"
        return _Line(
            lanes=row.cells,
            below=row.below,
            bars="│ " * depth,
            name=name,
            type=printable(node.type),
            sources=printable(self._from(node, row)),
            shape=gives,
            params=_params(node),
        )

    def _from(self, node: FlowNode, row: lanes.Row) -> str:
        """Where its inputs come from, unless it is the one thing that the line above leads to."""
        sources = self._sources.get(node.id, [])
        plain = len(sources) == 1 and sources[0] in row.drawn and (sources[0], node.id) not in self._each
        if plain and self._place[node.id] - self._place[sources[0]] <= _FAR:
            sources = []
        names = [
            *(self._source(source, node.id) for source in sources),
            *(f"[{name}]" for name in _words.tensors_of(node)),
        ]
        return f"← {', '.join(names)}" if names else ""

    def _source(self, source: str, target: str) -> str:
        name = self._names.of(source, target)
        return self._say["each"].format(name=name) if (source, target) in self._each else name


def _params(node: FlowNode) -> str:
    return "" if node.params is None else f"{node.params:,}"


@dataclass(frozen=True, slots=True)
class _Columns:
    """How many cells each column takes."""

    lanes: int
    text: int
    shape: int
    params: int

    @classmethod
    def of(cls, lines: Sequence[_Line], width: int) -> _Columns:
        lanes_ = max((len(line.lanes) for line in lines), default=0)
        params = max((cell_width(line.params) for line in lines), default=0) if width >= _PARAMS_FROM else 0
        params = params + 2 if params else 0
        shape = max((cell_width(line.shape) for line in lines), default=0)
        text = max((_INDENT + cell_width(_join(line)) for line in lines), default=0)
        named = max((_INDENT + cell_width(_named(line)) for line in lines), default=0)
        text = min(text, max(_COMFORT, named))
        room = width - lanes_ - params - 2
        if text + shape > room:  # names wrap before shapes are cut
            text = min(text, max(room - shape, room // 2, _LEAST_TEXT))
            shape = max(min(shape, room - text), _LEAST_SHAPE)
        return cls(lanes_, text, shape, params)

    def texts(self, line: _Line, paint: Paint) -> Iterator[str]:
        """The line, and more below it where its text does not fit beside the shape."""
        drawn = _painted_lanes(line.lanes.ljust(self.lanes), paint)
        first, *more = [_headed(line)] if line.heading else self._wrapped(line)
        shown = paint(first, BOLD) if line.heading else _style(first, line, paint)
        gap = " " * (self.text - cell_width(first))
        shape = fitted(line.shape, self.shape)
        if line.params and self.params:
            padding = " " * (self.shape - cell_width(shape) + self.params - cell_width(line.params))
            yield f"{drawn}{shown}{gap}  {shape}{padding}{paint(line.params, DIM)}".rstrip()
        else:
            yield f"{drawn}{shown}{gap}  {shape}".rstrip()
        passing = _painted_lanes(line.below.ljust(self.lanes), paint)
        for part in more:
            yield (passing + paint(part, DIM)).rstrip()

    def _wrapped(self, line: _Line) -> list[str]:
        """The texts in lines that fit: the name, then what does not fit beside it further down."""
        start = " " * _INDENT + line.bars
        room = max(self.text - cell_width(start), 8)
        lines = [""]
        for text in line.texts:
            joined = f"{lines[-1]}  {text}" if lines[-1] else text
            if cell_width(joined) <= room:
                lines[-1] = joined
            else:
                parts = [fitted(part.rstrip(), room) for part in _broken(text, room)]
                lines = [*lines, *parts] if lines[-1] else parts
        bars = start.replace("╭", "│").replace("╰", " ")
        return [start + lines[0], *(f"{bars}{part}" for part in lines[1:])]


def _headed(line: _Line) -> str:
    """A stage's heading, further out than its nodes; inside groups, behind their lines."""
    return f"{' ' * _INDENT}{line.bars}{line.heading}" if line.bars else line.heading


def _stages(flow: Flow) -> Mapping[str, Stage | None]:
    """The stage of each node; None for a group in which another one begins."""
    found: dict[str, set[Stage]] = defaultdict(set)
    parents = {node.id: node.group for node in flow.nodes}
    for node in flow.nodes:
        around = node.id if node.kind != "group" else None
        while around is not None:
            found[around].add(node.stage)
            around = parents[around]
    return {id: min(stages) if len(stages) == 1 else None for id, stages in found.items()}


def _broken(text: str, room: int) -> list[str]:
    return [fitted(text, room)] if " " not in text else wrapped(text, room)


def _join(line: _Line) -> str:
    return line.bars + "  ".join(line.texts)


def _named(line: _Line) -> str:
    return line.bars + "  ".join(text for text in (line.name, line.type) if text)


def _style(text: str, line: _Line, paint: Paint) -> str:
    """The first line's name in colour, its type and sources dim."""
    start = _INDENT + len(line.bars)
    bars, rest = text[:start], text[start:]
    if not rest:
        return paint(bars.rstrip(), DIM) + bars[len(bars.rstrip()) :]
    name = rest[: len(line.name)]
    return paint(bars, DIM) + paint(name, BOLD if "╭" in bars else CYAN) + paint(rest[len(name) :], DIM)


def _painted_lanes(cells: str, paint: Paint) -> str:
    styles = _LANE_STYLES
    return "".join(paint(char, styles[index // 2 % len(styles)]) for index, char in enumerate(cells))
