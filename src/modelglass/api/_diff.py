"""What changed from one model's values to another's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from modelglass.api._inspect import report_on_model
from modelglass.api._models import BuiltModel, require_extra, with_model
from modelglass.errors import UsageError
from modelglass.gc_pause import paused_gc
from modelglass.options import BuildOptions, ReadOptions, RunOptions
from modelglass.page.units import pace
from modelglass.targets import Readable, resolve
from modelglass.targets.kind import report_nothing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelglass.formats.reading import Reading
    from modelglass.options import Progress
    from modelglass.report import Comparison, Diff, Report, Values

Answer = TypeVar("Answer")


def diff(
    a: Any,
    b: Any,
    *,
    with_: Sequence[Any] = (),
    ignore: Sequence[str] = (),
    tolerance: float = 0.0,
    trust: bool = False,
    progress: Progress | None = None,
) -> Diff:
    """What became of the values of `a` in `b`, tensor by tensor, and the operations that explain it.

    Each is a checkpoint of any format or its folder, a live module of torch or MLX, or code that builds one
    ("file.py::function"). Tensors are lined up as `compare` does, and their values are read a piece at a
    time. Configurations and saved reports have no values, and the answer says so. `with_` are further models
    that `b` may be merged of. `ignore` are patterns of tensors to leave out; within the `tolerance`, a
    relative difference, tensors count as the same.

    >>> import torch
    >>> a = torch.nn.Linear(64, 64)
    >>> b = torch.nn.Linear(64, 64)
    >>> _ = b.load_state_dict(a.state_dict())
    >>> diff(a, b).verdict
    'identical'
    """
    if tolerance < 0:
        raise UsageError("the tolerance is negative", hint="give a relative difference, such as 1e-6")
    with require_extra("numpy", "reading weights", extra="stats"):
        from modelglass.analyses.diff import diff as analysis

    tell = progress or report_nothing

    def join(opened: Sequence[_Opened]) -> Diff:
        begun = time.monotonic()

        def advance(done: int, total: int) -> None:
            tell(f"comparing weights, {pace(done, total, time.monotonic() - begun)}")

        one, other, *further = opened
        return analysis.diff(
            _structure(one, other),
            analysis.Compared(one.report.model, one.values),
            analysis.Compared(other.report.model, other.values),
            others=[
                (_structure(one, each), analysis.Compared(each.report.model, each.values)) for each in further
            ],
            ignore=tuple(ignore),
            tolerance=tolerance,
            unsaved=(one.unsaved or frozenset()) | (other.unsaved or frozenset()),
            advance=advance,
        )

    return _with_all([_Side(each, trust, tell) for each in (a, b, *with_)], (), join)


def _with_all(
    sides: Sequence[_Side], opened: Sequence[_Opened], look: Callable[[Sequence[_Opened]], Answer]
) -> Answer:
    """What a function finds out while all of them are open."""
    if not sides:
        return look(opened)
    return sides[0].with_open(lambda each: _with_all(sides[1:], (*opened, each), look))


def _structure(a: _Opened, b: _Opened) -> Comparison:
    from modelglass.analyses.compare import compare

    with paused_gc():
        return compare(
            a.report.model,
            b.report.model,
            unsaved_a=a.unsaved,
            unsaved_b=b.unsaved,
            checkpoint_a=a.report.checkpoint,
            checkpoint_b=b.report.checkpoint,
        )


@dataclass(frozen=True)
class _Opened:
    """One of the two while its values can be read; None: it has none."""

    report: Report
    values: Mapping[str, Values | str] | None = None
    unsaved: frozenset[str] | None = None


@dataclass(frozen=True)
class _Side:
    """One of the two, before it is opened."""

    target: Any
    trust: bool
    tell: Progress

    def with_open(self, look: Callable[[_Opened], Answer]) -> Answer:
        """What a function finds out while the values can be read."""
        found = resolve(self.target, BuildOptions(trust=self.trust), check=False)
        if isinstance(found, Readable):
            return self._read(found, look)
        return self._build(found, look)

    def _read(self, target: Readable, look: Callable[[_Opened], Answer]) -> Answer:
        answers: list[Answer] = []

        def with_values(report: Report, reading: Reading) -> Report:
            from modelglass.formats.tensors.values import values

            answers.append(look(_Opened(report, values(reading, report.model.tensors))))
            return report

        report = target.read(ReadOptions(stats=True), self.tell, with_values)
        return answers[0] if answers else look(_Opened(report))

    def _build(self, target: Any, look: Callable[[_Opened], Answer]) -> Answer:
        run = RunOptions(mode="none")

        def observe(built: BuiltModel) -> Answer:
            report = report_on_model(built, run, ReadOptions(), self.tell)
            unsaved = built.adapter.non_persistent_names(built.native)
            return look(_Opened(report, built.adapter.values(built.native), unsaved))

        weightless = target.kind == "config"
        return with_model(target, run, observe, weightless=weightless, own_inputs=False, progress=self.tell)
