"""Each finding on a model made to have it, and none on a healthy one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.report import FINDINGS, Note


def healthy() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(50, 32, padding_idx=3), nn.Linear(32, 64), nn.Linear(64, 16))


def notes(model: nn.Module) -> dict[str, Note]:
    return {note.code: note for note in mg.inspect(model, stats=True).notes if note.code in FINDINGS}


def set_values(model: nn.Sequential, change: Callable[[nn.Sequential], Any]) -> nn.Sequential:
    with torch.no_grad():
        change(model)
    return model


def fill(value: float) -> Callable[[nn.Sequential], Any]:
    return lambda m: m[1].weight.fill_(value)


def put(index: tuple[int, ...], value: float) -> Callable[[nn.Sequential], Any]:
    def change(model: nn.Sequential) -> None:
        model[1].weight[index] = value

    return change


CASES: dict[str, tuple[Callable[[nn.Sequential], Any], str, str]] = {
    "nan": (put((5, 7), float("nan")), "error", "has 1, the first at [5, 7]"),
    "inf": (put((5, 7), -float("inf")), "error", "has 1, the first at [5, 7]"),
    "zero": (fill(0.0), "warning", ""),
    "constant": (fill(0.25), "warning", "is 0.25"),
    "dead-rows": (put((slice(3, 6), slice(None)), 0.0), "warning", "has 3, the first is 3"),
    "dead-columns": (put((slice(None), 9), 0.0), "warning", "has 1, the first is 9"),
    "outlier": (put((0, 0), 1e4), "info", "reaches 10000"),
    "scale": (lambda m: m[1].weight.mul_(1e-8), "warning", "is around 1.0e-09"),
    "denormal": (lambda m: m[1].weight.mul_(1e-39), "info", "of 2,048"),
}


def test_healthy_weights_have_no_findings() -> None:
    assert notes(healthy()) == {}
    assert notes(nn.TransformerEncoderLayer(64, 4, 128)).keys() <= {"zero", "constant"}


@pytest.mark.parametrize("code", CASES)
def test_finding(code: str) -> None:
    change, severity, detail = CASES[code]
    found = notes(set_values(healthy(), change))
    assert found[code].severity == severity
    assert found[code].where == ("1.weight",)
    assert detail in found[code].details[0]
    assert found.keys() <= {code, "scale"}  # an outlier or denormals change the scale, too


def test_a_large_scale_is_suspicious_too() -> None:
    assert "scale" in notes(set_values(healthy(), lambda m: m[1].weight.mul_(1e4)))


def test_every_code_has_a_case() -> None:
    assert set(FINDINGS) == {*CASES, "duplicate", "mixed-dtypes"}


def test_a_second_copy_is_a_duplicate_and_a_tie_is_not() -> None:
    model = healthy()
    model.append(nn.Linear(32, 50, bias=False))
    model[3].weight = model[0].weight
    assert "duplicate" not in notes(model)
    model[3].weight = nn.Parameter(model[0].weight.detach().clone())
    note = notes(model)["duplicate"]
    assert (note.where, note.details) == (("3.weight",), ("equals 0.weight",))


def test_the_same_values_in_another_order_are_no_duplicate() -> None:
    model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False))
    with torch.no_grad():
        model[1].weight.copy_(model[0].weight.flip(0))
    assert notes(model) == {}


def test_copied_layers_are_found() -> None:
    """`nn.TransformerEncoder` copies its layer, weights included."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 2, 64), 3, enable_nested_tensor=False)
    note = notes(encoder)["duplicate"]
    assert "layers.2.linear1.weight" in note.where
    assert len(note.where) == 2 * (4 + 2)  # of each copy the matrices and the biases that are not zero


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_stored_values_that_are_equal_may_stand_for_different_weights() -> None:
    model = nn.Module()
    for index, places in enumerate((range(20), range(5, 25))):
        spread = torch.sparse_coo_tensor([list(places)], torch.arange(20.0), (30,))
        model.register_buffer(f"x{index}", spread)
    assert "duplicate" not in notes(model)


def test_types_that_mix() -> None:
    model = healthy()
    model[1].half()
    note = notes(model)["mixed-dtypes"]
    assert note.where == ("1.weight", "1.bias")
    assert "3 of float32, 2 of float16" in note.text
    chosen = mg.inspect(model, stats="2.*").notes
    assert "mixed-dtypes" not in [note.code for note in chosen]


def test_infinities_in_a_mask_are_no_error() -> None:
    model = healthy()
    model.register_buffer("mask", torch.full((4, 4), -float("inf")).triu(1))
    assert notes(model)["inf"].severity == "info"


def test_fresh_biases_and_norms_are_mentioned_softly() -> None:
    found = notes(nn.LayerNorm(8))
    assert {code: note.severity for code, note in found.items()} == {"zero": "info", "constant": "info"}


@pytest.mark.parametrize("shape", [(1, 1, 64), (64, 1, 1), (64,)])
def test_vectors_in_any_shape_may_start_as_zeros(shape: tuple[int, ...]) -> None:
    model = nn.Module()
    model.token = nn.Parameter(torch.zeros(shape))
    assert notes(model)["zero"].severity == "info"
    with torch.no_grad():
        model.token.view(-1)[3:].normal_()
    assert notes(model) == {}  # a vector has no rows that could be dead


def test_the_padding_row_of_a_tied_embedding() -> None:
    model = nn.ModuleDict(
        {"head": nn.Linear(32, 50, bias=False), "embed": nn.Embedding(50, 32, padding_idx=2)}
    )
    model["head"].weight = model["embed"].weight
    assert notes(model) == {}


def test_repeated_tables_that_do_not_train_are_mentioned_softly() -> None:
    table = torch.randn(20, 8)
    model = nn.ModuleList(nn.Embedding.from_pretrained(table.clone(), freeze=True) for _ in range(2))
    assert notes(model)["duplicate"].severity == "info"


def test_tensors_without_values_are_listed() -> None:
    model = nn.Sequential(nn.Linear(3, 3, device="meta"), nn.LazyLinear(2), nn.Linear(2, 2))
    report = mg.inspect(model, stats=True)
    assert report.stats is not None
    assert report.stats["0.weight"] is None
    assert report.stats["2.weight"] is not None
    absent = [note for note in report.notes if note.code == "no-values"]
    assert [note.where for note in absent] == [("0.weight", "0.bias"), ("1.weight", "1.bias")]
    assert "meta" in absent[0].text
    assert "not initialised" in absent[1].text


def test_a_pattern_chooses_tensors() -> None:
    report = mg.inspect(healthy(), stats="1.*")
    assert list(report.stats or ()) == ["1.weight", "1.bias"]
    with pytest.raises(mg.InspectError, match="no tensor is called 'nothing'"):
        mg.inspect(healthy(), stats="nothing")
    assert mg.inspect(nn.ReLU(), stats=True).stats == {}
    odd = nn.Module()
    odd.register_parameter("w[0]", nn.Parameter(torch.ones(2)))
    assert list(mg.inspect(odd, stats="w[0]").stats or ()) == ["w[0]"]


def test_tied_names_share_statistics() -> None:
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50, bias=False))
    model[1].weight = model[0].weight
    stats = mg.inspect(model, stats=True).stats
    assert stats is not None
    assert stats["1.weight"] == stats["0.weight"]
    only_second = mg.inspect(model, stats="1.*").stats
    assert only_second == {"1.weight": stats["0.weight"]}
