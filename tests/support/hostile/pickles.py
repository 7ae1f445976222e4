"""A small assembler for pickles: each function gives the opcodes that push one value.

The payloads would create the file `canary` in the folder of the bad file, and do nothing else.
"""

from __future__ import annotations

import shlex
import struct
from collections.abc import Iterable
from pathlib import Path

NONE, STOP, MARK, POP, REDUCE, BUILD = b"N", b".", b"(", b"0", b"R", b"b"
EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT = b")", b"]", b"}"
FALSE, NEWOBJ, NEWOBJ_EX, OBJ, STACK_GLOBAL = b"\x89", b"\x81", b"\x92", b"o", b"\x93"


def pickled(body: bytes, protocol: int = 2) -> bytes:
    """A complete pickle that gives what the body pushes."""
    return b"\x80" + bytes([protocol]) + body + STOP


def text(value: str | bytes) -> bytes:
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(raw)) + raw


def raw_bytes(value: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(value)) + value


def integer(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def tuple_of(*items: bytes) -> bytes:
    return MARK + b"".join(items) + b"t"


def list_of(*items: bytes) -> bytes:
    return EMPTY_LIST + MARK + b"".join(items) + b"e"


def dict_of(*pairs: tuple[bytes, bytes]) -> bytes:
    return EMPTY_DICT + MARK + b"".join(key + value for key, value in pairs) + b"u"


def global_named(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def stack_global(module: str, name: str) -> bytes:
    return text(module) + text(name) + STACK_GLOBAL


def call(module: str, name: str, *arguments: bytes) -> bytes:
    return global_named(module, name) + tuple_of(*arguments) + REDUCE


def instance(module: str, name: str, state: Iterable[tuple[bytes, bytes]]) -> bytes:
    """An object of that class, made without its constructor and given the state."""
    return global_named(module, name) + EMPTY_TUPLE + NEWOBJ + dict_of(*state) + BUILD


def command(folder: Path) -> str:
    return f"touch {shlex.quote(str(folder / 'canary'))}"


def evil(folder: Path) -> bytes:
    """Calls `os.system`."""
    return call("os", "system", text(command(folder)))


def evil_exec(folder: Path) -> bytes:
    """Calls `builtins.exec`."""
    return call("builtins", "exec", text(f"open({str(folder / 'canary')!r}, 'w').close()"))


def evil_then(folder: Path, body: bytes) -> bytes:
    """Calls `os.system`, drops what it gives, and pushes what the body does: the result looks normal."""
    return evil(folder) + POP + body


def evil_in_text(folder: Path) -> bytes:
    """The same call in protocol 0, which has no byte that is not printable."""
    return b"cos\nsystem\n(S'" + command(folder).encode() + b"'\ntR."
