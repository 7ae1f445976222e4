"""Distributed checkpoints: a folder with one pickle, `.metadata`, and files full of small torch archives."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from modelglass.formats import pickles
from modelglass.formats.archives import zip as zips
from modelglass.formats.files_beside import open_sibling
from modelglass.formats.pickles.objects import Pairs, Thing, as_text
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source
from modelglass.formats.torch import archive as torch_archive
from modelglass.formats.torch.checkpoint import MODEL_KEYS, common_prefix, kind_by_name
from modelglass.formats.torch.tensors import BadTensorError, dtype_of, items_of, shape_of
from modelglass.report import CheckpointPart, Shape, Tensor

if TYPE_CHECKING:
    from modelglass.formats.tensors.location import Place

_Path: TypeAlias = tuple[str, ...]  # the keys of nested dictionaries

METADATA = ".metadata"
_OF_A_RANK = re.compile(r"__[0-9]+\.metadata")


def is_metadata(name: str) -> bool:
    """Whether a file of that name describes the pieces beside it: those of all processes, or of one."""
    return name == METADATA or _OF_A_RANK.fullmatch(name) is not None


@dataclass(slots=True, kw_only=True)
class _Chunk:
    """A piece of a tensor: the file it is in, and where the archive with it lies there."""

    path: str
    offset: int
    length: int


def read(source: OpenFile, reading: Reading) -> None:
    """Fill the reading from `.metadata`; of the other files, a listing needs only the sizes."""
    reading.format = "torch-distributed"
    machine = pickles.load(source, reading)
    reading.refusal = "torch reads this folder with pickle itself, whatever it is asked for"
    reading.weights_only = "refuses"
    text = "torch loads .metadata with pickle, and everything that is not a tensor with weights_only=False"
    reading.found(source, "torch.distributed", "info", text)
    state = _state(machine.result)
    entries = items_of(state.get("state_dict_metadata")) if state is not None else None
    if state is None or entries is None:
        raise source.corrupt("it does not describe a checkpoint", code="dcp.metadata", offset=0)
    chunks = _chunks(source, items_of(state.get("storage_data")))
    files = _files(source, reading, chunks)
    paths = _paths(state.get("planner_data"))
    tensors = {}
    for name, entry in _in_order(entries, paths):
        tensor = _tensor(source, reading, name, entry)
        if tensor is not None:
            tensors[name] = tensor
    names = _divide(tensors, paths, reading)
    reading.places = _Places({name: chunks.get(stored, []) for name, stored in names.items()}, files)
    _check(source, reading, chunks, files)


def _paths(planned: Any) -> dict[str, _Path]:
    """The keys by which each entry stood in the dictionary that was saved, where its writer noted them."""
    items = planned.items() if type(planned) is Pairs else ()
    return {
        as_text(name): tuple(as_text(key) if isinstance(key, (str, bytes)) else "" for key in keys)
        for name, keys in items
        if type(keys) is tuple
    }


def _in_order(entries: Pairs, paths: Mapping[str, _Path]) -> list[tuple[str, Any]]:
    """The entries in the order they were saved in: processes that share the work list each their own."""
    places = {name: place for place, name in enumerate(paths)}
    named = [(as_text(key), entry) for key, entry in entries.items()]
    return sorted(named, key=lambda each: places.get(each[0], len(places)))


def _state(value: Any) -> Pairs | None:
    return value.state if isinstance(value, Thing) and type(value.state) is Pairs else None


def _tensor(source: Source, reading: Reading, name: str, entry: Any) -> Tensor | None:
    """The tensor that an entry describes; None for an entry that is other data."""
    state = _state(entry)
    if state is None or state.get("size") is None:
        return None
    properties = state.get("properties")
    try:
        shape = shape_of(state.get("size"))
        dtype = dtype_of(_first(properties))
        _check_chunks(shape, state.get("chunks"))
    except BadTensorError as error:
        reading.found(source, "dcp.tensor", "invalid", f"{name[:200]!r}: {error}")
        return None
    return Tensor(name=name, kind="parameter", shape=shape, dtype=dtype, storage=name)


def _first(properties: Any) -> Any:
    """The element type: the first of the properties, kept as a tuple or by name."""
    state = properties.state if isinstance(properties, Thing) else None
    if type(state) is tuple and state:
        return state[0]
    return state.get("dtype") if type(state) is Pairs else None


def _check_chunks(shape: Shape, chunks: Any) -> None:
    """The pieces must be as many elements as the whole."""
    if not isinstance(chunks, list):
        raise BadTensorError("a tensor without pieces")
    total = 0
    for chunk in chunks:
        state = _state(chunk)
        if state is None:
            raise BadTensorError("it is not a piece of a tensor")
        sizes, offsets = shape_of(state.get("sizes")), shape_of(state.get("offsets"))
        fits = len(sizes) == len(offsets) == len(shape) and all(
            at >= 0 and size >= 0 and at + size <= whole
            for at, size, whole in zip(offsets, sizes, shape, strict=True)
        )
        if not fits:
            raise BadTensorError(f"a piece {sizes} at {offsets} is not inside {shape}")
        total += prod(sizes)
    if total != prod(shape):
        raise BadTensorError(f"its pieces have {total:,} elements, and it has {prod(shape):,}")


class _Places(Mapping[str, "Place"]):
    """Where the values of tensors in one piece are; the archive in a piece is read when that is asked for."""

    def __init__(
        self,
        chunks: Mapping[str, Sequence[_Chunk]],
        files: Mapping[str, OpenFile | None],
    ) -> None:
        self._files = files
        self._whole = {name: pieces[0] for name, pieces in chunks.items() if len(pieces) == 1}

    def __getitem__(self, name: str) -> Place:
        chunk = self._whole[name]
        file = self._files[chunk.path]
        if file is None:
            raise KeyError(name)
        piece = file.part(chunk.offset, chunk.length, name)
        inner = Reading()
        torch_archive.read(piece, zips.read(piece, inner), inner)
        if len(inner.tensors) != 1:
            raise KeyError(name)
        return inner.places[inner.tensors[0].name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


def _chunks(source: Source, storage: Pairs | None) -> dict[str, list[_Chunk]]:
    """The pieces of each entry, by its name."""
    found: dict[str, list[_Chunk]] = defaultdict(list)
    for index, info in storage.items() if storage is not None else ():
        place, where = _state(index), _state(info)
        if place is None or where is None:
            raise source.corrupt("a piece without a place", code="dcp.storage")
        path, offset, length = (where.get(key) for key in ("relative_path", "offset", "length"))
        if not isinstance(path, str) or type(offset) is not int or type(length) is not int:
            raise source.corrupt("a piece without a file, an offset and a length", code="dcp.storage")
        found[as_text(place.get("fqn"))].append(_Chunk(path=path, offset=offset, length=length))
    return found


def _files(source: OpenFile, reading: Reading, chunks: dict[str, list[_Chunk]]) -> dict[str, OpenFile | None]:
    """The files that pieces are in, each opened once; None for one that may not be opened, or is missing."""
    paths = dict.fromkeys(chunk.path for pieces in chunks.values() for chunk in pieces)
    return {path: open_sibling(source, path, reading, "invalid") for path in paths}


def _divide(tensors: Mapping[str, Tensor], paths: Mapping[str, _Path], reading: Reading) -> dict[str, str]:
    """Tell the model from what is beside it, as in a file with the same dictionary.

    States of an optimizer are not parameters; they stand under a key of their own. What comes back is under
    which name each of the model's tensors is stored.
    """
    under = _place_of_model([paths.get(name, ()) for name in tensors])
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for name, tensor in tensors.items():
        parts[_part_of(name, paths.get(name, ()), under)].append(tensor)
    reading.tensors = parts.pop("", [])
    for key, held in parts.items():
        states = tuple(replace(tensor, kind="buffer") for tensor in held)
        last = key.rpartition(".")[2]
        kind = "copy" if last in MODEL_KEYS else kind_by_name(last)
        reading.parts.append(CheckpointPart(kind=kind, key=key, tensors=states))
    if parts or under:
        reading.parts.insert(0, CheckpointPart(kind="model", key=".".join(under)))
    return _shorten(".".join((*under, "")), reading)


def _place_of_model(paths: Sequence[_Path]) -> _Path:
    """The keys that the model's dictionary stands under: a usual one, also inside of one that holds all."""
    under: _Path = ()
    while True:
        depth = len(under)
        first = {path[depth] for path in paths if len(path) > depth + 1}
        usual = next((key for key in MODEL_KEYS if key in first), None)
        if usual is not None:
            return (*under, usual)
        if len(first) != 1 or any(len(path) <= depth + 1 for path in paths):
            return ()
        under += (*first,)


