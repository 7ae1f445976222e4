"""The machine that runs nothing agrees with both of CPython's unpicklers, and with torch's."""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import datetime
import decimal
import enum
import fractions
import io
import itertools
import pathlib
import pickle
import random
import struct
import uuid
import warnings
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch._weights_only_unpickler import Unpickler as TorchUnpickler

from modelglass.errors import FileError
from modelglass.formats.limits import Limits
from modelglass.formats.pickles import feed as feeds, load
from modelglass.formats.pickles.machine import Frozen, Machine
from modelglass.formats.pickles.objects import Blob, Elements, Pairs, Thing
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source

try:
    from test import pickletester
except ImportError:  # some distributions pack Python's own tests apart
    pickletester = None

# What CPython's unpicklers ask for and whether they get through


class _Meta(type):
    def __setitem__(cls, key: object, value: object) -> None: ...


class Inert(metaclass=_Meta):
    """Stands in for everything a pickle names: it takes all that is done to it, and does nothing."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Inert:
        return self

    def __setitem__(self, key: object, value: object) -> None: ...

    __setstate__ = append = extend = add = staticmethod(lambda *args: None)


@dataclass
class Outcome:
    """What one unpickler did with some bytes."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    mapped: set[str] = field(default_factory=set)
    error: Exception | None = None
    value: Any = None


def _run(kind: Any, data: bytes) -> Outcome:
    outcome = Outcome()

    class Stub(kind):  # type: ignore[misc]
        def find_class(self, module: str, name: str) -> type:
            outcome.asked.append((module, name))
            if getattr(self, "proto", 3) < 3:
                module = IMPORT_MAPPING.get(module, module)
                module, name = NAME_MAPPING.get(outcome.asked[-1], (module, name))
            outcome.mapped.add(f"{module}.{name}")
            return Inert

        def persistent_load(self, pid: Any) -> Inert:
            return Inert()

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            stub = Stub(io.BytesIO(data), encoding="utf-8", buffers=itertools.repeat(b"out"))
            outcome.value = stub.load()
    except Exception as error:  # whatever they raise is their way to refuse  # noqa: BLE001
        outcome.error = error
    return outcome


def both(data: bytes) -> tuple[Outcome, Outcome]:
    return _run(pickle.Unpickler, data), _run(pickle._Unpickler, data)  # type: ignore[attr-defined]


def source_of(data: bytes) -> Source:
    return Source(lambda at, n: data[at : at + n], len(data), file="x.pkl")


def ours(data: bytes, *, quick: bool = True) -> tuple[Machine, FileError | None]:
    machine = Machine(source_of(data), Limits(), quick=quick)
    try:
        machine.run()
    except FileError as error:
        return machine, error
    return machine, None


def paths(machine: Machine) -> set[str]:
    return {use.path for use in machine.uses if use.named}


def reports_ambiguity(data: bytes) -> bool:
    reading = Reading()
    try:
        load(source_of(data), reading)
    except FileError:
        return True
    return any(finding.level == "invalid" for finding in reading.findings)


def check(data: bytes) -> str:
    """Our machine against the other two; which case it was."""
    machine, error = ours(data)
    if error is not None and error.code == "pickle.frame":
        return "frame"  # nothing that follows is believed, and CPython in C may read other bytes then
    if any(code == "pickle.memo" for code, _, _ in machine.oddities):
        assert reports_ambiguity(data)
        return "ambiguous"  # CPython in C takes gigabytes to find out
    in_c, in_python = both(data)
    if (in_c.error is None) != (in_python.error is None) or in_c.asked != in_python.asked:
        if in_c.error is not None and in_python.error is not None and error is not None:
            return "refused"  # one of them only got further
        assert reports_ambiguity(data), (data, in_c, in_python)
        return "ambiguous"
    if in_c.error is None:
        assert error is None, (data, error)
        assert paths(machine) == in_python.mapped, (data, paths(machine), in_python.mapped)
        return "read"
    if error is None:
        # What only fails for the type of something computed is nothing that can be known without running.
        # And which encoding a text of Python 2 has, is for the reader to say.
        of_type = isinstance(
            in_c.error, (TypeError, AttributeError, UnicodeDecodeError)
        ) or "STACK_GLOBAL" in str(in_c.error)
        assert of_type or "NEWOBJ" in str(in_c.error), (data, in_c, in_python)
        assert paths(machine) >= in_python.mapped
        return "unknowable"
    assert paths(machine) >= in_python.mapped, (data, error, in_python)
    return "refused"


