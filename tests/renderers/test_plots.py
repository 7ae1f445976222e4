"""Pictures of distributions: what is in them, and that making them changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.renderers import plots


def layers(number: int) -> mg.Report:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(12, 12, bias=False) for _ in range(number)))
    with torch.no_grad():
        model[number // 2].weight[0, 0] = float("nan")
        model[-1].weight[0, 0] = 50.0
    return mg.inspect(model, stats=True)


def svg(report: mg.Report, **options: Any) -> str:
    return plots.render(report, format="svg", **options).decode()


def names_in(picture: str) -> set[str]:
    """matplotlib writes each text of an SVG as a comment beside its outlines."""
    return set(re.findall(r"<!-- (\d+\.weight) -->", picture))


def test_every_tensor_has_its_panel() -> None:
    picture = svg(layers(4))
    assert names_in(picture) == {f"{i}.weight" for i in range(4)}
    assert "<!-- 4 tensors; orange" in picture


@pytest.mark.slow
def test_of_many_tensors_the_most_telling_are_shown() -> None:
    picture = svg(layers(100))
    assert len(names_in(picture)) == plots.PANELS
    assert {"50.weight", "99.weight"} <= names_in(picture)  # the broken one, and the one that reaches far
    assert "40 of 100 tensors: those with errors or warnings" in picture


def test_nothing_is_drawn_outside_the_sheet() -> None:
    """Not every viewer cuts off what lies outside its panel; heights on a logarithmic scale may."""
    layer = nn.Linear(40, 40)
    with torch.no_grad():
        layer.weight[0, 0] = 1e4
    picture = svg(mg.inspect(layer, stats=True))
    assert "log heights" in picture
    height = float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', picture)[1])
    shapes = re.sub(r"<defs>.*?</defs>", "", picture, flags=re.DOTALL)  # without the outlines of letters
    corners = re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", shapes)
    assert max(float(y) for _, y in corners) <= height + 1


@pytest.mark.slow
def test_a_pdf_has_pages_for_all() -> None:
    content = plots.render(layers(100), format="pdf")
    assert len(re.findall(rb"/Type /Page\b", content)) == 3
    assert len(re.findall(rb"/Type /Page\b", plots.render(layers(4), format="pdf"))) == 1


@pytest.mark.parametrize("format", ["png", "pdf"])
def test_the_same_report_gives_the_same_picture(format: str) -> None:
    report = layers(3)
    assert plots.render(report, format=format) == plots.render(report, format=format)


def test_settings_of_the_user_do_not_stop_it() -> None:
    import matplotlib

    usual = plots.render(layers(2))
    loud = {"text.color": "white", "axes.facecolor": "black", "axes.grid": True, "xtick.color": "red"}
    with matplotlib.rc_context({"text.usetex": True, "figure.autolayout": True, **loud}):
        assert plots.render(layers(2)) == usual


@pytest.mark.slow
def test_small_tensors_do_not_crowd_out_large_ones() -> None:
    """Of a few values the outermost is far away by chance."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(40, 40) for _ in range(60)))
    picture = svg(mg.inspect(model, stats=True))
    assert len(names_in(picture)) == plots.PANELS


def test_names_of_all_kinds() -> None:
    model = nn.ModuleDict({"$x_1$": nn.Linear(2, 2), "層": nn.Linear(2, 2), "a" * 90: nn.Linear(3, 1)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture = svg(mg.inspect(model, stats=True))
    assert "$x_1$.weight" in picture
    assert "\\u5c64.weight" in picture


@pytest.mark.parametrize("fill", [0.0, 1e38, -3e-39, float("nan"), float("inf")])
def test_strange_values_can_be_drawn_or_are_refused(fill: float) -> None:
    layer = nn.Linear(40, 40)
    nn.init.constant_(layer.weight, fill)
    assert plots.render(mg.inspect(layer, stats=True)).startswith(b"\x89PNG")


def test_extremes_of_a_double() -> None:
    layer = nn.Linear(4, 4, dtype=torch.float64)
    with torch.no_grad():
        layer.weight[0, 0], layer.weight[0, 1] = 1.7e308, -1.7e308
    assert plots.render(mg.inspect(layer, stats=True)).startswith(b"\x89PNG")


def test_nothing_to_draw_is_an_error() -> None:
    with pytest.raises(mg.InspectError, match="nothing to plot"):
        plots.render(mg.inspect(nn.Linear(2, 2, device="meta"), stats=True))
    with pytest.raises(mg.InspectError, match="nothing to plot"):
        plots.render(mg.inspect(nn.Linear(2, 2)))


@pytest.mark.slow
def test_nothing_global_is_touched(tmp_path: Path) -> None:
    code = """
import sys, matplotlib, torch, modelglass as mg
before = list(dict.items(matplotlib.rcParams))  # asking for "backend" would choose one
mg.plot(mg.inspect(torch.nn.Linear(3, 3), stats=True), "picture.png")
assert list(dict.items(matplotlib.rcParams)) == before
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["picture.png"]
