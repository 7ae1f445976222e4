"""Element types that a kernel refuses, found by asking the real one.

A fake kernel works out shapes. It accepts many combinations of element types that the real one refuses:
half weights for a float32 input, a softmax of float8. So each distinct combination is given to the real
kernel once in a process, on tensors of small sizes, and the answer is remembered.

A made-up call can fail for reasons of its own. A kernel refuses element types only if its error names a
type, and the same call succeeds with other types; any other failure is not an answer. Only kernels of the
CPU are asked: a device that is not here may accept other types.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import torch

from modelglass.frameworks.torch.describe import unobserved
from modelglass.frameworks.torch.privates import ELEMENT_TYPE, OpOverload, can_decompose

REMEMBERED = 20_000  # answers, beyond which they are forgotten
SMALL = 4096  # elements of a call that is asked about in its own sizes
UNCUT = 8  # a size that a call made smaller keeps: that of a filter, or a number of groups
LARGEST_CALL = 2**20  # elements of its tensors
TRIALS = 150  # of other element types, before a failure is taken for one of the made-up call itself

Resize: TypeAlias = Callable[[int], int]

_ERRORS = (RuntimeError, TypeError, ValueError, IndexError)  # NotImplementedError is a RuntimeError
_ORDINARY = frozenset(
    {torch.float32, torch.float64, torch.int64, torch.bool}
)  # every kernel is written for them
_FLOATING = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_STAND_INS = (torch.float32, torch.int64, torch.bool, torch.complex64)
_PLAIN = frozenset(
    {int, float, bool, str, complex, type(None), torch.dtype, torch.layout, torch.memory_format}
)


# Kernels that believe what they are given: in made-up memory of another kernel's they would crash.
_BELIEVING = ("aten::mkldnn_", "aten::_mkldnn_", "aten::fbgemm_", "aten::_cudnn_", "aten::miopen_")
_PRIVATE = frozenset({"workspace", "reserve", "reserve_space", "logsumexp", "rng_state", "philox_seed"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a kernel raises for its element types."""

    error: type[Exception]
    message: str


_answers: dict[Any, Refusal | None] = {}


