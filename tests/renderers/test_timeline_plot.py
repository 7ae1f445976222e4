"""Pictures of memory over a run: what is in them, and that making them changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import warnings
from typing import Any

import pytest
from torch import nn

import build
import modelglass as mg
from modelglass.renderers import timeline
from modelglass.report import CATEGORIES, Memory, MemoryPhase, Moment, Report, Run, WhatIf

MIB = 2**20
Part = tuple[MemoryPhase, str, int]  # phase, module and MiB of temporaries


def memory(*parts: Part, base: int = 64, **more: Any) -> Memory:
    """Kernels that hold weights and something for themselves."""
    moments = []
    for phase, module, held in parts:
        by = dict.fromkeys(CATEGORIES, 0) | {"parameters": base * MIB, "temporaries": held * MIB}
        moments.append(Moment(op="aten.mm", module=module, phase=phase, held=tuple(by.values())))
    at = max(range(len(moments)), key=lambda index: moments[index].nbytes)
    known: dict[str, Any] = {
        "peak_nbytes": moments[at].nbytes,
        "method": "exact",
        "at": at,
        "by_category": dict(zip(CATEGORIES, moments[at].held, strict=True)),
        "base_nbytes": base * MIB,
        "timeline": tuple(moments),
        "largest": (),
    }
    return Memory(**known | more)


def step(layers: int, kernels: int = 10) -> list[Part]:
    """Forward through an embedding and layers, back, and an optimizer."""
    paths = ["model.embed", *(f"model.layers.{index}" for index in range(layers)), "head"]
    forward = [
        ("forward", f"{path}.mlp", 10 * place) for place, path in enumerate(paths) for _ in range(kernels)
    ]
    backward = [("backward", module, held + 100) for _, module, held in reversed(forward)]
    return [*forward, ("loss", "", 200), *backward, *[("optimizer", "", 5)] * kernels]


def report(held: Memory | None, name: str = "Net") -> Report:
    model = build.model(modules=(build.module("", name),))
    return Report(model=model, run=Run(mode="fake", train=True), memory=held)


def texts(result: Report | Memory) -> list[str]:
    """matplotlib writes each text of an SVG as a comment beside its outlines."""
    return re.findall(r"<!-- (.*?) -->", timeline.render(result, format="svg").decode())


def test_peak_categories_and_phases_are_named() -> None:
    shown = texts(
        report(memory(*step(4), optimizer="adamw", in_first_step=False, first_peak_nbytes=200 * MIB))
    )
    assert "one training step with adamw" in shown
    assert "peak 264.00 MiB (276,824,064 bytes), exact for live tensors; the first step 200.00 MiB" in shown
    assert shown.count("peak 264.00 MiB") == 1
    assert "loss, aten.mm" in shown
    assert {"forward", "backward", "optimizer", "MiB held"} <= set(shown)
    assert {"parameters", "64.00 MiB, 24.2 %", "temporaries", "200.00 MiB, 75.8 %"} <= set(shown)
    assert "gradients" not in shown


def test_the_place_of_the_peak_is_named() -> None:
    shown = texts(memory(("forward", "a.b", 1), ("forward", "a.c", 2), ("forward", "a.b", 1)))
    assert "forward, a.c, aten.mm" in shown
    assert "Memory" in shown


def test_what_is_changed_is_said() -> None:
    shown = texts(report(memory(*step(1), what_if=WhatIf(batch_size=8, weights="bfloat16"))))
    assert "one forward and backward pass; bfloat16 weights, batch 8" in shown


def test_modules_that_take_most_of_a_run_are_shown_by_their_parts() -> None:
    shown = texts(memory(*step(6)))
    assert shown.count("model.layers.3") + shown.count("layers.3") + shown.count("3") == 2
    assert "model" not in shown


def test_kernels_of_no_module_do_not_cut_a_module_in_two() -> None:
    """Gradients are added up outside of modules, in between."""
    parts: list[Part] = [("backward", "" if index % 10 == 9 else "layer", 1) for index in range(100)]
    assert texts(memory(*parts)).count("layer") == 1


def test_what_runs_again_is_marked() -> None:
    again: list[Part] = [*step(2), ("recompute", "model.layers.1.mlp", 10), ("backward", "head", 10)]
    assert "dark line: forward again" in texts(memory(*again))
    assert "recompute" not in texts(memory(*again))
    assert "dark line: forward again" not in texts(memory(*step(2)))


def test_an_axis_that_does_not_start_at_zero_says_so() -> None:
    shown = texts(memory(("forward", "", 100), ("forward", "", 120), base=1000))
    assert "MiB held, from 1.07 GiB up" in shown or "GiB held, from 1.07 GiB up" in shown
    assert "MiB held" in texts(memory(("forward", "", 10), ("forward", "", 500)))


@pytest.mark.parametrize("peak", [0, 3, 5_000, 2**21, 2**35, 2**45])
def test_any_size_can_be_drawn(peak: int) -> None:
    held = (peak, *[0] * (len(CATEGORIES) - 1))
    moment = Moment(op="aten.mm", module="", phase="forward", held=held)
    one = Memory(
        peak_nbytes=peak,
        method="exact",
        at=0,
        by_category={"parameters": peak},
        base_nbytes=peak,
        timeline=(moment,),
        largest=(),
    )
    assert timeline.render(one).startswith(b"\x89PNG")


@pytest.mark.parametrize(("format", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_formats(format: str, begin: bytes) -> None:
    held = memory(*step(2))
    picture = timeline.render(held, format=format)
    assert picture.startswith(begin)
    if format != "svg":
        assert picture == timeline.render(held, format=format)


def test_unknown_formats_and_empty_runs_are_errors() -> None:
    with pytest.raises(mg.InspectError, match="no plots as 'jpeg'"):
        timeline.render(memory(*step(1)), format="jpeg")
    empty = Memory(
        peak_nbytes=0, method="exact", at=None, by_category={}, base_nbytes=0, timeline=(), largest=()
    )
    with pytest.raises(mg.InspectError, match="no kernel ran"):
        timeline.render(empty)
    with pytest.raises(mg.InspectError, match="has no memory data"):
        timeline.render(mg.inspect(nn.Linear(2, 2)))


def test_a_hundred_thousand_kernels_are_drawn_at_once_and_the_peak_stays() -> None:
    parts = step(80, kernels=600)
    parts[7_777] = ("forward", "model.layers.9.mlp", 5_000)
    held = memory(*parts)
    assert len(held.timeline) > 95_000
    began = time.process_time()
    shown = texts(held)
    assert time.process_time() - began < 10
    assert "peak 4.95 GiB" in shown
    svg = timeline.render(held, format="svg").decode()
    assert len(svg) < 2_000_000


def test_phases_that_come_again_and_again_are_drawn_fast() -> None:
    passes: list[Part] = [(phase, "net", 1) for _ in range(2000) for phase in ("forward", "loss", "backward")]
    began = time.process_time()
    assert timeline.render(memory(*passes)).startswith(b"\x89PNG")
    assert time.process_time() - began < 10


def test_names_of_all_kinds() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = texts(report(memory(("forward", "$x_1$", 1), ("forward", "層", 2)), name="a" * 300))
    assert "$x_1$" in shown
    assert "\\u5c64" in shown


def test_settings_of_the_user_neither_matter_nor_change() -> None:
    import matplotlib

    held = memory(*step(2))
    usual = timeline.render(held)
    loud = {"text.color": "white", "axes.facecolor": "black", "axes.grid": True, "font.size": 30.0}
    with matplotlib.rc_context({"text.usetex": True, "figure.autolayout": True, **loud}):
        before = dict(matplotlib.rcParams)
        assert timeline.render(held) == usual
        assert dict(matplotlib.rcParams) == before


def test_no_window_system_is_touched() -> None:
    code = (
        "import sys\nfrom modelglass.renderers import timeline\n"
        "from modelglass.report import Memory, Moment\n"
        "moment = Moment(op='aten.mm', module='', phase='forward', held=(1, 0, 0, 0, 0, 0, 0, 0))\n"
        "timeline.render(Memory(peak_nbytes=1, method='exact', at=0, by_category={'parameters': 1},\n"
        "    base_nbytes=1, timeline=(moment,), largest=()))\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_text_needs_no_matplotlib() -> None:
    code = "import sys; sys.modules['matplotlib'] = None\nimport modelglass.page.sections.memory"
    subprocess.run([sys.executable, "-c", code], check=True)
