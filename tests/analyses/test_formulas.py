"""Formulas as pure functions of shapes, checked by hand."""

from __future__ import annotations

import pytest

import build
from modelglass.analyses.cost.formulas import FORMULAS, has_formula, macs_of
from modelglass.analyses.cost.free_kernels import is_free, is_other

v = build.value

CASES = [
    (build.kernel("aten.mm", v("self", 2, 3), v("mat2", 3, 5), output=(2, 5)), 30),
    (build.kernel("aten.mv", v("self", 2, 3), v("vec", 3), output=(2,)), 6),
    (build.kernel("aten._scaled_mm", v("self", 4, 8), v("mat2", 8, 2), output=(4, 2)), 64),
    (build.kernel("aten._int_mm", v("self", 4, 8), v("mat2", 8, 2), output=(4, 2)), 64),
    (build.kernel("aten._weight_int8pack_mm", v("self", 4, 8), v("mat2", 6, 8), output=(4, 6)), 192),
    (build.kernel("aten._weight_int4pack_mm", v("self", 4, 8), v("mat2", 1, 1), output=(4, 6)), 192),
    (build.kernel("aten.linear", v("input", 2, 7, 3), v("weight", 5, 3), output=(2, 7, 5)), 210),
    (build.kernel("aten.convolution", v("input", 1, 4, 8), v("weight", 6, 2, 3), output=(1, 6, 6), groups=2), 216),
    (
        build.kernel(
            "aten.convolution", v("input", 1, 4, 8), v("weight", 4, 3, 3), output=(1, 6, 10), transposed=True
        ),
        288,
    ),
    (
        build.kernel(
            "aten.convolution_backward",
            v("grad_output", 1, 6, 6),
            v("input", 1, 4, 8),
            v("weight", 6, 4, 3),
            transposed=False,
            output_mask=[True, True, True],
        ),
        2 * 36 * 12,
    ),
    (
        build.kernel(
            "aten.convolution_backward",
            v("grad_output", 1, 6, 6),
            v("input", 1, 4, 8),
            v("weight", 6, 4, 3),
            transposed=False,
            output_mask=[False, True, False],
        ),
        36 * 12,
    ),
    (build.kernel("aten.conv_tbc", v("self", 9, 2, 3), v("weight", 3, 3, 4), output=(7, 2, 4)), 7 * 2 * 4 * 9),
    (
        build.kernel(
            "aten._scaled_dot_product_flash_attention_for_cpu_backward",
            v("query", 1, 2, 5, 8),
            v("key", 1, 2, 7, 8),
            v("value", 1, 2, 7, 8),
        ),
        2 * 5 * 7 * 40,
    ),
    (build.kernel("aten._grouped_mm", v("self", 2, 6, 3), v("mat2", 3, 10), output=(6, 10)), 180),
    (build.kernel("aten._grouped_mm", v("self", 6, 12), v("mat2", 12, 5), output=(3, 6, 5)), 360),
    (build.kernel("aten._grouped_mm", v("self", 2, 6, 3), v("mat2", 2, 3, 5), output=(2, 6, 5)), 180),
    (
        build.kernel("aten.lstm", v("input", 5, 2, 10), v("hx.0", 1, 2, 20), v("params.0", 80, 10), v("params.1", 80, 20), v("params.2", 80)),
        24_000,
    ),
    (build.kernel("aten._cdist_forward", v("x1", 5, 3), v("x2", 7, 3), output=(5, 7)), 105),
    (build.kernel("aten._sparse_mm", v("sparse", 9, 9, nnz=4), v("dense", 9, 5), output=(9, 5)), 20),
    (build.kernel("quantized.conv2d", v("qx", 1, 3, 8, 8), v("packed_weight.weight", 4, 3, 3, 3), output=(1, 4, 6, 6)), 144 * 27),
    (build.kernel("aten.mm", v("self", 2, 3, dtype="complex64"), v("mat2", 3, 5), output=(2, 5)), 120),
    (build.kernel("aten.sparse_sampled_addmm", v("self", 4, 4, nnz=3), v("mat1", 4, 8), v("mat2", 8, 4)), 24),
    (build.kernel("aten.sparse_sampled_addmm", v("self", 4, 4), v("mat1", 4, 8), v("mat2", 8, 4)), None),
    (build.kernel("aten.native_layer_norm", v("input", 2, 3), output=(2, 3)), 0),
    (build.kernel("aten._softmax_backward_data", v("grad_output", 2, 3), output=(2, 3)), 0),
    (build.kernel("aten._fft_r2c", v("self", 64), output=(33,)), 0),
    (build.kernel("mylib.attention", v("x", 2, 3), output=(2, 3)), None),
    (build.kernel("aten.never_heard_of", v("x", 2, 3), output=(2, 3)), None),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "macs"), CASES, ids=lambda x: getattr(x, "name", None))
def test_formula(kernel: object, macs: int | None) -> None:
    assert macs_of(kernel) == macs


def test_a_missing_shape_is_unknown_not_zero() -> None:
    nested = build.Value(name="query", dtype="float32", text="nested tensor")
    assert macs_of(build.kernel("aten._native_multi_head_attention", nested)) is None


def test_no_name_is_in_two_tables() -> None:
    for name in FORMULAS:
        assert has_formula(name)
        assert not is_free(name), name
        assert not is_other(name), name


def test_free_kernels_exist() -> None:
    """A typing error in the list would turn a known kernel into an unknown one."""
    import torch

    from modelglass.analyses.cost.free_kernels import _FREE, _stem

    real = {
        _stem(name.partition("::")[2].partition(".")[0]) for name in torch._C._dispatch_get_all_op_names()
    }
    strangers = sorted(_FREE - real)
    assert len(strangers) < len(_FREE) // 10, strangers
