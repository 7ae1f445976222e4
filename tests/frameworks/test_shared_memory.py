"""Tensors that share memory: counted once, and shared by what stands in for them in a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import modelglass as mg
from models import Apply


def holding(**tensors: torch.Tensor) -> nn.Module:
    model = nn.Module()
    for name, tensor in tensors.items():
        if isinstance(tensor, nn.Parameter):
            model.register_parameter(name, tensor)
        else:
            model.register_buffer(name, tensor)
    return model


def counts(**tensors: torch.Tensor) -> mg.Counts:
    found = mg.inspect(holding(**tensors)).counts
    assert found is not None
    return found


WEIGHT = nn.Parameter(torch.zeros(8, 4))
SQUARE = nn.Parameter(torch.zeros(4, 4))
FLAT = torch.zeros(100)
ARRAY = np.zeros(10, dtype=np.float32)
SHARING: dict[str, tuple[dict[str, torch.Tensor], int]] = {
    "slice": ({"a": WEIGHT, "b": nn.Parameter(WEIGHT.data[:4])}, 128),
    "slice first": ({"a": nn.Parameter(WEIGHT.data[:4]), "b": WEIGHT}, 128),
    "transposed": ({"a": SQUARE, "b": nn.Parameter(SQUARE.data.t())}, 64),
    "buffer in a weight": ({"a": WEIGHT, "b": WEIGHT.data[2:]}, 128),
    "other element type": ({"a": WEIGHT, "b": WEIGHT.data.view(torch.int32)}, 128),
    "expanded number": ({"a": torch.zeros(1).expand(10**6)}, 4),
    "expanded weight": ({"a": nn.Parameter(torch.zeros(4, 1).expand(4, 100))}, 16),
    "overlapping windows": ({"a": torch.zeros(10).unfold(0, 3, 1)}, 40),
    "array made a tensor twice": ({"a": torch.from_numpy(ARRAY), "b": torch.from_numpy(ARRAY[2:])}, 40),
    "parts of a flat one": ({f"p{i}": FLAT[10 * i : 10 * i + 10] for i in range(10)}, 400),
    "parts and the flat one": ({"p0": FLAT[:10], "p1": FLAT[50:], "flat": FLAT}, 400),
    "columns": ({f"p{i}": torch.zeros(6, 4)[:, i] for i in range(4)}, 96),
}


@pytest.mark.parametrize(("tensors", "nbytes"), SHARING.values(), ids=list(SHARING))
def test_memory_counts_once(tensors: dict[str, torch.Tensor], nbytes: int) -> None:
    assert counts(**tensors).nbytes == nbytes


def test_columns_of_one_matrix_share_nothing() -> None:
    matrix = torch.zeros(6, 4)
    found = counts(**{f"p{i}": matrix[:, i] for i in range(4)})
    assert (found.nbytes, found.tied) == (96, {})


def test_views_on_meta_share_as_well() -> None:
    weight = nn.Parameter(torch.zeros(8, 4, device="meta"))
    assert counts(a=weight, b=nn.Parameter(weight.data[:4])).nbytes == 128


def test_an_expanded_buffer_stays_a_buffer() -> None:
    found = counts(a=torch.zeros(1).expand(10))
    assert (found.params, found.buffers, found.buffer_nbytes, found.bits_per_weight) == (0, 10, 4, None)


def decide(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.written.add_(1)
    return self.layer(self.layer(x)) if bool((self.asked == 0).all()) else self.layer(x)  # type: ignore[no-any-return]


def whole() -> torch.Tensor:
    return torch.zeros(8, dtype=torch.int64)


ALIASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "slice": lambda written: written[2:5],
    "strided": lambda written: written[::2],
    "itself as data": lambda written: written.data,
    "other shape": lambda written: written.view(2, 4),
    "other element type": lambda written: written.view(torch.uint8)[:1],
    "expanded": lambda written: written[:1].expand(3),
    "through numpy": lambda written: torch.from_numpy(written.numpy()),
}


@pytest.mark.parametrize("make", [whole, lambda: whole().float()], ids=["whole numbers", "floats"])
@pytest.mark.parametrize("mode", ["fake", "real"])
@pytest.mark.parametrize("alias", ALIASES.values(), ids=list(ALIASES))
def test_what_is_written_is_seen_through_every_alias(
    alias: Any, mode: Literal["fake", "real"], make: Any
) -> None:
    model = Apply(decide, layer=nn.Linear(4, 4))
    model.register_buffer("written", make())
    model.register_buffer("asked", alias(model.written))
    if make is not whole and model.asked.dtype is torch.uint8:
        model.asked = model.written.view(torch.uint8)[3:4]  # the byte that one has and zero has not
    report = mg.inspect(model, torch.ones(2, 4), run=mode)
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 4
    assert not model.written.any(), "the user's own memory is not written to"


@pytest.mark.parametrize("mode", ["fake", "real"])
def test_memory_that_becomes_shared_during_the_run_is_shared(mode: Literal["fake", "real"]) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.asked.data = self.written.data
        return decide(self, x)

    model = Apply(run, layer=nn.Linear(4, 4))
    model.register_buffer("written", whole())
    model.register_buffer("asked", whole() + 1)
    report = mg.inspect(model, torch.ones(2, 4), run=mode)
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 4


def test_copies_lie_in_memory_as_the_originals_do() -> None:
    """A view of what has gaps raises in a real run as it does in the user's own."""
    model = Apply(lambda self, x: x.view(-1))
    x = torch.ones(4, 4)[:, 1:3]
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        model(x)
    failure = mg.inspect(model, x, run="real", on_failure="report").run.failure  # type: ignore[union-attr]
    assert failure is not None


