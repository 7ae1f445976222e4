"""Another element type."""

from __future__ import annotations

import numpy as np

from modelglass.analyses.diff.change import Change
from modelglass.analyses.diff.explained import Explained
from modelglass.analyses.diff.numbers import rounded
from modelglass.report.dtypes import bits_of

_NARROW = 8  # bits; a type of so few is a quantization


def is_cast(change: Change) -> bool:
    """Whether both are of floating types, of which b's has enough bits."""
    types = (change.dtype_a, change.dtype_b)
    wide = (bits_of(change.dtype_b) or 0) > _NARROW
    plain = not (change.stored_a or change.stored_b)
    return plain and types[0] != types[1] and all("float" in each for each in types) and wide


def explain(change: Change) -> Explained | None:
    """b has the numbers of a in another floating type, or began with them."""
    if not is_cast(change):
        return None
    figures = {"from": change.dtype_a, "to": change.dtype_b}
    with np.errstate(all="ignore"):
        apart = np.abs(rounded(change.a, change.dtype_b) - change.b)
        kept = (apart <= change.steps) | (change.a == change.b)  # halves may be rounded in another way
        cut_off = bool(kept.all())
    return Explained("cast", figures, exact=False, rest=None if cut_off else change)
