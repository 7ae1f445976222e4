"""Plain data out of a pickle, as far as it can be shown: bounded in depth, width and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from struct import calcsize, pack, unpack
from typing import Any

from modelglass.formats.pickles.objects import Blob, Elements, Global, Pairs, Persistent, Thing, as_text
from modelglass.formats.tensors.location import Place
from modelglass.formats.tensors.strides import row_major
from modelglass.formats.torch.tensors import BadTensorError, Found, is_tensor, items_of, tensor_of
from modelglass.report import Json, Shape

MOST_DEPTH = 8
MOST_ITEMS = 64  # of one container
MOST_NODES = 2000
MOST_TEXT = 2000
MOST_NUMBERS = 64  # of a tensor whose values are shown


def shown(value: Any, places: Mapping[int, Place] | None = None) -> Json:
    """The value as JSON-safe data; what is too deep, too wide or too much is left out and said so.

    `places` says where the numbers of small tensors are, by the identity of the call that would make one.
    """
    return _Shower(places or {}).shown(value, 0)


class _Shower:
    def __init__(self, places: Mapping[int, Place]) -> None:
        self._left, self._places = MOST_NODES, places

    def shown(self, value: Any, depth: int) -> Json:
        self._left -= 1
        if self._left < 0 or depth > MOST_DEPTH:
            return "…"
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= 64 else f"an integer of {value.bit_length():,} bits"
        if isinstance(value, float):
            return value if value - value == 0 else str(value)  # JSON has neither NaN nor infinity
        if isinstance(value, (str, bytes)):
            text = as_text(value)
            return text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"
        if isinstance(value, Blob):
            return f"{value.nbytes:,} bytes"
        if isinstance(value, Global):
            return value.path
        if isinstance(value, Persistent):
            return "a storage"
        if is_tensor(value):
            return _tensor(value, self._places.get(id(value)))
        return self._container(value, depth)

    def _container(self, value: Any, depth: int) -> Json:
        if isinstance(value, (list, tuple)):
            return self._list(value, depth)
        if isinstance(value, Elements):
            return self._list(value.items, depth)
        if isinstance(value, Pairs):
            return self._dict(value, depth)
        if isinstance(value, Thing):
            return self._thing(value, depth)
        return type(value).__name__

    def _list(self, items: Any, depth: int) -> Json:
        found = [self.shown(item, depth + 1) for item in items[:MOST_ITEMS]]
        return found if len(items) <= MOST_ITEMS else [*found, f"… {len(items) - MOST_ITEMS:,} more"]

    def _dict(self, pairs: Pairs, depth: int) -> Json:
        found: dict[str, Json] = {}
        for key, item in list(pairs.items())[:MOST_ITEMS]:
            name = as_text(key) if isinstance(key, (str, bytes)) else str(self.shown(key, MOST_DEPTH))
            found[name[:200]] = self.shown(item, depth + 1)
        more = len(pairs.flat) // 2 - MOST_ITEMS
        return {**found, "…": f"{more:,} more"} if more > 0 else found

    def _thing(self, value: Thing, depth: int) -> Json:
        items = items_of(value)
        if items is not None:
            return self._dict(items, depth)
        simple = numpy_scalar(value) if value.path not in _SIMPLE else self._simple(value, depth)
        if simple is not None:
            return simple
        found: dict[str, Json] = {"class": value.path or "a computed class"}
        if isinstance(value.state, Pairs):
            state = self._dict(value.state, depth)
            return {**found, **state}
        if value.args:
            found["arguments"] = self.shown(value.args, depth + 1)
        if value.listed:
            found["items"] = self._list(value.listed, depth)
        return found

    def _simple(self, value: Thing, depth: int) -> Json:
        """What Python's own containers and the like hold, without their classes."""
        if value.listed is not None:
            return self._list(value.listed, depth)
        args = value.args if type(value.args) is tuple else ()
        if value.path == "_codecs.encode":
            return f"{len(as_text(args[0])):,} bytes" if args and isinstance(args[0], str) else None
        if value.path in ("torch.device", "builtins.complex") or value.path.startswith("pathlib."):
            joined = _SIMPLE[value.path].join(str(self.shown(each, depth + 1)) for each in args)
            return joined.replace("//", "/") or None
        return self.shown(args[0], depth + 1) if len(args) == 1 else None


