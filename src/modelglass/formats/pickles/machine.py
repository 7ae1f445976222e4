"""A pickle machine that runs nothing: names stay names, and a call is a record of itself.

The stack and its marks follow CPython's unpickler in C. Where that one and its twin in Python disagree, the
file can be read in two ways, which is an error here.
"""

from __future__ import annotations

import math
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from codecs import escape_decode, getincrementaldecoder  # type: ignore[attr-defined]
from collections.abc import Callable
from typing import Any

from modelglass.errors import CorruptFileError
from modelglass.formats.limits import Limits
from modelglass.formats.pickles.delegates import (
    CONDITIONAL,
    LOAD_SAVED,
    MOST_DEPTH,
    given_back,
    handed_to,
    harmless,
    hides,
)
from modelglass.formats.pickles.dtypes import is_type, lie_of
from modelglass.formats.pickles.feed import KEPT, Feed
from modelglass.formats.pickles.known import is_shared
from modelglass.formats.pickles.objects import Blob, Elements, Global, Pairs, Persistent, Thing, as_text
from modelglass.formats.pickles.opcodes import OPCODES
from modelglass.formats.pickles.records import Records
from modelglass.formats.pickles.uses import DYNAMIC, Uses
from modelglass.formats.pickles.weights_only import Refusals
from modelglass.formats.source import Source

HIGHEST_PROTOCOL = 5
MOST_DIGITS = 4300  # of an integer; Python itself refuses to read longer ones from text
_U16, _I32, _U32 = struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_U64, _DOUBLE = struct.Struct("<Q"), struct.Struct(">d")
_SPARSE = 1 << 20  # numbers in the memo that may be left out; CPython in C makes room for all of them
_UNKNOWN = (Thing, Global, Persistent)  # values of which only a program that runs them knows the type
_PLAIN = (type(None), bool, int, float, str, bytes, tuple, list, Pairs, Elements, Blob)


class Frozen(Elements):
    """A set that cannot be changed any more, and so can be a key."""

    __slots__ = ()


