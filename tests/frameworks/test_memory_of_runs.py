"""What runs take in memory: equal to what torch's profiler says real runs take, and to arithmetic by hand."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from threading import Thread
from typing import Any

import memory_truth as truth
import pytest
import torch
from peers.builders import ExplicitAttention, InSegments, Repeated
from torch import nn

import modelglass as mg
from modelglass.frameworks.torch import privates
from modelglass.report import Memory
from models import SMALL, Apply, ids, transformers_model

pytestmark = pytest.mark.slow

# Kernels of these take nothing for themselves where it matters.
WITHOUT_SCRATCH = (
    ("llama sdpa", "inference"),
    ("llama sdpa", "train"),
    ("llama eager", "train"),
    ("llama attention mask", "train"),
    ("llama LoRA", "train"),
    ("llama checkpointed", "train"),
    ("gpt2 sdpa", "train"),
    ("bert sdpa", "train"),
    ("t5", "train"),
    ("mixtral", "train"),
    ("vit", "train"),
    ("checkpointed, reentrant", "train"),
    ("expanded argument", "train"),
)
# Where torch has no kernel that multiplies by one of several matrices, transformers reads sizes in a loop;
# before its version 5 it always does.
LOOPS = privates.VERSION < (2, 9) or version("transformers").startswith("4.")
RUN_FOR_REAL = ("mixtral",) if LOOPS else ()
WITH_SCRATCH = (
    ("unet", "train"),
    ("lstm", "train"),
    ("nn.TransformerEncoder", "inference"),
    ("frozen first half", "train"),
)


@pytest.mark.parametrize(("name", "mode"), WITHOUT_SCRATCH)
def test_a_prediction_is_what_torch_measures(name: str, mode: Any) -> None:
    """To the byte, of a first step and of the next."""
    real, said = truth.measured(name, mode), truth.predicted(name, mode, calibrate=False)
    assert (said.peak, said.later_peak) == (real.peak, real.later_peak)
    assert said.fake == (name not in RUN_FOR_REAL)


@pytest.mark.parametrize(("name", "mode"), WITH_SCRATCH)
def test_calibration_adds_what_kernels_take_for_themselves(name: str, mode: Any) -> None:
    real, said = truth.measured(name, mode), truth.predicted(name, mode, calibrate=True)
    assert truth.predicted(name, mode, calibrate=False).peak < real.peak
    assert (said.peak, said.later_peak) == (real.peak, real.later_peak)


def memory_of(model: nn.Module, inputs: Any, **options: Any) -> Memory:
    report = mg.inspect(model, inputs, **options)
    assert report.memory is not None, report.notes
    return report.memory


def test_a_linear_layer_by_hand() -> None:
    """Weight, bias, input, output; then the loss, gradients, two moments and a step count for each."""
    memory = memory_of(nn.Linear(100, 50), torch.ones(4, 100), train=True, optimizer="adamw")
    weights = 4 * (100 * 50 + 50)
    assert memory.base_nbytes == weights + 4 * 400
    assert memory.by_category["parameters"] == memory.by_category["gradients"] == weights
    assert memory.by_category["optimizer_state"] == 2 * weights + 2 * 4
    # The output, the loss, a root and a quotient of the second moment, and the number it is divided by.
    assert memory.by_category["temporaries"] == 4 * 200 + 4 + 2 * 4 * 5000 + 8 + 4
    assert memory.peak is not None
    assert (memory.peak.op, memory.peak.phase) == ("aten.div", "optimizer")


def test_a_forward_pass_saves_nothing() -> None:
    memory = memory_of(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.ones(2, 8))
    assert memory.saved_nbytes is memory.saved_by_module is memory.later_peak_nbytes is None
    assert set(memory.by_category) == {"parameters", "inputs", "temporaries"}


@pytest.mark.parametrize(
    ("model", "inputs", "saved"),
    [
        pytest.param(Repeated(100), torch.randn(8, 16), 51_200, id="a layer applied a hundred times"),
        pytest.param(
            ExplicitAttention(),
            torch.randn(1, 512, 64),
            1_572_864,
            id="attention by hand",
        ),
        pytest.param(
            InSegments(reentrant=False),
            torch.randn(8, 16),
            3_584,
            id="checkpointed in four segments",
        ),
        pytest.param(
            InSegments(reentrant=True),
            torch.randn(8, 16, requires_grad=True),
            3_584,
            id="checkpointed reentrantly",
        ),
    ],
)
def test_bytes_saved_for_backward(model: nn.Module, inputs: torch.Tensor, saved: int) -> None:
    memory = memory_of(model, inputs, train=True)
    assert memory.saved_nbytes == saved == sum((memory.saved_by_module or {}).values())


def test_frozen_parameters_have_no_gradient_and_no_state() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[0].requires_grad_(False)
    memory = memory_of(model, torch.ones(2, 64), train=True, optimizer="adamw")
    trained = 4 * (64 * 64 + 64)
    assert memory.by_category["parameters"] == 2 * trained
    assert memory.by_category["gradients"] == trained
    assert memory.by_category["optimizer_state"] == 2 * trained + 2 * 4


def test_tied_parameters_count_once() -> None:
    model = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False))
    model[1].weight = model[0].weight
    memory = memory_of(model, torch.ones(2, 32), train=True, optimizer="adamw")
    assert memory.by_category["parameters"] == memory.by_category["gradients"] == 4 * 32 * 32
    assert memory.by_category["optimizer_state"] == 2 * 4 * 32 * 32 + 4


def billion() -> nn.Module:
    with torch.device("meta"):
        return nn.Sequential(*(nn.Linear(10_000, 10_000, bias=False) for _ in range(10)))


def test_a_billion_parameters_in_mixed_precision() -> None:
    """Two bytes of weight, four of gradient, four of master copy, eight of moments for each."""
    changed = mg.WhatIf(weights="bfloat16", master_weights=True)
    inputs = torch.empty(1, 10_000, device="meta")
    memory = memory_of(billion(), inputs, train=True, optimizer="adamw", what_if=changed)
    held = memory.by_category
    assert held["parameters"] == 2 * 10**9
    assert held["gradients"] == 4 * 10**9
    assert held["optimizer_state"] == 12 * 10**9 + 10 * 4
    # Before they become float32, gradients have two bytes each: 16 in all, the master copy included.
    backward = [moment for moment in memory.timeline if moment.phase == "backward"][-1]
    assert backward.held[3] == 2 * 10**9
    assert memory.what_if == changed


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [
        ("sgd", 0),
        ("adamw", 2 * 4 * 4160 + 2 * 4),
        # 4,096 weights in one byte each with sixteen scales, twice; 64 biases in float32, twice.
        ("adam8bit", 2 * (4096 + 16 * 4) + 2 * 64 * 4),
        (lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9), 4 * 4160),
    ],
)
def test_state_of_optimizers(optimizer: Any, state: int) -> None:
    memory = memory_of(nn.Linear(64, 64), torch.ones(2, 64), train=True, optimizer=optimizer)
    kept = max(moment.held[4] for moment in memory.timeline)
    assert kept == state


def test_an_unknown_optimizer_is_named_with_those_there_are() -> None:
    with pytest.raises(mg.InspectError, match=r"no optimizer 'adman'[\s\S]*adamw"):
        mg.inspect(nn.Linear(2, 2), torch.ones(1, 2), train=True, optimizer="adman")
    with pytest.raises(mg.InspectError, match="optimizer needs train=True"):
        mg.inspect(nn.Linear(2, 2), torch.ones(1, 2), optimizer="adamw")


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon")
def test_an_optimizer_that_cannot_step_is_told_and_the_rest_stays() -> None:
    report = mg.inspect(nn.Conv2d(2, 2, 1), torch.ones(1, 2, 3, 3), train=True, optimizer="muon")
    assert [note.code for note in report.notes if note.severity == "warning"] == ["optimizer-failed"]
    assert report.memory is None
    assert report.cost is not None
    assert report.cost.backward_macs > 0


def test_accumulated_gradients_stay_while_the_next_ones_come() -> None:
    """In the second of two passes the old gradient, the new one and their sum meet."""
    model, inputs = nn.Linear(256, 256, bias=False), torch.ones(2, 256)
    once = memory_of(model, inputs, train=True)
    changed = mg.WhatIf(accumulate=2)
    twice = memory_of(model, inputs, train=True, calibrate=True, what_if=changed)
    assert twice.peak_nbytes - once.peak_nbytes >= 4 * 256 * 256

    def step() -> Any:
        for _ in range(2):
            output = own(inputs)
            loss = output.sum() / 2
            loss.backward()
        return output, loss

    own = nn.Linear(256, 256, bias=False)
    real = truth.measured_peak(step, {})
    assert twice.peak_nbytes == 4 * (256 * 256 + 2 * 256) + real


def test_checkpointing_chosen_blocks_is_what_a_checkpointed_model_does() -> None:
    inputs = {"input_ids": ids(), "labels": ids(), "use_cache": False}
    own = transformers_model("Llama", **SMALL).train()
    own.gradient_checkpointing_enable({"use_reentrant": False})
    real = memory_of(own, inputs, train=True)
    changed = mg.WhatIf(recompute=("model.layers.*",))
    asked = memory_of(transformers_model("Llama", **SMALL).train(), inputs, train=True, what_if=changed)
    plain = memory_of(transformers_model("Llama", **SMALL).train(), inputs, train=True)
    assert asked.saved_nbytes == real.saved_nbytes
    assert [moment.nbytes for moment in asked.timeline] == [moment.nbytes for moment in real.timeline]
    assert real.saved_nbytes < plain.saved_nbytes  # type: ignore[operator]


def test_no_such_block_is_an_error() -> None:
    with pytest.raises(mg.InspectError, match="no module is named like layers"):
        memory_of(nn.Linear(2, 2), torch.ones(1, 2), train=True, what_if=mg.WhatIf(recompute=("layers.*",)))


@pytest.mark.parametrize("changed", [mg.WhatIf(weights="bfloat16"), mg.WhatIf(autocast="bfloat16")])
def test_other_types_are_what_a_model_of_them_takes(changed: mg.WhatIf) -> None:
    build: Callable[[], nn.Module] = lambda: nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())
    asked = memory_of(build(), torch.ones(8, 64), train=True, optimizer="adamw", what_if=changed)
    if changed.weights:
        own, inputs = build().to(torch.bfloat16), torch.ones(8, 64, dtype=torch.bfloat16)
    else:
        inner = build()
        own, inputs = Apply(lambda self, x: _cast(self.inner, x), inner=inner), torch.ones(8, 64)
    assert asked.peak_nbytes == memory_of(own, inputs, train=True, optimizer="adamw").peak_nbytes


def _cast(module: nn.Module, x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module(x)


def test_a_larger_batch_is_what_larger_inputs_take() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    model(torch.ones(1, 3, 8, 8))
    asked = memory_of(model, torch.ones(2, 3, 8, 8), what_if=mg.WhatIf(batch_size=7))
    assert asked.peak_nbytes == memory_of(model, torch.ones(7, 3, 8, 8)).peak_nbytes


def test_a_run_for_real_takes_what_a_fake_one_does() -> None:
    model, inputs = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.ones(2, 16)
    real = memory_of(model, inputs, run="real", train=True, optimizer="adamw")
    fake = memory_of(model, inputs, train=True, optimizer="adamw")
    assert real.peak_nbytes == fake.peak_nbytes
    assert real.by_category == fake.by_category


def test_a_transform_of_functions_trains_without_telling_what_it_saves() -> None:
    """torch.func does not let anyone listen to what autograd saves."""

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        slope = torch.func.grad(lambda value: self.layer(value).sum())(x)
        return self.layer(x) * slope.sum()

    memory = memory_of(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4), train=True)
    assert memory.peak_nbytes > memory.base_nbytes
    assert memory.saved_nbytes is None


def test_a_pass_that_fails_has_no_memory() -> None:
    report = mg.inspect(nn.Linear(3, 3), torch.ones(1, 4), train=True, optimizer="adamw", on_failure="report")
    assert report.memory is None
    assert report.run.failure is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"batch_size": 0},
        {"accumulate": -1},
        {"devices": 8},
        {"weights": "int3"},
        {"autocast": "float99"},
        {"sharding": "magic"},
        {"recompute": "layers.*"},
    ],
    ids=str,
)
def test_a_change_that_says_nothing_is_refused(changed: Any) -> None:
    with pytest.raises(mg.InspectError, match=next(iter(changed))):
        mg.WhatIf(**changed)


def test_master_weights_are_of_weights_that_are_not_float32() -> None:
    plain = memory_of(nn.Linear(64, 64), torch.ones(2, 64), train=True, optimizer="adamw")
    changed = mg.WhatIf(master_weights=True)
    same = memory_of(nn.Linear(64, 64), torch.ones(2, 64), train=True, optimizer="adamw", what_if=changed)
    assert same.by_category == plain.by_category


def test_memory_that_grows_is_followed() -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        grown = torch.empty(10).resize_(1000)
        return self.layer(x) + grown.sum() * 0

    memory = memory_of(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4))
    assert any(each.nbytes == 4000 for each in memory.largest)


def real_peak(model: nn.Module, inputs: torch.Tensor) -> int:
    """Of forward and backward, base included, by torch's profiler."""

    def step() -> Any:
        output = model(inputs)
        loss = output.sum()
        loss.backward()
        return output, loss

    base = inputs.nbytes + sum(param.nbytes for param in model.parameters())
    return base + truth.measured_peak(step, {})


