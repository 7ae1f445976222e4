"""Multiply-accumulates of one kernel, as pure functions of the shapes it met.

Convention: contractions only (products that are summed over an index): matrix products, convolutions,
attention scores and their application, recurrent gates. Bias, normalisation, softmax and element-wise work
count zero; zeros that padding adds count like any other element. Kernels are named as `namespace.name`.

Names that do arithmetic and are in none of the tables are unknown: better a hole than a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from modelglass.analyses.free_kernels import is_free, is_other
from modelglass.errors import FormulaError
from modelglass.report import Kernel, Shape
from modelglass.report.dtypes import is_complex

Formula = Callable[[Kernel], int | None]

COMPLEX_FACTOR = 4  # one complex product is four real ones


def macs_of(kernel: Kernel) -> int | None:
    """The kernel's multiply-accumulates; 0 when it contracts nothing; None when no formula covers it."""
    own = _registered.get(kernel.name)
    if own is not None:
        return _users_answer(own, kernel)
    formula = FORMULAS.get(_in_place_aside(kernel.name))
    if formula is None:
        return 0 if is_free(kernel.name) or is_other(kernel.name) else None
    try:
        macs = formula(kernel)
    except MissingShapeError:
        return None
    if macs and any(is_complex(value.dtype) for value in kernel.inputs):
        return COMPLEX_FACTOR * macs
    return macs


def _users_answer(formula: Formula, kernel: Kernel) -> int | None:
    try:
        macs = formula(kernel)
    except Exception as cause:
        raise FormulaError(kernel.name, f"raised {type(cause).__name__}: {cause}") from cause
    if macs is not None and (type(macs) is not int or macs < 0):
        raise FormulaError(kernel.name, f"returned {macs!r}")
    return macs


def _in_place_aside(name: str) -> str:
    """`aten.addmm_` does what `aten.addmm` does."""
    return name.removesuffix("_")


def register_formula(name: str, formula: Formula | None) -> None:
    """Say what an operator costs: `formula` takes the `Kernel` and returns its multiply-accumulates.

    It wins over a built-in one of the same name; None takes it away again.

    >>> register_formula("mylib::attention", lambda kernel: kernel.outputs[0].numel * 64)
    >>> register_formula("mylib::attention", None)
    """
    key = name.replace("::", ".")
    if formula is None:
        _registered.pop(key, None)
    else:
        _registered[key] = formula


def has_formula(name: str) -> bool:
    """Whether the kernel is a contraction with a formula."""
    return name in _registered or _in_place_aside(name) in FORMULAS


def costs_nothing(name: str) -> bool:
    """Whether the kernel contracts nothing, and nobody has registered a formula that says otherwise."""
    return is_free(name) and name not in _registered


class MissingShapeError(Exception):
    """A formula asked for a shape that the run did not show (a nested tensor, an absent argument)."""


_registered: dict[str, Formula] = {}


def _shape(kernel: Kernel, name: str) -> Shape:
    value = kernel.input(name)
    if value is None or value.shape is None:
        raise MissingShapeError(f"{kernel.name} has no shape for {name}")
    return value.shape


def _output(kernel: Kernel) -> Shape:
    if not kernel.outputs or kernel.outputs[0].shape is None:
        raise MissingShapeError(f"{kernel.name} has no output shape")
    return kernel.outputs[0].shape


def _rows(shape: Shape) -> int:
    return prod(shape[:-1])


def _product(left: str, right: str) -> Formula:
    """A matrix product of two named inputs; a sparse side costs its stored elements."""

    def formula(kernel: Kernel) -> int | None:
        a, b = _shape(kernel, left), _shape(kernel, right)
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
    return pattern.nnz * _shape(kernel, "mat1")[-1]


def _output_times_last(name: str) -> Formula:
    """Each output element sums over the last dimension of `name`."""
    return lambda kernel: _output_numel(kernel) * _shape(kernel, name)[-1]


def _output_numel(kernel: Kernel) -> int:
    """Elements of the output; of a nested one, those of its parts."""
    if kernel.outputs and kernel.outputs[0].parts:
        return sum(map(prod, kernel.outputs[0].parts))
    return prod(_output(kernel))


def _elements(name: str) -> Formula:
    """One product for each element of `name`."""
    return lambda kernel: prod(_shape(kernel, name))


def _matmul(kernel: Kernel) -> int:
    return prod(_output(kernel)) * _shape(kernel, "self")[-1]


