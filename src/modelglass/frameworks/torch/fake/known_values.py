"""Values that a fake run knows: small tensors that follow from the whole numbers and booleans it is given.

Models look at masks, positions and lengths to decide what to run: whether a mask hides anything, where a
sequence ends. Such tensors are small, so their real values travel beside the fake ones, by the same
kernels, and a question about them gets the answer that a real run would get.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from modelglass.frameworks.torch.describe import memory_of, tensors_among, unobserved
from modelglass.frameworks.torch.privates import FakeTensor, OpOverload
from modelglass.frameworks.torch.process import during, replace_here
from modelglass.undo import UndoLog

LARGEST = 2**23  # bytes of memory; what decides is small
_WHOLE = frozenset({torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_REAL = frozenset({torch.float32, torch.float64})
LARGEST_REAL = 2**22  # bytes
# Sizes and positions are often written one by one into a tensor that holds nothing yet.
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
_OVERWRITING = frozenset(
    {
        torch.ops.aten.copy_.default,
        torch.ops.aten.fill_.Scalar,
        torch.ops.aten.fill_.Tensor,
        torch.ops.aten.zero_.default,
    }
)
_KEY = "_modelglass_values"  # of a memory
NOTHING = object()  # no answer, where None could be one


@dataclass(frozen=True, slots=True)
class _OneNumber:
    """One number in all places of a memory, which takes none until somebody looks at it.

    An optimizer makes two such tensors for each weight, and no model asks what is in them.
    """

    number: Any
    dtype: torch.dtype


def is_knowable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of a kind whose values are followed."""
    return tensor.dtype in _WHOLE and tensor.untyped_storage().nbytes() <= LARGEST


def _is_followed(tensor: torch.Tensor) -> bool:
    """Masks are often made as floating numbers of whole ones, or of nothing but their shape."""
    small = tensor.dtype in _REAL and tensor.untyped_storage().nbytes() <= LARGEST_REAL
    return small or is_knowable(tensor)


