"""Pages in one file: what they hold, and that nothing in them acts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass import api
from modelglass.errors import ReportFormatError
from modelglass.page import Cell, Column, Heading, Page, Table, Text
from modelglass.renderers.pages import html
from modelglass.report.embedded import embed, extract
from output_checks import NASTY, Markup, check, check_html


@pytest.fixture(scope="module")
def report() -> mg.Report:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return mg.inspect(model, torch.ones(3, 4), train=True, optimizer="adamw", stats=True)


def page_of(*blocks: object) -> str:
    return html.render(Page(blocks), "{}")  # type: ignore[arg-type]


@pytest.mark.parametrize("noun", ["inspect", "memory", "stats"])
def test_a_page_gives_the_report_back(noun: str, report: mg.Report, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(api.RENDERERS[noun]["html"](report), encoding="utf-8")
    assert mg.load(path) == report
    assert mg.inspect(path) == report


def test_a_page_of_another_command_gives_its_answer_back(report: mg.Report, tmp_path: Path) -> None:
    flow = mg.flow(report)
    path = tmp_path / "flow.html"
    path.write_text(mg.render(flow, "html"), encoding="utf-8")
    assert mg.load(path) == flow
    with pytest.raises(ReportFormatError, match="holds a Flow, not a Report"):
        mg.load(path, mg.Report)


def test_the_same_report_gives_the_same_page(report: mg.Report) -> None:
    assert mg.render(report, "html") == mg.render(report, "html")


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_texts_are_texts_wherever_they_stand(text: str) -> None:
    table = Table(
        [Column("name", text), Column(text, "b")], [[text, Cell(text, text)]], title=text, more=text
    )
    check("html", page_of(Heading(text, about=text, below=[(text, None)]), table, Text([text])))


def test_a_document_ends_where_it_ends_whatever_texts_say() -> None:
    fake = embed(json.dumps({"format": "modelglass-report"}))
    page = html.render(Page([Text([fake, "</script>"])]), '{"a": 1}')
    assert extract(page) == '{"a": 1}'


def test_long_texts_keep_both_ends() -> None:
    page = page_of(Text(["a" * 5_000 + "b" * 5_000]))
    assert len(page) < len(page_of(Text([""]))) + 11_000
    assert "a…b" in page


def test_tables_of_very_many_rows_are_cut_and_counted() -> None:
    page = page_of(Table([Column("a", "a")], [["x"]] * 100_000))
    assert page.count("<tr") == 1_001
    assert "and 99,000 more rows" in page


def test_a_page_allows_nothing_but_its_own(report: mg.Report) -> None:
    text = mg.render(report, "html")
    check_html(text)
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert Markup(text).tags >= {"main", "table", "h1", "dl"}


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("<p>nothing</p>", "holds no modelglass document"),
        (embed("x").replace("</script>", ""), "holds no modelglass document"),
        (embed("x").replace('document">', 'document">!'), "cannot be read"),
        (embed("x").replace('document">', 'document">AAAA'), "cannot be read"),
        (embed("x" * 2_000), "longer than 1,000 bytes"),
    ],
)
def test_broken_documents_are_a_sentence(page: str, problem: str) -> None:
    with pytest.raises(ReportFormatError, match=problem):
        extract(page, most=1_000)


def test_a_document_that_is_cut_off_is_noticed() -> None:
    whole = embed("".join(map(str, range(1_000))))
    head, _, data = whole.partition(">")
    with pytest.raises(ReportFormatError, match="cut off"):
        extract(f"{head}>{data[: len(data) // 8 * 4]}</script>")


def test_a_page_of_somebody_else_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "other.html"
    path.write_text("<p>hello</p>")
    with pytest.raises(ReportFormatError, match="holds no modelglass document"):
        mg.load(path)


def test_the_page_of_a_layer_table(golden: Callable[[str, str], None]) -> None:
    body = mg.render(mg.inspect(nn.Linear(3, 8)), "html").partition("<main>")[2].partition("</main>")[0]
    golden("html/linear.html", body)
