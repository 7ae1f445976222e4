"""The flow as a picture: nothing overlaps, texts fit, every edge leads from its source to its target."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

import build_flow
from modelglass.page import flow_words as _words
from modelglass.renderers.flow import svg
from modelglass.renderers.flow._measure import shortened, text_width
from modelglass.renderers.flow.layout import Picture, Place, laid_out, placing
from modelglass.report import Flow, FlowEdge

Golden = Callable[[str, str], None]
FLOWS = {**build_flow.FLOWS, **build_flow.CHANCE}
NAMES = sorted(FLOWS)
SVG = "{http://www.w3.org/2000/svg}"
SLACK = 0.2  # numbers are rounded


def picture_of(flow: Flow) -> Picture:
    sizes = {node.id: (80.0 + 5 * len(node.label), 40.0) for node in flow.nodes}
    return laid_out(flow, sizes, dict.fromkeys(sizes, (120.0, 36.0)))


def drawn_as_lines(flow: Flow) -> list[FlowEdge]:
    """All edges but those of a repeated module to itself, which its box shows."""
    counts = {node.id: node.count for node in flow.nodes}
    return [edge for edge in flow.edges if edge.source != edge.target or counts[edge.source] == 1]


def around(flow: Flow, id: str) -> set[str]:
    """The groups around a node."""
    group = {node.id: node.group for node in flow.nodes}
    found = set()
    while (outer := group[id]) is not None:
        found.add(outer)
        id = outer
    return found


def overlap(a: Place, b: Place) -> bool:
    return (
        a.x < b.x + b.width - SLACK
        and b.x < a.x + a.width - SLACK
        and a.y < b.y + b.height - SLACK
        and b.y < a.y + a.height - SLACK
    )


def inside(inner: Place, outer: Place) -> bool:
    return (
        inner.x >= outer.x - SLACK
        and inner.y >= outer.y - SLACK
        and inner.x + inner.width <= outer.x + outer.width + SLACK
        and inner.y + inner.height <= outer.y + outer.height + SLACK
    )


@pytest.mark.parametrize("name", ["chain", "residual", "diffusion", "nested"])
def test_pictures(name: str, golden: Golden) -> None:
    golden(f"flow/{name}.svg", svg.render(FLOWS[name]()))


@pytest.mark.parametrize("name", NAMES)
def test_boxes_do_not_overlap_and_groups_hold_what_is_in_them(name: str) -> None:
    flow = FLOWS[name]()
    places = picture_of(flow).places
    outer = {node.id: around(flow, node.id) for node in flow.nodes}
    assert places.keys() == outer.keys()
    for one, other in combinations(places, 2):
        if other in outer[one] or one in outer[other]:
            held, holder = (one, other) if other in outer[one] else (other, one)
            assert inside(places[held], places[holder])
        else:
            assert not overlap(places[one], places[other]), (one, other)


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_in_the_picture(name: str) -> None:
    picture = picture_of(FLOWS[name]())
    whole = Place(0, 0, picture.width, picture.height)
    assert all(inside(place, whole) for place in picture.places.values())
    assert all(inside(title, whole) for title in picture.titles.values())
    for _, route in picture.routes:
        assert all(inside(Place(point.x, point.y, 0, 0), whole) for point in route)


@pytest.mark.parametrize("name", NAMES)
def test_every_line_leads_from_its_source_to_its_target(name: str) -> None:
    flow = FLOWS[name]()
    picture = picture_of(flow)
    assert [edge for edge, _ in picture.routes] == drawn_as_lines(flow)
    for edge, route in picture.routes:
        source, target = picture.places[edge.source], picture.places[edge.target]
        assert source.x <= route[0].x <= source.x + source.width
        assert route[0].y == pytest.approx(source.y + source.height)
        if not edge.carried:  # what is carried comes in where the first repetition's input does
            assert target.x <= route[-1].x <= target.x + target.width
            assert route[-1].y == pytest.approx(target.y)


@pytest.mark.parametrize("name", NAMES)
def test_lines_go_through_no_box(name: str) -> None:
    """Upright parts and the ends of curves are outside of every box that is not a group around them."""
    flow = FLOWS[name]()
    picture = picture_of(flow)
    boxes = [place for id, place in picture.places.items() if flow.nodes[int(id[1:])].kind != "group"]
    for _, route in picture.routes:
        for before, point in pairwise(route):
            if before.x != point.x:
                continue
            low, high = sorted((before.y, point.y))
            line = Place(point.x - 0.1, low, 0.2, high - low)
            thin = [box for box in boxes if box.x < line.x + 0.2 and line.x < box.x + box.width]
            assert not any(box.y + SLACK < high and low < box.y + box.height - SLACK for box in thin)


@pytest.mark.parametrize("name", NAMES)
def test_lines_meet_no_title_of_a_group(name: str) -> None:
    picture = picture_of(FLOWS[name]())
    for _, route in picture.routes:
        for before, point in pairwise(route):
            left, right = sorted((before.x, point.x))
            top, bottom = sorted((before.y, point.y))
            if left == right or top == bottom:
                line = Place(left, top, right - left, bottom - top)
                assert not any(_touches(line, title) for title in picture.titles.values())


def _touches(line: Place, title: Place) -> bool:
    return (
        line.x < title.x + title.width
        and title.x < line.x + line.width
        and line.y < title.y + title.height
        and title.y < line.y + line.height
    ) or (
        line.width == 0
        and title.x < line.x < title.x + title.width
        and line.y < title.y + title.height
        and title.y < line.y + line.height
    )


def texts(element: ElementTree.Element) -> Iterator[tuple[float, float, str]]:
    """Where each text is anchored, and what it says in all."""
    for each in element.iter(f"{SVG}text"):
        yield float(each.attrib["x"]), float(each.attrib["y"]), "".join(each.itertext())


@pytest.mark.parametrize("name", NAMES)
def test_valid_xml_with_every_node_and_edge_and_texts_in_their_boxes(name: str) -> None:
    flow = FLOWS[name]()
    root = ElementTree.fromstring(svg.render(flow))
    drawn = {each.attrib["data-node"]: each for each in root.iter(f"{SVG}g") if "data-node" in each.attrib}
    assert drawn.keys() == {node.id for node in flow.nodes}
    lines = [
        (g.attrib["data-from"], g.attrib["data-to"]) for g in root.iter(f"{SVG}g") if "data-from" in g.attrib
    ]
    assert lines == [(edge.source, edge.target) for edge in drawn_as_lines(flow)]
    for element in drawn.values():
        assert element.find(f"{SVG}title") is not None
        rect = element.findall(f"{SVG}rect")[-1].attrib
        left, right = float(rect["x"]), float(rect["x"]) + float(rect["width"])
        for x, y, text in texts(element):
            half = text_width(text, 11.0) / 2
            assert float(rect["y"]) < y < float(rect["y"]) + float(rect["height"])
            if "group" not in element.attrib["class"]:
                assert left < x - half, text
                assert x + half < right, text


def test_places_in_lists_are_counted_in_the_legend() -> None:
    cached = [f"past.{layer}.{side}.2" for layer in range(32) for side in (0, 1)]
    keys = [f"past.{layer}.0.1" for layer in range(1200)]
    flow = build_flow.Sketch("Cached").flow(
        build_flow.symbol("L", 7, "x.1", *cached),
        build_flow.symbol("H", 8, *keys),
        build_flow.symbol("B", 2, "args.0.0", "args.1.0", "x.0"),
    )
    assert list(_words.legend(flow)) == [
        "L = 7: x.1, past.*.*.2 × 64",
        "H = 8: past.*.0.1 × 1,200",
        "B = 2: args.0.0, args.1.0, x.0",
    ]


@pytest.mark.parametrize("text", ["a long name", "Ünïcode → ×", "모델 구조", "W" * 5_000, "e\u0301" * 40])
@pytest.mark.parametrize("room", [0.0, 5.0, 12.0, 50.0, 200.0])
def test_a_text_is_cut_as_late_as_its_room_allows(text: str, room: float) -> None:
    shown = shortened(text, room, 11.0)
    if shown != text:
        kept = len(shown) - 1
        assert shown == f"{text[:kept]}…"
        assert kept == 0 or text_width(shown, 11.0) <= room + 1e-9
        assert text_width(f"{text[: kept + 1]}…", 11.0) > room - 1e-9
    else:
        assert text_width(text, 11.0) <= room


def test_a_picture_needs_nothing_and_runs_nothing() -> None:
    shown = svg.render(build_flow.hostile())
    root = ElementTree.fromstring(shown)
    assert {each.tag.removeprefix(SVG) for each in root.iter()} <= {
        "svg", "g", "path", "rect", "style", "text", "title", "tspan"
    }  # fmt: skip
    outside = [
        name for each in root.iter() for name in each.attrib if "href" in name or name.startswith("on")
    ]
    assert not outside
    assert "url(" not in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", shown)


def tangled(nodes: int, readings: int) -> Flow:
    """Each node reads so many others from anywhere above."""
    chance = random.Random(nodes)
    sketch = build_flow.Sketch("Tangled")
    made = [sketch.input("x", "B", "64")]
    for index in range(nodes):
        sources = sorted({chance.choice(made) for _ in range(readings)})
        made.append(sketch.module(f"layers.{index}", "Linear", *sources, dims=("B", "64")))
    sketch.output("output", made[-1])
    return sketch.flow()


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "readings"), [(500, 2), (200, 40)])
def test_columns_are_pushed_a_limited_number_of_times(
    nodes: int, readings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One push meets each column once, and pushing ends."""
    pushes: list[list[object]] = []
    pushed, pop = placing._pushed, placing.heappop

    def push(*args: Any) -> Any:
        pushes.append([])
        return pushed(*args)

    def popped(waiting: list[Any]) -> Any:
        found = pop(waiting)
        pushes[-1].append(found[1])
        return found

    monkeypatch.setattr(placing, "_pushed", push)
    monkeypatch.setattr(placing, "heappop", popped)
    picture_of(tangled(nodes, readings))
    assert all(len(met) == len(set(met)) for met in pushes)
    assert sum(map(len, pushes)) <= placing._PATIENCE + max(map(len, pushes))


