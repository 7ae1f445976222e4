"""Fake tensors, fast: torch's own, with a memory for what it has already worked out.

A model repeats itself: the same kernel meets the same shapes in every block. What torch answers the first
time (shape, strides, type, device) is kept and given again, which costs a fraction of asking. Remembered are
kernels that give new tensors in memory of their own, views into the memory of their first argument, and
kernels that write to their arguments and give these back; everything else is asked anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch

from modelglass.frameworks.torch.describe import memory_of, tensors_among
from modelglass.frameworks.torch.fake.accepted_sizes import asks_sizes, check_sizes
from modelglass.frameworks.torch.fake.accepted_types import check_types
from modelglass.frameworks.torch.fake.index_values import Rule, check_values, rule_of
from modelglass.frameworks.torch.fake.known_values import NOTHING, KnownValues, Manner, manner_of, value_of
from modelglass.frameworks.torch.fake.overlaps import refuse_overlaps
from modelglass.frameworks.torch.fake.reads import ValueReads
from modelglass.frameworks.torch.privates import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    HigherOrderOperator,
    OpOverload,
    in_kernel_invocation_manager,
)
from modelglass.frameworks.torch.training.guesses import guess

REMEMBERED = 20_000  # answers, a few hundred bytes each; beyond that the memory starts afresh

_shielded = FakeTensorMode.__torch_dispatch__
_ask_torch = getattr(_shielded, "__wrapped__", _shielded)  # without its shield against compilation

_answers: dict[Any, _Answer | _SameArgument] = {}

# Values that can be part of a question as they are.
_PLAIN = frozenset(
    {int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)


class FakeMode(FakeTensorMode):
    """A fake mode that takes real tensors in passing and remembers its answers."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        with _torch_functions_kept():
            super().__init__(allow_non_fake_inputs=True)
        # torch's own memory is for the whole process: what ran first would decide which results are new.
        self.cache_enabled = False
        self.known = KnownValues()
        self.reads = ValueReads(self, value_of)
        self._is_asking = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no shield: nothing is compiled while we watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].device  # asked all the time, and no work
        kwargs = kwargs or {}
        kernel = _kernel(func)
        if kernel.manner.asks:
            number = self._read_number(func, args)
            if number is not NOTHING:
                return number
        written = kernel.manner.written_among(args, kwargs) if kernel.manner.written else ()
        if written:
            refuse_overlaps(func, written, args, kwargs)
            run = partial(self._result, kernel, func, types, args, kwargs)
            return self.known.follow_writing(func, kernel.manner, written, args, kwargs, run)
        result = self._result(kernel, func, types, args, kwargs)
        self.known.follow(func, kernel.manner, args, kwargs, result)
        return result

    def _read_number(self, func: Any, args: tuple[Any, ...]) -> Any:
        """The number that a kernel reads off tensors, where it is known or guessed; else `NOTHING`."""
        number = self.known.compute(func, args, {})
        if number is NOTHING and func is torch.ops.aten._local_scalar_dense.default:
            guessed = guess(args[0])
            return NOTHING if guessed is None else guessed
        return number

    def _result(
        self, kernel: _Kernel, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self._is_asking:  # what torch asks in turn while it works out a shape is not what runs
            return self._ask(kernel, func, types, args, kwargs)
        question, given = self._question(kernel, args, kwargs), (*args, *kwargs.values())
        answer = None if question is None else _answers.get(question)
        if answer is None:
            check_types(func, args, kwargs)
        if kernel.rule is not None:
            check_values(kernel.rule, func, args, kwargs, self.known.value)
        if answer is not None:
            return answer.given_again(self, given)
        self._is_asking = isinstance(func, OpOverload)
        try:
            result = self._ask(kernel, func, types, args, kwargs)
        finally:
            self._is_asking = False
        if kernel.asks_sizes:
            check_sizes(func, args, kwargs, result)
        if question is not None and question == self._question(kernel, args, kwargs):
            self._remember(question, result, given)
        return result

    def _ask(
        self, kernel: _Kernel, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if isinstance(func, HigherOrderOperator):
            # Its rules are kept by exact class, and we are a subclass.
            return func.python_key_table[FakeTensorMode](self, *args, **kwargs)
        if kernel.shape is not None and isinstance(args[0], FakeTensor):
            return kernel.shape(*args, **kwargs)
        try:
            result = _ask_torch(self, func, types, args, kwargs)
        except DynamicOutputShapeException:
            result = self._run_sized_by_values(kernel, func, types, args, kwargs)
            if result is NOTHING:
                raise
        mended = result if kernel.mend is None else kernel.mend(result)
        return self._separate(mended) if kernel.makes_several else mended

    def _separate(self, result: Any) -> Any:
        """The results, each in memory of its own: shape functions may repeat one."""
        if type(result) is not tuple:
            return result
        made: set[int | None] = set()
        found = []
        for each in result:
            if not _is_plain(each):  # nothing, or not a tensor
                found.append(each)
                continue
            memory = memory_of(each)
            found.append(self._like(each) if memory in made else each)
            made.add(memory)
        return tuple(found)

    def _run_sized_by_values(
        self, kernel: _Kernel, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a kernel whose size values decide, where they are known; else `NOTHING`."""
        if func is torch.ops.aten.index.Tensor:
            indices = [self._without_mask(index) for index in args[1]]
            if any(index is NOTHING for index in indices):
                return NOTHING
            spread = [each for index in indices for each in index]
            return _ask_torch(self, func, types, (args[0], spread), kwargs)
        if not kernel.manner.is_determined:
            return NOTHING
        real = self.known.compute(func, args, kwargs)
        if real is NOTHING:
            return NOTHING
        return tuple(map(self._like, real)) if isinstance(real, (tuple, list)) else self._like(real)

    def _without_mask(self, index: Any) -> Any:
        """An index as it is, or the indices that a mask stands for; `NOTHING` when these are not known."""
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            return (index,)
        places = self.known.places(index)
        return NOTHING if places is None else tuple(map(self._like, places))

    def _like(self, real: torch.Tensor) -> FakeTensor:
        with in_kernel_invocation_manager(self):
            bare = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device="meta")
        return FakeTensor(self, bare, real.device)

    def _question(self, kernel: _Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """All that the answer depends on, or None when it is not to be remembered."""
        if not kernel.is_repeatable or (kernel.needs_device and kwargs.get("device") is None):
            return None
        parts: list[Any] = [kernel, torch.get_default_dtype()]
        if not self._describe(args, parts) or not self._describe(kwargs.values(), parts):
            return None
        parts.extend(kwargs)
        return tuple(parts)

    def _describe(self, values: Iterable[Any], parts: list[Any]) -> bool:
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.constant is not None or value.fake_mode is not self or value.dtype.is_complex:
                    return False  # constants and conjugate views carry more than shows
                parts += (value.shape, value.stride(), value.storage_offset(), value.dtype, value.fake_device)
            elif kind in _PLAIN:
                parts += (kind, value)  # 1, 1.0 and True are equal, and are not the same
            elif kind is list or kind is tuple:
                parts.append(len(value))
                if not self._describe(value, parts):
                    return False
            else:
                return False
        return True

    def _remember(self, question: Any, result: Any, given: tuple[Any, ...]) -> None:
        answer = _answer(result, given)
        if answer is not None:
            if len(_answers) >= REMEMBERED:
                _answers.clear()
            _answers[question] = answer


def _answer(result: Any, given: tuple[Any, ...]) -> _Answer | _SameArgument | None:
    """What gives the same result again; None: nothing does."""
    place = next((at for at, each in enumerate(given) if each is result), None)
    if result is None or place is not None:
        return _SameArgument(place)
    tensors = result if isinstance(result, (tuple, list)) else (result,)
    if not all(item is None or _is_plain(item) for item in tensors):
        return None
    memories = [memory_of(item) for item in tensors if item is not None]
    taken = [memory_of(item) for item in tensors_among(given)]
    is_view = {*memories} == {*taken[:1]} and isinstance(given[0], FakeTensor)
    is_new = len(set(memories)) == len(memories) and set(taken).isdisjoint(memories)
    if not is_view and not (is_new and all(t is None or t.storage_offset() == 0 for t in tensors)):
        return None
    return _Answer(result, is_view=is_view)


class _SameArgument:
    """A kernel gives one of its arguments back, or nothing."""

    __slots__ = ("_place",)

    def __init__(self, place: int | None) -> None:
        self._place = place

    def given_again(self, mode: FakeMode, given: tuple[Any, ...]) -> Any:
        return None if self._place is None else given[self._place]


class _Answer:
    """The description of a kernel's result, enough to make another one like it."""

    __slots__ = ("_container", "_is_view", "_specs")

    def __init__(self, result: Any, *, is_view: bool) -> None:
        # Named tuples of torch's own serve as well as plain ones: the dispatcher unpacks them.
        several = isinstance(result, (tuple, list))
        self._container = (list if isinstance(result, list) else tuple) if several else None
        self._is_view = is_view
        tensors = (result,) if self._container is None else result
        self._specs = tuple(None if item is None else _spec(item) for item in tensors)

    def given_again(self, mode: FakeMode, given: tuple[Any, ...]) -> Any:
        with in_kernel_invocation_manager(mode):
            bare = [spec and self._bare(spec, given) for spec in self._specs]
        made = [
            None if spec is None else FakeTensor(mode, tensor, spec[4])
            for spec, tensor in zip(self._specs, bare, strict=True)
        ]
        return made[0] if self._container is None else self._container(made)

    def _bare(self, spec: tuple[Any, ...], given: tuple[Any, ...]) -> torch.Tensor:
        shape, stride, offset, dtype, _ = spec
        if self._is_view:
            empty = torch.empty(0, dtype=dtype, device="meta")
            return empty.set_(given[0].untyped_storage(), offset, shape, stride)
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def _spec(tensor: FakeTensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.fake_device


def _is_plain(item: Any) -> bool:
    return (
        type(item) is FakeTensor
        and item.layout is torch.strided
        and item.constant is None
        and not item.is_quantized
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Kernel:
    """All that a run wants to know of a kernel, found once. In a question it stands for the kernel."""

    manner: Manner
    rule: Rule | None  # how whole numbers among its arguments are checked
    asks_sizes: bool  # torch's shape function accepts sizes that the kernel does not
    shape: Callable[..., Any] | None  # a shape function of ours
    mend: Callable[[Any], Any] | None  # what torch's shape function gives
    makes_several: bool  # tensors, all of them in new memory
    is_repeatable: bool
    needs_device: bool  # tensors do not determine the device of the result


@cache
def _kernel(func: Any) -> _Kernel:
    schema = func._schema if isinstance(func, OpOverload) else None
    returns = () if schema is None else schema.returns
    given = () if schema is None else schema.arguments
    return _Kernel(
        manner=manner_of(func),
        rule=rule_of(func),
        asks_sizes=asks_sizes(func),
        shape=_SHAPES.get(func),
        mend=_MENDED.get(func),
        makes_several=len(returns) > 1 and all(each.alias_info is None for each in returns),
        is_repeatable=_is_repeatable(func),
        needs_device=not any(str(argument.type) in _TENSORS for argument in given),
    )


_TENSORS = ("Tensor", "List[Tensor]")
_ODD = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view})


def _is_repeatable(func: Any) -> bool:
    """A torch kernel whose result has the shape its inputs imply, and that changes the shape of none."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return False
    if not _ODD.isdisjoint(func.tags):
        return False
    returns = func._schema.returns
    return all(str(each.type) in _TENSORS for each in returns) if returns else func._schema.is_mutable


@contextmanager
def _torch_functions_kept() -> Iterator[None]:
    """The first fake mode imports torch's compiler, which puts a wrapper in a public function's place."""
    manual_seed = torch.manual_seed
    try:
        yield
    finally:
        torch.manual_seed = manual_seed


def _grouped_mm(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """torch's own shape function takes only bfloat16; the CPU kernel takes any floating type."""
    groups = () if offs is None else (offs.shape[0],)
    if left.dim() == 2 and right.dim() == 2:
        shape: tuple[int, ...] = (*groups, left.shape[0], right.shape[1])
    elif left.dim() == 3 and right.dim() == 3:
        shape = (left.shape[0], left.shape[1], right.shape[2])
    else:
        shape = (left.shape[-2], right.shape[-1])
    return left.new_empty(shape, dtype=out_dtype or left.dtype)


def _without_empty_weights(result: Any) -> Any:
    """For weights that nobody needs, torch's shape function gives an empty tensor; the kernel gives none."""
    output, weights = result
    return output, None if weights is not None and weights.shape == (0,) else weights


def _is_set_to(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether both are the same view of one memory."""
    views = [
        (memory_of(each), each.storage_offset(), each.shape, each.stride(), each.dtype)
        for each in (left, right)
    ]
    return views[0] == views[1]


# Shape functions of ours, where torch's own gives something else than the real kernel. Nothing is registered.
_SHAPES: dict[Any, Callable[..., Any]] = {torch.ops.aten.is_set_to.default: _is_set_to}
if hasattr(torch.ops.aten, "_grouped_mm"):
    _SHAPES[torch.ops.aten._grouped_mm.default] = _grouped_mm
_MENDED: dict[Any, Callable[[Any], Any]] = {
    torch.ops.aten._native_multi_head_attention.default: _without_empty_weights
}
