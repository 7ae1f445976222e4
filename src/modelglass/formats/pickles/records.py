"""The opcodes that torch writes for one entry of a state dict, taken in one step.

A tensor costs 26 opcodes, always the same ones in the same order. Where they stand, one fixed pattern finds
them all, and what they would have done to the stack and the memo is done at once. Whatever looks different
in the least goes through the machine as usual: this saves time and changes nothing, which a test shows.
"""

from __future__ import annotations

import re
from typing import Any

from modelglass.formats.limits import Limits
from modelglass.formats.pickles.feed import Feed
from modelglass.formats.pickles.objects import Global, Persistent, Thing
from modelglass.formats.pickles.uses import Uses

_PUT = rb"(q.|r....)"
_GET = rb"(h.|j....)"
_NUMBER = rb"(?:K.|M..|J....)"
_SHAPE = rb"(\)|%b\x85|%b{2}\x86|%b{3}\x87|\(%b+t)" % ((_NUMBER,) * 4)

_ENTRY = re.compile(
    b"".join(
        (
            _PUT,  # of the key
            _GET,  # the function
            rb"\(\(",
            _GET,  # the storage's id: a tag,
            _GET,  # its class,
            rb"X(.)\x00\x00\x00([0-9]+)",  # its number as text,
            _PUT,
            _GET,  # a device,
            b"(" + _NUMBER + b")",  # its length
            rb"t",
            _PUT,
            rb"Q",
            b"(" + _NUMBER + b")",  # where the tensor begins in it
            _SHAPE,
            _PUT + rb"?",  # an empty tuple is not stored
            _SHAPE,  # strides
            _PUT + rb"?",
            rb"\x89",  # no gradient
            _GET,  # no hooks: an empty OrderedDict
            rb"\)R",
            _PUT,
            rb"t",
            _PUT,
            rb"R",
            _PUT,
        )
    ),
    re.DOTALL,
)
_TEXT = 0x58  # the opcode of a text with a length of four bytes


class Records:
    """Takes entries of state dicts from a feed while they look alike."""

    REBUILD = "torch._utils._rebuild_tensor_v2"

    def __init__(self, feed: Feed, memo: dict[int, Any], uses: Uses, limits: Limits) -> None:
        self._feed, self._memo, self._uses, self._limits = feed, memo, uses, limits
        self._shapes: dict[bytes, tuple[int, ...]] = {}
        self._taken = 0

    def follow(self, stack: list[Any]) -> None:
        """After a tensor: put further entries on the stack, as long as they come."""
        feed = self._feed
        length = {b"q": 2, b"r": 5}.get(feed.data[feed.pos : feed.pos + 1], 0)
        after = feed.pos + length
        if not length or after >= feed.safe or feed.data[after] != _TEXT:
            return
        self._memo[_index(feed.data[feed.pos : after])] = stack[-1]
        feed.pos = after
        while feed.pos < feed.safe and self._entry(stack):
            self._taken += 1
            if self._taken > self._limits.tensors:
                raise feed.source.over("tensors", self._limits.tensors, offset=feed.offset)

    def _entry(self, stack: list[Any]) -> bool:
        """One key and its tensor onto the stack; False, and nothing done, when something else comes next."""
        feed, memo = self._feed, self._memo
        data, start = feed.data, feed.pos
        end = start + 5 + int.from_bytes(data[start + 1 : start + 5], "little")
        found = _ENTRY.match(data, end) if data[start] == _TEXT else None
        if found is None or found.end() > feed.safe:
            return False
        (
            put_key, get_rebuild, get_tag, get_storage, digits, number, put_number, get_device, numel, put_id,
            first, shape, put_shape, strides, put_strides, get_hooks, put_hooks, put_args, put_tensor,
        ) = found.groups()  # fmt: skip
        rebuild: Any = memo.get(_index(get_rebuild))
        hooks: Any = memo.get(_index(get_hooks))
        known = (
            type(rebuild) is Global
            and type(hooks) is Global
            and rebuild.path == self.REBUILD
            and hooks.path == "collections.OrderedDict"
            and memo.get(_index(get_tag)) == "storage"
            and type(memo.get(_index(get_storage))) is Global
            and type(memo.get(_index(get_device))) is str
            and len(number) == digits[0]
        )
        try:
            key = data[start + 5 : end].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return False
        if not known:
            return False
        offset = feed.base + found.end() - len(put_tensor) - 1
        memo[_index(put_key)] = key
        text = number.decode("ascii")
        memo[_index(put_number)] = text
        id = ("storage", memo[_index(get_storage)], text, memo[_index(get_device)], _integer(numel))
        memo[_index(put_id)] = id
        sizes, steps = self._tuple(shape), self._tuple(strides)
        if put_shape:
            memo[_index(put_shape)] = sizes
        if put_strides:
            memo[_index(put_strides)] = steps
        none = Thing(hooks, (), offset)
        memo[_index(put_hooks)] = none
        args = (Persistent(id), _integer(first), sizes, steps, False, none)
        memo[_index(put_args)] = args
        tensor = Thing(rebuild, args, offset)
        memo[_index(put_tensor)] = tensor
        self._uses.called_again(rebuild.path)
        self._uses.called_again(hooks.path)
        stack += (key, tensor)
        feed.pos = found.end()
        return True

    def _tuple(self, code: bytes) -> tuple[int, ...]:
        """The numbers of a tuple; the same ones are the same object, because most shapes repeat."""
        known = self._shapes.get(code)
        if known is None:
            known = self._shapes[code] = tuple(_numbers(code))
        return known


def _index(code: bytes) -> int:
    return code[1] if len(code) == 2 else int.from_bytes(code[1:], "little")


def _integer(code: bytes) -> int:
    return int.from_bytes(code[1:], "little", signed=code[0] == 0x4A)


def _numbers(code: bytes) -> list[int]:
    numbers, at = [], int(code[:1] == b"(")
    while (length := {b"K": 2, b"M": 3, b"J": 5}.get(code[at : at + 1], 0)) != 0:
        numbers.append(_integer(code[at : at + length]))
        at += length
    return numbers
