"""Multiply-accumulates of torch's kernels. `formulas` defines what counts."""

from __future__ import annotations

from math import prod

from modelglass.analyses.cost.contractions import (
    Formula,
    MissingShapeError,
    attention_backward_of,
    attention_of,
    output_of,
    output_times_last,
    rows_of,
    shape_of,
)
from modelglass.report import Kernel


def _product(left: str, right: str) -> Formula:
    """A matrix product of two named inputs; a sparse side costs its stored elements."""

    def formula(kernel: Kernel) -> int | None:
        a, b = shape_of(kernel, left), shape_of(kernel, right)
        columns = b[-1] if len(b) > 1 else 1
        stored = [value.nnz for value in (kernel.input(left), kernel.input(right)) if value]
        match stored:
            case [None, None]:
                return prod(a) * columns
            case [int(elements), None]:
                return elements * columns
            case [None, int(elements)]:
                return prod(a[:-1]) * elements
        return None  # which elements of two sparse matrices meet is not in their shapes

    return formula


def _sampled_product(kernel: Kernel) -> int:
    """A dense product computed only where a sparse matrix has elements."""
    pattern = kernel.input("self")
    if pattern is None or pattern.nnz is None:
        raise MissingShapeError(f"{kernel.name} shows no stored elements")
    return pattern.nnz * shape_of(kernel, "mat1")[-1]


def _elements(name: str) -> Formula:
    """One product for each element of `name`."""
    return lambda kernel: prod(shape_of(kernel, name))


def _matmul(kernel: Kernel) -> int:
    return prod(output_of(kernel)) * shape_of(kernel, "self")[-1]


def _convolution(kernel: Kernel) -> int:
    """Weight is (out, in / groups, *window), transposed (in, out / groups, *window)."""
    window = prod(shape_of(kernel, "weight")[1:])
    if kernel.attributes.get("transposed"):
        return prod(shape_of(kernel, "input")) * window
    return prod(output_of(kernel)) * window


def _convolution_of(weight: str) -> Formula:
    return lambda kernel: prod(output_of(kernel)) * prod(shape_of(kernel, weight)[1:])


def _transposed_convolution_of(source: str, weight: str) -> Formula:
    return lambda kernel: prod(shape_of(kernel, source)) * prod(shape_of(kernel, weight)[1:])


def _convolution_backward(kernel: Kernel) -> int:
    """The forward's work once for each gradient asked for, input and weight; the bias only sums."""
    window = prod(shape_of(kernel, "weight")[1:])
    side = "input" if kernel.attributes.get("transposed") else "grad_output"
    mask = kernel.attributes["output_mask"]
    return prod(shape_of(kernel, side)) * window * (int(mask[0]) + int(mask[1]))


def _conv_tbc(kernel: Kernel) -> int:
    window, channels, _ = shape_of(kernel, "weight")
    return prod(output_of(kernel)) * window * channels


def _rows_and_padded(kernel: Kernel, name: str) -> tuple[int, int, int, int]:
    """Rows in all, sequences, the longest of them, and the width; of a nested tensor by its parts."""
    value = kernel.input(name)
    if value is not None and value.parts:
        lengths = [part[0] for part in value.parts]
        return sum(lengths), len(lengths), max(lengths), value.parts[0][-1]
    batch, length, width = shape_of(kernel, name)
    return batch * length, batch, length, width


def _native_multi_head_attention(kernel: Kernel, query: str = "query", key: str = "key") -> int:
    """Projections of real rows; scores on sequences padded to the longest."""
    rows, batch, queries, width = _rows_and_padded(kernel, query)
    key_rows, _, keys, _ = _rows_and_padded(kernel, key)
    projections = (2 * rows + 2 * key_rows) * width * width  # query and output, key and value
    return projections + 2 * batch * queries * keys * width


def _encoder_layer(kernel: Kernel) -> int:
    rows, *_ = _rows_and_padded(kernel, "src")
    feed_forward = prod(shape_of(kernel, "ffn_weight_1")) + prod(shape_of(kernel, "ffn_weight_2"))
    return _native_multi_head_attention(kernel, "src", "src") + rows * feed_forward


def _recurrent_layer(kernel: Kernel) -> int:
    """One fused layer: every step multiplies the input weights and the hidden weights."""
    weights = prod(shape_of(kernel, "weight0")) + prod(shape_of(kernel, "weight1"))
    return rows_of(shape_of(kernel, "input")) * weights


def _recurrent_layer_backward(kernel: Kernel) -> int:
    weights = prod(shape_of(kernel, "weight1")) + prod(shape_of(kernel, "weight2"))
    return 2 * rows_of(shape_of(kernel, "input")) * weights


