"""Values that a fake run knows: small tensors that follow from the whole numbers and booleans it is given.

Models look at masks, positions and lengths to decide what to run: whether a mask hides anything, where a
sequence ends. Such tensors are small, so their real values travel beside the fake ones, by the same
kernels, and a question about them gets the answer that a real run would get.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from modelglass.frameworks.torch.describe import memory_of, tensors_among, unobserved
from modelglass.frameworks.torch.process import replace_here
from modelglass.undo import UndoLog

LARGEST = 2**23  # bytes of memory; what decides is small
_WHOLE = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_REAL = frozenset({torch.float32, torch.float64})
LARGEST_REAL = 2**22  # bytes
_UNFILLED = frozenset({torch.ops.aten.empty.memory_format, torch.ops.aten.new_empty.default})
# Kernels that look at nothing but the shape of what they are given, and which number they fill it with.
_FILLED: Mapping[Any, Any] = {
    torch.ops.aten.zeros.default: lambda args: 0,
    torch.ops.aten.ones.default: lambda args: 1,
    torch.ops.aten.full.default: lambda args: args[1],
    torch.ops.aten.new_zeros.default: lambda args: 0,
    torch.ops.aten.new_ones.default: lambda args: 1,
    torch.ops.aten.new_full.default: lambda args: args[2],
    torch.ops.aten.zeros_like.default: lambda args: 0,
    torch.ops.aten.ones_like.default: lambda args: 1,
    torch.ops.aten.full_like.default: lambda args: args[1],
}
_KEY = "_modelglass_values"
NOTHING = object()  # no answer, where None could be one


@dataclass(frozen=True, slots=True)
class _Everywhere:
    """One number in all places of a tensor, which takes no memory until somebody looks at it.

    An optimizer makes two such tensors for each weight, and no model asks what is in them.
    """

    number: Any


def is_knowable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a kind whose values are followed."""
    return tensor.dtype in _WHOLE and tensor.untyped_storage().nbytes() <= LARGEST


def _is_followed(tensor: torch.Tensor) -> bool:
    """Masks are often made as floating numbers of whole ones, or of nothing but their shape."""
    small = tensor.dtype in _REAL and tensor.untyped_storage().nbytes() <= LARGEST_REAL
    return small or is_knowable(tensor)


def tell(tensor: torch.Tensor, values: torch.Tensor | _Everywhere) -> None:
    """Say what the values of a fake tensor are."""
    tensor.__dict__[_KEY] = values


