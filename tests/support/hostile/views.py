"""Files that one loader sees differently from another: what any of them would run must be found."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import struct
import tarfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from hostile import safetensors_files, zips
from hostile.case import Build, Case, case, file
from hostile.legacy import tar
from hostile.numpy_files import described, npy, npz
from hostile.pickles import (
    POP,
    call,
    evil,
    global_named,
    instance,
    integer,
    pickled,
    text,
    tuple_of,
)
from hostile.torch_files import PLAIN, members, pt_zip
from hostile.zips import Member

FILLER = b"N0" * 15_000  # more harmless opcodes than a glance looks at


_SAYING = {"pickle.call": "os.system", "code.import": "evil"}


def _found(id: str, name: str, build: Build, exit_codes: set[int], code: str = "pickle.call") -> Case:
    return case(id, name, build, exit_codes, codes={code}, contains=_SAYING.get(code, '"level": "high"'))


def _evil(folder: Path) -> bytes:
    return pickled(evil(folder))


# --- exported programs --------------------------------------------------------------------------------

_META = {
    "dtype": 7,
    "sizes": [{"as_int": 2}],
    "strides": [{"as_int": 1}],
    "storage_offset": {"as_int": 0},
    "requires_grad": False,
}
_PROGRAM: dict[str, object] = {"schema_version": {"major": 8, "minor": 0}, "guards_code": []}


def exported(
    more: Mapping[str, bytes], *, pickle: bool = False, program: Mapping[str, object] = _PROGRAM
) -> bytes:
    """An exported program of one weight; `pickle`: torch is told to unpickle it."""
    weight = {"path_name": "weight_0", "is_param": True, "use_pickle": pickle, "tensor_meta": _META}
    content = {
        "data/weights/weight_0": bytes(8),
        "data/weights/model_weights_config.json": json.dumps({"config": {"w": weight}}).encode(),
        "data/constants/model_constants_config.json": b'{"config": {}}',
        "models/model.json": json.dumps(program).encode(),
        "archive_format": b"pt2",
        "archive_version": b"0",
        **more,
    }
    return zips.archive(Member(name=f"a/{name}".encode(), packed=held) for name, held in content.items())


def _export(
    id: str, name: str, member: str, content: Callable[[Path], bytes], code: str = "pickle.call"
) -> Case:
    build = file("model.pt2", lambda f: exported({member: content(f)}, pickle=member.endswith("weight_0")))
    return _found(f"120-{id}", name, build, {1, 3}, code)


def _decoy(folder: Path) -> bytes:
    """A second document calls the pickled weight raw."""
    weight = {"path_name": "weight_0", "is_param": True, "use_pickle": False, "tensor_meta": _META}
    decoy = json.dumps({"config": {"v": weight}}).encode()
    saved = pt_zip(_evil(folder))
    return exported(
        {"data/weights/b_weights_config.json": decoy, "data/weights/weight_0": saved}, pickle=True
    )


def _program(id: str, name: str, program: Mapping[str, object], code: str = "code.expression") -> Case:
    build = file("model.pt2", lambda folder: exported({}, program={**_PROGRAM, **program}))
    return _found(f"121-{id}", name, build, {1}, code)


def _old_export(folder: Path) -> bytes:
    content = {
        "version": b"8.1",
        "serialized_exported_program.json": b"{}",
        "serialized_state_dict.pt": pt_zip(PLAIN),
        "serialized_constants.json": pt_zip(_evil(folder)),  # torch.load is given it, whatever it is called
    }
    return zips.archive(Member(name=name.encode(), packed=held) for name, held in content.items())


_EXPRESSIONS = {
    "import": "__import__('os').system('true')",
    "attribute": "Symbol('s0').__class__.__base__",
    "lambda": "(lambda: 0)()",
    "list": "[s0 for s0 in s1]",
    "text": "Symbol('s0') + 'a'.join('b')",
    "call": "sympify('1')",
    "result": "Integer(2)(3)",
    "walrus": "(s0 := 3)",
    "not-text": 3,
}

# --- tars ---------------------------------------------------------------------------------------------


def _header(name: bytes, nbytes: int, *, kind: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    head = bytearray(512)
    head[: len(name)] = name
    head[100:136] = b"0000644\0" + b"0000000\0" * 2 + b"%011o\0" % nbytes
    head[136:157] = b"00000000000\0" + b" " * 8 + kind
    head[257 : 257 + len(magic)] = magic
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def tar_of(*parts: tuple[bytes, bytes, bytes], magic: bytes = b"ustar\x0000") -> bytes:
    """A tar of names, kinds and contents, as they are."""
    body = b""
    for name, kind, content in parts:
        body += _header(name, len(content), kind=kind, magic=magic) + content + bytes(-len(content) % 512)
    return body + bytes(1024)


def _folder_with_size(kind: bytes, name: bytes) -> Build:
    """For Python the members in the folder's content are members of the archive; others skip them."""

    def content(folder: Path) -> bytes:
        hidden = tar_of((b"pickle", b"0", _evil(folder)))[:1024]
        return tar_of((name, kind, hidden), (b"readme", b"0", b"hello"))

    return file("model.tar", content)


