"""One page, written as text, Markdown and CSV, says the same in each."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
import replays
from modelglass import api
from modelglass.analyses.memory.replay import memory_snapshot
from modelglass.errors import UsageError
from modelglass.page.units import size
from modelglass.report import Finding, FootprintAt, MemorySnapshot, Scan, ScannedFile


def model() -> nn.Module:
    made = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for tensor in made.parameters():
        nn.init.constant_(tensor, 0.5)
    return made


def ran() -> mg.Report:
    return mg.inspect(model(), torch.ones(3, 4), stats=True)


def two_lengths() -> mg.Footprint:
    at = {
        1024: FootprintAt(context=1024, cache_nbytes=2048, nbytes=5048, fits=True, layers=2),
        2048: FootprintAt(context=2048, cache_nbytes=4096, nbytes=7096, fits=False, layers=1),
    }
    return mg.Footprint(
        name="m.gguf",
        source="gguf",
        weight_nbytes=3100,
        contexts=tuple(at.values()),
        layers=2,
        device_nbytes=6000,
        cache_dtype="float16",
    )


def recorded() -> MemorySnapshot:
    return memory_snapshot("snapshot.pickle", [replays.recording_of(replays.load(replays.RECORDINGS[-1]))])


def damaged() -> nn.Module:
    made = model()
    nn.init.zeros_(made[0].bias)
    return made


def nouns(noun: str) -> tuple[Any, ...]:
    finding = Finding(code="a.b", level="high", text="opens a port", file="m.pt")
    file = ScannedFile(path="m.pt", format="gguf", nbytes=9, read_nbytes=9, findings=(finding,))
    made: dict[str, Callable[[], tuple[Any, ...]]] = {
        "flow": lambda: (mg.flow(ran()),),
        "fit": lambda: (mg.fit(model(), torch.ones(3, 4), device_nbytes=100),),
        "footprint": lambda: (two_lengths(),),
        "snapshot": lambda: (recorded(),),
        "diff": lambda: (mg.diff(model(), damaged()),),
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
    "footprint": ("nbytes", lambda value: size(int(value))),
    "snapshot": ("place", str),
    "diff": ("b", str),
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
    for format in ("text", "markdown", "html"):
        text = unescape(write[format](*given)).replace("\\", "")
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
    assert "2 of 4 modules" in text


@pytest.mark.parametrize("noun", api.RENDERERS)
def test_csv_stays_as_it_is(noun: str, golden: Callable[[str, str], None]) -> None:
    golden(f"csv/{noun}.csv", api.RENDERERS[noun]["csv"](*nouns(noun)))


def test_markdown_of_a_flow_has_a_diagram_and_its_nodes(golden: Callable[[str, str], None]) -> None:
    golden("markdown/flow.md", api.RENDERERS["flow"]["markdown"](*nouns("flow")))


def test_csv_of_modules_keeps_to_columns_depth_and_order() -> None:
    text = mg.render(ran(), "csv", columns="name,size,macs,config", depth=1, sort="macs", top=3)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["name"], row["size"], row["macs"]) for row in rows] == [
        ("", "232", "144"),
        ("0", "160", "96"),
        ("2", "72", "48"),
    ]
    assert rows[1]["config"].startswith("in_features=4")
    assert len(mg.render(ran(), "csv", depth=0).splitlines()) == 2


def test_sorted_modules_keep_to_the_depth() -> None:
    nested = mg.inspect(nn.Sequential(model()), torch.ones(3, 4))
    text = mg.render(nested, "text", sort="params", depth=1, columns="name,params")
    assert [line.split()[0] for line in text.splitlines()[2:4]] == ["(root)", "0"]
    assert "0.0" not in text


def test_unknown_columns_of_csv_are_refused() -> None:
    for noun in ("inspect", "stats", "unique"):
        with pytest.raises(UsageError, match="there is no column 'weight'"):
            api.RENDERERS[noun]["csv"](*nouns(noun), columns="weight")


def test_changes_of_a_fit_are_sorted_and_cut() -> None:
    fit = mg.fit(model(), torch.ones(64, 4), device_nbytes=100, train=True)
    rows = list(csv.DictReader(io.StringIO(api.RENDERERS["fit"]["csv"](fit, sort="peak_nbytes", top=2))))
    assert int(rows[0]["peak_nbytes"]) >= int(rows[1]["peak_nbytes"])
    assert len(rows) == 2
