"""Kernels that contract nothing, by name, and those whose arithmetic the convention leaves out.

Kept apart from the formulas because it is a list and nothing else. A name that is missing here and has no
formula is reported as unknown, which is the safe mistake.
"""

from __future__ import annotations


def is_free(name: str) -> bool:
    """Whether the kernel contracts nothing: it moves, compares, reduces or normalises."""
    namespace, _, base = name.partition(".")
    if namespace == "aten":
        return _stem(base) in _FREE or base.startswith("_foreach_")
    if namespace == "mlx":
        return base in _FREE_MLX
    return namespace in _FREE_NAMESPACES or (namespace == "quantized" and base in _FREE_QUANTIZED)


def is_other(name: str) -> bool:
    """Whether the kernel does arithmetic that the convention does not count: transforms, decompositions."""
    namespace, _, base = name.partition(".")
    if namespace == "mlx":
        return base in _OTHER_MLX
    listed = base.startswith(_OTHER_PREFIXES) or _stem(base) in _OTHER
    return namespace == "aten" and listed and base not in _CONTRACTIONS and not is_free(name)


def _stem(base: str) -> str:
    """The name without what marks an in-place, backward or copying variant."""
    for suffix in ("_backward_data", "_backward", "_copy"):
        base = base.removesuffix(suffix)
    return base.strip("_") or base


# Bookkeeping of torch itself: symbolic sizes, profiler marks, random-state handling, communication.
_FREE_NAMESPACES = frozenset({"prim", "prims", "profiler", "rngprims", "_c10d_functional", "c10d"})

_CONTRACTIONS = frozenset({"linalg_vecdot", "linalg_multi_dot", "linalg_matmul"})
_OTHER_PREFIXES = ("_fft", "fft", "linalg_", "_linalg", "stft", "istft")

# The lists below are words by families, one family a paragraph.
_OTHER = frozenset(
    """
    cholesky cholesky_inverse cholesky_solve cholesky_solve_helper geqrf inverse lu_solve lu_unpack
    lu_with_info matrix_exp orgqr ormqr svd triangular_solve logdet slogdet det conv_fft ctc_loss
    cudnn_ctc_loss polygamma householder_product
    """.split()
)

_OTHER_MLX = frozenset("Cholesky Eig Eigh FFT Hadamard Inverse LUF QRF SVD".split())

# MLX's primitives. Compiled ones are element-wise by what they are: nothing else is ever fused.
_FREE_MLX = frozenset(
    """
    Arange AsStrided AsType Broadcast BroadcastAxes Concatenate Contiguous ConvertFP8 Copy CustomTransforms
    Depends DynamicSlice DynamicSliceUpdate ExpandDims Flatten Full Gather GatherAxis Load MaskedScatter
    NumberOfElements Pad RandomBits Reshape Scatter ScatterAxis Slice SliceUpdate Split Squeeze StopGradient
    Transpose Unflatten View AllGather AllReduce Recv ReduceScatter Send

    Abs Add ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTan2 ArcTanh BitwiseBinary BitwiseInvert Ceil Compiled
    Conjugate Cos Cosh DivMod Divide Equal Erf ErfInv Exp Expm1 Floor FloorDivide Greater GreaterEqual Imag
    Less LessEqual Log Log1p LogAddExp LogicalAnd LogicalNot LogicalOr Maximum Minimum Multiply Negative
    NotEqual Power Real Remainder Round Select Sigmoid Sign Sin Sinh Sqrt Square Subtract Tan Tanh

    ArgPartition ArgReduce ArgSort CrossEntropy CrossEntropyVJP LayerNorm LayerNormVJP LogSumExp Partition
    Quantize RMSNorm RMSNormVJP Reduce RoPE Scan SearchSorted Softmax Sort
    """.split()
)

_FREE_QUANTIZED = frozenset(
    """
    add add_out add_relu add_relu_out add_scalar mul mul_out mul_relu mul_scalar cat cat_relu batch_norm
    batch_norm1d batch_norm2d batch_norm3d batch_norm_relu batch_norm1d_relu batch_norm2d_relu
    batch_norm3d_relu layer_norm group_norm instance_norm relu6 leaky_relu hardswish elu celu sigmoid
    softmax max_pool1d max_pool2d dropout prelu clamp threshold embedding_byte embedding_4bit
    embedding_bag_byte embedding_bag_4bit embedding_bag_byte_rowwise_offsets
    embedding_bag_4bit_rowwise_offsets linear_prepack linear_unpack conv2d_prepack
    make_quantized_cell_params make_quantized_cell_params_dynamic
    """.split()
)

