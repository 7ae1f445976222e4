"""What `torch.save` writes: a zip with one pickle, `data.pkl`, and a member for each storage."""

from __future__ import annotations

from typing import Any

from modelglass.errors import FileError
from modelglass.formats import pickles
from modelglass.formats.archives import zip as zips, zip_members
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch.checkpoint import fill
from modelglass.formats.torch.memory import PACKED, Locate, Memory
from modelglass.formats.torch.tensors import Storage

_PICKLES = (".pkl", ".debug_pkl", ".pickle")
_CODE = ".py"


def tops(archive: zips.Archive) -> list[str]:
    """The folders that have a `data.pkl`, in large letters or small ones: torch finds it by either."""
    found = (
        entry.name.rpartition("/") for entry in archive.entries if entry.name.lower().endswith("data.pkl")
    )
    return list(dict.fromkeys(folder for folder, _, name in found if zips.folded(name) == "data.pkl"))


def read(source: Source, archive: zips.Archive, reading: Reading) -> None:
    """Fill the reading from an archive that has a `data.pkl`."""
    folders = tops(archive)
    if not folders:  # a piece of a damaged checkpoint
        raise source.corrupt("there is no data.pkl in the archive", code="torch.pickle")
    folder = folders[0]
    scripted = archive.find(_inside(folder, "constants.pkl")) is not None
    reading.format = "torchscript" if scripted else "torch"
    if len(folders) > 1:
        shown = ", ".join(repr(each[:100]) for each in folders[:4])
        text = f"several folders have a data.pkl ({shown}): loaders may take either"
        reading.found(source, "torch.ambiguous", "invalid", text)
    big_endian = _byte_order(source, archive, folder, reading)
    root, bytecode = _pickles(source, archive, folder, reading, scripted)
    _code(source, archive, reading, bytecode)
    if reading.thorough:
        others = [entry for entry in archive.entries if not _is_known(entry.name)]
        zip_members.look_into(archive, others, reading)
    memory = Memory(source, reading, _locator(archive, folder), big_endian=big_endian)
    fill(root, memory, reading, source)


def _is_known(name: str) -> bool:
    """Whether a member is a pickle, code or a storage, of which others take care."""
    folder, _, last = name.rpartition("/")
    is_storage = last.isdigit() and folder.rpartition("/")[2] in ("data", "constants")
    return is_storage or name.lower().endswith((*_PICKLES, _CODE))


def _inside(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _byte_order(source: Source, archive: zips.Archive, folder: str, reading: Reading) -> bool:
    entry = archive.find_in_any_case(_inside(folder, "byteorder"))
    if entry is None:
        return False  # written before there was a choice
    order = archive.member(entry, reading.limits).up_to(0, 16)
    if order not in (b"little", b"big"):
        reading.found(
            source, "torch.byteorder", "invalid", f"the byte order is {order!r}", member=entry.name, offset=0
        )
    return order == b"big"


def _pickles(
    source: Source, archive: zips.Archive, folder: str, reading: Reading, scripted: bool
) -> tuple[Any, Any]:
    """Run every pickle of the archive; what `data.pkl` of the folder and `bytecode.pkl` would build."""
    root: Any = None
    bytecode: Any = None
    stopped: FileError | None = None
    main = archive.find_in_any_case(_inside(folder, "data.pkl"))
    for entry in sorted(archive.entries, key=lambda entry: entry is not main):
        if not entry.name.lower().endswith(_PICKLES):
            continue
        try:
            member = archive.member(entry, reading.limits)
            zips.check_crc(archive, entry, reading, member)
            if entry is main:
                machine = pickles.load(member, reading)
                root = machine.result
                _judge(reading, machine.refusals.first, scripted)
                _rest(member, machine.feed.offset, reading)
            else:
                built = pickles.scan_stream(member, reading)
                bytecode = built if entry.name == _inside(folder, "bytecode.pkl") else bytecode
        except FileError as error:
            stopped = stopped or error  # what is wrong with one pickle must not hide another
    if stopped is not None:
        raise stopped
    return root, bytecode


def _judge(reading: Reading, refusal: str | None, scripted: bool) -> None:
    reason = "a TorchScript archive cannot be loaded that way" if scripted else refusal
    reading.weights_only = "accepts" if reason is None else "refuses"
    reading.refusal = reason


def _rest(member: Source, offset: int, reading: Reading) -> None:
    """What follows the pickle in its member is scanned as well, because no loader says that it is there."""
    left = member.nbytes - offset
    if not left:
        return
    text = f"{left:,} bytes follow the end of the pickle"
    reading.found(member, "pickle.trailing", "invalid", text, offset=offset)
    if pickles.looks_like(member.up_to(offset, 64)):
        pickles.scan_stream(member, reading, offset=offset)


def _code(source: Source, archive: zips.Archive, reading: Reading, bytecode: Any) -> None:
    files = [entry.name for entry in archive.entries if entry.name.endswith(_CODE)]
    if files:
        text = f"carries {len(files):,} files of TorchScript code, which run when the model does"
        reading.found(source, "code.torchscript", "info", text, member=files[0], files=files[:50])
    if files or bytecode is not None:
        from modelglass.formats.torch.script import judge

        judge(source, archive, reading, bytecode)


def _locator(archive: zips.Archive, folder: str) -> Locate:
    def locate(storage: Storage) -> tuple[Source, int, int] | None:
        if not storage.key.isalnum():  # torch itself only gives numbers
            return None
        entry = archive.find_in_any_case(_inside(folder, f"data/{storage.key}"))
        if entry is None:
            entry = archive.find_in_any_case(_inside(folder, f"constants/{storage.key}"))
        if entry is None:
            return None
        stored = entry.method == zips.STORED
        return archive.source, entry.data_offset if stored else PACKED, entry.nbytes

    return locate