# Values


def plain(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """What the machine built, as the values they stand for."""
    seen = {} if seen is None else seen
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, list):
        made = seen[id(value)] = []
        made.extend(plain(item, seen) for item in value)
        return made
    if isinstance(value, Pairs):
        made_dict: dict[Any, Any] = {}
        seen[id(value)] = made_dict
        made_dict.update((plain(key, seen), plain(item, seen)) for key, item in value.items())
        return made_dict
    if isinstance(value, tuple):
        return tuple(plain(item, seen) for item in value)
    if isinstance(value, Elements):
        kind = frozenset if isinstance(value, Frozen) else set
        return kind(plain(item, seen) for item in value.items)
    if isinstance(value, Blob):
        return value.head
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Thing) and value.path in CALLS:
        return CALLS[value.path](*plain(value.args, seen))
    return value


CALLS: dict[str, Callable[..., Any]] = {
    "_codecs.encode": lambda text, encoding: text.encode(encoding),
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.bytearray": lambda *args: bytearray(*(a.encode("latin-1") if isinstance(a, str) else a for a in args)),  # noqa: E501
    "builtins.complex": complex,
    "builtins.bytes": bytes,
}  # fmt: skip


def _recursive() -> list[Any]:
    made: list[Any] = [1]
    made.append(made)
    made.append({"self": made})
    return made


