"""A report, or the file of one that was saved: it is taken as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from modelglass.errors import ReportFormatError, UnknownTargetError, UsageError
from modelglass.gc_pause import paused_gc
from modelglass.options import BuildOptions, ReadOptions
from modelglass.report import Report
from modelglass.targets.kind import RUN, Readable
from modelglass.targets.paths import PAGE_SUFFIXES

if TYPE_CHECKING:
    from modelglass.checkpoints import WithStats
    from modelglass.options import Progress


@dataclass(frozen=True)
class SavedReport(Readable):
    """A report, and the file that it was read from, if any."""

    report: Report
    path: Path | None = None

    kind = "saved"
    takes = frozenset({"framework"})
    because = "a report is taken as it is"
    advice: ClassVar[Mapping[str, str]] = dict.fromkeys((*RUN, "stats"), "give the model that it is of")

    def __str__(self) -> str:
        return "a report" if self.path is None else f"the report {str(self.path)!r}"

    def read(self, options: ReadOptions, progress: Progress, with_stats: WithStats) -> Report:
        return self.report


def resolve(target: Any, build: BuildOptions) -> SavedReport:
    if isinstance(target, Report):
        found = SavedReport(target)
    else:
        found = SavedReport(_load(Path(target)), Path(target))
    source = found.report.model.source
    if build.framework not in (None, source):
        raise UsageError(
            f"this is a report of a model of {source}, not of {build.framework}",
            hint="leave the framework out, or give what the report is of",
        )
    return found


def _load(path: Path) -> Report:
    found = load(path)
    if not isinstance(found, Report):
        kind = type(found).__name__
        raise UnknownTargetError(
            f"{str(path)!r} holds a {kind}, not a model",
            hint=f"name the model; mg.load reads a {kind} back",
        )
    return found


def load(path: Path, kind: type[Any] | None = None) -> Any:
    """Read what was saved, or the page that holds it; `kind` says what it must be."""
    from modelglass.report.codec import loads
    from modelglass.report.embedded import extract

    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise ReportFormatError(
            f"{str(path)!r} cannot be read: {cause}", hint="pass a file that mg.save wrote"
        ) from cause
    with paused_gc():
        found = loads(extract(content) if path.suffix.lower() in PAGE_SUFFIXES else content)
    if kind is not None and not isinstance(found, kind):
        raise ReportFormatError(
            f"{str(path)!r} holds a {type(found).__name__}, not a {kind.__name__}",
            hint="leave the kind out, or pass another file",
        )
    return found
