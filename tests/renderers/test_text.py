"""Text for a terminal: aligned, within its width, honest about folds and holes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import build
import modelglass as mg
from modelglass.analyses.cost.cost import cost, with_macs
from modelglass.analyses.counts import count
from modelglass.errors import UsageError
from modelglass.page.units import share, short, size
from modelglass.renderers._escape import cell_width, printable
from modelglass.report import Report
from models import SAMPLES, Apply, Tied, gpt2, llama, mixtral

Golden = Callable[[str, str], None]


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.relu(self.norm(self.conv(x)))


def network() -> nn.Module:
    blocks = nn.Sequential(*(Residual(16) for _ in range(4)))
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), blocks, nn.Flatten(), nn.Linear(16 * 64, 10)).eval()


def report() -> Report:
    return mg.inspect(network(), inputs=torch.zeros(2, 3, 8, 8))


@pytest.mark.parametrize("width", [80, 160])
def test_table(width: int, golden: Golden) -> None:
    golden(f"text/network-{width}.txt", mg.render(report(), "text", width=width))


def test_structure_only(golden: Golden) -> None:
    golden("text/structure.txt", mg.render(mg.inspect(network()), "text", width=100))


def test_training(golden: Golden) -> None:
    trained = mg.inspect(network(), inputs=torch.zeros(2, 3, 8, 8), train=True)
    golden("text/training.txt", mg.render(trained, "text", width=80, depth=1))


def test_failure(golden: Golden) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(5, 2), nn.ReLU())
    reached = mg.inspect(model, inputs=torch.zeros(2, 3), on_failure="report")
    golden("text/failure.txt", mg.render(reached, "text", width=80))


def test_tied_shared_and_uninitialised(golden: Golden) -> None:
    model = Tied(10, 4)
    model.again = model.embed
    model.later = nn.LazyLinear(3)
    golden("text/tied.txt", mg.render(mg.inspect(model), "text", width=80))


def test_experts_fold_although_their_rows_differ(golden: Golden) -> None:
    def route(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        rows = [x[:1], x[1:4], x[4:]]
        return torch.cat([expert(part) for expert, part in zip(self.experts, rows, strict=True)])

    experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)) for _ in range(3))
    told = mg.inspect(Apply(route, experts=experts), inputs=torch.zeros(9, 4))
    golden("text/experts.txt", mg.render(told, "text", width=80))


def test_blocks_fold_whatever_numbers_they_carry() -> None:
    text = mg.render(mg.inspect(llama(), inputs={"input_ids": torch.zeros(1, 4, dtype=torch.long)}))
    assert "0–1 ×2" in text
    assert "layers" in text
    # GPT-2 has a flag whose name ends like a position, and False equals 0.
    assert "0–1 ×2" in mg.render(mg.inspect(gpt2()))
    assert mg.render(mg.inspect(llama()), fold=False).count("LlamaDecoderLayer") == 2


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_lines_fit(sample: str, width: int) -> None:
    model, inputs = SAMPLES[sample]()
    told = mg.inspect(model, inputs=inputs, on_failure="report")
    for line in mg.render(told, "text", width=width).splitlines():
        if not line.startswith("    "):  # an error's own words are not cut
            assert cell_width(line) <= width, line


def test_rows_that_fold_stand_for_all_their_blocks() -> None:
    lines = mg.render(report(), "text", width=100).splitlines()
    folded = next(line for line in lines if "×4" in line)
    assert "4 × 2,352" in folded
    unfolded = mg.render(report(), "text", width=100, fold=False)
    assert sum("Residual" in line for line in unfolded.splitlines()) == 4


def test_depth_cuts_the_tree() -> None:
    assert "Residual" not in mg.render(report(), depth=1)
    assert mg.render(report(), depth=0).splitlines()[2].startswith("(root)")


def test_columns_can_be_chosen() -> None:
    columns = ["path", "calls", "trainable", "buffers", "size", "dtype", "config"]
    header, _, root, first, *_ = mg.render(report(), columns=columns, width=200).splitlines()
    assert header.split() == columns
    assert root.split()[:2] == ["(root)", "1"]
    assert "in_channels=3" in first
    with pytest.raises(UsageError, match="no column 'colour'"):
        mg.render(report(), columns=["colour"])


def test_colour_is_only_paint() -> None:
    plain = mg.render(report(), color=False)
    painted = mg.render(report(), color=True)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain
    assert "\x1b" not in plain


def test_active_parameters_are_shown_for_experts() -> None:
    assert "251,712 per token" in mg.render(mg.inspect(mixtral()))


HOSTILE = "a\x1b[2J\rb\u202ec\x00|`<script>"


def test_names_cannot_steer_a_terminal_or_a_page() -> None:
    tensor = build.tensor(f"{HOSTILE}.w")
    modules = (
        build.module("", children=(HOSTILE,)),
        build.module(HOSTILE, HOSTILE, tensors=(tensor.name,), config={HOSTILE: HOSTILE}),
    )
    model = with_macs(build.model(tensor, modules=modules))
    told = Report(model=model, counts=count(model), cost=cost(model))
    text = mg.render(told, "text", columns=["name", "type", "path", "config"], width=300)
    page = mg.render(told, "markdown")
    for shown in (text, page):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)
    assert "\\x1b[2J\\x0db\\u202ec\\x00" in text
    assert "<script>" not in page
    assert "\\|" in page


def test_units() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1_536, 2**40)] == [
        "0 B",
        "1023 B",
        "1.00 KiB",
        "1.50 KiB",
        "1.00 TiB",
    ]
    assert [short(n) for n in (0, 999, 1000, 12_345, 999_999, 1_814_073_344)] == [
        "0",
        "999",
        "1.00 K",
        "12.3 K",
        "1.00 M",
        "1.81 G",
    ]
    assert [share(*pair) for pair in ((0, 5), (1, 0), (1, 3), (1, 10_000))] == ["–", "–", "33.3 %", "<0.1 %"]


def test_wide_characters_take_two_cells() -> None:
    assert cell_width("层a") == 3
    assert printable("层é") == "层é"