PLAIN = [
    None, True, False, 0, 1, -1, 255, 256, 65535, 65536, 2**31 - 1, 2**31, -(2**31), 2**63, -(2**200), 10**600,  # noqa: E501
    0.0, -0.5, 1e300, float("inf"), "", "text", "é\U0001f600", "\udc80", "line\nend\\u", "x" * 300, b"", b"bytes",  # noqa: E501
    bytes(range(256)), b"y" * 70_000, "z" * 70_000, bytearray(b"mutable"), [], [1, [2, [3]]], (), (1,), (1, 2),  # noqa: E501
    (1, 2, 3), (1, 2, 3, 4), {}, {"a": {"b": [1, (2, 3)]}}, {(1, 2): 3, frozenset((1,)): 2}, set(), {1, 2},
    frozenset(), frozenset(("a", "b")), [["shared"] * 3] * 3, list(range(3000)), {i: str(i) for i in range(2500)}, 1j,  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("number", range(len(PLAIN)))
def test_plain_data_is_what_pickle_gives(number: int, protocol: int) -> None:
    data = pickle.dumps(PLAIN[number], protocol)
    machine, error = ours(data)
    assert error is None
    assert machine.feed.offset == len(data)
    found = plain(machine.result)
    if len(repr(PLAIN[number])) > 65_000:  # only the first part of a long text is kept
        assert PLAIN[number][:60_000] == found[:60_000]
    else:
        assert found == pickle.loads(data)
    assert check(data) == "read"


@pytest.mark.parametrize("protocol", range(6))
def test_what_contains_itself_is_built(protocol: int) -> None:
    machine, error = ours(pickle.dumps(_recursive(), protocol))
    assert error is None
    found = plain(machine.result)
    assert found[1] is found
    assert found[2]["self"] is found


# Objects of every kind


class Reduced:
    def __reduce__(self) -> Any:
        return Reduced, (), {"state": 1}, iter([1, 2]), iter([("k", "v")])

    def append(self, item: object) -> None: ...
    def __setitem__(self, key: object, value: object) -> None: ...


class Stateful:
    def __getstate__(self) -> Any:
        return {"kept": [1, 2], "other": self.__class__}


class Slots:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, [2]


class NewArguments:
    def __getnewargs_ex__(self) -> Any:
        return (1,), {"named": 2}

    def __new__(cls, *args: Any, **kwargs: Any) -> NewArguments:
        return object.__new__(cls)


class Outer:
    class Inner:
        pass


class Color(enum.Enum):
    RED = 1


class Subclass(dict):  # type: ignore[type-arg]
    pass


class ListSubclass(list):  # type: ignore[type-arg]
    pass


@dataclasses.dataclass
class Data:
    a: int = 1
    b: Any = None


Point = collections.namedtuple("Point", "x y")

OBJECTS: list[Callable[[], Any]] = [
    Reduced, Stateful, Slots, NewArguments, Outer.Inner, lambda: Color.RED, lambda: [Color.RED, Color],
    lambda: Subclass(a=1), lambda: ListSubclass([1, 2]), lambda: Data(2, Data()), lambda: Point(1, Data()),
    lambda: collections.OrderedDict(a=1), lambda: collections.defaultdict(list, a=[1]),
    lambda: collections.Counter("aab"), lambda: collections.deque([1], 3), lambda: collections.ChainMap({"a": 1}),  # noqa: E501
    lambda: datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC), lambda: uuid.UUID(int=3),
    lambda: pathlib.PurePosixPath("a/b"), lambda: decimal.Decimal("1.5"), lambda: fractions.Fraction(1, 3),
    lambda: range(3), lambda: slice(1, 2), lambda: ValueError("x"), lambda: len, lambda: dict.fromkeys,
    lambda: np.arange(5), lambda: np.float32(1), lambda: np.array(["a", None], dtype=object), lambda: np.dtype("<f4"),  # noqa: E501
    lambda: np.random.default_rng(1), lambda: np.zeros(3, dtype=[("a", "i4")]), lambda: torch.float16,
    lambda: type(None), lambda: Ellipsis, lambda: NotImplemented, lambda: [Data(), Data()] * 2,
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("number", range(len(OBJECTS)))
def test_names_of_real_objects_are_those_both_unpicklers_ask_for(number: int, protocol: int) -> None:
    made = OBJECTS[number]()
    try:
        data = pickle.dumps(made, protocol)
    except (TypeError, pickle.PicklingError):  # slots need protocol 2
        assert protocol < 2
        return
    # Before protocol 4, a class inside a class is what `getattr` returns.
    assert check(data) == ("unknowable" if made.__class__ is Outer.Inner and protocol in (2, 3) else "read")


# Broken pickles, from CPython's own tests


_NOT_RUN = ("memory", "threads", "race")  # tests that take long, or write files where they stand


def _pickletester() -> Iterator[bytes]:
    """Every byte string that CPython's tests of unpicklers are about; none where Python came without them."""
    if pickletester is None:
        return

    class Recorder(pickletester.AbstractUnpickleTests, pickletester.unittest.TestCase):
        seen: list[bytes] = []  # noqa: RUF012
        bad_stack_errors = truncated_errors = (Exception,)
        _testMethodName = "loads"  # noqa: N815

        def __init__(self) -> None:
            super().__init__("loads")

        def loads(self, data: bytes, **kwargs: Any) -> Any:
            self.seen.append(bytes(data))
            raise pickle.UnpicklingError

        def check_unpickling_error(self, errors: Any, data: bytes) -> None:
            self.seen.append(bytes(data))

        def check_unpickling_error_strict(self, errors: Any, data: bytes) -> None:
            self.seen.append(bytes(data))

    recorder = Recorder()
    for name in dir(recorder):
        if name.startswith("test_") and not any(word in name for word in _NOT_RUN):
            try:
                getattr(recorder, name)()
            except Exception:  # the first string of a test is seen, whatever the test makes of our answer  # noqa: BLE001
                continue
    yield from recorder.seen
    yield from (
        value
        for name, value in vars(pickletester).items()
        if name.startswith("DATA") and isinstance(value, bytes)
    )


BROKEN = sorted(set(_pickletester()))


def test_there_are_many_of_cpythons_own_cases() -> None:
    if pickletester is None:
        pytest.skip("this Python came without its own tests")
    assert len(BROKEN) > 200


@pytest.mark.parametrize("number", range(len(BROKEN)))
def test_cpythons_own_cases_are_refused_where_both_unpicklers_refuse(number: int) -> None:
    data = BROKEN[number]
    if b"\x82" in data or b"\x83" in data or b"\x84" in data:
        pytest.skip("the registry of extensions is not in the file")
    check(data)


def test_every_cut_of_a_pickle_is_refused() -> None:
    for protocol in range(6):
        data = pickle.dumps([Data(1, {"a": (1, b"x", 2**70, 1.5, "é")}), _recursive(), {1, 2}], protocol)
        for end in range(len(data)):
            assert ours(data[:end])[1] is not None
            check(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"N(e.", b"N(\x90.", b"](\x90.", b"]K\x00b.", b"]}b.", b"cos\nsystem\n]R.", b"cos\nsystem\n]\x81.",
        b"c\nsystem\n.", b"cos\n\n.", b"F 1.0\n.", b"F1_0\n.", b"F1e999\n.", b"I010\n.",
        b"I1\x00x\n.", b"g0\x00x\n.", b"Nr\xff\xff\xff\x0f.", b"Np99999999999999999999\n.",
        b"\x80\x04\x95\x05\0\0\0\0\0\0\0N.N..N.",
    ],
)  # fmt: skip
def test_what_the_two_unpicklers_disagree_on_is_ambiguous(data: bytes) -> None:
    if b"r\xff" not in data:  # it takes gigabytes
        check(data)
    assert reports_ambiguity(data)


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem", b"cos\nsystemx", b"cos", b"Vx", b"(ios\nsystem\n.", b"(cos\nsystem\no.", b"I0x1f\n.", b"L0x1fL\n.",  # noqa: E501
        b"L010L\n.", b"S'os'\nS'system'\n\x93.", b"U\x02osU\x06system\x93.", b"C\x02os\x8c\x06system\x93.", b"S'x' \n.",  # noqa: E501
        b"\x8c\x01\xff.", b"c\xff\nx\n.", b"P\xff\n.", b"V\\u12\n.", b"S'\\x1'\n.", b"(N.", b"(.", b"N0.", b"(0N.",  # noqa: E501
        b"((000N.", b"N(1.", b"N1.", b"2.", b"(2.", b"N\x94N\x94h\x01.", b"Nq\x05N\x94h\x01.", b"Nq\x00N\x94h\x01.",  # noqa: E501
        b"]K\x00K\x01s.", b"]K\x05aK\x00K\x07s.", b"\x96\x01\0\0\0\0\0\0\0xK\x01a.", b"C\x01xK\x01a.", b"}]Ns.",  # noqa: E501
        b"}(]t\x85Ns.", b"(]\x91.", b"(K\x01\x91(K\x02\x90.", b"\x8f(]\x90.", b"N\x98.", b"\x97\x98.", b"NN\x86.",  # noqa: E501
        b"N\x86.", b"(N\x86.", b"N(N\x87.", b"cos\nenviron\nNNs.", b"csys\npath\nNa.", b"c__builtin__\nset\n.",  # noqa: E501
        b"\x80\x03c__builtin__\nset\n.", b"\x80\x02\x80\x04c__builtin__\nset\n.", b"NR.", b"N)R.", b"cos\nsystem\n)]\x92.", b"I)R.",  # noqa: E501
        b"c\xc3\xa9\nx\n.", b"(i\xc3\xa9\nx\n.", b"\x80\x06N.", b"NNb.", b"(NNd.", b"(Nd.", b"}(Nu.", b"}(u.", b"N(u.",  # noqa: E501
        b"N.garbage", b"Ncx\ny\n0.", b"\x8a\x00.", b"\x8b\xff\xff\xff\xff.", b"T\xff\xff\xff\xff.", b"B\x01\0\0\0x.",  # noqa: E501
    ],
)  # fmt: skip
def test_corners_of_the_format(data: bytes) -> None:
    check(data)