def test_copies_of_another_type_share_too() -> None:
    model = Apply(decide, layer=nn.Linear(4, 4))
    model.register_buffer("written", whole().float())
    model.register_buffer("asked", model.written[2:])
    report = mg.inspect(model, torch.ones(2, 4), run="real", what_if=mg.WhatIf(weights="bfloat16"))
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 4


DECIDING: dict[str, Callable[[], bool]] = {}


def deciding(function: Callable[[], bool]) -> Callable[[], bool]:
    DECIDING[function.__name__] = function
    return function


@deciding
def adding_to_a_list() -> bool:
    total = torch.zeros(2)
    torch._foreach_add_([total], 1)
    return total.sum().item() == 2


@deciding
def copying_to_a_list() -> bool:
    total = torch.zeros(2)
    torch._foreach_copy_([total], [torch.ones(2)])
    return total.sum().item() == 2


@deciding
def clearing_a_list_of_views() -> bool:
    total = torch.ones(4)
    torch._foreach_zero_([total[:2], total[2:]])
    return total.sum().item() == 0


@deciding
def sorting_into() -> bool:
    values, places = torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    torch.sort(torch.tensor([3, 1, 2]), out=(values, places))
    return places.tolist() == [1, 2, 0] and values[0].item() == 1


@deciding
def the_largest_into_what_has_no_size_yet() -> bool:
    value, place = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
    torch.max(torch.tensor([1, 3, 2]), 0, out=(value, place))
    return place.item() == 1


@deciding
def filling_all_of_what_was_unknown() -> bool:
    total = torch.empty(4)
    total.copy_(torch.rand(4))
    total.fill_(3)
    return total.sum().item() == 12


@deciding
def the_data_of_another() -> bool:
    one, other = torch.zeros(3), torch.ones(3)
    one.data = other
    other.add_(1)
    return one.sum().item() == 6


@pytest.mark.parametrize("decide", DECIDING.values(), ids=list(DECIDING))
def test_what_a_kernel_writes_to_its_arguments_is_known(decide: Callable[[], bool]) -> None:
    model = Apply(lambda self, x: self.layer(x) if decide() else x, layer=nn.Linear(4, 4))
    assert decide()
    report = mg.inspect(model, torch.ones(2, 4))
    assert report.run is not None
    assert report.run.failure is None
    assert report.cost is not None
    assert (report.run.mode, report.cost.macs) == ("fake", 2 * 4 * 4)


