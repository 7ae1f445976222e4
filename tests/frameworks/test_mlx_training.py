"""Training steps of MLX models: gradients and optimizers traced without evaluating anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest
import torch
from mlx.utils import tree_flatten

import modelglass as mg
from modelglass.errors import UsageError
from modelglass.frameworks.mlx.session import observe
from modelglass.frameworks.mlx.training.optimizers import make_factory
from modelglass.frameworks.shared.request import Inputs, Request
from modelglass.report import Lifetimes, Observation, WhatIf

FLOAT = 4  # bytes
Macs = dict[tuple[str, str], int]


def step(model: nn.Module, *args: mx.array, **request: Any) -> Observation:
    return observe(model, Request(inputs=Inputs(args=args), train=True, **request))


def lifetimes(model: nn.Module, *args: mx.array, **request: Any) -> Lifetimes:
    found = step(model, *args, **request).lifetimes
    assert found is not None
    return found


def macs(report: mg.Report) -> Macs:
    """By module and phase."""
    found: Counter[tuple[str, str]] = Counter()
    for op in report.model.ops:
        if op.macs:
            found[op.module, op.phase] += op.macs
    return dict(found)


def two_layers(frozen: int | None = None) -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    if frozen is not None:
        model.layers[frozen].freeze()
    return model


@pytest.mark.parametrize(
    ("frozen", "flops"), [(None, 20_480), (0, 12_288), (1, 16_384)], ids=["all", "first", "last"]
)
def test_only_the_gradients_that_are_needed_are_counted(frozen: int | None, flops: int) -> None:
    report = mg.inspect(two_layers(frozen), mx.zeros((8, 16)), train=True)
    assert report.cost is not None
    assert report.cost.flops == flops


class TorchNet(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 4, 3, stride=2, padding=1)
        self.hidden = torch.nn.Linear(4 * 4 * 4, 32)
        self.head = torch.nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.head(torch.tanh(self.hidden(x.flatten(1))))


class MlxNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 4, 3, stride=2, padding=1)
        self.hidden = nn.Linear(4 * 4 * 4, 32)
        self.head = nn.Linear(32, 10)

    def __call__(self, x: mx.array) -> mx.array:
        x = nn.relu(self.second(nn.relu(self.first(x))))
        return self.head(mx.tanh(self.hidden(x.reshape(x.shape[0], -1))))


def test_each_layer_has_the_backward_work_that_torch_gives_it() -> None:
    theirs = macs(mg.inspect(TorchNet().train(), torch.zeros(2, 3, 8, 8), train=True))
    ours = macs(mg.inspect(MlxNet(), mx.zeros((2, 8, 8, 3)), train=True))
    assert ours == theirs


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(32)
        self.attention = nn.MultiHeadAttention(32, 4)
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)

    def __call__(self, x: mx.array) -> mx.array:
        y = self.norm(x)
        x = x + self.attention(y, y, y)
        return x + self.down(nn.gelu(self.up(x)))


def test_matrix_products_without_weights_belong_to_the_module_that_made_them() -> None:
    """Backward is twice forward everywhere: nothing but weights comes before the norm's own weight."""
    found = macs(mg.inspect(Attention(), mx.zeros((2, 6, 32)), train=True))
    forward = {module: work for (module, phase), work in found.items() if phase == "forward"}
    backward = {module: work for (module, phase), work in found.items() if phase == "backward"}
    assert "attention" in forward
    assert backward == {module: 2 * work for module, work in forward.items()}


def test_a_layer_that_is_used_twice_has_the_work_of_both() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def __call__(self, x: mx.array) -> mx.array:
            return self.layer(mx.tanh(self.layer(x)))

    report = mg.inspect(Twice(), mx.zeros((4, 8)), train=True)
    assert macs(report) == {("layer", "forward"): 2 * 4 * 64, ("layer", "backward"): 3 * 4 * 64}
    by_call = Counter(op.call for op in report.model.ops if op.phase == "backward" and op.macs)
    assert sorted(by_call.values()) == [1, 2]


