"""Archives as torch.save writes them, and their storages, gone wrong."""

from __future__ import annotations

import io
import struct
from pathlib import Path

from hostile import zips
from hostile.case import MB, Build, Case, case, file
from hostile.pickles import (
    EMPTY_TUPLE,
    FALSE,
    call,
    dict_of,
    evil,
    evil_exec,
    evil_in_text,
    global_named,
    instance,
    integer,
    pickled,
    raw_bytes,
    text,
    tuple_of,
)
from hostile.zips import Member

RECORD = bytes(16)  # of the storage "0": four float32


def tensor(
    size: tuple[int, ...] = (2, 2),
    stride: tuple[int, ...] = (2, 1),
    *,
    storage: str = "FloatStorage",
    key: str = "0",
    numel: int = 4,
) -> bytes:
    """The opcodes of one tensor in a zip."""
    stored = tuple_of(text("storage"), global_named("torch", storage), text(key), text("cpu"), integer(numel))
    return call(
        "torch._utils",
        "_rebuild_tensor_v2",
        stored + b"Q",
        integer(0),
        tuple_of(*map(integer, size)),
        tuple_of(*map(integer, stride)),
        FALSE,
        global_named("collections", "OrderedDict") + EMPTY_TUPLE + b"R",
    )


def state_dict(*pairs: tuple[str | bytes, bytes]) -> bytes:
    return dict_of(*((text(name), value) for name, value in pairs))


PLAIN = pickled(state_dict(("w", tensor())))


def members(pickle: bytes, *, byteorder: bytes = b"little") -> list[Member]:
    return [
        Member(name=b"archive/data.pkl", packed=pickle),
        Member(name=b"archive/byteorder", packed=byteorder),
        Member(name=b"archive/data/0", packed=RECORD),
        Member(name=b"archive/version", packed=b"3\n"),
    ]


def pt_zip(pickle: bytes, *more: Member, byteorder: bytes = b"little") -> bytes:
    return zips.archive([*members(pickle, byteorder=byteorder), *more])


def _one_tensor(body: bytes) -> Build:
    return file("model.pt", lambda folder: pt_zip(pickled(state_dict(("w", body)))))


def _named(name: str | bytes) -> Build:
    return file("model.pt", lambda folder: pt_zip(pickled(state_dict((name, tensor())))))


def _evil_first(folder: Path) -> bytes:
    evil_copy = Member(name=b"archive/data.pkl", packed=pickled(evil(folder)))
    return zips.archive([evil_copy, *members(PLAIN)])


def _evil_second(folder: Path) -> bytes:
    return pt_zip(PLAIN, Member(name=b"archive/data.pkl", packed=pickled(evil(folder))))


def _two_folders(folder: Path) -> bytes:
    return pt_zip(PLAIN, Member(name=b"evil/data.pkl", packed=pickled(evil(folder))))


def _wrong_crc(folder: Path) -> bytes:
    first, *others = members(PLAIN)
    return zips.archive([Member(name=first.name, packed=PLAIN, crc=first.told_crc ^ 1), *others])


def _flagged(bit: int) -> Build:
    def content(folder: Path) -> bytes:
        first, *others = members(pickled(evil(folder)))
        patched = Member(name=first.name, packed=first.packed, central_flags=first.flags | bit)
        return zips.archive([patched, *others])

    return file("model.pt", content)


def _unknown_method(folder: Path) -> bytes:
    first, *others = members(PLAIN)
    return zips.archive([Member(name=first.name, packed=PLAIN, method=99), *others])


def _local_name(folder: Path) -> bytes:
    first, *others = members(pickled(evil(folder)))
    return zips.archive(
        [Member(name=first.name, packed=first.packed, local_name=b"archive/date.pkl"), *others]
    )


def _after_pickle(folder: Path) -> bytes:
    return pickled(evil(folder)) + pt_zip(PLAIN)


def _after_pickle_shifted(folder: Path) -> bytes:
    prefix = pickled(evil(folder))
    return prefix + zips.archive(members(PLAIN), shift=len(prefix))


def _zip_in_zip(folder: Path) -> bytes:
    return pt_zip(PLAIN, Member(name=b"archive/inner.zip", packed=pt_zip(pickled(evil(folder)))))


def _bomb(folder: Path) -> bytes:
    nones = zips.bomb(b"archive/data.pkl", b"\x80\x02", b"N", 1 << 31, b".")
    return zips.archive([nones, *members(PLAIN)[1:]])