def test_a_list_that_something_unknown_is_written_to_is_no_longer_known() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(4)
        torch._foreach_add_([total], [x[0]])
        return self.layer(x) if bool(total.any()) else x  # type: ignore[no-any-return]

    report = mg.inspect(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4))
    assert report.run is not None
    assert report.cost is not None
    assert (report.run.mode, report.cost.macs) == ("real", 2 * 4 * 4)


@pytest.mark.parametrize("optimizer", ["AdamW", "Adam", "NAdam", "RAdam", "SGD"])
def test_optimizers_that_write_to_lists_take_their_step(optimizer: str) -> None:
    def make(params: Any) -> torch.optim.Optimizer:
        return getattr(torch.optim, optimizer)(params, foreach=True)  # type: ignore[no-any-return]

    fake, real = (
        mg.inspect(nn.Linear(4, 4), torch.ones(2, 4), train=True, optimizer=make, run=mode)
        for mode in ("fake", "real")
    )
    assert fake.run is not None
    assert fake.run.mode == "fake"
    assert not [note for note in fake.notes if note.code == "optimizer-failed"]
    assert fake.memory is not None
    assert real.memory is not None
    assert fake.memory.peak_nbytes == real.memory.peak_nbytes


class Marked(NamedTuple("Marked", [("one", torch.Tensor)])):
    """A named tuple with an attribute."""


@pytest.mark.parametrize("mode", ["fake", "real"])
def test_a_tuple_is_one_object_however_often_it_is_held(mode: Literal["fake", "real"]) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        same = self.first is self.second[0] and self.marked.twice
        return self.layer(self.layer(x)) if same else x  # type: ignore[no-any-return]

    model = Apply(run, layer=nn.Linear(4, 4))
    model.first = (torch.ones(2), 1)
    model.second = [model.first]
    model.marked = Marked(torch.ones(2))
    model.marked.twice = True
    report = mg.inspect(model, torch.ones(2, 4), run=mode)
    assert report.cost is not None
    assert report.cost.macs == 2 * 2 * 16


@pytest.mark.parametrize("order", ["part first", "whole first"])
def test_a_part_of_another_tensor_has_statistics_of_its_own(order: str) -> None:
    whole = nn.Parameter(torch.arange(32.0).reshape(8, 4))
    tensors = {"whole": whole, "part": nn.Parameter(whole.data[:4]), "again": whole}
    if order == "part first":
        tensors = dict(reversed(tensors.items()))
    stats = mg.inspect(holding(**tensors), stats=True).stats
    assert stats is not None
    means = {name: None if each is None else each.mean for name, each in stats.items()}
    assert means == {"whole": 15.5, "part": 7.5, "again": 15.5}


def test_what_is_not_a_number_is_found_outside_of_a_part() -> None:
    whole = nn.Parameter(torch.zeros(8, 4))
    with torch.no_grad():
        whole[7, 3] = torch.nan
    report = mg.inspect(holding(part=nn.Parameter(whole.data[:4]), whole=whole), stats=True)
    assert [note.where for note in report.notes if note.code == "nan"] == [("whole",)]


def test_a_view_as_large_as_a_parameter_does_not_take_its_place() -> None:
    layer = nn.Linear(4, 8, bias=False)
    model = holding(view=layer.weight.data.view(4, 8))
    model.layer = layer
    found = mg.inspect(model).counts
    assert found is not None
    assert (found.params, found.buffers, found.tied) == (32, 0, {"view": "layer.weight"})


def test_of_tensors_in_one_memory_the_one_with_most_bytes_counts() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.randn(10))
    model.register_buffer("repeated", model.weight.data[:1].expand(100))
    model.register_buffer("windows", model.weight.data.unfold(0, 5, 1))
    report = mg.inspect(model)
    assert report.counts is not None
    assert (report.counts.params, report.counts.buffers, report.counts.nbytes) == (10, 0, 40)


def test_tensors_that_share_a_part_of_their_memory_are_named() -> None:
    memory, model = torch.randn(16), nn.Module()
    model.first, model.second = nn.Parameter(memory[:8]), nn.Parameter(memory[4:12])
    model.apart = nn.Parameter(memory[12:])
    notes = {note.code: (note.severity, note.where) for note in mg.inspect(model).notes}
    assert notes == {"overlapping-memory": ("warning", ("second",))}
