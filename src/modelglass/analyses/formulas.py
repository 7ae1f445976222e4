"""Multiply-accumulates of one kernel, as pure functions of the shapes it met.

Convention: contractions only (products that are summed over an index): matrix products, convolutions,
attention scores and their application, recurrent gates. Bias, normalisation, softmax and element-wise work
count zero; zeros that padding adds count like any other element. Kernels are named as `namespace.name`.

Names that do arithmetic and are in none of the tables are unknown: better a hole than a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from modelglass.report import Kernel, Shape
from modelglass.report.dtypes import is_complex

Formula = Callable[[Kernel], int | None]

COMPLEX_FACTOR = 4  # one complex product is four real ones


def macs_of(kernel: Kernel) -> int | None:
    """The kernel's multiply-accumulates; 0 when it contracts nothing; None when no formula covers it."""
    formula = _registered.get(kernel.name) or FORMULAS.get(kernel.name)
    if formula is None:
        return 0 if is_free(kernel.name) or is_other(kernel.name) else None
    try:
        macs = formula(kernel)
    except MissingShape:
        return None
    if macs and any(is_complex(value.dtype) for value in kernel.inputs):
        return COMPLEX_FACTOR * macs
    return macs


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
    return name in _registered or name in FORMULAS


def is_free(name: str) -> bool:
    """Whether the kernel contracts nothing: it moves, compares, reduces or normalises."""
    namespace, _, base = name.partition(".")
    if namespace == "aten":
        return _stem(base) in _FREE or base.startswith("_foreach_")
    return namespace in _FREE_NAMESPACES or name in _FREE_ELSEWHERE


def is_other(name: str) -> bool:
    """Whether the kernel does arithmetic that the convention does not count: transforms, decompositions."""
    namespace, _, base = name.partition(".")
    listed = base.startswith(_OTHER_PREFIXES) or _stem(base) in _OTHER
    return namespace == "aten" and listed and not is_free(name)


class MissingShape(Exception):
    """A formula asked for a shape that the run did not show (a nested tensor, an absent argument)."""


_registered: dict[str, Formula] = {}


def _shape(kernel: Kernel, name: str) -> Shape:
    value = kernel.input(name)
    if value is None or value.shape is None:
        raise MissingShape(f"{kernel.name} has no shape for {name}")
    return value.shape


def _output(kernel: Kernel) -> Shape:
    if not kernel.outputs or kernel.outputs[0].shape is None:
        raise MissingShape(f"{kernel.name} has no output shape")
    return kernel.outputs[0].shape


def _rows(shape: Shape) -> int:
    return prod(shape[:-1])


def _product(left: str, right: str) -> Formula:
    """A matrix product of two named inputs; a sparse left side costs its stored elements."""

    def formula(kernel: Kernel) -> int:
        a, b = _shape(kernel, left), _shape(kernel, right)
        columns = b[-1] if len(b) > 1 else 1
        sparse = kernel.input(left)
        if sparse is not None and sparse.nnz is not None:
            return sparse.nnz * columns
        return prod(a) * columns

    return formula


def _output_times_last(name: str) -> Formula:
    """Each output element sums over the last dimension of `name`."""
    return lambda kernel: prod(_output(kernel)) * _shape(kernel, name)[-1]


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


def _attention(kernel: Kernel) -> int:
    """Scores over the head dimension, then values weighted by them; query heads count, shared keys or not."""
    query, key, value = (_shape(kernel, name) for name in ("query", "key", "value"))
    return prod(query[:-2]) * query[-2] * key[-2] * (query[-1] + value[-1])


def _attention_backward(kernel: Kernel) -> int:
    """Scores once more, then gradients of values, weights, queries and keys."""
    query, key, value = (_shape(kernel, name) for name in ("query", "key", "value"))
    return prod(query[:-2]) * query[-2] * key[-2] * (3 * query[-1] + 2 * value[-1])


def _multi_head(batch: int, queries: int, keys: int, width: int) -> int:
    projections = (2 * queries + 2 * keys) * width * width  # query and output, key and value
    return batch * (projections + 2 * queries * keys * width)


def _native_multi_head_attention(kernel: Kernel) -> int:
    batch, queries, width = _shape(kernel, "query")
    return _multi_head(batch, queries, _shape(kernel, "key")[1], width)