def check_types(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise what the real kernel raises if it does not accept the element types of its arguments."""
    if not _has_answer(func):
        return
    parts: list[Any] = [func, torch.get_default_dtype()]
    if not _describe(args, parts) or not _describe(kwargs.values(), parts):
        return
    parts.extend(kwargs)
    signature = tuple(parts)
    if signature not in _answers:
        if len(_answers) >= REMEMBERED:
            _answers.clear()
        with _unseen_call(func):
            _answers[signature] = _run_real_kernel(func, args, kwargs)
    refusal = _answers[signature]
    if refusal is not None:
        error = refusal.error(refusal.message)
        error.add_note(_REFUSED)
        raise error


def check_composite(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """The same for an operator that is made of others, and of fewer where nobody watches.

    Unusual types alone are asked about: ordinary ones are accepted either way.
    """
    first = args[0] if args else None
    if not isinstance(first, torch.Tensor) or first.dtype in _FLOATING or not _is_composite(func):
        return
    if first.device.type == "cpu" and not torch.is_autocast_enabled(
        "cpu"
    ):  # which chooses other types below the operator
        check_types(func, args, kwargs)


@cache
def _is_composite(func: Any) -> bool:
    return isinstance(func, OpOverload) and func.namespace == "aten" and can_decompose(func)


_REFUSED = "The CPU kernel does not accept these element types."


def is_refusal(error: BaseException | None) -> bool:
    """Whether this error is the CPU's answer to a question about element types."""
    return _REFUSED in getattr(error, "__notes__", ())


@cache
def _has_answer(func: Any) -> bool:
    """Operators of torch that compute; views accept every type, packed arguments cannot be made smaller."""
    if not isinstance(func, OpOverload) or func.namespace != "aten" or func.is_view:
        return False
    schema = func._schema
    if schema.name.startswith(_BELIEVING) or not _PRIVATE.isdisjoint(each.name for each in schema.arguments):
        return False
    kinds = [str(argument.type) for argument in schema.arguments]
    has_types = any("Tensor" in kind for kind in kinds) or any(
        each.name == "dtype" for each in schema.arguments
    )
    return has_types and not any("torch.classes" in kind for kind in kinds)


def _describe(values: Iterable[Any], parts: list[Any]) -> bool:
    """Add all that an answer depends on; False for arguments that the CPU cannot be asked about."""
    for value in values:
        kind = type(value)
        if isinstance(value, torch.Tensor):
            if value.device.type != "cpu" or value.layout is not torch.strided or value.is_quantized:
                return False
            parts += (value.dtype, value.dim(), 0 in value.shape)  # kernels skip what is empty
            if value.dtype not in _ORDINARY and value.numel() <= SMALL:
                parts += value.shape  # there may be another kernel for few elements, with other types
        elif kind in _PLAIN:
            parts += (kind, value)  # 1, 1.0 and True are equal, and are not the same
        elif kind is list or kind is tuple:
            parts.append(len(value))
            if not _describe(value, parts):
                return False
        elif kind is torch.device:
            if value.type != "cpu":
                return False
        elif kind is not torch.Generator:
            return False
    return True


@contextmanager
def _unseen_call(func: Any) -> Iterator[None]:
    """Nobody sees the question: no mode, no warning, no random number taken."""
    state = torch.default_generator.get_state() if torch.Tag.nondeterministic_seeded in func.tags else None
    with unobserved(), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            if state is not None:
                torch.default_generator.set_state(state)


def _run_real_kernel(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Refusal | None:
    """What the kernel raises for these types; None if it accepts them, or if no made-up call shows it."""
    call = _Call(func, args, kwargs)
    for resize in call.resizings():
        refusal = None
        for fill in call.fillings():
            error = call.error(call.types, resize, fill)
            if error is None:
                return None
            if refusal is None and ELEMENT_TYPE.is_of(error):
                others = islice(_other_types(call.types), TRIALS)
                if any(call.error(types, resize, fill) is None for types in others):
                    refusal = Refusal(type(error), str(error))
        if refusal is not None:
            return refusal
    return None


def _other_types(types: Sequence[torch.dtype]) -> Iterator[tuple[torch.dtype, ...]]:
    """Ordinary types for some of the arguments: first those that are alike stay alike, then any for each."""
    distinct = list(dict.fromkeys(types))
    for chosen in product(*((each, *_STAND_INS) for each in distinct)):
        other = dict(zip(distinct, chosen, strict=True))
        yield tuple(other[each] for each in types)
    if len(distinct) < len(types):
        yield from product(_STAND_INS, repeat=len(types))


class Filling(NamedTuple):
    """The values of made-up tensors."""

    whole: int  # in those of whole numbers; all others are filled with ones
    is_identity: bool = False  # those that are square matrices have their ones on the diagonal

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        if not (dtype.is_floating_point or dtype.is_complex):
            return torch.full(shape, self.whole, dtype=dtype)
        if self.is_identity and len(shape) > 1 and shape[-1] == shape[-2]:
            return torch.eye(shape[-1]).to(dtype).repeat(*shape[:-2], 1, 1)
        return torch.ones(shape, dtype=dtype)


class _Call:
    """A kernel's call, to be made again with other sizes, values and types."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._func = func
        named = zip(func._schema.arguments, args, strict=False)
        self._args = [(argument.name, value) for argument, value in named]
        self._kwargs = dict(kwargs)
        self.types = tuple(_types([*args, *kwargs.values()]))

    def resizings(self) -> Iterator[Resize]:
        """Ways to make the call small; not each of them keeps every kernel's rules about sizes."""
        if self._is_small():
            yield int
        yield _cut
        yield _divide

    def fillings(self) -> tuple[Filling, ...]:
        """What is in its tensors: zeros index everything, but they divide nothing; ones have no inverse."""
        if any("pivots" in argument.name for argument in self._func._schema.arguments):
            return Filling(1), Filling(1, is_identity=True)  # rows are counted from 1 there
        if torch.Tag.pointwise in self._func.tags:
            return Filling(0), Filling(1)
        return Filling(0), Filling(0, is_identity=True)

    def error(self, types: Sequence[torch.dtype], resize: Resize, fill: Filling) -> Exception | None:
        """What the kernel raises for a call that is made up so."""
        remaining = iter(types)
        try:
            args = [_make(value, remaining, _resize_for(name, resize), fill) for name, value in self._args]
            kwargs = {
                name: _make(value, remaining, _resize_for(name, resize), fill)
                for name, value in self._kwargs.items()
            }
            self._func(*args, **kwargs)
        except _ERRORS as error:
            return error.with_traceback(None)  # its frames would keep the model's tensors alive
        return None

    def _is_small(self) -> bool:
        values = [value for _, value in self._args] + list(self._kwargs.values())
        return _numel(values) <= SMALL and all(_extent(value) <= SMALL for value in values)


def _types(values: Iterable[Any]) -> Iterator[torch.dtype]:
    """The element types that arguments have or name, in order."""
    for value in values:
        if isinstance(value, torch.dtype):
            yield value
        elif isinstance(value, torch.Tensor):
            yield value.dtype
        elif isinstance(value, (list, tuple)):
            yield from _types(value)


def _make(value: Any, types: Iterator[torch.dtype], resize: Resize, fill: Filling) -> Any:
    """An argument again, with the next of the types and in other sizes."""
    if isinstance(value, torch.dtype):
        return next(types)
    if isinstance(value, torch.Tensor):
        dtype = next(types)
        shape = [resize(size) for size in value.shape]
        if prod(shape) > LARGEST_CALL:
            raise ValueError("too large to be tried")
        return fill.tensor(shape, dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(_make(item, types, resize, fill) for item in value)
    if isinstance(value, torch.Generator):
        return None  # the user's own is not ours to draw from
    return resize(value) if type(value) is int else value


# Arguments whose numbers are not sizes.
_NOT_SIZES = ("dim", "axis", "reduction", "ignore_index", "padding_idx", "correction", "ord", "p", "alpha")


def _resize_for(name: str, resize: Resize) -> Resize:
    return int if name.startswith("dim") or name in _NOT_SIZES else resize


def _cut(size: int) -> int:
    """Equal sizes stay equal, and most others stay different: resampling to the same size does nothing."""
    return size if size <= UNCUT else UNCUT + size % 5


@cache
def _divide(size: int) -> int:
    """Products of sizes stay products: groups of channels, heads of a width."""
    kept = 1
    for prime in (3, 5, 7):
        while size > 0 and size % prime == 0:
            size //= prime
            kept *= prime
    return kept if size > 0 else size


def _numel(values: Iterable[Any]) -> int:
    return sum(
        value.numel() if isinstance(value, torch.Tensor) else _numel(value)
        for value in values
        if isinstance(value, (torch.Tensor, list, tuple))
    )


def _extent(value: Any) -> int:
    """How much a number, or a list of sizes, can make of a small tensor."""
    if isinstance(value, (list, tuple)):
        return prod(map(_extent, value)) if all(type(item) is int for item in value) else 0
    return abs(value) if type(value) is int else 0
