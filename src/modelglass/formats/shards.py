"""Models in several files, with an index that says which tensor is in which shard, or with numbers alone.

Shards are opened only when they lie beside the index, each once, and what they hold is compared with what the
index says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from modelglass.formats.files_beside import open_sibling
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile
from modelglass.formats.tensors.location import Place
from modelglass.report import Json, Level, Tensor

MOST_NUMBERED = 10_000  # files that numbers alone make one model
_REFUSED = 100  # shards that cannot be opened, after which going on tells nothing new
_NAMED = 10  # tensors that one finding names
_NUMBERED = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.\w+)")

ReadShard = Callable[[OpenFile, Reading], None]


def read_index(source: OpenFile, index: Json, reading: Reading, read_shard: ReadShard) -> None:
    """Fill `reading` with what all shards of the index hold; `read_shard` reads one of them.

    `read_shard` gets a reading of its own, and must not take a shard for another index.
    """
    reading.format = "shards"
    weight_map = _weight_map(source, index)
    together = _Together(source, reading, read_shard)
    refused = 0
    for name, expected in _by_shard(weight_map).items():
        shard = _opened(source, name, reading)
        if shard is None:
            refused += 1
            if refused >= _REFUSED:
                raise source.corrupt(f"{refused} of its shards cannot be opened", code="index.shards")
            continue
        part = together.add(name, shard)
        _compare(source, name, expected, part, weight_map, reading)
    if not refused:
        _check_total(source, index, reading)


def read_numbered(first: OpenFile, names: Sequence[str], reading: Reading, read_shard: ReadShard) -> None:
    """The same for shards without an index; `names` are all of them, and `first` is the first one, open."""
    reading.format = "shards"
    together = _Together(first, reading, read_shard)
    for name in names:
        shard = first if name == first.path.name else _opened(first, name, reading)
        if shard is not None:
            together.add(name, shard)
    reading.found(
        first,
        "index.absent",
        "info",
        f"there is no index: the {len(names):,} files that are numbered in turn are read as one model",
        count=len(names),
    )


def numbering(names: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Files that are numbered as the shards of one model: all that there should be, and those that lack.

    None: these are no such files, or those of several models.
    """
    found = [_NUMBERED.fullmatch(name) for name in names]
    kinds = {(each[1], each[3], each[4]) if each is not None else None for each in found}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or not 1 < int(kind[1]) <= MOST_NUMBERED:
        return None
    stem, count, suffix = kind
    wanted = [f"{stem}-{number:05}-of-{count}{suffix}" for number in range(1, int(count) + 1)]
    return wanted, [name for name in wanted if name not in names]


class _Together:
    """What shards hold, put together in one reading as they come."""

    def __init__(self, source: OpenFile, reading: Reading, read_shard: ReadShard) -> None:
        self._source, self._reading, self._read_shard = source, reading, read_shard
        self._formats: set[str] = set()
        self._ordered = False
        self._places, self._owners = _Places(), _Owners(source)
        reading.places = self._places

    def add(self, name: str, shard: OpenFile) -> Reading:
        """Read a shard, and give back what is in it alone."""
        reading = self._reading
        part = Reading(
            limits=reading.limits, thorough=reading.thorough, search=reading.search, one_of_several=True
        )
        try:
            self._read_shard(shard, part)
            shard.check_unchanged()
        finally:
            _merge(self._source, name, part, reading)
        self._ordered |= part.ordered  # a shard with one tensor does not tell
        reading.ordered = self._ordered
        self._formats.add(part.format or "unknown")
        reading.format = f"{' and '.join(sorted(self._formats))} shards"
        self._owners.add(name, part.tensors)
        self._places.add(part)
        return part


class _Places(Mapping[str, Place]):
    """The places of all shards together, still made only when they are asked for."""

    def __init__(self) -> None:
        self._parts: list[Mapping[str, Place]] = []
        self._owner: dict[str, Mapping[str, Place]] = {}

    def add(self, part: Reading) -> None:
        self._parts.append(part.places)
        self._owner.clear()

    def __getitem__(self, name: str) -> Place:
        if not self._owner:
            self._owner = {each: part for part in self._parts for each in part}
        return self._owner[name][name]

    def __iter__(self) -> Iterator[str]:
        return (name for part in self._parts for name in part)

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)


