"""`model-inspector`: what a model is, how data flows through it, and what training it takes in memory."""

from modelglass.compat.model_inspector.inspect import BATCH_SIZE, OPTIMIZER, Question, inspect_model
from modelglass.compat.model_inspector.text import render
from modelglass.compat.model_inspector.words import LANGUAGES

__all__ = ["BATCH_SIZE", "LANGUAGES", "OPTIMIZER", "Question", "inspect_model", "render"]