def _one_local_header(folder: Path) -> bytes:
    """Two thousand names in the directory for the bytes of one."""
    body, directory, count, shared = b"", b"", 0, 0
    for member in members(PLAIN):
        if member.name == b"archive/data/0":
            shared = len(body)
        directory += zips.central(member, len(body))
        body += zips.local(member)
        count += 1
    for number in range(1, 2001):
        directory += zips.central(Member(name=b"archive/data/%d" % number, packed=RECORD), shared)
        count += 1
    return body + directory + zips.end(count, len(directory), len(body))


def _zip64_size(folder: Path) -> bytes:
    first, *others = members(PLAIN)
    huge = Member(
        name=first.name,
        packed=PLAIN,
        central_sizes=(0xFFFFFFFF, 0xFFFFFFFF),
        central_extra=struct.pack("<HHQQ", 1, 16, 2**62, 2**62),
    )
    return zips.archive([huge, *others])


def _two_resolvers(folder: Path) -> bytes:
    module = call("importlib", "import_module", text("os"))
    return pt_zip(pickled(call("inspect", "getattr_static", module, text("system"))))


def _loads_bytes(inner: bytes) -> bytes:
    return pt_zip(pickled(call("torch.storage", "_load_from_bytes", raw_bytes(inner))))


def _protocol(number: int) -> Build:
    def content(folder: Path) -> bytes:
        import torch

        buffer = io.BytesIO()
        torch.save({"w": torch.ones(2, 2)}, buffer, pickle_protocol=number)
        return buffer.getvalue()

    return file("model.pt", content)


def _namespace(folder: Path) -> bytes:
    options = instance("argparse", "Namespace", [(text("lr"), integer(3)), (text("name"), text("run"))])
    return pt_zip(pickled(state_dict(("args", options), ("w", tensor()))))


def _exit_three(
    id: str,
    name: str,
    content: bytes | Build,
    *,
    codes: set[str] | None = None,
    contains: str | None = None,
) -> Case:
    build = content if callable(content) else file("model.pt", lambda folder: content)
    return case(id, name, build, {3}, codes=codes, contains=contains)


_HOSTILE = {
    "ansi": "\x1b[2J\x1b[31mw",
    "osc": "\x1b]0;owned\x07w",
    "script": "<script>alert(1)</script>",
    "formula": "=cmd|'/c calc'!A1",
    "nul": "w\0x",
    "carriage-return": "w\rOK: nothing found",
    "bidi": "w\u202egnp.exe",
    "zero-width": "w\u200bx\ufeff",
    "newline": "w\n::error::x",
    "markdown": "`w`|[x](javascript:alert(1))|",
    "100kB": "w" * 100_000,
}

