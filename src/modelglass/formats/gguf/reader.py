"""GGUF: counts, key-value metadata, the list of tensors, and then their data, which is never read here."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from math import prod
from typing import NamedTuple

from modelglass.formats.gguf.metadata import FileShape, Metadata, Window, shape_of_file, text_of
from modelglass.formats.gguf.types import DISPUTED, REMOVED, TYPES, BlockType
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.tensors.location import Place
from modelglass.report import Level, Packing, Shape, Tensor

MOST_NAME_NBYTES = 65_535
LLAMA_NAME_NBYTES = 63  # what llama.cpp has room for
MOST_DIMS = 4
MOST_NUMEL = 2**63 - 1


def read(source: Source, reading: Reading) -> None:
    """Fill `reading` with the metadata and the tensors of a GGUF file."""
    reading.format = "gguf"
    window = Window(source, reading.limits)
    shape = shape_of_file(window)
    tensors, entries = window.numbers(shape.length * 2, "the numbers of tensors and of metadata entries")
    window.require(entries, shape.length_nbytes + 5, "the number of metadata entries", "gguf.count")
    window.require(tensors, shape.length_nbytes + 16, "the number of tensors", "gguf.count")
    if tensors > reading.limits.tensors:
        raise source.over("tensors", reading.limits.tensors, offset=8)
    alignment = Metadata(window, shape, reading).read(entries)
    _read_tensors(window, shape, reading, tensors, alignment)


class _Plan(NamedTuple):
    """What tensors of the same type and dimensions have in common."""

    kind: BlockType
    dtype: str
    shape: Shape
    nbytes: int
    packing: Packing | None

    def tensor(self, name: str) -> Tensor:
        return Tensor(
            name=name,
            kind="parameter" if self.packing is None else "packed",
            shape=self.shape,
            dtype=self.dtype,
            storage=name,
            packing=self.packing,
        )


class _Places(Mapping[str, Place]):
    """Where each tensor's data is. Most readers of a file never ask, so they are made when somebody does."""

    def __init__(self, source: Source, start: int, big_endian: bool, rows: _Rows) -> None:
        self._source, self._start, self._big_endian = source, start, big_endian
        self._offsets, self._plans = rows.offsets, rows.plans

    def __getitem__(self, name: str) -> Place:
        offset, plan = self._offsets[name], self._plans[name]
        return Place(
            source=self._source,
            offset=self._start + offset,
            nbytes=plan.nbytes,
            dtype=plan.dtype,
            shape=plan.shape,
            big_endian=self._big_endian,
            encoding=None if plan.packing is None else plan.kind.name,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


def _read_tensors(window: Window, shape: FileShape, reading: Reading, count: int, alignment: int) -> None:
    rows = _Rows(window, shape, reading)
    rows.read(count)
    start = -(-window.position // alignment) * alignment
    reading.tensors.extend(_tensors(rows.plans))  # also those whose data turns out to be cut off
    rows.check(start, alignment)
    reading.places = _Places(window.source, start, shape.big_endian, rows)


def _tensors(plans: dict[str, _Plan]) -> Iterator[Tensor]:
    """A tensor is made and checked once for each plan, and copied for all others, which is much faster."""
    templates: dict[int, list[tuple[Callable[[Tensor, object], None], object]]] = {}
    new, put_name, put_storage = object.__new__, _PUT["name"], _PUT["storage"]
    for name, plan in plans.items():
        template = templates.get(id(plan))
        if template is None:
            first = plan.tensor(name)
            common = _PUT.keys() - {"name", "storage"}
            templates[id(plan)] = [(_PUT[field], getattr(first, field)) for field in common]
            yield first
            continue
        tensor = new(Tensor)
        put_name(tensor, name)
        put_storage(tensor, name)
        for put, value in template:
            put(tensor, value)
        yield tensor


# Past the guard of a frozen class, for copies of what it has already checked.
_PUT: dict[str, Callable[[Tensor, object], None]] = {
    field.name: getattr(Tensor, field.name).__set__ for field in fields(Tensor)
}


class _Rows:
    """The list of tensors, and whether it makes sense."""

    def __init__(self, window: Window, shape: FileShape, reading: Reading) -> None:
        self._window, self._shape, self._reading = window, shape, reading
        self._source = window.source
        self._known: dict[bytes, _Plan] = {}
        self._names: dict[str, tuple[int, int, str]] = {}  # by code: how many, where and which is the first
        self.offsets: dict[str, int] = {}  # from the start of the data
        self.plans: dict[str, _Plan] = {}

    def read(self, count: int) -> None:
        window, offsets, plans, known = self._window, self.offsets, self.plans, self._known
        head, order = self._shape.length_nbytes, self._shape.order
        length_at = struct.Struct(order + self._shape.length).unpack_from
        rank_at, offset_at = struct.Struct(order + "I").unpack_from, struct.Struct(order + "Q").unpack_from
        data, at = window.data, window.at
        while count:
            try:
                begin = at + head
                length = length_at(data, at)[0]
                if length > MOST_NAME_NBYTES:
                    raise self._refuse(at, f"a tensor's name has {length:,} bytes", "gguf.name")
                end = begin + length
                rank = rank_at(data, end)[0]
                if rank > MOST_DIMS:
                    raise self._refuse(end, f"a tensor has {rank:,} dimensions; 4 are allowed", "gguf.rank")
                stop = end + rank * head + 8
                offset = offset_at(data, stop)[0]
            except struct.error as short:  # the window ends inside of this entry
                window.at = at
                if not window.move():
                    raise window.source.corrupt(
                        "the file ends in the list of tensors", code="truncated", offset=window.position
                    ) from short
                data, at = window.data, window.at
                continue
            raw = data[begin:end]
            try:
                name = raw.decode()
            except UnicodeDecodeError:
                name = self._misspelt(at, raw)
            if length > LLAMA_NAME_NBYTES or "\0" in name:
                self._note_name(at, name, "gguf.long-name" if length > LLAMA_NAME_NBYTES else "gguf.name-nul")
            plan = known.get(key := data[end:stop]) or self._new_plan(key, end, name)
            if name in offsets:
                raise self._refuse(at, f"the tensor {name[:200]!r} is there twice", "gguf.duplicate-name")
            offsets[name], plans[name] = offset, plan
            at = stop + 8
            count -= 1
        window.at = at

    def check(self, start: int, alignment: int) -> None:
        """The data of every tensor is in the file, aligned, and nobody else's."""
        self._report_names()
        room = max(0, self._source.nbytes - start)
        end = behind = 0
        misaligned, after_gap = [], []
        for (name, offset), plan in zip(self.offsets.items(), self.plans.values(), strict=True):
            stop = offset + plan.nbytes
            if stop > room:
                raise self._outside(name, start + offset, plan.nbytes)
            if offset & (alignment - 1):
                misaligned.append(name)
            if offset < end:
                behind += 1
            elif offset - end >= alignment:
                after_gap.append(name)
            if stop > end:
                end = stop
        if misaligned:
            text = f"the data of {misaligned[0][:200]!r} is not aligned to {alignment:,} bytes"
            self._found(
                "gguf.alignment", "invalid", text, start + self.offsets[misaligned[0]], len(misaligned)
            )
        if behind:
            self._check_overlaps(start)
        elif after_gap:
            text = f"before the data of {after_gap[0][:200]!r} lie bytes that belong to no tensor"
            self._found("gguf.gap", "notice", text, start + self.offsets[after_gap[0]], len(after_gap))
        if self.offsets and room - end >= alignment:
            text = f"{room - end:,} bytes follow the data of the last tensor"
            self._found("gguf.trailing", "notice", text, start + end, 1)

    def _check_overlaps(self, start: int) -> None:
        """Whether tensors that do not follow each other share bytes, or are only unsorted."""
        offsets, plans = self.offsets, self.plans
        end, owner, shared = 0, "", []
        for name in sorted(offsets, key=offsets.__getitem__):
            offset, nbytes = offsets[name], plans[name].nbytes
            if nbytes and offset < end:
                shared.append((owner, name))
            if offset + nbytes > end:
                end, owner = offset + nbytes, name
        if shared:
            one, other = shared[0]
            text = f"the data of {other[:200]!r} overlaps that of {one[:200]!r}"
            self._found("gguf.overlap", "invalid", text, start + offsets[other], len(shared))
        else:
            text = "the data of tensors is not in the order of their list"
            self._found("gguf.order", "invalid", text, start, 1)

    def _new_plan(self, key: bytes, end: int, name: str) -> _Plan:
        """What the dimensions and the type of a tensor mean, found out once."""
        rank = (len(key) - 8) // self._shape.length_nbytes
        _, *dims, number = struct.unpack(f"{self._shape.order}I{rank}{self._shape.length}I", key)
        kind = TYPES.get(number)
        if kind is None:
            once = f", which was {REMOVED[number]} and is no longer in use" if number in REMOVED else ""
            raise self._refuse(end, f"{name[:200]!r} has the unknown type {number:,}{once}", "gguf.type")
        if prod(dim for dim in dims if dim) > MOST_NUMEL:
            shown = " x ".join(f"{dim:,}" for dim in dims)
            raise self._refuse(end, f"{name[:200]!r} has too many elements: {shown}", "gguf.dims")
        row = dims[0] if dims else 1
        if row % kind.numel:
            text = (
                f"{name[:200]!r} has rows of {row:,} elements, and blocks of {kind.name} have {kind.numel:,}"
            )
            raise self._refuse(end, text, "gguf.block")
        if kind.name in DISPUTED:
            sizes = " or ".join(map(str, DISPUTED[kind.name]))
            text = f"{name[:200]!r} is of type {kind.name}: blocks of {sizes} bytes, depending on the reader"
            self._found("gguf.ambiguous-type", "invalid", text, self._position(end), 1)
        shape, nbytes = tuple(reversed(dims)), prod(dims) // kind.numel * kind.nbytes
        scheme = kind.name.lower()
        packing = None if kind.dtype else Packing(scheme=scheme, logical_shape=shape, nbytes=nbytes)
        plan = self._known[key] = _Plan(kind, kind.dtype or scheme, shape, nbytes, packing)
        return plan

    def _position(self, at: int) -> int:
        return self._window.position - self._window.at + at

    def _refuse(self, at: int, problem: str, code: str) -> Exception:
        return self._source.corrupt(problem, code=code, offset=self._position(at))

    def _outside(self, name: str, position: int, nbytes: int) -> Exception:
        return self._source.corrupt(
            f"the data of {name[:200]!r} takes {nbytes:,} bytes, but "
            f"{max(0, self._source.nbytes - position):,} are left",
            code="truncated",
            offset=position,
        )

    def _misspelt(self, at: int, raw: bytes) -> str:
        name = text_of(raw)
        self._note_name(at, name, "gguf.name-encoding")
        return name

    def _note_name(self, at: int, name: str, code: str) -> None:
        count, position, first = self._names.get(code, (0, self._position(at), name))
        self._names[code] = count + 1, position, first

    def _report_names(self) -> None:
        for code, (count, position, name) in self._names.items():
            problem = _NAME_PROBLEMS[code]
            text = f"the tensor name {name[:200]!r} {problem}"
            self._found(code, "notice", text, position, count)

    def _found(self, code: str, level: Level, text: str, offset: int, count: int) -> None:
        self._reading.found(self._source, code, level, text, offset=offset, count=count)


_NAME_PROBLEMS = {
    "gguf.long-name": f"is longer than the {LLAMA_NAME_NBYTES} bytes that llama.cpp has room for",
    "gguf.name-encoding": "is not UTF-8",
    "gguf.name-nul": "holds a zero byte, where programs written in C end it",
}
