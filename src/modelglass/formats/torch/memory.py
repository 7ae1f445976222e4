"""Tensors against the memory that the file really has for them: sizes, views, ties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import gcd, prod
from typing import TYPE_CHECKING

from modelglass.errors import FileError
from modelglass.formats.pickles.objects import Thing
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.tensors.strides import row_major
from modelglass.formats.torch.tensors import BadTensorError, Found, Storage, tensor_of
from modelglass.report import Packing, Shape, Tensor, TensorKind
from modelglass.report.dtypes import bits_of, nbytes_of

if TYPE_CHECKING:
    from modelglass.formats.tensors.location import Place

Named = Iterable[tuple[str, Thing, str | None]]
# Where the bytes of a storage are: a source, where in it, and how many. None: the file does not have it.
PACKED = -1  # as a place: compressed, and nowhere to be read
Locate = Callable[[Storage], tuple[Source, int, int] | None]


class Places(Mapping[str, "Place"]):
    """Where each tensor's values are; made when asked for, because a listing never asks."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Found, Source, int, int]] = {}

    def add(self, name: str, found: Found, memory: tuple[Source, int, int]) -> None:
        self._found[name] = (found, *memory)

    def __getitem__(self, name: str) -> Place:
        found, source, offset, nbytes = self._found[name]
        from modelglass.formats.tensors.location import Place  # nobody who lists tensors asks for one

        contiguous = found.strides is None or found.strides == row_major(found.shape)
        return Place(
            source=source,
            offset=offset,
            nbytes=nbytes,
            dtype=found.dtype,
            shape=found.shape,
            strides=None if contiguous else found.strides,
            first=found.first,
            big_endian=found.big_endian,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _Placed:
    __slots__ = ("found", "kind", "name", "storage")

    def __init__(self, name: str, found: Found, kind: TensorKind) -> None:
        self.name, self.found, self.kind = name, found, kind
        self.storage = name  # of the tensor that has most of the same elements


class Memory:
    """Tells which bytes belong to which tensor, and keeps what does not fit as findings."""

    def __init__(self, source: Source, reading: Reading, locate: Locate, *, big_endian: bool = False) -> None:
        self._source, self._reading, self._locate = source, reading, locate
        self._big_endian = big_endian
        self._storages: dict[str, tuple[Storage, tuple[Source, int, int]] | None] = {}
        self._count = 0  # of tensors, over all parts
        self._spans: dict[tuple[Shape, Shape], int] = {}
        self.places = Places()

    def tensors(self, named: Named) -> list[Tensor]:
        """The tensors that are what they claim to be, in order."""
        placed: list[_Placed] = []
        names: set[str] = set()
        for name, thing, kind in named:
            found = self._readable(name, thing)
            if found is None:
                continue
            if name in names:
                self._bad(name, thing, "a second tensor has this name", "torch.duplicate-key")
                continue
            names.add(name)
            placed.append(_Placed(name, found, _kind(found, kind)))
            self._count += 1
            if self._count > self._reading.limits.tensors:
                raise self._source.over("tensors", self._reading.limits.tensors)
        _tie(placed)
        return [_tensor(each) for each in placed]

    def _readable(self, name: str, thing: Thing) -> Found | None:
        try:
            found = tensor_of(thing)
            self._check(name, found)
        except BadTensorError as error:
            self._bad(name, thing, str(error), "torch.tensor")
            return None
        except FileError as error:
            self._bad(name, thing, error.text, error.code)
            return None
        return found

    def _bad(self, name: str, thing: Thing, problem: str, code: str) -> None:
        shown = name[:200] or "(root)"
        self._reading.found(
            self._source, code, "invalid", f"{shown!r}: {problem}", offset=thing.offset, tensor=shown
        )

    def _check(self, name: str, found: Found) -> None:
        for part in found.parts:
            self._check(name, part)
        if found.blob is not None:
            self._check_blob(name, found)
        if found.storage is None:
            return
        storage, memory = self._located(found.storage)
        room = memory[2] * 8 // (bits_of(found.dtype) or 8)
        span = self._span(found)
        needed = found.first + span if span else 0
        if needed > room:
            raise BadTensorError(
                f"shape {found.shape} from element {found.first} needs {needed:,} elements; "
                f"its storage {storage.key!r} has {room:,}"
            )
        found.big_endian = self._big_endian
        if memory[1] != PACKED:
            self.places.add(name, found, memory)

    def _span(self, found: Found) -> int:
        """Elements between its first and its last, computed once for all tensors that are alike."""
        shape, strides = found.shape, found.strides or ()
        known = self._spans.get((shape, strides))
        if known is None:
            known = self._spans[shape, strides] = extent(found) - found.first if prod(shape) else 0
        return known

    def _check_blob(self, name: str, found: Found) -> None:
        blob = found.blob
        expected = nbytes_of(found.dtype, prod(found.shape))
        if blob is None or expected is None or blob.nbytes != expected:
            raise BadTensorError(f"an array of {expected} bytes has {blob.nbytes if blob else 0}")
        self.places.add(name, found, (self._source, blob.offset, blob.nbytes))

    def _located(self, storage: Storage) -> tuple[Storage, tuple[Source, int, int]]:
        known = self._storages.get(storage.key)
        if known is not None and known[0] == storage:
            return known
        memory = self._locate(storage)
        if memory is None:
            raise BadTensorError(f"its storage {storage.key[:100]!r} is not in the file")
        expected = nbytes_of(storage.dtype, storage.numel)
        if memory[2] != expected:
            raise BadTensorError(
                f"its storage {storage.key[:100]!r} should have {expected:,} bytes and has {memory[2]:,}"
            )
        self._storages[storage.key] = storage, memory
        return storage, memory


def extent(found: Found) -> int:
    """Elements of its storage that the tensor reaches, counted from the storage's start."""
    if 0 in found.shape:
        return 0
    strides = found.strides or row_major(found.shape)
    return found.first + sum((size - 1) * step for size, step in zip(found.shape, strides, strict=True)) + 1


def _kind(found: Found, said: str | None) -> TensorKind:
    if found.kind is not None:
        return found.kind
    if said in ("parameter", "buffer"):
        return "parameter" if said == "parameter" else "buffer"
    return "parameter"


def _tie(placed: Sequence[_Placed]) -> None:
    """Give tensors that share elements one storage: that of the one with most of them."""
    by_key: dict[str, list[_Placed]] = defaultdict(list)
    for each in placed:
        if each.found.storage is not None:
            by_key[each.found.storage.key].append(each)
    for sharing in by_key.values():
        if len(sharing) > 1:
            for group in _overlapping(sharing):
                owner = max(group, key=lambda each: prod(each.found.shape))
                for each in group:
                    each.storage = owner.name


def _overlapping(sharing: list[_Placed]) -> Iterator[list[_Placed]]:
    """Groups of views of one storage that have elements in common."""
    ordered = sorted(sharing, key=lambda each: each.found.first)
    group: list[_Placed] = []
    reach = -1
    for each in ordered:
        if group and (each.found.first >= reach or _interleaved(group[-1].found, each.found)):
            yield group
            group, reach = [], -1
        group.append(each)
        reach = max(reach, extent(each.found))
    yield group


def _interleaved(one: Found, other: Found) -> bool:
    """Whether the views lie between each other without meeting, as columns of a matrix do."""
    steps = [
        step
        for view in (one, other)
        for size, step in zip(view.shape, view.strides or row_major(view.shape), strict=True)
        if size > 1
    ]
    common = gcd(*steps) if steps else 0
    return common > 1 and (one.first - other.first) % common != 0


def _tensor(each: _Placed) -> Tensor:
    found = each.found
    return Tensor(
        name=each.name,
        kind=each.kind,
        shape=found.shape,
        dtype=found.dtype,
        storage=each.storage,
        trainable=found.trainable,
        device=None if found.storage is None else found.storage.device,
        packing=_packing(found),
    )


def _packing(found: Found) -> Packing | None:
    """How the elements are kept, where that is not one by one."""
    if found.parts:
        nbytes = sum(nbytes_of(part.dtype, prod(part.shape)) or 0 for part in found.parts)
        return Packing(scheme=found.scheme or "parts", logical_shape=found.shape, nbytes=nbytes)
    if found.storage is None or 0 not in (found.strides or ()):
        return None
    if any(size > 1 and step == 0 for size, step in zip(found.shape, found.strides or (), strict=False)):
        nbytes = nbytes_of(found.dtype, extent(found) - found.first) or 0
        return Packing(scheme="expanded", logical_shape=found.shape, nbytes=nbytes)
    return None