def test_what_backward_reads_is_held_for_it() -> None:
    found = mg.inspect(two_layers(), mx.zeros((8, 16)), train=True).memory
    assert found is not None
    row = 8 * 16 * FLOAT
    assert found.saved_by_module == {"layers.0": row, "layers.1": row}
    assert found.saved_nbytes == 2 * row


@pytest.mark.parametrize(
    ("optimizer", "moments"),
    [("sgd", 1), ("adam", 2), ("adamw", 2), ("lion", 1)],
)
def test_state_is_as_large_as_the_optimizer_keeps(optimizer: str, moments: int) -> None:
    found = lifetimes(two_layers(), mx.zeros((8, 16)), optimizer=optimizer)
    tail = found.tails[optimizer]
    named = [each for each in tail.storages if each.category == "optimizer_state" and each.name]
    weights = 2 * (16 * 16 + 16) * FLOAT
    assert sum(each.nbytes for each in named if each.died is None) == moments * weights
    assert {step.phase for step in tail.steps} == {"optimizer"}


def test_every_gradient_is_held_to_the_end_and_named() -> None:
    model = two_layers()
    gradients = [
        each for each in lifetimes(model, mx.zeros((8, 16))).storages if each.category == "gradients"
    ]
    parameters = dict(tree_flatten(model.parameters()))
    assert {each.name: each.nbytes for each in gradients} == {
        name: array.nbytes for name, array in parameters.items()
    }
    assert all(each.died is None for each in gradients)


def test_frozen_arrays_have_no_gradient() -> None:
    gradients = {
        each.name
        for each in lifetimes(two_layers(frozen=0), mx.zeros((8, 16))).storages
        if each.category == "gradients"
    }
    assert gradients == {"layers.1.weight", "layers.1.bias"}


def test_running_statistics_change_in_the_step_and_not_in_the_model() -> None:
    model = nn.BatchNorm(4)
    before = {name: id(array) for name, array in tree_flatten(model.parameters())}
    found = lifetimes(model, mx.zeros((2, 3, 3, 4)))
    made = {each.name for each in found.storages if each.category == "buffers" and each.born is not None}
    assert made == {"running_mean", "running_var"}
    assert {name: id(array) for name, array in tree_flatten(model.parameters())} == before


def test_nothing_is_evaluated() -> None:
    """Weights of 40 GB, and three times that in gradients and state."""
    model = nn.Sequential(nn.Linear(50_000, 100_000), nn.Linear(100_000, 50_000))
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    found = step(model, mx.zeros((4, 50_000)), optimizer="adamw")
    assert found.lifetimes is not None
    assert mx.get_peak_memory() - before < 10**6


def test_several_optimizers_step_from_the_same_point() -> None:
    model, x = two_layers(), mx.zeros((8, 16))
    found = lifetimes(model, x, optimizer="sgd", other_optimizers=("sgd", "adamw", "adam8bit"))
    assert set(found.tails) == {"sgd", "adamw"}  # MLX has none in 8 bits
    alone = lifetimes(model, x, optimizer="adamw")
    assert sorted(each.nbytes for each in found.tails["adamw"].storages) == sorted(
        each.nbytes for each in alone.tails["adamw"].storages
    )


def test_an_optimizer_of_the_users_own_is_copied() -> None:
    model, x = two_layers(), mx.zeros((8, 16))
    own = optim.SGD(learning_rate=optim.cosine_decay(0.1, 10), momentum=0.9)
    own.init(model.trainable_parameters())
    before = {name: id(array) for name, array in tree_flatten(own.state)}
    found = step(model, x, optimizer=own)
    assert found.optimizer == "sgd"
    assert found.lifetimes is not None
    assert "sgd" in found.lifetimes.tails
    assert {name: id(array) for name, array in tree_flatten(own.state)} == before


