"""What `model-inspector` shows: summary, flow and memory of a model, in English and Korean."""

from modelglass.renderers.inspector.text import render
from modelglass.renderers.inspector.words import LANGUAGES

__all__ = ["LANGUAGES", "render"]
