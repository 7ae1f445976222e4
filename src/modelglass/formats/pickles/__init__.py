"""Pickles, read without running them: which names they use, what they call, and what they would build."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.limits import Limits
from modelglass.formats.pickles.arrays import has_arrays, has_others, pass_over
from modelglass.formats.pickles.delegates import text_of_bytes
from modelglass.formats.pickles.inside import Inside
from modelglass.formats.pickles.known import kind_of, package_of, reputation
from modelglass.formats.pickles.machine import Machine
from modelglass.formats.pickles.objects import Blob, Global, Thing, preview
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
    "pickle.hidden": "high",
    "pickle.memory": "high",
    "pickle.outside": "high",
}
MOST_ODDITIES = 20  # that are reported of one stream
MOST_DEPTH = 20  # of pickles inside pickles
MOST_HOOKS = 10_000
MOST_GLOBALS = 10_000
MOST_STREAMS = 10_000
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
    offset = 0
    for _ in range(PROBED_STREAMS):
        machine = Machine(source, limits, offset=offset)
        machine.after_build = pass_over
        try:
            machine.run()
        except LimitError:
            return True  # what comes later is not known
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
    machine.after_build = pass_over
    try:
        machine.run()
    finally:
        _Keeper(machine, source, reading, depth).keep()
        if has_arrays(machine):
            _keep_other_view(machine, source, reading, offset, depth)
    if has_others(machine):
        text = "arrays that are not written as joblib does: what comes after them was not understood"
        reading.found(source, "pickle.array", "invalid", text, offset=offset)
    return machine


def _keep_other_view(machine: Machine, source: Source, reading: Reading, offset: int, depth: int) -> None:
    """What a loader finds that takes the values of arrays for opcodes, if these call something more."""
    other = Machine(source, reading.limits, offset=offset)
    with suppress(CorruptFileError):
        other.run()
    known = {use.path for use in machine.uses if use.calls}
    if any(use.calls and use.path not in known and _is_a_name(use) for use in other.uses):
        text = "the values of an array are opcodes for some loaders: readers differ in what they see"
        reading.found(source, "ambiguous", "invalid", text, offset=offset)
        _Keeper(other, source, reading, depth).keep()


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
                text = f"{left:,} bytes that are not a pickle follow it"
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
        self._kinds: dict[tuple[str, str], GlobalKind] = {}
        self._looked_into: dict[int, Any] = {}  # by the offset of bytes, or the identity of texts

    def keep(self) -> None:
        for code, text, offset in self._machine.oddities[:MOST_ODDITIES]:
            self._found(code, _ODD[code], text, offset)
        told = set[str]()
        for code, text, offset in self._machine.oddities[MOST_ODDITIES:]:
            if _ODD[code] in ("invalid", "high") and code not in told:
                told.add(code)
                self._found(code, _ODD[code], text, offset)
        cut = False
        for use in self._machine.uses:
            kind = self._kinds[use.module, use.name] = kind_of(use, scripted=self._scripted)
            if len(self._reading.globals) < MOST_GLOBALS:
                self._reading.globals.append(_global_use(use, kind, self._source))
            elif not cut:
                cut = True
                text = f"names more than {MOST_GLOBALS:,} functions and classes; the others are not listed"
                self._found("pickle.globals", "limit", text, use.offset)
            self._judge(use, kind)
        for call in self._machine.saved:
            self._nested(call.args[0], partial(_scan_saved, call), broken="high")  # it is loaded all the same
        self._look_inside()

    @property
    def _scripted(self) -> bool:
        return self._reading.format == "torchscript"

    def _found(self, code: str, level: Level, text: str, offset: int | None, **details: Any) -> None:
        self._reading.found(self._source, code, level, text, offset=offset, **details)

    def _judge(self, use: Use, kind: GlobalKind) -> None:
        """A finding for what is neither tensors nor plain data."""
        name = _show(use.path)
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
            text = f"{doing} {name}: loading imports {_show(package_of(use) or use.path)} and runs its code"
            self._found(code, "notice", text, use.offset, **details)
            return
        doing = f"calls {name}{arguments}" if use.calls else f"names {name}"
        known = reputation(use)
        unknown = " when it is loaded" if use.calls else ", a function, for something to call"
        self._found(code, "high", doing + (f", which {known}" if known else unknown), use.offset, **details)

    def _look_inside(self) -> None:
        """Find what the result and the arguments of calls hold: code by name, hooks, further pickles."""
        reported = [use for use in self._machine.uses if self._kind(use) not in ("core", "data")]
        handed = Inside((call.args, call.kwargs, call.state) for use in reported for call in use.first_calls)
        for value in handed.maybe_pickles:
            self._nested(value, _scan_all)
        inside = Inside([self._machine.result])
        for value in inside.maybe_pickles:
            self._nested(value, _scan_if_it_acts)
        for tree in inside.references:
            self._tell_references(tree)
        for name, hook in inside.hooks[:MOST_HOOKS]:
            self._tell_hook(name, hook)

    def _kind(self, use: Use) -> GlobalKind:
        return self._kinds[use.module, use.name]

    def _tell_references(self, tree: dict[str, Any]) -> None:
        from modelglass.formats.documents.code_in_text import code_references

        code_references(self._source, self._reading, tree)

    def _tell_hook(self, name: str, hook: Any) -> None:
        """What runs with the model, beyond what is proven to compute."""
        function = hook.function if isinstance(hook, Thing) else hook
        kind = self._kinds.get((function.module, function.name)) if type(function) is Global else "dynamic"
        if kind in ("core", "data", None):
            return
        what = _show(function.path) if type(function) is Global else "something that the file computes"
        text = f"puts {what} into {name[:80]!r}, which runs when the model does"
        self._found("pickle.hook", "notice" if kind == "class" else "high", text, hook.offset, name=what)

    def _nested(
        self, value: Any, scan: Callable[[Source, Reading, int], None], *, broken: Level = "notice"
    ) -> None:
        """Scan bytes or text that begin as a pickle does, the first time they are met."""
        inner = self._inner(value)
        if inner is None:
            return
        if self._depth == MOST_DEPTH:
            text = f"pickles inside pickles, more than {MOST_DEPTH} deep; what is further in is not read"
            self._found("pickle.nested", "limit", text, None)
            return
        try:
            scan(inner, self._reading, self._depth + 1)
        except LimitError as error:
            self._reading.stopped(error)
        except FileError as error:
            text = f"bytes that begin as a pickle do not go on as one: {error.text}"
            self._reading.found(inner, "pickle.nested", broken, text, offset=error.offset)

    def _inner(self, value: Any) -> Source | None:
        where = self._source.member or "pickle"
        identity = value.offset if isinstance(value, Blob) else -id(value)
        if identity in self._looked_into:
            return None
        self._looked_into[identity] = value
        text = text_of_bytes(value)
        value = value if text is None else text
        if isinstance(value, Blob):
            part = self._source.part(value.offset, value.nbytes, f"{where}[{value.offset}]")
            return part if looks_like(value.head) else None
        data = value if isinstance(value, bytes) else value.encode("latin-1", "replace")
        return self._source.unpacked(data, f"{where}[text]") if looks_like(data) else None


def _scan_all(inner: Source, reading: Reading, depth: int) -> None:
    scan_stream(inner, reading, depth=depth)


def _scan_if_it_acts(inner: Source, reading: Reading, depth: int) -> None:
    """Scan what is only data as far as anybody knows if, as a pickle, it would do something."""
    if _acts(inner, reading.limits):
        scan_stream(inner, reading, depth=depth)


def _scan_saved(call: Thing, inner: Source, reading: Reading, depth: int) -> None:
    """Scan a storage that torch wrote into the pickle: five pickles, which its numbers follow.

    The fourth says what it is, which the call gets as a further argument.
    """
    offset = 0
    for number in range(5):
        machine = load(inner, reading, offset=offset, depth=depth)
        offset = machine.feed.offset
        if number == 3:
            call.args = (*call.args, machine.result)


def _acts(source: Source, limits: Limits) -> bool:
    """Whether one of the pickles in a row names more than data, and is one to its end or calls it."""
    offset = 0
    for _ in range(PROBED_STREAMS):
        machine = Machine(source, limits, offset=offset)
        whole = True
        try:
            machine.run()
        except FileError:
            whole = False
        named = [use for use in machine.uses if _is_a_name(use) and kind_of(use) not in ("core", "data")]
        if any(whole or use.calls for use in named):
            return True
        if not whole or machine.feed.offset == source.nbytes:
            return False
        offset = machine.feed.offset
    return True


_CODES = {"class": "pickle.class", "call": "pickle.call", "dynamic": "pickle.dynamic"}


def _global_use(use: Use, kind: GlobalKind, source: Source) -> GlobalUse:
    package = package_of(use)
    return GlobalUse(
        name=_show(use.path),  # one text may be part of very many names
        kind=kind,
        file=source.file,
        member=source.member,
        offset=use.offset,
        count=use.calls or use.named,
        called=use.calls > 0,
        arguments=None if not use.calls or kind == "core" else _arguments(use),
        package=None if package is None else _show(package),
    )


def _arguments(use: Use) -> str:
    """The arguments of the first few calls, those that differ."""
    shown = dict.fromkeys(preview(call.args) for call in use.first_calls)
    return "; ".join(shown)


def _show(name: str) -> str:
    """A name, of which the middle may be left out: both ends tell what it is."""
    half = MOST_SHOWN // 2
    return name if len(name) <= MOST_SHOWN else f"{name[:half]}…{name[-half:]}"