CASES = [
    case(
        "1-system",
        "control evil",
        file("model.pt", lambda f: pt_zip(pickled(evil(f)))),
        {1},
        contains="os.system",
        codes={"pickle.call"},
    ),
    case(
        "1-exec",
        "control evil, exec",
        file("model.pt", lambda f: pt_zip(pickled(evil_exec(f)))),
        {1},
        contains="builtins.exec",
        codes={"pickle.call"},
    ),
    case(
        "2-protocol-0",
        "protocol 0 in data.pkl",
        file("model.pt", lambda f: pt_zip(evil_in_text(f))),
        {1},
        contains="os.system",
        codes={"pickle.call"},
    ),
    case(
        "4-evil-first",
        "duplicate name, evil first",
        file("model.pt", _evil_first),
        {3},
        contains="os.system",
        note="both readings are shown",
        codes={"zip.duplicate"},
    ),
    case(
        "4-evil-second",
        "duplicate name, evil second",
        file("model.pt", _evil_second),
        {3},
        contains="os.system",
        codes={"zip.duplicate"},
    ),
    case(
        "6-two-folders",
        "two top folders",
        file("model.pt", _two_folders),
        {3},
        contains="os.system",
        codes={"torch.ambiguous"},
    ),
    case(
        "7-crc",
        "wrong CRC",
        file("model.pt", _wrong_crc),
        {1, 3},
        note="a finding, of either kind",
        codes={"zip.crc"},
    ),
    *(
        case(
            f"8-flag-{bit:#x}",
            "flag bit in the directory",
            _flagged(bit),
            {3},
            contains="os.system",
            codes={"zip.flags"},
            note="the bytes are there in the clear, and some loaders do not look at flags",
        )
        for bit in (0x1, 0x20, 0x40)
    ),
    case("9-method-99", "method 99", file("model.pt", _unknown_method), {3}, codes={"zip.method"}),
    case(
        "11-local-name",
        "local name is not the central one",
        file("model.pt", _local_name),
        {3},
        contains="os.system",
        codes={"zip.mismatch"},
    ),
    case("12-prefix", "pickle before zip", file("model.pt", _after_pickle), {3}, contains="os.system"),
    case(
        "12-prefix-shifted",
        "pickle before zip, offsets from the start of the file",
        file("model.pt", _after_pickle_shifted),
        {3},
        contains="os.system",
    ),
    case(
        "13-zip-in-zip",
        "zip inside zip",
        file("model.pt", _zip_in_zip),
        {1},
        contains="os.system",
        codes={"pickle.call"},
    ),
    case(
        "14-bomb",
        "2 GiB of NONE",
        file("model.pt", _bomb),
        {4},
        codes={"limit", "zip.bomb"},
        peak_nbytes=200 * MB,
    ),
    case(
        "16-one-local-header",
        "2,000 central records, one local header",
        file("model.pt", _one_local_header),
        {3},
        codes={"zip.overlap"},
    ),
    case("17-zip64", "zip64 size 2^62", file("model.pt", _zip64_size), {3}),
    _exit_three(
        "19-cut",
        "last 30 bytes cut",
        file("model.pt", lambda f: pt_zip(PLAIN)[:-30]),
        codes={"zip.truncated"},
    ),
    _exit_three("19-empty", "empty file", b""),
    _exit_three("19-only-magic", "only the magic", b"PK\3\4", codes={"zip.truncated"}),
    _exit_three("20-numel", "more elements than the record has", _one_tensor(tensor(numel=1000))),
    _exit_three("21-view", "view larger than its storage", _one_tensor(tensor((1000, 1000), (1000, 1)))),
    case(
        "23-stride-0",
        "2^40 elements by stride 0",
        _one_tensor(tensor((2**40,), (0,))),
        {0, 1},
        note="4 TiB logical, 16 bytes stored: said, not made",
    ),
    _exit_three("24-overflow", "dims overflow", _one_tensor(tensor((2**62, 2**62), (2**62, 1)))),
    _exit_three("25-key", "storage key leaves the folder", _one_tensor(tensor(key="../version"))),
    _exit_three("26-missing", "record is missing", _one_tensor(tensor(key="77"))),
    _exit_three(
        "28-storage",
        "unknown storage class",
        _one_tensor(tensor(storage="EvilStorage")),
        contains="EvilStorage",
    ),
    _exit_three(
        "29-byteorder",
        "byteorder middle",
        file("model.pt", lambda f: pt_zip(PLAIN, byteorder=b"middle")),
        contains="middle",
        codes={"torch.byteorder"},
    ),
    *(case(f"30-{kind}", f"hostile name: {kind}", _named(name), {0, 1}) for kind, name in _HOSTILE.items()),
    case(
        "31-not-utf8",
        "name that is not UTF-8",
        _named(b"\xff\xfe"),
        {0, 1, 3},
        note="Python's unpickler refuses the text, so 3 is right, too",
    ),
    case("31-surrogate", "name with a lone surrogate", _named(b"\xed\xa0\x80"), {0, 1}),
    case(
        "32-duplicate-key",
        "duplicate dict key",
        file("model.pt", lambda f: pt_zip(pickled(state_dict(("w", tensor()), ("w", tensor((4,), (1,))))))),
        {1, 3},
        codes={"torch.duplicate-key"},
    ),
    case("34-namespace", "Namespace in a checkpoint", file("model.pt", _namespace), {0}),
    case(
        "35-getattr",
        "getattr on os.path",
        file(
            "model.pt",
            lambda f: pt_zip(pickled(call("builtins", "getattr", global_named("os", "path"), text("join")))),
        ),
        {1},
        contains="getattr",
        codes={"pickle.call"},
    ),
    case(
        "36-resolvers",
        "importlib and inspect.getattr_static",
        file("model.pt", _two_resolvers),
        {1},
        contains="importlib.import_module",
        codes={"pickle.call"},
    ),
    case(
        "37-pickle",
        "_load_from_bytes with a pickle",
        file("model.pt", lambda f: _loads_bytes(pickled(evil(f)))),
        {1},
        contains="os.system",
        codes={"pickle.call"},
    ),
    case(
        "37-zip",
        "_load_from_bytes with an archive",
        file("model.pt", lambda f: _loads_bytes(pt_zip(pickled(evil(f))))),
        {1},
        contains="_load_from_bytes",
        codes={"pickle.call"},
    ),
    case("39-protocol-4", "protocol 4 file from torch", _protocol(4), {0}),
    case("39-protocol-5", "protocol 5 file from torch", _protocol(5), {0}),
]
