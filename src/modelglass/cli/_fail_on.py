"""Which findings let a command end with exit code 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import click

from modelglass import api
from modelglass.cli._command import Decorated, option
from modelglass.errors import UsageError

ANY = "any"
_SEVERITIES = {"info": "info", "warning": "notice", "error": "high"}  # of notes, as levels


class FailOn(NamedTuple):
    """A level from which findings count, and codes that count at any level."""

    level: api.Level | None
    codes: frozenset[str] = frozenset()

    def matching_codes(self, notes: Iterable[Any]) -> list[str]:
        """The codes of notes that count, each once."""
        levels = api.LEVELS[api.LEVELS.index(self.level) :] if self.level is not None else ()
        return list(
            dict.fromkeys(
                note.code for note in notes if note.code in self.codes or _SEVERITIES[note.severity] in levels
            )
        )


class _FailOnType(click.ParamType):  # type: ignore[type-arg]
    """A level, or codes of findings by commas."""

    name = "findings"

    def __init__(self, codes: Mapping[str, str]) -> None:
        self._codes = codes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FailOn:
        if isinstance(value, FailOn):
            return value
        given = set(value.replace(" ", "").split(",")) - {""}
        unknown = sorted(given - {ANY, *api.LEVELS, *self._codes})
        levels = [level for level in api.LEVELS if level in given]
        if unknown or not given or len(levels) > 1:
            raise UsageError(
                f"--fail-on: {unknown[0] if unknown else value!r} is not a level or code of findings",
                hint=f"levels are {', '.join(api.LEVELS)}, any"
                + (f"; codes are {', '.join(self._codes)}" if self._codes else ""),
            )
        codes = frozenset(self._codes) if ANY in given else given & self._codes.keys()
        if ANY in given and not self._codes:
            levels = [api.LEVELS[0]]
        return FailOn(levels[0] if levels else None, frozenset(codes))


def fail_on_option(codes: Mapping[str, str], default: str | None = None) -> Callable[[Decorated], Decorated]:
    """Which findings are a failure: those of a level and above, or those of some codes."""
    return option(
        "--fail-on",
        type=_FailOnType(codes),
        metavar="FINDINGS",
        default=default,
        show_default=default is not None,
        help="Exit with 1 on findings of this level and above (info, notice, high), or on any. "
        "stats and diff also take codes, comma-separated.",
    )
