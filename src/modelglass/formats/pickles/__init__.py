"""Pickles, read without running them: which names they use, what they call, and what they would build."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modelglass.errors import CorruptFileError, FileError
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
    "pickle.encoding": "info",
    "pickle.buffer": "info",
}
MOST_ODDITIES = 20  # that are reported of one stream
MOST_BLOBS = 100  # nested pickles that are looked into

__all__ = ["load", "looks_like", "scan_stream"]


def looks_like(head: bytes) -> bool:
    """Whether bytes begin as a pickle of protocol 1 or later does, or as one of protocol 0 usually does."""
    if head[:2] in _MAGIC:
        return True
    if head[:1] in (b"c", b"i"):  # a module and a name, a line each
        module, _, rest = head[1:].partition(b"\n")
        return module.replace(b".", b"").replace(b"_", b"").isalnum() and b"\n" in rest
    return head[:1] in (b"(", b"]", b"}", b")") and head[1:2] in _SECOND


def load(
    source: Source, reading: Reading, *, offset: int = 0, resolve: Callable[[Any], Any] | None = None
) -> Machine:
    """Run one stream and keep what it names and does, also when it must stop.

    `resolve` says what stands in the place of something outside of the pickle, by its id.
    """
    machine = Machine(source, reading.limits, offset=offset, resolve=resolve)
    try:
        machine.run()
    finally:
        _keep(machine, source, reading)
    return machine


def scan_stream(source: Source, reading: Reading, *, offset: int = 0) -> Any:
    """Run every stream of a source, one after the other; the first one's result."""
    first: Any = None
    count = 0
    while offset < source.nbytes or not count:
        try:
            machine = load(source, reading, offset=offset)
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


def _keep(machine: Machine, source: Source, reading: Reading) -> None:
    for code, text, offset in machine.oddities[:MOST_ODDITIES]:
        reading.found(source, code, _ODD[code], text, offset=offset)
    for use in machine.uses:
        kind = kind_of(use)
        reading.globals.append(_global_use(use, kind, source))
        _judge(use, kind, source, reading)
        if kind not in ("core", "data") and use.first_call is not None:
            _look_inside(use.first_call, source, reading)


def _global_use(use: Use, kind: GlobalKind, source: Source) -> GlobalUse:
    call = use.first_call
    return GlobalUse(
        name=use.path,
        kind=kind,
        file=source.file,
        member=source.member,
        offset=use.offset,
        count=use.calls or use.named,
        called=use.calls > 0,
        arguments=None if call is None or kind == "core" else preview(call.args),
        package=package_of(use),
    )


def _judge(use: Use, kind: GlobalKind, source: Source, reading: Reading) -> None:
    """A finding for what is neither tensors nor plain data."""
    if kind in ("core", "data"):
        return
    known = reputation(use.path)
    arguments = "" if use.first_call is None else preview(use.first_call.args)
    details: dict[str, Any] = {"name": use.path, "called": use.calls > 0, "arguments": arguments}
    if kind == "class":
        doing = "makes objects of" if use.calls else "names"
        text = f"{doing} {use.path}: loading imports {package_of(use) or use.path} and runs its code"
        reading.found(source, "pickle.class", "notice", text, offset=use.offset, **details)
        return
    doing = f"calls {use.path}{arguments}" if use.calls else f"names {use.path}"
    text = f"{doing}, which {known}" if known else f"{doing} when it is loaded"
    code = "pickle.dynamic" if kind == "dynamic" else "pickle.call" if use.calls else "pickle.name"
    reading.found(source, code, "high", text, offset=use.offset, **details)


def _look_inside(call: Thing, source: Source, reading: Reading) -> None:
    """Scan bytes that are handed to a call and look like a pickle themselves."""
    waiting, seen = [call.args, call.kwargs, call.state], 0
    while waiting and seen < MOST_BLOBS:
        value = waiting.pop()
        seen += 1
        if isinstance(value, (tuple, list)):
            waiting.extend(value[:MOST_BLOBS])
        elif isinstance(value, Blob) and looks_like(value.head) and (source.member or "").count("[") < 3:
            name = f"{source.member or 'pickle'}[{value.offset}]"
            inner = source.part(value.offset, value.nbytes, name)
            try:
                scan_stream(inner, reading)
            except FileError as error:
                text = f"bytes that begin as a pickle do not go on as one: {error.text}"
                reading.found(inner, "pickle.nested", "notice", text, offset=error.offset)
