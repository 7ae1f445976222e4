"""ONNX models whose tensors point elsewhere or lie, written on the wire by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hostile.case import Build, Case, case, file, secret

FLOAT, INT4 = 1, 22


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def tensor(*, dims: tuple[int, ...] = (2, 2), dtype: int = FLOAT, payload: bytes | None = None) -> bytes:
    """A TensorProto named `w`; the payload is one or more of its fields, by default 16 bytes of raw data."""
    head = b"".join(number(1, dim) for dim in dims) + number(2, dtype) + message(8, "w")
    return head + (message(9, bytes(16)) if payload is None else payload)


def external(location: str, **entries: str) -> bytes:
    """The fields that send a reader to another file."""
    pairs = {"location": location, **entries}
    told = (message(13, message(1, key) + message(2, value)) for key, value in pairs.items())
    return b"".join(told) + number(14, 1)


def model(initializer: bytes) -> bytes:
    """A ModelProto with y = Identity(w)."""
    kind = message(1, number(1, FLOAT) + message(2, b"".join(message(1, number(1, 2)) for _ in range(2))))
    graph = (
        message(1, message(1, "w") + message(2, "y") + message(3, "copy") + message(4, "Identity"))
        + message(2, "graph")
        + message(5, initializer)
        + message(12, message(1, "y") + message(2, kind))
    )
    return number(1, 8) + message(7, graph) + message(8, message(1, "") + number(2, 17))


def _at(location: Callable[[Path], str]) -> Build:
    def build(folder: Path) -> Path:
        secret(folder)
        (folder / "sub").mkdir()
        path = folder / "model.onnx"
        path.write_bytes(model(tensor(payload=external(location(folder)))))
        return path

    return build


def _linked(link: Callable[[Path, Path], None]) -> Build:
    def build(folder: Path) -> Path:
        link(secret(folder), folder / "w.bin")
        path = folder / "model.onnx"
        path.write_bytes(model(tensor(payload=external("w.bin"))))
        return path

    return build


def _reach(id: str, *, codes: set[str], **entries: str) -> Case:
    def build(folder: Path) -> Path:
        (folder / "w.bin").write_bytes(bytes(16))
        path = folder / "model.onnx"
        path.write_bytes(model(tensor(payload=external("w.bin", **entries))))
        return path

    return case(id, f"external {next(iter(entries.items()))}", build, {3}, codes=codes)


def _lying(id: str, name: str, initializer: bytes, *, codes: set[str]) -> Case:
    return case(id, name, file("model.onnx", lambda folder: model(initializer)), {3}, codes=codes)


CASES = [
    case("97-parent", "location ..", _at(lambda f: "../secret.bin"), {1}, codes={"path.outside"}),
    case(
        "97-absolute",
        "location absolute",
        _at(lambda f: str(f.parent / "secret.bin")),
        {1},
        codes={"path.outside"},
    ),
    case(
        "97-nested",
        "location sub/../../x",
        _at(lambda f: "sub/../../secret.bin"),
        {1},
        codes={"path.outside"},
    ),
    case(
        "97-backslash",
        "location with a backslash",
        _at(lambda f: "..\\secret.bin"),
        {1},
        codes={"path.outside"},
    ),
    case(
        "97-url",
        "location that is a URL",
        _at(lambda f: "https://example.invalid/w.bin"),
        {1},
        codes={"path.outside"},
    ),
    case(
        "97-missing",
        "location that is missing",
        _at(lambda f: "gone.bin"),
        {1},
        contains="gone.bin",
        codes={"path.missing"},
    ),
    case(
        "99-symlink",
        "location that is a symlink",
        _linked(lambda target, path: path.symlink_to(target)),
        {1},
        codes={"path.link"},
    ),
    case(
        "99-hard-link",
        "location that is a hard link",
        _linked(lambda target, path: os.link(target, path)),
        {0, 1},
        note="caches and package stores use hard links",
        codes={"path.hard-link"},
    ),
    _reach("100-offset", offset="-4", codes={"onnx.external-number"}),
    _reach("100-length", length=str(2**62), codes={"onnx.external-size"}),
    _reach("100-text", offset="four", codes={"onnx.external-number"}),
    _reach("100-class", __class__="os.system", codes={"onnx.external-key"}),
    _lying("101-overflow", "dims overflow", tensor(dims=(2**62, 2**62)), codes={"onnx.shape"}),
    _lying("101-negative", "negative dims", tensor(dims=(-2, -2)), codes={"onnx.shape"}),
    _lying("101-dtype", "dtype 99", tensor(dtype=99), codes={"onnx.dtype"}),
    _lying("101-short", "raw data too short", tensor(payload=message(9, bytes(12))), codes={"onnx.size"}),
    _lying(
        "101-two",
        "two payloads",
        tensor(payload=message(9, bytes(16)) + message(4, bytes(16))),
        codes={"onnx.data-fields"},
    ),
    _lying(
        "101-odd-int4",
        "odd int4",
        tensor(dims=(3,), dtype=INT4, payload=message(9, bytes(1))),
        codes={"onnx.size"},
    ),
]
