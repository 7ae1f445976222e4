from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.documents import strict_json
from modelglass.formats.limits import Limits
from modelglass.formats.source import Source

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**39), 10**39)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab"\\[]{}', max_size=3), inner),
    max_leaves=20,
)


def _loads(data: bytes, limits: Limits | None = None, offset: int = 0) -> Any:
    source = Source(lambda at, n: data[at : at + n], len(data), file="x.json")
    return strict_json.loads(data, source, limits or Limits(), offset=offset)


@given(VALUES, st.booleans())
def test_what_the_standard_library_writes_reads_back(value: Any, ascii_only: bool) -> None:
    assert _loads(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


def test_what_tokenizers_say_when_no_text_is_too_long() -> None:
    assert _loads(json.dumps({"model_max_length": int(1e30)}).encode()) == {"model_max_length": int(1e30)}


@pytest.mark.parametrize(
    ("data", "code", "offset"),
    [
        (b'{"a": 1, "a": 2}', "json.duplicate-key", 9),
        (b'{"x": {"a": 1}, "a": {"b": 0, "\\u0062": 1}}', "json.duplicate-key", 30),
        (b'["NaN", NaN]', "json.number", 8),
        (b"[-Infinity]", "json.number", 1),
        (b"[1, 1e999]", "json.number", 4),
        (b"[1" + b"0" * 40 + b"]", "json.number", 1),
        (b"[" + b"9" * 5000 + b"]", "json.number", 1),
        (b"[1" + b"0" * 400 + b".5]", "json.number", 1),
        (b"\xef\xbb\xbf{}", "json.encoding", 0),
        (b'["\xff"]', "json.encoding", 2),
        (b'["\xed\xa0\x80"]', "json.encoding", 2),
        (b'["\\ud800"]', "json.encoding", 2),
        (b'["\\\\ \\udc00"]', "json.encoding", 5),
        (b'["\\ud800\\ud800"]', "json.encoding", 2),
        ('["é", ]'.encode(), "json.syntax", 7),
        (b"", "json.syntax", 0),
        (b'"abc', "json.syntax", 0),
        (b"[1]\0", "json.syntax", 3),
        (b"[" * 100_000, "json.depth", 64),
        (b'{"a":' * 100_000, "json.depth", 64 * 5),
        (b"[" * 65 + b"]" * 65, "json.depth", 64),
    ],
)
def test_a_problem_is_named_with_its_position(data: bytes, code: str, offset: int) -> None:
    with pytest.raises(CorruptFileError) as raised:
        _loads(data, offset=1000)
    assert (raised.value.code, raised.value.offset) == (code, 1000 + offset)


def test_both_values_of_a_duplicate_key_are_shown() -> None:
    with pytest.raises(CorruptFileError, match=r"'w'.*first \[1, 2\], then 'three'"):
        _loads(b'{"w": [1, 2], "w": "three"}')


def test_brackets_in_strings_are_not_depth() -> None:
    value = {"[" * 1000: ["{" * 1000, '\\"[' * 1000, "\\" * 7], "end\\": "[" * 200_000}
    assert _loads(json.dumps(value).encode()) == value


@pytest.mark.parametrize("shift", range(4))
def test_an_escape_across_two_windows_stays_one(shift: int) -> None:
    value = ["x" * (strict_json._WINDOW - 8 + shift) + '\\\\"""\\"' * 3 + "[" * 100]
    assert _loads(json.dumps(value).encode()) == value


def test_depth_is_counted_across_windows() -> None:
    filler = b'"' + b"x" * strict_json._WINDOW + b'",'
    nested = (b"[" + filler) * 64 + b"0" + b"]" * 64
    assert isinstance(_loads(nested), list)
    with pytest.raises(CorruptFileError) as raised:
        _loads(b"[" + nested + b"]")
    assert raised.value.code == "json.depth"
    assert raised.value.offset == 1 + 63 * (1 + len(filler))


def test_as_deep_as_the_limit_is_read() -> None:
    wide = b"[" + b",".join([b"[" * 63 + b"]" * 63] * 3000) + b"]"
    assert len(_loads(wide)) == 3000


def test_a_raised_limit_ends_in_an_error_of_ours_too() -> None:
    with pytest.raises(CorruptFileError, match="nested too deeply"):
        _loads(b"[" * 100_000, Limits(json_depth=1_000_000))


def test_a_document_over_the_limit_is_not_parsed() -> None:
    with pytest.raises(LimitError, match="json_nbytes"):
        _loads(b"[" * 100, Limits(json_nbytes=99))


def test_a_string_without_end_takes_linear_time() -> None:
    with pytest.raises(CorruptFileError, match="not JSON"):
        _loads(b'"' + b'\\"' * 1_000_000)


@settings(max_examples=200)
@given(VALUES, st.integers(0, 10_000), st.integers(0, 255))
def test_a_changed_byte_gives_a_value_or_an_error_of_ours(value: Any, at: int, byte: int) -> None:
    data = bytearray(json.dumps(value).encode())
    data[at % len(data)] = byte
    try:
        ours = _loads(bytes(data))
    except FileError:
        return
    assert ours == json.loads(bytes(data))