def branches(self: Any, x: torch.Tensor) -> torch.Tensor:
    unused = torch.tanh(self.unused(x))
    del unused
    return self.used(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        pytest.param(
            Apply(lambda self, x: self.words(x) @ self.words.weight.t(), words=nn.Embedding(300, 64)),
            torch.arange(20).reshape(2, 10),
            id="a tied embedding, whose gradients meet as views",
        ),
        pytest.param(
            Apply(branches, used=nn.Linear(64, 64), unused=nn.Linear(64, 2048)),
            torch.ones(16, 64),
            id="a branch that backward never reaches",
        ),
        pytest.param(
            Apply(lambda self, x: self.layer(x).gather(1, x.argsort(1)), layer=nn.Linear(64, 64)),
            torch.ones(16, 64),
            id="a gradient that goes back to where it was gathered from",
        ),
    ],
)
def test_backward_holds_what_a_real_one_does(model: nn.Module, inputs: torch.Tensor) -> None:
    memory = memory_of(model, inputs, train=True, calibrate=True)
    assert memory.peak_nbytes == real_peak(model, inputs)


def test_a_number_can_come_first() -> None:
    model = Apply(lambda self, x: torch.ops.aten.mul.Tensor(2.0, self.layer(x)), layer=nn.Linear(4, 4))
    assert memory_of(model, torch.ones(2, 4), train=True).saved_nbytes == 2 * 4 * 4


def test_errors_of_a_loss_are_the_losss_own() -> None:
    def loss(output: Any) -> torch.Tensor:
        raise KeyError("target")

    report = mg.inspect(nn.Linear(2, 2), torch.ones(1, 2), train=True, loss=loss, on_failure="report")
    assert report.run.failure is not None
    assert "loss= raised KeyError" in report.run.failure.message


def test_a_tensor_from_elsewhere_is_not_written_to_twice() -> None:
    """A run on fake tensors writes to a global of the user's as often as the model does, or not at all."""
    counter = torch.zeros((), dtype=torch.int64)
    holder = [counter]

    class Counting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            COUNTERS[0].add_(1)
            return x * int(COUNTERS[0])

    COUNTERS[:] = holder
    mg.inspect(Counting(), torch.ones(2))
    assert int(counter) <= 1


COUNTERS: list[torch.Tensor] = []


def test_inspections_in_threads_leave_no_trace() -> None:
    before = torch.get_rng_state

    def work() -> None:
        mg.inspect(nn.Linear(8, 8), torch.ones(2, 8), train=True, optimizer="sgd")

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.get_rng_state is before
