"""Parameters by the type of the module that owns them: rows that add up, guesses that are called guesses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

import build
import modelglass as mg
from modelglass.analyses.counts import count
from modelglass.compat.model_inspector.by_type import by_type, nbytes_by_dtype
from modelglass.compat.model_inspector.inspection import TypeCount


def counted(*rows: tuple[str, tuple[int, ...]]) -> dict[str | None, int]:
    """The types found from the names and shapes of a file's tensors, with their parameters."""
    return {each.type: each.params for each in rows_of(*rows)}


def rows_of(*rows: tuple[str, tuple[int, ...]]) -> tuple[TypeCount, ...]:
    tensors = [build.tensor(name, shape, trainable=None) for name, shape in rows]
    owners: dict[str, list[str]] = {"": []}
    for name, _ in rows:
        owners.setdefault(name.rpartition(".")[0], []).append(name)
    children = tuple(path for path in owners if path)
    modules = tuple(
        build.module(path, "", tensors=tuple(names), children=() if path else children)
        for path, names in owners.items()
    )
    model = build.model(*tensors, modules=modules)
    return by_type(model, count(model))


def test_rows_are_what_torch_counts_by_owner() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 8), nn.MultiheadAttention(8, 2)
    )
    report = mg.inspect(net)
    assert report.counts is not None
    truth: Counter[str] = Counter()
    for module in net.modules():
        truth[type(module).__name__] += sum(p.numel() for p in module.parameters(recurse=False))
    found = by_type(report.model, report.counts)
    assert {each.type: each.params for each in found} == {k: n for k, n in truth.items() if n}
    assert not any(each.guessed for each in found)


def test_a_tied_weight_counts_for_its_first_owner() -> None:
    net = nn.ModuleDict({"embed": nn.Embedding(100, 8), "head": nn.Linear(8, 100, bias=False)})
    net["head"].weight = net["embed"].weight
    report = mg.inspect(net)
    assert report.counts is not None
    (row,) = by_type(report.model, report.counts)
    assert (row.type, row.params, row.permille, row.modules) == ("Embedding", 800, 1000, 1)


def test_a_model_without_parameters_has_no_rows() -> None:
    report = mg.inspect(nn.ReLU())
    assert report.counts is not None
    assert by_type(report.model, report.counts) == ()


@pytest.mark.slow
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30))
def test_shares_add_up_to_all(sizes: list[int]) -> None:
    tensors = [build.tensor(f"{place}.w", (size,)) for place, size in enumerate(sizes)]
    modules = (
        build.module("", "Net", children=tuple(str(place) for place in range(len(sizes)))),
        *(build.module(str(place), f"T{place}", tensors=(f"{place}.w",)) for place in range(len(sizes))),
    )
    model = build.model(*tensors, modules=modules)
    rows = by_type(model, count(model))
    assert sum(each.permille for each in rows) == 1000
    assert sum(each.params for each in rows) == sum(sizes)
    for each in rows:  # no share is off by a whole unit
        assert abs(each.permille - 1000 * each.params / sum(sizes)) < 1


@pytest.mark.parametrize(
    ("type", "tensors"),
    [
        ("Linear", [("fc.weight", (4, 3)), ("fc.bias", (4,))]),
        ("Conv1d", [("c.weight", (4, 3, 5))]),
        ("Conv2d", [("c.weight", (4, 3, 5, 5)), ("c.bias", (4,))]),
        ("Conv3d", [("c.weight", (4, 3, 5, 5, 5))]),
        ("Embedding", [("model.embed_tokens.weight", (100, 8))]),
        ("Embedding", [("token_embd.weight", (100, 8))]),
        ("Embedding", [("transformer.wte.weight", (100, 8))]),
        ("Embedding", [("wpe.embedding", (100, 8))]),
        ("LayerNorm", [("layers.0.input_layernorm.weight", (8,))]),
        ("LayerNorm", [("h.0.ln_1.weight", (8,)), ("h.0.ln_1.bias", (8,))]),
        ("Norm", [("blk.0.attn_norm.weight", (8,))]),
        ("BatchNorm", [("bn.weight", (8,)), ("bn.bias", (8,)), ("bn.running_mean", (8,))]),
        ("MultiheadAttention", [("a.in_proj_weight", (24, 8)), ("a.in_proj_bias", (24,))]),
        ("LSTM", [("r.weight_ih_l0", (32, 5)), ("r.weight_hh_l0", (32, 8))]),
        ("GRU", [("r.weight_ih_l0", (24, 5)), ("r.weight_hh_l0", (24, 8))]),
        ("RNN", [("r.weight_ih_l0", (8, 5)), ("r.weight_hh_l0", (8, 8))]),
        ("LSTMCell", [("r.weight_ih", (32, 5)), ("r.weight_hh", (32, 8))]),
        ("Linear", [("dense.kernel", (4, 3))]),
        ("Norm", [("n.scale", (8,))]),
        ("Experts", [("blk.0.ffn_gate_exps.weight", (4, 8, 8))]),
        (None, [("act.weight", (8,))]),
        (None, [("cls_token", (1, 1, 8))]),
        (None, [("gate.alpha", (3, 3))]),
    ],
    ids=lambda value: value if isinstance(value, str) else None if value is None else value[0][0],
)
def test_types_by_names_and_shapes(type: str | None, tensors: list[tuple[str, tuple[int, ...]]]) -> None:
    (row,) = rows_of(*tensors)
    assert row.type == type
    assert row.guessed is (type is not None)


def test_guesses_agree_with_the_code_that_wrote_the_file(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 8)
            self.conv = nn.Conv1d(8, 8, 3)
            self.rnn = nn.LSTM(8, 8, num_layers=2, bidirectional=True)
            self.norm = nn.BatchNorm1d(8)
            self.layer_norm = nn.LayerNorm(8)
            self.head = nn.Linear(8, 2)

    net = Net()
    torch.save(net.state_dict(), tmp_path / "net.pt")
    file, live = mg.inspect(tmp_path / "net.pt"), mg.inspect(net)
    assert file.counts is not None
    assert live.counts is not None
    truth = {each.type: each.params for each in by_type(live.model, live.counts)}
    truth["BatchNorm"] = truth.pop("BatchNorm1d")  # of which dimension, no name tells
    assert {each.type: each.params for each in by_type(file.model, file.counts)} == truth


def test_a_pickled_module_says_its_types_itself(tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 2), nn.PReLU(4)), tmp_path / "whole.pt")
    report = mg.inspect(tmp_path / "whole.pt")
    assert report.counts is not None
    rows = by_type(report.model, report.counts)
    assert [(each.type, each.params, each.guessed) for each in rows] == [
        ("Linear", 6, False),
        ("PReLU", 4, False),
    ]


def test_bytes_by_type_of_element_count_tied_memory_once() -> None:
    net = nn.Sequential(nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 4), nn.Linear(4, 4))
    net[2].weight = net[1].weight
    report = mg.inspect(net)
    assert report.counts is not None
    truth: Counter[str] = Counter()
    for parameter in net.parameters():
        truth[str(parameter.dtype).removeprefix("torch.")] += parameter.numel() * parameter.element_size()
    assert nbytes_by_dtype(report.model, report.counts) == truth
