"""The flow for programs: versioned JSON whose schema is published in docs/."""

from __future__ import annotations

from modelglass.renderers._json import pretty
from modelglass.renderers.scan import plain
from modelglass.report import Flow

FORMAT = "modelglass-flow"
VERSION = 1


def render(flow: Flow) -> str:
    """Every field of every node and edge, the same text for the same flow."""
    return pretty({"format": FORMAT, "version": VERSION, **plain(flow)})
