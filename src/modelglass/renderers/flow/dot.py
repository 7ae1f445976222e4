"""The flow for Graphviz, in its DOT language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from modelglass.page import flow_words as _words
from modelglass.page.units import short
from modelglass.renderers._escape import printable
from modelglass.renderers.flow._look import COLOURS
from modelglass.report import Flow, FlowEdge, FlowNode

_LONGEST_LABEL = 80
_SHAPES = {"input": "ellipse", "output": "ellipse", "module": "box", "operators": "box"}
_STYLES = {"module": "filled,rounded", "operators": "filled,rounded,dashed"}


def render(flow: Flow) -> str:
    """A directed graph, groups as clusters, shapes on the edges."""
    lines = [
        f"digraph {_quote(flow.name or 'flow')} {{",
        f'  graph [rankdir=TB, fontname="Helvetica", labelloc=t, labeljust=l, label={_legend(flow)}];',
        '  node [fontname="Helvetica", fontsize=11, style=filled];',
        '  edge [fontname="Helvetica", fontsize=9, color="#64748b", fontcolor="#64748b"];',
        *_nodes(_words.contents(flow), None, "  "),
        *(f"  {_edge(edge)}" for edge in flow.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _nodes(inside: Mapping[str | None, Sequence[FlowNode]], group: str | None, indent: str) -> Iterator[str]:
    for node in inside.get(group, ()):
        if node.kind != "group":
            yield f"{indent}{_node(node)}"
            continue
        yield f"{indent}subgraph {_quote('cluster_' + node.id)} {{"
        yield f'{indent}  label={_lines(_title(node))}; color="#94a3b8"; style="rounded"; fontsize=12;'
        yield from _nodes(inside, node.id, f"{indent}  ")
        yield f"{indent}}}"


def _node(node: FlowNode) -> str:
    fill, border = COLOURS[node.stage][0]
    attributes = {
        "label": _lines(_texts(node)),
        "shape": _SHAPES[node.kind],
        "fillcolor": f'"{fill}"',
        "color": f'"{border}"',
        "tooltip": _lines(_words.details(node)),
    }
    if node.kind in _STYLES:
        attributes["style"] = f'"{_STYLES[node.kind]}"'
    if node.count > 1:
        attributes["peripheries"] = "2"
    told = ", ".join(f"{key}={value}" for key, value in attributes.items())
    return f"{_quote(node.id)} [{told}];"


def _texts(node: FlowNode) -> Iterator[str]:
    yield _words.name_of(node)
    if node.type:
        yield node.type if node.params is None else f"{node.type}, {short(node.params)} params"
    if node.tensors:
        yield f"[{', '.join(_words.tensors_of(node))}]"
    if node.kind in ("input", "output"):
        yield f"{_words.shapes(node)} {node.dtype or ''}".strip()


def _title(group: FlowNode) -> Iterator[str]:
    yield _words.name_of(group)
    if group.type:
        yield group.type if group.params is None else f"{group.type}, {short(group.params)} params"


def _edge(edge: FlowEdge) -> str:
    label = _words.shape(edge.dims)
    more = ""
    if edge.carried:
        label = f"{_words.NEXT} {label}"
        more = ", style=dashed, constraint=false"
    elif edge.each:
        label = f"{_words.EACH} {label}"
        more = ", style=bold"
    return f"{_quote(edge.source)} -> {_quote(edge.target)} [label={_quote(label)}{more}];"


def _legend(flow: Flow) -> str:
    return _lines([flow.name, *_words.legend(flow)], end=r"\l")


def _lines(texts: Iterator[str] | Sequence[str], end: str = r"\n") -> str:
    """The texts as lines of one label."""
    return f'"{end.join(map(_escaped, texts))}{end if end != chr(92) + "n" else ""}"'


def _quote(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """The text between quotes: a backslash would begin a command, an ampersand a character's name."""
    shown = printable(text)
    if len(shown) > _LONGEST_LABEL:
        shown = f"{shown[: _LONGEST_LABEL - 1]}…"
    return shown.replace("\\", "\\\\").replace("&", "&amp;").replace('"', '\\"').replace("##", "#&#35;")
