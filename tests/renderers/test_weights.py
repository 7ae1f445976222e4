"""Statistics as text and Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.api import RENDERERS
from modelglass.page.sections import statistics
from modelglass.page.units import pace
from modelglass.renderers._escape import cell_width
from modelglass.report import Histogram, Packing, Report, codec
from modelglass.report.stats import Described
from models import SAMPLES

STATS = RENDERERS["stats"]

Golden = Callable[[str, str], None]


def report() -> Report:
    generator = torch.Generator().manual_seed(0)

    def values(*shape: int, scale: float = 0.02) -> nn.Parameter:
        return nn.Parameter(torch.randn(shape, generator=generator) * scale)

    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(40, 16, padding_idx=0),
            "norm": nn.BatchNorm1d(16),
            "broken": nn.Linear(16, 8),
            "absent": nn.Linear(2, 3, device="meta"),
        }
    )
    model["embed"].weight = values(40, 16, scale=1.0)
    model["broken"].weight, model["broken"].bias = values(8, 16), values(8)
    with torch.no_grad():
        model["broken"].weight[2, 3] = float("nan")
        model["broken"].weight[4] = 0
    return mg.inspect(model, stats=True)


@pytest.mark.parametrize("width", [60, 100, 140])
def test_text(width: int, golden: Golden) -> None:
    golden(f"weights/stats-{width}.txt", STATS["text"](report(), width=width))


def test_markdown(golden: Golden) -> None:
    golden("weights/stats.md", STATS["markdown"](report()))


def test_the_whole_report_shows_statistics_too() -> None:
    text, markdown = mg.render(report(), "text"), mg.render(report(), "markdown")
    for shown in (text, markdown):
        assert "embed.weight" in shown
        assert "distribution" in shown
        assert "not a number" in shown


def names(**options: object) -> list[str]:
    return [row.tensor.name for row in statistics.chosen(report(), **options)]


def test_sorting() -> None:
    order = names()
    assert names(sort="name") == names(sort="name", ascending=True) == sorted(order)
    assert names(sort="std")[0] == "embed.weight"
    assert names(sort="std", ascending=True)[-1] == names(sort="std")[-1]  # unknown comes last either way
    assert names(sort="nan", top=1) == ["broken.weight"]
    assert names(top=2) == order[:2]
    with pytest.raises(mg.InspectError, match="cannot sort by 'weight'"):
        names(sort="weight")


def test_every_column_shows_something() -> None:
    text = STATS["text"](report(), columns=statistics.STATS_COLUMNS, width=400)
    line = next(line for line in text.splitlines() if line.startswith("broken.weight"))
    stats = report().stats["broken.weight"]
    assert f"parameter  8x16    float32  {stats.mean:.3g}" in line
    assert f"{stats.l2:.3g}" in line
    assert f"{stats.quantiles[0.99]:.3g}" in line
    assert line.split().count("1") == 1  # NaN
    assert "values" in line
    with pytest.raises(mg.InspectError, match="there is no column 'weight'"):
        STATS["text"](report(), columns="weight")


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("sample", SAMPLES)
def test_lines_fit(sample: str, width: int) -> None:
    found = mg.inspect(SAMPLES[sample]()[0], stats=True)
    text = STATS["text"](found, width=width)
    assert max(map(cell_width, text.splitlines())) <= width
    assert codec.loads(codec.dumps(found)) == found


def test_bars() -> None:
    def shown(*counts: int) -> str:
        return statistics.bars(Histogram(low=0.0, high=1.0, counts=counts), cells=4)

    assert shown(0, 0, 1, 0, 0, 4, 8, 8) == " ▁▂█"
    assert shown(5) == "████"  # one bin for want of resolution
    assert statistics.bars(Histogram(low=2.0, high=2.0, counts=(5,))) == "all 2"
    assert statistics.bars(None) == ""


def test_pace_tells_rate_and_remaining_time() -> None:
    assert pace(1 << 30, 4 << 30, 2.0) == "1.00 GiB of 4.00 GiB, 512.00 MiB/s, 6 s left"
    assert pace(4 << 30, 4 << 30, 2.0) == "4.00 GiB of 4.00 GiB, 2.00 GiB/s"


def test_progress_is_told_while_weights_are_read() -> None:
    told: list[str] = []
    mg.inspect(nn.Linear(30, 30), stats=True, progress=told.append)
    assert any(line.startswith("reading weights, 3.63 KiB of 3.63 KiB") for line in told)


def test_no_findings_is_said() -> None:
    healthy = mg.inspect(nn.Linear(30, 30), stats=True)
    assert "no findings" in STATS["text"](healthy)
    assert "no findings" not in STATS["text"](report())


@pytest.mark.parametrize(("described", "shape"), [("dequantized", "40x128"), ("stored", "40x16")])
def test_the_shape_is_that_of_what_is_described(described: Described, shape: str) -> None:
    found = report()
    packing = Packing(scheme="mlx-4bit", logical_shape=(40, 128), nbytes=2560)
    tensor = replace(found.model.tensors[0], kind="packed", dtype="uint32", packing=packing)
    stats = {tensor.name: replace(found.stats[tensor.name], described=described)}
    model = replace(found.model, modules=(), tensors=(tensor,))
    shown = STATS["text"](replace(found, model=model, stats=stats), columns="name,shape,described")
    assert shown.splitlines()[2].split() == ["embed.weight", shape, described]


def test_names_cannot_write_to_the_terminal() -> None:
    found = report()
    model = replace(
        found.model,
        modules=(),
        tensors=(replace(found.model.tensors[0], name="bad\x1b[31m|name"),),
    )
    evil = replace(found, model=model, stats={"bad\x1b[31m|name": found.stats["embed.weight"]})
    assert "\x1b" not in STATS["text"](evil)
    assert "\\|name" in STATS["markdown"](evil)
