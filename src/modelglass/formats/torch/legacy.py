"""What torch wrote before 1.6: five pickles one after the other, then every storage."""

from __future__ import annotations

from struct import Struct
from typing import Any

from modelglass.formats import pickles
from modelglass.formats.pickles.objects import Pairs, Persistent, as_text, preview
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch.checkpoint import fill
from modelglass.formats.torch.memory import Memory
from modelglass.formats.torch.tensors import BadTensorError, Storage, storage_of
from modelglass.report.dtypes import nbytes_of

MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_COUNT = Struct("<q")


def read(source: Source, reading: Reading) -> None:
    """Fill the reading from the five pickles, and place storages by their order."""
    reading.format = "torch-legacy"
    sources = _Sources(source, reading)
    offset, machines = 0, []
    for _ in range(5):
        machine = pickles.load(source, reading, offset=offset, resolve=sources.resolve)
        machines.append(machine)
        offset = machine.feed.offset
        reading.refusal = reading.refusal or machine.refusals.first
    reading.weights_only = "accepts" if reading.refusal is None else "refuses"
    magic, protocol, system, root, keys = (machine.result for machine in machines)
    if (magic, protocol) != (MAGIC, _PROTOCOL):
        raise source.corrupt(
            f"version {preview(protocol)} is not {_PROTOCOL}", code="torch.version", offset=0
        )
    big_endian = isinstance(system, Pairs) and system.get("little_endian") is False
    records = _records(source, offset, keys, _storages(machines[3].ids))

    def locate(storage: Storage) -> tuple[Source, int, int] | None:
        return _view(records.get(storage.key), storage)

    fill(root, Memory(source, reading, locate, big_endian=big_endian), reading, source)


class _Sources:
    """Stands in for what is outside of the pickle; of classes, the file may carry the source code."""

    def __init__(self, source: Source, reading: Reading) -> None:
        self._source, self._reading = source, reading

    def resolve(self, id: Any) -> Any:
        if type(id) is not tuple or len(id) < 4 or as_text(id[0]) != "module":
            return Persistent(id)
        cls, file, code = id[1], as_text(id[2]), as_text(id[3])
        text = f"carries the source code of {getattr(cls, 'path', 'a class')}, from {file[:200]!r}"
        self._reading.found(self._source, "torch.source", "info", text, source_code=code[:2000])
        return cls


def _storages(ids: list[Any]) -> dict[str, Storage]:
    """The storages that the pickle refers to, by key."""
    found: dict[str, Storage] = {}
    for id in ids:
        try:
            storage = storage_of(Persistent(id))
        except BadTensorError:
            continue
        found.setdefault(storage.key, storage)
    return found


def _records(
    source: Source, offset: int, keys: Any, storages: dict[str, Storage]
) -> dict[str, tuple[Source, int, int]]:
    """Where each storage is: in the order of the keys, each after its number of elements."""
    if not isinstance(keys, list):
        raise source.corrupt("the list of storages is not a list", code="torch.storages", offset=offset)
    found: dict[str, tuple[Source, int, int]] = {}
    for key in keys:
        name = as_text(key)
        if name not in storages:
            raise source.corrupt(
                f"storage {name[:100]!r} is used nowhere", code="torch.storages", offset=offset
            )
        (numel,) = _COUNT.unpack(source.read(offset, _COUNT.size, "a storage's length"))
        nbytes = nbytes_of(storages[name].dtype, numel) if numel >= 0 else None
        if nbytes is None or nbytes > source.nbytes - offset - _COUNT.size:
            left = source.nbytes - offset - _COUNT.size
            raise source.corrupt(
                f"storage {name[:100]!r} has {numel:,} elements, but {left:,} bytes are left",
                code="truncated",
                offset=offset,
            )
        offset += _COUNT.size
        found[name] = source, offset, nbytes
        offset += nbytes
    if offset != source.nbytes:
        left = source.nbytes - offset
        raise source.corrupt(f"{left:,} bytes follow the last storage", code="torch.trailing", offset=offset)
    return found


def _view(record: tuple[Source, int, int] | None, storage: Storage) -> tuple[Source, int, int] | None:
    """The part of a record that a storage is, where it is a view of a larger one."""
    if record is None or storage.view is None:
        return record
    source, offset, nbytes = record
    _, first, numel = storage.view
    start, length = nbytes_of(storage.dtype, first) or 0, nbytes_of(storage.dtype, numel) or 0
    inside = start >= 0 and length >= 0 and start + length <= nbytes
    return (source, offset + start, length) if inside else None