def _saved_tar(format: int, name: str) -> Build:
    def content(folder: Path) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=format) as out:
            info = tarfile.TarInfo(name)
            info.size = len(_evil(folder))
            out.addfile(info, io.BytesIO(_evil(folder)))
        return buffer.getvalue()

    return file("model.tar", content)


def _sparse(folder: Path) -> bytes:
    """GNU's form: a hole is in the middle of an argument, so that the pieces alone are not a pickle."""
    whole = b"\x80\x02B" + struct.pack("<I", 1024) + bytes(1024) + POP + evil(folder) + b"."
    first, last = whole[:512], whole[1024:]
    head = bytearray(_header(b"data", 512 + len(last), kind=b"S", magic=b"ustar  \0"))
    places = (0, 512), (1024, len(last))
    for at, (offset, size) in enumerate(places):
        head[386 + 24 * at : 410 + 24 * at] = b"%011o\0%011o\0" % (offset, size)
    head[483:495] = b"%011o\0" % len(whole)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + first + last + bytes(-len(last) % 512) + bytes(1024)


def _broken_storages(folder: Path) -> bytes:
    """What is wrong with one member must not hide the pickle in another."""
    parts = [
        (b"storages", b"0", b"\x80\x02N."),
        (b"tensors", b"0", b"\x80\x02N."),
        (b"pickle", b"0", _evil(folder)),
    ]
    return tar_of(*parts)


# --- zips ---------------------------------------------------------------------------------------------


def _in_large_letters(name: bytes) -> Build:
    def content(folder: Path) -> bytes:
        first, *others = members(_evil(folder))
        return zips.archive([Member(name=name, packed=first.packed), *others])

    return file("model.pt", content)


def _inside(name: bytes, packed: Callable[[bytes], bytes]) -> Build:
    return file("model.pt", lambda f: pt_zip(PLAIN, Member(name=name, packed=packed(_evil(f)))))


def _deep(depth: int) -> Callable[[bytes], bytes]:
    def packed(data: bytes) -> bytes:
        for _ in range(depth):
            data = zips.archive([Member(name=b"x", packed=data)])
        return data

    return packed


def _zip_behind(prefix: bytes, comment: int) -> Callable[[Path], bytes]:
    def content(folder: Path) -> bytes:
        data = pt_zip(_evil(folder))
        return prefix + data[:-2] + struct.pack("<H", min(comment, 0xFFFF)) + b"x" * comment

    return content


def _two_directories(folder: Path) -> bytes:
    """One directory is where the end record says, the other right before it: readers differ."""
    harmless, hidden = members(PLAIN), members(_evil(folder))
    body, directory = _body(harmless), _directory(harmless, 0)
    # Python adds to each place how far the directory lies behind the declared one.
    behind = _body(hidden) + _directory(hidden, len(body) - len(_body(hidden)))
    return body + directory + behind + zips.end(len(harmless), len(directory), len(body))


def _body(listed: list[Member]) -> bytes:
    return b"".join(map(zips.local, listed))


def _directory(listed: list[Member], shift: int) -> bytes:
    found = b""
    for at, member in enumerate(listed):
        found += zips.central(member, len(_body(listed[:at])) + shift)
    return found


