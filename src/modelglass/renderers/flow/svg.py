"""The flow as a picture: one SVG that needs nothing else, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from modelglass.page import flow_words as _words
from modelglass.page.units import short
from modelglass.renderers._escape import printable
from modelglass.renderers.flow._look import STYLE
from modelglass.renderers.flow._measure import shortened, text_width
from modelglass.renderers.flow.layout import Picture, Place, Point, Route, laid_out
from modelglass.report import Flow, FlowEdge, FlowNode

_MARGIN = 24.0
_NAME, _SMALL, _TITLE = 13.0, 11.0, 17.0  # font sizes
_LONGEST = 300.0  # of a text in a box
_BESIDE = 12.0  # between a text and its box
_BETWEEN = 6.0  # between two texts on a line
_MODULE_HEIGHT, _SMALL_HEIGHT = 46.0, 28.0
_STACKED = 4.0  # how far the boxes of a repeated module show behind it
_LOOP = 22.0  # the room for its way to the next
_GROUP_TITLE = 36.0
_HEADER, _LEGEND_LINE = 44.0, 18.0
_CORNER = 8.0  # the radius of a line's corner
_SAME = 0.05
_NARROWEST = 420.0  # of a picture


def render(flow: Flow) -> str:
    """The picture; each box and line tells more when the mouse rests on it."""
    return drawing(flow, style=f"<style>{STYLE}</style>")


def drawing(flow: Flow, *, style: str = "") -> str:
    """The picture for a page that has its style already."""
    boxes = {node.id: _Box.of(node) for node in flow.nodes if node.kind != "group"}
    looped = _words.self_repeating(flow)
    sizes = {id: (box.width + (_LOOP if id in looped else 0.0), box.height) for id, box in boxes.items()}
    titles = {node.id: _title_size(node) for node in flow.nodes if node.kind == "group"}
    picture = laid_out(flow, sizes, titles)
    width = max(_NARROWEST, picture.width + 2 * _MARGIN)
    legend = list(_legend(flow, width, _HEADER + picture.height + 2 * _MARGIN))
    height = _HEADER + picture.height + 2 * _MARGIN + _LEGEND_LINE * (1 + len(flow.symbols))
    left = (width - picture.width) / 2
    names = {node.id: node.path or node.label or "(root)" for node in flow.nodes}
    body = [
        *_groups(flow, picture),
        *(line for edge, route in picture.routes for line in _edge(names, edge, route)),
        *(line for id in boxes for line in _node(boxes[id], picture.places[id], looped=id in looped)),
    ]
    name = shortened(printable(flow.name), width - 2 * _MARGIN, _TITLE, bold=True)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="modelglass-flow" role="img" '
        f'viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" height="{_n(height)}">',
        f"<title>{_xml(flow.name)}</title>",
        *filter(None, [style]),
        f'<rect class="page" width="{_n(width)}" height="{_n(height)}"/>',
        _text(_MARGIN, 32, name, "heading"),
        f'<g transform="translate({_n(left)} {_n(_HEADER + _MARGIN / 2)})">',
        *body,
        "</g>",
        *legend,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class _Run:
    """A text in one style."""

    text: str
    style: str
    size: float = _SMALL
    bold: bool = False

    @property
    def width(self) -> float:
        return text_width(self.text, self.size, bold=self.bold)


@dataclass(frozen=True, slots=True)
class _Box:
    """A node's lines of text, and the size of the box around them."""

    node: FlowNode
    lines: Sequence[Sequence[_Run]]
    width: float
    height: float

    @classmethod
    def of(cls, node: FlowNode) -> _Box:
        lines = list(_one_line(node) if node.kind == "operators" else _two_lines(node))
        widths = [sum(run.width for run in line) + _BETWEEN * (len(line) - 1) for line in lines]
        height = _SMALL_HEIGHT if len(lines) == 1 else _MODULE_HEIGHT
        stacked = 2 * _STACKED if node.count > 1 else 0.0
        return cls(node, lines, max(widths) + 2 * _BESIDE + stacked, height + stacked)


