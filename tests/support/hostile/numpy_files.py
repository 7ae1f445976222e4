"""npy and npz files with objects in them, and headers that lie."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from hostile import zips
from hostile.case import Case, case, file
from hostile.pickles import evil, pickled
from hostile.zips import Member


def npy(header: str, data: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    raw = header.encode() + b"\n"
    size = len(raw) if length is None else length
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", size) + raw + data


def described(descr: str = "'<f4'", shape: str = "(4,)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def npz(*contents: tuple[str, bytes]) -> bytes:
    return zips.archive([Member(name=name.encode(), packed=packed) for name, packed in contents])


def _objects(descr: str) -> Callable[[Path], bytes]:
    return lambda folder: npz(("w.npy", npy(described(descr, "(1,)"), pickled(evil(folder), 3))))


def _bomb(folder: Path) -> bytes:
    head = npy(described("'|u1'", f"({3 << 30},)"))
    return zips.archive([zips.bomb(b"w.npy", head, b"\0", 3 << 30, b"")])


def _npy(id: str, name: str, content: bytes, *, codes: set[str]) -> Case:
    return case(id, name, file("model.npy", lambda folder: content), {3}, codes=codes)


CASES = [
    case(
        "103-objects",
        "npz object array",
        file("model.npz", _objects("'|O'")),
        {1},
        contains="os.system",
        codes={"pickle.call"},
    ),
    case(
        "103-field",
        "npz object field",
        file("model.npz", _objects("[('a', '<f4'), ('b', '|O')]")),
        {1},
        contains="os.system",
        codes={"pickle.call"},
    ),
    case(
        "103-member",
        "npz with a raw pickle",
        file("model.npz", lambda f: npz(("w.npy", npy(described(), bytes(16))), ("v", pickled(evil(f))))),
        {1},
        contains="os.system",
        codes={"pickle.call"},
    ),
    _npy("104-shape", "shape 2^60", npy(described(shape=f"({2**60},)"), bytes(16)), codes={"npy.truncated"}),
    _npy("104-negative", "negative shape", npy(described(shape="(-4,)"), bytes(16)), codes={"npy.header"}),
    _npy("104-bool", "bool dim", npy(described(shape="(True,)"), bytes(4)), codes={"npy.header"}),
    _npy(
        "104-code",
        "code in the header",
        npy(described(shape="(__import__('os').getpid(),)"), bytes(16)),
        codes={"npy.header"},
    ),
    _npy(
        "104-length",
        "header length 2 GiB",
        npy(described(), bytes(16), version=2, length=2**31),
        codes={"npy.header"},
    ),
    _npy("104-version", "version 9", npy(described(), bytes(16), version=9), codes={"npy.version"}),
    _npy(
        "104-brackets",
        "5,000 brackets",
        npy(described(shape="(" * 5000 + ")" * 5000), bytes(16)),
        codes={"npy.header"},
    ),
    _npy("104-cut", "cut", npy(described(), bytes(8)), codes={"npy.truncated"}),
    case("105-bomb", "npz bomb of 3 GiB", file("model.npz", _bomb), {4}, codes={"limit", "zip.bomb"}),
]