def _recurrent(parameters: str) -> Formula:
    """A whole recurrent network: each step multiplies every weight matrix once, biases are vectors."""

    def formula(kernel: Kernel) -> int:
        steps = rows_of(shape_of(kernel, "input" if kernel.input("input") else "data"))
        matrices = [
            value.shape
            for value in kernel.inputs
            if value.name.startswith(f"{parameters}.") and value.shape and len(value.shape) == 2
        ]
        if not matrices:
            raise MissingShapeError(f"{kernel.name} shows no weights")
        return steps * sum(map(prod, matrices))

    return formula


def _recurrent_cell(kernel: Kernel) -> int:
    weights = prod(shape_of(kernel, "w_ih")) + prod(shape_of(kernel, "w_hh"))
    return rows_of(shape_of(kernel, "input")) * weights


def _quantized_recurrent(gates: int) -> Formula:
    """Weights are opaque here; the state's shape and the settings say how large they must be."""

    def formula(kernel: Kernel) -> int:
        state = next((v for v in kernel.inputs if v.name.startswith("hx")), None)
        if state is None or state.shape is None:
            raise MissingShapeError(f"{kernel.name} shows no state")
        hidden = state.shape[-1]
        source = shape_of(kernel, "input" if kernel.input("input") else "data")
        directions = 2 if kernel.attributes["bidirectional"] else 1
        total, width = 0, source[-1]
        for _ in range(kernel.attributes["num_layers"]):
            total += directions * gates * hidden * (width + hidden)
            width = hidden * directions
        return rows_of(source) * total

    return formula


def _grouped_product(kernel: Kernel) -> int:
    """Rows, columns or the summed dimension are split into groups; a batch on both sides is a plain one."""
    left = shape_of(kernel, "self" if kernel.input("self") else "mat_a")
    right = shape_of(kernel, "mat2" if kernel.input("mat2") else "mat_b")
    if len(left) == 3 and len(right) == 2:
        return left[1] * left[2] * right[1]
    return prod(left) * right[-1]


def _bilinear(kernel: Kernel) -> int:
    """First input with the weight, then the result with the second input."""
    outputs, left, right = shape_of(kernel, "weight")
    return rows_of(shape_of(kernel, "input1")) * outputs * right * (left + 1)


def _trilinear(kernel: Kernel) -> int:
    """Two pairwise contractions over the common index space, the first summing what the third lacks."""
    expand1, expand2, expand3 = (kernel.attributes[f"expand{i}"] for i in (1, 2, 3))
    summed = set(kernel.attributes["sumdim"])
    shapes = []
    for name, expand in (("i1", expand1), ("i2", expand2), ("i3", expand3)):
        dims = list(shape_of(kernel, name))
        for dim in sorted(expand):
            dims.insert(dim, 1)
        shapes.append(dims)
    space = [max(sizes) for sizes in zip(*shapes, strict=True)]
    first = [max(a, b) for a, b in zip(shapes[0], shapes[1], strict=True)]
    gone = {dim for dim in summed if dim in expand3}
    second = [1 if dim in gone else size for dim, size in enumerate(space)]
    return prod(first) + prod(second)


def _distances(kernel: Kernel) -> int:
    return prod(output_of(kernel)) * shape_of(kernel, "x1")[-1]


def _quantized_cell(kernel: Kernel) -> int:
    weights = prod(shape_of(kernel, "w_ih.weight")) + prod(shape_of(kernel, "w_hh.weight"))
    return rows_of(shape_of(kernel, "input")) * weights


_QUANTIZED_LINEARS = (
    "linear",
    "linear_relu",
    "linear_leaky_relu",
    "linear_tanh",
    "linear_dynamic",
    "linear_relu_dynamic",
    "linear_dynamic_fp16",
    "linear_relu_dynamic_fp16",
)
_QUANTIZED_CONVOLUTIONS = tuple(
    f"conv{rank}d{suffix}" for rank in (1, 2, 3) for suffix in ("", "_relu", "_dynamic")
)
_ATTENTION_KERNELS = (
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)

