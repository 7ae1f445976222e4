"""The values of a checkpoint's tensors as numpy arrays, read from the file a piece at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from modelglass import quantized
from modelglass.formats.gguf.types import NAMED
from modelglass.formats.packing.dequantize import dequantized, is_known
from modelglass.formats.reading import Reading
from modelglass.formats.tensors.location import Place
from modelglass.formats.tensors.strides import row_major
from modelglass.report import Stored, Tensor, Values
from modelglass.report.dtypes import bits_of, is_complex

Array = NDArray[Any]
Axes = tuple[tuple[int, int], ...]  # size and stride, in elements, from the outermost to the innermost

_WORDS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}  # numpy has no integers of 16 bytes
_STORED_AS = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}

GATHERED = 1 << 19  # elements of a view whose places are computed at once
GAP_NBYTES = 4 << 10  # bytes between elements that are read along rather than read around
PIECE_NBYTES = 1 << 20  # most that is read at once to pick elements from
EXPANDED_FREELY, EXPANDED_TIMES = 64 << 20, 64  # bytes a view may show at least, and times what is stored


def values(reading: Reading, tensors: Sequence[Tensor] | None = None) -> dict[str, Values | str]:
    """How to read each tensor by name, or a few words on why it cannot be read.

    `tensors` are those of the reading after packed weights were recognised: what these stand for can then be
    offered, where it is known how to compute it.
    """
    found = {tensor.name: _values(reading.places.get(tensor.name)) for tensor in reading.tensors}
    for tensor in tensors or ():
        stored = found.get(tensor.name)
        if tensor.packing is not None and isinstance(stored, Values) and tensor.name.endswith("weight"):
            stem = tensor.name.removesuffix("weight")
            sides = {side: found[stem + side] for side in quantized.SIDES if stem + side in found}
            found[tensor.name] = quantized.dequantized(tensor.packing, stored, sides) or stored
    return found


def _values(place: Place | None) -> Values | str:
    if place is None:
        return "not stored where they can be read"
    if place.encoding is not None:
        return _encode(place, place.encoding)
    bits = bits_of(place.dtype)
    if bits is None or bits % 8:
        return f"of type {place.dtype}"
    return _plain(place, bits // 8)


def _encode(place: Place, encoding: str) -> Values | str:
    if not is_known(encoding):
        return f"of the unknown encoding {encoding}"
    kind = NAMED[encoding]
    if prod(place.shape) * kind.nbytes != place.nbytes * kind.numel:
        return "not all in the file"
    read = partial(_read_blocks, place, encoding)
    return Values(
        dtype="float32",
        shape=place.shape,
        read=read,
        described="dequantized",
        stored=_stored(place, place.nbytes),
    )


def _read_blocks(place: Place, encoding: str, start: int, stop: int) -> Array:
    """The bits of floats; only the blocks that hold some of those asked for are read."""
    kind = NAMED[encoding]
    first, last = start // kind.numel, -(-stop // kind.numel)
    raw = place.source.read(
        place.offset + first * kind.nbytes, (last - first) * kind.nbytes, "the values of a tensor"
    )
    floats = dequantized(encoding, raw, big_endian=place.big_endian)
    return floats[start - first * kind.numel : stop - first * kind.numel].view(np.uint32)


def _plain(place: Place, itemsize: int) -> Values | str:
    axes = _axes(place)
    if any(stride < 0 for _, stride in axes):
        return "stored backwards"
    numel = prod(place.shape)
    extent = place.first + 1 + sum((size - 1) * stride for size, stride in axes) if numel else 0
    if extent * itemsize > place.nbytes:
        return "not all in the file"
    if numel * itemsize > max(EXPANDED_FREELY, EXPANDED_TIMES * place.nbytes):
        return f"expanded from {place.nbytes:,} bytes to {numel:,} elements"
    strided = axes not in ((), ((numel, 1),))
    read = partial(_read_view, place, itemsize, axes) if strided else partial(_read_run, place, itemsize)
    return Values(
        dtype=_STORED_AS.get(place.dtype, place.dtype),
        shape=place.shape,
        read=read,
        described="stored" if place.dtype in _STORED_AS else "values",
        stored=None if strided else _stored(place, numel * itemsize, place.first * itemsize),
    )


def _stored(place: Place, nbytes: int, first: int = 0) -> Stored:
    """The bytes of all elements, which follow each other from the byte `first` on."""

    def read(start: int, stop: int) -> bytes:
        return place.source.read(place.offset + first + start, stop - start, "the values of a tensor")

    form = f"{place.encoding or place.dtype}{', big-endian' if place.big_endian else ''}"
    return Stored(form=form, nbytes=nbytes, read=read)


def _axes(place: Place) -> Axes:
    """The axes of a view, as few as describe it: one, if its elements follow each other."""
    strides = row_major(place.shape) if place.strides is None else place.strides
    axes: list[tuple[int, int]] = []
    for size, stride in zip(place.shape, strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            axes[-1] = axes[-1][0] * size, stride
        else:
            axes.append((size, stride))
    return tuple(axes)


def _read_run(place: Place, itemsize: int, start: int, stop: int) -> Array:
    """Elements that follow each other."""
    offset = place.offset + (place.first + start) * itemsize
    raw = place.source.read(offset, (stop - start) * itemsize, "the values of a tensor")
    # A copy, because arrays on the bytes of Python are read-only, for which loops are compiled anew.
    found: Array = np.frombuffer(raw, _WORDS[itemsize]).copy()
    if place.big_endian and itemsize > 1:
        part = itemsize // 2 if is_complex(place.dtype) else itemsize
        found.view(f"u{part}").byteswap(inplace=True)
    return found


def _read_view(place: Place, itemsize: int, axes: Axes, start: int, stop: int) -> Array:
    """Elements in the order of a view, wherever they lie in the storage."""
    found = np.empty(stop - start, _WORDS[itemsize])
    for begin in range(start, stop, GATHERED):
        end = min(begin + GATHERED, stop)
        _gather(place, itemsize, _stored_at(axes, begin, end), found[begin - start : end - start])
    return found


def _stored_at(axes: Axes, start: int, stop: int) -> Array:
    """Where in the storage, counted from the view's first element, the elements of the view are."""
    flat = np.arange(start, stop)
    found = np.zeros(stop - start, np.int64)
    for size, stride in reversed(axes):
        flat, along = np.divmod(flat, size)
        found += along * stride
    return found


def _gather(place: Place, itemsize: int, stored_at: Array, into: Array) -> None:
    """Read the elements at those positions, in the order of the file and not much more than them."""
    order = np.argsort(stored_at, kind="stable")
    sorted_at = stored_at[order]
    breaks = np.flatnonzero(np.diff(sorted_at) > max(1, GAP_NBYTES // itemsize)) + 1
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(order)], strict=True):
        while first < last:
            low = int(sorted_at[first])
            until = first + int(np.searchsorted(sorted_at[first:last], low + PIECE_NBYTES // itemsize))
            run = _read_run(place, itemsize, low, int(sorted_at[until - 1]) + 1)
            into[order[first:until]] = run[sorted_at[first:until] - low]
            first = until
