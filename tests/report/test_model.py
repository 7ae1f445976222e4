"""Nouns that cannot hold a wrong value."""

from __future__ import annotations

import pytest

import build
from modelglass.report import CATEGORIES, Cost, Memory, Moment, Packing
from modelglass.report.dtypes import BITS, nbytes_of


@pytest.mark.parametrize("shape", [(-1,), (2.0,), (True,), ("3",)])
def test_a_bad_shape_cannot_be_built(shape: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="not a shape"):
        build.tensor("w", shape=shape)


def test_two_modules_cannot_have_one_path() -> None:
    with pytest.raises(ValueError, match="same path"):
        build.model(modules=(build.module("a"), build.module("a")))


def test_children_must_exist() -> None:
    with pytest.raises(ValueError, match="unknown children"):
        build.model(modules=(build.module("", children=("ghost",)),))


def test_a_total_that_is_no_sum_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="add up"):
        Cost(
            macs=5,
            forward_macs=1,
            backward_macs=1,
            recompute_macs=1,
            effective_macs=None,
            coverage=1.0,
            unknown_ops={},
            other_ops={},
            by_module={},
        )


def test_sizes_follow_from_shape_and_type() -> None:
    tensor = build.tensor("w", shape=(3, 4), dtype="bfloat16")
    assert (tensor.numel, tensor.nbytes, tensor.bits_per_weight) == (12, 24, 16)
    assert build.tensor("s", shape=()).numel == 1
    assert build.tensor("u", shape=None).nbytes is None
    assert build.tensor("odd", dtype="int3", shape=(3,)).nbytes == 2
    assert build.tensor("new", dtype="float6_weird").nbytes is None


def test_an_operator_with_a_sparse_input_has_no_known_size() -> None:
    dense, sparse = build.value("a", 2, 3), build.value("b", 2, 3, nnz=1, text="sparse_coo tensor")
    assert build.op(inputs=(dense,), outputs=(dense,)).nbytes == 48
    assert build.op(inputs=(dense, sparse), outputs=(dense,)).nbytes is None


def test_packed_weights_stand_for_more_than_they_store() -> None:
    packing = Packing(scheme="x", logical_shape=(4096, 4096), nbytes=8_388_608, side_nbytes=1_048_576)
    tensor = build.tensor("w", shape=(4096, 512), dtype="uint32", packing=packing)
    assert (tensor.numel, tensor.logical_numel, tensor.bits_per_weight) == (2_097_152, 16_777_216, 4.5)


def test_every_torch_type_has_its_size() -> None:
    import torch

    for dtype in map(vars(torch).get, dir(torch)):
        if isinstance(dtype, torch.dtype) and "bits" not in str(dtype):
            name = str(dtype).removeprefix("torch.")
            assert name in BITS, name
            if BITS[name] >= 8:
                assert nbytes_of(name, 3) == 3 * dtype.itemsize, name


def test_printing_memory_leaves_out_its_timeline() -> None:
    """A training step has a moment for each of its kernels."""
    moment = Moment(op="aten.mm", module="", phase="forward", held=(0,) * len(CATEGORIES))
    figures = {"peak_nbytes": 0, "by_category": {}, "base_nbytes": 0}
    memory = Memory(method="exact", at=0, timeline=(moment,), largest=(), **figures)
    assert "aten.mm" not in repr(memory)
    assert "peak_nbytes=0" in repr(memory)
