"""Multiply-accumulates of MLX's primitives: against torch's figures for the same layer, and by arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import mlx.core as mx
import pytest
import torch
import torch.nn.functional as F
from mlx import nn

import modelglass as mg
from mlx_ops import declared, macs, ops_of
from modelglass.analyses.cost.formulas import costs_nothing, has_formula, macs_of
from modelglass.analyses.cost.free_kernels import is_free, is_other
from modelglass.analyses.cost.mlx_formulas import MLX_FORMULAS
from modelglass.report import Kernel, Value

UNKNOWN = {"CustomKernel", "GatedDeltaUpdate", "GatedDeltaUpdateVJP"}


def zeros(*shape: int) -> mx.array:
    return mx.zeros(shape)


def value(name: str, *shape: int) -> Value:
    return Value(name=name, shape=shape, dtype="float32")


class Module(torch.nn.Module):
    def __init__(self, body: Callable[..., Any], *weights: torch.Tensor) -> None:
        super().__init__()
        self.body = body
        self.weights = torch.nn.ParameterList(weights)

    def forward(self, *given: torch.Tensor) -> Any:
        return self.body(*given, *self.weights)


def torchs(body: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
    """What torch's function costs on tensors of those shapes."""
    return mg.inspect(Module(body), inputs=tuple(torch.zeros(shape) for shape in shapes)).cost.macs


def test_every_primitive_is_in_exactly_one_table() -> None:
    for primitive in declared():
        name = f"mlx.{primitive}"
        tables = [has_formula(name), is_free(name), is_other(name), primitive in UNKNOWN]
        assert tables.count(True) == 1, (primitive, tables)
    assert {name.removeprefix("mlx.") for name in MLX_FORMULAS} <= set(declared())