def _two_lines(node: FlowNode) -> Iterator[list[_Run]]:
    yield [_name(node), *([_run(node.type, "type")] if node.type else [])]
    facts = [_run(_words.shapes(node), "shape")] if node.dims else []
    if node.dtype:
        facts.append(_run(node.dtype, "type"))
    if node.params is not None:
        facts.append(_run(f"{short(node.params)} params", "type"))
    if node.tensors:
        facts.append(_run(_read(node), "type"))
    if facts:
        yield facts


def _one_line(node: FlowNode) -> Iterator[list[_Run]]:
    runs = [_name(node)]
    if node.tensors:
        runs.append(_run(_read(node), "type"))
    if node.dims:
        runs.append(_run(_words.shapes(node), "shape"))
    yield runs


def _name(node: FlowNode) -> _Run:
    text = shortened(printable(_words.name_of(node)), _LONGEST, _NAME, bold=True)
    return _Run(text, "name", _NAME, bold=True)


def _read(node: FlowNode) -> str:
    return f"[{', '.join(_words.tensors_of(node))}]"


def _run(text: str, style: str) -> _Run:
    return _Run(shortened(printable(text), _LONGEST, _SMALL), style)


def _title_runs(group: FlowNode) -> list[_Run]:
    below = group.type if group.params is None else f"{group.type} · {short(group.params)} params"
    return [_name(group), _run(below.strip(), "type")]


def _title_size(group: FlowNode) -> tuple[float, float]:
    return max(run.width for run in _title_runs(group)), _GROUP_TITLE


def _groups(flow: Flow, picture: Picture) -> Iterator[str]:
    deep: dict[str | None, bool] = {None: False}
    for node in flow.nodes:
        if node.kind != "group":
            continue
        deep[node.id] = not deep[node.group]
        shade = " light" if deep[node.id] else ""
        place, title = picture.places[node.id], picture.titles[node.id]
        yield f'<g class="group{shade}" data-node={_quote(node.id)}>{_tooltip(_words.details(node))}'
        if node.count > 1:
            yield from _stack(place, 12)
        yield _rect(place, 12)
        name, below = _title_runs(node)
        yield _text(title.x, title.y + 15, name.text, "name")
        yield _text(title.x, title.y + 30, below.text, "type") if below.text else ""
        yield "</g>"


def _node(box: _Box, place: Place, *, looped: bool) -> Iterator[str]:
    node = box.node
    stacked = 2 * _STACKED if node.count > 1 else 0.0
    loop = _LOOP if looped else 0.0
    front = Place(place.x, place.y, place.width - stacked - loop, place.height - stacked)
    radius = 10 if node.kind == "module" else front.height / 2
    yield f'<g class="{node.kind} {node.stage}" data-node={_quote(node.id)}>{_tooltip(_words.details(node))}'
    if stacked:
        yield from _stack(front, radius)
    if looped:
        yield _loop(front, stacked)
    yield _rect(front, radius)
    base = front.y + (18.0 if len(box.lines) == 1 else 19.0)
    for index, runs in enumerate(box.lines):
        yield from _line(runs, front, base + 16 * index)
    yield "</g>"


def _line(runs: Sequence[_Run], place: Place, y: float) -> Iterator[str]:
    """The texts of a line around the middle of the box."""
    gap = f' dx="{_n(_BETWEEN)}"'
    spans = "".join(
        f'<tspan class="{run.style}"{gap if index else ""}>{escape(run.text)}</tspan>'
        for index, run in enumerate(runs)
    )
    yield f'<text x="{_n(place.x + place.width / 2)}" y="{_n(y)}" text-anchor="middle">{spans}</text>'


def _stack(place: Place, radius: float) -> Iterator[str]:
    for step in (2, 1):
        yield _rect(place.moved(step * _STACKED, step * _STACKED), radius, "behind")


