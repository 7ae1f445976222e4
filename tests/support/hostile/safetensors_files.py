"""Safetensors files whose header lies, and indexes of shards that point elsewhere."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

from hostile.case import MB, Build, Case, case, file, secret
from hostile.torch_files import PLAIN, pt_zip


def safetensors(header: bytes | str, data: bytes = b"", *, length: int | None = None) -> bytes:
    raw = header.encode("utf-8", "surrogatepass") if isinstance(header, str) else header
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(name: str = "w", dtype: str = "F32", shape: str = "[2,2]", begin: int = 0, end: int = 16) -> str:
    return f'"{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}'


def of(*entries: str) -> str:
    return "{" + ",".join(entries) + "}"


GOOD = safetensors(of(entry()), bytes(16))


def _million_tensors(folder: Path) -> bytes:
    entries = (entry(f"layers.{n}.w", "U8", "[1]", n, n + 1) for n in range(1_000_000))
    return safetensors(of(*entries), bytes(1_000_000))


def _million_dims(folder: Path) -> bytes:
    return safetensors(of(entry(shape="[" + ",".join("1" * 1_000_000) + "]", end=4)), bytes(4))


def _index(shard: Callable[[Path], str]) -> Build:
    """An index that sends `w` to that shard; a real file waits outside of the folder."""

    def build(folder: Path) -> Path:
        secret(folder)
        (folder / "sub").mkdir()
        (folder / "good.safetensors").write_bytes(safetensors(of(entry("v")), bytes(16)))
        path = folder / "model.safetensors.index.json"
        weight_map = {"v": "good.safetensors", "w": shard(folder)}
        path.write_text(json.dumps({"metadata": {"total_size": 32}, "weight_map": weight_map}))
        return path

    return build


def _sparse(folder: Path) -> Path:
    """A tebibyte of one tensor, of which the disk holds only the header."""
    path = folder / "model.safetensors"
    header = safetensors(of(entry(dtype="U8", shape=f"[{2**40}]", end=2**40)))
    with path.open("wb") as out:
        out.write(header)
        out.truncate(len(header) + 2**40)
    return path


def _bad(
    id: str,
    name: str,
    content: bytes | Callable[[Path], bytes],
    contains: str | None = None,
    *,
    codes: set[str] | None = None,
) -> Case:
    build = file("model.safetensors", content if callable(content) else lambda folder: content)
    return case(id, name, build, {3}, codes=codes, contains=contains)


CASES = [
    _bad(
        "76-length-2-63",
        "header length 2^63",
        safetensors(of(entry()), bytes(16), length=2**63),
        codes={"safetensors.header-length"},
    ),
    _bad(
        "76-length-over-file",
        "header longer than the file",
        safetensors(of(entry()), length=1000),
        codes={"safetensors.header-length"},
    ),
    _bad(
        "76-length-101-mb",
        "header of 101 MB",
        lambda f: safetensors(of(entry()).ljust(101 * MB), bytes(16)),
        codes={"safetensors.header-length"},
    ),
    _bad("76-length-0", "header length 0", safetensors(b"", bytes(16))),
    _bad("76-seven-bytes", "seven bytes", bytes(7)),
    _bad("76-empty", "empty file", b""),
    _bad("77-not-json", "not JSON", safetensors('{"w":oops}'), codes={"json.syntax"}),
    _bad("77-list", "a list", safetensors("[" + of(entry()) + "]", bytes(16))),
    _bad(
        "77-not-utf8",
        "not UTF-8",
        safetensors(b'{"\xff\xfe":' + of(entry()).encode()[5:], bytes(16)),
        codes={"json.encoding"},
    ),
    _bad("77-bom", "byte order mark", safetensors("\ufeff" + of(entry()), bytes(16))),
    _bad("77-nan", "NaN", safetensors(of(entry(shape="[NaN]")), bytes(16)), codes={"json.number"}),
    _bad(
        "77-surrogate",
        "lone surrogate",
        safetensors(of(entry("\\ud800")), bytes(16)),
        codes={"json.encoding"},
    ),
    _bad(
        "77-digits",
        "dim of 5,000 digits",
        safetensors(of(entry(shape="[" + "9" * 5000 + "]")), bytes(16)),
        codes={"json.number"},
    ),
    _bad(
        "78-duplicate",
        "duplicate key, different offsets",
        safetensors(of(entry(), entry(begin=16, end=32)), bytes(32)),
        "duplicate",
        codes={"json.duplicate-key"},
    ),
    _bad(
        "80-overlap",
        "overlap",
        safetensors(of(entry(), entry("v", begin=8, end=24)), bytes(24)),
        codes={"safetensors.overlap"},
    ),
    _bad(
        "80-gap",
        "gap",
        safetensors(of(entry(), entry("v", begin=20, end=36)), bytes(36)),
        codes={"safetensors.gap"},
    ),
    _bad(
        "80-out-of-range",
        "out of range",
        safetensors(of(entry()), bytes(8)),
        codes={"safetensors.out-of-range"},
    ),
    _bad(
        "80-reversed",
        "reversed offsets",
        safetensors(of(entry(begin=16, end=0)), bytes(16)),
        codes={"safetensors.offsets"},
    ),
    _bad("80-trailing", "trailing bytes", GOOD + b"\0", codes={"safetensors.trailing"}),
    _bad("80-zip-appended", "zip appended", lambda f: GOOD + pt_zip(PLAIN), codes={"safetensors.trailing"}),
    _bad(
        "81-negative",
        "negative dims",
        safetensors(of(entry(shape="[-2,-2]")), bytes(16)),
        codes={"safetensors.shape"},
    ),
    _bad(
        "81-float",
        "float dims",
        safetensors(of(entry(shape="[2.0,2]")), bytes(16)),
        codes={"safetensors.shape"},
    ),
    _bad(
        "81-overflow",
        "dims overflow",
        safetensors(of(entry(shape=f"[{2**62},4]")), bytes(16)),
        codes={"safetensors.size"},
    ),
    _bad(
        "81-size",
        "size mismatch",
        safetensors(of(entry(shape="[2,3]")), bytes(16)),
        codes={"safetensors.size"},
    ),
    _bad(
        "81-dtype",
        "unknown dtype",
        safetensors(of(entry(dtype="F128")), bytes(16)),
        codes={"safetensors.dtype"},
    ),
    _bad(
        "81-odd-f4",
        "odd number of 4-bit elements",
        safetensors(of(entry(dtype="F4", shape="[3]", end=2)), bytes(2)),
        codes={"safetensors.size"},
    ),
    case(
        "83-nested",
        "100,000 nested brackets",
        file("model.safetensors", lambda f: safetensors('{"w":' + "[" * 100_000 + "]" * 100_000 + "}")),
        {3, 4},
        codes={"json.depth"},
    ),
    case(
        "84-tensors",
        "a million tensors",
        file("model.safetensors", _million_tensors),
        {0},
        seconds=20,
        peak_nbytes=600 * MB,
        note="an honest file: its table alone takes this much",
    ),
    case(
        "84-dims",
        "a million dims",
        file("model.safetensors", _million_dims),
        {3},
        seconds=20,
        codes={"safetensors.shape"},
    ),
    case("85-parent", "index: ..", _index(lambda f: "../secret.bin"), {3}, codes={"path.outside"}),
    case(
        "85-absolute",
        "index: absolute",
        _index(lambda f: str(f.parent / "secret.bin")),
        {3},
        codes={"path.outside"},
    ),
    case(
        "85-nested",
        "index: sub/../../x",
        _index(lambda f: "sub/../../secret.bin"),
        {3},
        codes={"path.outside"},
    ),
    case(
        "85-missing",
        "index: missing shard",
        _index(lambda f: "gone.safetensors"),
        {3},
        codes={"path.missing"},
        contains="gone.safetensors",
    ),
    case("113-sparse", "sparse 1 TiB safetensors", _sparse, {0}),
]
