"""Pickles, read without running them: which names they use, what they call, and what they would build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.limits import Limits
from modelglass.formats.pickles.known import kind_of, package_of, reputation
from modelglass.formats.pickles.machine import Machine
from modelglass.formats.pickles.objects import Blob, Thing, preview
from modelglass.formats.pickles.uses import Use
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import GlobalKind, GlobalUse, Level

_MAGIC = tuple(bytes((0x80, protocol)) for protocol in range(1, 6))
_SECOND = frozenset(bytes((code,)) for code in b"cdilpqtbXU]}()IKMJGVS\x8c.0")
_ODD: dict[str, Level] = {
    "pickle.open-mark": "invalid",
    "pickle.protocol": "notice",
    "pickle.frame": "invalid",
    "pickle.arguments": "invalid",
    "pickle.memo": "invalid",
    "pickle.buffer": "info",
}
MOST_ODDITIES = 20  # that are reported of one stream
MOST_VALUES = 100  # of one call that are searched for a nested pickle
MOST_DEPTH = 3  # of pickles inside pickles
MOST_GLOBALS = 10_000
MOST_STREAMS = 10_000
PROBED = 20_000  # opcodes after which a file that is something else is no pickle
PROBED_STREAMS = 100
MOST_SHOWN = 300  # characters of a name in a sentence

__all__ = ["also_a_pickle", "load", "looks_like", "scan_stream"]


def looks_like(head: bytes) -> bool:
    """Whether bytes begin as a pickle of protocol 1 or later does, or as one of protocol 0 usually does."""
    if head[:2] in _MAGIC:
        return True
    if head[:1] in (b"c", b"i"):  # a module and a name, a line each
        module, _, rest = head[1:].partition(b"\n")
        return module.replace(b".", b"").replace(b"_", b"").isalnum() and b"\n" in rest
    return head[:1] in (b"(", b"]", b"}", b")") and head[1:2] in _SECOND


def also_a_pickle(source: Source, limits: Limits) -> bool:
    """Whether a file of any kind does something as a pickle: it is one to its end, or calls what it names.

    A loader of pickles does not ask what a file begins with, so nothing else can be believed.
    """
    few = replace(limits, pickle_opcodes=min(PROBED, limits.pickle_opcodes))
    offset = 0
    for _ in range(PROBED_STREAMS):
        machine = Machine(source, few, offset=offset)
        try:
            machine.run()
        except FileError:
            return any(use.calls and _is_a_name(use) for use in machine.uses)
        if any(map(_is_a_name, machine.uses)) or machine.feed.offset == source.nbytes:
            return True
        offset = machine.feed.offset
    return True


def _is_a_name(use: Use) -> bool:
    return all(part.isidentifier() for part in use.path.split("."))


def load(
    source: Source,
    reading: Reading,
    *,
    offset: int = 0,
    resolve: Callable[[Any], Any] | None = None,
    depth: int = 0,
) -> Machine:
    """Run one stream and keep what it names and does, also when it must stop.

    `resolve` says what stands in the place of something outside of the pickle, by its id; `depth` is how many
    pickles this one is inside of.
    """
    machine = Machine(source, reading.limits, offset=offset, resolve=resolve)
    try:
        machine.run()
    finally:
        _Keeper(machine, source, reading, depth).keep()
    return machine


def scan_stream(source: Source, reading: Reading, *, offset: int = 0, depth: int = 0) -> Any:
    """Run every stream of a source, one after the other; the first one's result."""
    first: Any = None
    count = 0
    while offset < source.nbytes or not count:
        if count == MOST_STREAMS:
            text = f"more than {MOST_STREAMS:,} pickles one after the other; the rest is not read"
            reading.found(source, "pickle.streams", "limit", text, offset=offset)
            break
        try:
            machine = load(source, reading, offset=offset, depth=depth)
        except CorruptFileError:
            if count and not looks_like(source.up_to(offset, 64)):
                left = source.nbytes - offset
                text = f"{left:,} bytes follow the pickle that are none"
                reading.found(source, "pickle.trailing", "invalid", text, offset=offset)
                break
            raise
        first = first if count else machine.result
        offset = machine.feed.offset
        count += 1
    if count > 1:
        text = f"{count} pickles one after the other; a program may load only the first, or all"
        reading.found(source, "pickle.streams", "notice", text, offset=offset)
    return first


