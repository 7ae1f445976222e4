"""The two levels at which torch lets operators be seen, as callbacks.

The operator level is what a user calls and `torch.export` shows (conv2d, linear, lstm); the kernel level is
what runs below autograd (convolution, addmm, the attention kernel chosen). The first uses internals of
torch: an abstract dispatch mode on the PreDispatch key, which torch accepts only from a subclass of one of
its own modes, and Python's dispatcher switched on. A torch without them is observed at the level of its
public functions instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from modelglass.frameworks.torch.observing.digest import is_work
from modelglass.frameworks.torch.privates import (
    NO_RULE_FOR_MODE,
    PRE_DISPATCH,
    OpOverload,
    PreDispatchBase,
    TorchDispatchMode,
    can_decompose,
    disable_python_dispatcher,
    enable_python_dispatcher,
    find_dispatch_rule,
    has_kernel,
)
from modelglass.interrupts import run_waiting, uninterrupted, waiting

if find_dispatch_rule is not None:
    uninterrupted(find_dispatch_rule)

OnOp = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]  # runs the operator, returns its result


@contextmanager
def watching(on_op: OnOp, on_kernel: OnOp, *, functions: bool = False) -> Iterator[None]:
    """Hand every operator to `on_op` and every kernel to `on_kernel`; each must run what it is given.

    `functions` hands public functions to `on_op` in the operators' place.
    """
    with ExitStack() as stack:
        stack.enter_context(watching_kernels(on_kernel))
        if functions or PreDispatchBase is None:
            stack.enter_context(_FunctionLevel(on_op))
        else:
            stack.enter_context(enable_python_dispatcher())
            stack.enter_context(_operator_level(on_op))
        yield


def watching_kernels(on_kernel: OnOp) -> AbstractContextManager[Any]:
    """Hand every kernel to `on_kernel`, which must run it."""
    return _KernelLevel(on_kernel)


def refuses_operator_level(error: BaseException | None) -> bool:
    """Whether a run ended because a higher-order operator will not run under a mode it does not know."""
    return NO_RULE_FOR_MODE.is_of(error)


class _Level(TorchDispatchMode):
    """A mode that may meet any operator. It runs outside torch.compile, so torch need not shield it."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def _operator_level(on_op: OnOp) -> TorchDispatchMode:
    """A mode on the PreDispatch key, built here because its base class may not exist."""

    class OperatorLevel(_Level, PreDispatchBase):  # type: ignore[misc]
        def __init__(self) -> None:
            TorchDispatchMode.__init__(self, PRE_DISPATCH)

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if waiting:  # an operator may fail, so this is a safe moment
                run_waiting()
            # torch's Python versions of composite operators would run other kernels than its real ones do.
            with disable_python_dispatcher():
                return on_op(func, args, kwargs or {})

    return OperatorLevel()


# Functions that only look at a tensor; some of them are our own looking.
_READING = ("__get__", "__set__", "untyped_storage", "size", "stride", "dim", "is_floating_point")


class _FunctionLevel(TorchFunctionMode):
    def __init__(self, on_op: OnOp) -> None:
        super().__init__()
        self._on_op = on_op

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if getattr(func, "__name__", "__get__") in _READING:
            return func(*args, **(kwargs or {}))  # reading an attribute is not an operator
        if waiting:
            run_waiting()
        return self._on_op(func, args, kwargs or {})


class _KernelLevel(_Level):
    def __init__(self, on_kernel: OnOp) -> None:
        super().__init__()
        self._on_kernel = on_kernel

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kind = _kind(func)
        if kind.is_property:  # a question of C++'s own, which must have an answer
            return func(*args, **(kwargs or {}))
        if waiting:
            run_waiting()
        if kind.may_be_composite and _is_composite(func, args):
            # Without autograd (inference mode) composites arrive whole; what they are made of is what runs.
            with self:
                result = func.decompose(*args, **(kwargs or {}))
            if result is not NotImplemented:
                return result
        result = self._on_kernel(func, args, kwargs or {})
        for place in kind.lists_written:
            torch.autograd.graph.increment_version([each for each in args[place] if not each.is_inference()])
        return result


class _Kind(NamedTuple):
    """What has to be known of each kernel that comes by, found once."""

    is_property: bool = False  # of a tensor, which is read
    may_be_composite: bool = False
    # Where it is given lists to write to: such a one counts no versions where a mode takes it.
    lists_written: tuple[int, ...] = ()


@cache
def _kind(func: Any) -> _Kind:
    if not is_work(func):
        return _Kind(is_property=True)
    if not isinstance(func, OpOverload):
        return _Kind()
    lists = func._schema.arguments if func._schema.name.startswith("aten::_foreach") else ()
    return _Kind(
        may_be_composite=can_decompose(func),
        lists_written=tuple(
            at for at, each in enumerate(lists) if each.alias_info is not None and each.alias_info.is_write
        ),
    )


def _is_composite(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether the operator is made of others; some are, but not on a device that has a kernel for them."""
    return not has_kernel(func.name(), _device_key(args)) and not any(map(_is_nested, args))


def _is_nested(value: Any) -> bool:
    """Nested tensors have kernels of their own for what is composite for others."""
    return isinstance(value, torch.Tensor) and value.is_nested


def _device_key(args: tuple[Any, ...]) -> str:
    """The dispatch key of the device that the first tensor is on."""
    for value in args:
        if isinstance(value, torch.Tensor):
            return _KEYS.get(value.device.type, "CPU")
    return "CPU"


_KEYS = {"cuda": "CUDA", "mps": "MPS", "xpu": "XPU", "meta": "Meta"}
