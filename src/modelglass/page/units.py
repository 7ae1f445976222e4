"""Numbers as people read them. Exact figures stay in the data; these are for the eye."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.report import Json, Shape, SourceLine, Value


_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
MB = 2**20  # as classic listings mean it
_DECIMAL = ("", " K", " M", " G", " T", " P", " E")


def size(nbytes: int) -> str:
    """Bytes in binary units: 1,048,576 is "1.00 MiB"."""
    value, unit = float(nbytes), 0
    while value >= 1024 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{nbytes} B" if unit == 0 else f"{value:.2f} {_BINARY[unit]}"


def megabytes(mb: float) -> str:
    """Binary units under their old names: KB below a tenth of an MB, GB from 1024 MB on."""
    if mb >= 1024:
        return f"{mb / 1024:.2f} GB"
    return f"{mb:.2f} MB" if mb >= 0.1 or mb == 0 else f"{mb * 1024:.2f} KB"


def short(number: int) -> str:
    """A count in three digits or so: 1,814,073,344 is "1.81 G"."""
    value, unit = float(number), 0
    while value >= 999.5 and unit < len(_DECIMAL) - 1:
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return str(number)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f}{_DECIMAL[unit]}"


def share(part: int, whole: int) -> str:
    """A part as a percentage, "<0.1 %" where rounding would say nothing."""
    if not whole or not part:
        return "–"
    percent = 100 * part / whole
    return "<0.1 %" if percent < 0.05 else f"{percent:.1f} %"


def shape_text(shape: Shape | None) -> str:
    """A shape as the command line takes it: "1x3x224x224"; a scalar is "scalar"."""
    if shape is None:
        return "?"
    return "x".join(map(str, shape)) or "scalar"


def known(number: int | None) -> str:
    """A count in full, or "unknown"."""
    return "unknown" if number is None else f"{number:,}"


def value_text(value: Value) -> str:
    """A tensor by its shape, anything else by its text."""
    if value.dtype is None:
        return value.text or "?"
    return shape_text(value.shape)


def source_text(source: SourceLine) -> str:
    """A line of code with the place where it stands, as editors and terminals know it."""
    return f"{source.file}:{source.line}" + (f"  {source.text}" if source.text else "")


def pace(done: int, total: int, seconds: float) -> str:
    """How far a work on bytes is, how fast it goes and how long it will take."""
    rate = done / seconds if seconds > 0 else 0.0
    left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
    return f"{size(done)} of {size(total)}, {size(int(rate))}/s{left}"


def exactly(nbytes: int) -> str:
    """Bytes in a unit that reads well, and in full."""
    return size(nbytes) if nbytes < 1024 else f"{size(nbytes)} ({nbytes:,} bytes)"


def range_text(values: Sequence[Json], write: Callable[[Json], str]) -> str:
    """A setting that several equal modules have: its value, or the range where it differs."""
    if all(value == values[0] for value in values):
        return write(values[0])
    numbers = all(type(value) in (int, float) for value in values)
    ends = (min(values), max(values)) if numbers else (values[0], values[-1])
    return "…".join(map(write, ends))
