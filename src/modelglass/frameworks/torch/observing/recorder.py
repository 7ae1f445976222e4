"""The diary of one observed run: which module was called, which operator ran, what ran below it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from modelglass.frameworks.shared.error_source import find_source_line
from modelglass.frameworks.shared.request import Request
from modelglass.frameworks.torch.describe import Describer
from modelglass.frameworks.torch.fake.accepted_types import check_composite
from modelglass.frameworks.torch.fake.index_values import check_operator
from modelglass.frameworks.torch.fake.reads import NeedsValuesError
from modelglass.frameworks.torch.observing.arguments import arguments
from modelglass.frameworks.torch.observing.dataflow_tracker import DataflowTracker
from modelglass.frameworks.torch.observing.digest import KernelCall, describe_kernel, digest_kernels, is_work
from modelglass.frameworks.torch.privates import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    OpOverload,
    UnsupportedOperatorException,
    current_node,
    is_transforming,
    next_node_number,
    node_number,
)
from modelglass.frameworks.torch.process import during
from modelglass.frameworks.torch.structure.naming import kernel_name, overload_name, public_name
from modelglass.interrupts import run_waiting, waiting
from modelglass.report import Call, Dataflow, Failure, Kernel, MemoryPhase, Op, Phase, Value

# What fake tensors raise when values decide; a model that catches it would go on wrongly.
NEEDS_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
    NeedsValuesError,
)
PROGRESS_EVERY = 500  # operators between two words of progress


@dataclass(slots=True, eq=False)
class _Frame:
    """A module call that is going on."""

    index: int
    path: str
    inputs: tuple[Value, ...]
    phase: Phase
    parent: int | None
    in_forward: bool = False  # its `forward` has begun, so a second one is a call of its own
    outputs: tuple[Value, ...] = ()
    completed: bool = False
    ran: list[KernelCall] = field(default_factory=list)  # its own kernels, each with its arguments


@dataclass(slots=True, eq=False)
class _Pending:
    """An operator that is running."""

    func: Any
    frame: _Frame | None
    phase: Phase
    attributes: Mapping[str, Any]
    inputs: tuple[Value, ...]
    kernels: list[Kernel] = field(default_factory=list)
    outputs: tuple[Value, ...] = ()
    reads: tuple[int, ...] = ()
    writes: tuple[int | None, ...] = ()
    transformed: bool = field(default_factory=is_transforming)


class Place(NamedTuple):
    """Where a kernel belongs: its module, its phase, the autograd node and the operator that run it."""

    module: str
    phase: MemoryPhase
    node: int | None = None  # autograd's number of it
    operator: Any = None
    transformed: bool = False  # by a function transform (vmap, grad), whose rules make other kernels run


class Recorder:
    """Writes down calls and operators in order."""

    def __init__(self, describer: Describer, request: Request) -> None:
        self._describer = describer
        self._progress = request.progress
        self._is_free = request.is_free
        self._recorded: dict[Any, bool] = {}  # kernel -> whether to write it down
        self._frames: list[_Frame] = []
        self._stack: list[_Frame] = []
        self._ops: list[_Pending] = []
        self.tracker = DataflowTracker()
        self._current: _Pending | None = None
        self._types: dict[str, str] = {}
        self._in_backward = False
        self._paused = False
        self._node_number: int | None = None  # of the autograd node at work
        self._our_nodes = range(0)  # numbers of the autograd nodes that are not the model's
        # Autograd numbers its nodes in order of creation; these marks record the innermost call since then.
        self._node_marks: list[int] = []
        self._mark_frames: list[_Frame | None] = []
        self.unchecked: dict[
            str, None
        ] = {}  # modules whose gradients are checked by values that are not here
        self.needs_values: Exception | None = None  # an operator that fake tensors could not run
        # By the error's id: keeping an error would keep alive all that its traceback reaches.
        self._failed_call: tuple[int, _Frame] | None = None
        self._failed_op: tuple[int, _Pending] | None = None

    def paused(self) -> AbstractContextManager[None]:
        """What runs inside is ours, not the model's."""
        return during(self, _paused=True)

    @contextmanager
    def ours(self) -> Iterator[None]:
        """What is computed inside, and its gradient later on, is not the model's work."""
        first = next_node_number()
        with self.paused():
            yield
        self._our_nodes = range(first, next_node_number())

    def place(self) -> Place:
        """Where what runs now belongs."""
        frame, phase = self._owner()
        path, operator = "" if frame is None else frame.path, self._current
        if operator is None:
            return Place(path, phase, self._node_number)
        return Place(path, phase, self._node_number, operator.func, operator.transformed)

    def backward(self) -> AbstractContextManager[None]:
        """What runs inside is the backward pass."""
        return during(self, _in_backward=True)

    def wrap(self, path: str, module: nn.Module) -> None:
        """Have the module's calls recorded, those by `module(...)` with its hooks, and bare `.forward(...)`.

        Only the instance is changed, below the level at which torch looks for hooks: a registered hook
        would switch off fused paths. The substitution of tensors restores it.
        """
        self._types[path] = type(module).__name__
        attributes = vars(module)
        attributes["_call_impl"] = self._wrapper(path, module._call_impl, is_forward=False)
        attributes["forward"] = self._wrapper(path, _original_forward(module), is_forward=True)
        if "_compiled_call_impl" in attributes:
            attributes["_compiled_call_impl"] = None

    def _wrapper(self, path: str, run: Callable[..., Any], *, is_forward: bool) -> Any:
        def recorded(*args: Any, **kwargs: Any) -> Any:
            top = self._stack[-1] if self._stack else None
            if is_forward and top is not None and top.path == path and not top.in_forward:
                top.in_forward = True  # the call being recorded has reached its forward
                return run(*args, **kwargs)
            if waiting:
                run_waiting()
            frame = self._enter(path, args, kwargs, top)
            frame.in_forward = is_forward
            try:
                output = run(*args, **kwargs)
                frame.outputs = self._describer.flatten(output)
                frame.completed = True
                self._failed_call = None  # whatever was raised inside was caught
                return output
            except BaseException as error:
                if self._failed_call is None or self._failed_call[0] != id(error):
                    self._failed_call = id(error), frame  # the innermost call it passed through
                raise
            finally:
                self._leave()

        recorded.__wrapped__ = run  # type: ignore[attr-defined]  # for who asks for the signature
        return recorded

    def _enter(
        self, path: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], top: _Frame | None
    ) -> _Frame:
        frame = _Frame(
            index=len(self._frames),
            path=path,
            inputs=self._describer.arguments(args, kwargs),
            phase="recompute" if self._in_backward else "forward",
            parent=None if top is None else top.index,
        )
        if not self._paused:
            self._frames.append(frame)
        self._stack.append(frame)
        self._mark(frame)
        return frame

    def _leave(self) -> None:
        self._stack.pop()
        self._mark(self._stack[-1] if self._stack else None)

    def _mark(self, frame: _Frame | None) -> None:
        self._node_marks.append(next_node_number())
        self._mark_frames.append(frame)

    def on_op(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator and write it down."""
        if self._paused or self._is_of_our_loss():
            return self.on_op_alone(func, args, kwargs)
        if self._current is not None:
            return func(*args, **kwargs)
        pending = self._begin(func, args, kwargs)
        if pending.phase == "forward":
            pending.reads = self.tracker.read(func, args, kwargs)
        self._current = pending
        try:
            result = _result(func, args, kwargs)
        except BaseException as error:
            if isinstance(error, NEEDS_VALUES):
                self.needs_values = error
            self._failed_op = id(error), pending
            self._ops.remove(pending)  # it did not run; the model may catch the error and go on
            raise
        finally:
            self._current = None
        pending.outputs = self._describer.flatten(result)
        if func in _VECTORS and _has_phase(func, args[0]):
            self.unchecked.setdefault("" if pending.frame is None else pending.frame.path)
        if pending.phase == "forward":
            read = pending.reads
            pending.reads, pending.writes = self.tracker.add_operator(func, args, kwargs, result, read)
        return result

    def on_op_alone(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator of which nobody wants to know more than that its kernels belong to it."""
        if self._current is not None:
            return func(*args, **kwargs)
        self._current = _Pending(func, None, "forward", {}, ())
        try:
            _check(func, args, kwargs)
            return func(*args, **kwargs)
        finally:
            self._current = None

    def on_kernel(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel; write it down when it may contract."""
        if self._paused or self._is_of_our_loss():
            return func(*args, **kwargs)
        self._note(func, args, kwargs)
        if not self._is_recorded(func):
            return func(*args, **kwargs)
        attributes, inputs = arguments(func, args, kwargs, self._describer)
        result = func(*args, **kwargs)
        owner = self._current
        outputs = self._describer.flatten(result)
        if owner is None:  # below autograd, no operator above it: it is one itself
            owner = self._pend(func, attributes, inputs)
            owner.outputs = outputs
            if owner.phase == "forward":
                read = self.tracker.read(func, args, kwargs)
                owner.reads, owner.writes = self.tracker.add_operator(func, args, kwargs, result, read)
        owner.kernels.append(
            Kernel(name=kernel_name(func), attributes=attributes, inputs=inputs, outputs=outputs)
        )
        return result

    def on_kernel_of_no_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel; write it down where it is an operator itself."""
        if self._current is not None:
            return func(*args, **kwargs)
        return self.on_kernel(func, args, kwargs)

    def on_kernel_alone(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a kernel of which nobody wants to know more than that it ran."""
        if self._paused:
            return func(*args, **kwargs)
        self._note(func, args, kwargs)
        try:
            return _result(func, args, kwargs)
        except NEEDS_VALUES as error:
            self.needs_values = error
            raise

    def _is_of_our_loss(self) -> bool:
        """Whether what runs is the gradient of our loss."""
        if not self._in_backward or self._stack:
            return False
        node = current_node()
        return node is not None and node_number(node) in self._our_nodes

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Remember that a kernel ran in the call that is going on, and what it was given."""
        if self._stack and is_work(func):
            self._stack[-1].ran.append(describe_kernel(func, args, kwargs))

    def _is_recorded(self, func: Any) -> bool:
        known = self._recorded.get(func)
        if known is None:
            known = _may_contract(func) and not self._is_free(kernel_name(func))
            self._recorded[func] = known
        return known

    def _begin(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Pending:
        # Inputs are described before the operator runs: an in-place one changes their shapes.
        return self._pend(func, *arguments(func, args, kwargs, self._describer))

    def _pend(self, func: Any, attributes: Mapping[str, Any], inputs: tuple[Value, ...]) -> _Pending:
        frame, phase = self._owner()
        pending = _Pending(func, frame, phase, attributes, inputs)
        self._ops.append(pending)
        if self._progress is not None and len(self._ops) % PROGRESS_EVERY == 0:
            self._progress(f"{len(self._ops):,} operators, {len(self._frames):,} calls")
        return pending

    def _owner(self) -> tuple[_Frame | None, Phase]:
        """The call an operator belongs to; in backward, the one that made the autograd node at work."""
        self._node_number = None
        if self._stack:
            return self._stack[-1], "recompute" if self._in_backward else "forward"
        if not self._in_backward:
            return None, "forward"
        node = current_node()
        if node is None:
            return None, "backward"
        # Checkpointing runs a function again with gradients on; backward proper runs without.
        phase: Phase = "recompute" if torch.is_grad_enabled() else "backward"
        self._node_number = node_number(node)
        at = bisect_right(self._node_marks, self._node_number) - 1
        return (self._mark_frames[at] if at >= 0 else None), phase

    def calls(self) -> tuple[Call, ...]:
        texts: dict[KernelCall, bytes] = {}  # a run repeats itself
        return tuple(
            Call(
                index=frame.index,
                module=frame.path,
                parent=frame.parent,
                phase=frame.phase,
                inputs=frame.inputs,
                outputs=frame.outputs,
                completed=frame.completed,
                ran=digest_kernels(frame.ran, texts),
            )
            for frame in self._frames
        )

    def ops(self) -> tuple[Op, ...]:
        return tuple(
            Op(
                index=index,
                name=public_name(pending.func),
                overload=overload_name(pending.func),
                module="" if pending.frame is None else pending.frame.path,
                call=None if pending.frame is None else pending.frame.index,
                phase=pending.phase,
                attributes=pending.attributes,
                inputs=pending.inputs,
                outputs=pending.outputs,
                kernels=tuple(pending.kernels),
            )
            for index, pending in enumerate(self._ops)
        )

    def dataflow(self) -> Dataflow:
        """Which tensors the operators read and made."""
        return self.tracker.dataflow(
            (pending.reads for pending in self._ops), (pending.writes for pending in self._ops)
        )

    def failure(self, error: BaseException) -> Failure:
        """Where `error`, which ended the run, came from."""
        call = self._failed_call
        op = self._failed_op
        frame = call[1] if call is not None and call[0] == id(error) else None
        pending = op[1] if op is not None and op[0] in map(id, _chain(error)) else None
        path = "" if frame is None else frame.path
        return Failure(
            module=path,
            module_type=self._types.get(path, ""),
            error=type(error).__name__,
            message=str(error),
            op=None if pending is None else public_name(pending.func),
            inputs=pending.inputs if pending is not None else frame.inputs if frame else (),
            source=find_source_line(error),
        )


def _original_forward(module: nn.Module) -> Callable[..., Any]:
    """The module's forward; for one made by torch.compile, the module it was made from."""
    compiled = "dynamo_ctx" in vars(module) and "_orig_mod" in module._modules
    return module.get_submodule("_orig_mod") if compiled else module.forward


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _result(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the operator or kernel gives, unless that would be a guess."""
    _check(func, args, kwargs)
    result = func(*args, **kwargs)
    if _counts_zeros(func) and isinstance(result, FakeTensor):
        raise DynamicOutputShapeException(func)
    return result


def _check(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise what an operator itself refuses, where the kernels that stand for it would not."""
    check_operator(func, args, kwargs)
    check_composite(func, args, kwargs)


# Complex eigenvectors have a phase that a loss must not depend on. The gradient looks at values to see
# that, unless it is observed.
_VECTORS = frozenset({torch.ops.aten.linalg_eig.default, torch.ops.aten.linalg_eigh.default})


def _has_phase(func: Any, matrix: torch.Tensor) -> bool:
    trains = matrix.requires_grad and torch.is_grad_enabled()
    return trains and (matrix.is_complex() or func is torch.ops.aten.linalg_eig.default)


@cache
def _counts_zeros(func: Any) -> bool:
    """Whether the result keeps what is not zero: a fake tensor cannot know, and would keep nothing."""
    return "to_sparse" in overload_name(func)


@cache
def _may_contract(func: Any) -> bool:
    """False for what torch itself declares element-wise, a view, a factory, or bookkeeping."""
    if not isinstance(func, OpOverload):
        return True
    if func.namespace == "prim" or torch.Tag.pointwise in func.tags or func.is_view:
        return False
    takes_tensors = any("Tensor" in str(arg.type) for arg in func._schema.arguments)
    takes_objects = any("torch.classes" in str(arg.type) for arg in func._schema.arguments)
    return takes_tensors or takes_objects
