"""MLX's primitives have the names, roles and arguments that a user knows them by."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import pytest

from mlx_ops import declared, exported
from modelglass.frameworks.mlx.graph.primitive_rows import ROWS
from modelglass.frameworks.mlx.graph.primitives import attributes, exported_name, public_name, roles


def zeros(*shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.zeros(shape, dtype)


def arguments_of(body: str) -> int | None:
    """How many members of a class are in its state, which is what an export tells."""
    state = re.search(r"state\(\) const \{\s*return ([^;]*);", body)
    return None if state is None else len(re.findall(r"\w+_\b", state[1]))


def test_every_primitive_that_mlx_declares_has_a_row_or_needs_none() -> None:
    classes = declared()
    assert len(classes) > 130
    assert set(ROWS) <= set(classes)
    assert set(classes) - set(ROWS) == {"CrossEntropyVJP", "GatedDeltaUpdateVJP", "Load", "Recv"}
    for name, body in classes.items():
        count = arguments_of(body)
        named = ROWS[name].arguments.split() if name in ROWS else []
        if name == "CustomKernel" or count is None:
            continue  # a kernel's tuples are told one number at a time
        assert len(named) == count, name


def test_choices_are_in_the_order_of_mlxs_numbers() -> None:
    for name, body in declared().items():
        if name not in ROWS or not ROWS[name].choices:
            continue
        labels = dict(re.findall(r'case (?:\w+::)?(\w+):\s*return "([^"]*)"', body))
        order = re.search(r"enum (?:ReduceType|Op|Base) \{([^}]*)\}", body)
        if labels and order is not None:
            numbered = [each.strip() for each in order[1].split(",") if each.strip()]
            assert [labels[each] for each in numbered] == list(ROWS[name].labels), name


SQUARE, WHOLE = zeros(4, 4), zeros(4, 4, dtype=mx.int32)
IMAGE, WINDOW = zeros(2, 30, 31, 4), zeros(6, 3, 5, 2)
EXAMPLES: dict[str, tuple[Callable[..., Any], tuple[mx.array, ...], str, str, dict[str, Any]]] = {
    "addmm": (
        lambda a, b, c: mx.addmm(c, a, b, 2.0, 3.0),
        (zeros(2, 3), zeros(3, 5), zeros(2, 5)),
        "AddMM",
        "mx.addmm a b c",
        {"alpha": 2.0, "beta": 3.0},
    ),
    "sum": (partial(mx.sum, axis=1), (SQUARE,), "Reduce", "mx.sum a", {"reduce": "sum", "axes": [1]}),
    "max": (partial(mx.max, axis=0), (SQUARE,), "Reduce", "mx.max a", {"reduce": "max", "axes": [0]}),
    "any": (mx.any, (SQUARE,), "Reduce", "mx.any a", {"reduce": "any", "axes": [0, 1]}),
    "argmax": (
        partial(mx.argmax, axis=1),
        (SQUARE,),
        "ArgReduce",
        "mx.argmax a",
        {"reduce": "argmax", "axis": 1},
    ),
    "log10": (mx.log10, (SQUARE,), "Log", "mx.log10 a", {"base": 10}),
    "log": (mx.log, (SQUARE,), "Log", "mx.log a", {"base": "e"}),
    "rsqrt": (mx.rsqrt, (SQUARE,), "Sqrt", "mx.rsqrt a", {"reciprocal": True}),
    "sqrt": (mx.sqrt, (SQUARE,), "Sqrt", "mx.sqrt a", {"reciprocal": False}),
    "arccos": (mx.arccos, (SQUARE,), "ArcCos", "mx.arccos a", {}),
    "greater": (mx.greater_equal, (SQUARE, SQUARE), "GreaterEqual", "mx.greater_equal a b", {}),
    "shift": (mx.right_shift, (WHOLE, WHOLE), "BitwiseBinary", "mx.right_shift a b", {"op": "right_shift"}),
    "cumulative": (
        lambda a: mx.cumprod(a, 1, reverse=True, inclusive=False),
        (SQUARE,),
        "Scan",
        "mx.cumprod a",
        {"reduce": "cumprod", "axis": 1, "reverse": True, "inclusive": False},
    ),
    "choice": (
        lambda a, b: mx.where(a.astype(mx.bool_), a, b),
        (SQUARE, SQUARE),
        "Select",
        "mx.where condition x y",
        {},
    ),
    "type": (lambda a: a.astype(mx.bfloat16), (SQUARE,), "AsType", "mx.astype a", {"dtype": "bfloat16"}),
    "view": (lambda a: a.view(mx.int16), (SQUARE,), "View", "mx.view a", {"dtype": "int16"}),
    "range": (
        lambda a: mx.arange(1, 9, 2) + a,
        (zeros(4, dtype=mx.int32),),
        "Arange",
        "mx.arange",
        {"start": 1.0, "stop": 9.0, "step": 2.0},
    ),
    "joined": (
        lambda a, b: mx.concatenate([a, b], 1),
        (SQUARE, SQUARE),
        "Concatenate",
        "mx.concatenate arrays.0 arrays.1",
        {"axis": 1},
    ),
    "part": (
        lambda a: a[1:3, ::2],
        (SQUARE,),
        "Slice",
        "mx.array.__getitem__ a",
        {"start": [1, 0], "stop": [3, 4], "strides": [1, 2]},
    ),
    "one axis by indices": (
        lambda a, i: mx.take(a, i[0], 1),
        (SQUARE, WHOLE),
        "Gather",
        "mx.take a indices.0",
        {"axes": [1], "slice_sizes": [4, 1]},
    ),
    "two axes by indices": (
        lambda a, i: a[i, i],
        (SQUARE, WHOLE),
        "Gather",
        "mx.array.__getitem__ a indices.0 indices.1",
        {"axes": [0, 1], "slice_sizes": [1, 1]},
    ),
    "added by indices": (
        lambda a, i: a.at[i].add(1.0),
        (SQUARE, zeros(3, dtype=mx.int32)),
        "Scatter",
        "mx.array.at.add a indices.0 updates",
        {"reduce": "add", "axes": [0]},
    ),
    "added in part": (
        lambda a: a.at[1:].add(1.0),
        (SQUARE,),
        "SliceUpdate",
        "mx.array.at.add a update",
        {"reduce": "add", "start": [1, 0], "stop": [4, 4], "strides": [1, 1]},
    ),
    "put": (
        lambda a, i: mx.put_along_axis(a, i, a, 1),
        (SQUARE, WHOLE),
        "ScatterAxis",
        "mx.put_along_axis a indices updates",
        {"reduce": "set", "axis": 1},
    ),
    "padded": (
        lambda a: mx.pad(a, ((1, 2), (3, 4))),
        (SQUARE,),
        "Pad",
        "mx.pad a constant_values",
        {"axes": [0, 1], "low_pad": [1, 3], "high_pad": [2, 4]},
    ),
    "convolution": (
        lambda x, w: mx.conv2d(x, w, (2, 3), (1, 4), (1, 2), 2),
        (IMAGE, WINDOW),
        "Convolution",
        "mx.conv2d input weight",
        {
            "stride": [2, 3],
            "padding": [1, 4],
            "dilation": [1, 2],
            "input_dilation": [1, 1],
            "groups": 2,
            "flip": False,
        },
    ),
    "general convolution": (
        lambda x, w: mx.conv_general(x, w, (2, 3), ([1, 2], [3, 4]), (1, 2), (2, 1), 2, True),
        (IMAGE, WINDOW),
        "Convolution",
        "mx.conv_general input weight",
        {
            "stride": [2, 3],
            "padding": [[1, 2], [3, 4]],
            "dilation": [1, 2],
            "input_dilation": [2, 1],
            "groups": 2,
            "flip": True,
        },
    ),
    "transposed convolution": (
        lambda x, w: mx.conv_transpose1d(x, w, 2),
        (zeros(1, 7, 4), zeros(6, 3, 4)),
        "Convolution",
        "mx.conv_transpose1d input weight",
        {
            "stride": [1],
            "padding": [2],
            "dilation": [1],
            "input_dilation": [2],
            "groups": 1,
            "flip": True,
        },
    ),
    "packed": (
        lambda x, *w: mx.quantized_matmul(x, *w, transpose=False, group_size=32, bits=4, mode="mxfp4"),
        (zeros(3, 64), *mx.quantize(zeros(64, 128), 32, 4, "mxfp4")),
        "QuantizedMatmul",
        "mx.quantized_matmul x w scales",
        {"group_size": 32, "bits": 4, "mode": "mxfp4", "transpose": False},
    ),
    "chosen packed": (
        lambda x, i, *w: mx.gather_qmm(x, *w, rhs_indices=i, group_size=64, bits=8, sorted_indices=True),
        (zeros(3, 1, 128), zeros(3, dtype=mx.uint32), *mx.quantize(zeros(5, 64, 128), 64, 8)),
        "GatherQMM",
        "mx.gather_qmm x w scales biases lhs_indices rhs_indices",
        {
            "group_size": 64,
            "bits": 8,
            "mode": "affine",
            "transpose": True,
            "left_sorted": False,
            "right_sorted": True,
        },
    ),
    "packing": (
        lambda w: mx.quantize(w, 64, 2),
        (zeros(64, 128),),
        "Quantize",
        "mx.quantize w",
        {"group_size": 64, "bits": 2, "mode": "affine", "dequantize": False},
    ),
    "chosen matrices": (
        lambda x, w, i: mx.gather_mm(x, w, rhs_indices=i),
        (zeros(3, 1, 4), zeros(3, 4, 5), zeros(3, dtype=mx.uint32)),
        "GatherMM",
        "mx.gather_mm a b lhs_indices rhs_indices",
        {"left_sorted": False, "right_sorted": False},
    ),
    "masked blocks": (
        lambda a, m: mx.block_masked_mm(a, a, 32, None, m, m),
        (zeros(64, 64), zeros(2, 2)),
        "BlockMaskedMM",
        "mx.block_masked_mm a b mask_lhs mask_rhs",
        {"block_size": 32},
    ),
    "inverse transform": (
        lambda a: mx.fft.irfft(a, 7),
        (zeros(4, 4, dtype=mx.complex64),),
        "FFT",
        "mx.fft.irfft a",
        {"axes": [1], "inverse": True, "real": True, "odd": True},
    ),
    "transform of planes": (
        mx.fft.fft2,
        (zeros(4, 4, dtype=mx.complex64),),
        "FFT",
        "mx.fft.fftn a",
        {"axes": [0, 1], "inverse": False, "real": False, "odd": False},
    ),
    "eigenvalues": (
        partial(mx.linalg.eigvalsh, UPLO="U", stream=mx.cpu),
        (SQUARE,),
        "Eigh",
        "mx.linalg.eigvalsh a",
        {"uplo": "U", "compute_eigenvectors": False},
    ),
    "triangle": (
        partial(mx.linalg.tri_inv, upper=True, stream=mx.cpu),
        (SQUARE,),
        "Inverse",
        "mx.linalg.tri_inv a",
        {"tri": True, "upper": True},
    ),
    "decomposition": (partial(mx.linalg.qr, stream=mx.cpu), (SQUARE,), "QRF", "mx.linalg.qr a", {}),
    "infinite": (
        lambda a: mx.hadamard_transform(a, float("inf")),
        (SQUARE,),
        "Hadamard",
        "mx.hadamard_transform a",
        {"scale": "inf"},
    ),
}


@pytest.mark.parametrize("case", EXAMPLES)
def test_arguments_have_the_values_that_were_given(case: str) -> None:
    function, arrays, primitive, names, expected = EXAMPLES[case]
    found = [each for each in exported(function, *arrays) if each["name"] == primitive]
    assert found, case
    record = found[-1]
    named = attributes(primitive, record["arguments"])
    called = roles(primitive, len(record["inputs"]), record["arguments"])
    assert " ".join((public_name(primitive, record["arguments"]), *called)) == names
    assert named == expected
    assert json.loads(json.dumps(named, allow_nan=False)) == named


def test_every_name_is_a_function_that_mlx_has() -> None:
    for primitive, row in ROWS.items():
        names = [f"mx.{each}" for each in row.labels.values() if each] or [public_name(primitive)]
        for name in names:
            holder: Any = mx
            if name.startswith(("mlx.", "mx.array.at.")):
                continue
            for part in name.split(".")[1:]:
                holder = getattr(holder, part)
            assert callable(holder)


def test_primitives_without_a_function_are_called_by_their_class() -> None:
    without = {name for name in ROWS if not ROWS[name].choices and public_name(name).startswith("mlx.")}
    assert without == {
        "AllReduce",
        "Compiled",
        "Copy",
        "LayerNormVJP",
        "NumberOfElements",
        "RMSNormVJP",
        "RandomBits",
        "ScaledDotProductAttentionVJP",
    }
    assert public_name("ScatterAxis", [0, 1]) == "mlx.ScatterAxis"


FAST: dict[str, tuple[str, list[Any], int, str, dict[str, Any]]] = {
    "attention": (
        "ScaledDotProductAttention",
        [0.5, True, False, False, False],
        3,
        "mx.fast.scaled_dot_product_attention q k v",
        {
            "scale": 0.5,
            "do_causal": True,
            "has_sinks": False,
            "output_logsumexp": False,
            "force_fused": False,
        },
    ),
    "normalisation": ("RMSNorm", [1e-5], 2, "mx.fast.rms_norm x weight", {"eps": 1e-5}),
    "layer normalisation": ("LayerNorm", [1e-5], 3, "mx.fast.layer_norm x weight bias", {"eps": 1e-5}),
    "positions": (
        "RoPE",
        [64, False, 1e4, 1.0, True],
        2,
        "mx.fast.rope a offset",
        {"dims": 64, "traditional": False, "base": 1e4, "scale": 1.0, "forward": True},
    ),
}


@pytest.mark.parametrize("case", FAST)
def test_primitives_that_only_a_gpu_runs_are_known_by_their_headers(case: str) -> None:
    primitive, arguments, count, names, expected = FAST[case]
    assert " ".join((public_name(primitive, arguments), *roles(primitive, count, arguments))) == names
    assert attributes(primitive, arguments) == expected


def test_a_fourth_input_of_attention_is_a_mask_or_sinks() -> None:
    mask, sinks = [0.5, False, False, False, False], [0.5, False, True, False, False]
    assert roles("ScaledDotProductAttention", 4, mask)[3:] == ("mask",)
    assert roles("ScaledDotProductAttention", 4, sinks)[3:] == ("sinks",)
    assert roles("ScaledDotProductAttention", 5, sinks)[3:] == ("mask", "sinks")
    assert roles("ScaledDotProductAttentionVJP", 7, [0.5, False, True])[3] == "sinks"


def test_kernels_that_somebody_wrote_have_a_name_and_a_grid() -> None:
    kernel = mx.fast.metal_kernel(name="mine", input_names=["a"], output_names=["o"], source="o[0] = a[0];")

    def call(a: mx.array) -> Any:
        return kernel(
            inputs=[a],
            grid=(4, 3, 2),
            threadgroup=(1, 2, 3),
            output_shapes=[(2,)],
            output_dtypes=[mx.float32],
        )

    (record,) = exported(call, zeros(2))
    named = attributes(record["name"], record["arguments"])
    assert named == {**named, "grid": [4, 3, 2], "threadgroup": [1, 2, 3]}
    assert named["name"].startswith("custom_kernel_mine")
    assert public_name("CustomKernel", record["arguments"]) == "mx.fast.metal_kernel"


def test_a_primitive_of_a_later_release_keeps_its_positions() -> None:
    assert public_name("OfALaterRelease", [1, [2]]) == "mlx.OfALaterRelease"
    assert attributes("OfALaterRelease", [1, mx.float16]) == {"argument0": 1, "argument1": "float16"}
    assert attributes("AddMM", [1.0, 2.0, 3.0]) == {"argument0": 1.0, "argument1": 2.0, "argument2": 3.0}
    assert attributes("Reduce", [2, [1], True])["argument0"] == 2
    assert attributes("Reduce", [99, [1]]) == {"reduce": 99, "axes": [1]}
    assert public_name("Reduce", [99, [1]]) == "mlx.Reduce"
    assert roles("AddMM", 5) == ("a", "b", "c", "3", "4")
    assert roles("GatherQMM", 7) == ("x", "w", "scales", "3", "4", "5", "6")
    assert roles("AddMM", 1) == ("a",)
    assert public_name("TrueDivide") == "mlx.TrueDivide"
    assert public_name("LogicalXor") == "mx.logical_xor"


LABELS = {
    "Sum": ("Reduce", "mx.sum", {"reduce": "sum"}),
    "CumLogAddExp": ("Scan", "mx.logcumsumexp", {"reduce": "logcumsumexp"}),
    "Rsqrt": ("Sqrt", "mx.rsqrt", {"reciprocal": True}),
    "Log": ("Log", "mx.log", {"base": "e"}),
    "Log2": ("Log", "mx.log2", {"base": 2}),
    "Scatter Sum": ("Scatter", "mx.array.at.add", {"reduce": "add"}),
    "SliceUpdate": ("SliceUpdate", "mx.array.__setitem__", {"reduce": "set"}),
    "NaNEqual": ("Equal", "mx.equal", {"equal_nan": True}),
    "View int32": ("View", "mx.view", {}),
    "ToFP8": ("ConvertFP8", "mx.to_fp8", {"to": "to_fp8"}),
    "Sum AllReduce": ("AllReduce", "mlx.AllReduce", {}),
    "CompiledExpMultiply": ("Compiled", "mlx.Compiled", {}),
    "BitwiseInvert": ("BitwiseInvert", "mx.bitwise_invert", {}),
}


@pytest.mark.parametrize("label", LABELS)
def test_labels_of_a_drawing_are_understood(label: str) -> None:
    assert (exported_name(label), public_name(label, None), attributes(label, None)) == LABELS[label]