def is_known(tensor: torch.Tensor) -> bool:
    """Whether there is an answer to what the values of a tensor are."""
    if isinstance(tensor, FakeTensor) or _KEY in tensor.__dict__:
        return _KEY in tensor.__dict__
    is_number = tensor.dtype in _REAL and tensor.dim() == 0  # as Python's own become when they meet tensors
    return (
        tensor.device.type == "cpu" and tensor.layout is torch.strided and (is_number or is_knowable(tensor))
    )


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor, or None when they are not known."""
    if not is_known(tensor):
        return None
    known = tensor.__dict__.get(_KEY)
    if known is None:
        with unobserved():
            return tensor.clone()  # somebody else's: what the run writes goes elsewhere
    if isinstance(known, _Everywhere):
        known = _full_of(known.number, tensor)
        tell(tensor, known)
    return known


class Known:
    """Follows values through the kernels of one run."""

    def __init__(self) -> None:
        self._changed: set[int | None] = set()  # memory that something unknown was written to

    def asked(self, func: Any, args: tuple[Any, ...]) -> Any:
        """The number that a kernel reads off a tensor whose value is known; else `NOTHING`."""
        if func is torch.ops.aten._local_scalar_dense.default:
            values = self._value(args[0])
            if values is not None:
                return values.item()
        return NOTHING

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> None:
        """Tell the values of a kernel's results when all that it was given is known."""
        results = result if isinstance(result, (list, tuple)) else (result,)
        if self._changed:
            self._forget_old_memory(results, args, kwargs)
        if not results or not all(type(each) is FakeTensor and _is_followed(each) for each in results):
            return
        if func in _UNFILLED and results[0].device.type == "cpu" and is_knowable(results[0]):
            # Sizes and positions are often written one by one into a tensor that holds nothing yet.
            tell(results[0], _Everywhere(0))
            return
        if func in _FILLED and results[0].device.type == "cpu":
            tell(results[0], _Everywhere(_FILLED[func](args)))
            return
        drawn = func is torch.ops.aten.rand.default and results[0].numel() == 1  # luck decides in any run
        determined = drawn or _is_determined(func)
        if not determined or results[0].device.type != "cpu" or not self._knows_all(args, kwargs):
            if func._schema.is_mutable:
                self._changed.add(memory_of(results[0]))
                results[0].__dict__.pop(_KEY, None)  # what nobody can ask for any more takes no memory
            return
        real = _computed(func, args, kwargs)
        for fake, values in zip(results, real if isinstance(real, (list, tuple)) else (real,), strict=True):
            tell(fake, values)

    def _forget_old_memory(
        self, results: Sequence[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """New memory may be where some was that is gone, and is not what was written to that."""
        made = {memory_of(each) for each in results if type(each) is FakeTensor} & self._changed
        if made:
            self._changed -= made - {memory_of(each) for each in tensors_among((*args, *kwargs.values()))}

    def computed(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a kernel gives for real, when all that it is given is known; else `NOTHING`."""
        if not _is_determined(func) or not self._knows_all(args, kwargs):
            return NOTHING
        return _computed(func, args, kwargs)

    def places(self, mask: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
        """Where a mask is set, as indices for each of its dimensions; None when that is not known."""
        values = self._value(mask)
        if values is None:
            return None
        with unobserved():
            return values.nonzero(as_tuple=True)

    def _knows(self, tensor: torch.Tensor) -> bool:
        return is_known(tensor) and memory_of(tensor) not in self._changed

    def _knows_all(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        return all(map(self._knows, tensors_among((*args, *kwargs.values()))))

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        return value_of(tensor) if self._knows(tensor) else None


def show_known_values(log: UndoLog) -> None:
    """Tell values that are known to those who would not ask: transformers, and `torch.tensor`."""
    home = sys.modules.get("transformers.utils.import_utils")
    if hasattr(home, "is_fake_tensor"):  # which takes every fake tensor for a sign of tracing
        replace_here(log, home, "is_fake_tensor", lambda ask: lambda x: ask(x) and not is_known(x))
    replace_here(log, torch, "tensor", _with_numbers)


def _with_numbers(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`torch.tensor` taking numbers for tensors of one: it reads their memory, and fake ones have none."""

    def tensor(data: Any, **options: Any) -> torch.Tensor:
        return make(_numbers(data) if isinstance(data, (list, tuple)) else data, **options)

    return tensor


def _numbers(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_numbers(item) for item in data]
    known = value_of(data) if isinstance(data, FakeTensor) else None
    return data if known is None or known.dim() else known.item()


def _full_of(number: Any, fake: torch.Tensor) -> torch.Tensor:
    """Memory laid out as that of a fake tensor: what can be viewed of the one can be viewed of the other."""
    with unobserved():
        return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="cpu").fill_(number)


def _computed(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What a kernel gives for real, of arguments that are all known."""
    known = {id(tensor): value_of(tensor) for tensor in tensors_among((*args, *kwargs.values()))}
    with unobserved():
        return func(*_real(args, known), **_real(dict(kwargs), known))


def _real(value: Any, known: Mapping[int, Any]) -> Any:
    """The arguments with values in the place of fake tensors."""
    if isinstance(value, torch.Tensor):
        return known[id(value)]
    if isinstance(value, (list, tuple)):
        return type(value)(_real(item, known) for item in value)
    if isinstance(value, dict):
        return {key: _real(item, known) for key, item in value.items()}
    return value


@cache
def _is_determined(func: Any) -> bool:
    """Whether the same arguments give the same values: nothing random, nothing left as it was in memory."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return False
    return torch.Tag.nondeterministic_seeded not in func.tags and not func._schema.name.startswith(
        ("aten::empty", "aten::new_empty", "aten::rand")
    )