# Calls that make something simple; of those whose arguments are texts, what stands between them.
_SIMPLE = {
    "_codecs.encode": "",
    "builtins.set": "",
    "builtins.frozenset": "",
    "collections.Counter": "",
    "collections.deque": "",
    "torch.Size": "",
    "torch.device": ":",
    "builtins.complex": " + i ",
    **{f"pathlib.{name}": "/" for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")},
}


def _tensor(value: Thing, place: Place | None) -> Json:
    try:
        found = tensor_of(value)
    except BadTensorError as error:
        return f"no tensor: {error}"
    numbers = None if prod(found.shape) > MOST_NUMBERS else _numbers(value, found, place)
    if numbers is not None:
        return numbers
    return f"{found.dtype} tensor {'x'.join(map(str, found.shape)) or 'scalar'}"


_SCALARS = {
    "f4": "<f",
    "f8": "<d",
    "i4": "<i",
    "i8": "<q",
    "i2": "<h",
    "u4": "<I",
    "u8": "<Q",
    "u1": "B",
    "i1": "b",
    "b1": "?",
}


def numpy_scalar(value: Thing) -> Json:
    """The number of a numpy scalar; None for anything else."""
    args = value.args
    if not value.path.endswith("multiarray.scalar") or type(args) is not tuple or len(args) != 2:
        return None
    descr, data = args
    code = as_text(descr.first_argument) if isinstance(descr, Thing) else ""
    if isinstance(data, Thing) and data.path == "_codecs.encode":
        raw = as_text(data.first_argument).encode("latin-1", "replace")
    else:
        raw = data.head if type(data) is Blob else b""
    layout = _SCALARS.get(code.lstrip("<>|="))
    if layout is None or calcsize(layout) != len(raw):
        return None
    (number,) = unpack(layout, raw)
    return number if number == number and abs(number) != float("inf") else str(number)


# How element types are unpacked, and how many digits tell any two of their numbers apart.
_LAYOUTS = {
    "float64": ("d", 17),
    "float32": ("f", 9),
    "float16": ("e", 5),
    "bfloat16": ("H", 4),
    "int64": ("q", 0),
    "int32": ("i", 0),
    "int16": ("h", 0),
    "int8": ("b", 0),
    "uint8": ("B", 0),
    "bool": ("?", 0),
}


def _numbers(value: Thing, found: Found, place: Place | None) -> Json:
    """The numbers of a small tensor, nested as its shape is; None when they cannot be read."""
    if found.dtype not in _LAYOUTS or 0 in found.shape or found.parts:
        return None
    layout, digits = _LAYOUTS[found.dtype]
    size = calcsize(layout)
    strides = found.strides or row_major(found.shape)
    order = ">" if found.big_endian or (place is not None and place.big_endian) else "<"
    array = _array_bytes(value)
    flat: list[Json] = []
    for index in product(*map(range, found.shape)):
        at = size * (found.first + sum(i * step for i, step in zip(index, strides, strict=True)))
        if place is not None:
            raw = place.source.read(place.offset + at, size, "the values of a tensor")
        else:
            raw = array[at : at + size]
        if len(raw) != size:
            return None
        flat.append(_number(raw, order, layout, digits))
    return _nested(iter(flat), found.shape)


def _array_bytes(value: Thing) -> bytes:
    """The bytes of a numpy array that are kept as text, as Python 2 could read them."""
    state = value.state
    data = state[4] if type(state) is tuple and len(state) == 5 else None
    if not isinstance(data, Thing) or data.path != "_codecs.encode":
        return b""
    text = data.first_argument
    return text.encode("latin-1", "replace") if isinstance(text, str) else b""


def _number(raw: bytes, order: str, layout: str, digits: int) -> Json:
    (number,) = unpack(order + layout, raw)
    if not digits:
        return number
    brain = layout == "H"  # bfloat16 is the first half of a float32
    if brain:
        (number,) = unpack("<f", pack("<I", number << 16))
    if number - number != 0:
        return str(number)
    for each in range(1, digits):  # as short as it can be written
        short = float(f"{number:.{each}g}")
        if _same(short, number, "f" if brain else layout, 2 if brain else 0):
            return short
    return number


def _same(one: float, other: float, layout: str, skipped: int) -> bool:
    """Whether two numbers are one in this type; of the second half of bfloat16, nothing is kept."""
    try:
        return pack(f"<{layout}", one)[skipped:] == pack(f"<{layout}", other)[skipped:]
    except OverflowError:
        return False


def _nested(numbers: Iterator[Json], shape: Shape) -> Json:
    if not shape:
        return next(numbers)
    return [_nested(numbers, shape[1:]) for _ in range(shape[0])]
