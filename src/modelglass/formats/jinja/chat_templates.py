"""Chat templates: Jinja programs that run with the model. What they reach beyond their data is told.

They are parsed, never rendered. The parser is Jinja's own, imported when there is a template.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Json, Level

if TYPE_CHECKING:
    from modelglass.formats.jinja.reach import Reach

_SHOWN = 12  # things that one finding lists
_LEAST = 200  # characters that each template counts for, however short

_EFFECTS = {
    "template.escape": "leads out of the sandbox that templates run in, to Python itself",
    "template.other": "the program that renders it reads files for that",
    "template.exhausts": "rendering it takes time or memory without a use",
}


def read(source: Source, reading: Reading) -> None:
    """Judge a file that is a template."""
    limit = reading.limits.template_nchars
    if source.nbytes > 4 * limit:  # a character takes no more than four bytes
        raise source.over("template_nchars", limit)
    text = source.read(0, source.nbytes, "the template").decode("utf-8-sig", "backslashreplace")
    judge(text, source, reading)


def judge(text: str, source: Source, reading: Reading, *, offset: int | None = None, **details: Json) -> None:
    """Find what a template reaches; `details` say where in the source it is."""
    said = f"a chat template of {len(text):,} characters, which is run as a Jinja program"
    reading.found(source, "code.chat-template", "info", said, offset=offset, **details)
    if not reading.thorough or _is_over(text, source, reading, offset):
        return
    # Only a scan needs jinja2.
    from jinja2 import TemplateSyntaxError

    from modelglass.formats.jinja.reach import reaches
    from modelglass.formats.jinja.values import TooComplexError

    try:
        found = reaches(text)
    except TemplateSyntaxError as error:
        problem = f"line {error.lineno} is not Jinja: {str(error.message)[:200]}"
        _unjudged(source, reading, problem, offset, details)
    except (RecursionError, TooComplexError) as cause:
        size = "is nested too deeply" if isinstance(cause, RecursionError) else f"has {cause}"
        text = f"a chat template {size}, and was not looked at"
        reading.found(source, "limit", "limit", text, offset=offset, **details)
    else:
        _tell(found, source, reading, offset, details)


def _is_over(text: str, source: Source, reading: Reading, offset: int | None) -> bool:
    """Whether this template is one too much; the first that is gets a finding, and the file is read on."""
    limit, before = reading.limits.template_nchars, reading.template_nchars
    reading.template_nchars += max(len(text), _LEAST)
    if before <= limit < reading.template_nchars:
        reading.stopped(source.over("template_nchars", limit, offset=offset))
    return reading.template_nchars > limit


def _unjudged(
    source: Source, reading: Reading, why: str, offset: int | None, details: dict[str, Json]
) -> None:
    text = f"a chat template could not be judged: {why}"
    reading.found(source, "template.unjudged", "notice", text, offset=offset, **details)


def _tell(
    found: list[Reach], source: Source, reading: Reading, offset: int | None, details: dict[str, Json]
) -> None:
    """One finding for all of a kind: a template that leaves its sandbox takes many steps."""
    kinds: dict[str, list[Reach]] = defaultdict(list)
    for reach in found:
        kinds[reach.code].append(reach)
    for code, several in kinds.items():
        shown = "; ".join(f"{reach.what} (line {reach.line:,})" for reach in several[:_SHOWN])
        more = f" and {len(several) - _SHOWN:,} more" if len(several) > _SHOWN else ""
        effect = f": {_EFFECTS[code]}" if code in _EFFECTS else ""
        level: Level = "high" if any(reach.level == "high" for reach in several) else "notice"
        text = f"a chat template {shown}{more}{effect}"
        reading.found(source, code, level, text, offset=offset, line=several[0].line, **details)
