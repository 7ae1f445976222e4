"""Values of any framework in neutral terms."""

from __future__ import annotations

import math
from collections import namedtuple
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from modelglass.frameworks.shared.describe import (
    constructor_names,
    instances_in,
    is_plain,
    json_safe,
    leaves,
    settings_of,
    text_of,
)


class Array:
    """What stands for a framework's array."""


@dataclass
class Pair:
    one: Any
    other: Any


Named = namedtuple("Named", "first second")


def told(value: Any) -> str | None:
    return "an array" if isinstance(value, Array) else None


JSON: dict[str, tuple[Any, Any]] = {
    "numbers and texts": ([1, 2.5, "a", None, True], [1, 2.5, "a", None, True]),
    "numbers that JSON lacks": ([math.inf, 2 + 1j], ["inf", "(2+1j)"]),
    "a framework's own": ({"x": Array()}, {"x": "an array"}),
    "sets in order": ({3, 1, 2}, [1, 2, 3]),
    "records": (Pair(1, SimpleNamespace(a=2)), {"one": 1, "other": {"a": 2}}),
    "settings that are their text": (Fraction(1, 3), "1/3"),
    "numpy's numbers": (np.float32(0.5), 0.5),
    "types and functions by name": ([int, len], ["builtins.int", "len"]),
    "partial functions": (partial(len, [1]), ["len", [1], {}]),
    "objects by type": (Array(), "an array"),
}


@pytest.mark.parametrize(("value", "expected"), JSON.values(), ids=JSON)
def test_settings_as_json(value: Any, expected: Any) -> None:
    assert json_safe(value, told) == expected


def test_texts_are_short_and_tell_no_addresses() -> None:
    assert text_of(3.5, told) == "3.5"
    assert text_of(Array(), told) == "an array"
    assert text_of(object(), told) == "object"
    assert len(text_of("x" * 1000, told)) == 80


def test_leaves_are_named_by_the_way_to_them() -> None:
    array = Array()
    structure = {"a": [1, (array,)], "b": Named(2, Pair(3, None))}
    assert list(leaves(structure, "", lambda value: isinstance(value, Array))) == [
        ("a.0", 1),
        ("a.1.0", array),
        ("b.first", 2),
        ("b.second.one", 3),
        ("b.second.other", None),
    ]
    assert list(leaves(array, "x", lambda value: isinstance(value, Array))) == [("x", array)]
    assert list(instances_in(structure, Array)) == [array]


def test_what_is_a_leaf_is_not_looked_into() -> None:
    assert list(leaves({"a": {"b": 1}}, "x", lambda value: isinstance(value, dict))) == [
        ("x", {"a": {"b": 1}})
    ]


def test_settings_are_what_the_constructor_names_or_what_is_plain() -> None:
    class Layer:
        def __init__(self, size: int, act: Any, *args: Any, weight: Any = None, **more: Any) -> None: ...

    assert constructor_names(Layer) == ("size", "act", "weight")
    attributes = {"size": 3, "act": len, "weight": Array(), "other": len, "sizes": [1, 2], "data": [0] * 65}
    found = settings_of(attributes.items(), constructor_names(Layer), (), Array, told)
    assert found == {"size": 3, "act": "len", "sizes": [1, 2]}
    assert is_plain(Array(), (Array,))
