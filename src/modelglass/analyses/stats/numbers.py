"""The numbers of a small tensor, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelglass.analyses.stats.layouts import layout_of

if TYPE_CHECKING:
    from modelglass.report import Values

MOST = 64  # values that are worth listing
_DIGITS = {"float32": 7, "float16": 4, "bfloat16": 3}  # that the type holds for sure


def numbers(values: Values) -> list[float] | None:
    """The values in row-major order, as short as their type lets them be; None: too many, or no numbers."""
    layout = layout_of(values.dtype)
    if layout is None or layout.magnitudes or not 0 < values.numel <= MOST:
        return None
    found = layout.decode(layout.words(values.read(0, values.numel))).tolist()
    digits = _DIGITS.get(values.dtype)
    if layout.integer:
        return [int(number) for number in found]
    return found if digits is None else [float(f"{number:.{digits}g}") for number in found]