# --- probes, and what is compressed -------------------------------------------------------------------


def _after_filler(folder: Path) -> bytes:
    return FILLER + evil(folder) + b"."


def _in_folder(name: str, content: Callable[[Path], bytes]) -> Build:
    def build(folder: Path) -> Path:
        inner = folder / "model"
        inner.mkdir()
        (inner / "model.safetensors").write_bytes(safetensors_files.GOOD)
        (inner / name).write_bytes(content(folder))
        return inner

    return build


def safetensors_and_pickle(payload: bytes) -> bytes:
    """A safetensors file that is a pickle, too: its length is the opcode of a text."""
    skipped = 200
    length = ord("X") + (skipped << 8)
    size = len(payload) + 1
    front = '{"__metadata__":{"a":"'.ljust(skipped - 3, "x")  # three bytes of the length are in the text, too
    back = f'"}},"w":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}'
    ends = f"U{chr(len(back))}"  # a text as well, up to the end of the header
    room = length - len(front) - len(ends) - len(back)
    filler = ("N0" * room)[:room]
    return struct.pack("<Q", length) + (front + filler + ends + back).encode() + POP + payload


def _polyglot(folder: Path) -> bytes:
    return safetensors_and_pickle(evil(folder) + b".")


_PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    "zlib": zlib.compress,
    "joblib-0.9": lambda data: b"ZF" + hex(len(data)).ljust(19).encode() + zlib.compress(data),
    "two-streams": lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:]),
    "twice": lambda data: gzip.compress(bz2.compress(data)),
    "tar": lambda data: gzip.compress(tar_of((b"x", b"0", data))),
}


def _compressed_bomb(folder: Path) -> bytes:
    packer, piece = zlib.compressobj(wbits=31), b"N" * (16 << 20)
    return b"".join(packer.compress(piece) for _ in range(64)) + packer.flush()


# --- joblib -------------------------------------------------------------------------------------------

WRAPPER = ("joblib.numpy_pickle", "NumpyArrayWrapper")


def _wrapped(dtype: str, shape: int) -> bytes:
    """What stands for an array; its values follow."""
    kind = call("numpy", "dtype", text(dtype), b"\x89", b"\x88")
    state = (text("subclass"), global_named("numpy", "ndarray")), (text("shape"), tuple_of(integer(shape)))
    return instance(*WRAPPER, [*state, (text("order"), text("C")), (text("dtype"), kind)])


def joblib_arrays() -> bytes:
    """An array of numbers and one of objects, as joblib writes them."""
    return b"\x80\x02]" + _wrapped("f8", 4) + bytes(range(32)) + b"a" + _wrapped("O8", 1) + b"]." + b"a."


def _after_array(folder: Path) -> bytes:
    return b"\x80\x02" + _wrapped("f8", 4) + bytes(range(32)) + POP + evil(folder) + b"."


def _in_array_of_objects(folder: Path) -> bytes:
    return b"\x80\x02" + _wrapped("O8", 1) + _evil(folder) + b"."


def _values_as_opcodes(folder: Path) -> bytes:
    """joblib passes over the values; pickle runs them."""
    values = POP + evil(folder) + b"."
    return b"\x80\x02" + _wrapped("S1", len(values)) + values + b"."


# --- folders ------------------------------------------------------------------------------------------


def _shadow(name: str, *, package: bool = False) -> Build:
    def build(folder: Path) -> Path:
        inner = folder / "model"
        inner.mkdir()
        (inner / "pytorch_model.bin").write_bytes(pt_zip(PLAIN))
        path = inner / name
        if package:
            path.mkdir()
            path /= "__init__.py"
        path.write_text("raise SystemExit\n")
        return inner

    return build


def _links(folder: Path) -> Path:
    """A link out of the folder, to a device, and to names that no system takes."""
    inner = folder / "model"
    inner.mkdir()
    (inner / "model.bin").write_bytes(pt_zip(_evil(folder)))
    secret = folder.parent / "secret.bin"
    secret.write_bytes(b"not yours")
    for name, target in {
        "out": secret,
        "null": "/dev/zero",
        "long": "x" * 300,
        "up": "..",
        "self": "self",
    }.items():
        os.symlink(target, inner / name)
    os.mkfifo(inner / "pipe")
    return inner


