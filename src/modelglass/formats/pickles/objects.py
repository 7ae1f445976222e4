"""What a pickle builds, as inert things: nothing here is ever imported or called."""

from __future__ import annotations

from typing import Any


class Global:
    """A function or class that is only named."""

    __slots__ = ("module", "name", "offset", "path")

    def __init__(self, module: str, name: str, offset: int) -> None:
        self.module, self.name, self.offset = module, name, offset
        self.path = f"{module}.{name}"


class Pairs:
    """A dictionary. Its items stay in order and unhashed: keys may collide on purpose, or be lists."""

    __slots__ = ("_looked_at", "_named", "flat")

    def __init__(self) -> None:
        self.flat: list[Any] = []  # key, value, key, value
        self._looked_at, self._named = 0, False

    def may_name(self, names: frozenset[str]) -> bool:
        """Whether a key is one of these names (always the same ones), or may be equal to one."""
        keys = self.flat[self._looked_at :: 2]  # since the last time: a file may ask often
        self._looked_at = len(self.flat)
        unknown = (Thing, Global, Persistent)
        self._named = self._named or any(as_text(key) in names or isinstance(key, unknown) for key in keys)
        return self._named

    def items(self) -> zip[tuple[Any, Any]]:
        return zip(self.flat[::2], self.flat[1::2], strict=False)

    def get(self, key: str) -> Any:
        """The last value under a text, as a dictionary would have it, or None."""
        found = None
        for name, value in self.items():
            if isinstance(name, (str, bytes)) and as_text(name) == key:
                found = value
        return found


class Elements:
    """A set or frozen set."""

    __slots__ = ("items",)

    def __init__(self, items: list[Any]) -> None:
        self.items = items


class Blob:
    """Bytes, of which the first ones are kept; the rest stays in the file."""

    __slots__ = ("head", "nbytes", "offset")

    def __init__(self, offset: int, nbytes: int, head: bytes) -> None:
        self.offset, self.nbytes, self.head = offset, nbytes, head


class Thing:
    """What a call would have made: the callable, its arguments, and what was put into it afterwards."""

    __slots__ = ("args", "function", "kwargs", "listed", "offset", "pairs", "state")

    def __init__(self, function: Any, args: Any, offset: int) -> None:
        self.function, self.args, self.offset = function, args, offset
        self.kwargs: Any = None
        self.state: Any = None
        self.pairs: Pairs | None = None  # items that were set
        self.listed: list[Any] | None = None  # items that were appended

    @property
    def path(self) -> str:
        """The name of what was called, or "" when the file computed it."""
        function = self.function
        return function.path if type(function) is Global else ""

    @property
    def first_argument(self) -> Any:
        """None where there is none; a file may hand over anything in the place of arguments."""
        return self.args[0] if type(self.args) is tuple and self.args else None


class Record(Thing):
    """The call that rebuilds a tensor, as torch writes it for an entry of a state dict.

    Its arguments are put together when somebody asks: there may be a million, and hardly anybody does.
    """

    __slots__ = ("_args", "device", "first", "hooks", "number", "numel", "shape", "storage", "strides")

    function: Global
    storage: Global
    number: str
    device: str
    numel: int
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    hooks: Global

    def __init__(self, function: Global, offset: int) -> None:
        self.function, self.offset = function, offset
        self.kwargs = self.state = self.pairs = self.listed = None
        self._args: tuple[Any, ...] | None = None

    @property
    def asked_for(self) -> bool:
        """Whether somebody has its arguments, and may have put something into them."""
        return self._args is not None

    @property
    def args(self) -> tuple[Any, ...]:  # type: ignore[override]
        if self._args is None:  # kept: the file may put hooks into them afterwards
            id = Persistent(("storage", self.storage, self.number, self.device, self.numel))
            hooks = Thing(self.hooks, (), self.offset)
            self._args = id, self.first, self.shape, self.strides, False, hooks
        return self._args


class Persistent:
    """Something outside of the pickle, by the name that its writer gave it."""

    __slots__ = ("id",)

    def __init__(self, id: Any) -> None:
        self.id = id


def as_text(value: Any) -> str:
    """Text as text; bytes that Python 2 called text, too."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value) if isinstance(value, str) else ""


def preview(value: Any, *, most: int = 200) -> str:
    """A few words on a value, never more than `most` characters, never after more than `most` steps."""
    text = ""
    waiting: list[Any] = [value]
    for _ in range(most):
        if not waiting or len(text) > most:
            break
        text += _part(waiting.pop(), waiting)
    return text if not waiting and len(text) <= most else text[:most] + "…"


class _Plain(str):
    """Text to be taken as it is, between values."""


def _part(value: Any, waiting: list[Any]) -> str:
    """What to write of a value now; what is inside it is put on the waiting list, last first."""
    if isinstance(value, _Plain):
        return value
    if isinstance(value, (str, bytes)):
        return repr(value[:200])
    if isinstance(value, int) and value.bit_length() > 200:
        return "a large integer"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, Global):
        return value.path
    if isinstance(value, Blob):
        return f"{value.nbytes} bytes"
    if isinstance(value, Persistent):
        return "a storage"
    if isinstance(value, Thing):
        waiting += [value.args, value.function]
        return ""
    opening, items, closing = _contents(value)
    shown = items[:8]
    waiting.append(_Plain(closing if len(items) <= 8 else f", …{closing}"))
    for index in range(len(shown) - 1, -1, -1):
        waiting.append(shown[index])
        if index:
            waiting.append(_Plain(", "))
    return opening


def _contents(value: Any) -> tuple[str, Any, str]:
    if isinstance(value, Pairs):
        return "{", value.flat[:16], "}"
    if isinstance(value, Elements):
        return "{", value.items, "}"
    return ("(", value, ")") if isinstance(value, tuple) else ("[", value, "]")
