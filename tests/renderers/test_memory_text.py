"""Memory as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import build
import modelglass as mg
from modelglass.analyses.memory.timeline import EXCLUDED
from modelglass.api import RENDERERS
from modelglass.page.what_if import what_if_text
from modelglass.renderers import _sparkline
from modelglass.renderers._escape import cell_width, shortened
from modelglass.renderers._terminal import painter
from modelglass.report import (
    CATEGORIES,
    EqualBlocks,
    Failure,
    KvCache,
    LiveTensor,
    Memory,
    MemoryPhase,
    Moment,
    Note,
    Report,
    Run,
    WhatIf,
)
from models import SAMPLES

MEMORY = RENDERERS["memory"]

Golden = Callable[[str, str], None]
MIB = 2**20
LAYERS = [f"model.layers.{index}.{part}" for index in range(3) for part in ("self_attn", "mlp")]


class Steps:
    """A run that is written down by hand: what is held grows and shrinks by category."""

    def __init__(self, **held: int) -> None:
        self.held = dict.fromkeys(CATEGORIES, 0) | held
        self.moments: list[Moment] = []

    def run(self, phase: MemoryPhase, module: str, op: str, **change: int) -> None:
        for category, nbytes in change.items():
            self.held[category] += nbytes
        self.moments.append(Moment(op=op, module=module, phase=phase, held=tuple(self.held.values())))

    def memory(self, **more: Any) -> Memory:
        at = max(range(len(self.moments)), key=lambda index: self.moments[index].nbytes)
        peak = self.moments[at]
        known: dict[str, Any] = {
            "peak_nbytes": peak.nbytes,
            "method": "exact",
            "at": at,
            "by_category": dict(zip(CATEGORIES, peak.held, strict=True)),
            "base_nbytes": sum(self.moments[0].held[:3]),
            "timeline": tuple(self.moments),
            "largest": (),
        }
        return Memory(**known | more)


def live(mib: float, category: Any, name: str | None = None, **more: Any) -> LiveTensor:
    return LiveTensor(nbytes=int(mib * MIB), category=category, name=name, **{"dtype": "float32", **more})


def training_step(**more: Any) -> Memory:
    """Three layers of two modules: each saves 8 MiB in forward and has gradients of 4 MiB."""
    steps = Steps(parameters=24 * MIB + 4096, buffers=256, inputs=16_384)
    for path in LAYERS:
        steps.run("forward", path, "aten.mm", activations=8 * MIB, temporaries=MIB)
        steps.run("forward", path, "aten.silu", temporaries=-MIB)
    steps.run("loss", "", "aten.sum", temporaries=4)
    for path in reversed(LAYERS):
        steps.run("backward", path, "aten.mm", gradients=4 * MIB, temporaries=3 * MIB)
        steps.run("backward", path, "aten.mul", activations=-8 * MIB, temporaries=-3 * MIB)
    for _ in range(12):
        steps.run("optimizer", "", "aten.zeros_like", optimizer_state=4 * MIB)
    steps.run("optimizer", "", "aten.sqrt", temporaries=4 * MIB)
    weight = {"shape": (1024, 1024)}
    state = [
        live(4, "optimizer_state", f"{path}.weight", op="aten.zeros_like", phase="optimizer", **weight)
        for path in LAYERS
        for _ in "mv"
    ]
    gradients = [
        live(4, "gradients", f"{path}.weight", op="aten.mm", module=path, phase="backward", **weight)
        for path in LAYERS
    ]
    known: dict[str, Any] = {
        "optimizer": "adamw",
        "excludes": ("kernels' own scratch (calibration measures it)", *EXCLUDED),
        "in_first_step": False,
        "device": "cpu",
        "first_peak_nbytes": 80 * MIB,
        "later_peak_nbytes": 120 * MIB,
        "saved_nbytes": 48 * MIB,
        "saved_by_module": dict.fromkeys(LAYERS, 8 * MIB),
        "largest": (
            *[live(4, "parameters", f"{path}.weight", **weight) for path in LAYERS],
            *gradients,
            *state,
            live(4, "temporaries", op="aten.sqrt", module="", phase="optimizer", **weight),
            live(0.015625, "inputs", "0", shape=(2, 1024), dtype="int64"),
        ),
    }
    return steps.memory(**known | more)


def forward_pass(**more: Any) -> Memory:
    """Most of it is weights, and scratch was measured."""
    steps = Steps(parameters=3 * 2**30, inputs=4096)
    for path in LAYERS:
        steps.run("forward", path, "aten.mm", temporaries=8 * MIB, scratch=2 * MIB)
        steps.run("forward", path, "aten.add", temporaries=-4 * MIB, scratch=-2 * MIB)
    cache = KvCache(
        nbytes_per_token=8192, windows={4096: 2048}, fixed_nbytes=65_536, method="exact", source="config"
    )
    known = {"method": "measured", "calibrated": True, "kv_cache": cache, "excludes": EXCLUDED}
    return steps.memory(**known | more)


def report(held: Memory | None, *, train: bool = True, **more: Any) -> Report:
    types = {"self_attn": "Attention", "mlp": "FeedForward"}
    modules = [build.module(path, types[path.rpartition(".")[2]]) for path in LAYERS]
    layers = [build.module(f"model.layers.{index}") for index in range(3)]
    model = build.model(modules=(build.module("", "Net"), *layers, *modules))
    blocks = (EqualBlocks(paths=tuple(layer.path for layer in layers)),)
    return Report(model=model, run=Run(mode="fake", train=train), memory=held, blocks=blocks, **more)


@pytest.mark.parametrize("width", [80, 160])
def test_training_step(width: int, golden: Golden) -> None:
    golden(f"memory/training-{width}.txt", MEMORY["text"](report(training_step()), width=width))


def test_forward_pass(golden: Golden) -> None:
    what_if = WhatIf(weights="bfloat16", batch_size=8, sharding="tensor", devices=4)
    note = Note(code="tensor-parallel", text="what each device holds is an estimate")
    shown = report(forward_pass(what_if=what_if, method="estimate"), train=False, notes=(note,))
    golden("memory/forward-80.txt", MEMORY["text"](shown, width=80))


def test_markdown(golden: Golden) -> None:
    golden("memory/training.md", MEMORY["markdown"](report(training_step())))


def test_colour_changes_nothing_but_colour() -> None:
    shown = report(training_step())
    coloured = MEMORY["text"](shown, width=80, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[\d*m", "", coloured) == MEMORY["text"](shown, width=80)


def test_csv_has_a_line_a_moment_that_adds_up() -> None:
    held = training_step()
    rows = list(csv.DictReader(io.StringIO(MEMORY["csv"](report(held)))))
    assert [int(row["nbytes"]) for row in rows] == [moment.nbytes for moment in held.timeline]
    assert all(int(row["nbytes"]) == sum(int(row[name]) for name in CATEGORIES) for row in rows)
    assert rows[0]["module"] == LAYERS[0]
    assert max(int(row["nbytes"]) for row in rows) == held.peak_nbytes


def test_figures_are_said_in_full_and_in_binary_units() -> None:
    text = MEMORY["text"](report(training_step()), width=160)
    peak = 2 * 24 * MIB + 4096 + 256 + 16_384 + 48 * MIB + 4 * MIB + 4
    assert f"100.02 MiB ({peak:,} bytes), exact for live tensors, CPU kernels" in text
    assert "optimizer, aten.sqrt (kernel 38 of 38)" in text
    assert "first step  80.00 MiB (83,886,080 bytes)" in text
    assert "48.00 MiB (50,331,648 bytes) for backward" in text


def test_what_is_sure_and_what_is_left_out_is_said() -> None:
    assert "kernels' own scratch (calibration measures it)" in MEMORY["text"](report(training_step()))
    measured = MEMORY["text"](report(forward_pass(), train=False), width=160)
    assert "measured, kernels' own scratch included" in measured
    assert "calibration" not in measured
    assert "an estimate" in MEMORY["text"](report(forward_pass(method="estimate")))


@pytest.mark.parametrize(
    ("held", "train", "said"),
    [
        (forward_pass(), False, "one forward pass without gradients"),
        (training_step(optimizer=None), True, "one forward and backward pass"),
        (training_step(), True, "one training step with adamw"),
    ],
)
def test_what_ran_is_said_first(held: Memory, train: bool, said: str) -> None:
    assert MEMORY["text"](report(held, train=train)).splitlines()[0] == f"Net (torch): {said}"


def test_modules_that_are_alike_are_one_line() -> None:
    text = MEMORY["text"](report(training_step()), width=120)
    assert "model.layers.0–2.self_attn  Attention    3  8.00 MiB  24.00 MiB  50.0 %" in text
    some = {path: 8 * MIB for path in LAYERS if ".1." not in path}
    text = MEMORY["text"](report(training_step(saved_by_module=some)), width=120)
    assert "model.layers.*.self_attn  Attention    2  8.00 MiB  16.00 MiB  33.3 %" in text


def test_modules_of_blocks_that_differ_stay_apart() -> None:
    apart = replace(report(training_step()), blocks=())
    assert "0–2" not in MEMORY["text"](apart, width=120)


def test_the_cache_is_shown_at_the_lengths_asked_for() -> None:
    held = forward_pass()
    text = MEMORY["text"](report(held, train=False), width=160, contexts=[100, 10_000])
    assert "8.00 KiB (8,192 bytes) a token + 2.00 KiB (2,048 bytes) a token up to 4,096" in text
    assert "exact" in text
    assert "from config" in " ".join(text.split())  # lines break
    assert "100 tokens 1.04 MiB, 10,000 tokens 86.19 MiB" in text
    assert round((100 * 10_240 + 65_536) / MIB, 2) == 1.04
    assert round((10_000 * 8192 + 4096 * 2048 + 65_536) / MIB, 2) == 86.19
    assert "131,072 tokens" in MEMORY["markdown"](report(held, train=False))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("sample", ["convolutions", "checkpointed", "llama", "lstm"])
def test_lines_of_real_reports_fit(sample: str, train: bool, width: int) -> None:
    text = MEMORY["text"](observed(sample, train), width=width)
    assert max(map(cell_width, text.splitlines())) <= width
    assert "peak" in text


@pytest.fixture(scope="module", autouse=True)
def _reports() -> Any:
    yield
    _OBSERVED.clear()


_OBSERVED: dict[tuple[str, bool], Report] = {}


def observed(sample: str, train: bool) -> Report:
    if (sample, train) not in _OBSERVED:
        model, inputs = SAMPLES[sample]()
        more = {"optimizer": "adamw"} if train else {}
        _OBSERVED[sample, train] = mg.inspect(model, inputs, train=train, **more)
    return _OBSERVED[sample, train]


def test_names_cannot_move_the_cursor_or_leave_their_cell() -> None:
    evil = "a\x1b[2Jb|c`d"
    steps = Steps(parameters=MIB)
    steps.run("forward", evil, "aten.mm", temporaries=MIB)
    held = steps.memory(
        saved_by_module={evil: 1},
        saved_nbytes=1,
        largest=(live(1, "temporaries", op="aten.mm", module=evil, phase="forward"),),
        optimizer=evil,
        what_if=WhatIf(recompute=(evil,)),
    )
    assert "\x1b" not in MEMORY["text"](report(held))
    markdown = MEMORY["markdown"](report(held))
    assert "\x1b" not in markdown
    assert "\\|c\\`d" in markdown
    assert "\x1b" not in MEMORY["csv"](report(held))
    assert "'=1" in MEMORY["csv"](report(replace(held, timeline=(replace(steps.moments[0], module="=1"),))))


def test_a_failure_is_all_there_is_to_show() -> None:
    failure = Failure(
        module="fc", module_type="Linear", error="RuntimeError", message="shapes", op=None, inputs=()
    )
    failed = replace(report(None), run=Run(mode="fake", failure=failure))
    for text in (MEMORY["text"](failed), MEMORY["markdown"](failed)):
        assert "fc (Linear) raised RuntimeError" in text
        assert "peak" not in text


@pytest.mark.parametrize("render", [MEMORY["text"], MEMORY["markdown"], MEMORY["csv"]])
def test_a_report_without_memory_is_an_error(render: Callable[[Report], str]) -> None:
    with pytest.raises(mg.InspectError, match="has no memory data"):
        render(mg.inspect(nn.Linear(2, 2)))


def test_nothing_ran() -> None:
    held = Memory(
        peak_nbytes=64,
        method="exact",
        at=None,
        by_category={"parameters": 64},
        base_nbytes=64,
        timeline=(),
        largest=(),
    )
    text = MEMORY["text"](report(held, train=False))
    assert "peak     64 B, exact" in text
    assert "no kernel ran" in text
    assert MEMORY["csv"](report(held)).count("\n") == 1
    assert "```" not in MEMORY["markdown"](report(held))


def test_paths_lose_their_middle() -> None:
    assert shortened("model.layers.0.mlp", 18) == "model.layers.0.mlp"
    assert shortened("model.layers.0.mlp", 11) == "model…0.mlp"
    for width in range(1, 20):
        assert cell_width(shortened("模型.layers.0.層層層", width)) <= width


@pytest.mark.parametrize(("number", "cells"), [(1, 10), (7, 10), (10, 10), (1000, 10), (1003, 64)])
def test_no_height_is_lost_between_cells(number: int, cells: int) -> None:
    heights = torch.randperm(number, generator=torch.Generator().manual_seed(number)).tolist()
    chosen = _sparkline.highest(heights, cells)
    assert len(chosen) == cells
    assert chosen == sorted(chosen)
    assert max(heights[index] for index in chosen) == max(heights)
    if number <= cells:
        assert set(chosen) == set(range(number))
    assert _sparkline.highest([], cells) == []


def test_bars() -> None:
    assert [_sparkline.bar(part, 16, 2) for part in (0, 1, 8, 15, 16)] == ["", "▏", "█", "█▉", "██"]
    assert _sparkline.bar(1, 10**9, 4) == "▏"
    assert _sparkline.bar(0, 0, 4) == ""


def rows_of(held: Memory, width: int) -> list[str]:
    return _sparkline.timeline(held, width, painter(False)).splitlines()


def test_the_chart_is_as_high_as_what_is_held() -> None:
    steps = Steps(parameters=8)
    for phase, change in (("forward", 24), ("backward", -16), ("backward", 48)):
        steps.run(phase, "", "op", temporaries=change)
    mark, *rows = rows_of(steps.memory(), 6 + 3 * 4)
    assert mark.strip() == "peak 64 B ▼"
    drawn = [row[6:] for row in rows[:8]]
    assert drawn == ["        ████"] * 4 + ["████    ████"] * 2 + ["████████████", "░░░░░░░░░░░░"]
    assert rows[8].split() == ["╵f", "╵b"]


def test_a_chart_of_little_change_starts_where_change_does() -> None:
    rows = rows_of(forward_pass(), 80)
    assert rows[1].startswith("3.03 GiB ┤")
    assert rows[8].startswith("3.00 GiB ┤")
    assert rows[-1].endswith("drawn from 3.00 GiB up")
    assert "░" not in "".join(rows)


def test_the_arrow_stands_over_the_peak() -> None:
    for place in range(30):
        steps = Steps(parameters=1)
        for index in range(30):
            steps.run(
                "forward", "", "op", temporaries=99 if index == place else -99 if index == place + 1 else 0
            )
        for width in (40, 45, 100):
            mark, top, *_ = rows_of(steps.memory(), width)
            assert top[mark.index("▼")] == "█"


def test_a_run_of_nothing_can_be_drawn() -> None:
    steps = Steps()
    steps.run("forward", "", "aten.relu")
    assert "peak 0 B" in rows_of(steps.memory(), 60)[0]


@pytest.mark.parametrize(
    ("what_if", "said"),
    [
        (WhatIf(), "nothing changed"),
        (
            WhatIf(
                weights="bfloat16", batch_size=8, recompute=("model.layers.*",), sharding="fsdp3", devices=8
            ),
            "bfloat16 weights, batch 8, recomputation of model.layers.*, FSDP stage 3 over 8 devices",
        ),
        (WhatIf(autocast="float16", seq_len=4096), "autocast to float16, sequence length 4,096"),
        (WhatIf(weights="float16", master_weights=True), "float16 weights, float32 master weights"),
        (WhatIf(accumulate=4, optimizer="sgd"), "gradients accumulated over 4 passes, optimizer sgd"),
        (WhatIf(sharding="ddp", devices=1), "data parallel over 1 device"),
        (WhatIf(sharding="tensor", devices=2), "tensor parallel over 2 devices"),
    ],
)
def test_what_if_in_words(what_if: WhatIf, said: str) -> None:
    assert what_if_text(what_if) == said