def _pieces(change: Callable[[bytes, Path], bytes]) -> Build:
    def build(folder: Path) -> Path:
        from hostile.legacy import _checkpoint

        path = _checkpoint(folder, "plain")
        piece = next(path.glob("*.distcp"))
        piece.write_bytes(change(piece.read_bytes(), folder))
        return path

    return build


def _orphan(folder: Path) -> Path:
    """Pieces without the file that describes them: every archive in a row is looked at, not only the last."""
    inner = folder / "model"
    inner.mkdir()
    data = pt_zip(PLAIN) + pt_zip(_evil(folder)) + pt_zip(PLAIN)
    (inner / "__0_0.distcp").write_bytes(data)
    return inner


_ELF = b"\x7fELF" + bytes(60)
_LOG = b"\x18" + bytes(7) + b"crc!" + b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2"

CASES = [
    _export("use-pickle", "weight flagged use_pickle", "data/weights/weight_0", lambda f: pt_zip(_evil(f))),
    _found("120-decoy", "a second document calls it raw", file("model.pt2", _decoy), {1}),
    _export("opaque", "opaque object", "data/constants/opaque_obj_0", lambda f: _after_filler(f)),
    _export("custom", "custom object", "data/constants/custom_obj_0", lambda f: pt_zip(_evil(f))),
    _export(
        "upper", "sample inputs in large letters", "DATA/Sample_Inputs/MODEL.PT", lambda f: pt_zip(_evil(f))
    ),
    _export(
        "filler",
        "sample inputs after filler",
        "data/sample_inputs/model.pt",
        lambda f: bytes(999) + pt_zip(_evil(f)),
    ),
    _export("legacy", "old weights", "data/weights/model.pt", lambda f: pt_zip(_evil(f))),
    _export("so", "library", "data/aotinductor/model/a.so", lambda f: _ELF, "code.native"),
    _export("renamed", "library under another name", "extra/notes.txt", lambda f: _ELF, "code.native"),
    _export("macos", "library for macOS", "data/x", lambda f: b"\xcf\xfa\xed\xfe" + bytes(60), "code.native"),
    _export("cubin", "code for a GPU", "data/aotinductor/model/a.CUBIN", lambda f: b"x", "code.native"),
    _export("cpp", "source of a library", "data/aotinductor/model/a.cpp", lambda f: b"int x;", "code.native"),
    _found("120-old", "program of torch 2.7", file("model.pt2", _old_export), {1}),
    *(
        _program(
            f"expr-{kind}", "expression that is evaluated", {"graph": [{"as_expr": {"expr_str": expression}}]}
        )
        for kind, expression in _EXPRESSIONS.items()
    ),
    _program("guards", "guard that is evaluated", {"guards_code": ["L['x'].size()[0] < 3", "exit()"]}),
    _program(
        "spec",
        "module that the inputs import",
        {"in_spec": '[1, {"context": {"default_factory_module": "evil", "default_factory_name": "x"}}]'},
        "code.import",
    ),
    case(
        "122-nul",
        "tar with a NUL in a name",
        file("model.tar", lambda f: tar_of((b"pickle\0.txt", b"0", _evil(f)))),
        {3},
        codes={"tar.name"},
        contains="os.system",
    ),
    case(
        "122-folder",
        "folder with a size",
        _folder_with_size(b"5", b"d"),
        {3},
        codes={"tar.ambiguous"},
        contains="os.system",
    ),
    case(
        "122-old-folder",
        "old folder with a size",
        _folder_with_size(b"\0", b"d/"),
        {3},
        codes={"tar.ambiguous"},
        contains="os.system",
    ),
    case(
        "122-link",
        "link with a size",
        _folder_with_size(b"2", b"l"),
        {3},
        codes={"tar.ambiguous"},
        contains="os.system",
    ),
    _found(
        "122-v7",
        "tar without its magic",
        file("model.tar", lambda f: tar_of((b"x", b"\0", _evil(f)), magic=b"")),
        {3},
    ),
    _found("122-pax", "long name in pax", _saved_tar(tarfile.PAX_FORMAT, "x/" * 150 + "é"), {3}),
    _found("122-gnu", "long name in GNU's form", _saved_tar(tarfile.GNU_FORMAT, "x" * 150), {3}),
    _found("122-sparse", "file with a hole", file("model.tar", _sparse), {3}),
    _found("122-broken", "broken storages before the pickle", file("model.pt", _broken_storages), {3}),
    _found(
        "122-twice",
        "two pickles of a name",
        file("model.pt", lambda f: tar_of((b"pickle", b"0", _evil(f)))[:-1024] + tar()),
        {1},
    ),
    *(
        _found(
            f"123-{name.decode().rpartition('/')[2]}",
            "data.pkl in large letters",
            _in_large_letters(name),
            {1},
        )
        for name in (b"archive/DATA.PKL", b"archive/Data.pkl", b"ARCHIVE/data.PKL")
    ),
    _found("123-tar", "tar inside zip", _inside(b"archive/x", lambda data: tar_of((b"y", b"0", data))), {1}),
    _found("123-gzip", "gzip inside zip", _inside(b"archive/x.gz", gzip.compress), {1}),
    _found(
        "123-plain",
        "pickle without a suffix",
        _inside(b"archive/extra/x", lambda data: FILLER + data[2:]),
        {1},
    ),
    _found("123-deep", "three archives deep", _inside(b"archive/x", _deep(3)), {1}),
    case("123-deeper", "ten archives deep", _inside(b"archive/x", _deep(10)), {4}, codes={"zip.nested"}),
    _found(
        "124-comment", "text before, a comment behind", file("model.txt", _zip_behind(b"hello\n", 100)), {3}
    ),
    _found("124-long", "the longest comment", file("model.bin", _zip_behind(b"\0\0", 0xFFFF)), {3}),
    _found(
        "124-longer", "more behind it than a comment can be", file("model.pt", _zip_behind(b"", 69_000)), {3}
    ),
    _found(
        "124-picture",
        "picture with an archive behind",
        _in_folder("a.png", _zip_behind(b"\x89PNG\r\n\x1a\n", 9)),
        {1, 3},
    ),
    _found("124-directories", "two directories", file("model.pt", _two_directories), {3}),
    _found(
        "125-safetensors",
        "filler in a safetensors that is a pickle",
        file("model.safetensors", _polyglot),
        {1, 3},
    ),
    *(
        _found(f"125-folder-{name}", "filler before the payload", _in_folder(name, _after_filler), {1})
        for name in ("a.pickle", "a.joblib", "a.h5", "a.txt", "a", ".hidden", "events.out.tfevents.1")
    ),
    *(
        _found(
            f"126-{kind}", "compressed pickle", file("model.pkl", lambda f, pack=pack: pack(_evil(f))), {1, 3}
        )
        for kind, pack in _PACKED.items()
    ),
    case(
        "126-bomb",
        "compressed bomb",
        file("model.pkl.gz", _compressed_bomb),
        {4},
        codes={"limit"},
    ),
    _found("127-after", "after an array of joblib", file("model.joblib", _after_array), {1}),
    _found(
        "127-objects", "in an array of objects of joblib", file("model.joblib", _in_array_of_objects), {1}
    ),
    _found(
        "127-values", "values of an array that are opcodes", file("model.joblib", _values_as_opcodes), {3}
    ),
    _found(
        "128-npz",
        "objects under a name in large letters",
        file("model.npz", lambda f: npz(("W.NPY", npy(described("'|O'", "(1,)"), _evil(f))))),
        {1},
    ),
    _found("129-module", "collections.py beside a pickle", _shadow("collections.py"), {1}, "code.shadow"),
    _found(
        "129-package", "a package torch beside a pickle", _shadow("torch", package=True), {1}, "code.shadow"
    ),
    _found(
        "129-compiled",
        "compiled module",
        _shadow("torch.cpython-311-x86_64-linux-gnu.so"),
        {1},
        "code.shadow",
    ),
    _found("129-links", "links to everywhere", _links, {1, 3}),
    _found("130-orphan", "pieces that nothing describes", _orphan, {3}),
    _found("130-behind", "after the last piece", _pieces(lambda data, f: data + _evil(f)), {1}),
]