def _convolution(kernel: Kernel) -> int:
    """Weight is (out, in / groups, *window), transposed (in, out / groups, *window)."""
    window = prod(_shape(kernel, "weight")[1:])
    if kernel.attributes.get("transposed"):
        return prod(_shape(kernel, "input")) * window
    return prod(_output(kernel)) * window


def _convolution_of(weight: str) -> Formula:
    return lambda kernel: prod(_output(kernel)) * prod(_shape(kernel, weight)[1:])


def _transposed_convolution_of(source: str, weight: str) -> Formula:
    return lambda kernel: prod(_shape(kernel, source)) * prod(_shape(kernel, weight)[1:])


def _convolution_backward(kernel: Kernel) -> int:
    """The forward's work once for each gradient asked for, input and weight; the bias only sums."""
    window = prod(_shape(kernel, "weight")[1:])
    side = "input" if kernel.attributes.get("transposed") else "grad_output"
    mask = kernel.attributes["output_mask"]
    return prod(_shape(kernel, side)) * window * (int(mask[0]) + int(mask[1]))


def _conv_tbc(kernel: Kernel) -> int:
    window, channels, _ = _shape(kernel, "weight")
    return prod(_output(kernel)) * window * channels


def _attention_of(*names: str) -> Formula:
    """Scores over the head dimension, then values weighted by them; query heads count, shared keys or not."""

    def formula(kernel: Kernel) -> int:
        query, key, value = (_shape(kernel, name) for name in names)
        return prod(query[:-2]) * query[-2] * key[-2] * (query[-1] + value[-1])

    return formula


def _attention_backward(kernel: Kernel) -> int:
    """Scores once more, then gradients of values, weights, queries and keys."""
    query, key, value = (_shape(kernel, name) for name in ("query", "key", "value"))
    return prod(query[:-2]) * query[-2] * key[-2] * (3 * query[-1] + 2 * value[-1])


def _rows_and_padded(kernel: Kernel, name: str) -> tuple[int, int, int, int]:
    """Rows in all, sequences, the longest of them, and the width; of a nested tensor by its parts."""
    value = kernel.input(name)
    if value is not None and value.parts:
        lengths = [part[0] for part in value.parts]
        return sum(lengths), len(lengths), max(lengths), value.parts[0][-1]
    batch, length, width = _shape(kernel, name)
    return batch * length, batch, length, width


def _native_multi_head_attention(kernel: Kernel, query: str = "query", key: str = "key") -> int:
    """Projections of real rows; scores on sequences padded to the longest."""
    rows, batch, queries, width = _rows_and_padded(kernel, query)
    key_rows, _, keys, _ = _rows_and_padded(kernel, key)
    projections = (2 * rows + 2 * key_rows) * width * width  # query and output, key and value
    return projections + 2 * batch * queries * keys * width


def _encoder_layer(kernel: Kernel) -> int:
    rows, *_ = _rows_and_padded(kernel, "src")
    feed_forward = prod(_shape(kernel, "ffn_weight_1")) + prod(_shape(kernel, "ffn_weight_2"))
    return _native_multi_head_attention(kernel, "src", "src") + rows * feed_forward


def _recurrent_layer(kernel: Kernel) -> int:
    """One fused layer: every step multiplies the input weights and the hidden weights."""
    weights = prod(_shape(kernel, "weight0")) + prod(_shape(kernel, "weight1"))
    return _rows(_shape(kernel, "input")) * weights


def _recurrent_layer_backward(kernel: Kernel) -> int:
    weights = prod(_shape(kernel, "weight1")) + prod(_shape(kernel, "weight2"))
    return 2 * _rows(_shape(kernel, "input")) * weights


def _recurrent(parameters: str) -> Formula:
    """A whole recurrent network: each step multiplies every weight matrix once, biases are vectors."""

    def formula(kernel: Kernel) -> int:
        steps = _rows(_shape(kernel, "input" if kernel.input("input") else "data"))
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
    weights = prod(_shape(kernel, "w_ih")) + prod(_shape(kernel, "w_hh"))
    return _rows(_shape(kernel, "input")) * weights


def _quantized_recurrent(gates: int) -> Formula:
    """Weights are opaque here; the state's shape and the settings say how large they must be."""

    def formula(kernel: Kernel) -> int:
        state = next((v for v in kernel.inputs if v.name.startswith("hx")), None)
        if state is None or state.shape is None:
            raise MissingShapeError(f"{kernel.name} shows no state")
        hidden = state.shape[-1]
        source = _shape(kernel, "input" if kernel.input("input") else "data")
        directions = 2 if kernel.attributes["bidirectional"] else 1
        total, width = 0, source[-1]
        for _ in range(kernel.attributes["num_layers"]):
            total += directions * gates * hidden * (width + hidden)
            width = hidden * directions
        return _rows(source) * total

    return formula


