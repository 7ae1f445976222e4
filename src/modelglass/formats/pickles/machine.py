"""A pickle machine that runs nothing: names stay names, and a call is a record of itself.

The stack and its marks follow CPython's unpickler in C. Where that one and its twin in Python disagree, the
file can be read in two ways, which is an error here.
"""

from __future__ import annotations

import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from codecs import escape_decode  # type: ignore[attr-defined]
from collections.abc import Callable
from itertools import repeat
from typing import Any

from modelglass.errors import CorruptFileError
from modelglass.formats.limits import Limits
from modelglass.formats.pickles.feed import Feed
from modelglass.formats.pickles.objects import Blob, Elements, Global, Pairs, Persistent, Thing, as_text
from modelglass.formats.pickles.opcodes import OPCODES
from modelglass.formats.pickles.records import Records
from modelglass.formats.pickles.uses import Uses
from modelglass.formats.pickles.weights_only import Refusals
from modelglass.formats.source import Source

HIGHEST_PROTOCOL = 5
MOST_DIGITS = 4300  # of an integer; Python itself refuses to read longer ones from text
_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_U64, _DOUBLE = struct.Struct("<Q"), struct.Struct(">d")


class Machine:
    """Runs one pickle stream: `result` is what it built, `uses` what it named, `refusals` torch's answer."""

    def __init__(
        self,
        source: Source,
        limits: Limits,
        *,
        offset: int = 0,
        quick: bool = True,
        resolve: Callable[[Any], Any] | None = None,
    ) -> None:
        self.feed = Feed(source, offset)
        self.limits = limits
        self.uses = Uses()
        self.refusals = Refusals()
        self.result: Any = None
        self.ids: list[Any] = []  # of what is outside of the pickle, as far as the quick way has not seen it
        self._resolve = resolve or Persistent
        self.protocol = 0
        self.oddities: list[tuple[str, str, int]] = []  # code, text, offset
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._fence = 0  # the stack below belongs to an outer mark
        self._memo: dict[int, Any] = {}
        self._nodes = 0
        self._quick = quick  # whether entries of state dicts are taken in one step
        self._records = Records(self.feed, self._memo, self.uses, limits)
        self._handlers = [self._handler(code) for code in range(256)]

    def run(self) -> Any:
        """What the stream builds. Afterwards `feed.offset` is where the next one would begin."""
        feed, handlers = self.feed, self._handlers
        try:
            for _ in repeat(None, self.limits.pickle_opcodes):
                if feed.pos > feed.safe:
                    feed.refill()
                code = feed.data[feed.pos]
                feed.pos += 1
                if handlers[code]():
                    return self.result
        except (struct.error, IndexError) as cause:
            raise feed.corrupt("the pickle is cut off", code="pickle.truncated") from cause
        raise feed.source.over("pickle_opcodes", self.limits.pickle_opcodes, offset=feed.offset)

    def _handler(self, code: int) -> Callable[[], bool | None]:
        name = OPCODES.get(code)
        if name is None:
            return lambda: self._fail(f"{code:#04x} is no opcode", "pickle.opcode")
        method: Callable[[], bool | None] = getattr(self, f"_{name}")
        if Refusals.allows(code):
            return method

        def unsupported() -> bool | None:
            self.refusals.add(f"unsupported operand {code} ({name.upper()})", self.feed.offset - 1)
            return method()

        return unsupported

    # The stack

    def _fail(self, problem: str, code: str) -> None:
        raise self.feed.corrupt(problem, code=code)

    def _pop(self) -> Any:
        if len(self._stack) <= self._fence:
            self._fail("an opcode takes more from the stack than there is", "pickle.stack")
        return self._stack.pop()

    def _top(self) -> Any:
        if len(self._stack) <= self._fence:
            self._fail("an opcode needs something on the stack, and nothing is there", "pickle.stack")
        return self._stack[-1]

    def _pop_mark(self) -> list[Any]:
        if not self._marks:
            self._fail("an opcode needs a mark, and there is none", "pickle.stack")
        start = self._marks.pop()
        self._fence = self._marks[-1] if self._marks else 0
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _count_node(self) -> None:
        self._nodes += 1
        if self._nodes > self.limits.pickle_nodes:
            raise self.feed.source.over("pickle_nodes", self.limits.pickle_nodes, offset=self.feed.offset)

    def _mark(self) -> None:
        self._marks.append(len(self._stack))
        self._fence = len(self._stack)

    def _pop_one(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._pop_mark()
        else:
            self._pop()

    def _dup(self) -> None:
        self._stack.append(self._top())

    def _stop(self) -> bool:
        if self._marks:
            # One of CPython's two unpicklers refuses this, the other takes what lies on the inner stack.
            self.oddities.append(("pickle.open-mark", "the pickle ends inside a mark", self.feed.offset - 1))
        self.result = self._pop()
        if self.feed.frame_end is not None and self.feed.offset > self.feed.frame_end:
            self._fail("the last opcode crosses the end of its frame", "pickle.frame")
        return True

    # Protocol and frames

    def _proto(self) -> None:
        offset = self.feed.offset - 1
        self.protocol = self._byte()
        if self.protocol > HIGHEST_PROTOCOL:
            self._fail(f"protocol {self.protocol}, but the highest is {HIGHEST_PROTOCOL}", "pickle.protocol")
        if offset != self.feed.start:
            self.oddities.append(("pickle.protocol", "the protocol is said again, or late", offset))

    def _frame(self) -> None:
        self.feed.enter_frame(self._unpacked(_U64))

    # Numbers

    def _byte(self) -> int:
        feed = self.feed
        feed.pos += 1
        return feed.data[feed.pos - 1]

    def _unpacked(self, layout: struct.Struct) -> Any:
        feed = self.feed
        (value,) = layout.unpack_from(feed.data, feed.pos)
        feed.pos += layout.size
        return value

    def _none(self) -> None:
        self._stack.append(None)

    def _newtrue(self) -> None:
        self._stack.append(True)

    def _newfalse(self) -> None:
        self._stack.append(False)

    def _binint(self) -> None:
        self._stack.append(self._unpacked(_I32))

    def _binint1(self) -> None:
        self._stack.append(self._byte())

    def _binint2(self) -> None:
        self._stack.append(self._unpacked(_U16))

    def _binfloat(self) -> None:
        self._stack.append(self._unpacked(_DOUBLE))

    def _int(self) -> None:
        text = self.feed.line("an integer")
        self._stack.append({b"00": False, b"01": True}.get(text))
        if self._stack[-1] is None:
            self._stack[-1] = self._integer(text)

    def _long(self) -> None:
        self._stack.append(self._integer(self.feed.line("an integer").removesuffix(b"L")))

    def _integer(self, text: bytes) -> int:
        if len(text) > MOST_DIGITS:
            self._fail(f"an integer of {len(text):,} digits", "pickle.number")
        return self._number(int, text)  # type: ignore[no-any-return]

    def _float(self) -> None:
        self._stack.append(self._number(float, self.feed.line("a number")))

    def _number(self, kind: type, text: bytes) -> Any:
        try:
            return kind(text)
        except ValueError as cause:
            raise self.feed.corrupt(f"{text[:40]!r} is no number", code="pickle.number") from cause

    def _long1(self) -> None:
        self._stack.append(self._little_endian(self._byte()))

    def _long4(self) -> None:
        length = self._unpacked(_I32)
        if length < 0:
            self._fail("an integer of negative length", "pickle.length")
        self._stack.append(self._little_endian(length))

    def _little_endian(self, length: int) -> Any:
        if length > MOST_DIGITS:
            offset = self.feed.offset
            return Blob(offset, length, self.feed.skip(length, "an integer"))
        return int.from_bytes(self.feed.take(length, "an integer"), "little", signed=True)

    # Text and bytes

    def _short_binunicode(self) -> None:
        self._text(self._byte())

    def _binunicode(self) -> None:
        self._text(self._unpacked(_U32))

    def _binunicode8(self) -> None:
        self._text(self._unpacked(_U64))

    def _text(self, length: int) -> None:
        kept = self.feed.skip(length, "a text")
        try:
            text = kept.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            # Either cut in the middle of a character, or no text at all; a name is still a name.
            text = kept.decode("utf-8", "backslashreplace")
            if length == len(kept):
                self.oddities.append(("pickle.encoding", "a text is not UTF-8", self.feed.offset - length))
        self._stack.append(text)

    def _unicode(self) -> None:
        try:
            self._stack.append(self.feed.line("a text").decode("raw-unicode-escape"))
        except UnicodeDecodeError as cause:
            raise self.feed.corrupt("a text with a broken escape", code="pickle.text") from cause

    def _string(self) -> None:
        line = self.feed.line("a text").rstrip()
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            self._fail("a text without its quotes", "pickle.text")
        try:
            self._stack.append(escape_decode(line[1:-1])[0])
        except ValueError as cause:
            raise self.feed.corrupt("a text with a broken escape", code="pickle.text") from cause

    def _short_binstring(self) -> None:
        self._stack.append(self.feed.take(self._byte(), "a text"))

    def _binstring(self) -> None:
        length = self._unpacked(_I32)
        if length < 0:
            self._fail("a text of negative length", "pickle.length")
        self._stack.append(self.feed.skip(length, "a text"))

    def _short_binbytes(self) -> None:
        self._blob(self._byte())

    def _binbytes(self) -> None:
        self._blob(self._unpacked(_U32))

    def _binbytes8(self) -> None:
        self._blob(self._unpacked(_U64))

    def _bytearray8(self) -> None:
        self._blob(self._unpacked(_U64))

    def _blob(self, length: int) -> None:
        offset = self.feed.offset
        self._stack.append(Blob(offset, length, self.feed.skip(length, "bytes")))

    def _next_buffer(self) -> None:
        # The buffer comes from outside of the pickle, which only a program can hand over.
        self.oddities.append(("pickle.buffer", "data that is not in the file", self.feed.offset - 1))
        self._stack.append(Blob(self.feed.offset, 0, b""))

    def _readonly_buffer(self) -> None:
        self._top()

    # Containers

    def _empty_tuple(self) -> None:
        self._stack.append(())

    def _tuple(self) -> None:
        self._count_node()
        self._stack.append(tuple(self._pop_mark()))

    def _tuple1(self) -> None:
        self._count_node()
        self._stack.append((self._pop(),))

    def _tuple2(self) -> None:
        self._count_node()
        last = self._pop()
        self._stack.append((self._pop(), last))

    def _tuple3(self) -> None:
        self._count_node()
        last, middle = self._pop(), self._pop()
        self._stack.append((self._pop(), middle, last))

    def _empty_list(self) -> None:
        self._count_node()
        self._stack.append([])

    def _list(self) -> None:
        self._count_node()
        self._stack.append(self._pop_mark())

    def _empty_dict(self) -> None:
        self._count_node()
        self._stack.append(Pairs())

    def _dict(self) -> None:
        self._count_node()
        made = Pairs()
        self._fill(made, self._pop_mark())
        self._stack.append(made)

    def _empty_set(self) -> None:
        self._count_node()
        self._stack.append(Elements([]))

    def _frozenset(self) -> None:
        self._count_node()
        self._stack.append(Elements(self._pop_mark()))

    def _append(self) -> None:
        item = self._pop()
        self._extend(self._top(), [item])

    def _appends(self) -> None:
        items = self._pop_mark()
        self._extend(self._top(), items)

    def _extend(self, target: Any, items: list[Any]) -> None:
        if type(target) is not list:
            self.refusals.add("it appends to something that is no list", self.feed.offset - 1)
        if type(target) is list:
            target.extend(items)
        elif type(target) is Thing:
            if target.listed is None:
                target.listed = []
            target.listed.extend(items)
        elif items:
            self._fail("it appends to something that is no list", "pickle.type")

    def _additems(self) -> None:
        items = self._pop_mark()
        target = self._top()
        if type(target) is Elements:
            target.items.extend(items)
        else:
            self._extend(target, items)

    def _setitem(self) -> None:
        value, key = self._pop(), self._pop()
        self._set(self._top(), [key, value])

    def _setitems(self) -> None:
        items = self._pop_mark()
        self._set(self._top(), items)

    def _set(self, target: Any, flat: list[Any]) -> None:
        if not Refusals.sets_items(target):
            self.refusals.add("it sets items of something that is no dict", self.feed.offset - 1)
        if type(target) is Thing:
            if target.pairs is None:
                target.pairs = Pairs()
            self._fill(target.pairs, flat)
        elif type(target) is Pairs:
            self._fill(target, flat)
        elif type(target) is list and all(type(key) is int for key in flat[::2]):
            target.extend(flat[1::2])  # unusual, but Python would take it
        elif flat:
            self._fail("it sets items of something that has none", "pickle.type")

    def _fill(self, target: Pairs, flat: list[Any]) -> None:
        if len(flat) % 2:
            self._fail("a key without a value", "pickle.stack")
        for key in flat[::2]:
            if type(key) in (list, Pairs, Elements):
                self._fail("a key that cannot be one: a list, a dict or a set", "pickle.key")
        target.flat.extend(flat)

    # The memo

    def _get(self) -> None:
        self._recall(self._integer(self.feed.line("a number")))

    def _binget(self) -> None:
        self._recall(self._byte())

    def _long_binget(self) -> None:
        self._recall(self._unpacked(_U32))

    def _recall(self, index: int) -> None:
        try:
            self._stack.append(self._memo[index] if index in self._memo else self._records.recall(index))
        except KeyError as cause:
            raise self.feed.corrupt(f"nothing was stored under {index}", code="pickle.memo") from cause

    def _put(self) -> None:
        index = self._integer(self.feed.line("a number"))
        if index < 0:
            self._fail("something is stored under a negative number", "pickle.memo")
        self._remember(index)

    def _binput(self) -> None:
        self._remember(self._byte())

    def _long_binput(self) -> None:
        self._remember(self._unpacked(_U32))

    def _memoize(self) -> None:
        self._remember(len(self._memo) + self._records.memoized)

    def _remember(self, index: int) -> None:
        if index in self._memo or index <= self._records.highest:
            self._records.replaced(index)
        self._memo[index] = self._top()

    # What makes pickles dangerous: names and calls

    def _global(self) -> None:
        offset = self.feed.offset - 1
        module = self._line_text("a module")
        self._name(module, self._line_text("a name"), offset)

    def _line_text(self, what: str) -> str:
        return self.feed.line(what).decode("utf-8", "backslashreplace")

    def _stack_global(self) -> None:
        offset = self.feed.offset - 1
        name, module = self._pop(), self._pop()
        if type(name) is str and type(module) is str:
            self._name(module, name, offset)
        else:
            self._name("<dynamic>", as_text(name) or "<dynamic>", offset)

    def _name(self, module: str, name: str, offset: int) -> None:
        if self.protocol < 3:  # as Python 3 reads names of Python 2
            if (module, name) in NAME_MAPPING:
                module, name = NAME_MAPPING[module, name]
            else:
                module = IMPORT_MAPPING.get(module, module)
        made = Global(module, name, offset)
        self.uses.named(made)
        self.refusals.name(made)
        self._stack.append(made)

    def _ext1(self) -> None:
        self._extension(self._byte())

    def _ext2(self) -> None:
        self._extension(self._unpacked(_U16))

    def _ext4(self) -> None:
        self._extension(self._unpacked(_I32))

    def _extension(self, number: int) -> None:
        self._name("<extension registry>", str(number), self.feed.offset)

    def _reduce(self) -> None:
        args = self._pop()
        function = self._pop()
        made = self._called(function, args)
        self.refusals.reduce(function, made.offset)
        if made.path == Records.REBUILD and self._quick:
            self._records.follow(self._stack)

    def _newobj(self) -> None:
        args = self._pop()
        function = self._pop()
        made = self._called(function, args, as_class=True)
        self.refusals.newobj(function, made.offset)

    def _newobj_ex(self) -> None:
        kwargs, args = self._pop(), self._pop()
        made = self._called(self._pop(), args, as_class=True)
        made.kwargs = kwargs

    def _obj(self) -> None:
        items = self._pop_mark()
        if not items:
            self._fail("an object without a class", "pickle.stack")
        self._called(items[0], tuple(items[1:]))

    def _inst(self) -> None:
        args = self._pop_mark()
        self._global()
        self._called(self._stack.pop(), tuple(args))

    def _called(self, function: Any, args: Any, *, as_class: bool = False) -> Thing:
        self._count_node()
        made = Thing(function, args, self.feed.offset - 1)
        self.uses.called(made, as_class=as_class)
        self._stack.append(made)
        return made

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        self.refusals.build(target, self.feed.offset - 1)
        if type(target) is Thing:
            target.state = state if target.state is None else (target.state, state)

    def _binpersid(self) -> None:
        self._persistent(self._pop())

    def _persid(self) -> None:
        self._persistent(self._line_text("an id"))

    def _persistent(self, id: Any) -> None:
        self._count_node()
        self.refusals.persistent(id, self.feed.offset - 1)
        self.ids.append(id)
        self._stack.append(self._resolve(id))


def run_all(
    source: Source, limits: Limits, *, offset: int = 0, keep: Callable[[Machine], None]
) -> CorruptFileError | None:
    """Run all streams from there on. Each is handed to `keep`; one that fails, too, and it is the last."""
    while offset < source.nbytes:
        machine = Machine(source, limits, offset=offset)
        try:
            machine.run()
        except CorruptFileError as error:
            keep(machine)
            return error
        keep(machine)
        offset = machine.feed.offset
    return None
