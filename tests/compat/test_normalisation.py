"""Constants and settings that say how data are scaled, told from others by their names."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import build
import modelglass as mg
from modelglass.compat.model_inspector.normalisation import constants, settings


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["affine_offset", "affine_scale"], ["affine_offset", "affine_scale"]),
        (["pixel_mean", "pixel_std"], ["pixel_mean", "pixel_std"]),
        (["net.label_min", "net.label_max"], ["net.label_min", "net.label_max"]),
        (["bn.running_mean", "bn.running_var"], []),
        (["embed_scale"], []),
        (["a_scale", "b_offset"], ["b_offset"]),
        (["position_ids", "mask", "inv_freq"], []),
    ],
    ids=lambda value: value[0] if value else "none",
)
def test_pairs_of_constants(names: list[str], found: list[str]) -> None:
    tensors = [build.tensor(name, (3,), kind="buffer") for name in names]
    assert list(constants(build.model(*tensors))) == found


def test_parameters_are_learned_and_no_constants() -> None:
    model = build.model(build.tensor("x_offset", (3,)), build.tensor("x_scale", (3,)))
    assert constants(model) == ()


def test_no_layer_of_torch_has_such_constants() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), nn.InstanceNorm2d(3, affine=True), nn.LayerNorm(3), nn.LSTM(3, 3))
    assert constants(mg.inspect(net).model) == ()
    assert torch.nn.BatchNorm2d(3).running_mean is not None


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"image_mean": [0.5, 0.4], "image_size": 224}, {"image_mean": [0.5, 0.4]}),
        ({"data": {"affine_offsets": [0, 1], "path": "x"}}, {"data.affine_offsets": [0, 1]}),
        ({"normalization": {"time": "ln", "eps": 1}}, {"normalization.time": "ln", "normalization.eps": 1}),
        ({"time_transform": "ln", "transform": "resize"}, {"time_transform": "ln"}),
        ({"layer_norm_eps": 1e-5, "rope_scaling": {"factor": 2.0}, "norm_type": "layer"}, {}),
        ({"normalize": True}, {}),
        ("no mapping", {}),
    ],
    ids=["lists", "nested", "section", "transform", "layers", "flag", "text"],
)
def test_settings_of_scaling(config: object, found: dict[str, object]) -> None:
    assert settings(config) == found