def test_extensions_are_named_by_number() -> None:
    copyreg.add_extension("fractions", "Fraction", 240)
    try:
        for data in (b"\x82\xf0.", b"\x83\xf0\0.", b"\x84\xf0\0\0\0."):
            for kind in (pickle.Unpickler, pickle._Unpickler):  # type: ignore[attr-defined]
                copyreg.clear_extension_cache()
                assert _run(kind, data).asked == [("fractions", "Fraction")]
            assert paths(ours(data)[0]) == {"<extension registry>.240"}
    finally:
        copyreg.remove_extension("fractions", "Fraction", 240)
        copyreg.clear_extension_cache()
    for data in (b"\x82\0.", b"\x84\xff\xff\xff\xff."):
        assert check(data) == "refused"


# Random programs

_WORDS = ["os", "system", "a.b", "torch", "__builtin__", "set", "é", "x", "collections", "OrderedDict"]


def _frame(rng: random.Random) -> bytes:
    return b"\x95" + struct.pack("<Q", rng.choice([0, 1, 2, 3, 5, 9, 14]))


def _word(rng: random.Random) -> bytes:
    data = rng.choice(_WORDS).encode()
    kind = rng.randrange(5)
    if kind == 0:
        return b"X" + struct.pack("<I", len(data)) + data
    if kind == 1:
        return b"U" + bytes([len(data)]) + data
    if kind == 2:
        return b"V" + data.decode().encode("raw-unicode-escape") + b"\n"
    return b"\x8c" + bytes([len(data)]) + data


