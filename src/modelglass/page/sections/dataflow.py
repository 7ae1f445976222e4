"""How data flows through a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from modelglass.page import Block, Cell, Column, Diagram, Heading, Notes, Table, Text, flow_words

if TYPE_CHECKING:
    from modelglass.report import Flow

_NODES = (
    Column("id", "id"),
    Column("name", "name"),
    Column("type", "type"),
    Column("kind", "kind"),
    Column("stage", "stage"),
    Column("group", "in"),
    Column("times", "×", number=True),
    Column("sources", "from"),
    Column("shapes", "shape"),
    Column("dtype", "dtype"),
    Column("params", "parameters", number=True),
)


def blocks(flow: Flow, words: Mapping[str, str] | None) -> Iterator[Block]:
    """The diagram, what its symbols stand for, and the notes."""
    yield Heading(flow.name, cut=True)
    yield Diagram(flow, words)
    legend = list(_legend(flow, words or flow_words.ENGLISH))
    if legend:
        yield Text(legend, tone="quiet", broken=True)
    if flow.notes:
        yield Notes(flow.notes)


def nodes(flow: Flow) -> Table:
    """A row for each node, with the nodes that it reads."""
    sources: dict[str, dict[str, None]] = defaultdict(dict)
    for edge in flow.edges:
        if not edge.carried:
            sources[edge.target][edge.source] = None
    rows = [
        (
            node.id,
            flow_words.name_of(node),
            node.type,
            node.kind,
            node.stage,
            node.group or "",
            Cell(f"{node.count:,}", node.count),
            ", ".join(sources[node.id]),
            ", ".join(map(flow_words.shape, node.dims)),
            node.dtype or "",
            Cell("" if node.params is None else f"{node.params:,}", node.params),
        )
        for node in flow_words.drawn_order(flow)
    ]
    return Table(_NODES, rows)


def _legend(flow: Flow, words: Mapping[str, str]) -> Iterator[str]:
    for symbol, line in zip(flow.symbols, flow_words.legend(flow), strict=True):
        sizes = words["and"].join(f"{size:,}" for size in symbol.tried)
        yield words["tried"].format(line=line, sizes=sizes) if sizes else line
    if any(node.tensors for node in flow.nodes):
        yield words["tensors"]