def _grouped_product(kernel: Kernel) -> int:
    """Rows, columns or the summed dimension are split into groups; a batch on both sides is a plain one."""
    left = _shape(kernel, "self" if kernel.input("self") else "mat_a")
    right = _shape(kernel, "mat2" if kernel.input("mat2") else "mat_b")
    if len(left) == 3 and len(right) == 2:
        return left[1] * left[2] * right[1]
    return prod(left) * right[-1]


def _bilinear(kernel: Kernel) -> int:
    """First input with the weight, then the result with the second input."""
    outputs, left, right = _shape(kernel, "weight")
    return _rows(_shape(kernel, "input1")) * outputs * right * (left + 1)


def _trilinear(kernel: Kernel) -> int:
    """Two pairwise contractions over the common index space, the first summing what the third lacks."""
    expand1, expand2, expand3 = (kernel.attributes[f"expand{i}"] for i in (1, 2, 3))
    summed = set(kernel.attributes["sumdim"])
    shapes = []
    for name, expand in (("i1", expand1), ("i2", expand2), ("i3", expand3)):
        dims = list(_shape(kernel, name))
        for dim in sorted(expand):
            dims.insert(dim, 1)
        shapes.append(dims)
    space = [max(sizes) for sizes in zip(*shapes, strict=True)]
    first = [max(a, b) for a, b in zip(shapes[0], shapes[1], strict=True)]
    gone = {dim for dim in summed if dim in expand3}
    second = [1 if dim in gone else size for dim, size in enumerate(space)]
    return prod(first) + prod(second)


def _distances(kernel: Kernel) -> int:
    return prod(_output(kernel)) * _shape(kernel, "x1")[-1]


def _quantized_cell(kernel: Kernel) -> int:
    weights = prod(_shape(kernel, "w_ih.weight")) + prod(_shape(kernel, "w_hh.weight"))
    return _rows(_shape(kernel, "input")) * weights


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

FORMULAS: dict[str, Formula] = {
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
    "aten.linear": _output_times_last("weight"),
    "aten.matmul": _matmul,
    "aten._int_mm": _product("self", "mat2"),
    "aten._scaled_mm": _product("self", "mat2"),
    "aten._scaled_mm_v2": _product("self", "mat2"),
    "aten._grouped_mm": _grouped_product,
    "aten._scaled_grouped_mm": _grouped_product,
    "aten._scaled_grouped_mm_v2": _grouped_product,
    "transformers.grouped_mm_fallback": _grouped_product,
    "aten._weight_int8pack_mm": _output_times_last("self"),
    "aten._weight_int4pack_mm": _output_times_last("self"),
    "aten._weight_int4pack_mm_for_cpu": _output_times_last("self"),
    "aten._weight_int4pack_mm_with_scales_and_zeros": _output_times_last("self"),
    "aten._dyn_quant_matmul_4bit": _output_times_last("inp"),
    "aten.mkldnn_linear": _output_times_last("weight"),
    "mkldnn._linear_pointwise": _output_times_last("X"),
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
        2 * prod(_shape(kernel, "self")) * prod(_shape(kernel, "weight")[0::2])
    ),
    "torchvision.deform_conv2d": _convolution_of("weight"),
    **{f"aten.{name}": _attention_of("query", "key", "value") for name in _ATTENTION_KERNELS},
    **{f"aten.{name}_backward": _attention_backward for name in _ATTENTION_KERNELS[2:]},
    # Run as written (not compiled) it computes every score and masks afterwards.
    "higher_order.flex_attention": _attention_of("0", "1", "2"),
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
    "aten._pdist_forward": lambda kernel: prod(_output(kernel)) * _shape(kernel, "self")[-1],
    "aten.linalg_vecdot": _output_times_last("x"),
    **{f"quantized.{name}": _output_times_last("X") for name in _QUANTIZED_LINEARS},
    **{f"onednn.{name}": _output_times_last("qx") for name in ("qlinear_pointwise",)},
    **{f"quantized.{name}": _convolution_of("packed_weight.weight") for name in _QUANTIZED_CONVOLUTIONS},
    **{
        f"quantized.conv_transpose{rank}d{suffix}": _transposed_convolution_of("qx", "packed_weight.weight")
        for rank in (1, 2, 3)
        for suffix in ("", "_dynamic")
    },
}