def test_a_function_makes_the_optimizer() -> None:
    def gentle() -> optim.Optimizer:
        return optim.Adam(1e-5)

    assert set(lifetimes(two_layers(), mx.zeros((8, 16)), optimizer=gentle).tails) == {"gentle"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("adam8bit", "MLX has no optimizer that keeps its state in 8 bits"),
        ("nosuch", "MLX has no optimizer 'nosuch'"),
        (lambda params: optim.SGD(0.1), "cannot be called without arguments"),
        (lambda: 3, "returned int"),
        (3, "optimizer must be a name or a function, got int"),
    ],
    ids=["8 bits", "unknown", "wants parameters", "makes something else", "a number"],
)
def test_what_makes_no_optimizer_is_refused(given: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_factory(given)


def test_an_optimizer_that_fails_is_told() -> None:
    class Broken(optim.SGD):
        def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> mx.array:
            raise ValueError("no step today")

    found = step(two_layers(), mx.zeros((8, 16)), optimizer=Broken(0.1))
    assert [note.text for note in found.notes if note.code == "optimizer-failed"] == [
        "broken cannot take a step: ValueError: no step today"
    ]
    assert found.lifetimes is not None


LOSSES: dict[str, Callable[[Any], Any]] = {
    "a number": lambda output: output.square().mean(),
    "several": lambda output: output.square(),
    "a cross entropy": lambda output: nn.losses.cross_entropy(output, mx.zeros((8,), mx.int32)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_the_users_own_is_minimised(name: str) -> None:
    report = mg.inspect(two_layers(), mx.zeros((8, 16)), train=True, loss=LOSSES[name])
    assert report.cost is not None
    assert report.cost.flops == 20_480


def test_the_models_own_loss_is_minimised() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.aside = nn.Linear(4, 4)

        def __call__(self, x: mx.array) -> dict[str, mx.array]:
            return {"loss": self.layer(x).sum(), "logits": self.aside(x)}

    report = mg.inspect(Own(), mx.zeros((2, 4)), train=True)
    assert ("layer", "backward") in macs(report)
    assert ("aside", "backward") not in macs(report)


def test_errors_of_the_loss_are_not_the_models() -> None:
    found = step(two_layers(), mx.zeros((8, 16)), loss=lambda output: output.nosuch)
    assert found.run.failure is not None
    assert "the function given as loss= raised AttributeError" in found.run.failure.message


def test_errors_of_the_model_are_the_answer() -> None:
    model = two_layers()
    before = {name: id(array) for name, array in tree_flatten(model.parameters())}
    found = step(model, mx.zeros((8, 15)))
    assert found.run.failure is not None
    assert found.run.failure.module == "layers.0"
    assert found.lifetimes is None
    assert {name: id(array) for name, array in tree_flatten(model.parameters())} == before


def test_a_model_in_which_nothing_trains_has_no_backward_pass() -> None:
    model = two_layers()
    model.freeze()
    found = step(model, mx.zeros((8, 16)), optimizer="adam")
    assert "nothing-trains" in [note.code for note in found.notes]
    assert {op.phase for op in found.model.ops} == {"forward"}
    assert found.lifetimes is not None
    assert not found.lifetimes.tails


def test_weights_keep_their_names_in_a_training_step() -> None:
    found = step(two_layers(), mx.zeros((8, 16)))
    named = {value.tensor for op in found.model.ops for value in op.inputs if value.tensor}
    assert {"layers.0.weight", "layers.1.weight"} <= named


def test_accumulated_gradients_are_there_from_the_start() -> None:
    found = lifetimes(two_layers(), mx.zeros((8, 16)), what_if=WhatIf(accumulate=4))
    held = [each for each in found.storages if each.category == "gradients" and each.born is None]
    assert sum(each.nbytes for each in held) == 2 * (16 * 16 + 16) * FLOAT
