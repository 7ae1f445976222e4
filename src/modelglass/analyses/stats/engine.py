"""One pass over many tensors, by several threads, with bounded memory.

A tensor is cut into spans of fixed length, whatever the number of threads, and spans are merged in order:
the result depends on neither. Small tensors are folded by the thread that asks, while others are at the large
ones. What is held at any time is one chunk and one table a thread, and the partial results of the tensors
under way: less than 48 MiB a thread.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from modelglass.analyses.stats import plain
from modelglass.analyses.stats.fold import fold
from modelglass.analyses.stats.layouts import Layout, layout_of
from modelglass.analyses.stats.partial import PartialStats
from modelglass.report.dtypes import nbytes_of
from modelglass.report.stats import TensorStats
from modelglass.report.values import Values

SPAN = 1 << 25  # elements a thread folds in one go
MOST_WORKERS = 16  # more threads only wait for memory
WORTH_COMPILING = 256 << 20  # bytes below which loading the compiler takes longer than it saves
WORTH_A_THREAD = 2 << 20  # bytes of a tensor below which threads only wait for each other

Advance = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True)
class _Span:
    name: str
    values: Values
    layout: Layout
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return nbytes_of(self.values.dtype, self.stop - self.start) or 0

    @property
    def last(self) -> bool:
        return self.stop == self.values.numel

    @property
    def whole(self) -> bool:
        return self.start == 0 and self.last

    def is_worth_a_thread(self, kernels: ModuleType) -> bool:
        """Whether others can run meanwhile: numpy's loops over wide types return to Python for each block."""
        small = self.whole and self.nbytes < WORTH_A_THREAD
        return not small and (kernels is not plain or self.layout.countable)

    def fold(self, kernels: ModuleType) -> PartialStats | TensorStats:
        """Its partial result, or the tensor's statistics when it is all of it."""
        found = fold(self.values, self.layout, self.start, self.stop, kernels)
        return found.finish(self.values.described) if self.whole else found


@dataclass(frozen=True, slots=True)
class _UnderWay:
    span: _Span
    future: Future[PartialStats | TensorStats]
    in_thread: bool


def describe(
    sources: Mapping[str, Values],
    *,
    advance: Advance | None = None,
    workers: int | None = None,
    kernels: ModuleType | None = None,
) -> dict[str, TensorStats]:
    """Statistics of every source whose element type is known, in the order given."""
    spans = list(_spans(sources))
    total = sum(span.nbytes for span in spans)
    kernels = kernels or kernels_for(total)
    done = 0
    under_way: dict[str, PartialStats] = {}
    finished: dict[str, TensorStats] = {}
    for span, found in _in_order(spans, kernels, workers or processors()):
        if isinstance(found, PartialStats):
            before = under_way.pop(span.name, None)
            found = found if before is None else before.merge(found)
            if span.last:
                found = found.finish(span.values.described)
        if isinstance(found, PartialStats):
            under_way[span.name] = found
        else:
            finished[span.name] = found
        done += span.nbytes
        if advance is not None:
            advance(done, total)
    return finished


def _spans(sources: Mapping[str, Values]) -> Iterator[_Span]:
    for name, values in sources.items():
        layout = layout_of(values.dtype)
        if layout is not None:
            for start in range(0, max(values.numel, 1), SPAN):
                yield _Span(name, values, layout, start, min(start + SPAN, values.numel))


def _in_order(
    spans: list[_Span], kernels: ModuleType, workers: int
) -> Iterator[tuple[_Span, PartialStats | TensorStats]]:
    """Each span with its result, in order; threads are a few of the large ones ahead."""
    large = sum(span.is_worth_a_thread(kernels) for span in spans)
    ahead: deque[_UnderWay] = deque()
    in_threads = 0
    with _Holding() as holding, ThreadPoolExecutor(workers, thread_name_prefix="modelglass") as pool:
        try:
            for span in spans:
                holding.begin(span)
                if min(large, workers) > 1 and span.is_worth_a_thread(kernels):
                    ahead.append(_UnderWay(span, pool.submit(span.fold, kernels), in_thread=True))
                    in_threads += 1
                else:
                    ahead.append(_UnderWay(span, _fold_here(span, kernels, holding), in_thread=False))
                while ahead and (in_threads > 2 * workers or ahead[0].future.done()):
                    in_threads -= ahead[0].in_thread
                    yield _next(ahead, holding)
            while ahead:
                yield _next(ahead, holding)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _fold_here(span: _Span, kernels: ModuleType, holding: _Holding) -> Future[PartialStats | TensorStats]:
    """What the thread that asks has folded itself. Results before it may take a while; this is let go now."""
    future: Future[PartialStats | TensorStats] = Future()
    future.set_result(span.fold(kernels))
    if span.whole:
        holding.end(span)
    return future


def _next(ahead: deque[_UnderWay], holding: _Holding) -> tuple[_Span, PartialStats | TensorStats]:
    first = ahead.popleft()
    found = first.future.result()
    holding.end(first.span)
    return first.span, found


class _Holding:
    """Tensors under way, each held from its first span to its last by the thread that asks."""

    def __init__(self) -> None:
        self._stacks: dict[str, ExitStack] = {}

    def begin(self, span: _Span) -> None:
        if span.start == 0 and span.values.held is not None:
            stack = ExitStack()
            stack.enter_context(span.values.holding())
            self._stacks[span.name] = stack

    def end(self, span: _Span) -> None:
        stack = self._stacks.pop(span.name, None) if span.last else None
        if stack is not None:
            stack.close()

    def __enter__(self) -> _Holding:
        return self

    def __exit__(self, *raised: object) -> None:
        for stack in self._stacks.values():
            stack.close()


def processors() -> int:
    """How many threads do some good."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(available, MOST_WORKERS)


def kernels_for(nbytes: int) -> ModuleType:
    """The compiled loops where they pay and numba is there, else the plain ones. Results are the same."""
    if nbytes < WORTH_COMPILING:
        return plain
    try:
        return import_module("modelglass.analyses.stats.compiled")
    except ImportError:
        return plain
