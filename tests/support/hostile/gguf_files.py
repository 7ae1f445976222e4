"""GGUF files whose counts, lengths and shapes lie."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from hostile.case import Case, case, file

U32, BOOL, STRING, ARRAY = 4, 7, 8, 9
F32 = 0


def string(value: str | bytes, *, length: int | None = None, order: str = "<") -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw) if length is None else length) + raw


def pair(key: str | bytes, kind: int, value: bytes, *, order: str = "<") -> bytes:
    return string(key, order=order) + struct.pack(order + "I", kind) + value


def u32(key: str, value: int, *, order: str = "<") -> bytes:
    return pair(key, U32, struct.pack(order + "I", value), order=order)


def tensor(
    name: str | bytes = "w",
    dims: tuple[int, ...] = (32,),
    *,
    offset: int = 0,
    rank: int | None = None,
    order: str = "<",
) -> bytes:
    shape = struct.pack(f"{order}I{len(dims)}Q", len(dims) if rank is None else rank, *dims)
    return string(name, order=order) + shape + struct.pack(order + "IQ", F32, offset)


def gguf(
    pairs: Iterable[bytes] = (),
    tensors: Iterable[bytes] = (),
    *,
    data: bytes = bytes(128),
    magic: bytes = b"GGUF",
    version: int = 3,
    n_tensors: int | None = None,
    n_pairs: int | None = None,
    order: str = "<",
) -> bytes:
    """A whole file, its data aligned to 32 bytes."""
    pairs, tensors = list(pairs), list(tensors)
    head = magic + struct.pack(
        order + "IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(pairs) if n_pairs is None else n_pairs,
    )
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % 32) + data


def model(*pairs: bytes, **more: object) -> bytes:
    """A model of one tensor, with more pairs in its metadata."""
    name = pair("general.architecture", STRING, string("llama"))
    return gguf([name, *pairs], [tensor()], **more)  # type: ignore[arg-type]


def _big_endian(folder: Path) -> bytes:
    name = pair("general.architecture", STRING, string("llama", order=">"), order=">")
    return gguf([name, u32("llama.block_count", 1, order=">")], [tensor(order=">")], order=">")


def _nested_arrays(folder: Path) -> bytes:
    level = struct.pack("<IQ", ARRAY, 1)
    return model(pair("deep", ARRAY, level * 100_000 + struct.pack("<IQI", U32, 1, 7)))


def _with(*tensors: bytes, data: bytes = bytes(128)) -> bytes:
    return gguf([pair("general.architecture", STRING, string("llama"))], tensors, data=data)


def _many(folder: Path) -> bytes:
    count = 300_000
    return _with(*(tensor(f"blk.{n}.w", (8,), offset=32 * n) for n in range(count)), data=bytes(32 * count))


_TEMPLATE = "{% for m in messages %}{{ ''.__class__.__mro__[1] }}\x1b[2J<script>x</script>{% endfor %}"


def _gguf(
    id: str,
    name: str,
    content: bytes | Callable[[Path], bytes],
    exit_codes: set[int],
    *,
    codes: set[str] | None = None,
    note: str = "",
    seconds: float = 5,
) -> Case:
    build = file("model.gguf", content if callable(content) else lambda folder: content)
    return case(id, name, build, exit_codes, codes=codes, note=note, seconds=seconds)


CASES = [
    _gguf("86-magic", "bad magic", model(magic=b"GGUG"), {3}),
    _gguf("86-version-0", "version 0", model(version=0), {3}, codes={"gguf.version"}),
    _gguf("86-version-99", "version 99", model(version=99), {3}, codes={"gguf.version"}),
    _gguf("86-big-endian", "big-endian", _big_endian, {0}),
    _gguf("86-four-bytes", "four bytes", b"GGUF", {3}),
    _gguf("86-empty", "empty", b"", {3}),
    _gguf("87-tensors", "2^63 tensors", model(n_tensors=2**63), {3}, codes={"gguf.count"}),
    _gguf("87-pairs", "2^63 pairs", model(n_pairs=2**63), {3}, codes={"gguf.count"}),
    _gguf(
        "87-key",
        "key of 2^62 bytes",
        gguf([string("k", length=2**62) + struct.pack("<II", U32, 1)]),
        {3},
        codes={"gguf.key"},
    ),
    _gguf(
        "87-string",
        "string of 2^62 bytes",
        gguf([pair("k", STRING, string("v", length=2**62))]),
        {3},
        codes={"truncated"},
    ),
    _gguf(
        "87-array",
        "array of 2^60 items",
        gguf([pair("k", ARRAY, struct.pack("<IQ", U32, 2**60))]),
        {3},
        codes={"gguf.count"},
    ),
    _gguf("89-nested", "100,000 nested arrays", _nested_arrays, {3, 4}, codes={"gguf.depth"}),
    _gguf("90-key", "duplicate key", model(u32("k", 1), u32("k", 2)), {3}, codes={"gguf.duplicate-key"}),
    _gguf(
        "90-tensor",
        "duplicate tensor",
        lambda f: _with(tensor(), tensor(offset=128), data=bytes(256)),
        {3},
        codes={"gguf.duplicate-name"},
    ),
    _gguf("92-zero", "alignment 0", model(u32("general.alignment", 0)), {3}, codes={"gguf.alignment"}),
    _gguf("92-three", "alignment 3", model(u32("general.alignment", 3)), {3}, codes={"gguf.alignment"}),
    _gguf(
        "92-string",
        "alignment that is a string",
        model(pair("general.alignment", STRING, string("32"))),
        {3},
        codes={"gguf.alignment"},
    ),
    _gguf("92-huge", "alignment 2^31", model(u32("general.alignment", 2**31)), {3}, codes={"gguf.alignment"}),
    _gguf("93-overflow", "dims overflow", _with(tensor(dims=(2**33, 2**33))), {3}, codes={"gguf.dims"}),
    _gguf("93-2-63", "dim 2^63", _with(tensor(dims=(2**63,))), {3}, codes={"gguf.dims"}),
    _gguf("93-rank", "rank 10^9", _with(tensor(rank=10**9)), {3}, codes={"gguf.rank"}),
    _gguf("93-rank-5", "rank 5", _with(tensor(dims=(2, 2, 2, 2, 2))), {3}, codes={"gguf.rank"}),
    _gguf("93-zero-dim", "zero dim", _with(tensor(dims=(0,)), data=b""), {0}),
    _gguf("95-name", "hostile name", _with(tensor("\x1b[2Jw\r\u202e<script>x</script>")), {0, 1}),
    _gguf("95-key", "hostile key", model(u32("\x1b]0;x\x07k\u202e\n", 1)), {0, 1}),
    _gguf(
        "95-not-utf8",
        "name that is not UTF-8",
        _with(tensor(b"\xff\xfew")),
        {0, 1},
        codes={"gguf.name-encoding"},
    ),
    _gguf("95-70-bytes", "name of 70 bytes", _with(tensor("w" * 70)), {0, 1}, codes={"gguf.long-name"}),
    _gguf(
        "95-template",
        "chat template",
        model(pair("tokenizer.chat_template", STRING, string(_TEMPLATE))),
        {0, 1},
        note="text, never rendered",
        codes={"code.chat-template"},
    ),
    _gguf("96-many", "300,000 tensors", _many, {0}, seconds=20),
]