def _global(rng: random.Random) -> bytes:
    return b"c" + rng.choice(_WORDS).encode() + b"\n" + rng.choice(_WORDS).encode() + b"\n"


def _memo(rng: random.Random) -> bytes:
    index = rng.randrange(4)
    return rng.choice([
        b"q%c" % index, b"h%c" % index, b"p%d\n" % index, b"g%d\n" % index, b"\x94",
        b"r" + struct.pack("<I", index), b"j" + struct.pack("<I", index),
    ])  # fmt: skip


_PUSH = [b"N", b"\x88", b"K\x05", b"I7\n", b"I01\n", b"L5L\n", b"F1.5\n", b"G" + b"?\xf0" + b"\0" * 6, b"M\1\2", b"J\1\0\0\0",  # noqa: E501
         b"\x8a\x01\x05", b"C\x01x", b"B\1\0\0\0y", b"\x96\1\0\0\0\0\0\0\0z", b"]", b"}", b")", b"\x8f", b"S'q'\n", b"P5\n", b"\x97"]  # fmt: skip  # noqa: E501
_WORK = [b"(", b"(", b"(", b"0", b"1", b"2", b"t", b"l", b"d", b"\x85", b"\x86", b"\x87", b"a", b"e", b"s", b"u", b"\x90", b"\x91",  # noqa: E501
         b"R", b"\x81", b"\x92", b"o", b"b", b"\x93", b"\x93", b"Q", b"\x98"]  # fmt: skip
_CALLS = [b")R", b")\x81", b")}\x92", b"N\x85R", b"K\1\x85\x81", b"Nb", b"}b", b"0"]


