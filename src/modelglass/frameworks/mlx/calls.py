"""Calls of modules, seen by giving each instance a class of its own for a while.

Python looks `__call__` up on the class, and MLX has no hooks. A class made for the instance is a subclass of
its own, so that everything else is as written; the user's classes are not touched.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.mlx.describe import Describer, find_arrays_in, find_leaves
from modelglass.frameworks.mlx.graph.call_splits import CallSplits
from modelglass.frameworks.shared.error_source import find_source_line
from modelglass.options import Progress
from modelglass.report import Call, Failure, Phase, Value
from modelglass.undo import UndoLog

PROGRESS_EVERY = 500  # calls


@dataclass(slots=True)
class _Frame:
    """A call going on or done."""

    index: int
    path: str
    parent: int | None
    phase: Phase
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...] = ()
    completed: bool = False


@dataclass(frozen=True, slots=True)
class Crossing:
    """Arrays that crossed the border of a call, and the call they came from: what made them ran there.

    They are copies, which share their values: objects may be written into later on.
    """

    call: int | None
    arrays: tuple[mx.array, ...]


@dataclass
class Watcher:
    """Writes down calls in order, and which arrays crossed their borders."""

    describer: Describer
    progress: Progress | None = None
    splits: CallSplits | None = None  # what calls return is replaced
    crossings: list[Crossing] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)  # of all calls that came to their end
    left: tuple[mx.array, ...] = ()  # what the first call, which is the model's, returned
    _frames: list[_Frame] = field(default_factory=list)
    _stack: list[_Frame] = field(default_factory=list)

    def run(
        self,
        path: str,
        call: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        module: nn.Module | None = None,
    ) -> Any:
        """Make a call of the module at that path, and write it down."""
        frame = self._enter(path, args, kwargs)
        try:
            output = call(*args, **kwargs)
            frame.outputs = self.describer.flatten(output)
            frame.completed = True
            return self._leave(frame, output, (module, args, kwargs))
        finally:
            self._stack.pop()

    def _leave(self, frame: _Frame, output: Any, around: tuple[Any, ...]) -> Any:
        """Take down what a call returned, and what it left in its module and in objects it was given."""
        copies = {id(array): copy(array) for array in find_arrays_in(output)}
        left = tuple(copies[id(array)] for array in find_arrays_in(output))
        if frame.index == 0:
            self.left = left
        self.crossings.append(Crossing(frame.index, (*left, *map(copy, _find_kept_arrays(*around)))))
        self.outputs.append(output)
        return output if self.splits is None else self.splits.replace_arrays(output, copies)

    def _enter(self, path: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Frame:
        parent = self._stack[-1].index if self._stack else None
        self.crossings.append(Crossing(parent, tuple(map(copy, find_arrays_in((args, kwargs))))))
        # A call after the model's own has ended is made by the backward pass of a checkpoint.
        first = self._frames[0] if self._frames else None
        phase: Phase = "recompute" if first is not None and first.completed else "forward"
        inputs = self.describer.arguments(args, kwargs)
        frame = _Frame(len(self._frames), path, parent, phase, inputs)
        self._frames.append(frame)
        self._stack.append(frame)
        if self.progress is not None and len(self._frames) % PROGRESS_EVERY == 0:
            self.progress(f"{len(self._frames):,} calls")
        return frame

    @property
    def recomputing(self) -> set[int]:
        """The calls that were made again to compute gradients."""
        return {frame.index for frame in self._frames if frame.phase == "recompute"}

    @property
    def paths(self) -> list[str]:
        """The module of each call."""
        return [frame.path for frame in self._frames]

    def calls(self, ran: Mapping[int, str]) -> tuple[Call, ...]:
        """All calls, with the digest of what ran in each."""
        return tuple(
            Call(
                index=frame.index,
                module=frame.path,
                parent=frame.parent,
                phase=frame.phase,
                inputs=frame.inputs,
                outputs=frame.outputs,
                completed=frame.completed,
                ran=ran.get(frame.index),
            )
            for frame in self._frames
        )

    def failure(self, error: BaseException, types: Mapping[str, str]) -> Failure:
        """Where the run ended, and the shapes that met there."""
        frame = _innermost_call(error)
        path = "" if frame is None else frame.path
        return Failure(
            module=path,
            module_type=types.get(path, ""),
            error=type(error).__name__,
            message=str(error),
            op=None,
            inputs=() if frame is None else frame.inputs,
            source=find_source_line(error),
        )


def _find_kept_arrays(
    module: nn.Module | None, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[mx.array]:
    """Arrays that a module has as items, and that objects among its arguments (caches) have as attributes."""
    if module is not None:
        yield from (value for value in dict.values(module) if isinstance(value, mx.array))
    for _, value in find_leaves((args, kwargs)):
        if not isinstance(value, (mx.array, nn.Module)) and hasattr(value, "__dict__"):
            yield from find_arrays_in(vars(value))


def _innermost_call(error: BaseException) -> _Frame | None:
    """The innermost call that the error passed through, by its traceback."""
    found: _Frame | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is Watcher.run.__code__:
            found = trace.tb_frame.f_locals.get("frame", found)
        trace = trace.tb_next
    return found


def watch_calls(
    log: UndoLog,
    modules: Mapping[str, nn.Module],
    functions: Iterable[tuple[str, list[Any], int, Any]],
    watcher: Watcher,
) -> None:
    """The calls of these modules are written down; in the end their classes are their own again.

    `functions` are what stands among the layers of a Sequential without being a module.
    """
    paths = {id(module): path for path, module in modules.items()}
    shown: dict[type, type] = {}
    log.record(_forget_classes, shown)
    for module in modules.values():
        own = type(module)
        if own not in shown:
            shown[own] = _make_watched_class(own, paths, watcher)
        log.record(object.__setattr__, module, "__class__", own)
        object.__setattr__(module, "__class__", shown[own])
    for path, holder, place, function in functions:
        log.record(list.__setitem__, holder, place, function)
        holder[place] = _watch_function(path, function, watcher)


def _forget_classes(shown: dict[type, type]) -> None:
    moved = [_rebase(each, _UnusedClasses) for each in shown.values()]
    shown.clear()
    if not all(moved):
        gc.collect()


def _watch_function(path: str, function: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    return lambda *args, **kwargs: watcher.run(path, function, args, kwargs)


class _UnusedClasses(nn.Module):
    """Where classes that nobody uses any more hang, so that the user's have no subclasses left over."""


