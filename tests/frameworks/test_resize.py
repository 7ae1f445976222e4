"""Inputs with another batch size or sequence length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils.rnn import pack_padded_sequence
from transformers import BatchEncoding

import modelglass as mg
from modelglass import Inputs
from modelglass.errors import InputsError, UsageError
from modelglass.frameworks.torch.inputs.resize import dimensions, resize_inputs, resize_inputs_at


def ids(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def shapes(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if isinstance(value, dict):
        return {key: shapes(item) for key, item in value.items()}
    return tuple(map(shapes, value))


@dataclass(frozen=True)
class Batch:
    tokens: torch.Tensor
    name: str = "text"


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


DIMENSIONS = {
    "ids": ((ids(2, 16),), (2, 16)),
    "features": ((torch.zeros(3, 5, 8),), (3, 5)),
    "images": ((torch.zeros(4, 3, 32, 32),), (4, None)),
    "rows": ((torch.zeros(7, 10),), (7, None)),
    "ids tell more than features": ((torch.zeros(3, 9, 8), ids(3, 6)), (3, 6)),
    "a mask of booleans tells nothing": ((torch.zeros(3, 6, dtype=torch.bool),), (3, None)),
    "no dimensions": ((torch.zeros(()),), (None, None)),
    "no tensors": ((1, "text", None), (None, None)),
    "inside structures": (({"batch": [Pair(torch.zeros(2, 3, 4, 4), ids(2, 5))]},), (2, 5)),
}


@pytest.mark.parametrize(("args", "expected"), DIMENSIONS.values(), ids=DIMENSIONS)
def test_what_inputs_show(args: tuple[Any, ...], expected: tuple[int | None, int | None]) -> None:
    assert dimensions(Inputs(args=args)) == expected
    assert dimensions(Inputs(kwargs=dict(zip("abc", args, strict=False)))) == expected


SIZES = {
    "ids": ((2, 16), torch.int64, (5, 64)),
    "a mask of booleans": ((2, 16), torch.bool, (5, 64)),
    "a mask over pairs": ((2, 1, 16, 16), torch.bool, (5, 1, 64, 64)),
    "a causal mask without a batch": ((16, 16), torch.float32, (64, 64)),
    "positions without a batch": ((16,), torch.int64, (64,)),
    "labels of a batch": ((2,), torch.int64, (5,)),
    "features": ((2, 16, 8), torch.float32, (5, 64, 8)),
    "features as many as steps": ((2, 16, 16), torch.float32, (5, 64, 16)),
    "pictures as wide as steps": ((2, 3, 16, 16), torch.float32, (5, 3, 16, 16)),
    "a table of another size": ((7, 9), torch.float32, (7, 9)),
    "a number": ((), torch.float32, ()),
}


@pytest.mark.parametrize(("shape", "dtype", "expected"), SIZES.values(), ids=SIZES)
def test_each_tensor_gets_the_new_sizes_where_it_has_the_old_ones(
    shape: tuple[int, ...], dtype: torch.dtype, expected: tuple[int, ...]
) -> None:
    given = torch.zeros(shape, dtype=dtype)
    inputs = resize_inputs(Inputs(args=(ids(2, 16), given)), 5, 64)
    assert shapes(inputs.args) == ((5, 64), expected)
    assert inputs.args[1].dtype == dtype
    assert (inputs.args[1] is given) == (shape == expected)


def test_one_size_can_change_alone() -> None:
    inputs = Inputs(args=(ids(2, 16),), kwargs={"labels": ids(2)})
    assert shapes(resize_inputs(inputs, 8, None).args) == ((8, 16),)
    assert shapes(resize_inputs(inputs, 8, None).kwargs) == {"labels": (8,)}
    assert shapes(resize_inputs(inputs, None, 9).args) == ((2, 9),)
    assert resize_inputs(inputs, None, None).args is inputs.args
    assert resize_inputs(inputs, 2, 16).kwargs["labels"] is inputs.kwargs["labels"]


def test_structures_stay_what_they_are_and_the_given_ones_are_untouched() -> None:
    given: list[Any] = [{"x": ids(2, 4)}, Pair(ids(2, 4), ids(2)), Batch(ids(2, 4)), (ids(2, 4), "a")]
    encoding = BatchEncoding({"input_ids": ids(2, 4), "attention_mask": ids(2, 4)})
    inputs = resize_inputs(Inputs(args=(given,), kwargs={"encoding": encoding}), 3, 5)
    [made] = inputs.args
    assert shapes(made[0]) == {"x": (3, 5)}
    assert type(made[1]) is Pair
    assert shapes(made[1]) == ((3, 5), (3,))
    assert type(made[2]) is Batch
    assert made[2].name == "text"
    assert made[2].tokens.shape == (3, 5)
    assert made[3][1] == "a"
    assert type(inputs.kwargs["encoding"]) is BatchEncoding
    assert inputs.kwargs["encoding"]["attention_mask"].shape == (3, 5)
    assert given[0]["x"].shape == given[2].tokens.shape == encoding["input_ids"].shape == (2, 4)


def test_the_same_tensor_in_two_places_stays_one() -> None:
    tokens = ids(2, 4)
    inputs = resize_inputs(Inputs(kwargs={"input_ids": tokens, "labels": tokens}), 3, None)
    assert inputs.kwargs["input_ids"] is inputs.kwargs["labels"]


def test_a_batch_of_a_million_pictures_takes_no_memory() -> None:
    inputs = resize_inputs(Inputs(args=(torch.zeros(1, 3, 224, 224),)), 2**20, None)
    assert inputs.args[0].is_meta
    assert inputs.args[0].shape == (2**20, 3, 224, 224)


def test_layout_and_gradients_are_kept_and_expanded_tensors_are_filled() -> None:
    last = torch.zeros(2, 3, 8, 8).to(memory_format=torch.channels_last).requires_grad_()
    expanded = torch.zeros(1, 5).expand(2, 5)
    made_last, made_expanded = resize_inputs(Inputs(args=(last, expanded)), 4, None).args
    assert made_last.is_contiguous(memory_format=torch.channels_last)
    assert made_last.requires_grad
    assert made_expanded.stride() == (5, 1)


def test_a_tensor_of_another_device_becomes_a_fake_one_there() -> None:
    with FakeTensorMode():
        given = torch.empty(2, 8, device="cuda:0")
    [made] = resize_inputs(Inputs(args=(given,)), 3, None).args
    assert isinstance(made, FakeTensor)
    assert (made.shape, made.fake_device) == ((3, 8), torch.device("cuda:0"))


def test_what_has_sizes_in_its_values_is_left_alone() -> None:
    packed = pack_padded_sequence(torch.zeros(2, 4, 3), torch.tensor([4, 2]), batch_first=True)
    sparse = torch.zeros(2, 4).to_sparse()
    inputs = resize_inputs(Inputs(args=(ids(2, 4), packed, sparse)), 3, None)
    assert dimensions(Inputs(args=(packed,))) == (None, None)
    assert inputs.args[1] is packed
    assert inputs.args[2] is sparse


ERRORS = [
    (Inputs(args=(torch.zeros(2, 3, 8, 8),)), None, 4, InputsError, "no sequence length"),
    (Inputs(args=(1,)), 4, None, InputsError, "the batch of the inputs cannot be changed"),
    (Inputs(args=(ids(2, 4),)), 0, None, UsageError, "batch size must be 1 or more, got 0"),
    (Inputs(args=(ids(2, 4),)), None, -1, UsageError, "sequence length must be 1 or more, got -1"),
]


@pytest.mark.parametrize(("inputs", "batch", "seq", "error", "message"), ERRORS)
def test_what_cannot_be_resized_is_an_error(
    inputs: Inputs, batch: int | None, seq: int | None, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        resize_inputs(inputs, batch, seq)


SPECS = {
    "typed": ("2x16:int64 mask=2x16:bool x=2x16x8:float32", "4x32:int64 mask=4x32:bool x=4x32x8:float32"),
    "named": ("input_ids=2x16 pixels=2x3x16x16", "input_ids=4x32 pixels=4x3x16x16"),
    "features": ("2x16x8 1", "4x32x8 1"),
}


def test_a_fake_run_takes_resized_inputs() -> None:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3))
    inputs = resize_inputs(Inputs(args=(ids(2, 16),)), 1000, 7)
    report = mg.inspect(model, inputs)
    assert report.run.failure is None
    assert report.run.outputs[0].shape == (1000, 7, 3)


def test_single_dimensions_are_resized_by_the_order_of_the_leaves() -> None:
    tokens, mask, image = ids(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, 3, 8, 8)
    given = Inputs((tokens, [mask, "text"]), {"picture": {"pixels": image}, "again": tokens})
    new = resize_inputs_at(given, {(0, 1): 7, (3, 3): 4, (3, 2): 16})
    assert shapes(new.args[0]) == (2, 7)
    assert new.args[0].tolist() == [[0] * 7] * 2, "small whole numbers are repeated"
    assert new.kwargs["again"] is new.args[0]
    assert new.args[1] is given.args[1]
    assert shapes(new.kwargs["picture"]) == {"pixels": (2, 3, 16, 4)}
    assert new.kwargs["picture"]["pixels"].is_meta
    assert shapes(given.kwargs["picture"]) == {"pixels": (2, 3, 8, 8)}


def test_what_cannot_be_had_in_another_size_stays() -> None:
    packed = pack_padded_sequence(torch.zeros(4, 2, 3), torch.tensor([4, 2]))
    assert resize_inputs_at(Inputs((packed,)), {(0, 0): 12}).args[0] is packed


def test_a_run_with_other_sizes_shows_operators_and_shapes_and_no_memory() -> None:
    from modelglass.frameworks.shared.request import Request
    from modelglass.frameworks.torch.session import run_resized

    model, request = nn.Linear(4, 8), Request(inputs=Inputs((torch.zeros(2, 4),)))
    seen = run_resized(model, request, {(0, 0): 5})
    assert [value.shape for value in seen.run.outputs] == [(5, 8)]
    assert seen.dataflow == mg.inspect(model, torch.zeros(2, 4)).dataflow
    assert seen.lifetimes is None
    failed = run_resized(model, request, {(0, 1): 5})
    assert failed.run.failure is not None
    assert failed.dataflow is None