def _encoder_layer(kernel: Kernel) -> int:
    batch, length, width = _shape(kernel, "src")
    feed_forward = prod(_shape(kernel, "ffn_weight_1")) + prod(_shape(kernel, "ffn_weight_2"))
    return _multi_head(batch, length, length, width) + batch * length * feed_forward


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
            raise MissingShape(f"{kernel.name} shows no weights")
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
            raise MissingShape(f"{kernel.name} shows no state")
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
    return prod(_shape(kernel, "x1")) * _shape(kernel, "x2")[-2]


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
    "aten.sparse_sampled_addmm": lambda kernel: (
        (kernel.input("self").nnz or 0) * _shape(kernel, "mat1")[-1]  # type: ignore[union-attr]
    ),
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
    **{
        f"aten.conv_transpose{rank}d": _transposed_convolution_of("input", "weight")
        for rank in (1, 2, 3)
    },
    "aten.cudnn_convolution_transpose": _transposed_convolution_of("self", "weight"),
    "aten.slow_conv_transpose2d": _transposed_convolution_of("self", "weight"),
    "aten.slow_conv_transpose3d": _transposed_convolution_of("self", "weight"),
    "aten.conv_tbc": _conv_tbc,
    "aten.conv_tbc_backward": lambda kernel: 2 * prod(_shape(kernel, "self"))
    * prod(_shape(kernel, "weight")[0::2]),
    "torchvision.deform_conv2d": _convolution_of("weight"),
    **{f"aten.{name}": _attention for name in _ATTENTION_KERNELS},
    **{f"aten.{name}_backward": _attention_backward for name in _ATTENTION_KERNELS[2:]},
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
    "aten.bilinear": _bilinear,
    "aten._trilinear": _trilinear,
    "aten._cdist_forward": _distances,
    "aten._euclidean_dist": _distances,
    "aten._pdist_forward": lambda kernel: prod(_output(kernel)) * _shape(kernel, "self")[-1],
    "aten.linalg_vecdot": _elements("x"),
    **{f"quantized.{name}": _output_times_last("X") for name in _QUANTIZED_LINEARS},
    **{f"onednn.{name}": _output_times_last("qx") for name in ("qlinear_pointwise",)},
    **{
        f"quantized.{name}": _convolution_of("packed_weight.weight")
        for name in _QUANTIZED_CONVOLUTIONS
    },
    **{
        f"quantized.conv_transpose{rank}d{suffix}": _transposed_convolution_of(
            "qx", "packed_weight.weight"
        )
        for rank in (1, 2, 3)
        for suffix in ("", "_dynamic")
    },
}


def _stem(base: str) -> str:
    """The name without what marks an in-place, backward or copying variant."""
    for suffix in ("_backward_data", "_backward", "_copy"):
        base = base.removesuffix(suffix)
    return base.strip("_") or base


# Bookkeeping of torch itself: symbolic sizes, profiler marks, random-state handling, communication.
_FREE_NAMESPACES = frozenset(
    {"prim", "prims", "profiler", "rngprims", "higher_order_print", "_c10d_functional", "c10d"}
)

_FREE_ELSEWHERE = frozenset(
    f"quantized.{name}"
    for name in """
    add add_out add_relu add_relu_out add_scalar mul mul_out mul_relu mul_scalar cat cat_relu batch_norm
    batch_norm1d batch_norm2d batch_norm3d batch_norm_relu batch_norm1d_relu batch_norm2d_relu
    batch_norm3d_relu layer_norm group_norm instance_norm relu6 leaky_relu hardswish elu celu sigmoid softmax
    max_pool1d max_pool2d dropout prelu clamp threshold embedding_byte embedding_4bit embedding_bag_byte
    embedding_bag_4bit embedding_bag_byte_rowwise_offsets embedding_bag_4bit_rowwise_offsets linear_prepack
    linear_unpack conv2d_prepack make_quantized_cell_params make_quantized_cell_params_dynamic
    """.split()
)

_OTHER_PREFIXES = ("_fft", "fft", "linalg_", "_linalg", "stft", "istft")

_OTHER = frozenset(
    """
    cholesky cholesky_inverse cholesky_solve cholesky_solve_helper geqrf inverse lu_solve lu_unpack
    lu_with_info matrix_exp orgqr ormqr svd triangular_solve logdet slogdet det conv_fft ctc_loss
    cudnn_ctc_loss polygamma householder_product
    """.split()
)

