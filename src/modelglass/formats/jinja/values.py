"""What an expression of a Jinja template may be, as far as its text tells: constants are folded.

A value is the constants that it may be, and marks of where the rest of it may come from. Folding is ours,
with bounds: Jinja's own would compute whatever a template asks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

MOST_CONSTANTS = 64  # that one value is followed as
LONGEST = 2_000  # characters or items of a constant that is followed
MOST_BITS = 200  # of a number that is followed
HUGE = 1_000_000  # characters, items or bits that no chat template needs

MOST_WORK = 300_000  # operations on constants in one template; long ones count for more

# Where what is not constant comes from.
DATA = "data"  # the messages, tools and settings that a template is given
TOKEN = (
    "token"  # text that may stand beside the template, as special tokens do: whoever wrote it wrote that, too
)
BUILT = "built"  # text that the template puts together
FUNCTION = "function"  # a function or class of the template engine or its caller
OBJECT = "object"  # what the engine makes: a loop, a namespace, a macro


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression may be. `size` is how long it may get at least, where the template alone decides."""

    constants: frozenset[Any] = frozenset()
    marks: frozenset[str] = frozenset()
    size: int = 0

    @property
    def is_constant(self) -> bool:
        return bool(self.constants) and not self.marks


NOTHING = Value()


def of(*marks: str, size: int = 0) -> Value:
    return Value(marks=frozenset(marks), size=size)


def constant(value: Any) -> Value:
    return Value(constants=frozenset((Exact(value),)), size=_length(value))


class Exact:
    """A constant with its type: 1, 1.0 and True are three."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key = (type(value), repr(value) if isinstance(value, (tuple, float)) else value)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Exact) and self.key == other.key


def union(values: Iterable[Value]) -> Value:
    """Any of them."""
    constants: set[Any] = set()
    marks: set[str] = set()
    size = 0
    for value in values:
        constants |= value.constants
        marks |= value.marks
        size = max(size, value.size)
    return bounded(constants, marks, size)


def plain(value: Value) -> list[Any]:
    return [each.value for each in value.constants]


def texts(value: Value) -> list[str]:
    """The texts it may be."""
    return [each for each in plain(value) if isinstance(each, str)]


def may_be_written(value: Value) -> bool:
    """Whether text in it may be what somebody wrote who also wrote the template."""
    return bool(value.marks - {DATA}) or any(isinstance(each, (str, tuple)) for each in plain(value))


def largest(value: Value) -> int:
    """The largest whole number it may be."""
    return max((each for each in plain(value) if type(each) is int), default=0)


class TooComplexError(Exception):
    """The template is larger than is looked at."""


class Folding:
    """Folds constants, a bounded number of times."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def all(self, function: Callable[..., Any], *arguments: Value) -> Value:
        """What a function gives for each choice of constants; built, where not all of it is constant."""
        size = sum(each.size for each in arguments)
        if not all(each.is_constant for each in arguments):
            marks = {mark for each in arguments for mark in each.marks} - {FUNCTION, OBJECT}
            if marks != {DATA} or any(texts(each) for each in arguments):
                marks = {BUILT}
            lists = (item for each in arguments for item in each.constants if isinstance(item.value, tuple))
            return Value(frozenset(lists), frozenset(marks), size)
        choices = product(*(plain(each) for each in arguments))
        results = [self._one(function, chosen) for chosen in islice(choices, MOST_CONSTANTS)]
        more = [of(BUILT, size=size)] if next(choices, None) is not None else []
        return union((*results, *more))

    def _one(self, function: Callable[..., Any], chosen: tuple[Any, ...]) -> Value:
        try:
            result = function(*chosen)
        except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
            result, length = None, HUGE
        else:
            length = _length(result)
        self._left -= 1 + min(length, LONGEST) // 10
        if self._left < 0:
            raise TooComplexError(f"more than {MOST_WORK:,} operations on constants")
        short = length <= LONGEST and (type(result) is not int or result.bit_length() <= MOST_BITS)
        return constant(result) if short else of(BUILT, size=0 if result is None else length)

    def cut(self, function: Callable[..., Any], base: Value, *arguments: Value) -> Value:
        """What a function gives that only takes away from a text: data stays data, whatever cuts it."""
        rest = Value(marks=base.marks - {FUNCTION, OBJECT}, size=base.size)
        return (
            union((rest, self.all(function, Value(base.constants), *arguments))) if base.constants else rest
        )

    def tuple(self, items: list[Value]) -> Value:
        """All of them in one constant; where they are not, whatever may be in it."""
        if all(each.is_constant for each in items):
            return self.all(lambda *each: each, *items)
        return union(items)


