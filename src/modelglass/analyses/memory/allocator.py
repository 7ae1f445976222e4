"""PyTorch's caching allocator: which memory requests take, by its own rules, without a device.

It asks the device for segments, cuts blocks of them for requests, and keeps what is freed for later ones. A
block may be larger than its request; what counts as allocated is the block.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from typing import Final

from modelglass.report.allocator import MIB, AllocatorSettings

SMALLEST: Final = 512  # bytes of a block
_SMALL: Final = MIB  # requests up to here share segments of their own
SMALL_SEGMENT: Final = 2 * MIB
_MEDIUM: Final = 10 * MIB  # requests below share segments of one size
_SLACK: Final = 20 * MIB  # that a block which may not be split can be larger than its request
_STEP: Final = 2 * MIB  # that other segments are rounded up to
_ADDRESS_SPACE: Final = 1 << 44  # that an expandable segment may grow into


class OutOfMemoryError(Exception):
    """The device does not have as much."""


class Block:
    """A piece of a segment. `requested` is None while it is free."""

    __slots__ = ("address", "after", "before", "nbytes", "requested", "segment")

    def __init__(self, segment: Segment, address: int, nbytes: int) -> None:
        self.segment, self.address, self.nbytes = segment, address, nbytes
        self.requested: int | None = None
        self.before: Block | None = None
        self.after: Block | None = None


class Segment:
    """Memory that was asked of the device at once, or one that grows at its end."""

    __slots__ = ("address", "expandable", "first", "nbytes", "pool")

    def __init__(self, address: int, nbytes: int, pool: _Pool, *, expandable: bool = False) -> None:
        self.address, self.nbytes, self.pool, self.expandable = address, nbytes, pool, expandable
        self.first: Block | None = None

    def blocks(self) -> Iterator[Block]:
        """Its blocks, by address."""
        block = self.first
        while block is not None:
            yield block
            block = block.after


class _Pool:
    """Free blocks of one stream and class of sizes, the smallest first."""

    def __init__(self, stream: int, *, small: bool) -> None:
        self.stream, self.small = stream, small
        self.growing: Segment | None = None
        self._order: list[tuple[int, int]] = []  # bytes and address
        self._blocks: dict[int, Block] = {}

    def add(self, block: Block) -> None:
        insort(self._order, (block.nbytes, block.address))
        self._blocks[block.address] = block

    def remove(self, block: Block) -> None:
        del self._order[bisect_left(self._order, (block.nbytes, block.address))]
        del self._blocks[block.address]

    def smallest(self, nbytes: int) -> Block | None:
        """The smallest free block that has as much; of equal ones that with the lowest address."""
        at = bisect_left(self._order, (nbytes, 0))
        return self._blocks[self._order[at][1]] if at < len(self._order) else None

    def free_at(self, address: int) -> Block | None:
        """The free block that begins there."""
        return self._blocks.get(address)

    def free_blocks(self) -> list[Block]:
        return list(self._blocks.values())


class CachingAllocator:
    """Takes and frees memory as PyTorch does, of a device with so much memory.

    `place` gives the addresses of new segments.
    """

    def __init__(
        self,
        settings: AllocatorSettings = AllocatorSettings(),  # noqa: B008  (frozen)
        capacity: int | None = None,
        place: Callable[[int], int] | None = None,
    ) -> None:
        self.settings, self.capacity = settings, capacity
        self.allocated = self.peak_allocated = 0
        self.reserved = self.peak_reserved = 0
        self.segments: dict[int, Segment] = {}
        self._pools: dict[tuple[int, bool], _Pool] = {}
        self._held: dict[Hashable, Block] = {}
        self._next = 1 << 45
        self._place = place or self._own_place

    def allocate(self, key: Hashable, nbytes: int, stream: int = 0) -> Block | None:
        """Take that many bytes; None where nothing is asked for."""
        if nbytes == 0:
            return None
        rounded = self.round(nbytes)
        pool = self.pool(stream, small=rounded <= _SMALL)
        block = self._cached(pool, rounded) or self._fresh(pool, rounded)
        self.take(key, block, nbytes)
        return block

    def take(self, key: Hashable, block: Block, nbytes: int) -> None:
        """Give a free block to a request, without what it does not need."""
        block.segment.pool.remove(block)
        rounded = self.round(nbytes)
        if self._splits(block.segment, rounded, block.nbytes):
            self._cut(block, rounded)
        self._hold(key, block, nbytes)

    def free(self, key: Hashable) -> None:
        """Give it back; free neighbours become one block."""
        block = self._held.pop(key, None)
        if block is None:
            return
        self.allocated -= block.nbytes
        block.requested = None
        self._release(block)

    def empty_cache(self) -> None:
        """Give segments back to the device in which nothing is held."""
        for pool in self._pools.values():
            for block in pool.free_blocks():
                if block.segment.expandable:
                    self._unmap(block)
                elif block.before is None and block.after is None:
                    self.drop(block.segment)

    def round(self, nbytes: int) -> int:
        """The bytes of a block for a request, before what is left over is cut."""
        divisions = self._divisions(nbytes)
        if divisions > 1 and nbytes > SMALLEST * divisions:
            step = max(1, (1 << (nbytes.bit_length() - 1)) // divisions)
            return -(-nbytes // step) * step
        return max(SMALLEST, _up(nbytes, SMALLEST))

    def block_nbytes(self, segment: Segment, requested: int, room: int) -> int:
        """How large a block is that has this room up to the next one."""
        rounded = self.round(requested)
        return rounded if self._splits(segment, rounded, room) else room

    def pool(self, stream: int, *, small: bool) -> _Pool:
        if (stream, small) not in self._pools:
            self._pools[stream, small] = _Pool(stream, small=small)
        return self._pools[stream, small]

    def reserve(self, pool: _Pool, address: int, nbytes: int, *, expandable: bool = False) -> Block:
        """A new segment as one free block."""
        segment = Segment(address, nbytes, pool, expandable=expandable)
        block = segment.first = Block(segment, address, nbytes)
        self.segments[address] = segment
        pool.add(block)
        self._count_reserved(nbytes)
        return block

    def hold_at(self, key: Hashable, block: Block, address: int, nbytes: int, requested: int) -> None:
        """Take a part of a free block where a recording has it, as large as it was there."""
        if address > block.address:
            block.segment.pool.remove(block)
            self._cut(block, address - block.address)
            block.segment.pool.add(block)
            block = block.after or block
        block.segment.pool.remove(block)
        if nbytes < block.nbytes:
            self._cut(block, nbytes)
        self._hold(key, block, requested)

    def drop(self, segment: Segment) -> None:
        """Give a segment back to the device."""
        for block in segment.blocks():
            segment.pool.remove(block)
        del self.segments[segment.address]
        self._count_reserved(-segment.nbytes)

    def _hold(self, key: Hashable, block: Block, requested: int) -> None:
        block.requested = requested
        self._held[key] = block
        self.allocated += block.nbytes
        self.peak_allocated = max(self.peak_allocated, self.allocated)

    def _divisions(self, nbytes: int) -> int:
        divisions = self.settings.divisions
        power = max(0, nbytes.bit_length() - MIB.bit_length())
        return divisions[min(power, len(divisions) - 1)] if divisions else 0

    def _cached(self, pool: _Pool, nbytes: int) -> Block | None:
        """What was freed and fits."""
        block = pool.smallest(nbytes)
        if block is None:
            return None
        limit = self.settings.max_split_nbytes
        if limit is not None and block.nbytes >= (limit if nbytes < limit else nbytes + _SLACK):
            return None
        return block

    def _fresh(self, pool: _Pool, nbytes: int) -> Block:
        """A block of new memory."""
        if self.settings.expandable_segments:
            return self._grown(pool, nbytes)
        size = self._segment_nbytes(nbytes)
        self._make_room(size)
        return self.reserve(pool, self._place(size), size)

    def _segment_nbytes(self, nbytes: int) -> int:
        if nbytes <= _SMALL:
            return SMALL_SEGMENT
        return self.settings.large_segment_nbytes if nbytes < _MEDIUM else _up(nbytes, _STEP)

    def _grown(self, pool: _Pool, nbytes: int) -> Block:
        """The free end of the segment that grows, made as large as is asked for, by whole pages."""
        page = SMALL_SEGMENT if pool.small else self.settings.large_segment_nbytes
        segment = pool.growing
        if segment is None:
            size = _up(nbytes, page)
            self._make_room(size)
            block = self.reserve(pool, self._place(_ADDRESS_SPACE), size, expandable=True)
            pool.growing = block.segment
            return block
        *_, last = segment.blocks()
        more = _up(nbytes - (last.nbytes if last.requested is None else 0), page)
        if self._make_room(more):
            return self._grown(pool, nbytes)
        segment.nbytes += more
        self._count_reserved(more)
        return self._extended(last, more)

    def _extended(self, last: Block, nbytes: int) -> Block:
        """The free block at the end of a segment that has grown by so many bytes."""
        block = Block(last.segment, last.address + last.nbytes, nbytes)
        block.before, last.after = last, block
        if last.requested is not None:
            last.segment.pool.add(block)
            return block
        last.segment.pool.remove(last)
        _join(last, block)
        last.segment.pool.add(last)
        return last

    def _unmap(self, block: Block) -> None:
        """Give whole pages at the end of a growing segment back."""
        segment, pool = block.segment, block.segment.pool
        if block.after is not None:
            return
        page = SMALL_SEGMENT if pool.small else self.settings.large_segment_nbytes
        kept = _up(block.address - segment.address, page) - (block.address - segment.address)
        given = max(0, block.nbytes - kept) // page * page
        pool.remove(block)
        block.nbytes -= given
        segment.nbytes -= given
        self._count_reserved(-given)
        if block.nbytes:
            pool.add(block)
        elif block.before is not None:
            block.before.after = None
        else:
            del self.segments[segment.address]
            pool.growing = None

    def _make_room(self, nbytes: int) -> bool:
        """See that the device has as much; whether what is cached had to go back to it for that."""
        if self.capacity is None or self.reserved + nbytes <= self.capacity:
            return False
        before = self.reserved
        self.empty_cache()
        if self.reserved + nbytes > self.capacity:
            raise OutOfMemoryError(nbytes)
        return self.reserved < before

    def _splits(self, segment: Segment, nbytes: int, within: int) -> bool:
        rest = within - nbytes
        if segment.pool.small or segment.expandable:
            return rest >= SMALLEST
        limit = self.settings.max_split_nbytes
        return rest > _SMALL and (limit is None or nbytes < limit)

    def _cut(self, block: Block, nbytes: int) -> None:
        """Make the end of a block a free one."""
        rest = Block(block.segment, block.address + nbytes, block.nbytes - nbytes)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.nbytes = rest, nbytes
        block.segment.pool.add(rest)

    def _release(self, block: Block) -> None:
        """Make a block free, as one with free neighbours."""
        pool = block.segment.pool
        if block.before is not None and block.before.requested is None:
            pool.remove(block.before)
            _join(block.before, block)
            block = block.before
        if block.after is not None and block.after.requested is None:
            pool.remove(block.after)
            _join(block, block.after)
        pool.add(block)

    def _count_reserved(self, nbytes: int) -> None:
        self.reserved += nbytes
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _own_place(self, nbytes: int) -> int:
        address, self._next = self._next, self._next + nbytes
        return address


def _join(first: Block, second: Block) -> None:
    """Make two neighbours one block, which is the first."""
    first.nbytes += second.nbytes
    first.after = second.after
    if second.after is not None:
        second.after.before = first


def _up(nbytes: int, step: int) -> int:
    return -(-nbytes // step) * step
