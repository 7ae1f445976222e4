"""The opcodes that torch writes for one entry of a state dict, taken in one step.

A tensor costs 26 opcodes, always the same ones in the same order. Where they stand, one fixed pattern finds
them all, and what they would have done to the stack and the memo is done at once. Whatever looks different
in the least goes through the machine as usual: this saves time and changes nothing, which a test shows.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from struct import Struct
from typing import Any

from modelglass.formats.limits import Limits
from modelglass.formats.pickles.feed import Feed
from modelglass.formats.pickles.objects import Global, Record
from modelglass.formats.pickles.uses import Uses

_PUT = rb"(?:q.|r....)"
_GET = rb"(?:h.|j....)"
_NUMBER = rb"(?:K.|M..|J....)"
_SHAPE = rb"(\)|%b\x85|%b{2}\x86|%b{3}\x87|\(%b+t)" % ((_NUMBER,) * 4)

_ENTRY = re.compile(
    b"".join(
        (
            rb"(%b)" % _PUT,  # of the key
            rb"(%b\(\(%b%b)" % (_GET, _GET, _GET),  # the function; the storage's id: a tag, its class,
            rb"X(.)\x00\x00\x00([0-9]+)",  # its number as text,
            rb"(%b)" % _PUT,
            rb"(%b)" % _GET,  # a device,
            rb"(%b)" % _NUMBER,  # its length
            rb"t(%b)" % _PUT,
            rb"Q",
            rb"(%b)" % _NUMBER,  # where the tensor begins in it
            _SHAPE,
            rb"(%b)?" % _PUT,  # an empty tuple is not stored
            _SHAPE,  # strides
            rb"(%b)?" % _PUT,
            rb"\x89",  # no gradient
            rb"(%b)" % _GET,  # no hooks: an empty OrderedDict
            rb"\)R(%b)" % _PUT,
            rb"t(%b)" % _PUT,
            rb"R(%b)" % _PUT,
        )
    ),
    re.DOTALL,
)
_NAMES = re.compile(rb"(%b)\(\((%b)(%b)" % (_GET, _GET, _GET), re.DOTALL)
_HOOKS = "collections.OrderedDict"
_WIDE = {count: Struct("<" + "xI" * count) for count in (6, 7, 8)}
_TEXT = 0x58  # the opcode of a text with a length of four bytes


class Records:
    """Takes entries of state dicts from a feed while they look alike.

    What an entry puts into the memo is hardly ever asked for again, so it stays in the entry until it is.
    """

    REBUILD = "torch._utils._rebuild_tensor_v2"

    def __init__(self, feed: Feed, memo: dict[int, Any], uses: Uses, limits: Limits) -> None:
        self._feed, self._memo, self._uses, self._limits = feed, memo, uses, limits
        self._tuples: dict[bytes, tuple[int, ...] | None] = {}
        self._named: dict[tuple[bytes, ...], tuple[Global, Global, str, Global] | None] = {}
        self._firsts: list[int] = []  # of each entry, the first of its numbers in the memo
        self._entries: list[tuple[str, Record]] = []
        self.memoized = 0  # numbers that are not in the memo, because an entry has them
        self.highest = -1  # of these numbers
        self.highest_in_memo = -1  # from there on, entries can have the numbers: nothing has them yet

    def follow(self, stack: list[Any]) -> None:
        """After a tensor: put further entries on the stack, as long as they come."""
        feed = self._feed
        length = {b"q": 2, b"r": 5}.get(feed.data[feed.pos : feed.pos + 1], 0)
        after = feed.pos + length
        if not length or after >= feed.safe or feed.data[after] != _TEXT:
            return
        number = _index(feed.data[feed.pos : after])
        if number != self._next_number():
            return
        self._memo[number] = stack[-1]
        self.highest_in_memo = number
        feed.pos = after
        before = len(self._entries)
        while feed.pos < feed.safe and self._entry(stack):
            if len(self._entries) > self._limits.tensors:
                raise feed.source.over("tensors", self._limits.tensors, offset=feed.offset)
        taken = len(self._entries) - before
        for path in (self.REBUILD, _HOOKS) if taken else ():
            self._uses.called_again(path, taken)

    def recall(self, number: int) -> Any:
        """What an entry put into the memo under that number; `KeyError` when none did."""
        if not 0 <= number <= self.highest or not self._firsts or number < self._firsts[0]:
            raise KeyError(number)
        place = bisect_right(self._firsts, number) - 1
        key, tensor = self._entries[place]
        args = tensor.args
        stored: tuple[Any, ...] = (key, args[0].id[2], args[0].id)
        stored += tuple(each for each in args[2:4] if each)  # an empty tuple is not stored
        return (*stored, args[5], args, tensor)[number - self._firsts[place]]

    def replaced(self, number: int) -> None:
        """Something else is about to be put into the memo under a number that something has already."""
        self._named.clear()
        if number not in self._memo and self._firsts and self._firsts[0] <= number <= self.highest:
            self.memoized -= 1

    def _next_number(self) -> int | None:
        """The number that torch would give next; None when it, or a later one, is taken."""
        number = len(self._memo) + self.memoized
        return number if number > max(self.highest_in_memo, self.highest) else None

    def _entry(self, stack: list[Any]) -> bool:
        """One key and its tensor onto the stack; False, and nothing done, when something else comes next."""
        feed = self._feed
        data, start = feed.data, feed.pos
        end = start + 5 + int.from_bytes(data[start + 1 : start + 5], "little")
        found = _ENTRY.match(data, end) if data[start] == _TEXT else None
        if found is None or found.end() > feed.safe:
            return False
        (
            put_key, names, digits, number, put_number, get_device, numel, put_id, first,
            shape, put_shape, strides, put_strides, get_hooks, put_hooks, put_args, put_tensor,
        ) = found.groups()  # fmt: skip
        named = self._names(names, get_device, get_hooks)
        sizes, steps = self._tuple(shape), self._tuple(strides)
        puts = (put_key, put_number, put_id, put_shape, put_strides, put_hooks, put_args, put_tensor)
        numbers = _put_numbers([put for put in puts if put is not None])
        first_number, memoized = numbers[0], len(numbers)
        as_expected = (
            len(number) == digits[0]
            and first_number == self._next_number()
            and numbers == tuple(range(first_number, first_number + memoized))
            and (put_shape is not None) == bool(sizes)
            and (put_strides is not None) == bool(steps)
            and _integer(first) >= 0
            and _integer(numel) >= 0
        )
        if named is None or sizes is None or steps is None or not as_expected:
            return False
        try:
            key = data[start + 5 : end].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return False
        rebuild, storage, device, hooks = named
        offset = feed.base + found.end() - len(put_tensor) - 1
        tensor = Record(rebuild, offset)
        tensor.storage, tensor.number, tensor.device = storage, number.decode("ascii"), device
        tensor.numel, tensor.first = _integer(numel), _integer(first)
        tensor.shape, tensor.strides, tensor.hooks = sizes, steps, hooks
        self._keep(first_number, memoized, key, tensor)
        stack += (key, tensor)
        feed.pos = found.end()
        return True

    def _keep(self, first: int, count: int, key: str, tensor: Record) -> None:
        self._firsts.append(first)
        self._entries.append((key, tensor))
        self.memoized += count
        self.highest = first + count - 1

    def _names(self, *codes: bytes) -> tuple[Global, Global, str, Global] | None:
        """The function, class, device and hooks that an entry names, if they are what they should be."""
        if codes not in self._named:
            found = _NAMES.match(codes[0])
            gets = (*(found.groups() if found else ()), *codes[1:])
            rebuild, tag, storage, device, hooks = (self._memo.get(_index(code)) for code in gets)
            known = (
                isinstance(rebuild, Global)
                and isinstance(storage, Global)
                and isinstance(hooks, Global)
                and isinstance(device, str)
                and rebuild.path == self.REBUILD
                and hooks.path == _HOOKS
                and tag == "storage"
            )
            self._named[codes] = (rebuild, storage, device, hooks) if known else None  # type: ignore[assignment]
        return self._named[codes]

    def _tuple(self, code: bytes) -> tuple[int, ...] | None:
        """The sizes in a tuple, or None when they are none; most repeat, and are the same object."""
        if code not in self._tuples:
            numbers = tuple(_numbers(code))
            usual = len(numbers) <= self._limits.dims and min(numbers, default=0) >= 0
            self._tuples[code] = numbers if usual else None
        return self._tuples[code]


def _index(code: bytes) -> int:
    return code[1] if len(code) == 2 else int.from_bytes(code[1:], "little")


def _put_numbers(puts: list[bytes]) -> tuple[int, ...]:
    joined = b"".join(puts)
    if len(joined) == 5 * len(puts):  # as nearly all are, once the memo has 256 things
        return _WIDE[len(puts)].unpack(joined)
    return tuple(map(_index, puts))


def _integer(code: bytes) -> int:
    return int.from_bytes(code[1:], "little", signed=code[0] == 0x4A)


def _numbers(code: bytes) -> list[int]:
    numbers, at = [], int(code[:1] == b"(")
    while (length := {b"K": 2, b"M": 3, b"J": 5}.get(code[at : at + 1], 0)) != 0:
        numbers.append(_integer(code[at : at + length]))
        at += length
    return numbers
