"""Models that say which picture they take get one, without anybody giving inputs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.configs.examples.pictured import picture


def described(**attributes: Any) -> nn.Module:
    model = nn.Conv2d(3, 8, 3)
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


@pytest.mark.parametrize("kind", ["pretrained_cfg", "default_cfg"])
@pytest.mark.parametrize("form", [dict, SimpleNamespace])
def test_a_model_that_tells_its_picture_is_called_with_one(kind: str, form: Any) -> None:
    report = mg.inspect(described(**{kind: form(input_size=(3, 10, 12))}), "auto")
    assert [value.shape for value in report.run.inputs] == [(2, 3, 10, 12)]
    assert report.cost.macs == 2 * (8 * 10) * 8 * 3 * 9


@pytest.mark.parametrize(
    "said", [None, {}, {"input_size": None}, {"input_size": (3, 0, 9)}, {"input_size": "3x4x5"}, "unknown"]
)
def test_anything_else_tells_nothing(said: Any) -> None:
    assert picture(described(pretrained_cfg=said)) is None


def test_pictures_have_the_type_of_the_weights() -> None:
    found = picture(described(default_cfg={"input_size": (3, 4, 4)}).to(torch.bfloat16))
    assert found.dtype == torch.bfloat16


def test_a_model_of_timm_needs_no_inputs() -> None:
    import timm

    report = mg.inspect(timm.create_model("test_vit"), "auto")
    assert report.run.failure is None
    assert report.cost.macs > 0