# Names by their stems (see `_stem`), a family a line.
_FREE = frozenset(
    """
    empty empty_like empty_strided full full_like zeros zeros_like ones ones_like rand rand_like randn
    randn_like randint randint_like randperm arange linspace eye tril triu tril_indices triu_indices
    new_empty new_empty_strided new_full new_ones new_zeros scalar_tensor lift lift_fresh assert_async
    assert_tensor_metadata assert_scalar sym_size sym_numel sym_stride sym_storage_offset item
    local_scalar_dense is_same_size is_nonzero equal resize resize_as set record_stream functional_assert_async
    functional_assert_scalar functional_sym_constrain_range sym_constrain_range sym_constrain_range_for_size

    clone contiguous to to_copy copy copy_from copy_from_and_resize detach alias view unsafe_view reshape reshape_alias
    expand expand_as permute transpose t squeeze unsqueeze select slice narrow diagonal unbind split
    split_with_sizes unsafe_split unsafe_split_with_sizes chunk unsafe_chunk as_strided unfold view_as_real
    view_as_complex conj resolve_conj resolve_neg cat concat stack repeat repeat_interleave tile roll flip rot90
    constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d pad_circular pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im block_diag diag
    diag_embed meshgrid cartesian_prod combinations unflatten flatten movedim select_scatter slice_scatter
    diagonal_scatter as_strided_scatter fill fill_diagonal zero unfold_backward

    index index_put index_put_impl unsafe_index unsafe_index_put unsafe_masked_index
    unsafe_masked_index_put_accumulate index_select index_add index_copy index_fill index_reduce gather scatter
    scatter_add scatter_reduce masked_fill masked_select masked_scatter put take nonzero
    nonzero_static where embedding embedding_dense embedding_bag embedding_bag_forward_only embedding_renorm
    embedding_sparse embedding_bag_dense embedding_bag_per_sample_weights one_hot bucketize searchsorted isin
    unique unique2 unique_dim unique_consecutive bincount histc histogram sort argsort topk kthvalue mode median nanmedian msort
    convert_indices_from_csr_to_coo convert_indices_from_coo_to_csr

    is_all_true is_any_true sum nansum mean nanmean var var_mean std std_mean prod amax amin aminmax max min argmax argmin any all
    count_nonzero logsumexp norm linalg_vector_norm cumsum cumprod cummax cummin logcumsumexp cummax_helper
    cummin_helper trace dist logaddexp cumulative_trapezoid diff renorm

    softmax log_softmax softmax_data safe_softmax masked_softmax native_layer_norm layer_norm native_group_norm group_norm
    native_batch_norm native_batch_norm_legit native_batch_norm_legit_no_training native_batch_norm_legit_functional
    native_batch_norm_legit_no_stats batch_norm_with_update batch_norm_no_update batch_norm_impl_index batch_norm
    cudnn_batch_norm miopen_batch_norm batch_norm_stats batch_norm_elemt batch_norm_gather_stats
    batch_norm_update_stats fused_rms_norm rms_norm instance_norm local_response_norm weight_norm
    weight_norm_interface weight_norm_differentiable native_norm fused_dropout native_dropout dropout
    alpha_dropout feature_dropout

    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices
    max_pool3d max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d mkldnn_adaptive_avg_pool2d fractional_max_pool2d
    fractional_max_pool3d max_unpool2d max_unpool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    upsample_bilinear2d_aa upsample_bicubic2d upsample_bicubic2d_aa upsample_trilinear3d grid_sampler_2d
    grid_sampler_3d grid_sampler_2d_cpu_fallback affine_grid_generator

    relu gelu silu mish elu celu selu leaky_relu rrelu rrelu_with_noise rrelu_with_noise_functional prelu
    prelu_kernel glu glu_jvp sigmoid tanh hardtanh hardswish hardsigmoid hardshrink softshrink softplus
    log_sigmoid log_sigmoid_forward threshold logit erf special_entr addcmul addcdiv lerp pow clamp clamp_min
    clamp_max nan_to_num fmod remainder floor_divide ger addr outer kron cross linalg_cross vander polar complex
    real imag frexp xlogy special_xlog1py thnn_fused_lstm_cell thnn_fused_lstm_cell_backward_impl
    thnn_fused_gru_cell thnn_differentiable_lstm_cell thnn_differentiable_gru_cell sum_to_size

    mse_loss l1_loss smooth_l1_loss huber_loss nll_loss nll_loss_forward nll_loss2d nll_loss2d_forward
    nll_loss_nd cross_entropy_loss binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss
    multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward kl_div cosine_embedding_loss
    margin_ranking_loss hinge_embedding_loss triplet_margin_loss poisson_nll_loss

    bernoulli multinomial normal uniform random exponential geometric cauchy log_normal poisson binomial dirichlet_grad
    standard_gamma standard_gamma_grad sample_dirichlet

    pack_padded_sequence pad_packed_sequence nested_tensor_from_mask nested_tensor_from_mask_left_aligned
    nested_tensor_from_tensor_list nested_from_padded nested_from_padded_and_nested_example nested_view_from_buffer
    nested_get_values nested_get_offsets to_padded_tensor coalesce indices values crow_indices col_indices
    sparse_coo_tensor_with_dims sparse_coo_tensor_with_dims_and_tensors sparse_coo_tensor_unsafe
    sparse_compressed_tensor_unsafe to_dense to_sparse to_mkldnn sparse_mask sparse_resize sparse_sum coalesced

    quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize int_repr q_scale q_zero_point
    q_per_channel_scales q_per_channel_zero_points make_per_tensor_quantized_tensor
    make_per_channel_quantized_tensor choose_qparams_optimized choose_qparams_per_tensor
    fake_quantize_per_tensor_affine fake_quantize_per_channel_affine
    fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
    fake_quantize_per_tensor_affine_cachemask_tensor_qparams fused_moving_avg_obs_fq_helper convert_weight_to_int4pack
    convert_weight_to_int4pack_for_cpu saturate_weight_to_fp16 amp_foreach_non_finite_check_and_unscale
    """.split()
)