def _loop(front: Place, stacked: float) -> str:
    right = front.x + front.width + stacked
    far = right + _LOOP - 2
    low, high = front.y + front.height - 2, front.y + 16
    path = f"M{_n(right)} {_n(low)}H{_n(far - 5)}Q{_n(far)} {_n(low)} {_n(far)} {_n(low - 5)}"
    path += f"V{_n(high + 5)}Q{_n(far)} {_n(high)} {_n(far - 5)} {_n(high)}H{_n(right + 6)}"
    head = f"M{_n(right)} {_n(high)}l7 -3.5v7z"
    return f'<path class="edge carried" d="{path}"/><path class="head carried" d="{head}"/>'


def _rect(place: Place, radius: float, style: str = "") -> str:
    kind = f' class="{style}"' if style else ""
    size = f'width="{_n(place.width)}" height="{_n(place.height)}"'
    return f'<rect{kind} x="{_n(place.x)}" y="{_n(place.y)}" {size} rx="{_n(radius)}"/>'


def _edge(names: Mapping[str, str], edge: FlowEdge, route: Route) -> Iterator[str]:
    note = f" {_words.NEXT}" if edge.carried else f" {_words.EACH}" if edge.each else ""
    told = f"{names[edge.source]} → {names[edge.target]}{note} {_words.shape(edge.dims)}"
    style = " carried" if edge.carried else " each" if edge.each else ""
    last = route[-1]
    yield (
        f'<g class="edge{style}" data-from={_quote(edge.source)} data-to={_quote(edge.target)}>'
        f'{_tooltip([told])}<path class="line" d="{_path(route)}"/>'
        f'<path class="head" d="M{_n(last.x)} {_n(last.y)}l-3.5 -7h7z"/></g>'
    )


def _path(route: Route) -> str:
    """The way as SVG has it: curves where it is bent, round corners elsewhere."""
    points = _without_repeats(route)
    steps = [f"M{_n(points[0].x)} {_n(points[0].y)}"]
    for before, point, after in zip(points, points[1:], (*points[2:], None), strict=False):
        x, y = point.x, point.y
        if point.bent and abs(x - before.x) > _SAME:
            middle = (before.y + y) / 2
            steps.append(f"C{_n(before.x)} {_n(middle)} {_n(x)} {_n(middle)} {_n(x)} {_n(y)}")
        elif (
            after is not None
            and not after.bent
            and (before.x - x) * (y - after.y) + (before.y - y) * (x - after.x)
        ):
            near, far = _towards(point, before), _towards(point, after)
            steps.append(f"L{_n(near[0])} {_n(near[1])}Q{_n(x)} {_n(y)} {_n(far[0])} {_n(far[1])}")
        else:
            steps.append(f"L{_n(x)} {_n(y)}")
    return "".join(steps)


def _without_repeats(route: Route) -> list[Point]:
    kept = [route[0]]
    for point in route[1:]:
        if abs(point.x - kept[-1].x) > _SAME or abs(point.y - kept[-1].y) > _SAME:
            kept.append(point)
    return kept


def _towards(corner: Point, other: Point) -> tuple[float, float]:
    """A little way from a corner towards another point."""
    dx, dy = other.x - corner.x, other.y - corner.y
    distance = max(abs(dx), abs(dy))
    part = min(_CORNER, distance / 2) / distance
    return corner.x + dx * part, corner.y + dy * part


def _legend(flow: Flow, width: float, y: float) -> Iterator[str]:
    x = _MARGIN
    for stage in _words.used_stages(flow):
        label = _words.STAGES[stage]
        yield f'<g class="module {stage}">{_rect(Place(x, y - 10, 14, 12), 3)}</g>'
        yield _text(x + 20, y, label, "type")
        x += 20 + text_width(label, _SMALL) + 14
    for index, line in enumerate(_words.legend(flow), start=1):
        shown = shortened(printable(line), width - 2 * _MARGIN, _SMALL)
        yield _text(_MARGIN, y + index * _LEGEND_LINE, shown, "type")


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _tooltip(lines: Iterator[str] | Sequence[str]) -> str:
    return f"<title>{escape(chr(10).join(map(printable, lines)))}</title>"


def _xml(text: str) -> str:
    return escape(printable(text))


def _quote(text: str) -> str:
    return quoteattr(printable(text))


def _n(number: float) -> str:
    """A number in as few characters as a picture needs."""
    return f"{number:.1f}".removesuffix(".0")
