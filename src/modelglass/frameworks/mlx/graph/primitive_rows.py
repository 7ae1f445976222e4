"""MLX's primitives, one row each: the function that makes it, its inputs, its arguments in order.

A table and nothing else. Inputs have alternatives of other lengths after a bar, and a starred name is as
many as are left. The function is empty if the class determines it. Where the first argument is a number that
stands for one of several, `choices` lists them in MLX's order, each as the label that a drawing gives it and
the function that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one primitive."""

    function: str = ""
    inputs: str = ""
    arguments: str = ""
    choices: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The function of each choice, by label."""
        return _labels(self.choices)


@cache
def _labels(choices: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for choice in filter(None, choices.split(", ")):
        label, _, function = choice.partition("=")
        found[label] = function
    return found


def _updates(name: str) -> str:
    ways = "Max=maximum, Min=minimum, Sum=add, Prod=multiply"
    written = ", ".join(f"{name} {way.replace('=', '=array.at.')}" for way in ways.split(", "))
    return f"{written}, {name}=array.__setitem__"


_ELEMENTWISE = {
    "a": "Abs ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh BitwiseInvert Ceil Conjugate Contiguous Copy Cos"
    " Cosh Erf ErfInv Exp Expm1 Floor Imag Log1p LogicalNot LogSumExp Negative Real Round Sigmoid Sign Sin"
    " Sinh Square StopGradient Tan Tanh",
    "a b": "Add ArcTan2 Divide DivMod FloorDivide Greater GreaterEqual Less LessEqual LogAddExp LogicalAnd"
    " LogicalOr Matmul Maximum Minimum Multiply NotEqual Power Remainder Subtract",
}
_ATTENTION = "q k v", "q k v mask", "q k v mask sinks"
_GATED = "q k v gamma beta"
_MASKED = "a b mask_out mask_lhs mask_rhs | a b mask_lhs mask_rhs | a b mask_out"
_PACKED = "group_size bits mode"
_SCALES = "global_scale_x global_scale_w"
_BITWISE = "BitwiseAnd=bitwise_and, BitwiseOr=bitwise_or, BitwiseXor=bitwise_xor"
_WINDOW = "stride padding_low padding_high dilation input_dilation groups flip"
_REDUCTIONS = "And=all, Or=any, Sum=sum, Prod=prod, Min=min, Max=max"
_SCANS = "CumMax=cummax, CumMin=cummin, CumSum=cumsum, CumProd=cumprod, CumLogAddExp=logcumsumexp"

ROWS: Mapping[str, Row] = {
    **{name: Row("", inputs) for inputs, names in _ELEMENTWISE.items() for name in names.split()},
    "AddMM": Row("", "a b c", "alpha beta"),
    "AllGather": Row("", "x"),
    "AllReduce": Row("", "x"),
    "Arange": Row("", "", "start stop step"),
    "ArgPartition": Row("", "a", "kth axis"),
    "ArgReduce": Row("", "a", "reduce axis", "ArgMin=argmin, ArgMax=argmax"),
    "ArgSort": Row("", "a", "axis"),
    "AsStrided": Row("", "a", "shape strides offset"),
    "AsType": Row("", "a", "dtype"),
    "BitwiseBinary": Row("", "a b", "op", f"{_BITWISE}, LeftShift=left_shift, RightShift=right_shift"),
    "BlockMaskedMM": Row("", _MASKED, "block_size"),
    "Broadcast": Row("broadcast_to", "a", "shape"),
    "BroadcastAxes": Row("broadcast_arrays", "arrays*", "ignore_axes"),
    "Cholesky": Row("", "a", "upper"),
    "Compiled": Row("", "inputs*"),
    "Concatenate": Row("", "arrays*", "axis"),
    "ConvertFP8": Row("", "x", "to", "FromFP8=from_fp8, ToFP8=to_fp8"),
    "Convolution": Row("conv_general", "input weight", _WINDOW),
    "CrossEntropy": Row("", "logits targets"),
    "CustomKernel": Row("fast.metal_kernel", "inputs*"),
    "CustomTransforms": Row("custom_function", "inputs*"),
    "Depends": Row("", "inputs*"),
    "DynamicSlice": Row("slice", "a start_indices", "axes slice_size"),
    "DynamicSliceUpdate": Row("slice_update", "a update start_indices", "axes"),
    "Eig": Row("", "a", "compute_eigenvectors"),
    "Eigh": Row("", "a", "uplo compute_eigenvectors"),
    "Equal": Row("", "a b", "equal_nan", "Equal=equal, NaNEqual=equal"),
    "ExpandDims": Row("", "a", "axes"),
    "FFT": Row("fft.fft", "a", "axes inverse real odd"),
    "Flatten": Row("", "a", "start_axis end_axis"),
    "Full": Row("", "vals"),
    "GatedDeltaUpdate": Row("", f"{_GATED} | {_GATED} initial_state | {_GATED} initial_state mask"),
    "Gather": Row("take", "a indices*", "axes slice_sizes"),
    "GatherAxis": Row("take_along_axis", "a indices", "axis"),
    "GatherMM": Row("", "a b lhs_indices rhs_indices", "left_sorted right_sorted"),
    "GatherQMM": Row(
        "",
        "x w scales biases lhs_indices rhs_indices | x w scales lhs_indices rhs_indices",
        f"{_PACKED} transpose left_sorted right_sorted",
    ),
    "GatherQQMM": Row("", "x w scales lhs_indices rhs_indices", f"{_PACKED} left_sorted right_sorted"),
    "Hadamard": Row("hadamard_transform", "a", "scale"),
    "Inverse": Row("linalg.inv", "a", "tri upper"),
    "LUF": Row("linalg.lu_factor", "a"),
    "LayerNorm": Row("", "x weight bias", "eps"),
    "LayerNormVJP": Row("", "x weight bias cotangent", "eps"),
    "Log": Row("", "a", "base", "Log2=log2, Log10=log10, Log=log"),
    "MaskedScatter": Row("array.__setitem__", "a mask updates"),
    "NumberOfElements": Row("", "a", "axes inverted dtype"),
    "Pad": Row("", "a constant_values", "axes low_pad high_pad"),
    "Partition": Row("", "a", "kth axis"),
    "QQMatmul": Row("qqmm", f"x w | x w scales | x w {_SCALES} | x w scales {_SCALES}", _PACKED),
    "QRF": Row("linalg.qr", "a"),
    "Quantize": Row("", "w | w scales | w scales biases", f"{_PACKED} dequantize"),
    "QuantizedMatmul": Row("", "x w scales biases | x w scales", f"{_PACKED} transpose"),
    "RMSNorm": Row("", "x weight", "eps"),
    "RMSNormVJP": Row("", "x weight cotangent", "eps"),
    "RandomBits": Row("", "key", "shape width"),
    "Reduce": Row("", "a", "reduce axes", _REDUCTIONS),
    "ReduceScatter": Row("distributed.sum_scatter", "x"),
    "Reshape": Row("", "a", "shape"),
    "RoPE": Row("", "a offset | a offset freqs", "dims traditional base scale forward"),
    "SVD": Row("", "a", "compute_uv"),
    "ScaledDotProductAttention": Row(
        "", " | ".join(_ATTENTION), "scale do_causal has_sinks output_logsumexp force_fused"
    ),
    "ScaledDotProductAttentionVJP": Row(
        "",
        " | ".join(f"{names} output logsumexp cotangent" for names in _ATTENTION),
        "scale do_causal has_sinks",
    ),
    "Scan": Row("", "a", "reduce axis reverse inclusive", _SCANS),
    "Scatter": Row("", "a indices* updates", "reduce axes", _updates("Scatter")),
    "ScatterAxis": Row(
        "", "a indices updates", "reduce axis", "ScatterAxis Sum=, ScatterAxis=put_along_axis"
    ),
    "SearchSorted": Row("", "sorted_sequence values", "right"),
    "SegmentedMM": Row("", "a b segments"),
    "Select": Row("where", "condition x y"),
    "Send": Row("", "x"),
    "Slice": Row("array.__getitem__", "a", "start stop strides"),
    "SliceUpdate": Row("", "a update", "reduce start stop strides", _updates("SliceUpdate")),
    "Softmax": Row("", "a", "precise"),
    "Sort": Row("", "a", "axis"),
    "Split": Row("", "a", "indices axis"),
    "Sqrt": Row("", "a", "reciprocal", "Sqrt=sqrt, Rsqrt=rsqrt"),
    "Squeeze": Row("", "a", "axes"),
    "Transpose": Row("", "a", "axes"),
    "Unflatten": Row("", "a", "axis shape"),
    "View": Row("", "a", "dtype"),
}
