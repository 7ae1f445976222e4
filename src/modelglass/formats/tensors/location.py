"""Where values are, for whoever wants to read them."""

from __future__ import annotations

from dataclasses import dataclass

from modelglass.formats.source import Source
from modelglass.report import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tensor's stored elements are, and how they lie there.

    `dtype` and `shape` are those of the stored elements. `strides` (in elements, None: row-major without
    gaps) and `first` (an element) describe a view of a larger storage. `encoding` names a block format of
    GGUF, whose elements can only be read a block at a time; `shape` is then the logical one.
    """

    source: Source
    offset: int
    nbytes: int
    dtype: str
    shape: Shape
    strides: Shape | None = None
    first: int = 0
    big_endian: bool = False
    encoding: str | None = None
