"""The whole inspection as text: title, summary, checkpoint, flow, memory, notes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modelglass.compat.model_inspector import checkpoint, memory, modules, summary
from modelglass.compat.model_inspector._lines import heading, sentence
from modelglass.compat.model_inspector.words import Words, flow_words, words
from modelglass.page import pages
from modelglass.renderers._escape import unspoken
from modelglass.renderers._terminal import note_lines, painter
from modelglass.renderers.pages import text as pages_text

if TYPE_CHECKING:
    from modelglass.compat.model_inspector.inspection import Inspection
    from modelglass.report import Note

TOLD = frozenset({"forward-failed"})
SETTLED = frozenset({"buffers-guessed", "buffers-unknown", "built-from-config"})


def render(inspection: Inspection, *, language: str = "en", width: int = 100, verbose: bool = False) -> str:
    """The inspection as text; `verbose` shows every module and every setting."""
    say = words(language)
    sections = [heading(say("title"))]
    sections += summary.sections(inspection, say, width, verbose)
    sections += checkpoint.sections(inspection, say, width, verbose)
    if verbose:
        sections += modules.sections(inspection, say, width)
    sections += _flow(inspection, say, width)
    sections += memory.sections(inspection, say, language, width)
    notes = _notes(inspection)
    if notes:
        sections.append(f"{say('notes')}:\n{note_lines(notes, width, painter(False))}")
    return unspoken("\n\n".join(sections) + "\n")


def _flow(inspection: Inspection, say: Words, width: int) -> Iterator[str]:
    yield heading(say("flow"))
    if inspection.flow is not None:
        page = pages.flow(inspection.flow, words=flow_words(say))
        yield pages_text.render(page, width=width).rstrip("\n")
    else:
        yield sentence(summary.reason(inspection.unknown.get("flow", "needs-code"), say), width)


def _notes(inspection: Inspection) -> list[Note]:
    """What the reports remark, each once; that a pass failed is told elsewhere.

    Code knows its buffers, and what a file leaves open about them is not a question then.
    """
    reports = (inspection.report, inspection.trained, inspection.checkpoint)
    notes = [note for report in reports if report is not None for note in report.notes]
    if inspection.flow is not None:
        shown = {(note.code, note.text) for note in inspection.flow.notes}
        notes = [note for note in notes if (note.code, note.text) not in shown]
    told = TOLD if inspection.report is None else TOLD | SETTLED
    return [note for place, note in enumerate(notes) if note.code not in told and note not in notes[:place]]
