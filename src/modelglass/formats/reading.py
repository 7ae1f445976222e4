"""What readers fill in. It stays when one of them must stop, so that nothing found so far is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from modelglass.errors import FileError, LimitError
from modelglass.formats.limits import Limits
from modelglass.formats.source import Meter, OpenFile, Source

if TYPE_CHECKING:
    from modelglass.formats.tensors.location import Place
    from modelglass.report import CheckpointPart, Finding, GlobalUse, Json, Level, Op, Tensor, Value, Verdict


MOST_FINDINGS = 1000  # of one code and level; the rest is counted


class Search(Protocol):
    """Look into a part of a file for what may run; whether it is something that loaders load.

    `pickled`: a loader is known to unpickle it. `raw`: it should be values, and only what loaders would run
    is reported, not that something is wrong with it. `native` is the level of compiled code.
    """

    def __call__(
        self, member: Source, reading: Reading, *, pickled: bool, raw: bool, native: Level
    ) -> bool: ...


def _no_search(member: Source, reading: Reading, *, pickled: bool, raw: bool, native: Level) -> bool:
    raise RuntimeError("this reading cannot search what lies inside of files")


@dataclass(slots=True, kw_only=True)
class Reading:
    """One checkpoint, as far as it was read.

    `format` is what it turned out to be. A tensor that is not in `places` has no values that can be read.
    """

    limits: Limits = field(default_factory=Limits)
    thorough: bool = False  # read also what only a scan needs
    search: Search = _no_search  # set by whoever opens files: archives lie inside of archives
    one_of_several: bool = False  # a shard, whose names are compared with those of an index
    format: str | None = None
    tensors: list[Tensor] = field(default_factory=list)
    ordered: bool = True  # False: the tensors are sorted by type or name, and not in the model's own order
    places: Mapping[str, Place] = field(default_factory=dict)
    metadata: dict[str, Json] = field(default_factory=dict)
    has_buffers: bool = True  # False: whoever wrote it has none, and all that is saved are parameters
    findings: list[Finding] = field(default_factory=list)
    globals: list[GlobalUse] = field(default_factory=list)
    parts: list[CheckpointPart] = field(default_factory=list)  # what a training checkpoint holds
    prefix: str = ""  # that all names had, and that was taken off
    modules: dict[str, tuple[str, dict[str, Json]]] = field(default_factory=dict)  # path -> type, settings
    inputs: list[Value] = field(default_factory=list)  # of a graph, as the file declares them
    outputs: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)  # the nodes of a graph
    weights_only: Verdict | None = None
    refusal: str | None = None
    template_nchars: int = 0  # of chat templates that were judged
    opened: list[OpenFile] = field(default_factory=list)  # files beside the first one; the reading owns them

    depth: int = 0  # of archives inside archives
    unpacked: Meter = field(default_factory=Meter)  # bytes of those, by all readings of a file

    beyond: Counter[tuple[str, Level]] = field(default_factory=Counter)  # findings that were only counted
    _kept: Counter[tuple[str, Level]] = field(default_factory=Counter)

    def inner(self, *, deeper: bool = False) -> Reading:
        """A reading of a part, or of another view of the same file, to be absorbed by this one."""
        return Reading(
            limits=self.limits,
            thorough=self.thorough,
            search=self.search,
            depth=self.depth + deeper,
            unpacked=self.unpacked,
        )

    def look_into(
        self, member: Source, *, pickled: bool = False, raw: bool = False, native: Level = "notice"
    ) -> bool:
        """Search a part of a file, as `Search` says."""
        return self.search(member, self, pickled=pickled, raw=raw, native=native)

    def close(self) -> None:
        """Close what was opened for this reading."""
        while self.opened:
            self.opened.pop().close()

    def found(
        self,
        source: Source,
        code: str,
        level: Level,
        text: str,
        *,
        member: str | None = None,
        offset: int | None = None,
        **details: Any,
    ) -> None:
        """Keep a finding that does not stop the reading."""
        self._kept[code, level] += 1
        if self._kept[code, level] > MOST_FINDINGS:
            self.beyond[code, level] += 1
            return
        from modelglass.report import Finding

        self.findings.append(
            Finding(
                code=code,
                level=level,
                text=text,
                file=source.file,
                member=source.member if member is None else member,
                offset=offset,
                details=details,
            )
        )

    def stopped(self, error: FileError) -> None:
        """Keep the error that ended the reading of a part, or of all of it."""
        from modelglass.report import Finding

        self.findings.append(
            Finding(
                code=error.code,
                level="limit" if isinstance(error, LimitError) else "invalid",
                text=error.text,
                file=error.file,
                member=error.member,
                offset=error.offset,
                details={"hint": error.hint},
            )
        )

    def absorb(self, other: Reading) -> None:
        """Take over what was found elsewhere, and what was opened for it; not its tensors."""
        self.findings += other.findings
        self.globals += other.globals
        self.opened += other.opened
        self.beyond += other.beyond
        self._kept += other._kept
