"""Files from before torch 1.6 (a chain of pickles, or a tar), other archives, and DCP folders."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from hostile.case import Case, case, file
from hostile.pickles import (
    EMPTY_TUPLE,
    FALSE,
    NONE,
    POP,
    call,
    command,
    dict_of,
    evil,
    evil_then,
    global_named,
    integer,
    list_of,
    pickled,
    text,
    tuple_of,
)

MAGIC = 0x1950A86A20F9469CFC6C
KEY = "94017552"
_TRUE = b"\x88"


def _tensor() -> bytes:
    stored = tuple_of(
        text("storage"), global_named("torch", "FloatStorage"), text(KEY), text("cpu"), integer(4), NONE
    )
    return call(
        "torch._utils",
        "_rebuild_tensor_v2",
        stored + b"Q",
        integer(0),
        tuple_of(integer(2), integer(2)),
        tuple_of(integer(2), integer(1)),
        FALSE,
        global_named("collections", "OrderedDict") + EMPTY_TUPLE + b"R",
    )


PARTS = {
    "magic": integer(MAGIC),
    "protocol": integer(1001),
    "sys-info": dict_of(
        (text("protocol_version"), integer(1001)),
        (text("little_endian"), _TRUE),
        (
            text("type_sizes"),
            dict_of((text("short"), integer(2)), (text("int"), integer(4)), (text("long"), integer(4))),
        ),
    ),
    "object": dict_of((text("w"), _tensor())),
    "keys": list_of(text(KEY)),
}


def legacy(replaced: Mapping[str, bytes] = MappingProxyType({}), *, numel: int = 4) -> bytes:
    """A whole legacy file; `replaced` has other bodies for some of its five pickles."""
    parts = {**PARTS, **replaced}
    return b"".join(map(pickled, parts.values())) + struct.pack("<q", numel) + bytes(16)


def _evil_part(name: str) -> Callable[[Path], bytes]:
    return lambda folder: legacy({name: evil_then(folder, PARTS[name])})


def _module_with_source(folder: Path) -> bytes:
    source = "class Net(torch.nn.Module):\n    pass\n"
    named = tuple_of(text("module"), global_named("__main__", "Net"), text("net.py"), text(source))
    net = named + b"Q" + EMPTY_TUPLE + b"\x81" + dict_of((text("w"), _tensor())) + b"b"
    return legacy({"object": net})


_TAR_PLAIN = dict_of((text("w"), text("1") + b"Q"))


def tar(*more: tarfile.TarInfo, pickle: bytes = _TAR_PLAIN) -> bytes:
    """A whole tar file; `pickle` pushes its object."""
    stored = tuple_of(integer(int(KEY)), text("cpu"), global_named("torch", "FloatStorage"))
    storages = pickled(integer(1)) + pickled(stored) + struct.pack("<q", 4) + bytes(16) + pickled(list_of())
    placed = tuple_of(integer(1), integer(int(KEY)), global_named("torch", "FloatTensor"))
    numbers = struct.pack("<i4x2q2qq", 2, 2, 2, 2, 1, 0)
    tensors = pickled(integer(1)) + pickled(placed) + numbers
    contents = {
        "sys_info": pickled(PARTS["sys-info"]),
        "pickle": pickled(pickle),
        "storages": storages,
        "tensors": tensors,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as out:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
        for info in more:
            out.addfile(info)
    return buffer.getvalue()


def _odd_member(kind: bytes, linkname: str) -> bytes:
    info = tarfile.TarInfo("odd")
    info.type, info.linkname = kind, linkname
    return tar(info)


def _evil_tar(folder: Path) -> bytes:
    return tar(pickle=evil_then(folder, _TAR_PLAIN))


class _Payload:
    """Pickled as a call; nothing happens until somebody loads it."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (self._command,)


def _checkpoint(folder: Path, note: object) -> Path:
    import torch
    from torch.distributed import checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save(  # type: ignore[attr-defined]
            {"w": torch.ones(2, 2), "note": note}, checkpoint_id=folder / "checkpoint", no_dist=True
        )
    return folder / "checkpoint"


def _evil_metadata(folder: Path) -> Path:
    path = _checkpoint(folder, "plain")
    metadata = (path / ".metadata").read_bytes()
    (path / ".metadata").write_bytes(metadata[:2] + evil(folder) + POP + metadata[2:])
    return path


def _evil_slice(folder: Path) -> Path:
    return _checkpoint(folder, _Payload(command(folder)))


def _legacy(
    id: str,
    name: str,
    content: Callable[[Path], bytes] | bytes,
    exit_codes: set[int],
    contains: str | None = None,
    *,
    codes: set[str] | None = None,
) -> Case:
    build = file("model.pt", content if callable(content) else lambda folder: content)
    return case(id, name, build, exit_codes, codes=codes, contains=contains)


CASES = [
    *(
        _legacy(f"66-{name}", f"evil {name}", _evil_part(name), {1}, "os.system", codes={"pickle.call"})
        for name in ("protocol", "sys-info", "object", "keys")
    ),
    _legacy(
        "68-storage-length", "storage length 2^60", lambda f: legacy(numel=2**60), {3}, codes={"truncated"}
    ),
    _legacy("69-cut", "last 8 bytes cut", lambda f: legacy()[:-8], {3}, codes={"truncated"}),
    case(
        "70-source",
        "module id with source",
        file("model.pt", _module_with_source),
        {0, 1},
        contains="Net",
        note="the class is not of torch, so a notice is right, too",
        codes={"torch.source"},
    ),
    _legacy("71-tar", "tar with evil pickle", _evil_tar, {1}, "os.system", codes={"pickle.call"}),
    _legacy(
        "71-tar-link",
        "tar with a link",
        lambda f: _odd_member(tarfile.SYMTYPE, "/etc/passwd"),
        {1},
        codes={"tar.link"},
    ),
    _legacy("71-tar-device", "tar with a device", lambda f: _odd_member(tarfile.CHRTYPE, ""), {3}),
    _legacy("73-7z", "7z", b"7z\xbc\xaf'\x1c\0\4" + bytes(range(200)), {3}, "7z"),
    _legacy("73-gzip", "gzip", b"\x1f\x8b\x08\0" + bytes(range(200)), {3}, "gzip"),
    _legacy("73-xz", "xz", b"\xfd7zXZ\0" + bytes(range(200)), {3}, "xz"),
    _legacy("73-zstd", "zstd", b"\x28\xb5\x2f\xfd" + bytes(range(200)), {3}, "zstd"),
    _legacy("73-preview", "preview archive", b"PYTORCH1" + bytes(200), {3}),
    case(
        "74-metadata", "DCP .metadata evil", _evil_metadata, {1}, contains="os.system", codes={"pickle.call"}
    ),
    case("74-slice", "DCP .distcp evil", _evil_slice, {1}, contains="posix.system", codes={"pickle.call"}),
]
