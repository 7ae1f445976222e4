"""How a new input is made of seeds: bytes, lengths, tokens and opcodes changed, members changed in place."""

from __future__ import annotations

import io
import json
import pickletools
import re
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]

MOST_NBYTES = 256 << 10
EDGES = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0xFFFF, 1 << 16, (1 << 24) - 1, (1 << 31) - 1,
    1 << 31,
         (1 << 32) - 1, 1 << 32, (1 << 53) + 1, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)  # fmt: skip


def mutated(random: Random, seeds: Sequence[bytes], structured: Sequence[Mutation]) -> bytes:
    """A seed after one or a few changes, half of them such as the format invites."""
    data = random.choice(seeds)
    while True:
        change = random.choice(structured if structured and random.random() < 0.6 else PLAIN)
        data = change(random, data, seeds)[:MOST_NBYTES]
        if random.random() < 0.55:
            return data


# Any bytes


def flip_bit(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    if not data:
        return b"\0"
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def set_byte(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    return (
        data[:at] + bytes([random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))]) + data[at + 1 :]
    )


def cut(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def insert(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    more = random.choice((random.randbytes(random.randrange(1, 9)), bytes([random.randrange(256)]) * 300))
    return data[:at] + more + data[at:]


def delete(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, stop = _span(random, data)
    return data[:start] + data[stop:]


def repeat(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, stop = _span(random, data)
    return data[:stop] + data[start:stop] * random.choice((1, 1, 2, 50)) + data[stop:]


def swap(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    first, last = sorted((_span(random, data), _span(random, data)))
    if first[1] > last[0]:
        return data
    moved = data[last[0] : last[1]] + data[first[1] : last[0]] + data[first[0] : first[1]]
    return data[: first[0]] + moved + data[last[1] :]


def splice(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = random.choice(seeds)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def transplant(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = random.choice(seeds)
    start, stop = _span(random, other)
    at = random.randrange(len(data) + 1)
    return data[:at] + other[start:stop] + data[at + random.choice((0, stop - start)) :]


def edge_number(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """An integer anywhere becomes one at the edge of what its bytes can hold."""
    return _with_number(random, data, random.randrange(len(data) + 1), random.choice((1, 2, 4, 8)))


def likely_length(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """The same for bytes that look like a length or an offset: small, and not beyond the end of the data."""
    size = random.choice((2, 4, 8))
    for _ in range(64):
        at = random.randrange(max(1, len(data) - size + 1))
        if 0 < int.from_bytes(data[at : at + size], "little") <= len(data):
            return _with_number(random, data, at, size)
    return edge_number(random, data, seeds)


PLAIN: tuple[Mutation, ...] = (
    flip_bit, set_byte, cut, insert, delete, repeat, swap, splice, transplant, edge_number, likely_length,
)  # fmt: skip


def _span(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + int(2 ** random.uniform(0, 9)))


def _with_number(random: Random, data: bytes, at: int, size: int) -> bytes:
    before = int.from_bytes(data[at : at + size], "little")
    number = random.choice(
        (*EDGES, before + 1, before - 1, before * 2, -before, -1, len(data), len(data) - at)
    )
    order = "big" if random.random() < 0.15 else "little"
    return data[:at] + (number % (1 << 8 * size)).to_bytes(size, order) + data[at + size :]  # type: ignore[arg-type]


# Pickles

_OPCODES = [op.code.encode("latin-1") for op in pickletools.opcodes]
_SNIPPETS = [
    b"cos\nsystem\n", b"cbuiltins\neval\n", b"X\x02\0\0\0os", b"\x93", b")R", b"N", b"(t", b"}b", b"Q",
    b"0", b"2",
    b"(lp0\n", b"(dp1\n", b"I99999999999999999999\n", b"F1e999\n", b"Fnan\n", b"L1L\n", b"S'\\ud800'\n",
    b"V\\ud800\n",
    b"X\x03\0\0\0\xed\xa0\x80", b"\x8a\xff" + b"\xff" * 255, b"\x8b\xff\xff\xff\x7f", b"K\xff",
    b"J\xff\xff\xff\xff",
    b"h\0", b"j\xff\xff\xff\x7f", b"q\0", b"\x94", b"\x95" + b"\xff" * 8,
    b"ccollections\nOrderedDict\n)R", b"\x82\x01",
    b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_parameter\n", b"\x96" + b"\xff" * 8,
    b"ctorch\nSize\n(K\x02K\x03t\x85R", b"]", b"}", b"\x8f", b"(", b"e", b"u", b"\x90", b"\x91",
    b"i__main__\nx\n", b"o", b"\x81", b"\x92",
    b"cnumpy._core.multiarray\n_reconstruct\n", b"cnumpy\ndtype\n(X\x02\0\0\0f4\x89\x88tR",
]  # fmt: skip


def pickle_opcodes(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Opcodes inserted, removed, replaced, repeated or moved, at their own boundaries."""
    pieces = _opcodes(data)
    at = random.randrange(len(pieces))
    how = random.randrange(7)
    if how == 0:
        pieces.insert(at, random.choice(_SNIPPETS))
    elif how == 1:
        del pieces[at : at + random.choice((1, 1, 2, 5))]
    elif how == 2:
        pieces[at] = random.choice(_OPCODES) + pieces[at][1:]
    elif how == 3:
        pieces[at:at] = pieces[at : at + random.randrange(1, 6)] * random.choice((1, 1, 3, 40))
    elif how == 4:
        other = random.randrange(len(pieces))
        pieces[at], pieces[other] = pieces[other], pieces[at]
    elif how == 5:
        pieces[at] = random.choice(_SNIPPETS)
    elif len(pieces[at]) > 1:
        pieces[at] = pieces[at][:1] + random.choice(PLAIN)(random, pieces[at][1:], seeds)
    return b"".join(pieces)


def _opcodes(data: bytes) -> list[bytes]:
    """The bytes of each opcode, of pickle after pickle; what cannot be understood stays in one piece."""
    bounds = [0]
    try:
        while bounds[-1] < len(data) and len(bounds) < 20_000:
            start = bounds[-1]
            # The opcodes are found in a copy: a length that lies must not make a copy of its own.
            for _, _, at in pickletools.genops(io.BytesIO(data[start:])):
                bounds.append(start + (at or 0))
            bounds.append(bounds[-1] + 1)
    except (ValueError, OverflowError, MemoryError):
        pass  # the rest is one piece
    bounds = sorted({*bounds, len(data)})
    return [data[start:stop] for start, stop in pairwise(bounds)] or [data]


# JSON

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+.\w]+|\s+|.', re.DOTALL)
_TOKENS = [
    b"0", b"-1", b"1e999", b"NaN", b"Infinity", b"-0", b"1.5", b"2147483648", b"9223372036854775808",
    b"true", b"null", b"[]", b"{}",
    b'""', b'"\\ud800"', b'"\\u0000"', b'"\\u001b[31m"', b'"../../etc/passwd"', b'"F32"',
    b'"\xed\xa0\x80"', b"[" * 70, b'{"a":' * 70,
    b"1" * 400, b"1" * 5000, b'"a":1,"a":2', b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\",
    b"\xef\xbb\xbf", b"01", b"1.", b"\x00",
    b'"dtype"', b'"shape"', b'"data_offsets"', b'"weight_map"', b'"auto_map"', b'"_target_"',
    b'"class_name"', b'"chat_template"',
    b'{"a":[1,{"b":null}]}', '"\u202e\u200b\U000e0041"'.encode(), b'"__metadata__"',
    b"-9223372036854775809", b"4294967296",
]  # fmt: skip


def tokens(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Tokens of a text replaced, removed, repeated, moved, or taken from another seed."""
    pieces = _TOKEN.findall(data) or [b""]
    at = random.randrange(len(pieces))
    how = random.randrange(6)
    if how in (0, 1):
        pieces[at] = random.choice(_TOKENS)
    elif how == 2:
        del pieces[at : at + random.choice((1, 2, 3))]
    elif how == 3:
        pieces[at:at] = pieces[at : at + random.randrange(1, 8)] * random.choice((1, 1, 2, 30))
    elif how == 4:
        other = random.randrange(len(pieces))
        pieces[at], pieces[other] = pieces[other], pieces[at]
    else:
        pieces[at] = random.choice(_TOKEN.findall(random.choice(seeds)) or [b""])
    return b"".join(pieces)


_YAML = [
    b"!!python/name:os.system", b"!<tag:yaml.org,2002:python/none>", b"&a", b"*a", b"<<: *a", b"|",
    b">-", b"? ", b"- ", b"---\n",
    b"%TAG ! tag:x,2000:\n", b"{", b"}", b"[", b"]", b'"', b"'", b"#", b"\t", b"\xe2\x80\xa8",
    b"\xff\xfe", b"!%70ython", b":", b"\r", b"_target_: x",
    b"&a [*a,*a]", b"!p!x", b"%", b"! ", b"  ", b"\n", b"\xef\xbb\xbf",
]  # fmt: skip


def yaml_tokens(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Marks that mean something in YAML, put in anywhere."""
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(_YAML) * random.choice((1, 1, 1, 40)) + data[at:]


# Formats with a header of a told length


def safetensors_header(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """The header changed, and its length told as it is."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = tokens(random, data[8:end], [seed[8:end] for seed in seeds])
    return len(header).to_bytes(8, "little") + header + data[end:]


def npy_header(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """The same for the header of an array."""
    size = 2 if data[6:7] == b"\x01" else 4
    end = 8 + size + int.from_bytes(data[8 : 8 + size], "little")
    header = random.choice((_npy_tokens, tokens, flip_bit))(random, data[8 + size : end], seeds)
    return data[:8] + (len(header) % (1 << 8 * size)).to_bytes(size, "little") + header + data[end:]


_NPY = [b"(", b")", b",", b"'", b"{", b"[('a','<f4')]", b"'|O'", b"'<M8[ns]'", b"-1", b"1" * 30, b"1L",
    b"True", b"'shape'", b"(1,)", b"'>f2'", b"0x10",
        b"'\\x00'", b"1_0", b"#", b"\n", b"[('a',[('b','<i4',(2,))])]", b"(" * 100, b"'V99999999999'",
        b"'<U4'", b"1e5", b"''"]  # fmt: skip


def _npy_tokens(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    pieces = re.findall(rb"'[^']*'|\w+|.", data, re.DOTALL) or [b""]
    at = random.randrange(len(pieces))
    pieces[at : at + random.randrange(2)] = [random.choice(_NPY)]
    return b"".join(pieces)


# Protobuf


def protobuf_fields(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A field somewhere in the tree of messages changed; the lengths around it are told as they are."""
    fields = _fields(data)
    if not fields:
        return random.choice(PLAIN)(random, data, seeds)
    at = random.randrange(len(fields))
    key, wire, content = fields[at]
    how = random.randrange(8)
    if how == 0:
        del fields[at]
    elif how == 1:
        fields.insert(random.randrange(len(fields) + 1), fields[at])
    elif how == 2:
        fields[at] = (random.randrange(1, 30), wire, content)
    elif wire == 2 and how > 3:
        fields[at] = (key, wire, protobuf_fields(random, content, seeds))
    elif wire == 2:
        fields[at] = (key, wire, random.choice(PLAIN)(random, content, seeds))
    elif wire == 0:
        fields[at] = (key, wire, _varint(random.choice(EDGES)))
    else:
        fields[at] = (key, wire, random.randbytes(len(content)))
    return b"".join(_field(*each) for each in fields)


def _fields(data: bytes) -> list[tuple[int, int, bytes]]:
    """Number, wire type and content of each field; nothing when the bytes are no message."""
    fields, at = [], 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            start = at
            _, at = _read_varint(data, at)
        elif wire == 2:
            size, start = _read_varint(data, at)
            at = start + size
        elif wire in (1, 5):
            start = at
            at += 8 if wire == 1 else 4
        else:
            return []
        if at > len(data) or tag < 8:
            return []
        fields.append((tag >> 3, wire, data[start:at]))
    return fields


def _field(number: int, wire: int, content: bytes) -> bytes:
    return _varint(number << 3 | wire) + (_varint(len(content)) if wire == 2 else b"") + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    return value, len(data) + 1


# Archives

_ZIP_FIELDS = {  # offset and size of each
    b"PK\3\4": ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
    b"PK\1\2": ((8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2), (42, 4)),
    b"PK\5\6": ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
    b"PK\6\6": ((4, 8), (12, 2), (16, 4), (24, 8), (32, 8), (40, 8), (48, 8)),
    b"PK\6\7": ((4, 4), (8, 8), (16, 4)),
}


def zip_fields(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A field of a local header, of the directory or of its end changed."""
    mark = random.choice(tuple(_ZIP_FIELDS))
    places = [match.start() for match in re.finditer(re.escape(mark), data)]
    if not places:
        return likely_length(random, data, seeds)
    offset, size = random.choice(_ZIP_FIELDS[mark])
    return _with_number(random, data, random.choice(places) + offset, size)


def zip_members(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A member changed as its own format invites, or renamed, doubled or left out; the archive is sound."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # noqa: BLE001 - an earlier change broke it, and these libraries may raise anything
        return zip_fields(random, data, seeds)
    if not members:
        return zip_fields(random, data, seeds)
    at = random.randrange(len(members))
    likely = [
        i for i, (name, _) in enumerate(members) if name.endswith((".pkl", ".json", ".npy", "byteorder"))
    ]
    if likely and random.random() < 0.8:
        at = random.choice(likely)
    name, content = members[at]
    how = random.randrange(12)
    if how == 0:
        del members[at]
    elif how == 1:
        members.insert(random.randrange(len(members) + 1), members[at])
    elif how == 2:
        members[at] = (
            random.choice((name.upper(), f"../{name}", f"x/{name}", f"{name}\x1b", members[0][0])),
            content,
        )
    else:
        members[at] = (name, member_change(random, name, content))
    return _zipped(members, zipfile.ZIP_DEFLATED if random.random() < 0.2 else zipfile.ZIP_STORED)


def member_change(random: Random, name: str, content: bytes) -> bytes:
    """The content of a member, changed as its name tells."""
    likely: Mutation = random.choice(PLAIN)
    if name.endswith((".pkl", "pickle", "sys_info", "tensors", "storages")):
        likely = pickle_opcodes
    elif name.endswith(".json"):
        likely = random.choice((tokens, json_values))
    elif name.endswith(".npy"):
        likely = npy_header
    return likely(random, content, [content])


def _zipped(members: Sequence[tuple[str, bytes]], method: int) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in members:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            archive.writestr(info, content)
    return buffer.getvalue()


def tar_members(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """The same for a tar, whose checksums are right again."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            members = [(info, (archive.extractfile(info) or io.BytesIO()).read()) for info in archive]
    except Exception:  # noqa: BLE001 - see above
        return likely_length(random, data, seeds)
    if not members:
        return likely_length(random, data, seeds)
    at = random.randrange(len(members))
    info, content = members[at]
    how = random.randrange(8)
    if how == 0:
        del members[at]
    elif how == 1:
        members.append(members[at])
    elif how == 2:
        info.type = random.choice((tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE, b"x", b"L"))
    else:
        members[at] = (info, member_change(random, info.name, content))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for info, content in members:
            info.size = len(content)
            try:
                archive.addfile(info, io.BytesIO(content))
            except (ValueError, OSError):  # a name that does not fit
                return data
    return buffer.getvalue()


def json_values(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """One value of a document, replaced: what is around it stays sound."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return tokens(random, data, seeds)
    places: list[tuple[dict[str, object] | list[object], str | int]] = []
    pending = [document]
    while pending:
        value = pending.pop()
        keys = (
            list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        )
        for key in keys:
            places.append((value, key))
            pending.append(value[key])
    if not places:
        return tokens(random, data, seeds)
    holder, key = random.choice(places)
    holder[key] = random.choice(_VALUES)  # type: ignore[index,call-overload]
    return json.dumps(document).encode()


_VALUES: tuple[object, ...] = (
    None, True, 0, -1, 1 << 31, 1 << 63, 1 << 64, 10**300, 1.5, "", "a/../b", "\x1b[2J", "F32", [], {},
    [0], [-1], [[1]], {"a": 1},
    {"as_int": -1}, {"as_int": 1 << 63}, [None], "x" * 300, 1e300, "\u202e",
)  # fmt: skip
