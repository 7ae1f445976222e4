"""Figures of MLX models that tools get wrong, as they really are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

import modelglass as mg

L, S = nn.Linear, nn.Sequential


class Digits(nn.Module):
    """Two convolutions and two linear layers, of images with their channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1, self.fc2 = L(3136, 128), L(128, 10)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.pool(nn.relu(self.conv1(x)))
        x = self.pool(nn.relu(self.conv2(x)))
        return self.fc2(nn.relu(self.fc1(x.reshape(x.shape[0], -1))))


ROWS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "one layer": (lambda: L(10, 5), 55),
    "two layers": (lambda: S(L(784, 128), nn.ReLU(), L(128, 10)), 101_770),
    "three layers": (lambda: S(L(784, 128), nn.ReLU(), L(128, 64), nn.ReLU(), L(64, 10)), 109_386),
    "convolutional": (Digits, 422_218),
}


@pytest.mark.parametrize("case", ROWS)
def test_parameters(case: str) -> None:
    build, total = ROWS[case]
    assert mg.inspect(build()).counts.params == total


def test_a_layer_that_is_the_whole_model_has_a_row_with_its_arrays() -> None:
    report = mg.inspect(L(10, 5))
    assert [module.path for module in report.model.modules] == [""]
    assert [(tensor.name, tensor.shape) for tensor in report.model.tensors] == [
        ("weight", (5, 10)),
        ("bias", (5,)),
    ]
    text = mg.render(mg.inspect(L(10, 5)))
    assert "(root)  Linear" in text
    text = mg.summary(L(10, 5))
    assert "weight" in text
    assert "bias" in text


def test_images_have_their_channels_last() -> None:
    report = mg.inspect(Digits(), input_shape=(28, 28, 3))
    assert report.run.outputs[0].shape == (1, 10)
    failed = mg.inspect(Digits(), input_shape=(3, 28, 28), on_failure="report")
    assert failed.run.failure.module == "conv1"
    assert [value.shape for value in failed.run.failure.inputs] == [(1, 3, 28, 28)]
    assert "channels-last" in [note.code for note in failed.notes]


def test_batch_norm_has_64_parameters_of_which_32_train() -> None:
    norm = nn.BatchNorm(16)
    for _ in range(2):
        counts = mg.inspect(norm).counts
        assert (counts.params, counts.trainable, counts.frozen, counts.buffers) == (64, 32, 32, 0)
        norm.unfreeze()  # which running statistics withstand


def test_frozen_parts_are_apart() -> None:
    model = S(L(10, 20), nn.ReLU(), L(20, 5))
    model.layers[0].freeze()
    counts = mg.inspect(model).counts
    assert (counts.params, counts.trainable, counts.frozen) == (325, 105, 220)
    model.freeze()
    model.unfreeze(keys="bias")
    counts = mg.inspect(model).counts
    assert (counts.params, counts.trainable, counts.frozen) == (325, 25, 300)


@pytest.mark.parametrize(
    ("bits", "stored"), [(2, 25_088), (3, 33_280), (4, 41_472), (5, 49_664), (6, 57_856), (8, 74_240)]
)
def test_a_quantized_layer_has_as_many_parameters_at_any_width(bits: int, stored: int) -> None:
    """The weight, unfolded, and the bias; scales and offsets are what packing costs."""
    layer = L(512, 512).to_quantized(group_size=64, bits=bits)
    report = mg.inspect(layer)
    assert report.counts.logical_params == 262_656
    assert report.counts.trainable == 512
    assert sum(tensor.numel for tensor in report.model.tensors) == stored
    assert report.counts.nbytes == 4 * stored


def test_a_shared_weight_counts_once() -> None:
    first, second, third = (L(4, 4, bias=False) for _ in range(3))
    second.weight = third.weight = first.weight
    counts = mg.inspect(S(first, second, third)).counts
    assert counts.params == 16
    assert counts.tied == {"layers.1.weight": "layers.0.weight", "layers.2.weight": "layers.0.weight"}


def test_a_shared_module_counts_once_and_is_known_by_all_its_names() -> None:
    one = L(8, 8)
    report = mg.inspect(S(one, nn.ReLU(), one), inputs=mx.zeros((2, 8)))
    assert report.counts.params == 72
    assert next(m for m in report.model.modules if m.type == "Linear").aliases == ("layers.2",)
    assert [call.module for call in report.model.calls].count("layers.0") == 2


class Holder(nn.Module):
    """Holds whatever it is given."""

    def __init__(self, **held: Any) -> None:
        super().__init__()
        for name, value in held.items():
            setattr(self, name, value)

    def __call__(self, x: mx.array) -> mx.array:
        return x


def test_modules_in_a_tuple_are_warned_of() -> None:
    """MLX itself neither trains nor saves them."""
    report = mg.inspect(Holder(pair=(L(3, 3), L(3, 3))))
    assert [(note.code, note.where) for note in report.notes] == [("unregistered-module", ("pair",))]
    assert (report.counts.params, report.counts.buffers) == (0, 24)


def test_a_private_module_is_shown_and_told_apart() -> None:
    """Its arrays are no parameters of the model, though it can be called."""
    model = Holder(_private=L(3, 3), public=L(2, 2))
    report = mg.inspect(model)
    assert (report.counts.params, report.counts.buffers) == (6, 12)
    assert [module.path for module in report.model.modules] == ["", "_private", "public"]
    assert [(note.code, note.where) for note in report.notes] == [("private-module", ("_private",))]


def test_arrays_in_lists_and_dicts_are_counted() -> None:
    report = mg.inspect(Holder(some=[mx.zeros((2,)), {"deep": mx.zeros((5,))}]))
    assert report.counts.params == 7
    assert [tensor.name for tensor in report.model.tensors] == ["some.0", "some.1.deep"]


def test_a_function_among_layers_is_seen_when_called() -> None:
    model = S(L(4, 4), mx.tanh, lambda x: x * 2)
    report = mg.inspect(model, inputs=mx.zeros((2, 4)))
    assert report.counts.params == 20
    assert report.run.outputs[0].shape == (2, 4)
    assert [call.module for call in report.model.calls] == ["", "layers.0", "layers.1", "layers.2"]
    assert {op.module: op.name for op in report.model.ops}["layers.1"] == "mx.tanh"


def test_a_child_that_holds_its_parent_ends() -> None:
    parent = Holder(child=Holder(layer=L(3, 3)))
    parent.child.parent = parent
    report = mg.inspect(parent, inputs=mx.zeros((2, 3)))
    assert report.counts.params == 12
    assert report.run.failure is None
