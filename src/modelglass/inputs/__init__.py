"""Inputs of a model, found by trying: descriptions of inputs, and a search for ones that run.

Nothing here knows a framework: whoever asks runs the trials.
"""

from modelglass.inputs.described import Call, Named, Plain, Several, Tensor
from modelglass.inputs.given import Fixed, call_of, fixed_by, is_untyped, missing, with_values
from modelglass.inputs.process import search_within
from modelglass.inputs.search import Found, Model, Search
from modelglass.inputs.trial import Trial, Want

__all__ = [
    "Call",
    "Fixed",
    "Found",
    "Model",
    "Named",
    "Plain",
    "Search",
    "Several",
    "Tensor",
    "Trial",
    "Want",
    "call_of",
    "fixed_by",
    "is_untyped",
    "missing",
    "search_within",
    "with_values",
]
