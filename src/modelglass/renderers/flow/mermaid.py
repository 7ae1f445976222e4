"""The flow as a Mermaid flowchart, which pages of Markdown draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from modelglass.page import flow_words as _words
from modelglass.page.units import short
from modelglass.renderers._escape import printable
from modelglass.renderers.flow._look import COLOURS
from modelglass.report import Flow, FlowEdge, FlowNode

LONGEST_TEXT = 50_000  # characters; pages refuse a longer diagram
_LONGEST_LABEL = 60
_BRACKETS = {
    "input": ("([", "])"),
    "output": ("([", "])"),
    "module": ("[", "]"),
    "operators": ("(", ")"),
}
# Everything else is written as its code: labels may hold Markdown, formulas, icons and directives.
_PLAIN = frozenset(" .,_-()/+=×·→…")
_MAGIC = frozenset("$:")  # formulas and icons are found after codes are read; a space of no width parts them
_GROUP_STYLE = "fill:none,stroke:#8b949e,stroke-dasharray:4 3"
_TEXT = "#0f172a"  # on every stage's fill, also where the page is dark


def render(flow: Flow) -> str:
    """The flowchart; shapes are on its edges, unless that made it longer than pages take."""
    text = _text(flow, shapes=True)
    return text if len(text) <= LONGEST_TEXT else _text(flow, shapes=False)


def _text(flow: Flow, *, shapes: bool) -> str:
    flow = _rename(flow)
    lines = ["---", f"title: {_title(flow.name)}", "---", "flowchart TD"]
    lines += _nodes(_words.contents(flow), None, "    ")
    lines += (f"    {_edge(edge, shapes)}" for edge in flow.edges)
    lines += (f"    {line}" for line in _classes(flow))
    lines += (f"    %% {_comment(line)}" for line in _words.legend(flow))
    return "\n".join(lines) + "\n"


def _rename(flow: Flow) -> Flow:
    """The flow with ids that are no words of the language, whatever they were."""
    ids = {node.id: f"n{index}" for index, node in enumerate(flow.nodes)}
    nodes = [
        replace(node, id=ids[node.id], group=None if node.group is None else ids[node.group])
        for node in flow.nodes
    ]
    edges = [replace(edge, source=ids[edge.source], target=ids[edge.target]) for edge in flow.edges]
    return replace(flow, nodes=tuple(nodes), edges=tuple(edges))


def _nodes(inside: Mapping[str | None, Sequence[FlowNode]], group: str | None, indent: str) -> Iterator[str]:
    for node in inside.get(group, ()):
        if node.kind != "group":
            yield f"{indent}{_node(node)}"
            continue
        yield f'{indent}subgraph {node.id}["{_label(_title_of(node))}"]'
        yield from _nodes(inside, node.id, f"{indent}    ")
        yield f"{indent}end"


def _node(node: FlowNode) -> str:
    opening, closing = _BRACKETS[node.kind]
    lines = [_words.name_of(node)]
    if node.type:
        lines.append(node.type)
    if node.tensors:
        lines.append(f"({', '.join(_words.tensors_of(node))})")
    if node.kind in ("input", "output"):
        lines.append(f"{_words.shapes(node)} {node.dtype or ''}".strip())
    elif node.params is not None:
        lines[-1] += f", {short(node.params)} params"
    return f'{node.id}{opening}"{"<br/>".join(map(_label, lines))}"{closing}'


def _title_of(group: FlowNode) -> str:
    return ", ".join(text for text in (_words.name_of(group), group.type) if text)


def _edge(edge: FlowEdge, shapes: bool) -> str:
    texts = [_words.NEXT] if edge.carried else [_words.EACH] if edge.each else []
    if shapes:
        texts.append(_words.shape(edge.dims))
    label = f'|"{_label(", ".join(texts))}"|' if texts else ""
    return f"{edge.source} {'-.->' if edge.carried else '-->'}{label} {edge.target}"


def _classes(flow: Flow) -> Iterator[str]:
    for stage in _words.used_stages(flow):
        members = [node.id for node in flow.nodes if node.stage == stage and node.kind != "group"]
        fill, stroke = COLOURS[stage][0]
        yield f"classDef {stage} fill:{fill},stroke:{stroke},color:{_TEXT}"
        if members:
            yield f"class {','.join(members)} {stage}"
    groups = [node.id for node in flow.nodes if node.kind == "group"]
    if groups:
        yield f"classDef group {_GROUP_STYLE}"
        yield f"class {','.join(groups)} group"


def _label(text: str) -> str:
    """The text as it stands between quotes: letters and digits of any language, all else as codes."""
    shown = printable(text)
    if len(shown) > _LONGEST_LABEL:
        shown = f"{shown[: _LONGEST_LABEL - 1]}…"
    return _not_a_list("".join(map(_code, shown))) or "#160;"


def _code(char: str) -> str:
    if char.isalnum() or char in _PLAIN:
        return char
    return f"#{ord(char)};#8203;" if char in _MAGIC else f"#{ord(char)};"


def _not_a_list(text: str) -> str:
    """A label that begins as an item of a list would be one."""
    head, dot, rest = text.partition(".")
    if dot and head.isdigit():
        return f"{head}#46;{rest}"
    return f"#{ord(text[0])};{text[1:]}" if text[:1] in ("-", "+") else text


def _title(name: str) -> str:
    """The name as YAML's quoted text, which ends at its quote alone; it knows no codes for brackets."""
    plain = printable(name).replace("\\", "\\\\").replace('"', '\\"').replace("<", "‹").replace(">", "›")
    return f'"{plain}"'


def _comment(text: str) -> str:
    """The text in a comment, which must not look like a directive."""
    return printable(text).replace("{", "(").replace("}", ")").replace("%", "")
