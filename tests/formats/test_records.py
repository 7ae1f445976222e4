"""Entries of state dicts that are taken in one step count as they do opcode by opcode, whatever the memo."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from modelglass.errors import FileError
from modelglass.formats.limits import Limits
from modelglass.formats.pickles.machine import Machine
from modelglass.formats.pickles.objects import Persistent, Record, Thing
from modelglass.formats.source import Source

REBUILD, STORAGE, HOOKS, TAG, DEVICE = range(5)  # where the memo has what every entry uses


def put(number: int, *, wide: bool = False) -> bytes:
    return b"r" + struct.pack("<I", number) if wide or number > 255 else b"q" + bytes([number])


def get(number: int) -> bytes:
    return b"j" + struct.pack("<I", number) if number > 255 else b"h" + bytes([number])


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def size(*numbers: int) -> bytes:
    return b"(" + b"".join(b"K" + bytes([number]) for number in numbers) + b"t" if numbers else b")"


def entry(name: str, numbers: list[int], *, sizes: tuple[int, ...], wide: bool = False) -> bytes:
    """One key and its tensor, whose eight (or six) numbers in the memo are those given."""
    at = iter(numbers)

    def stored() -> bytes:
        return put(next(at), wide=wide)

    code = text(name) + stored() + get(REBUILD) + b"((" + get(TAG) + get(STORAGE)
    code += text(str(len(name))) + stored() + get(DEVICE) + b"K\x10t" + stored() + b"QK\0"
    for _ in range(2):  # a shape and strides
        code += size(*sizes) + (stored() if sizes else b"")
    return code + b"\x89" + get(HOOKS) + b")R" + stored() + b"t" + stored() + b"R" + stored()


def state_dict(rng: random.Random, *, tampered: float) -> bytes:
    """A pickle of many entries, of which some use other numbers than torch would, or numbers of others."""
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n" + put(REBUILD)
    head += b"0ctorch\nFloatStorage\n" + put(STORAGE) + b"0ccollections\nOrderedDict\n" + put(HOOKS)
    code = head + b"0" + text("storage") + put(TAG) + b"0" + text("cpu") + put(DEVICE) + b"0}("
    count, used = 5, list(range(5))
    for index in range(rng.randrange(2, 60)):
        sizes = rng.choice([(), (2,), (2, 3), (4, 3, 1)])
        length = 8 if sizes else 6
        numbers = list(range(count, count + length))
        if rng.random() < tampered:
            numbers = _tampered(rng, numbers, used)
        code += entry(f"w{index}", numbers, sizes=sizes, wide=rng.random() < 0.1)
        used += numbers
        count = len(set(used)) if rng.random() < 0.9 else count + length
        if rng.random() < tampered:
            code += text(f"got{index}") + get(rng.choice(used))
        if rng.random() < tampered / 2:  # something else takes a number
            taken = rng.choice([*used[-20:], count, count + rng.randrange(20)])
            code += text(f"own{index}") + b"K\x07" + put(taken)
            used.append(taken)
    return code + b"u."


def _tampered(rng: random.Random, numbers: list[int], used: list[int]) -> list[int]:
    made = list(numbers)
    way = rng.randrange(4)
    if way == 0:
        rng.shuffle(made)
    elif way == 1:
        made[rng.randrange(len(made))] = rng.choice(used[5:] or made)
    elif way == 2:
        made[rng.randrange(1, len(made) - 1)] += rng.randrange(1, 40)
    else:
        made[rng.randrange(len(made))] = rng.choice([REBUILD, STORAGE, HOOKS, TAG, DEVICE])
    return made


def run(data: bytes, *, quick: bool) -> tuple[Machine, str | None]:
    source = Source(lambda at, n: data[at : at + n], len(data), file="x.pkl")
    machine = Machine(source, Limits(), quick=quick)
    try:
        machine.run()
    except FileError as error:
        return machine, error.text
    return machine, None


def plain(value: Any) -> Any:
    """An inert value as tuples and texts, to compare."""
    if isinstance(value, Thing):
        parts = (value.function, value.args, value.kwargs, value.state, value.pairs, value.listed)
        return ("call", *map(plain, parts))
    if isinstance(value, Persistent):
        return "outside", plain(value.id)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(plain, value)
    if hasattr(value, "flat"):
        return "dict", plain(value.flat)
    return getattr(value, "path", value)


def assert_same(data: bytes) -> Machine:
    (quick, error), (slow, expected) = run(data, quick=True), run(data, quick=False)
    assert error == expected
    if error is None:
        assert plain(quick.result) == plain(slow.result)
        for number in slow._memo:
            quick._recall(number)
            assert plain(quick._stack[-1]) == plain(slow._memo[number]), number
    counts = [[(use.path, use.calls, use.named) for use in machine.uses] for machine in (quick, slow)]
    assert counts[0] == counts[1]
    return quick


@pytest.mark.parametrize("seed", range(300))
def test_numbers_of_the_memo_are_honoured(seed: int) -> None:
    rng = random.Random(seed)
    assert_same(state_dict(rng, tampered=rng.choice([0.02, 0.1, 0.5])))


def test_ordinary_entries_are_taken_in_one_step() -> None:
    machine = assert_same(state_dict(random.Random(7), tampered=0))
    assert sum(type(value) is Record for value in machine.result.flat) > 3


def test_hooks_that_are_put_into_an_entry_stay_in_it() -> None:
    data = state_dict(random.Random(7), tampered=0)[:-2]
    hooks = 5 + 8 + 8 + 5  # of the third entry
    machine = assert_same(data + text("more") + get(hooks) + text("k") + b"K\x01su.")
    assert machine.result is not None
