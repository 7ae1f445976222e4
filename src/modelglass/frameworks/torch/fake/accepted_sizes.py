"""Sizes that a kernel refuses, where the shape function of fake tensors does not look.

Shape functions leave out what some kernels check: that what is written fits its place, that a dimension is
there. These kernels, found by comparing both over the operators of torch, are given zeros. Most ask only
which sizes are equal, so that small sizes stand for large ones; the rest are asked in their own sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from modelglass.frameworks.torch.describe import tensors_among, unobserved
from modelglass.frameworks.torch.privates import OpOverload

LARGEST_CALL = 2**20  # elements of a call that is asked about in its own sizes

Resize: TypeAlias = Callable[[int], int]

# Kernels for which sizes are the same, one, or different from each other, and nothing else.
_COMPARING = frozenset(
    """
    _batch_norm_with_update _index_put_impl _log_softmax _log_softmax_backward_data _native_batch_norm_legit
    _softmax _softmax_backward_data addmv binary_cross_entropy_with_logits bucketize index_add index_copy
    index_put index_reduce index_select mvlgamma native_batch_norm nll_loss2d_forward nll_loss_forward
    randint_like searchsorted soft_margin_loss
    """.split()
)
# Kernels that count with their sizes.
_COUNTING = frozenset(
    "_scaled_mm _scaled_mm_v2 diagonal_scatter im2col native_group_norm put slice_scatter".split()
)
# Kernels that count with their sizes and take long: they are asked where nothing is left to be done.
_EMPTY_ONLY = frozenset("_fft_c2c _fft_c2r _fft_r2c convolution".split())
_MASKS = (torch.bool, torch.uint8)


def asks_sizes(func: Any) -> bool:
    """Whether this is a kernel that refuses sizes which its shape function accepts."""
    return _name(func) in _COMPARING | _COUNTING | _EMPTY_ONLY


def check_sizes(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
    """Raise what the real kernel raises for arguments of these sizes."""
    name, given = _name(func), (*args, *kwargs.values())
    tensors = list(tensors_among(given))
    if any(each.device.type != "cpu" or each.layout is not torch.strided for each in tensors):
        return
    if name in _EMPTY_ONLY and all(each.numel() for each in (*tensors, *tensors_among([result]))):
        return
    if "index_put" in name and any(each is not None and each.dtype in _MASKS for each in given[1]):
        return  # what a mask selects is not in its size
    is_small = sum(each.numel() for each in tensors) <= LARGEST_CALL
    if name in _COMPARING:
        try:
            _call(func, args, kwargs, _ranks(tensors))
        except (RuntimeError, IndexError, ValueError):
            if not is_small:
                raise
            _call(func, args, kwargs, int)  # so that the error names the sizes that there are
    elif is_small:
        _call(func, args, kwargs, int)


def _name(func: Any) -> str:
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return ""
    name: str = func._schema.name.removeprefix("aten::")
    return name.removesuffix("_")


def _ranks(tensors: Iterable[torch.Tensor]) -> Resize:
    """Small sizes in place of the large: nothing and one stay, equal stay equal, different ones differ."""
    sizes = sorted({size for tensor in tensors for size in tensor.shape} - {0, 1})
    return ({0: 0, 1: 1} | {size: rank for rank, size in enumerate(sizes, 2)}).__getitem__


def _call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], resize: Resize) -> None:
    with unobserved(), torch.no_grad():
        func(
            *(_make(value, resize) for value in args),
            **{name: _make(value, resize) for name, value in kwargs.items()},
        )


def _make(value: Any, resize: Resize) -> Any:
    """Zeros in a tensor's place."""
    if isinstance(value, torch.Tensor):
        return torch.zeros([resize(size) for size in value.shape], dtype=value.dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(_make(item, resize) for item in value)
    return value
