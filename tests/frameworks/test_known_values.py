"""Whole numbers and booleans that a fake run knows, and the decisions that depend on them."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.frameworks.torch.fake import known_values
from models import SMALL, Apply, ids, transformers_model


def ran(model: nn.Module, inputs: Any, mode: Any) -> list[str]:
    report = mg.inspect(model, inputs, run=mode)
    assert report.run.failure is None, report.run.failure
    assert report.run.mode == mode, report.notes
    return [op.overload for op in report.model.ops]


HIDING = (torch.arange(16) > 3).long()[None]


@pytest.mark.parametrize("mask", [None, torch.ones_like(ids()), HIDING], ids=["none", "ones", "hiding"])
@pytest.mark.parametrize(
    ("name", "suffix"), [("Llama", "ForCausalLM"), ("Bert", "Model"), ("Qwen2", "ForCausalLM")]
)
def test_masks_decide_as_they_do_in_a_real_run(name: str, suffix: str, mask: torch.Tensor | None) -> None:
    model = transformers_model(name, suffix, **SMALL).eval()
    inputs = {"input_ids": ids()} if mask is None else {"input_ids": ids(), "attention_mask": mask}
    assert ran(model, inputs, "fake") == ran(model, inputs, "real")


def decide(self: Any, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    last = int(lengths.max())
    if bool((lengths == last).all()):
        return self.layer(x[:, :last])  # type: ignore[no-any-return]
    return x


@pytest.mark.parametrize("lengths", [(3, 3), (3, 2)])
def test_a_decision_on_the_inputs_own_numbers_needs_no_real_run(lengths: tuple[int, int]) -> None:
    model = Apply(decide, layer=nn.Linear(4, 4))
    inputs = (torch.ones(2, 5, 4), torch.tensor(lengths))
    assert ran(model, inputs, "fake") == ran(model, inputs, "real")


MADE = {
    "new_ones": lambda x: x.new_ones(4, dtype=torch.int64),
    "new_zeros": lambda x: x.new_zeros(4),
    "new_full": lambda x: x.new_full((4,), 3.0),
    "ones_like": torch.ones_like,
    "zeros_like": torch.zeros_like,
    "full_like": lambda x: torch.full_like(x, 2),
}


@pytest.mark.parametrize("make", MADE.values(), ids=list(MADE))
def test_what_is_filled_is_known_whatever_it_was_made_from(make: Any) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if bool(make(x).all()) else x  # type: ignore[no-any-return]

    model = Apply(run, layer=nn.Linear(4, 4))
    inputs = (torch.randn(2, 4),)
    assert ran(model, inputs, "fake") == ran(model, inputs, "real")


@pytest.mark.parametrize(
    "view",
    [
        lambda x: torch.zeros_like(x[0, 0].t()).t().view(-1),
        lambda x: torch.ones_like(x.to(memory_format=torch.channels_last)).permute(0, 2, 3, 1).view(-1),
        lambda x: torch.full_like(x.transpose(1, 2), 2).transpose(1, 2).view(2, -1),
    ],
    ids=["transposed", "channels last", "two dimensions of four"],
)
def test_what_is_filled_lies_in_memory_as_it_really_does(view: Any) -> None:
    inputs = (torch.randn(2, 3, 4, 5),)
    model = Apply(lambda self, x: view(x) + 1)
    assert ran(model, inputs, "fake") == ran(model, inputs, "real")


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_what_an_optimizer_keeps_takes_no_memory(optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tensors begin as zeros, which is known; nobody looks, so hardly any come into being."""
    alive: weakref.WeakSet[torch.UntypedStorage] = weakref.WeakSet()
    most = 0
    real = known_values._full_of

    def seen(what: Any, nbytes: int) -> torch.UntypedStorage:
        nonlocal most
        made = real(what, nbytes)
        alive.add(made)
        most = max(most, sum(each.nbytes() for each in alive))
        return made

    monkeypatch.setattr(known_values, "_full_of", seen)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20)))
    report = mg.inspect(model, torch.ones(2, 64), train=True, optimizer=optimizer)
    assert report.run.mode == "fake"
    assert most <= 64 * 64 * 4


def test_what_is_filled_can_be_written_to_and_asked() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        flags = torch.zeros(4)
        flags[1:3] = 1
        told = float(flags.mul_(2).sum()), float(torch.full((2,), 3).sum())
        return self.layer(x) if told == (4, 6) else x

    model = Apply(run, layer=nn.Linear(4, 4))
    inputs = (torch.randn(2, 4),)
    assert ran(model, inputs, "fake") == ran(model, inputs, "real")
    assert mg.inspect(model, inputs).cost.macs == 2 * 4 * 4  # type: ignore[union-attr]


