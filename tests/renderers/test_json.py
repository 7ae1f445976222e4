"""JSON for people: what fits on a line stays on it, and it reads back the same."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from modelglass.renderers._json import LINE, pretty

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@pytest.mark.slow
@given(DOCUMENTS)
def test_it_reads_back_the_same(document: Any) -> None:
    assert json.loads(pretty(document)) == document


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        ({"shape": [1, 3, 224, 224]}, 1),
        (list(range(10)), 1),
        (list(range(LINE)), LINE + 2),
        ({"a": list(range(5)), "b": "x" * LINE}, 4),
        ([], 1),
    ],
)
def test_what_fits_stays_on_a_line(document: Any, lines: int) -> None:
    assert len(pretty(document).splitlines()) == lines


def test_what_json_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        pretty({"figure": math.nan})
