"""Operators that count as nothing, because they are no contractions: a person has looked at each.

The list is not that of modelglass. An operator that is on neither must not pass for free here.
"""

from __future__ import annotations

_MADE = """
    arange empty empty_like eye fill_ full full_like lift_fresh linspace new_empty new_full new_ones
    new_zeros ones ones_like multinomial rand randint randn randn_like randperm scalar_tensor zeros
    zeros_like
"""
_MOVED = """
    _conj _reshape_alias _to_copy _unsafe_index _unsafe_view alias as_strided as_strided_ cat clone col2im
    constant_pad_nd copy_ detach diagonal embedding expand flip gather im2col index index_add index_add_
    index_copy_ index_put index_put_ index_select masked_fill masked_fill_ masked_scatter narrow permute
    pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d repeat repeat_interleave
    replication_pad1d replication_pad2d replication_pad3d resize_ roll scatter scatter_ scatter_add
    scatter_add_ select select_scatter slice slice_scatter split split_with_sizes squeeze squeeze_ stack t
    take transpose tril triu unbind unfold unsafe_split unsqueeze view view_as_complex view_as_real where
"""
_ONE_BY_ONE = """
    _prelu_kernel abs acos add add_ addcmul asin asinh atan atan2 atanh bernoulli bernoulli_ bitwise_and
    bitwise_and_ bitwise_left_shift bitwise_not bitwise_or bitwise_or_ bitwise_right_shift bitwise_xor
    bucketize ceil celu clamp clamp_ clamp_max clamp_min cos div div_ elu elu_ eq erf erfinv exp exp_
    expm1 floor floor_ floor_divide floor_divide_ fmod ge gelu glu gt hardsigmoid hardsigmoid_ hardswish
    hardswish_ hardtanh hardtanh_ isfinite isin isinf isnan le leaky_relu leaky_relu_ lerp log log10 log1p
    log2 log_sigmoid_forward logical_and logical_not logical_or lt maximum minimum mish mul mul_
    nan_to_num ne neg neg_ polar pow pow_ reciprocal relu relu_ remainder round rsqrt rsub searchsorted
    sigmoid sigmoid_ sign silu silu_ sin softplus sqrt square sub sub_ tan tanh tanh_ trunc uniform_
"""
_SUMMED_OR_NORMED = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _embedding_bag_forward_only _is_all_true _log_softmax
    _native_batch_norm_legit _native_batch_norm_legit_no_training _safe_softmax _softmax
    _weight_norm_interface adaptive_max_pool2d all amax amin aminmax any argmax argmin argsort avg_pool1d
    avg_pool2d avg_pool3d bincount count_nonzero cummax cummin cumprod cumsum histc linalg_vector_norm
    logcumsumexp logsumexp max max_pool2d_with_indices max_pool3d_with_indices mean median min mse_loss
    native_batch_norm native_group_norm native_layer_norm nonzero norm prod scatter_reduce scatter_reduce_
    segment_reduce sort std std_mean sum topk unique_consecutive unique_dim _unique2 var var_mean
"""
# Work of other kinds, which by our conventions is not counted in MACs: transforms, interpolation, solving.
_OTHER = """
    _fft_c2c _fft_c2r _fft_r2c _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact2d
    grid_sampler_2d grid_sampler_3d linalg_inv_ex linalg_solve_triangular upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d
"""
_ASKED = "_local_scalar_dense equal is_nonzero sym_size sym_stride"
FREE = frozenset(
    f"aten.{name}"
    for names in (_MADE, _MOVED, _ONE_BY_ONE, _SUMMED_OR_NORMED, _OTHER, _ASKED)
    for name in names.split()
) | {"prim.device"}