def test_what_is_written_over_is_no_longer_known() -> None:
    """A number that comes from what nobody knows makes the run a real one."""

    def run(self: Any, x: torch.Tensor, flags: torch.Tensor) -> torch.Tensor:
        flags.copy_((x[0] > 0).long())
        return self.layer(x) if bool(flags.any()) else x

    model = Apply(run, layer=nn.Linear(4, 4))
    flags = torch.zeros(4, dtype=torch.int64)
    report = mg.inspect(model, (torch.ones(2, 4), flags))
    assert (report.run.mode, report.cost.macs) == ("real", 2 * 4 * 4)  # type: ignore[union-attr]
    assert not flags.any(), "the user's own tensor is not written to"


def test_random_numbers_are_not_known() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if int(torch.randint(0, 2, ())) >= 0 else x

    report = mg.inspect(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4))
    assert report.run.mode == "real"


def test_a_mask_made_of_nothing_but_a_shape_is_known() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        mask = (1.0 - torch.ones(x.shape)) * -1e9
        return self.layer(x) if bool((mask == 0).all()) else x

    model = Apply(run, layer=nn.Linear(4, 4))
    assert ran(model, torch.ones(2, 4), "fake") == ran(model, torch.ones(2, 4), "real")


def test_luck_that_drops_a_layer_needs_no_real_run() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if torch.rand([]) < 0.5 else x

    model = Apply(run, layer=nn.Linear(4, 4))
    state = torch.get_rng_state()
    assert mg.inspect(model, torch.ones(2, 4)).run.mode == "fake"
    assert torch.equal(torch.get_rng_state(), state)


def repeated(self: Any, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return self.layer(x[torch.repeat_interleave(torch.arange(2), counts)])  # type: ignore[no-any-return]


def picked(self: Any, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return self.layer(x[counts > 2])  # type: ignore[no-any-return]


def found(self: Any, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    return self.layer(x[:, torch.nonzero(counts > 2)[:, 0]])  # type: ignore[no-any-return]


def filled(self: Any, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    sizes = torch.empty(2, 2, dtype=torch.int64)
    for index in range(2):
        sizes[index, 0], sizes[index, 1] = counts[index], index
    return self.layer(x[:, : int(sizes.sum())])  # type: ignore[no-any-return]


def gathered(self: Any, x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    several = torch.tensor([counts.max(), counts.min()])
    return self.layer(x[:, : int(several[1])])  # type: ignore[no-any-return]


@pytest.mark.parametrize("run", [repeated, picked, found, filled, gathered], ids=lambda run: run.__name__)
def test_sizes_that_known_values_decide_need_no_real_run(run: Any) -> None:
    model, inputs = Apply(run, layer=nn.Linear(4, 4)), (torch.ones(2, 8, 4), torch.tensor([2, 3]))
    shapes = [
        [tuple(value.shape or ()) for value in mg.inspect(model, inputs, run=mode).run.outputs]
        for mode in ("fake", "real")
    ]
    assert shapes[0] == shapes[1]
    assert ran(model, inputs, "fake")


def test_a_size_that_unknown_values_decide_needs_a_real_run() -> None:
    model = Apply(lambda self, x: self.layer(x[x[:, 0] > 0]), layer=nn.Linear(4, 4))
    assert mg.inspect(model, torch.ones(2, 4)).run.mode == "real"


def test_memory_that_is_used_again_is_not_what_was_written_to_it() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            torch.zeros(3, dtype=torch.int64).copy_((x[0, :3] > 0).long())  # unknown, and gone at once
            if int(torch.ones(3, dtype=torch.int64).sum()) != 3:
                return x
        return self.layer(x)  # type: ignore[no-any-return]

    assert mg.inspect(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4)).run.mode == "fake"


def test_torch_tensor_is_given_back() -> None:
    before = torch.tensor
    mg.inspect(Apply(gathered, layer=nn.Linear(4, 4)), (torch.ones(2, 8, 4), torch.tensor([2, 3])))
    assert torch.tensor is before


def test_other_threads_call_the_torch_tensor_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set()
    numbers = known_values._numbers
    monkeypatch.setattr(
        known_values, "_numbers", lambda data: asked.add(threading.get_ident()) or numbers(data)
    )
    inside, done = threading.Event(), threading.Event()
    results: dict[int, list[int]] = {}

    def make() -> None:
        inside.wait(60)
        results[threading.get_ident()] = torch.tensor([1, 2]).tolist()
        done.set()

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        factors = torch.tensor([1.0, 2.0, 3.0, 4.0])
        inside.set()
        assert done.wait(60)
        return self.layer(x) * factors

    other = threading.Thread(target=make)
    other.start()
    report = mg.inspect(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4), run="fake")
    other.join()
    assert report.run.failure is None
    assert threading.get_ident() in asked
    assert list(results.values()) == [[1, 2]]
    assert asked.isdisjoint(results)