class _Keeper:
    """Puts into a reading what one stream names and does."""

    def __init__(self, machine: Machine, source: Source, reading: Reading, depth: int) -> None:
        self._machine, self._source, self._reading, self._depth = machine, source, reading, depth
        self._looked_into: set[int] = set()  # offsets of bytes, or the identity of texts

    def keep(self) -> None:
        for code, text, offset in self._machine.oddities[:MOST_ODDITIES]:
            self._found(code, _ODD[code], text, offset)
        for code, text, offset in self._machine.oddities[MOST_ODDITIES:]:
            if _ODD[code] == "invalid":
                self._found(code, _ODD[code], text, offset)
                break
        cut = False
        for use in self._machine.uses:
            kind = kind_of(use)
            if len(self._reading.globals) < MOST_GLOBALS:
                self._reading.globals.append(_global_use(use, kind, self._source))
            elif not cut:
                cut = True
                text = f"names more than {MOST_GLOBALS:,} functions and classes; the others are not listed"
                self._found("pickle.globals", "limit", text, use.offset)
            self._judge(use, kind)
            if kind not in ("core", "data"):
                for call in use.first_calls:
                    self._look_inside(call)

    def _found(self, code: str, level: Level, text: str, offset: int, **details: Any) -> None:
        self._reading.found(self._source, code, level, text, offset=offset, **details)

    def _judge(self, use: Use, kind: GlobalKind) -> None:
        """A finding for what is neither tensors nor plain data."""
        name = _shown(use.path)
        if use.changed is not None:
            text = f"changes {name} itself, which is not part of the file"
            self._found("pickle.change", "high", text, use.changed, name=name)
        if kind in ("core", "data"):
            return
        code = _CODES[kind] if use.calls or kind != "call" else "pickle.name"
        arguments = _arguments(use)
        details: dict[str, Any] = {"name": name, "called": use.calls > 0, "arguments": arguments}
        if kind == "class":
            doing = "makes objects of" if use.calls else "names"
            text = f"{doing} {name}: loading imports {_shown(package_of(use) or use.path)} and runs its code"
            self._found(code, "notice", text, use.offset, **details)
            return
        known = reputation(use.path)
        doing = f"calls {name}{arguments}" if use.calls else f"names {name}"
        unknown = "when it is loaded" if use.calls else "a function, for something to call"
        text = (
            f"{doing}, which {known}"
            if known
            else f"{doing}, {unknown}"
            if not use.calls
            else f"{doing} {unknown}"
        )
        self._found(code, "high", text, use.offset, **details)

    def _look_inside(self, call: Thing) -> None:
        """Scan what is handed to a call and looks like a pickle itself."""
        waiting: list[Any] = [call.args, call.kwargs, call.state]
        for _ in range(MOST_VALUES):
            if not waiting or self._depth >= MOST_DEPTH:
                return
            value = waiting.pop()
            if isinstance(value, (tuple, list)):
                waiting.extend(value[:MOST_VALUES])
            elif isinstance(value, Thing) and value.path == "_codecs.encode":  # bytes, before protocol 3
                waiting.append(value.args)
            else:
                inner = self._inner(value)
                if inner is not None:
                    self._scan(inner)

    def _inner(self, value: Any) -> Source | None:
        """A source of bytes or text that begins as a pickle does, the first time it is asked for."""
        where = self._source.member or "pickle"
        if isinstance(value, Blob) and looks_like(value.head) and value.offset not in self._looked_into:
            self._looked_into.add(value.offset)
            return self._source.part(value.offset, value.nbytes, f"{where}[{value.offset}]")
        if isinstance(value, (str, bytes)) and -id(value) not in self._looked_into:
            data = value if isinstance(value, bytes) else value.encode("latin-1", "replace")
            if looks_like(data):
                self._looked_into.add(-id(value))
                return self._source.unpacked(data, f"{where}[text]")
        return None

    def _scan(self, inner: Source) -> None:
        try:
            scan_stream(inner, self._reading, depth=self._depth + 1)
        except LimitError as error:
            self._reading.stopped(error)
        except FileError as error:
            text = f"bytes that begin as a pickle do not go on as one: {error.text}"
            self._reading.found(inner, "pickle.nested", "notice", text, offset=error.offset)


_CODES = {"class": "pickle.class", "call": "pickle.call", "dynamic": "pickle.dynamic"}


def _global_use(use: Use, kind: GlobalKind, source: Source) -> GlobalUse:
    return GlobalUse(
        name=use.path,
        kind=kind,
        file=source.file,
        member=source.member,
        offset=use.offset,
        count=use.calls or use.named,
        called=use.calls > 0,
        arguments=None if not use.calls or kind == "core" else _arguments(use),
        package=package_of(use),
    )


def _arguments(use: Use) -> str:
    """The arguments of the first few calls, those that differ."""
    shown = dict.fromkeys(preview(call.args) for call in use.first_calls)
    return "; ".join(shown)


def _shown(name: str) -> str:
    """A name, of which the middle may be left out: both ends tell what it is."""
    half = MOST_SHOWN // 2
    return name if len(name) <= MOST_SHOWN else f"{name[:half]}…{name[-half:]}"
