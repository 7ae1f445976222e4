"""Plain data out of a pickle, as far as it can be shown: bounded in depth, width and size."""

from __future__ import annotations

from struct import calcsize, unpack
from typing import Any

from modelglass.formats.pickles.objects import Blob, Elements, Global, Pairs, Persistent, Thing, as_text
from modelglass.formats.torch.tensors import BadTensorError, is_tensor, items_of, tensor_of
from modelglass.report import Json

MOST_DEPTH = 8
MOST_ITEMS = 64  # of one container
MOST_NODES = 2000
MOST_TEXT = 2000


def shown(value: Any) -> Json:
    """The value as JSON-safe data; what is too deep, too wide or too much is left out and said so."""
    return _Shower().shown(value, 0)


class _Shower:
    def __init__(self) -> None:
        self._left = MOST_NODES

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
            return _tensor(value)
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
        scalar = _numpy_scalar(value)
        if scalar is not None:
            return scalar
        found: dict[str, Json] = {"class": value.path or "a computed class"}
        if isinstance(value.state, Pairs):
            state = self._dict(value.state, depth)
            return {**found, **state}
        if value.args:
            found["arguments"] = self.shown(value.args, depth + 1)
        if value.listed:
            found["items"] = self._list(value.listed, depth)
        return found


def _tensor(value: Thing) -> Json:
    try:
        found = tensor_of(value)
    except BadTensorError as error:
        return f"no tensor: {error}"
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


def _numpy_scalar(value: Thing) -> Json:
    """The number of a numpy scalar; None for anything else."""
    args = value.args
    if not value.path.endswith("multiarray.scalar") or type(args) is not tuple or len(args) != 2:
        return None
    descr, data = args
    code = as_text(descr.args[0]) if type(descr) is Thing and type(descr.args) is tuple and descr.args else ""
    if type(data) is Thing and data.path == "_codecs.encode" and type(data.args) is tuple and data.args:
        raw = as_text(data.args[0]).encode("latin-1", "replace")
    else:
        raw = data.head if type(data) is Blob else b""
    layout = _SCALARS.get(code.lstrip("<>|="))
    if layout is None or calcsize(layout) != len(raw):
        return None
    (number,) = unpack(layout, raw)
    return number if number == number and abs(number) != float("inf") else str(number)