class _Owners:
    """Which shard each tensor came from: it may come from one only."""

    def __init__(self, source: OpenFile) -> None:
        self._source = source
        self._shard: dict[str, str] = {}

    def add(self, shard: str, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            before = self._shard.setdefault(tensor.name, shard)
            if before is not shard:
                raise self._source.corrupt(
                    f"the tensor {tensor.name[:200]!r} is in the shards {before[:200]!r} and {shard[:200]!r}",
                    code="index.duplicate",
                )


def _weight_map(source: OpenFile, index: Json) -> dict[str, str]:
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(type(shard) is str for shard in weight_map.values()):
        raise source.corrupt(
            "an index must have a weight_map, from names of tensors to names of files",
            code="index.weight-map",
        )
    if not weight_map:
        raise source.corrupt("its weight_map is empty", code="index.weight-map")
    return weight_map


def _by_shard(weight_map: dict[str, str]) -> dict[str, list[str]]:
    """The tensors of each shard, in the order the shards were written in: an index may sort names."""
    shards: dict[str, list[str]] = {}
    for name, shard in weight_map.items():
        shards.setdefault(shard, []).append(name)
    numbers = {shard: int(found[2]) for shard in shards if (found := _NUMBERED.fullmatch(shard))}
    return {shard: shards[shard] for shard in sorted(shards, key=lambda shard: numbers.get(shard, 0))}


def _opened(source: OpenFile, name: str, reading: Reading) -> OpenFile | None:
    if name.lower().endswith(".json"):  # an index that names itself would never end
        reading.found(
            source,
            "index.not-a-shard",
            "invalid",
            f"its weight_map names {name[:200]!r}, which is not a shard; it was not opened",
            path=name[:1000],
        )
        return None
    return open_sibling(source, name, reading, level="invalid")


def _merge(source: OpenFile, shard: str, part: Reading, reading: Reading) -> None:
    """Add what was read of one shard, also when reading it ended with an error."""
    reading.absorb(part)
    for key, value in part.metadata.items():
        reading.metadata.setdefault(key, value)
    reading.has_buffers &= part.has_buffers
    reading.modules |= part.modules
    reading.parts += (each for each in part.parts if each.kind != "model")
    if reading.weights_only != "refuses" and part.weights_only is not None:
        reading.weights_only, reading.refusal = part.weights_only, part.refusal
    if len(reading.tensors) + len(part.tensors) > reading.limits.tensors:
        raise source.over("tensors", reading.limits.tensors)
    reading.tensors.extend(_with_own_storage(shard, tensor) for tensor in part.tensors)


def _with_own_storage(shard: str, tensor: Tensor) -> Tensor:
    """Two shards may use the same key for what is not the same memory."""
    if tensor.storage == tensor.name:
        return tensor
    return replace(tensor, storage=f"{shard}: {tensor.storage}")


def _compare(
    source: OpenFile,
    shard: str,
    expected: list[str],
    part: Reading,
    weight_map: dict[str, str],
    reading: Reading,
) -> None:
    present = {tensor.name for tensor in part.tensors}
    missing = [name for name in expected if name not in present]
    extra = [tensor.name for tensor in part.tensors if weight_map.get(tensor.name) != shard]
    findings: tuple[tuple[list[str], str, Level, str], ...] = (
        (missing, "index.missing-tensor", "invalid", "lacks {}, which the index expects there"),
        (extra, "index.extra-tensor", "notice", "holds {}, which the index does not expect there"),
    )
    for names, code, level, text in findings:
        if names:
            text = f"{shard[:200]!r} {text.format(_some(names))}"
            reading.found(source, code, level, text, shard=shard, count=len(names), names=names[:_NAMED])


def _some(names: list[str]) -> str:
    first = f"the tensor {names[0][:200]!r}"
    return first if len(names) == 1 else f"{first} and {len(names) - 1:,} more"


def _check_total(source: OpenFile, index: Json, reading: Reading) -> None:
    """Compare with the size that the index gives; writers count shared memory once or twice."""
    metadata = index.get("metadata")
    if isinstance(metadata, dict):
        for key, value in metadata.items():
            reading.metadata.setdefault(key, value)
    said = metadata.get("total_size") if isinstance(metadata, dict) else None
    if type(said) not in (int, float):
        return
    sizes = [tensor.nbytes for tensor in reading.tensors]
    total = sum(size for size in sizes if size is not None)
    if None in sizes or said == total:
        return
    once = {tensor.storage: tensor.nbytes or 0 for tensor in reading.tensors}
    if said != sum(once.values()):
        reading.found(
            source,
            "index.total-size",
            "notice",
            f"the index gives a total_size of {said:,} bytes; the tensors of its shards take {total:,}",
            said=said,
            found=total,
        )