def _part_of(name: str, path: _Path, under: _Path) -> str:
    """The part that a tensor belongs to; that of the model has no name."""
    if under:
        depth = len(under)
        return "" if path[:depth] == under else ".".join(path[: depth if len(path) > depth else 1])
    top = name.partition(".")[0]
    return top if ".state." in f".{name}" and "optim" in top.lower() else ""


def _shorten(beginning: str, reading: Reading) -> dict[str, str]:
    """Give the model's tensors the names they have in it, without what wrappers put before all of them."""
    stored = [tensor.name for tensor in reading.tensors]
    names = [name.removeprefix(beginning) for name in stored]
    reading.prefix = common_prefix(names)
    names = [name.removeprefix(reading.prefix) for name in names]
    tensors = zip(reading.tensors, names, strict=True)
    reading.tensors = [replace(tensor, name=name, storage=name) for tensor, name in tensors]
    return dict(zip(names, stored, strict=True))


def _check(
    source: Source,
    reading: Reading,
    chunks: dict[str, list[_Chunk]],
    files: dict[str, OpenFile | None],
) -> None:
    """Every piece is inside its file, and no two overlap; a scan reads the archive that each one is."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name, pieces in chunks.items():
        for chunk in pieces:
            file = files[chunk.path]
            if file is None:
                continue
            if chunk.offset < 0 or chunk.length < 0 or chunk.offset + chunk.length > file.nbytes:
                text = f"{name[:200]!r} is at {chunk.offset:,} for {chunk.length:,} bytes, beyond the file"
                reading.found(file, "truncated", "invalid", text, offset=chunk.offset)
                continue
            spans[chunk.path].append((chunk.offset, chunk.offset + chunk.length))
    for path, placed in spans.items():
        placed.sort()
        if any(before[1] > after[0] for before, after in pairwise(placed)):
            reading.found(source, "dcp.overlap", "invalid", f"pieces overlap in {path[:200]!r}")
        file = files[path]
        if reading.thorough and file is not None:
            _scan_pieces(file, placed, reading)


def _scan_pieces(file: OpenFile, placed: Sequence[tuple[int, int]], reading: Reading) -> None:
    """Look into each piece, which torch loads as a file of its own, and into what no piece has."""
    looked_at = behind = 0
    for start, end in dict.fromkeys(placed):
        if behind < start:
            reading.look_into(file.part(behind, start - behind, f"bytes at {behind:,}"), raw=True)
        behind = max(behind, end)
        looked_at += end - start
        # Pieces that overlap could have the same bytes searched any number of times.
        if looked_at > 2 * file.nbytes:
            text = "pieces overlap, and those that are left are not looked at"
            reading.found(file, "dcp.overlap", "limit", text, offset=start)
            return
        if end > start:
            reading.look_into(file.part(start, end - start, f"piece at {start:,}"), pickled=True)
    if behind < file.nbytes:
        reading.look_into(file.part(behind, file.nbytes - behind, f"bytes at {behind:,}"), raw=True)