ATEN_FORMULAS: dict[str, Formula] = {
    "aten.mm": _product("self", "mat2"),
    "aten.bmm": _product("self", "mat2"),
    "aten.addmm": _product("mat1", "mat2"),
    "aten._addmm_activation": _product("mat1", "mat2"),
    "aten.baddbmm": _product("batch1", "batch2"),
    "aten.addbmm": _product("batch1", "batch2"),
    "aten.mv": _product("self", "vec"),
    "aten.addmv": _product("mat", "vec"),
    "aten.dot": _elements("self"),
    "aten.vdot": _elements("self"),
    "aten.linear": output_times_last("weight"),
    "aten.matmul": _matmul,
    "aten._int_mm": _product("self", "mat2"),
    "aten._scaled_mm": _product("self", "mat2"),
    "aten._scaled_mm_v2": _product("self", "mat2"),
    "aten._grouped_mm": _grouped_product,
    "aten._scaled_grouped_mm": _grouped_product,
    "aten._scaled_grouped_mm_v2": _grouped_product,
    "transformers.grouped_mm_fallback": _grouped_product,
    "aten._weight_int8pack_mm": output_times_last("self"),
    "aten._weight_int4pack_mm": output_times_last("self"),
    "aten._weight_int4pack_mm_for_cpu": output_times_last("self"),
    "aten._weight_int4pack_mm_with_scales_and_zeros": output_times_last("self"),
    "aten._dyn_quant_matmul_4bit": output_times_last("inp"),
    "aten.mkldnn_linear": output_times_last("weight"),
    "mkldnn._linear_pointwise": output_times_last("X"),
    "aten._sparse_mm": _product("sparse", "dense"),
    "aten._sparse_addmm": _product("mat1", "mat2"),
    "aten.sspaddmm": _product("mat1", "mat2"),
    "aten.sparse_sampled_addmm": _sampled_product,
    "aten.convolution": _convolution,
    "aten._convolution": _convolution,
    "aten.convolution_overrideable": _convolution,
    "aten.convolution_backward": _convolution_backward,
    "aten.convolution_backward_overrideable": _convolution_backward,
    **{f"aten.conv{rank}d": _convolution_of("weight") for rank in (1, 2, 3)},
    **{
        f"aten.{name}": _convolution_of("weight")
        for name in (
            "mkldnn_convolution",
            "cudnn_convolution",
            "miopen_convolution",
            "_slow_conv2d_forward",
            "thnn_conv2d",
            "_conv_depthwise2d",
            "conv_depthwise3d",
            "slow_conv3d",
            "slow_conv3d_forward",
            "slow_conv_dilated2d",
            "slow_conv_dilated3d",
        )
    },
    **{f"aten.conv_transpose{rank}d": _transposed_convolution_of("input", "weight") for rank in (1, 2, 3)},
    "aten.cudnn_convolution_transpose": _transposed_convolution_of("self", "weight"),
    "aten.slow_conv_transpose2d": _transposed_convolution_of("self", "weight"),
    "aten.slow_conv_transpose3d": _transposed_convolution_of("self", "weight"),
    "aten.conv_tbc": _conv_tbc,
    "aten.conv_tbc_backward": lambda kernel: (
        2 * prod(shape_of(kernel, "self")) * prod(shape_of(kernel, "weight")[0::2])
    ),
    "torchvision.deform_conv2d": _convolution_of("weight"),
    **{f"aten.{name}": attention_of("query", "key", "value") for name in _ATTENTION_KERNELS},
    **{
        f"aten.{name}_backward": attention_backward_of("query", "key", "value")
        for name in _ATTENTION_KERNELS[2:]
    },
    # Run as written (not compiled) it computes every score and masks afterwards.
    "higher_order.flex_attention": attention_of("0", "1", "2"),
    "aten._native_multi_head_attention": _native_multi_head_attention,
    "aten._transformer_encoder_layer_fwd": _encoder_layer,
    "aten.mkldnn_rnn_layer": _recurrent_layer,
    "aten.mkldnn_rnn_layer_backward": _recurrent_layer_backward,
    "aten._cudnn_rnn": _recurrent("weight"),
    "aten.miopen_rnn": _recurrent("weight"),
    **{f"aten.{name}": _recurrent("params") for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{
        f"aten.{name}": _recurrent_cell
        for name in ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
    },
    "aten.quantized_lstm": _quantized_recurrent(4),
    "aten.quantized_gru": _quantized_recurrent(3),
    **{
        f"quantized.quantized_{kind}_cell_dynamic": _quantized_cell
        for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    },
    "aten.bilinear": _bilinear,
    "aten._trilinear": _trilinear,
    "aten._cdist_forward": _distances,
    "aten._euclidean_dist": _distances,
    "aten._pdist_forward": lambda kernel: prod(output_of(kernel)) * shape_of(kernel, "self")[-1],
    "aten.linalg_vecdot": output_times_last("x"),
    **{f"quantized.{name}": output_times_last("X") for name in _QUANTIZED_LINEARS},
    **{f"onednn.{name}": output_times_last("qx") for name in ("qlinear_pointwise",)},
    **{f"quantized.{name}": _convolution_of("packed_weight.weight") for name in _QUANTIZED_CONVOLUTIONS},
    **{
        f"quantized.conv_transpose{rank}d{suffix}": _transposed_convolution_of("qx", "packed_weight.weight")
        for rank in (1, 2, 3)
        for suffix in ("", "_dynamic")
    },
}
