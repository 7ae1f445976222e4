"""One page, written as text, Markdown and CSV, says the same in each."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass import api
from modelglass.page.units import size
from modelglass.report import Finding, Scan, ScannedFile


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def ran() -> mg.Report:
    return mg.inspect(model(), torch.ones(3, 4), stats=True)


def nouns(noun: str) -> tuple[Any, ...]:
    finding = Finding(code="a.b", level="high", text="opens a port", file="m.pt")
    file = ScannedFile(path="m.pt", format="gguf", nbytes=9, read_nbytes=9, findings=(finding,))
    made: dict[str, Callable[[], tuple[Any, ...]]] = {
        "flow": lambda: (mg.flow(ran()),),
        "fit": lambda: (mg.fit(model(), torch.ones(3, 4), device_nbytes=100),),
        "compare": lambda: (mg.compare_structure(model(), nn.Sequential(nn.Linear(4, 9))),),
        "scan": lambda: (Scan(files=(file,)),),
        "unique": lambda: (report := ran(), mg.unique(report)),
    }
    return made.get(noun, lambda: (ran(),))()


FIGURES = {  # what a row of CSV says in a column, as people read it
    "inspect": ("params", lambda value: f"{int(value):,}"),
    "flow": ("name", str),
    "memory": ("nbytes", None),
    "fit": ("peak_nbytes", lambda value: size(int(value))),
    "compare": ("in a", str),
    "stats": ("mean", lambda value: f"{float(value):.3g}"),
    "scan": ("code", str),
    "unique": ("count", str),
}


@pytest.mark.parametrize("noun", api.RENDERERS)
def test_text_markdown_and_csv_have_the_same_figures(noun: str) -> None:
    given, write = nouns(noun), api.RENDERERS[noun]
    column, shown = FIGURES[noun]
    rows = list(csv.DictReader(io.StringIO(write["csv"](*given))))
    assert rows
    if shown is None:  # a row a kernel: the peak is the highest of them
        figures = {size(max(int(row[column]) for row in rows))}
    else:
        figures = {shown(row[column]) for row in rows if row[column]}
    for format in ("text", "markdown"):
        text = write[format](*given).replace("\\", "")
        assert not [figure for figure in figures if figure not in text], format


def test_layers_are_records_of_modules() -> None:
    root, first, *_ = ran().layers
    assert (root["path"], root["params"], root["share"]) == ("", 58, 1.0)
    assert (first["name"], first["input"], first["output"]) == ("0", ((3, 4),), ((3, 8),))
    assert (first["macs"], first["flops"], first["calls"]) == (96, 192, 1)
    assert mg.inspect(model()).layers[0]["calls"] is None


def test_a_report_prints_its_table_and_has_a_short_repr() -> None:
    report = ran()
    assert str(report) == mg.render(report).rstrip("\n")
    assert "\n" not in repr(report)


def test_rows_are_sorted_by_a_figure() -> None:
    text = api.RENDERERS["inspect"]["text"](ran(), sort="params", top=2)
    assert [line.split()[0] for line in text.splitlines()[2:4]] == ["(root)", "0"]
