"""Pages as people use them: opened from a file, folded, searched, sorted, by mouse and by keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from places import PICTURES, library
from playwright.sync_api import Page
from torch import nn

import build
import modelglass as mg
from modelglass import api
from modelglass.analyses.counts import count
from modelglass.report import Report
from modelglass.report.embedded import extract
from output_checks import NASTY

Opened = Callable[[str], Page]
HOSTILE = (
    *NASTY,
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "'-alert(1)-'",
    '"><svg onload=alert(1)>',
    "javascript:alert(1)",
    "&lt;script&gt;",
    "__proto__",
    "constructor",
    "x" * 10_000,
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(16, 64)
        self.narrow = nn.Linear(64, 16)

    def forward(self, x: Any) -> Any:
        return x + self.narrow(torch.relu(self.wide(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(5))
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Hostile(nn.Module):
    """Modules of such names and types, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        for name in HOSTILE:
            layer = nn.Linear(2, 2, bias=False)
            layer.__class__ = type(name.encode(errors="replace").decode()[:50], (nn.Linear,), {})
            self.add_module(name.replace(".", "_"), layer)

    def forward(self, x: Any) -> Any:
        for layer in self.children():
            x = layer(x)
        return x


@pytest.fixture(scope="module")
def report() -> Report:
    inputs = torch.zeros(2, 6, dtype=torch.int64)
    return mg.inspect(Net(), inputs, train=True, optimizer="adamw", stats=True, symbols=True)


@pytest.fixture(scope="module")
def hostile() -> Report:
    return mg.inspect(Hostile(), torch.ones(1, 2), train=True, optimizer="sgd", stats=True)


@pytest.fixture
def opened(page: Page, tmp_path: Path) -> Opened:
    """A page opened from a file; what it asks of the network, or its policy refuses, is collected."""
    wrong: list[str] = []
    page.on("request", lambda request: request.url.startswith("file:") or wrong.append(request.url))
    page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))

    def open_(text: str, address: str = "") -> Page:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        page.goto(path.as_uri() + address)
        page.wait_for_function("document.documentElement.dataset.ready === 'true'")
        page.wrong = wrong  # type: ignore[attr-defined]
        return page

    return open_


def names(page: Page, grid: str = "layers") -> list[str]:
    return page.locator(f"[aria-label={grid}] [role=rowheader]").all_inner_texts()


def shot(page: Page, name: str) -> None:
    page.screenshot(path=PICTURES / f"page-{name}-{page.scheme}.png", full_page=True)  # type: ignore[attr-defined]


