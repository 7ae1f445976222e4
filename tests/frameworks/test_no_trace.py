"""The inspected model, its inputs and the process are bit-identical afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from fingerprint import fingerprint
from models import SAMPLES, Apply, gpt2, ids

ENTRY_POINTS: dict[str, Callable[[nn.Module, Any], Any]] = {
    "structure": lambda model, inputs: mg.inspect(model),
    "fake": lambda model, inputs: mg.inspect(model, inputs=inputs),
    "real": lambda model, inputs: mg.inspect(model, inputs=inputs, run="real"),
    "train": lambda model, inputs: mg.inspect(model, inputs=inputs, train=True),
    "step": lambda model, inputs: mg.inspect(
        model, inputs, train=True, optimizer="adamw", calibrate=True, what_if=mg.WhatIf(accumulate=2)
    ),
    "real train": lambda model, inputs: mg.inspect(model, inputs=inputs, train=True, run="real"),
    "stats": lambda model, inputs: mg.inspect(model, stats=True),
    "dump": lambda model, inputs: mg.dump_model_info(model, plot_distributions=False).report,
    "unique modules": lambda model, inputs: mg.extract_unique_modules(lambda: model, lambda: inputs),
    "model info": lambda model, inputs: mg.model_info(model, inputs),
    "summary": lambda model, inputs: mg.summary(model, inputs if isinstance(inputs, torch.Tensor) else None),
}


@pytest.mark.slow
@pytest.mark.parametrize("entry", ENTRY_POINTS)
@pytest.mark.parametrize("sample", SAMPLES)
def test_inspection_leaves_no_trace(sample: str, entry: str) -> None:
    model, inputs = SAMPLES[sample]()
    if "real" in entry and sample == "meta":
        with pytest.raises(mg.InspectError, match="needs values"):
            ENTRY_POINTS[entry](model, inputs)
        return
    before = fingerprint(model, inputs)
    try:
        result = ENTRY_POINTS[entry](model, inputs)
    except mg.ForwardError as error:
        result = error.report
    assert fingerprint(model, inputs) == before
    report = getattr(result, "report", result)
    if isinstance(report, mg.Report):
        assert (report.run.failure is not None) == (sample == "failing" and report.run.mode != "none")


@pytest.mark.slow
def test_a_search_leaves_no_trace() -> None:
    """Nor do the changes it tries: other types, blocks that run again, other optimizers."""
    model, inputs = gpt2(), {"input_ids": ids()}
    before = fingerprint(model, inputs)
    found = mg.fit(model, inputs, device_nbytes=2**20, train=True)
    assert not found.fits
    assert found.options
    assert fingerprint(model, inputs) == before


def test_gradients_and_hooks_of_the_user_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model(torch.randn(4, 3)).sum().backward()
    calls: list[Any] = []
    model[0].register_forward_hook(lambda module, args, output: calls.append(output))
    inputs = torch.randn(4, 3)
    before = fingerprint(model)
    mg.inspect(model, inputs=inputs, train=True)
    assert fingerprint(model) == before
    assert calls == [], "what a hook collects is given back too"


def test_a_cache_handed_in_is_given_back_as_it_was() -> None:
    model = gpt2()
    with torch.no_grad():
        cache = model(ids(), use_cache=True).past_key_values
    before = fingerprint(model, vars(cache), [vars(layer) for layer in cache.layers])
    report = mg.inspect(model, inputs={"input_ids": ids(1), "past_key_values": cache})
    assert report.run.failure is None
    assert report.run.mode == "fake"
    assert fingerprint(model, vars(cache), [vars(layer) for layer in cache.layers]) == before
    # One new token attends to itself and the 16 before it, in both layers.
    assert report.cost.macs == 2 * (12 * 64 * 64 + 2 * 64 * 17) + 64 * 1000


def test_weights_are_not_allocated() -> None:
    """A model of a terabyte is inspected; on this machine that would fail if it touched a weight."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(2**17, 2**17, bias=False) for _ in range(16)))
    report = mg.inspect(model, inputs=torch.zeros(1, 2**17))
    assert report.counts.nbytes == 2**40
    assert report.cost.macs == 2**38