def set_value(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Set the values of a fake tensor.

    They are kept with its memory, in memory of the same layout: whatever comes to look at the one finds the
    other, whichever way it took, and finds there what was written through any other tensor.
    """
    storage = tensor.untyped_storage()
    with unobserved():
        if not _is_laid_out_like(tensor, values):
            values = _look_at(torch.UntypedStorage(storage.nbytes()), tensor).copy_(values)
        storage.__dict__[_KEY] = values.untyped_storage()


def is_known(tensor: torch.Tensor) -> bool:
    """Whether there is an answer to what the values of a tensor are."""
    if isinstance(tensor, FakeTensor):
        return _values_beside(tensor) is not None
    is_number = tensor.dtype in _REAL and tensor.dim() == 0  # as Python's own become when they meet tensors
    return (
        tensor.device.type == "cpu" and tensor.layout is torch.strided and (is_number or is_knowable(tensor))
    )


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor, or None when they are not known; what is written to them is written for all."""
    if not is_known(tensor):
        return None
    if not isinstance(tensor, FakeTensor):
        return tensor
    storage = tensor.untyped_storage()
    with unobserved():
        if isinstance(storage.__dict__[_KEY], _OneNumber):
            storage.__dict__[_KEY] = _full_of(storage.__dict__[_KEY], storage.nbytes())
        return _look_at(storage.__dict__[_KEY], tensor)


class KnownValues:
    """Follows values through the kernels of one run."""

    def __init__(self) -> None:
        # By the memory of somebody else's tensor, the copy that the run writes to; None: nobody knows it now.
        self._copies: dict[int | None, tuple[Any, torch.UntypedStorage | None]] = {}
        self._is_written = False  # the kernel that runs is followed as a whole, what it is made of is not

    def follow(
        self, func: Any, manner: Manner, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
    ) -> None:
        """Set the values of a kernel's results when all its inputs are known."""
        if manner.is_view and type(args[0]) is FakeTensor:
            return  # it is in memory that is known or not
        if result is None and manner.is_determined and self._knows_all(args, kwargs):
            self._compute(func, args, kwargs)  # it only checks, and raises
            return
        results = result if isinstance(result, (list, tuple)) else (result,)
        if not results or not all(type(each) is FakeTensor and _is_followed(each) for each in results):
            return
        if results[0].device.type != "cpu":
            return
        if func is torch.ops.aten.lift_fresh.default and not isinstance(args[0], FakeTensor):
            set_value(results[0], args[0])  # numbers that the model's code writes out
        elif manner.filled_with is not None:
            _fill(results[0], manner.filled_with(args))
        elif manner.is_unfilled and is_knowable(results[0]):
            _fill(results[0], 0)
        else:
            drawn = func is torch.ops.aten.rand.default and results[0].numel() == 1  # luck, in any run
            if (drawn or manner.is_determined) and self._knows_all(args, kwargs):
                self._set_values(result, self._compute(func, args, kwargs), args, kwargs)

    def follow_writing(
        self,
        func: Any,
        manner: Manner,
        written: Sequence[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        run: Callable[[], Any],
    ) -> Any:
        """What `run` gives as the result of a kernel that writes to some of its arguments.

        The values are written as the kernel writes them; where it may write what is not known, none are left.
        """
        if self._is_written:
            return run()
        if not self._can_write(manner, written, args, kwargs):
            for each in written:
                self._forget(each)
            return run()
        real = self._compute(func, args, kwargs)
        with during(self, _is_written=True):
            result = run()
        self._set_values(result, real, args, kwargs)
        return result

    def _can_write(
        self,
        manner: Manner,
        written: Sequence[torch.Tensor],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> bool:
        """Whether all is known that decides on what a kernel writes; then there is memory to write it to."""
        if not manner.is_determined or sum(each.nbytes for each in written) > LARGEST:
            return False
        if not manner.overwrites:
            return all(map(self._knows, written)) and self._knows_all(args, kwargs)
        places = set(map(id, written))
        others = (each for each in tensors_among((*args, *kwargs.values())) if id(each) not in places)
        return all(map(self._knows, others)) and all(
            self._knows(each) or _make_room(each) for each in written
        )

    def _forget(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor)
        if storage is None:
            return
        if isinstance(tensor, FakeTensor):
            storage.__dict__.pop(_KEY, None)
        else:
            self._keep(storage, None)

    def _set_values(self, result: Any, real: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Set the values of results in memory of their own; the others' are where they were."""
        given = {memory_of(each) for each in tensors_among((*args, *kwargs.values()))}
        for fake, values in zip(tensors_among(result), tensors_among(real), strict=True):
            if isinstance(fake, FakeTensor) and memory_of(fake) not in given:
                set_value(fake, values)

    def compute(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a kernel gives for real, when all that it is given is known; else `NOTHING`."""
        return self._compute(func, args, kwargs) if self._knows_all(args, kwargs) else NOTHING

    def places(self, mask: torch.Tensor) -> tuple[torch.Tensor, ...] | None:
        """Where a mask is set, as indices for each of its dimensions; None when that is not known."""
        values = self.value(mask)
        if values is None:
            return None
        with unobserved():
            return values.nonzero(as_tuple=True)

    def _knows(self, tensor: torch.Tensor) -> bool:
        if self._copies and memory_of(tensor) in self._copies:
            return self._copies[memory_of(tensor)][1] is not None
        return is_known(tensor)

    def _knows_all(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        return all(map(self._knows, tensors_among((*args, *kwargs.values()))))

    def value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The values of a tensor, or None when they are not known."""
        if not self._knows(tensor):
            return None
        return value_of(tensor) if isinstance(tensor, FakeTensor) else self._copy(tensor)

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of somebody else's in memory of ours, shared as its memory is."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._copies:
            with unobserved():
                self._keep(storage, storage.clone())
        kept = self._copies[storage._cdata][1]
        assert kept is not None
        with unobserved():
            return _look_at(kept, tensor)

    def _keep(self, storage: torch.UntypedStorage, copy: torch.UntypedStorage | None) -> None:
        key = storage._cdata
        self._copies[key] = weakref.ref(storage, lambda _: self._copies.pop(key, None)), copy

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """What a kernel gives for real, of arguments that are all known."""
        known = {id(tensor): self.value(tensor) for tensor in tensors_among((*args, *kwargs.values()))}
        with unobserved():
            return func(*_real(args, known), **_real(dict(kwargs), known))


def expose_known_values(log: UndoLog) -> None:
    """Expose known values to code that does not ask for them: transformers, and `torch.tensor`."""
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


def _values_beside(tensor: FakeTensor) -> torch.UntypedStorage | _OneNumber | None:
    """What is kept with a fake tensor's memory; nothing of one that is to be negated or conjugated yet."""
    storage = None if tensor.dtype.is_complex or tensor.is_neg() else _storage(tensor)
    return None if storage is None else storage.__dict__.get(_KEY)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse ones have several, others none to show
        return None


def _look_at(memory: torch.UntypedStorage, tensor: torch.Tensor) -> torch.Tensor:
    """Memory as a tensor looks at its own."""
    empty = torch.empty(0, dtype=tensor.dtype, device="cpu")
    place = tensor.storage_offset(), tensor.shape, tensor.stride()
    return empty.set_(memory, *place)  # type: ignore[call-overload, no-any-return]


def _full_of(what: _OneNumber, nbytes: int) -> torch.UntypedStorage:
    """Memory with one number in all places."""
    numel = nbytes // what.dtype.itemsize
    return torch.full((numel,), what.number, dtype=what.dtype, device="cpu").untyped_storage()


def _is_laid_out_like(fake: torch.Tensor, real: torch.Tensor) -> bool:
    return (
        real.stride() == fake.stride()
        and real.storage_offset() == fake.storage_offset()
        and real.untyped_storage().nbytes() == fake.untyped_storage().nbytes()
    )


def _fill(tensor: torch.Tensor, number: Any) -> None:
    """Fill a fake tensor in memory of its own with one number."""
    tensor.untyped_storage().__dict__[_KEY] = _OneNumber(number, tensor.dtype)


def _make_room(tensor: torch.Tensor) -> bool:
    """Have memory for values that are about to be written to all of a fake tensor's memory."""
    if not isinstance(tensor, FakeTensor) or not _is_followed(tensor) or tensor.device.type != "cpu":
        return False
    storage = tensor.untyped_storage()
    if not tensor.is_contiguous() or tensor.numel() * tensor.dtype.itemsize != storage.nbytes():
        return False
    storage.__dict__[_KEY] = torch.UntypedStorage(storage.nbytes())
    return True


def _real(value: Any, known: Mapping[int, Any]) -> Any:
    """The arguments with values in the place of fake tensors."""
    if isinstance(value, torch.Tensor):
        return known[id(value)]
    if isinstance(value, (list, tuple)):
        return type(value)(_real(item, known) for item in value)
    if isinstance(value, dict):
        return {key: _real(item, known) for key, item in value.items()}
    return value


class Manner(NamedTuple):
    """What a kernel does with values."""

    asks: bool = False  # it gives a number that is read off them
    is_determined: bool = False  # nothing random in it, nothing left as it was in memory
    is_view: bool = False  # it only has a tensor look at memory, or in another way
    written: tuple[tuple[int, str], ...] = ()  # arguments that it writes to, by position and name
    overwrites: bool = False  # without a look at what was there
    filled_with: Callable[[tuple[Any, ...]], Any] | None = None  # the number that is all over its result
    is_unfilled: bool = False  # its result holds what was in memory

    def written_among(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The tensors whose values are written."""
        given = (args[index] if index < len(args) else kwargs.get(name) for index, name in self.written)
        return list(tensors_among(tuple(given)))


def manner_of(func: Any) -> Manner:
    if not isinstance(func, OpOverload):
        return Manner()
    arguments = [
        (index, each)
        for index, each in enumerate(func._schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write
    ]
    is_out = bool(arguments) and all(each.is_out for _, each in arguments)
    moves = torch.Tag.inplace_view in func.tags
    unclear = ("aten::empty", "aten::new_empty", "aten::rand")
    determined = func.namespace == "aten" and torch.Tag.nondeterministic_seeded not in func.tags
    return Manner(
        asks=torch.Tag.data_dependent_output in func.tags and func.namespace == "aten",
        is_determined=determined and not func._schema.name.startswith(unclear),
        is_view=func.is_view or moves,
        written=() if moves else tuple((index, each.name) for index, each in arguments),
        overwrites=is_out or func in _OVERWRITING,
        filled_with=_FILLED.get(func),
        is_unfilled=func in _UNFILLED,
    )
