"""Equal blocks: the same work on the same shapes, whatever their rates, numbers and names are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import build
import modelglass as mg
from modelglass.analyses.equal_blocks import equal_blocks
from modelglass.analyses.memory.what_if import units_of
from modelglass.report import EqualBlocks, Report, Varying
from modelglass.report.codec import dumps, loads
from models import Apply

X = torch.zeros(2, 8)
RATES = (0.1, 0.1, 0.2, 0.3, 0.3, 0.3)


class Block(nn.Module):
    def __init__(self, width: int = 8, rate: float = 0.0, **more: Any) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(width, width), nn.Dropout(rate)
        for key, value in more.items():
            setattr(self, key, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.layer(x))


class Other(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(super().forward(x))


def stacked(blocks: Sequence[nn.Module]) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        for block in self.layers:
            x = block(x.to(next(block.parameters(), x).dtype))
        return x

    return Apply(forward, layers=nn.ModuleList(blocks))


def inspected(blocks: Sequence[nn.Module], *, train: bool = False) -> Report:
    model = stacked(blocks).train(train)
    return mg.inspect(model, X, train=train)


def sizes(report: Report) -> list[int]:
    """Of each group of equal blocks in the list, how many they are."""
    return [len(group.paths) for group in report.blocks or () if group.paths[0].startswith("layers.")]


@pytest.mark.parametrize("train", [False, True])
def test_rates_do_not_keep_blocks_apart(train: bool) -> None:
    report = inspected([Block(rate=rate) for rate in RATES], train=train)
    assert report.blocks == (
        EqualBlocks(
            paths=tuple(f"layers.{at}" for at in range(6)),
            varying=(Varying(part="drop", setting="p", values=RATES),),
        ),
    )
    text = mg.render(report, "text", width=160)
    assert "0–5 ×6" in text
    assert "p=0.1…0.3" in text


SAME: dict[str, Callable[[int], dict[str, Any]]] = {
    "index": lambda at: {"layer_idx": at},
    "number from 1 on": lambda at: {"layer_number": at + 1},
    "every second number": lambda at: {"layer_id": 2 * at},
    "number under a name of its own": lambda at: {"whoami": at},
    "path": lambda at: {"target_name": f"model.layers.{at}.layer"},
    "path without what is around": lambda at: {"prefix": f"layers.{at}"},
    "path among other settings": lambda at: {
        "kwargs": {"target_name": f"model.layers.{at}.layer", "bits": 8}
    },
    "name with a number": lambda at: {"title": f"block {at}"},
    "rate of paths": lambda at: {"drop_path_rate": at / 10},
}


@pytest.mark.parametrize("case", SAME)
def test_own_numbers_names_and_rates_do_not_keep_blocks_apart(case: str) -> None:
    report = inspected([Block(**SAME[case](at)) for at in range(4)])
    assert sizes(report) == [4]
    (group,) = report.blocks or ()
    (varying,) = group.varying
    values = [next(iter(SAME[case](at).values())) for at in range(4)]
    assert varying.values == tuple(v["target_name"] if isinstance(v, dict) else v for v in values)
    assert sizes(mg.inspect(stacked([Block(**SAME[case](at)) for at in range(4)]))) == [4]


def test_a_number_is_that_of_the_list_whose_blocks_all_have_theirs() -> None:
    blocks = [nn.Sequential(nn.ReLU(), Block(layer_idx=at)) for at in range(4)]
    assert sizes(inspected(blocks)) == [4]  # and 1 is the place of a part in each


def test_numbers_count_in_lists_inside_of_lists() -> None:
    stages = [
        nn.Sequential(*(Block(layer_idx=3 * stage + at, prefix=f"layers.{stage}.{at}") for at in range(3)))
        for stage in range(3)
    ]
    found = inspected(stages).blocks or ()
    assert [group.paths for group in found] == [
        ("layers.0", "layers.1", "layers.2"),
        ("layers.0.0", "layers.0.1", "layers.0.2"),
    ]


DIFFERENT: dict[str, Callable[[], list[nn.Module]]] = {
    "a number that is that of one block alone": lambda: [Block(window=size) for size in (4, 4, 2, 4)],
    "an index that is that of all blocks but one": lambda: [Block(layer_idx=at) for at in (0, 1, 2, 7)],
    "a number in two blocks, which is a flag": lambda: [Block(reverse=at) for at in range(2)],
    "a text that has the number of one block": lambda: [Block(kind=f"v{at}") for at in (1, 1, 2, 1)],
    "a setting": lambda: [Block(scale=scale) for scale in (0.5, 0.5, 0.7, 0.5)],
    "a class": lambda: [Block(), Block(), Other(), Block()],
    "trainable or not": lambda: [Block(), Block(), Block().requires_grad_(False), Block()],
    "type of elements": lambda: [Block(), Block(), Block().to(torch.float64), Block()],
    "mode": lambda: [Block(), Block(), Block().eval(), Block()],
    "a hook that others do not have": lambda: [Block(), Block(), hooked(Block()), Block()],
}


def hooked(block: nn.Module) -> nn.Module:
    block.register_forward_hook(lambda module, args, output: torch.sin(output))
    return block


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_differs_stays_apart(case: str) -> None:
    blocks = DIFFERENT[case]()
    report = mg.inspect(stacked(blocks), X)
    assert sizes(report) in ([], [3])  # the third is another one, or all are


def test_other_shapes_stay_apart() -> None:
    widths = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(4, 8)])
    assert sizes(inspected(list(widths))) == [2]


def test_blocks_that_share_a_weight_stay_apart_from_those_that_do_not() -> None:
    blocks = [Block() for _ in range(4)]
    blocks[3].layer.weight = blocks[0].layer.weight
    assert sizes(inspected(blocks)) == [3]


def test_windows_that_grow_with_the_block_are_different_work() -> None:
    layers = [nn.Conv1d(4, 4, 3, dilation=max(at, 1), padding=max(at, 1)) for at in range(1, 5)]
    assert not mg.inspect(stacked(layers)).blocks
    first = [nn.Identity(), *layers]  # where each stands at the place that is its dilation
    assert not mg.inspect(stacked(first)).blocks


def test_equal_blocks_need_not_stand_beside_each_other() -> None:
    report = inspected([Block(), Other(), Block(), Other()])
    assert [group.paths for group in report.blocks or ()] == [
        ("layers.0", "layers.2"),
        ("layers.1", "layers.3"),
    ]
    assert "×" not in mg.render(report, "text")


def test_of_equal_blocks_the_first_is_looked_into() -> None:
    report = inspected([nn.Sequential(*(Block() for _ in range(3))) for _ in range(40)])
    first, second = report.blocks or ()
    assert len(first.paths) == 40
    assert second.paths == ("layers.0.0", "layers.0.1", "layers.0.2")


def test_a_report_keeps_its_equal_blocks() -> None:
    report = inspected([Block(rate=rate) for rate in RATES])
    assert loads(dumps(report)) == report


def test_a_report_that_does_not_say_is_shown_with_its_blocks_as_one() -> None:
    report = inspected([Block(rate=rate) for rate in RATES])
    assert mg.render(replace(report, blocks=None)) == mg.render(report)


def test_shares_below_equal_blocks_are_of_all_of_them() -> None:
    lines = mg.render(inspected([Block() for _ in range(4)]), "text", width=100).splitlines()
    block, layer = (next(line for line in lines if name in line) for name in ("0–3 ×4", "layer "))
    assert "4 × 72  100.0 %" in block
    assert "4 × 72  100.0 %" in layer


def test_of_a_file_the_order_does_not_count() -> None:
    names = ["0.a.w", "0.b.w", "1.b.w", "1.a.w", "2.a.w", "2.b.w"]
    tensors = [build.tensor(f"layers.{name}", trainable=None) for name in names]
    modules = [build.module("", "", children=("layers",))]
    modules.append(build.module("layers", "", children=("layers.0", "layers.1", "layers.2")))
    for at, order in (("0", "ab"), ("1", "ba"), ("2", "ab")):
        path = f"layers.{at}"
        modules.append(build.module(path, "", children=tuple(f"{path}.{part}" for part in order)))
        modules += [build.module(f"{path}.{part}", "", tensors=(f"{path}.{part}.w",)) for part in order]
    model = build.model(*tensors, modules=tuple(modules))
    assert [group.paths for group in equal_blocks(model, None)] == [("layers.0", "layers.1", "layers.2")]


def convolutions() -> nn.Module:
    return nn.Sequential(*(nn.Sequential(nn.Conv1d(2, 2, 3, padding=1), nn.ReLU()) for _ in range(5)))


VIEWS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "rates": (lambda: stacked([Block(rate=rate) for rate in RATES]), (2, 8), 1),
    "numbers and names": (
        lambda: stacked([Block(layer_idx=at, prefix=f"layers.{at}") for at in range(6)]),
        (2, 8),
        1,
    ),
    "one setting": (lambda: stacked([Block(scale=at // 3) for at in range(6)]), (2, 8), 2),
    "two classes": (lambda: stacked([*(Block() for _ in range(3)), *(Other() for _ in range(3))]), (2, 8), 2),
    "convolutions": (convolutions, (1, 2, 8), 1),
}


@pytest.mark.parametrize("train", [False, True])  # the mode: in a backward pass the first block does less
@pytest.mark.parametrize("case", VIEWS)
def test_all_views_agree(case: str, train: bool) -> None:
    made, shape, kinds = VIEWS[case]
    model = made().train(train)
    report = mg.inspect(model, torch.zeros(shape))
    groups = [group.paths for group in report.blocks or () if group.paths[0].count(".") < 2]
    members = {path for group in groups for path in group}
    assert len(groups) == kinds
    rows = mg.render(report, "text", width=160)
    assert sum(f" ×{len(group)} " in line for group in groups for line in rows.splitlines()) >= kinds
    alike = {each.paths for each in mg.unique(report).modules if set(each.paths) <= members}
    assert alike == set(groups)
    drawn = [node for node in mg.flow(report, depth=1).nodes if node.kind == "module" and node.count > 1]
    assert sorted(node.count for node in drawn) == sorted(map(len, groups))
    if case != "two classes":  # units of sharding are of one class
        assert units_of(report.model).blocks == members