def test_an_error_inside_forward_leaves_dispatch_modes_as_they_were() -> None:
    def explode(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("inside")

    model = Apply(explode)
    before = fingerprint(model)
    report = mg.inspect(model, inputs=torch.zeros(2), on_failure="report")
    assert report.run.failure.error == "KeyError"
    assert fingerprint(model) == before
    assert torch.ones(2).sum().item() == 2.0


def test_the_users_own_modes_see_nothing_of_it() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    model, inputs = nn.Linear(8, 8), torch.zeros(4, 8)
    with FlopCounterMode(display=False) as counter:
        assert mg.inspect(model, inputs=inputs).cost.macs == 256
    assert counter.get_total_flops() == 0
    with FakeTensorMode():
        inside = nn.Linear(8, 8)
        assert mg.inspect(inside, inputs=torch.zeros(4, 8)).cost.macs == 256


@pytest.mark.slow
@pytest.mark.parametrize("outside", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu")])
def test_what_surrounds_the_call_does_not_stop_training(outside: Callable[[], Any]) -> None:
    with outside():
        model, inputs = nn.Linear(8, 8), torch.zeros(4, 8)
        before = fingerprint(model, inputs)
        assert mg.inspect(model, inputs=inputs, train=True).cost.macs == 512
        assert fingerprint(model, inputs) == before


@pytest.mark.parametrize("options", [{}, {"train": True}, {"run": "real"}], ids=repr)
def test_autocast_around_the_call_keeps_no_casts_of_the_run(options: dict[str, Any]) -> None:
    model, inputs = nn.Linear(4, 4), torch.zeros(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        assert mg.inspect(model, inputs, **options).notes == ()
        assert type(model(inputs)) is torch.Tensor


def test_another_thread_may_print_tensors_meanwhile() -> None:
    """It takes all modes out for a while, also those that torch keeps for all threads at once."""

    def print_in_a_thread(self: Any, x: torch.Tensor) -> torch.Tensor:
        printed: list[str] = []
        thread = threading.Thread(target=lambda: printed.append(_printed()))
        thread.start()
        thread.join()
        return self.layer(x) if printed == ["tensor([1.]) 0"] else x

    report = mg.inspect(Apply(print_in_a_thread, layer=nn.Linear(4, 4)), torch.zeros(2, 4))
    assert report.cost is not None
    assert report.cost.macs == 32


def _printed() -> str:
    """A tensor as text, and how many modes of all threads there are."""
    from torch._ops import _len_torch_dispatch_stack_pre_dispatch

    return f"{torch.ones(1)} {_len_torch_dispatch_stack_pre_dispatch()}"


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "hook for all modules": (
        lambda: len(nn.modules.module._global_forward_hooks),
        lambda: nn.modules.module.register_module_forward_hook(lambda *_: None),
    ),
    "precision": (torch.get_float32_matmul_precision, lambda: torch.set_float32_matmul_precision("medium")),
    "benchmark": (
        lambda: torch.backends.cudnn.benchmark,
        lambda: setattr(torch.backends.cudnn, "benchmark", True),
    ),
    "flash attention": (
        torch.backends.cuda.flash_sdp_enabled,
        lambda: torch.backends.cuda.enable_flash_sdp(False),
    ),
    "fast path": (
        torch.backends.mha.get_fastpath_enabled,
        lambda: torch.backends.mha.set_fastpath_enabled(False),
    ),
    "collections": (gc.get_threshold, lambda: gc.set_threshold(1)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_a_forward_pass_changes_are_given_back(name: str) -> None:
    read, change = SETTINGS[name]
    before = read()
    mg.inspect(Apply(lambda self, x: (change(), x)[1]), torch.zeros(2))
    assert read() == before


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("action", ["clear", "step", "forget", "remember"])
def test_what_a_model_holds_besides_modules_does_not_reach_its_tensors(action: str, run: Any) -> None:
    linear, buffer = nn.Linear(2, 2), torch.ones(2)
    linear.weight.grad = torch.ones(2, 2)
    optimizer = torch.optim.SGD(linear.parameters(), 0.1)

    def notes() -> None:
        notes.last = buffer  # type: ignore[attr-defined]

    actions = {"clear": buffer.zero_, "step": optimizer.step, "forget": optimizer.zero_grad}
    act = actions.get(action, notes)
    model = Apply(lambda self, x: (self.act(), self.linear(x))[1], linear=linear, act=act)
    before = fingerprint(model, buffer)
    mg.inspect(model, torch.zeros(1, 2), run=run)
    assert fingerprint(model, buffer) == before
    assert not vars(notes)