def elements(value: Value) -> Value:
    """What is in it: the items of a list, the characters of a text."""
    inside = {
        Exact(item) for each in plain(value) if isinstance(each, (str, tuple)) for item in dict.fromkeys(each)
    }
    return bounded(inside, value.marks)


def bounded(constants: set[Any], marks: Iterable[str], size: int = 0) -> Value:
    """A value; too many constants are no longer followed one by one."""
    if len(constants) <= MOST_CONSTANTS:
        return Value(frozenset(constants), frozenset(marks), size)
    kept = sorted(constants, key=lambda each: repr(each.key))[:MOST_CONSTANTS]
    return Value(frozenset(kept), frozenset((*marks, BUILT)), size)


def _length(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return sum(map(_length, value)) + len(value) if isinstance(value, tuple) else 1


# Operators


def _add(a: Any, b: Any) -> Any:
    return a + b


def _concat(a: Any, b: Any) -> str:
    return str(a) + str(b)


def _times(a: Any, b: Any) -> Any:
    if isinstance(a, (str, tuple)) or isinstance(b, (str, tuple)):
        many, sequence = (b, a) if isinstance(a, (str, tuple)) else (a, b)
        if type(many) is not int or many * _length(sequence) > LONGEST:
            raise ValueError("too long")
    return a * b


def _power(a: Any, b: Any) -> Any:
    if type(a) is not int or type(b) is not int or b < 0 or a.bit_length() * b > MOST_BITS:
        raise ValueError("not followed")
    return a**b


_PLAIN_FORMAT = re.compile(r"(?:[^%]|%%|%[csrdxXo])*")  # without widths, which could ask for any length


def percent(text: Any, values: Any) -> Any:
    """The old way of formatting, or the rest of a division."""
    if isinstance(text, str) and _PLAIN_FORMAT.fullmatch(text) is None:
        raise ValueError("not followed")
    return text % values


OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": _add,
    "Sub": lambda a, b: a - b,
    "Mul": _times,
    "Div": lambda a, b: a / b,
    "FloorDiv": lambda a, b: a // b,
    "Mod": percent,
    "Pow": _power,
}
concatenated = _concat


# Methods and filters of texts and lists


_BRACES = re.compile(r"\{(\w*)\}")


def _format(text: str, *values: Any) -> str:
    """`'{}{1}'.format(…)` with plain fields only."""
    if not isinstance(text, str) or "{" in _BRACES.sub("", text) or "}" in _BRACES.sub("", text):
        raise ValueError("not followed")
    numbers = iter(range(len(values)))
    return _BRACES.sub(lambda field: str(values[int(field[1]) if field[1] else next(numbers)]), text)


def _join(items: Any, between: Any = "") -> str:
    return str(between).join(map(str, items))


def _replace(text: Any, old: str, new: str, *count: int) -> str:
    if len(text) * (len(new) + 1) > 100 * LONGEST:
        raise ValueError("too long")
    return str(text).replace(old, new, *count)


def _reverse(value: Any) -> Any:
    return value[::-1]


def _method(name: str) -> Callable[..., Any]:
    def call(text: Any, *arguments: Any) -> Any:
        result = getattr(str, name)(text, *arguments)
        return tuple(result) if isinstance(result, list) else result

    return call


_CASES = {name: _method(name) for name in ("upper", "lower", "title", "capitalize")}
CUTTING_METHODS: Mapping[str, Callable[..., Any]] = {
    **_CASES,
    **{name: _method(name) for name in ("strip", "lstrip", "rstrip", "split", "rsplit", "swapcase")},
    **{name: _method(name) for name in ("removeprefix", "removesuffix", "casefold", "splitlines")},
}
CUTTING_FILTERS: Mapping[str, Callable[..., Any]] = {
    **_CASES,
    "trim": _method("strip"),
    "string": str,
    "list": tuple,
    "first": lambda items: items[0],
    "last": lambda items: items[-1],
    "int": lambda value, *default: int(value) if len(str(value)) < 20 else 0,
    "length": len,
    "count": len,
    "safe": str,
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "replace": _replace,
    "format": _format,
    "join": lambda between, items: _join(items, between),
}
FILTERS: Mapping[str, Callable[..., Any]] = {
    "replace": _replace,
    "join": _join,
    "reverse": _reverse,
    "format": lambda text, *values: percent(text, values),
}