_FREE = frozenset(
    """
    empty empty_like empty_strided full full_like zeros zeros_like ones ones_like rand rand_like randn
    randn_like randint randint_like randperm arange linspace eye tril triu tril_indices triu_indices
    new_empty new_empty_strided new_full new_ones new_zeros scalar_tensor lift lift_fresh assert_async
    assert_tensor_metadata assert_scalar sym_size sym_numel sym_stride sym_storage_offset item
    local_scalar_dense is_same_size is_set_to has_same_storage_numel is_nonzero equal resize resize_as set
    record_stream functional_assert_async functional_assert_scalar functional_sym_constrain_range
    sym_constrain_range sym_constrain_range_for_size

    clone contiguous to to_copy copy copy_from copy_from_and_resize detach alias view unsafe_view
    reshape reshape_alias expand expand_as permute transpose t squeeze unsqueeze select slice narrow
    diagonal unbind split split_with_sizes unsafe_split unsafe_split_with_sizes chunk unsafe_chunk
    as_strided unfold view_as_real view_as_complex conj resolve_conj resolve_neg cat concat stack repeat
    repeat_interleave tile roll flip rot90 constant_pad_nd pad reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pad_circular pixel_shuffle
    pixel_unshuffle channel_shuffle im2col col2im block_diag diag diag_embed meshgrid cartesian_prod
    combinations unflatten flatten movedim select_scatter slice_scatter diagonal_scatter
    as_strided_scatter fill fill_diagonal zero unfold_backward

    index index_put index_put_impl unsafe_index unsafe_index_put unsafe_masked_index
    unsafe_masked_index_put_accumulate index_select index_add index_copy index_fill index_reduce gather
    scatter scatter_add scatter_reduce masked_fill masked_select masked_scatter put take nonzero
    nonzero_static where embedding embedding_dense embedding_bag embedding_bag_forward_only
    embedding_renorm embedding_sparse embedding_bag_dense embedding_bag_per_sample_weights one_hot
    bucketize searchsorted isin unique unique2 unique_dim unique_consecutive bincount histc histogram
    sort argsort topk kthvalue mode median nanmedian msort convert_indices_from_csr_to_coo
    convert_indices_from_coo_to_csr

    is_all_true is_any_true sum nansum mean nanmean var var_mean std std_mean prod amax amin aminmax max
    min argmax argmin any all count_nonzero logsumexp norm linalg_vector_norm cumsum cumprod cummax
    cummin logcumsumexp cummax_helper cummin_helper trace dist logaddexp cumulative_trapezoid diff
    renorm

    softmax log_softmax softmax_data safe_softmax masked_softmax native_layer_norm layer_norm
    native_group_norm group_norm native_batch_norm native_batch_norm_legit
    native_batch_norm_legit_no_training native_batch_norm_legit_functional
    native_batch_norm_legit_no_stats batch_norm_with_update batch_norm_no_update batch_norm_impl_index
    batch_norm cudnn_batch_norm miopen_batch_norm batch_norm_stats batch_norm_elemt
    batch_norm_gather_stats batch_norm_update_stats fused_rms_norm rms_norm instance_norm
    local_response_norm weight_norm weight_norm_interface weight_norm_differentiable native_norm
    fused_dropout native_dropout dropout alpha_dropout feature_dropout

    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool1d_with_indices max_pool2d
    max_pool2d_with_indices max_pool3d max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d mkldnn_adaptive_avg_pool2d fractional_max_pool2d fractional_max_pool3d
    max_unpool2d max_unpool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d upsample_bilinear2d_aa upsample_bicubic2d upsample_bicubic2d_aa
    upsample_trilinear3d grid_sampler_2d grid_sampler_3d grid_sampler_2d_cpu_fallback
    affine_grid_generator

    relu gelu silu mish elu celu selu leaky_relu rrelu rrelu_with_noise rrelu_with_noise_functional
    prelu prelu_kernel glu glu_jvp sigmoid tanh hardtanh hardswish hardsigmoid hardshrink softshrink
    softplus log_sigmoid log_sigmoid_forward threshold logit erf special_entr addcmul addcdiv lerp pow
    clamp clamp_min clamp_max nan_to_num fmod remainder floor_divide ger addr outer kron cross
    linalg_cross vander polar complex real imag frexp xlogy special_xlog1py thnn_fused_lstm_cell
    thnn_fused_lstm_cell_backward_impl thnn_fused_gru_cell thnn_differentiable_lstm_cell
    thnn_differentiable_gru_cell sum_to_size

    mse_loss l1_loss smooth_l1_loss huber_loss nll_loss nll_loss_forward nll_loss2d nll_loss2d_forward
    nll_loss_nd cross_entropy_loss binary_cross_entropy binary_cross_entropy_with_logits
    soft_margin_loss multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward kl_div
    cosine_embedding_loss margin_ranking_loss hinge_embedding_loss triplet_margin_loss poisson_nll_loss

    bernoulli multinomial normal uniform random exponential geometric cauchy log_normal poisson binomial
    dirichlet_grad standard_gamma standard_gamma_grad sample_dirichlet

    pack_padded_sequence pad_packed_sequence nested_tensor_from_mask
    nested_tensor_from_mask_left_aligned nested_tensor_from_tensor_list nested_from_padded
    nested_from_padded_and_nested_example nested_view_from_buffer nested_get_values nested_get_offsets
    to_padded_tensor coalesce indices values crow_indices col_indices sparse_coo_tensor_with_dims
    sparse_coo_tensor_with_dims_and_tensors sparse_coo_tensor_unsafe sparse_compressed_tensor_unsafe
    to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc is_coalesced allclose segment_reduce
    to_dense to_sparse to_mkldnn sparse_mask sparse_resize sparse_sum coalesced

    quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel dequantize int_repr q_scale
    q_zero_point q_per_channel_scales q_per_channel_zero_points make_per_tensor_quantized_tensor
    make_per_channel_quantized_tensor choose_qparams_optimized choose_qparams_per_tensor
    fake_quantize_per_tensor_affine fake_quantize_per_channel_affine
    fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask
    fake_quantize_per_tensor_affine_cachemask_tensor_qparams fused_moving_avg_obs_fq_helper
    convert_weight_to_int4pack convert_weight_to_int4pack_for_cpu saturate_weight_to_fp16
    amp_foreach_non_finite_check_and_unscale
    """.split()
)