def _make_watched_class(own: type, paths: Mapping[int, str], watcher: Watcher) -> type:
    """A class like the user's whose instances' calls are written down."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        run = super(shown, self).__call__  # type: ignore[arg-type, misc]
        path = paths.get(id(self))
        if path is None:  # made in the run itself
            return run(*args, **kwargs)
        return watcher.run(path, run, args, kwargs, self)

    def reduced(self: Any, protocol: Any) -> Any:
        # A copy is of the user's class.
        make, given, *rest = super(shown, self).__reduce_ex__(protocol)  # type: ignore[arg-type, misc]
        return make, tuple(own if each is shown else each for each in given), *rest

    names: dict[str, Any] = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    names |= {"__doc__": own.__doc__, "__reduce_ex__": reduced}
    if any("__call__" in vars(cls) for cls in own.__mro__):
        names["__call__"] = call
    # Made below a class of ours and then moved, past the metaclass: nobody's __init_subclass__ hears of it.
    shown = type.__new__(type(own), own.__name__, (_UnusedClasses,), {**names, "__slots__": ()})
    if not _rebase(shown, own):
        shown = type.__new__(type(own), own.__name__, (own,), {**names, "__slots__": ()})
    return shown


def _rebase(shown: type, base: type) -> bool:
    """Hang a class below another one, unless the other's instances are laid out otherwise: with slots."""
    try:
        shown.__bases__ = (base,)
    except TypeError:
        return False
    return True