def _program(rng: random.Random) -> bytes:
    parts = [b"\x80" + bytes([rng.choice([2, 3, 4, 5])])] if rng.random() < 0.7 else []
    for _ in range(rng.randrange(1, 22)):
        chance = rng.random()
        if chance < 0.25:
            parts.append(rng.choice(_PUSH))
        elif chance < 0.4:
            parts.append(_word(rng))
        elif chance < 0.5:
            parts.append(_word(rng) + _word(rng) + b"\x93")
        elif chance < 0.58:
            parts.append(_global(rng) + rng.choice(_CALLS))
        elif chance < 0.62:
            parts.append(b"i" + _global(rng)[1:])
        elif chance < 0.72:
            parts.append(_memo(rng))
        elif chance < 0.74:
            parts.append(_frame(rng))
        elif chance < 0.75:
            parts.append(b"\x80" + bytes([rng.randrange(6)]))
        else:
            parts.append(rng.choice(_WORK))
    return b"".join(parts) + b"."


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_are_read_as_both_unpicklers_read_them(seed: int) -> None:
    rng = random.Random(seed)
    seen = collections.Counter(check(_program(rng)) for _ in range(2500))
    assert seen["read"] > 200, seen  # else the programs would show little
    assert seen["refused"] > 300, seen


def _guided(rng: random.Random) -> bytes:
    """A program that nearly always gets through: each step is one the stack allows."""
    parts, depth, marks = [b"\x80\x04"], 0, []  # type: tuple[list[bytes], int, list[int]]
    for _ in range(rng.randrange(2, 60)):
        inner = depth - (marks[-1] if marks else 0)
        options: list[tuple[bytes, int]] = [
            (rng.choice(_PUSH[:-2]), 1), (_word(rng), 1), (_global(rng), 1), (_global(rng) + b")R", 1),
            (b"\x8c\x02os\x94\x8c\x06system\x93", 1), (b"(", 0),
        ]  # fmt: skip
        if inner >= 1:
            options += [
                (b"0", -1),
                (b"2", 1),
                (b"\x85", 0),
                (b"\x94", 0),
                (b"q\0h\0", 1),
                (b"Q", 0),
                (b"0" + _word(rng), 0),
            ]
        if inner >= 2:
            options += [(b"\x86", -1), (b"00" + _global(rng) + b"(Nt\x81", -1)]
        if marks:
            options += [(b"t", -inner + 1), (b"l", -inner + 1), (b"1", -inner)]
        code, change = rng.choice(options)
        parts.append(code)
        depth += change
        if code == b"(":
            marks.append(depth)
        elif code in (b"t", b"l", b"1"):
            marks.pop()
    return b"".join(parts) + b"t" * len(marks) + b"N."


def test_long_programs_are_read_as_both_unpicklers_read_them() -> None:
    rng = random.Random(11)
    seen = collections.Counter(check(_guided(rng)) for _ in range(3000))
    assert seen["read"] > 2900, seen


def test_random_changes_of_real_pickles_are_read_as_both_unpicklers_read_them() -> None:
    rng = random.Random(5)
    for _ in range(3000):
        made = rng.choice(OBJECTS[:20])()
        try:
            data = bytearray(pickle.dumps(made, rng.randrange(6)))
        except (TypeError, pickle.PicklingError):
            continue
        for _ in range(rng.randrange(1, 3)):
            data[rng.randrange(len(data))] = rng.choice([rng.randrange(256), *b"(01tcR.h\x93"])
        if not set(data) & set(b"\x82\x83\x84rp"):  # extensions, and numbers for which C takes gigabytes
            check(bytes(data))