def test_a_page_asks_for_nothing_and_is_refused_nothing(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    assert page.locator("nav a").all_inner_texts() == [
        *("Layers", "Data flow", "Memory", "Weights", "Distinct modules and operators", "Run")
    ]
    shot(page, "net")
    for width in (360, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        shot(page, f"net-{width}")
    assert page.wrong == []  # type: ignore[attr-defined]


def test_people_who_do_not_see_it_can_use_it(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"), "#head")
    page.evaluate(library("axe-core/axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    assert [(each["impact"], each["id"], each["nodes"][0]["html"]) for each in found] == []


@pytest.mark.parametrize("noun", ["memory", "stats", "flow", "unique"])
def test_pages_of_other_commands_open_as_well(noun: str, report: Report, opened: Opened) -> None:
    nouns: dict[str, tuple[Any, ...]] = {"flow": (mg.flow(report),), "unique": (report, mg.unique(report))}
    page = opened(api.RENDERERS[noun]["html"](*nouns.get(noun, (report,))))
    assert page.locator("h1").count() == 1
    assert page.wrong == []  # type: ignore[attr-defined]


def test_texts_of_strangers_do_nothing(hostile: Report, opened: Opened) -> None:
    page = opened(mg.render(hostile, "html"))
    page.get_by_role("button", name="Unfold all").click()
    for row in range(0, len(HOSTILE), 9):
        page.evaluate("at => document.querySelector('.scroller').scrollTop = 28 * at", row)
        page.wait_for_timeout(30)
        page.locator("[aria-label=layers] .rows [role=row]").last.click(position={"x": 30, "y": 10})
    assert (
        page.locator(
            "img, iframe, object, embed, body script:not([id]) ~ script, [onerror], [onload]"
        ).count()
        == 0
    )
    assert "\u202e" not in page.locator("body").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 1200
    assert page.evaluate("({}).polluted === undefined")
    assert page.wrong == []  # type: ignore[attr-defined]
    shot(page, "hostile")


def test_the_figures_are_those_of_the_report(report: Report, opened: Opened) -> None:
    text = mg.render(report, "html")
    page = opened(text)
    document = json.loads(extract(text))
    totals = {path: each["total"].get("params", 0) for path, each in document["counts"]["by_module"].items()}
    page.get_by_label("equal blocks one by one").first.check()
    page.get_by_role("button", name="Unfold all").click()
    page.locator("[aria-label=layers]").evaluate("grid => grid.style.maxHeight = 'none'")
    page.wait_for_timeout(100)
    rows = page.locator("[aria-label=layers] .rows [role=row]")
    shown = {
        row.locator("[role=rowheader]").get_attribute("title"): row.locator(".cell.n").first.inner_text()
        for row in rows.all()
    }
    assert len(shown) == len(totals)
    assert shown == {path or "(root)": f"{total:,}" if total else "–" for path, total in totals.items()}


def test_rows_fold_and_unfold(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    assert [name.strip("▾▸ ") for name in names(page)] == [
        *("(root)", "embed", "blocks", "0–4  ×5", "wide  ×5", "narrow  ×5", "head")
    ]
    page.locator("[aria-label=layers] [role=row]", has_text="blocks").locator(".fold").click()
    assert [name.strip("▾▸ ") for name in names(page)] == ["(root)", "embed", "blocks", "head"]
    page.get_by_role("button", name="Unfold all").click()
    page.get_by_label("equal blocks one by one").first.check()
    assert len(names(page)) == 19
    page.get_by_role("button", name="Fold all", exact=True).click()
    assert len(names(page)) == 4


def test_rows_are_found_and_sorted(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    page.get_by_label("Search layers").fill("embedding")
    assert [name.strip("▾▸ ") for name in names(page)] == ["(root)", "embed"]
    page.get_by_label("Search layers").fill("out_features=64")
    assert "wide  ×5" in [name.strip("▾▸ ") for name in names(page)]
    page.get_by_label("Search layers").fill("")
    page.locator("[aria-label=layers]").get_by_role("button", name="parameters").click()
    params = page.locator("[aria-label=layers] .rows .cell.n:nth-child(4)").all_inner_texts()
    figures = [int(each.replace(",", "")) for each in params if each != "–"]
    assert figures == sorted(figures, reverse=True)
    assert names(page)[-1].startswith(("embed", "head", "blocks"))


def test_columns_are_chosen(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    heads = page.locator("[aria-label=layers] [role=columnheader]")
    assert "settings" not in heads.all_inner_texts()
    page.locator(".chooser summary").first.click()
    page.locator(".chooser").first.get_by_label("settings").check()
    assert "settings" in heads.all_inner_texts()


def test_a_module_is_chosen_everywhere(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    page.locator(".icicle .box", has_text="head").first.click()
    assert page.locator(".panel h3").inner_text() == "head"
    assert "head" in page.locator("[aria-label=layers] [aria-selected=true]").inner_text()
    assert page.locator(".stage .chosen").count() == 1
    assert page.evaluate("location.hash") == "#head"
    page.keyboard.press("Escape")
    assert page.locator(".panel").is_hidden()


def test_a_link_leads_to_a_module(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"), "#blocks.3.wide")
    assert page.locator(".panel h3").inner_text() == "blocks.3.wide"
    assert "wide" in page.locator("[aria-label=layers] [aria-selected=true]").inner_text()
    assert "out_features=64" in page.locator(".panel .settings").inner_text()


def test_shares_open_and_close(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    blocks = page.locator(".icicle .box", has_text="blocks").first
    blocks.click(position={"x": 5, "y": 5})
    page.locator(".icicle .box", has_text="blocks").first.click(position={"x": 5, "y": 5})
    assert page.locator(".crumbs button").all_inner_texts() == ["(root)", "blocks"]
    assert page.locator(".icicle .box", has_text="head").count() == 0
    page.locator(".crumbs button").first.click()
    assert page.locator(".icicle .box", has_text="head").count() == 1


def test_the_tree_is_walked_by_keys(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    page.locator("[aria-label=layers]").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    assert [name.strip("▾▸ ") for name in names(page)] == ["(root)", "embed", "blocks", "head"]
    active = page.locator("[aria-label=layers]").get_attribute("aria-activedescendant")
    assert "blocks" in page.locator(f"[id='{active}']").inner_text()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert "head" in page.locator("[aria-label=layers] [aria-selected=true]").inner_text()


def test_the_flow_is_as_deep_as_is_wanted_and_searched(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    page.get_by_label("Levels").select_option(index=1)
    shallow = page.locator(".stage [data-node]").count()
    page.get_by_label("Levels").select_option(index=2)
    assert page.locator(".stage [data-node]").count() > shallow
    page.get_by_label("Search the flow").fill("embed")
    assert page.locator(".stage .found").count() >= 1
    page.get_by_label("Colour").select_option("params")
    page.locator(".stage [data-node]", has_text="head").first.click()
    assert page.locator(".panel h3").inner_text() == "head"
    assert page.wrong == []  # type: ignore[attr-defined]


def test_a_moment_of_the_run_is_chosen(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    assert report.memory is not None
    peak = page.locator(".moment").inner_text()
    assert f"{report.memory.peak_nbytes:,} bytes" in peak
    assert "this is the peak" in peak
    chart = page.locator("svg.timeline")
    box = chart.bounding_box()
    assert box is not None
    chart.click(position={"x": box["width"] * 0.09, "y": box["height"] / 2})
    first = report.memory.timeline[0]
    told = page.locator(".moment").inner_text()
    assert "Kernel 1 of" in told
    assert f"{first.nbytes:,} bytes" in told
    assert first.op in told
    chart.focus()
    page.keyboard.press("ArrowRight")
    assert "Kernel 2 of" in page.locator(".moment").inner_text()


def test_weights_have_histograms(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    row = page.locator("[aria-label=weights] .rows [role=row]", has_text="head.bias")
    assert row.locator("svg.spark path").count() == 1
    row.click()
    assert page.locator(".histogram h3").inner_text() == "head.bias"
    stats = (report.stats or {})["head.bias"]
    assert stats is not None
    assert stats.histogram is not None
    assert page.locator(".histogram rect").count() == len(stats.histogram.counts)


def test_tables_in_the_page_are_sorted(report: Report, opened: Opened) -> None:
    page = opened(mg.render(report, "html"))
    table = page.locator("#section-distinct table").first
    table.get_by_role("button", name="×").click()
    counts = [int(text) for text in table.locator("tbody td:nth-child(3)").all_inner_texts() if text != "–"]
    assert counts == sorted(counts, reverse=True)


def test_without_a_script_everything_can_be_read(report: Report, browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(mg.render(report, "html"), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.locator("main").inner_text()
    assert report.counts is not None
    assert f"{report.counts.params:,}" in text
    assert page.locator("#section-layers table").is_visible()
    assert page.locator("#section-flow svg").is_visible()
    assert page.locator("svg.timeline").is_visible()
    context.close()


def many(number: int) -> Report:
    """A model of so many modules, each of another size."""
    groups = [f"group{at}" for at in range(number // 100)]
    paths = {group: [f"{group}.layer{at}" for at in range(100)] for group in groups}
    leaves = [path for group in groups for path in paths[group]]
    tensors = [build.tensor(f"{path}.weight", shape=(at % 997 + 1, 8)) for at, path in enumerate(leaves)]
    modules = [build.module("", children=tuple(groups))]
    for group in groups:
        modules.append(build.module(group, "Group", children=tuple(paths[group])))
        modules += [build.module(path, "Layer", tensors=(f"{path}.weight",)) for path in paths[group]]
    model = build.model(*tensors, modules=tuple(modules))
    return Report(model=model, counts=count(model))


@pytest.mark.slow
def test_very_many_rows_take_few_elements(opened: Opened) -> None:
    report = many(100_000)
    page = opened(mg.render(report, "html"))
    assert len(report.model.modules) > 100_000
    page.get_by_role("button", name="Unfold all").click()
    rows = page.locator("[aria-label=layers] .rows [role=row]")
    for top in (0, 500_000, 1_500_000, 2_790_000):
        page.evaluate("top => document.querySelector('.scroller').scrollTop = top", top)
        page.wait_for_timeout(50)
        assert 10 < rows.count() < 80
    page.get_by_label("Search layers").fill("group777.layer55")
    assert any("layer55" in name for name in names(page))
    page.locator("[aria-label=layers]").get_by_role("button", name="parameters").click()
    assert 0 < rows.count() < 80
    assert page.evaluate("document.querySelectorAll('*').length") < 25_000
