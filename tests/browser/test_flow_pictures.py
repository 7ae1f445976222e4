"""Flows of every kind, those of real models too, drawn by a browser.

SVG is drawn as it is, Mermaid and DOT by the libraries that pages use.
"""

from __future__ import annotations

from pathlib import Path

import model_flows
import pytest
from places import PICTURES, library
from playwright.sync_api import Page

import build_flow
from modelglass.renderers._escape import printable
from modelglass.renderers.flow import dot, mermaid, svg

FLOWS = {**build_flow.FLOWS, **model_flows.FLOWS}
NAMES = sorted(FLOWS)
HALF_A_PIXEL = 0.5

BOXES = """() => [...document.querySelectorAll('[data-node]')].map(node => {
    const rect = [...node.querySelectorAll(':scope > rect')].pop().getBBox();
    const texts = [...node.querySelectorAll(':scope > text')].map(text => text.getBBox());
    const plain = box => ({left: box.x, top: box.y, right: box.x + box.width, bottom: box.y + box.height});
    return {id: node.dataset.node, rect: plain(rect), texts: texts.map(plain)};
})"""

LINES = """() => [...document.querySelectorAll('[data-from] > path.line')].map(path => {
    const length = path.getTotalLength(), box = path.getBBox();
    return {length, from: path.parentNode.dataset.from, to: path.parentNode.dataset.to, height: box.height};
})"""

DRAW_MERMAID = """async ([source, theme]) => {
    mermaid.initialize({startOnLoad: false, theme, securityLevel: 'strict'});
    const drawn = await mermaid.render('drawn', source);
    document.body.innerHTML = drawn.svg;
    document.body.style.background = theme === 'dark' ? '#0d1117' : '#ffffff';
    const text = element => element.textContent.replace(/\\s+/g, ' ').trim();
    const all = (selector) => [...document.querySelectorAll(selector)].map(text);
    return {nodes: all('.node .nodeLabel'), edges: all('.edgeLabel .edgeLabel'),
            groups: all('.cluster-label'), paths: document.querySelectorAll('.edgePaths path').length,
            scripts: document.body.querySelectorAll('script, [onerror], [onclick], a, img').length};
}"""

DRAW_DOT = """async source => {
    const viz = await Viz.instance();
    const drawn = viz.renderSVGElement(source);
    document.body.replaceChildren(drawn);
    return {nodes: drawn.querySelectorAll('g.node').length, edges: drawn.querySelectorAll('g.edge').length,
            groups: drawn.querySelectorAll('g.cluster').length, text: drawn.textContent};
}"""


def shot(page: Page, name: str) -> None:
    """A picture to look at."""
    page.locator("svg").first.screenshot(path=PICTURES / f"{name}-{page.scheme}.png")  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_texts_lie_within_their_boxes(name: str, page: Page, tmp_path: Path) -> None:
    flow = FLOWS[name]()
    path = tmp_path / f"{name}.svg"
    path.write_text(svg.render(flow), encoding="utf-8")
    page.goto(path.as_uri())
    boxes = page.evaluate(BOXES)
    assert {box["id"] for box in boxes} == {node.id for node in flow.nodes}
    for box in boxes:
        for text in box["texts"]:
            assert _inside(text, box["rect"]), box
    if name != "large":
        shot(page, name)


def _inside(inner: dict[str, float], outer: dict[str, float]) -> bool:
    return (
        inner["left"] >= outer["left"] - HALF_A_PIXEL
        and inner["top"] >= outer["top"] - HALF_A_PIXEL
        and inner["right"] <= outer["right"] + HALF_A_PIXEL
        and inner["bottom"] <= outer["bottom"] + HALF_A_PIXEL
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_edge_is_a_line(name: str, page: Page) -> None:
    flow = FLOWS[name]()
    page.set_content(svg.render(flow))
    lines = page.evaluate(LINES)
    once = {node.id for node in flow.nodes if node.count == 1}
    expected = [
        (edge.source, edge.target) for edge in flow.edges if edge.source != edge.target or edge.source in once
    ]
    assert [(line["from"], line["to"]) for line in lines] == expected
    assert all(line["length"] >= line["height"] > 0 for line in lines)


def test_the_picture_follows_the_page_into_the_dark(page: Page) -> None:
    page.set_content(svg.render(build_flow.diffusion()))
    colour = "element => getComputedStyle(element).fill"
    paper = page.locator("rect.page").evaluate(colour)
    ink = page.locator("text.heading").evaluate(colour)
    light, dark = (paper, ink) if page.scheme == "light" else (ink, paper)  # type: ignore[attr-defined]
    assert _brightness(light) > 200
    assert _brightness(dark) < 60


def _brightness(colour: str) -> float:
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return (red + green + blue) / 3


@pytest.mark.parametrize("name", NAMES)
def test_mermaid_draws_it_with_every_label(name: str, page: Page) -> None:
    flow = FLOWS[name]()
    page.set_content("<body></body>")
    page.add_script_tag(path=library("mermaid/dist/mermaid.min.js"))
    theme = "dark" if page.scheme == "dark" else "default"  # type: ignore[attr-defined]
    drawn = page.evaluate(DRAW_MERMAID, [mermaid.render(flow), theme])
    assert drawn["scripts"] == 0
    assert drawn["paths"] == len(flow.edges)
    _hold(drawn["nodes"], [_spaced(node.label) for node in flow.nodes if node.kind != "group"])
    _hold(drawn["groups"], [_spaced(node.label) for node in flow.nodes if node.kind == "group"])
    _hold(drawn["edges"], [_spaced(f"({', '.join(edge.dims)})") for edge in flow.edges if edge.dims])
    if name != "large":
        shot(page, f"mermaid-{name}")


def _hold(drawn: list[str], wanted: list[str]) -> None:
    """Each wanted label begins or is one of those drawn; zero-width spaces aside."""
    shown = "\n".join(text.replace("\u200b", "") for text in drawn)
    missing = [label for label in wanted if label[:50] not in shown]
    assert not missing


def _spaced(label: str) -> str:
    return " ".join(printable(label).split())


@pytest.mark.parametrize("name", NAMES)
def test_graphviz_draws_it_with_every_label(name: str, page: Page, tmp_path: Path) -> None:
    flow = FLOWS[name]()
    empty = tmp_path / "empty.html"  # the library wants to know where it is
    empty.write_text("<!doctype html><meta charset=utf-8><body></body>")
    page.goto(empty.as_uri())
    page.add_script_tag(path=library("@viz-js/viz/dist/viz-global.js"))
    drawn = page.evaluate(DRAW_DOT, dot.render(flow))
    groups = [node for node in flow.nodes if node.kind == "group"]
    assert (drawn["nodes"], drawn["groups"]) == (len(flow.nodes) - len(groups), len(groups))
    assert drawn["edges"] == len(flow.edges)
    text = " ".join(drawn["text"].replace("\u00a0", " ").split())
    assert not [node.label for node in flow.nodes if _spaced(node.label)[:70] not in text]
    if name != "large":
        shot(page, f"dot-{name}")
