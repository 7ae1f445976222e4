"""Pickles without an archive around them, and files that only pretend to be one."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

from hostile.case import Case, case, file
from hostile.pickles import (
    BUILD,
    EMPTY_DICT,
    EMPTY_LIST,
    EMPTY_TUPLE,
    MARK,
    NEWOBJ,
    NEWOBJ_EX,
    NONE,
    OBJ,
    POP,
    REDUCE,
    STOP,
    call,
    command,
    dict_of,
    evil,
    global_named,
    pickled,
    stack_global,
    text,
    tuple_of,
)

MILLION = 1_000_000


def _memo_confusion(folder: Path) -> bytes:
    """What is on top when PUT runs is "os" only for a reader that handles POP."""
    module = text("os") + text("x") + POP + b"q\0" + POP + b"h\0"
    return pickled(module + text("system") + b"\x93" + tuple_of(text(command(folder))) + REDUCE, 4)


def _setstate(folder: Path) -> bytes:
    """The first BUILD plants `os.system` as `__setstate__`, and the second calls it."""
    made = global_named("argparse", "Namespace") + EMPTY_TUPLE + NEWOBJ
    planted = dict_of((text("__setstate__"), global_named("os", "system"))) + BUILD
    return pickled(made + planted + text(command(folder)) + BUILD)


def _memo_bomb(folder: Path) -> bytes:
    """A hundred lists, each of the one before twice: 2^100 leaves, 600 bytes."""
    body = EMPTY_LIST + b"q\0"
    for index in range(100):
        body += EMPTY_LIST + MARK + b"h%ch%c" % (index, index) + b"e" + b"q%c" % (index + 1)
    return pickled(body)


def _fifo(folder: Path) -> Path:
    os.mkfifo(folder / "model.pt")
    return folder / "model.pt"


def _empty_folder(folder: Path) -> Path:
    (folder / "model").mkdir()
    return folder / "model"


def _loop(folder: Path) -> Path:
    (folder / "a.pt").symlink_to(folder / "b.pt")
    (folder / "b.pt").symlink_to(folder / "a.pt")
    return folder / "a.pt"


_LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 438011265\n"
_HTML = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>Sign in</body></html>\n"
_XML = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>\n'
_TEXT = b"Entry not found\n"


def _raw(
    id: str,
    name: str,
    content: Callable[[Path], bytes] | bytes,
    exit_codes: set[int],
    contains: str | None = None,
    *,
    codes: set[str] | None = None,
    suffix: str = "pkl",
    seconds: float = 5,
    note: str = "",
) -> Case:
    build = file(f"model.{suffix}", content if callable(content) else lambda folder: content)
    return case(id, name, build, exit_codes, codes=codes, contains=contains, seconds=seconds, note=note)


CASES = [
    _raw("40-memo", "memo confusion", _memo_confusion, {1}, "os.system", codes={"pickle.call"}),
    _raw(
        "41-dotted",
        "dotted name through pathlib",
        lambda f: pickled(stack_global("pathlib", "os.system") + tuple_of(text(command(f))) + REDUCE, 4),
        {1},
        "os.system",
        codes={"pickle.call"},
    ),
    _raw(
        "43-linecache",
        "linecache call",
        lambda f: pickled(call("linecache", "getlines", text("/dev/null"))),
        {1},
        "linecache.getlines",
        codes={"pickle.call"},
    ),
    _raw(
        "43-sqlite3",
        "sqlite3 call",
        lambda f: pickled(call("sqlite3", "connect", text(str(f / "canary")))),
        {1},
        "sqlite3.connect",
        codes={"pickle.call"},
    ),
    _raw(
        "43-tarfile",
        "tarfile call",
        lambda f: pickled(call("tarfile", "open", text(str(f / "canary")), text("w"))),
        {1},
        "tarfile.open",
        codes={"pickle.call"},
    ),
    _raw(
        "44-inst",
        "INST",
        lambda f: b"(S'" + command(f).encode() + b"'\nios\nsystem\n.",
        {1},
        "os.system",
        codes={"pickle.call"},
    ),
    _raw(
        "44-obj",
        "OBJ",
        lambda f: MARK + global_named("os", "system") + b"S'" + command(f).encode() + b"'\n" + OBJ + STOP,
        {1},
        "os.system",
        codes={"pickle.call"},
    ),
    _raw(
        "44-newobj-ex",
        "NEWOBJ_EX",
        lambda f: pickled(
            stack_global("subprocess", "Popen") + tuple_of(text(command(f))) + EMPTY_DICT + NEWOBJ_EX, 4
        ),
        {1},
        "subprocess.Popen",
        codes={"pickle.call"},
    ),
    _raw("45-setstate", "BUILD with __setstate__", _setstate, {1}, "os.system", codes={"pickle.dynamic"}),
    _raw(
        "47-no-stop",
        "truncated after evil",
        lambda f: b"\x80\x02" + evil(f),
        {3},
        "os.system",
        codes={"pickle.truncated"},
    ),
    _raw(
        "48-garbage",
        "evil, then no opcode",
        lambda f: b"\x80\x02" + evil(f) + b"\xff\xfe",
        {3},
        "os.system",
        codes={"pickle.opcode"},
    ),
    _raw(
        "48-garbage-after-stop",
        "evil, STOP, then garbage",
        lambda f: pickled(evil(f)) + b"\xff\xfe",
        {3},
        "os.system",
        codes={"pickle.trailing"},
    ),
    _raw(
        "49-second-stream",
        "second stream evil",
        lambda f: pickled(EMPTY_DICT) + pickled(evil(f)),
        {1, 3},
        "os.system",
        note="a call, and more than one stream",
        codes={"pickle.streams"},
    ),
    _raw(
        "51-binunicode", "BINUNICODE of 4 GiB", b"\x80\x02X\xff\xff\xff\xffw.", {3}, codes={"pickle.length"}
    ),
    _raw(
        "51-binunicode8",
        "BINUNICODE8 of 2^62",
        b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"w.",
        {3},
        codes={"pickle.length"},
    ),
    _raw(
        "51-bytearray8",
        "BYTEARRAY8 of 2^40",
        b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"w.",
        {3},
        codes={"pickle.length"},
    ),
    _raw(
        "51-long4",
        "LONG4 of 2^31",
        b"\x80\x02\x8b" + struct.pack("<I", 2**31) + b"w.",
        {3},
        codes={"pickle.length"},
    ),
    _raw(
        "52-long",
        "LONG of a million digits",
        lambda f: b"\x80\x02L" + b"9" * MILLION + b"L\n.",
        {3},
        codes={"pickle.number", "pickle.text"},
    ),
    _raw(
        "52-int",
        "INT of a million digits",
        lambda f: b"\x80\x02I" + b"9" * MILLION + b"\n.",
        {3},
        codes={"pickle.number", "pickle.text"},
    ),
    _raw(
        "54-tuples", "a million nested tuples", lambda f: pickled(NONE + b"\x85" * MILLION), {0}, seconds=20
    ),
    _raw(
        "54-lists",
        "a million nested lists",
        lambda f: pickled(EMPTY_LIST * MILLION + b"a" * (MILLION - 1)),
        {0},
        seconds=20,
    ),
    _raw("55-marks", "five million MARKs", lambda f: pickled(MARK * (5 * MILLION)), {3, 4}, seconds=20),
    _raw("56-nones", "twenty million NONE", lambda f: pickled(NONE * (20 * MILLION)), {0, 4}, seconds=20),
    _raw("57-memo-bomb", "memo bomb", _memo_bomb, {0}),
    _raw("59-protocol-9", "protocol 9", b"\x80\x09N.", {3}, codes={"pickle.protocol"}),
    _raw("59-no-stop", "no STOP", b"\x80\x02N", {3}, codes={"pickle.truncated"}),
    _raw("59-underflow", "stack underflow", b"\x80\x02R.", {3}, codes={"pickle.stack"}),
    _raw("59-memo", "missing memo", b"\x80\x02h\x07.", {3}, codes={"pickle.memo"}),
    _raw("59-unhashable", "unhashable key", b"\x80\x02}]Ns.", {3}, codes={"pickle.key"}),
    _raw(
        "61-frame",
        "FRAME of 2^62",
        b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.",
        {3},
        codes={"pickle.frame"},
    ),
    *(
        _raw(f"62-{kind}-{suffix}", f"{kind} as .{suffix}", content, {3}, contains, suffix=suffix)
        for suffix in ("bin", "pkl")
        for kind, content, contains in (
            ("lfs", _LFS, "Git LFS pointer"),
            ("html", _HTML, "HTML"),
            ("xml", _XML, None),
            ("text", _TEXT, None),
        )
    ),
    case("64-fifo", "FIFO", _fifo, {3}, codes={"not-a-file"}),
    case("64-device", "/dev/zero", lambda folder: Path("/dev/zero"), {3}, codes={"not-a-file"}),
    case("64-folder", "empty folder", _empty_folder, {3}),
    case("64-loop", "symlink loop", _loop, {3}, codes={"cannot-open"}),
    _raw(
        "65-escape",
        "escape in a global's name",
        lambda f: pickled(call("\x1b[2Jmod", "\x1b]0;x\x07name\u202e", text("x"))),
        {1},
        codes={"pickle.call"},
    ),
]