@pytest.mark.parametrize("window", [16, 17, 33, 64])
def test_the_size_of_the_window_does_not_matter(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(window)
    programs = [_guided(rng) for _ in range(200)] + [_program(rng) for _ in range(500)]
    programs += [
        pickle.dumps(PLAIN[number], protocol) for number in range(len(PLAIN)) for protocol in (0, 2, 5)
    ]

    def answers() -> list[Any]:
        runs = (ours(data) for data in programs)
        return [(paths(m), m.feed.offset, m.oddities, e and (e.code, e.offset)) for m, e in runs]

    expected = answers()
    monkeypatch.setattr(feeds, "WINDOW", window)
    monkeypatch.setattr(feeds, "FIRST_WINDOW", window)
    assert answers() == expected


def test_streams_one_after_the_other_begin_where_pickle_says() -> None:
    rng = random.Random(3)
    for _ in range(200):
        first, second = (pickle.dumps(rng.choice(OBJECTS[:20])(), rng.randrange(2, 6)) for _ in range(2))
        file = io.BytesIO(first + second)
        pickle.load(file)
        machine, _ = ours(first + second)
        assert machine.feed.offset == len(first) == file.tell()


# torch's own unpickler

_ALLOWED_CALLS = [
    b"ccollections\nOrderedDict\n)R", b"ccollections\nOrderedDict\n)\x81", b"ccollections\nCounter\n)R",
    b"c__builtin__\nset\n]\x85R", b"c__builtin__\nbytearray\n)R", b"cbuiltins\ncomplex\nK\1K\2\x86R",
    b"ctorch\nSize\nK\1K\2\x86\x85R", b"c_codecs\nencode\nX\1\0\0\0xX\6\0\0\0latin1\x86R", b"ctorch\nfloat16\n",  # noqa: E501
    b"ctorch\ndevice\nX\3\0\0\0cpu\x85R", b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n)R}b",
    b"ccollections\nOrderedDict\n)RX\1\0\0\0kNs", b"ccollections\nCounter\n)RX\1\0\0\0kK\1s",
    b"ctorch\nQInt8Storage\n0"[:-1], b"X\7\0\0\0storageK\1\x86Q",
]  # fmt: skip
_REFUSED = [
    b"cos\nsystem\n", b"csys\npath\n", b"ctorch\nload\n", b"cbuiltins\neval\n", b"N\x93", b"0", b"2", b"\x94", b"\x8c\1x",  # noqa: E501
    b"ccollections\nOrderedDict\n)RNa", b"]X\1\0\0\0kNs", b"]}b", b"ctorch\nfloat16\n)R", b"ctorch\nfloat16\n)\x81",  # noqa: E501
    b"ctorch\nFloatStorage\n)R", b"ccollections\nOrderedDict\n)R)R", b"X\1\0\0\0xQ", b"X\1\0\0\0x\x85Q", b"NQ",  # noqa: E501
    b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n", b"ccollections\nOrderedDict.fromkeys\n", b"ctorch.os\nsystem\n",  # noqa: E501
]  # fmt: skip
_NEUTRAL = [
    b"N",
    b"K\1",
    b"]",
    b"}",
    b")",
    b"(Nt",
    b"]Na",
    b"](NNe",
    b"}NNs",
    b"q\0",
    b"h\0",
    b"\x85",
    b"\x86",
    b"U\1x",
    b"\x8f",
]


def _torch_accepts(data: bytes) -> bool:
    unpickler = TorchUnpickler(io.BytesIO(data), encoding="utf-8")
    unpickler.persistent_load = lambda pid: torch.UntypedStorage(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            unpickler.load()
    except Exception:  # an error while an allowed function runs is a refusal, too  # noqa: BLE001
        return False
    return True


@pytest.mark.parametrize("code", _ALLOWED_CALLS + _REFUSED)
@pytest.mark.parametrize("protocol", [2, 3])
def test_the_verdict_on_one_call_is_torchs(code: bytes, protocol: int) -> None:
    data = b"\x80" + bytes([protocol]) + b"N" + code + b"."
    machine, error = ours(data)
    assert (machine.refusals.first is None and error is None) == _torch_accepts(data)


@pytest.mark.parametrize("seed", range(4))
def test_the_verdict_on_random_programs_is_torchs(seed: int) -> None:
    rng = random.Random(seed)
    seen: collections.Counter[bool] = collections.Counter()
    for _ in range(1500):
        parts = rng.choices(_ALLOWED_CALLS, k=rng.randrange(4)) + rng.choices(_NEUTRAL, k=rng.randrange(6))
        parts += rng.choices(_REFUSED, k=rng.randrange(2))
        rng.shuffle(parts)
        data = b"\x80\x02N" + b"".join(parts) + b"."
        machine, error = ours(data)
        if error is None:
            accepts = machine.refusals.first is None
            assert accepts == _torch_accepts(data), (data, machine.refusals.first)
            seen[accepts] += 1
    assert min(seen[True], seen[False]) > 100