def test_a_tangle_is_laid_out_without_overlaps() -> None:
    places = picture_of(tangled(150, 3)).places
    assert not any(overlap(one, other) for one, other in combinations(places.values(), 2))


def test_a_long_straight_line_has_no_corners_on_its_way() -> None:
    """However many layers it passes: files grow with what bends."""
    sketch = build_flow.Sketch("Long")
    x = made = sketch.input("x", "B")
    for index in range(40):
        made = sketch.module(f"layers.{index}", "Linear", made)
    sketch.output("output", sketch.ops("add", made, x))
    longest = max(
        (route for _, route in picture_of(sketch.flow()).routes), key=lambda route: route[-1].y - route[0].y
    )
    assert len(longest) < 10


def test_a_flow_of_nothing_is_a_picture_of_nothing() -> None:
    ElementTree.fromstring(svg.render(build_flow.Sketch("Nothing").flow()))


def test_data_that_goes_back_into_a_group_is_drawn_around_it() -> None:
    """Two nodes in a group, and between them one outside of it."""
    sketch = build_flow.Sketch("Back")
    x = sketch.input("x", "B")
    with sketch.group("g", "Group") as group:
        first = sketch.module("first", "Linear", x)
        second = sketch.module("second", "Linear", first)
    outside = sketch.module("outside", "Linear", first)
    sketch.output("output", second)
    flow = sketch.flow()
    flow = replace(flow, edges=(*flow.edges, FlowEdge(source=outside, target=second)))
    picture = picture_of(flow)
    assert picture.routes[-1][1][-1].y == pytest.approx(picture.places[second].y)
    assert not overlap(picture.places[group], picture.places[outside])
