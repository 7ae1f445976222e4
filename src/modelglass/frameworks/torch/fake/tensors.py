"""Substitutes for the user's tensors during an observed run."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.torch.fake.known_values import is_knowable, set_value
from modelglass.frameworks.torch.privates import (
    DisableTorchFunctionSubclass,
    FakeTensor,
    FakeTensorMode,
    is_traceable_wrapper_subclass,
)
from modelglass.frameworks.torch.structure.sharing import Copies

PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)


class CannotFakeError(Exception):
    """A tensor of a kind that has no fake form."""


class DtypeCast:
    """Which tensors get substitutes of another element type: what `model.to(dtype)` casts, and inputs."""

    def __init__(self, dtype: torch.dtype | None = None, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._dtype = dtype
        self._cast = {id(tensor) for tensor in tensors} if dtype is not None else set()

    def dtype_of(self, tensor: torch.Tensor) -> torch.dtype:
        """The element type of the tensor's substitute."""
        if self._dtype is not None and id(tensor) in self._cast and tensor.is_floating_point():
            return self._dtype
        return tensor.dtype


class FakeTensors:
    """Tensors of the same shape, type, device and memory layout, with no memory behind them.

    Tensors that share memory have substitutes that share it. A tensor on `meta` has no usable device; its
    substitute is on the CPU, so that the kernels seen are a real device's.
    """

    def __init__(self, mode: FakeTensorMode, cast: DtypeCast | None = None) -> None:
        self._mode = mode
        self._cast = cast or DtypeCast()
        # Weak: memory that the run exchanges for other (`param.data = ...`) is given back then.
        self._storages: WeakValueDictionary[_Memory, torch.UntypedStorage] = WeakValueDictionary()
        self._copies: dict[_Memory, torch.UntypedStorage] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if isinstance(tensor, FakeTensor):
            return self._adopt(tensor)
        if is_lazy(tensor):
            return _copy_lazy(tensor)
        if tensor.layout is not torch.strided:
            raise CannotFakeError("the cost of sparse tensors is in their values")
        if _has_class_of_its_own(tensor) and not tensor.is_meta:
            raise CannotFakeError(
                f"{type(tensor).__name__} is a class of its own, which fake tensors are not"
            )
        if type(tensor) not in PLAIN or not _is_dense(tensor):
            return self._unusual(tensor)
        dtype = self._cast.dtype_of(tensor)
        bare = torch.empty(0, dtype=dtype, device="meta").set_(
            self._storage(tensor, dtype), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
        if tensor.requires_grad:
            bare.requires_grad_()
        device = torch.device("cpu") if tensor.is_meta else tensor.device
        substitute: Any = FakeTensor(self._mode, bare, device)
        # What nn.Parameter and nn.Buffer would set, without the operator they would run for it.
        substitute._is_param = isinstance(tensor, nn.Parameter)
        substitute._is_buffer = isinstance(tensor, nn.Buffer)
        if is_knowable(tensor) and tensor.device.type == "cpu":
            set_value(substitute, self._values(tensor))
        return _with_extras(tensor, substitute)

    def _values(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor's values in memory of our own, shared as theirs is: the run may write to it."""
        original = tensor.untyped_storage()
        key = _memory_key(original)
        if key not in self._copies:
            self._copies[key] = original.clone()
        place = tensor.storage_offset(), tensor.shape, tensor.stride()
        return torch.empty(0, dtype=tensor.dtype).set_(self._copies[key], *place)

    def _unusual(self, tensor: torch.Tensor) -> torch.Tensor:
        """Quantized, nested, wrapped: torch itself knows how, or does not."""
        try:
            return _with_role(tensor, self._mode.from_tensor(tensor.detach()))
        except Exception as cause:
            raise CannotFakeError(f"{type(tensor).__name__}: {cause}") from cause

    def _storage(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.UntypedStorage:
        original = tensor.untyped_storage()
        key = _memory_key(original)
        storage = self._storages.get(key)
        if storage is None:
            nbytes = original.nbytes() // tensor.dtype.itemsize * dtype.itemsize
            storage = self._storages[key] = torch.UntypedStorage(nbytes, device="meta")
        return storage

    def _adopt(self, tensor: FakeTensor) -> torch.Tensor:
        """A fake tensor of another mode as one of ours; modes refuse each other's tensors."""
        with self._mode:
            bare = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.fake_device
            )
        return _with_role(tensor, bare)


class TensorCopies:
    """Copies in memory of our own, shared as theirs is: what a run writes reaches no tensor of the user's."""

    def __init__(self, cast: DtypeCast | None = None) -> None:
        self._cast = cast or DtypeCast()
        self._copies = Copies()
        self._freed: dict[int, torch.UntypedStorage] = {}  # by the storage that was given back to the system

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if is_lazy(tensor):
            return _copy_lazy(tensor)
        if _has_class_of_its_own(tensor):
            with DisableTorchFunctionSubclass():
                copied = tensor.detach().clone().to(self._cast.dtype_of(tensor)).as_subclass(type(tensor))
                copied.requires_grad_(tensor.requires_grad)
            return _with_extras(tensor, copied)
        if type(tensor) not in PLAIN and tensor.is_leaf:
            return deepcopy(tensor)
        if _is_freed(tensor):
            return _with_role(tensor, self._without_memory(tensor))
        substitute = _with_role(tensor, tensor.detach().clone().to(self._cast.dtype_of(tensor)))
        if type(tensor) in PLAIN and _is_dense(tensor):
            self._copies.add(tensor, substitute)
        return substitute

    def _without_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        key = tensor.untyped_storage()._cdata
        storage = self._freed.setdefault(key, torch.UntypedStorage(0, device=tensor.device))
        bare = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        bare.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
        storage.resize_(0)
        return bare


def _is_freed(tensor: torch.Tensor) -> bool:
    """Whether a tensor's memory was given back, and is taken again before use, as gathered weights' is."""
    is_plain = type(tensor) in PLAIN and _is_dense(tensor) and not tensor.is_meta
    return is_plain and tensor.numel() > 0 and tensor.untyped_storage().nbytes() == 0


def _has_class_of_its_own(tensor: torch.Tensor) -> bool:
    """Whether a plain tensor has a class, and so methods, of its own. Kinds of parameters do not count."""
    cls = type(tensor)
    if cls in PLAIN or issubclass(cls, nn.Parameter):
        return False
    is_plain: bool = cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    return is_plain and not is_traceable_wrapper_subclass(tensor)


def _copy_lazy(tensor: Any) -> torch.Tensor:
    """Another tensor that waits for its first input."""
    substitute: torch.Tensor = type(tensor)(
        requires_grad=tensor.requires_grad, device=tensor.data.device, dtype=tensor.data.dtype
    )
    return substitute


def _with_role(original: torch.Tensor, substitute: torch.Tensor) -> torch.Tensor:
    """The substitute in the original's role: parameter or not, trainable or not."""
    if isinstance(original, nn.Parameter):
        substitute = nn.Parameter(substitute, requires_grad=original.requires_grad)
    elif original.requires_grad:
        substitute.requires_grad_()
    elif isinstance(original, nn.Buffer):
        substitute = nn.Buffer(substitute)
    return _with_extras(original, substitute)


def _with_extras(original: torch.Tensor, substitute: torch.Tensor) -> torch.Tensor:
    """The substitute with the attributes that people hang on their tensors."""
    extras: dict[str, Any] = vars(original)
    if extras:
        substitute.__dict__.update({k: v for k, v in extras.items() if k not in substitute.__dict__})
    return substitute


_Memory: TypeAlias = tuple[int, int]


def _memory_key(storage: torch.UntypedStorage) -> _Memory:
    """A key of the same bytes: two objects may stand for them, as for an array made a tensor twice."""
    address = 0 if storage.device.type == "meta" else storage.data_ptr()
    return (address, storage.nbytes()) if address else (storage._cdata, -1)


def _is_dense(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
    )
