"""Inputs as people have them."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.api import TensorSpec
from modelglass.errors import UsageError
from models import Apply, gpt2

ECHO = lambda: Apply(lambda self, *args, **kwargs: (args, kwargs))
x = torch.zeros(2, 3)

FORMS: dict[str, tuple[Any, list[str]]] = {
    "tensor": (x, ["0"]),
    "tuple": ((x, x), ["0", "1"]),
    "list": ([x, x], ["0", "1"]),
    "dict": ({"a": x, "b": 3}, ["a", "b"]),
    "user dict": (UserDict(a=x), ["a"]),
    "inputs": (mg.Inputs((x,), {"b": x}), ["0", "b"]),
    "nested": (((x, [x]),), ["0.0", "0.1.0"]),
    "number": (5, ["0"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_inputs_of_every_form(form: str) -> None:
    inputs, names = FORMS[form]
    report = mg.inspect(ECHO(), inputs=inputs)
    assert [value.name for value in report.run.inputs] == names


def test_a_shape_says_it_all() -> None:
    report = mg.inspect(nn.Conv2d(3, 8, 3), input_shape=(3, 8, 8), batch_size=4)
    assert report.run.inputs[0].shape == (4, 3, 8, 8)


def test_several_shapes_are_several_inputs() -> None:
    report = mg.inspect(nn.Bilinear(3, 4, 2), input_shape=[(3,), (4,)], batch_size=5)
    assert [value.shape for value in report.run.inputs] == [(5, 3), (5, 4)]


@pytest.mark.parametrize("dtype", [torch.float16, "float16"])
def test_the_type_can_be_said(dtype: Any) -> None:
    report = mg.inspect(ECHO(), input_shape=(3,), dtype=dtype)
    assert report.run.inputs[0].dtype == "float16"


def test_the_type_follows_the_model() -> None:
    assert mg.inspect(nn.Linear(3, 3).bfloat16(), input_shape=(3,)).run.inputs[0].dtype == "bfloat16"
    ids = mg.inspect(nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4)), input_shape=(3,))
    assert ids.run.inputs[0].dtype == "int64"
    assert mg.inspect(gpt2(), input_shape=(16,)).cost.macs == 2_662_400


def test_made_ids_fit_every_embedding() -> None:
    model = Apply(lambda self, i: self.a(i) + self.b(i), a=nn.Embedding(5, 2), b=nn.Embedding(100, 2))
    report = mg.inspect(model, inputs=(TensorSpec((4, 50), "int64"),), run="real")
    assert report.run.failure is None


def test_made_inputs_do_not_touch_the_random_state() -> None:
    model = nn.Linear(3, 3)
    before = torch.get_rng_state()
    mg.inspect(model, input_shape=(3,), run="real")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_default_device_of_meta_is_no_obstacle() -> None:
    with torch.device("meta"):
        model = Apply(lambda self, x: self.fc(x) + torch.arange(4), fc=nn.Linear(3, 4))
        for report in (
            mg.inspect(model, input_shape=(3,)),
            mg.inspect(model, inputs=torch.zeros(1, 3)),
        ):
            assert report.run.failure is None
            assert report.cost.macs == 12


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"inputs": x, "input_shape": (3,)}, "cannot be combined"),
    ({"inputs": x, "run": "dry"}, "is not known"),
    ({"train": True}, "needs inputs"),
    ({"input_shape": (-1, 3)}, "is not a shape"),
    ({"input_shape": (3.5,)}, "is not a shape"),
    ({"input_shape": 3}, "is not a shape"),
    ({"input_shape": (3,), "batch_size": "2"}, "is not a shape"),
    ({"input_shape": (3,), "device": "nope"}, "no device"),
    ({"input_shape": (3,), "dtype": "float99"}, "no element type"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_wrong_calls_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        mg.inspect(nn.Linear(3, 3), **options)
    assert "hint" in str(caught.value)


def test_what_is_no_model_is_refused() -> None:
    for thing in (3, torch.zeros(2), "x", [nn.Linear(1, 1)]):
        with pytest.raises(mg.InspectError):
            mg.inspect(thing)