class ByteArray(Blob):
    """Bytes that can be appended to."""

    __slots__ = ()


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
        self.saved: list[Thing] = []  # calls by which torch reads a file that is inside of the pickle
        self._resolve = resolve or Persistent
        self.protocol = 0
        self.oddities: list[tuple[str, str, int]] = []  # code, text, offset
        self.after_build: Callable[[Machine, Thing], None] | None = (
            None  # told of each object that got a state
        )
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._fence = 0  # the stack below belongs to an outer mark
        self._memo: dict[int, Any] = {}
        self.arrays = 0  # of joblib, whose values were passed over
        self._nodes, self._most_nodes = 0, limits.left("pickle_nodes")
        # Entries of state dicts are taken in one step where nobody says what stands for their storages.
        self._quick = quick and resolve is None
        self._records = Records(self.feed, self._memo, self.uses, limits)

    def run(self) -> Any:
        """What the stream builds. Afterwards `feed.offset` is where the next one would begin."""
        feed, handlers, count, nodes = self.feed, _HANDLERS, 0, self._nodes
        try:
            for count in range(1, self.limits.left("pickle_opcodes") + 1):  # noqa: B007
                if feed.pos > feed.safe:
                    feed.refill()
                code = feed.data[feed.pos]
                feed.pos += 1
                if handlers[code](self) is True:
                    return self.result
        except (struct.error, IndexError) as cause:
            raise feed.corrupt("the pickle is cut off", code="pickle.truncated") from cause
        finally:
            self.limits.spend("pickle_opcodes", count)
            self.limits.spend("pickle_nodes", self._nodes - nodes)
        raise feed.source.over("pickle_opcodes", self.limits.pickle_opcodes, offset=feed.offset)

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
        if self._nodes > self._most_nodes:
            raise self.feed.source.over("pickle_nodes", self.limits.pickle_nodes, offset=self.feed.offset)

    def _mark(self) -> None:
        self._marks.append(len(self._stack))
        self._fence = len(self._stack)

    def _pop_one(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._pop_mark()
        else:
            self._pop()

    def _drop_mark(self) -> None:
        self._pop_mark()

    def _dup(self) -> None:
        self._push_again(self._top())

    def _push_again(self, value: Any) -> None:
        if type(value) is Global and value.path in CONDITIONAL:
            self.uses.named(value)  # each mention of such a name must be a harmless call
        self._stack.append(value)

    def _stop(self) -> bool:
        if self._marks:
            self.odd("pickle.open-mark", "the pickle ends inside a mark")
        self.result = self._pop()
        if self.feed.frame_end is not None and self.feed.offset < self.feed.frame_end:
            # Where a next pickle begins, readers disagree: behind the last opcode, or behind the frame.
            self.odd("pickle.frame", f"the pickle ends before its frame, at {self.feed.frame_end:,}")
        return True

    def odd(self, code: str, text: str) -> None:
        """Note what no library writes; an unusual pickle, as long as it goes on."""
        self.oddities.append((code, text, self.feed.offset - 1))

    # Protocol and frames

    def _proto(self) -> None:
        offset = self.feed.offset - 1
        self.protocol = self._byte()
        if self.protocol > HIGHEST_PROTOCOL:
            self._fail(f"protocol {self.protocol}, but the highest is {HIGHEST_PROTOCOL}", "pickle.protocol")
        if offset != self.feed.start:
            self.oddities.append(("pickle.protocol", "the protocol is declared again, or late", offset))

    def _frame(self) -> None:
        self.feed.enter_frame(self._unpack(_U64))

    # Numbers

    def _byte(self) -> int:
        feed = self.feed
        feed.pos += 1
        return feed.data[feed.pos - 1]

    def _unpack(self, layout: struct.Struct) -> Any:
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
        self._stack.append(self._unpack(_I32))

    def _binint1(self) -> None:
        self._stack.append(self._byte())

    def _binint2(self) -> None:
        self._stack.append(self._unpack(_U16))

    def _binfloat(self) -> None:
        self._stack.append(self._unpack(_DOUBLE))

    def _int(self) -> None:
        text = self.feed.line("an integer")
        known = {b"00": False, b"01": True}.get(text)
        self._stack.append(self._integer(text, base=0) if known is None else known)

    def _long(self) -> None:
        self._stack.append(self._integer(self.feed.line("an integer").removesuffix(b"L"), base=0))

    def _integer(self, text: bytes, *, base: int = 10) -> int:
        if len(text) > MOST_DIGITS:
            self._fail(f"an integer of {len(text):,} digits", "pickle.number")
        try:
            return int(text, base)
        except ValueError as cause:
            raise self._no_number(text) from cause

    def _float(self) -> None:
        text = self.feed.line("a number")
        try:
            value = float(text)
        except ValueError as cause:
            raise self._no_number(text) from cause
        # These are numbers for only one of CPython's two unpicklers.
        overflows = value in (math.inf, -math.inf) and b"n" not in text.lower()
        if overflows or b"_" in text or text != text.strip():
            raise self._no_number(text)
        self._stack.append(value)

    def _no_number(self, text: bytes) -> CorruptFileError:
        return self.feed.corrupt(f"{text[:40]!r} is not a number", code="pickle.number")

    def _long1(self) -> None:
        self._stack.append(self._little_endian(self._byte()))

    def _long4(self) -> None:
        length = self._unpack(_I32)
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
        self._text(self._unpack(_U32))

    def _binunicode8(self) -> None:
        self._text(self._unpack(_U64))

    def _text(self, length: int) -> None:
        try:
            if length <= KEPT:
                text = self.feed.take(length, "a text").decode("utf-8", "surrogatepass")
            else:
                text = self._long_text(length)
        except UnicodeDecodeError as cause:
            raise self.feed.corrupt("a text is not UTF-8", code="pickle.text") from cause
        self._stack.append(text)

    def _long_text(self, length: int) -> str:
        """The first part of a text, of which also the rest was checked."""
        self.feed.require(length, "a text")
        decoder = getincrementaldecoder("utf-8")("surrogatepass")
        text: str = decoder.decode(self.feed.take(KEPT, "a text"))
        for start in range(KEPT, length, KEPT):
            decoder.decode(self.feed.take(min(KEPT, length - start), "a text"))
        decoder.decode(b"", final=True)
        return text

    def _unicode(self) -> None:
        try:
            self._stack.append(self.feed.line("a text").decode("raw-unicode-escape"))
        except UnicodeDecodeError as cause:
            raise self.feed.corrupt("a text with a broken escape", code="pickle.text") from cause

    def _string(self) -> None:
        line = self.feed.line("a text")
        if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
            self._fail("a text without its quotes", "pickle.text")
        try:
            self._stack.append(escape_decode(line[1:-1])[0])
        except ValueError as cause:
            raise self.feed.corrupt("a text with a broken escape", code="pickle.text") from cause

    def _short_binstring(self) -> None:
        self._stack.append(self.feed.take(self._byte(), "a text"))

    def _binstring(self) -> None:
        length = self._unpack(_I32)
        if length < 0:
            self._fail("a text of negative length", "pickle.length")
        self._stack.append(self.feed.skip(length, "a text"))

    def _short_binbytes(self) -> None:
        self._blob(self._byte())

    def _binbytes(self) -> None:
        self._blob(self._unpack(_U32))

    def _binbytes8(self) -> None:
        self._blob(self._unpack(_U64))

    def _bytearray8(self) -> None:
        self._blob(self._unpack(_U64), ByteArray)

    def _blob(self, length: int, kind: type[Blob] = Blob) -> None:
        offset = self.feed.offset
        self._stack.append(kind(offset, length, self.feed.skip(length, "bytes")))

    def _next_buffer(self) -> None:
        # The buffer comes from outside of the pickle, which only a program can hand over.
        self.odd("pickle.buffer", "data that is not in the file")
        self._stack.append(Blob(self.feed.offset, 0, b""))

    def _readonly_buffer(self) -> None:
        if not isinstance(self._top(), (Blob, *_UNKNOWN)):
            self._fail("it locks something that is not a buffer", "pickle.type")

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
        items = self._pop_mark()
        self._check_keys(items)
        self._stack.append(Frozen(items))

    def _append(self) -> None:
        item = self._pop()
        self._extend(self._top(), [item])

    def _appends(self) -> None:
        items = self._pop_mark()
        self._extend(self._top(), items)

    def _extend(self, target: Any, items: list[Any]) -> None:
        if type(target) is list:
            target.extend(items)
            return
        self.refusals.add("it appends to something that is not a list", self.feed.offset - 1)
        if type(target) is ByteArray and all(type(item) is int and 0 <= item < 256 for item in items):
            return
        # With no items at all, one of CPython's unpicklers lets everything pass, and the other does not.
        self._put_into(target, items, "it appends to something that is not a list")

    def _additems(self) -> None:
        items = self._pop_mark()
        target = self._top()
        if type(target) is Elements:
            self._check_keys(items)
            target.items.extend(items)
        else:
            self._put_into(target, items, "it adds to something that is not a set")

    def _put_into(self, target: Any, items: list[Any], problem: str) -> None:
        """Items for something that the file names or computes."""
        target = given_back(target)
        self._change(target)
        if isinstance(target, Thing):
            self._calls_method_of(target, items)
            if target.listed is None:
                target.listed = []
            target.listed.extend(items)
        elif isinstance(target, _PLAIN):
            self._fail(problem, "pickle.type")

    def _setitem(self) -> None:
        value, key = self._pop(), self._pop()
        self._set(self._top(), [key, value])

    def _setitems(self) -> None:
        items = self._pop_mark()
        self._set(self._top(), items)

    def _set(self, target: Any, flat: list[Any]) -> None:
        if not Refusals.sets_items(target):
            self.refusals.add("it sets items of something that is not a dict", self.feed.offset - 1)
        if len(flat) % 2:
            self._fail("a key without a value", "pickle.stack")
        target = given_back(target)
        if type(target) is Pairs:
            self._fill(target, flat)
        elif isinstance(target, Thing):
            self._change(target)
            if target.pairs is None:
                target.pairs = Pairs()
            target.pairs.flat.extend(flat)
        elif type(target) is Global and flat:
            self._change(target)
        elif type(target) is list:
            self._replace(target, flat)
        elif isinstance(target, _PLAIN) and flat:
            self._fail("it sets items of something that has none", "pickle.type")

    def _replace(self, target: list[Any], flat: list[Any]) -> None:
        """Unusual, but Python takes it: items of a list, by number."""
        for key, value in zip(flat[::2], flat[1::2], strict=True):
            if isinstance(key, _UNKNOWN):
                continue
            if not isinstance(key, int) or not -len(target) <= key < len(target):
                self._fail("it sets an item that a list does not have", "pickle.type")
            target[key] = value

    def _fill(self, target: Pairs, flat: list[Any]) -> None:
        if len(flat) % 2:
            self._fail("a key without a value", "pickle.stack")
        self._check_keys(flat[::2])
        target.flat.extend(flat)

    def _check_keys(self, keys: list[Any]) -> None:
        for key in keys:
            if type(key) in _UNHASHABLE or (type(key) is tuple and _holds_unhashable(key)):
                self._fail("a key that cannot be one: a list, a dict or a set", "pickle.key")

    # The memo

    def _get(self) -> None:
        self._recall(self._integer(self.feed.line("a number")))

    def _binget(self) -> None:
        self._recall(self._byte())

    def _long_binget(self) -> None:
        self._recall(self._unpack(_U32))

    def _recall(self, index: int) -> None:
        try:
            self._push_again(self._memo[index] if index in self._memo else self._records.recall(index))
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
        self._remember(self._unpack(_U32))

    def _memoize(self) -> None:
        self._remember(len(self._memo) + self._records.memoized)

    def _remember(self, index: int) -> None:
        if index > self.feed.offset + _SPARSE:
            self.odd("pickle.memo", f"something is stored under {index:,}, which not every reader can do")
        if index > self._records.highest_in_memo:
            self._records.highest_in_memo = index
        if index in self._memo or index <= self._records.highest:
            self._records.replaced(index)
        self._memo[index] = self._top()

    # What makes pickles dangerous: names and calls

    def _global(self) -> None:
        offset = self.feed.offset - 1
        module = self._line_text("a module", "utf-8")
        self._name(module, self._line_text("a name", "utf-8"), offset)

    def _line_text(self, what: str, encoding: str, *, least: int = 1) -> str:
        line = self.feed.line(what)
        if len(line) < least:  # only one of CPython's unpicklers takes it
            self._fail(f"{what} that is empty", "pickle.text")
        try:
            return line.decode(encoding)
        except UnicodeDecodeError as cause:
            raise self.feed.corrupt(f"{what} that is not {encoding}", code="pickle.text") from cause

    def _stack_global(self) -> None:
        offset = self.feed.offset - 1
        name, module = self._pop(), self._pop()
        self._name(self._part_of_name(module), self._part_of_name(name), offset)

    def _part_of_name(self, value: Any) -> str:
        if isinstance(value, (str, bytes)):
            return as_text(value)
        if isinstance(value, _PLAIN):
            self._fail("a name that is not a text", "pickle.type")
        return DYNAMIC

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
        offset = self.feed.offset - 1
        self._extension(self._byte(), offset)

    def _ext2(self) -> None:
        offset = self.feed.offset - 1
        self._extension(self._unpack(_U16), offset)

    def _ext4(self) -> None:
        offset = self.feed.offset - 1
        self._extension(self._unpack(_I32), offset)

    def _extension(self, number: int, offset: int) -> None:
        if number <= 0:
            self._fail(f"extension {number}, but the first is 1", "pickle.extension")
        self._name("<extension registry>", str(number), offset)

    def _reduce(self) -> None:
        args = self._pop()
        function = self._pop()
        made = self._called(function, args)
        self.refusals.reduce(function, made.offset)
        if made.path == Records.REBUILD and self._quick and "." not in function.name:
            self._records.follow(self._stack)

    def _newobj(self) -> None:
        args = self._pop()
        function = self._pop()
        made = self._called(function, args, as_class=True)
        self.refusals.newobj(function, made.offset)

    def _newobj_ex(self) -> None:
        kwargs, args = self._pop(), self._pop()
        self._called(self._pop(), args, as_class=True, kwargs=kwargs)
        if not isinstance(kwargs, (Pairs, Thing)):
            self.odd("pickle.arguments", "named arguments that are no dict, which not every reader takes")

    def _obj(self) -> None:
        items = self._pop_mark()
        if not items:
            self._fail("an object without a class", "pickle.stack")
        self._called(items[0], tuple(items[1:]))

    def _inst(self) -> None:
        offset = self.feed.offset - 1
        args = self._pop_mark()
        module = self._line_text("a module", "ascii")
        self._name(module, self._line_text("a class", "ascii"), offset)
        self._called(self._stack.pop(), tuple(args), offset=offset)

    def _called(
        self,
        function: Any,
        args: Any,
        *,
        kwargs: Any = None,
        as_class: bool = False,
        offset: int | None = None,
    ) -> Thing:
        self._count_node()
        function = given_back(function)
        if isinstance(function, _PLAIN):
            self._fail("it calls something that cannot be called", "pickle.type")
        if type(args) is not tuple:
            self.odd("pickle.arguments", "arguments that are no tuple, which not every reader takes")
        made = Thing(function, args, self.feed.offset - 1 if offset is None else offset)
        made.kwargs = kwargs
        if hides(made):
            self.odd("pickle.hidden", f"computes a text or bytes, in which anything may hide: {made.path}")
        if harmless(made):
            self.uses.harmless(made)
            self.saved += (made,) if made.path == LOAD_SAVED else ()
        else:
            self.uses.called(made, as_class=as_class)
            self._hand_on(made)
        self._stack.append(made)
        return made

    def _hand_on(self, made: Thing, depth: int = 0) -> None:
        """What a function is handed and calls counts as if the file itself had called it."""
        for handed in handed_to(made):
            if isinstance(handed.function, _PLAIN):
                continue  # it cannot be called
            inner = Thing(given_back(handed.function), handed.args, made.offset)
            self.uses.called(inner, as_class=handed.as_class)
            if depth < MOST_DEPTH:
                self._hand_on(inner, depth + 1)
            else:
                self.uses.called(Thing(inner, (), made.offset), as_class=False)
            if handed.changes:
                self._change(given_back(inner))

    def _change(self, target: Any) -> None:
        """The state or items of something are set that the file did not make."""
        if type(target) is Global:
            self.uses.changed(target, self.feed.offset - 1)
        elif isinstance(target, Thing) and is_shared(target):
            self.uses.changed(target.function, self.feed.offset - 1)

    def _build(self) -> None:
        state = self._pop()
        target = self._top()
        self.refusals.build(target, self.feed.offset - 1)
        target = given_back(target)
        self._change(target)
        if isinstance(target, Thing):
            self._calls_method_of(target, (state,))
            target.state = state if target.state is None else (target.state, state)
            lie = lie_of(target) if is_type(target) else None
            if lie is not None:
                self.odd("pickle.memory", f"a type of numpy's arrays {lie}")
            if self.after_build is not None:
                self.after_build(self, target)
        elif isinstance(target, _PLAIN) and state is not None:
            self._fail("it sets the state of something that has none", "pickle.type")

    def _calls_method_of(self, target: Thing, args: Any) -> None:
        """An opcode calls `append`, `add` or `__setstate__` of an object, which the file may have put there.

        Pickles set a state once, and last.
        """
        given = target.first_argument
        held = (target.pairs, given.pairs if isinstance(given, Thing) else given)
        if target.state is not None or any(
            type(items) is Pairs and items.may_name(_CALLED_BY_OPCODES) for items in held
        ):
            self.uses.called(Thing(target, args, self.feed.offset - 1), as_class=False)

    def _binpersid(self) -> None:
        self._persistent(self._pop())

    def _persid(self) -> None:
        self._persistent(self._line_text("an id", "ascii", least=0))

    def _persistent(self, id: Any) -> None:
        self._count_node()
        self.refusals.persistent(id, self.feed.offset - 1)
        self.ids.append(id)
        self._stack.append(self._resolve(id))


_CALLED_BY_OPCODES = frozenset({"__setstate__", "append", "extend", "add"})
_UNHASHABLE = frozenset((list, Pairs, Elements, ByteArray))


def _holds_unhashable(key: tuple[Any, ...]) -> bool:
    """Whether one of the first values inside a tuple is a list, dict or set; deep ones are not looked at."""
    waiting: list[Any] = [key]
    for _ in range(16):
        if not waiting:
            break
        value = waiting.pop()
        if type(value) in _UNHASHABLE:
            return True
        if type(value) is tuple:
            waiting.extend(value[:16])
    return False


def _handler(code: int) -> Callable[[Machine], bool | None]:
    name = OPCODES.get(code)
    if name is None:
        return lambda machine: machine._fail(f"{code:#04x} is not an opcode", "pickle.opcode")
    method: Callable[[Machine], bool | None] = getattr(Machine, f"_{name}")
    if Refusals.allows(code):
        return method

    def unsupported(machine: Machine) -> bool | None:
        machine.refusals.add(f"unsupported operand {code} ({name.upper()})", machine.feed.offset - 1)
        return method(machine)

    return unsupported


_HANDLERS = [_handler(code) for code in range(256)]
