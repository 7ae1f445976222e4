"""Constants that scale data are no parameters; what layers learn under like names is."""

from __future__ import annotations

import pytest

import build
from modelglass.formats.tensors.kinds import classify_tensors


@pytest.mark.parametrize(
    ("names", "buffers"),
    [
        (["affine_offset", "affine_scale", "weight"], ["affine_offset", "affine_scale"]),
        (["net.label_mean", "net.label_std"], ["net.label_mean", "net.label_std"]),
        (["layer_norm.scale", "layer_norm.offset"], []),
        (["logit_scale", "text_offset"], []),
        (["a.x_scale", "b.x_offset"], []),
        (["x_scale", "x_std"], []),
    ],
    ids=lambda value: value[0] if value else "none",
)
def test_pairs_that_scale_data_are_buffers(names: list[str], buffers: list[str]) -> None:
    tensors = [build.tensor(name, (4,), trainable=None) for name in names]
    told, guessed = classify_tensors(tensors)
    assert guessed == buffers
    assert [tensor.name for tensor in told if tensor.kind == "buffer"] == buffers


def test_a_pair_of_other_shapes_is_learned() -> None:
    tensors = [build.tensor("x_scale", (4,), trainable=None), build.tensor("x_offset", (5,), trainable=None)]
    assert classify_tensors(tensors)[1] == []


def test_code_knows_what_it_trains() -> None:
    tensors = [build.tensor("x_scale", (4,)), build.tensor("x_offset", (4,))]
    assert classify_tensors(tensors)[1] == []
