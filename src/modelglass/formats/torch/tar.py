"""What torch wrote before 0.1.10: a tar with four members, in which tensors refer to storages by number."""

from __future__ import annotations

from struct import Struct
from typing import Any

from modelglass.errors import FileError
from modelglass.formats import pickles
from modelglass.formats.archives import tars
from modelglass.formats.pickles.objects import Global, Persistent, Thing, as_text
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch.checkpoint import fill
from modelglass.formats.torch.memory import Memory
from modelglass.formats.torch.tensors import BadTensorError, storage_of
from modelglass.report.dtypes import nbytes_of

_COUNT, _DIMS = Struct("<q"), Struct("<i4x")


_NEEDED = ("pickle", "tensors", "storages")


def read(source: Source, reading: Reading) -> None:
    """Fill the reading from the members, in the order in which they refer to each other."""
    listed = tars.read(source, reading)
    # torch unpacks them by name, and Python's reader gives it the last one of a name.
    members = {member.name.removeprefix("./"): member for member in listed if member.is_file}
    is_model = members.keys() >= set(_NEEDED)
    if reading.thorough:
        known = [members[name] for name in _NEEDED] if is_model else []
        tars.look_into(source, [member for member in listed if member not in known], reading)
    if not is_model:
        names = ", ".join(repr(member.name[:60]) for member in listed[:5])
        raise source.is_archive(f"tar archive that does not hold a model ({names or 'nothing'})")
    try:
        _read_model(source, {name: tars.content(source, members[name]) for name in _NEEDED}, reading)
    except FileError:
        tars.look_into(source, [members[name] for name in _NEEDED], reading)
        raise


def _read_model(source: Source, members: dict[str, Source], reading: Reading) -> None:
    reading.format = "torch-tar"
    reading.weights_only, reading.refusal = "refuses", "a tar archive cannot be loaded that way"
    storages, records = _storages(members["storages"], reading)
    tensors = _tensors(members["tensors"], reading, storages)

    def resolve(id: Any) -> Any:
        if isinstance(id, tuple):
            return id[0] if id else Persistent(id)  # a class with its source
        return tensors.get(str(id)) or Persistent(id)

    machine = pickles.load(members["pickle"], reading, resolve=resolve)
    memory = Memory(source, reading, lambda storage: records.get(storage.key))
    fill(machine.result, memory, reading, source)


def _count(member: Source, reading: Reading) -> tuple[int, int]:
    """The number that a member begins with, and what follows it."""
    machine = pickles.load(member, reading)
    count = machine.result
    left = member.nbytes - machine.feed.offset
    if type(count) is not int or not 0 <= count <= left:
        raise member.corrupt("the number of entries does not fit the file", code="tar.count", offset=0)
    return count, machine.feed.offset


def _entry(member: Source, reading: Reading, offset: int, kind: str) -> tuple[tuple[Any, Any, Any], int]:
    """The next entry of a member, a pickle of three values, and where it ends."""
    machine = pickles.load(member, reading, offset=offset)
    offset, entry = machine.feed.offset, machine.result
    if type(entry) is not tuple or len(entry) != 3:
        raise member.corrupt(f"an entry that is not a {kind}", code=f"tar.{kind}", offset=offset)
    return entry, offset


def _storages(
    member: Source, reading: Reading
) -> tuple[dict[str, tuple[Any, ...]], dict[str, tuple[Source, int, int]]]:
    """The persistent id that each storage would have, and where its bytes are."""
    count, offset = _count(member, reading)
    ids: dict[str, tuple[Any, ...]] = {}
    records: dict[str, tuple[Source, int, int]] = {}
    for _ in range(count):
        (key, location, cls), offset = _entry(member, reading, offset, "storage")
        (numel,) = _COUNT.unpack(member.read(offset, _COUNT.size, "a storage's length"))
        offset += _COUNT.size
        name = _number(key)
        id = ("storage", cls, name, as_text(location), numel)
        try:
            storage = storage_of(Persistent(id))
        except BadTensorError as error:
            raise member.corrupt(str(error), code="tar.storage", offset=offset) from error
        nbytes = nbytes_of(storage.dtype, numel) or 0
        member.part(offset, nbytes, None, f"storage {name!r}")  # it fits
        ids[name], records[name] = id, (member, offset, nbytes)
        offset += nbytes
    pickles.load(member, reading, offset=offset)  # views of storages, which tensors do not need
    return ids, records


def _number(key: Any) -> str:
    return as_text(key) if isinstance(key, (str, bytes)) else str(key)[:40]


def _tensors(member: Source, reading: Reading, storages: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Each tensor by its number, as the call that would rebuild it."""
    rebuild = Global("torch._utils", "_rebuild_tensor", 0)
    count, offset = _count(member, reading)
    found: dict[str, Any] = {}
    for _ in range(count):
        entry, offset = _entry(member, reading, offset, "tensor")
        (dims,) = _DIMS.unpack(member.read(offset, _DIMS.size, "a tensor's dimensions"))
        if not 0 <= dims <= reading.limits.dims:
            raise member.corrupt(f"a tensor of {dims:,} dimensions", code="tar.tensor", offset=offset)
        layout = Struct(f"<{2 * dims + 1}q")
        numbers = layout.unpack(member.read(offset + _DIMS.size, layout.size, "a tensor's shape"))
        offset += _DIMS.size + layout.size
        storage = storages.get(_number(entry[1]))
        if storage is not None:
            args = (Persistent(storage), numbers[-1], numbers[:dims], numbers[dims:-1])
            found[_number(entry[0])] = Thing(rebuild, args, offset)
    return found
