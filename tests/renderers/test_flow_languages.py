"""The flow as Mermaid, DOT and JSON: well formed whatever names are in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import build_flow
from modelglass.api import RENDERERS
from modelglass.renderers.flow import dot, mermaid
from modelglass.report import FlowEdge, FlowNode

Golden = Callable[[str, str], None]
NAMES = sorted(build_flow.FLOWS)
SMALL = sorted(set(NAMES) - {"large"})
SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "flow-1.json"


@pytest.mark.parametrize("name", SMALL)
def test_mermaid(name: str, golden: Golden) -> None:
    golden(f"flow/{name}.mmd", mermaid.render(build_flow.FLOWS[name]()))


@pytest.mark.parametrize("name", SMALL)
def test_dot(name: str, golden: Golden) -> None:
    golden(f"flow/{name}.dot", dot.render(build_flow.FLOWS[name]()))


def test_json(golden: Golden) -> None:
    golden("flow/nested.json", FLOW["json"](build_flow.nested()))


# A label holds letters, digits, a few marks and codes of characters; a quote or bracket only as a code.
LABEL = r"\"(?:[^\W]|[ .,()/+=×·→…\-]|#\d+;|<br/>)+\""
NODE = rf"n\d+(?:\[{LABEL}\]|\({LABEL}\)|\(\[{LABEL}\]\))"
MERMAID = (
    NODE,
    rf"subgraph n\d+\[{LABEL}\]",
    "end",
    rf"n\d+ (?:-->|-\.->)(?:\|{LABEL}\|)? n\d+",
    r"classDef [a-z]+ [a-z0-9#:, -]+",
    r"class n\d+(?:,n\d+)* [a-z]+",
    r"%% [^{}%]*",
)

FLOW = RENDERERS["flow"]


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_mermaid_is_one_of_a_few_kinds(name: str) -> None:
    flow = build_flow.FLOWS[name]()
    rule, title, closing, chart, *lines = mermaid.render(flow).splitlines()
    assert (rule, closing, chart) == ("---", "---", "flowchart TD")
    assert re.fullmatch(r'title: "(?:[^"\\]|\\.)*"', title)
    for line in lines:
        assert any(re.fullmatch(kind, line.strip()) for kind in MERMAID), line
    arrows = [line for line in lines if re.match(r" +n\d+ -", line)]
    assert len(arrows) == len(flow.edges)
    assert sum("-.->" in line for line in arrows) == sum(edge.carried for edge in flow.edges)


def test_mermaid_makes_ids_of_its_own() -> None:
    nodes = [
        FlowNode(id=id, kind=kind, label=id, stage="blocks", group=group)
        for id, kind, group in (("end", "group", None), ("x; y", "module", "end"), ("o--o", "module", None))
    ]
    edges = (FlowEdge(source="x; y", target="o--o"),)
    shown = mermaid.render(replace(build_flow.chain(), nodes=tuple(nodes), edges=edges))
    assert 'subgraph n0["end"]' in shown
    assert 'n1 -->|"scalar"| n2' in shown


def test_a_diagram_too_long_for_pages_does_without_shapes() -> None:
    flow = build_flow.large(300)
    long = ("#" * 25, "#" * 25)
    shown = mermaid.render(replace(flow, edges=tuple(replace(edge, dims=long) for edge in flow.edges)))
    assert len(shown) <= mermaid.LONGEST_TEXT
    assert "#35;" not in shown
    assert shown.count("-->") == len(flow.edges)


# Of DOT's grammar, what a diagram uses: quoted strings, words, numbers, and signs.
TOKEN = re.compile(r"\s+|(?P<string>\"(?:[^\"\\]|\\.)*\")|(?P<word>[A-Za-z_]+|\d+)|(?P<sign>->|[{}\[\];=,])")


def tokens(source: str) -> list[str]:
    found, at = [], 0
    while at < len(source):
        match = TOKEN.match(source, at)
        assert match, source[at : at + 40]
        at = match.end()
        if match.lastgroup:
            found.append(match[0])
    return found


class Dot:
    """Reads what `dot` writes, by the grammar of the language; anything else is an assertion that fails."""

    def __init__(self, source: str) -> None:
        self._tokens = tokens(source)
        self.nodes: list[str] = []
        self.edges: list[tuple[str, str]] = []
        self.clusters: list[str] = []
        self._take("digraph")
        self._next()
        self._block()
        assert not self._tokens

    def _next(self) -> str:
        return self._tokens.pop(0)

    def _take(self, token: str) -> None:
        assert self._next() == token

    def _block(self) -> None:
        self._take("{")
        while self._tokens[0] != "}":
            self._statement(self._next())
        self._take("}")

    def _statement(self, first: str) -> None:
        if first == "subgraph":
            self.clusters.append(self._next())
            self._block()
            return
        sign = self._tokens[0]
        if sign == "=":
            self._take("=")
            self._next()
        elif sign == "->":
            self._take("->")
            self.edges.append((first, self._next()))
            self._attributes()
        else:
            if first.startswith('"'):
                self.nodes.append(first)
            self._attributes()
        self._take(";")

    def _attributes(self) -> None:
        self._take("[")
        while True:
            assert re.fullmatch("[a-z]+", self._next())
            self._take("=")
            assert re.fullmatch(r"\w+|\".*\"", self._next(), re.DOTALL)
            if self._next() == "]":
                return


@pytest.mark.parametrize("name", NAMES)
def test_dot_keeps_to_its_grammar(name: str) -> None:
    flow = build_flow.FLOWS[name]()
    read = Dot(dot.render(flow))
    assert read.nodes == [f'"{node.id}"' for node in flow.nodes if node.kind != "group"]
    assert read.clusters == [f'"cluster_{node.id}"' for node in flow.nodes if node.kind == "group"]
    assert read.edges == [(f'"{edge.source}"', f'"{edge.target}"') for edge in flow.edges]


@pytest.mark.parametrize("name", NAMES)
def test_json_keeps_to_its_schema_and_holds_everything(name: str) -> None:
    flow = build_flow.FLOWS[name]()
    document = json.loads(FLOW["json"](flow))
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert (document["format"], document["version"]) == ("modelglass-flow", 1)
    assert [node["label"] for node in document["nodes"]] == [node.label for node in flow.nodes]
    assert [tuple(edge["dims"]) for edge in document["edges"]] == [edge.dims for edge in flow.edges]