SETTINGS = [
    (rank, *rest)
    for rank in (1, 2, 3)
    for rest in product((1, 2, 3), (0, 2), (1, 2), (1, 2) if rank < 3 else (1,))  # MLX has no groups in 3D
]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_cost_what_torchs_do(rank: int) -> None:
    places, window = tuple(range(10, 10 + rank)), tuple(range(3, 3 + rank))
    for _, stride, padding, dilation, groups in (each for each in SETTINGS if each[0] == rank):
        settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        theirs = torchs(
            partial(getattr(F, f"conv{rank}d"), **settings), (2, 4, *places), (6, 4 // groups, *window)
        )
        ours = partial(getattr(mx, f"conv{rank}d"), **settings)
        assert macs(ours, zeros(2, *places, 4), zeros(6, *window, 4 // groups)) == theirs, settings


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_transposed_convolutions_cost_what_torchs_do(rank: int) -> None:
    places, window = tuple(range(7, 7 + rank)), tuple(range(3, 3 + rank))
    for _, stride, padding, dilation, groups in (each for each in SETTINGS if each[0] == rank):
        settings = {
            "stride": stride,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "output_padding": min(1, stride - 1),
        }
        theirs = torchs(
            partial(getattr(F, f"conv_transpose{rank}d"), **settings),
            (2, 4, *places),
            (4, 6 // groups, *window),
        )
        ours = partial(getattr(mx, f"conv_transpose{rank}d"), **settings)
        assert macs(ours, zeros(2, *places, 4), zeros(6, *window, 4 // groups)) == theirs, settings


def gradients(body: Callable[..., mx.array]) -> Callable[..., Any]:
    """The gradients of a function's sum of squares for both of its arguments."""
    return mx.grad(lambda x, w: body(x, w).square().sum(), argnums=(0, 1))


@pytest.mark.parametrize("transposed", [False, True], ids=["plain", "transposed"])
def test_gradients_of_convolutions_cost_what_torchs_do(transposed: bool) -> None:
    name = "conv_transpose2d" if transposed else "conv2d"
    for stride, padding, dilation, groups in product((1, 2), (0, 1), (1, 2), (1, 2)):
        if transposed and stride == 1:
            continue  # MLX's weight gradient runs over a padded input then, and padding counts
        settings = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        weight = (4, 6 // groups, 3, 3) if transposed else (6, 4 // groups, 3, 3)
        model = Module(partial(getattr(F, name), **settings), torch.zeros(weight))
        given = torch.zeros(2, 4, 9, 10, requires_grad=True)
        theirs = mg.inspect(model, inputs=given, train=True).cost.macs
        ours = gradients(partial(getattr(mx, name), **settings))
        assert macs(ours, zeros(2, 9, 10, 4), zeros(6, 3, 3, 4 // groups)) == theirs, settings


def test_a_flipped_window_with_a_stride_is_no_transposed_convolution() -> None:
    strided = partial(mx.conv_general, stride=2, flip=True)
    assert macs(strided, zeros(1, 9, 3), zeros(5, 3, 3)) == 4 * 3 * 3 * 5
    assert macs(partial(mx.conv_general, stride=2), zeros(1, 9, 3), zeros(5, 3, 3)) == 4 * 3 * 3 * 5


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[mx.array, ...], int]] = {
    "matrices": (mx.matmul, (zeros(2, 3), zeros(3, 5)), 2 * 3 * 5),
    "matrix and vector": (mx.matmul, (zeros(2, 3), zeros(3)), 2 * 3),
    "vector and matrix": (mx.matmul, (zeros(3), zeros(3, 5)), 3 * 5),
    "vectors": (mx.matmul, (zeros(7), zeros(7)), 7),
    "batches": (mx.matmul, (zeros(4, 2, 3), zeros(4, 3, 5)), 4 * 2 * 3 * 5),
    "a batch and a matrix": (mx.matmul, (zeros(4, 6, 2, 3), zeros(3, 5)), 4 * 6 * 2 * 3 * 5),
    "broadcast batches": (mx.matmul, (zeros(4, 1, 2, 3), zeros(6, 3, 5)), 4 * 6 * 2 * 3 * 5),
    "nothing": (mx.matmul, (zeros(2, 0), zeros(0, 5)), 0),
    "complex": (mx.matmul, (zeros(2, 3).astype(mx.complex64), zeros(3, 5)), 4 * 2 * 3 * 5),
    "added": (mx.addmm, (zeros(5), zeros(2, 3), zeros(3, 5)), 2 * 3 * 5),
    "added to a batch": (mx.addmm, (zeros(5), zeros(4, 2, 3), zeros(3, 5)), 4 * 2 * 3 * 5),
    "inner": (mx.inner, (zeros(2, 3), zeros(5, 3)), 2 * 3 * 5),
    "tensordot": (partial(mx.tensordot, axes=2), (zeros(2, 3, 4), zeros(3, 4, 5)), 2 * 3 * 4 * 5),
    "einsum": (partial(mx.einsum, "ij,kj->ik"), (zeros(2, 3), zeros(5, 3)), 2 * 3 * 5),
    "einsum of a batch": (
        partial(mx.einsum, "bqhd,bkhd->bhqk"),
        (zeros(2, 4, 3, 8), zeros(2, 6, 3, 8)),
        2 * 4 * 6 * 3 * 8,
    ),
    "einsum of three": (
        partial(mx.einsum, "ij,jk,kl->il"),
        (zeros(2, 3), zeros(3, 4), zeros(4, 5)),
        3 * 4 * 5 + 2 * 3 * 5,  # in the order in which MLX takes them
    ),
    "einsum of rows": (partial(mx.einsum, "ij,ij->i"), (zeros(2, 3), zeros(2, 3)), 2 * 3),
    "outer": (mx.outer, (zeros(2), zeros(3)), 0),
    "kron": (mx.kron, (zeros(2, 2), zeros(3, 3)), 0),
    "multiplied and summed": (mx.vecdot, (zeros(2, 3), zeros(2, 3)), 0),
    "einsum of an outer product": (partial(mx.einsum, "i,j->ij"), (zeros(2), zeros(3)), 0),
    "masked blocks": (
        lambda a, b, mask: mx.block_masked_mm(a, b, 32, mask),
        (zeros(64, 128), zeros(128, 96), zeros(2, 3)),
        64 * 128 * 96,
    ),
    "chosen matrices": (
        lambda x, w, chosen: mx.gather_mm(x, w, rhs_indices=chosen),
        (zeros(6, 1, 4), zeros(3, 4, 5), mx.zeros(6, mx.uint32)),
        6 * 4 * 5,
    ),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products(case: str) -> None:
    function, arrays, expected = PRODUCTS[case]
    assert macs(function, *arrays) == expected


def test_segments_split_the_summed_dimension() -> None:
    inputs = value("a", 3, 10), value("b", 10, 6), value("segments", 4, 2)
    kernel = Kernel(name="mlx.SegmentedMM", attributes={}, inputs=inputs, outputs=(value("", 4, 3, 6),))
    assert macs_of(kernel) == 3 * 10 * 6


MODES = [("affine", bits, 32) for bits in (2, 3, 4, 5, 6, 8)] + [
    ("mxfp4", 4, 32),
    ("mxfp8", 8, 32),
    ("nvfp4", 4, 16),
]


@pytest.mark.parametrize(("mode", "bits", "group_size"), MODES, ids=[f"{m}-{b}" for m, b, _ in MODES])
def test_packed_weights_cost_what_they_stand_for(mode: str, bits: int, group_size: int) -> None:
    packed = mx.quantize(zeros(96, 128), group_size, bits, mode)
    biases = packed[2] if len(packed) == 3 else None
    settings = {"group_size": group_size, "bits": bits, "mode": mode}
    straight = partial(mx.quantized_matmul, transpose=True, **settings)
    back = partial(mx.quantized_matmul, transpose=False, **settings)
    rest = [] if biases is None else [biases]
    assert macs(straight, zeros(2, 5, 128), packed[0], packed[1], *rest) == 2 * 5 * 128 * 96
    assert macs(back, zeros(5, 96), packed[0], packed[1], *rest) == 5 * 128 * 96


@pytest.mark.parametrize(("mode", "bits", "group_size"), MODES, ids=[f"{m}-{b}" for m, b, _ in MODES])
def test_chosen_packed_weights_cost_what_they_stand_for(mode: str, bits: int, group_size: int) -> None:
    packed = mx.quantize(zeros(3, 96, 128), group_size, bits, mode)

    def chosen(x: mx.array, indices: mx.array, *weight: mx.array) -> mx.array:
        return mx.gather_qmm(
            x, *weight, rhs_indices=indices, group_size=group_size, bits=bits, mode=mode, transpose=True
        )

    assert macs(chosen, zeros(6, 1, 128), mx.zeros(6, mx.uint32), *packed) == 6 * 128 * 96


def test_products_of_two_packed_sides_go_by_the_unpacked_one() -> None:
    inputs = value("x", 3, 128), value("w", 64, 16), value("scales", 64, 8)
    for name, made in (("QQMatmul", (3, 64)), ("GatherQQMM", (6, 3, 64))):
        kernel = Kernel(name=f"mlx.{name}", attributes={}, inputs=inputs, outputs=(value("", *made),))
        rows = made[0] * made[1] if len(made) == 3 else made[0]
        assert macs_of(kernel) == rows * 128 * 64


def test_attention_counts_query_heads_and_the_full_rectangle() -> None:
    query, key = zeros(2, 8, 5, 16), zeros(2, 2, 7, 16)
    expected = 2 * 8 * 5 * 7 * (16 + 16)
    for mask in (None, "causal"):
        body = partial(mx.fast.scaled_dot_product_attention, scale=0.25, mask=mask)
        assert macs(body, query, key, key) == expected
    fused = Kernel(
        name="mlx.ScaledDotProductAttention",
        attributes={},
        inputs=(value("q", 2, 8, 5, 16), value("k", 2, 2, 7, 16), value("v", 2, 2, 7, 16)),
        outputs=(value("", 2, 8, 5, 16),),
    )
    assert macs_of(fused) == expected
    whole = torchs(F.scaled_dot_product_attention, (2, 8, 5, 16), (2, 8, 7, 16), (2, 8, 7, 16))
    assert whole == expected


def test_the_gradient_of_fused_attention_is_five_products() -> None:
    shapes = (value("q", 2, 8, 5, 16), value("k", 2, 2, 7, 16), value("v", 2, 2, 7, 24))
    kernel = Kernel(name="mlx.ScaledDotProductAttentionVJP", attributes={}, inputs=shapes, outputs=())
    assert macs_of(kernel) == 2 * 8 * 5 * 7 * (3 * 16 + 2 * 24)


LAYERS: dict[str, tuple[nn.Module, tuple[mx.array, ...], int]] = {
    "linear": (nn.Linear(3, 5), (zeros(2, 3),), 2 * 3 * 5),
    "linear without bias": (nn.Linear(3, 5, bias=False), (zeros(2, 7, 3),), 14 * 3 * 5),
    "bilinear": (nn.Bilinear(3, 4, 5), (zeros(2, 3), zeros(2, 4)), 2 * (4 * 5 * 3 + 5 * 4)),
    "embedding": (nn.Embedding(9, 4), (mx.zeros((2, 3), mx.int32),), 0),
    "attention": (nn.MultiHeadAttention(8, 2), (zeros(2, 5, 8),) * 3, 2 * 5 * (4 * 64 + 2 * 5 * 8)),
    "normalised": (nn.LayerNorm(8), (zeros(2, 8),), 0),
    "pooled": (nn.MaxPool2d(2), (zeros(1, 8, 8, 3),), 0),
    "upsampled": (nn.Upsample(2.0, mode="linear"), (zeros(1, 4, 4, 3),), 0),
    # The first step has no hidden state to multiply, unlike torch's, which makes up zeros for it.
    "recurrent": (nn.RNN(3, 4), (zeros(2, 6, 3),), 2 * (6 * 3 * 4 + 5 * 4 * 4)),
    "long short-term": (nn.LSTM(3, 4), (zeros(2, 6, 3),), 2 * 4 * (6 * 3 * 4 + 5 * 4 * 4)),
}


@pytest.mark.parametrize("case", LAYERS)
def test_layers(case: str) -> None:
    layer, arrays, expected = LAYERS[case]
    assert macs(layer, *arrays) == expected


def test_the_gates_of_a_recurrent_unit() -> None:
    # Three gates read the input; the hidden state is multiplied in every step but the first.
    assert macs(nn.GRU(3, 4), zeros(2, 6, 3)) == 2 * 3 * (6 * 3 * 4 + 5 * 4 * 4)


def test_layers_cost_what_torchs_do() -> None:
    embedding = nn.Embedding(9, 4)
    assert macs(embedding.as_linear, zeros(2, 3, 4)) == torchs(F.linear, (2, 3, 4), (9, 4))
    given = torch.zeros(2, 5, 8)
    attention = mg.inspect(torch.nn.MultiheadAttention(8, 2, batch_first=True), inputs=(given, given, given))
    assert macs(nn.MultiHeadAttention(8, 2), *(zeros(2, 5, 8),) * 3) == attention.cost.macs
    encoder = torch.nn.TransformerEncoderLayer(8, 2, 32, batch_first=True, norm_first=True)
    layer = mg.inspect(encoder, inputs=given).cost.macs
    assert macs(lambda x: nn.TransformerEncoder(1, 8, 2, 32)(x, None), zeros(2, 5, 8)) == layer


def test_transforms_and_decompositions_are_told_apart_from_what_is_free() -> None:
    for name in ("FFT", "SVD", "Hadamard"):
        assert is_other(f"mlx.{name}")
        assert not costs_nothing(f"mlx.{name}")
    assert macs(mx.fft.rfft, zeros(2, 8)) == 0


def test_kernels_that_somebody_wrote_are_unknown() -> None:
    kernel = Kernel(name="mlx.CustomKernel", attributes={}, inputs=(), outputs=(value("", 2, 2),))
    assert macs_of(kernel) is None
    assert macs_of(Kernel(name="mlx.OfALaterRelease", attributes={}, inputs=(), outputs=())) is None


def test_what_mlx_does_not_tell_is_unknown() -> None:
    untold = (Value(name="a", text="array of unknown shape"), Value(name="b", text="array of unknown shape"))
    assert macs_of(Kernel(name="mlx.Matmul", attributes={}, inputs=untold, outputs=untold[:1])) is None
    windows = (value("input", 1, 9, 3), value("weight", 5, 3, 3))
    assert macs_of(Kernel(name="mlx.Convolution", attributes={}, inputs=windows, outputs=windows)) is None


def test_a_registered_formula_wins() -> None:
    (op,) = ops_of(mx.matmul, zeros(2, 3), zeros(3, 5))
    mg.register_formula("mlx::Matmul", lambda kernel: kernel.outputs[0].numel)
    try:
        assert macs_of(op.kernels[0]) == 10
    finally:
        mg.register_formula("mlx::Matmul", None)
    assert macs_of(op.kernels[0]) == 30
