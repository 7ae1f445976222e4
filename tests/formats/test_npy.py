"""Arrays of numpy: what their headers say is what numpy loads, and bad ones are refused by name."""

import ast
import contextlib
import io
import pickle
import struct
import sys
import types
import zipfile
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from modelglass.errors import CorruptFileError, FileError, NotAModelError
from modelglass.formats import npy, npz
from modelglass.formats.archives import models as archives
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.tensors.location import Place


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit",)


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, bytes]]:
    """The streams that were handed to the pickle scanner, which has tests of its own."""
    streams: list[tuple[str | None, bytes]] = []

    def scan_stream(source: Source, reading: Reading) -> None:
        streams.append((source.member, source.up_to(0, source.nbytes)))

    module = types.ModuleType("modelglass.formats.pickles")
    module.scan_stream = scan_stream  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "modelglass.formats.pickles", module)
    return streams


def source_of(data: bytes) -> Source:
    return Source(lambda at, n: data[at : at + n], len(data), file="test.npy")


def read(data: bytes) -> Reading:
    reading = Reading()
    (npz if data[:2] == b"PK" else npy).read(source_of(data), reading)
    return reading


def codes(data: bytes) -> set[tuple[str, str]]:
    return {(finding.code, finding.level) for finding in read(data).findings}


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def saved_z(compressed: bool = False, **arrays: Any) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def raw(header: str | bytes, values: bytes = b"", version: int = 1) -> bytes:
    """A file with that header, written by hand."""
    text = header.encode() if isinstance(header, str) else header
    return (
        npy.MAGIC
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<L", len(text))
        + text
        + values
    )


def said(shape: str, descr: str = "'<f4'", fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def values_at(place: Place) -> Any:
    """The values as the place describes them, read in the plainest way."""
    dtype = np.dtype(place.dtype).newbyteorder(">" if place.big_endian else "<")
    flat = np.frombuffer(place.source.read(place.offset, place.nbytes, ""), dtype)
    if place.strides is None:
        return flat.reshape(place.shape)
    strides = [stride * dtype.itemsize for stride in place.strides]
    return np.lib.stride_tricks.as_strided(flat[place.first :], place.shape, strides)


NUMERIC = ("?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "F", "D")
ARRAYS = {
    **{
        f"{code} {order}": np.arange(6).reshape(2, 3).astype(order + code)
        for code in NUMERIC
        for order in "<>"
    },
    "fortran": np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
    "fortran 1-d": np.asfortranarray(np.arange(5)),
    "0-d": np.array(7, np.int16),
    "empty": np.zeros((3, 0, 2), np.float32),
    "empty fortran": np.asfortranarray(np.zeros((3, 0, 2), np.float32)),
    "view": np.arange(24).reshape(4, 6)[::2, 1::2],
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_numbers_are_what_numpy_loads(array: Any) -> None:
    reading = read(saved(array))
    (tensor,) = reading.tensors
    assert (reading.format, tensor.name, tensor.shape) == ("npy", "array", array.shape)
    assert (tensor.dtype, tensor.nbytes) == (array.dtype.name, array.nbytes)
    assert reading.findings == []
    np.testing.assert_array_equal(values_at(reading.places["array"]), array, strict=True)


OTHERS = {
    "str": (np.array(["a", "bcd"]), "str"),
    "bytes": (np.array([b"a", b"bcd"]), "bytes"),
    "empty text": (np.array([""]), "str"),
    "datetime64": (np.array(["2020-01-01", "NaT"], "datetime64[s]"), "datetime64"),
    "timedelta64": (np.array([1, 2], "timedelta64[25ms]"), "timedelta64"),
    "void": (np.zeros(3, "V5"), "void40"),
    "bfloat16 as numpy sees it": (np.zeros(3, "V2"), "void16"),
    "long double": (np.zeros(3, np.longdouble), np.dtype(np.longdouble).name),
}


@pytest.mark.parametrize(("array", "dtype"), OTHERS.values(), ids=OTHERS)
def test_other_types_have_a_name_and_no_place(array: Any, dtype: str) -> None:
    data = saved(array)
    reading = read(data)
    assert (reading.tensors[0].dtype, reading.tensors[0].shape) == (dtype, array.shape)
    assert (reading.places, reading.findings) == ({}, [])
    with pytest.raises(CorruptFileError, match="are left"):
        read(data[:-1])


STRUCTURED = {
    "plain": [("a", "<f4"), ("b", "<i8", (2, 3))],
    "nested": [("a", [("x", "<f4"), ("y", ">i2")], (2,)), ("b", "U3")],
    "titled": [(("title", "a"), "<f4")],
    "quoted names": [("it's", "<f4"), ('"', "<f4"), ("a\\b\n", "<f4")],
    "names of any language": [("größe", "<f4"), ("尺寸", "i4")],
}


@pytest.mark.parametrize("fields", STRUCTURED.values(), ids=STRUCTURED)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_structured_arrays_are_checked_by_their_size(fields: Any) -> None:
    for align in (False, True):
        array = np.zeros((2, 5), np.dtype(fields, align=align and isinstance(fields[0][0], str)))
        data = saved(array)
        assert codes(data) == {("npy.structured", "info")}
        assert read(data).tensors[0].dtype == "struct"
        assert codes(data + b"x") == {("npy.structured", "info"), ("npy.trailing", "invalid")}
        with pytest.raises(CorruptFileError, match="are left"):
            read(data[:-1])


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.filterwarnings("ignore:Stored array in format")
def test_every_version_is_read(version: tuple[int, int]) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.ones((2, 3)), version)
    assert read(file.getvalue()).tensors[0].shape == (2, 3)


def test_the_long_numbers_of_python_2_are_read() -> None:
    assert read(raw(said("(2L, 3L)"), bytes(24))).tensors[0].shape == (2, 3)


# --- objects ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [np.array([_Evil()], object), np.array([(1, _Evil())], [("a", "i4"), ("b", object)])],
    ids=["object", "object field"],
)
def test_the_pickle_of_an_object_array_is_scanned(
    array: Any, scanned: list[tuple[str | None, bytes]]
) -> None:
    data = saved(array)
    assert codes(data) == {("npy.object", "info")}
    assert scanned[0][1] == data[data.index(b"\x80") :]
    assert read(data).tensors[0].dtype == "object"
    for compressed in (False, True):
        scanned.clear()
        assert codes(saved_z(compressed, a=array)) == {("npy.object", "info")}
        assert scanned == [("a.npy", data[data.index(b"\x80") :])]


def test_a_pickle_among_arrays_is_scanned(scanned: list[tuple[str | None, bytes]]) -> None:
    file = io.BytesIO(saved_z(a=np.ones(3)))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("b.pkl", b"cos\nsystem\n.")
        archive.writestr("c", pickle.dumps(_Evil()), zipfile.ZIP_DEFLATED)
        archive.writestr("notes.txt", "hello")
    assert codes(file.getvalue()) == {("npz.member", "info")}
    assert scanned == [("b.pkl", b"cos\nsystem\n."), ("c", pickle.dumps(_Evil()))]


def test_what_an_object_array_would_run_is_named() -> None:
    for data in (saved(np.array([_Evil()], object)), saved_z(compressed=True, a=np.array([_Evil()], object))):
        reading = read(data)
        assert "high" in {finding.level for finding in reading.findings}
        assert "builtins.exec" in {use.name for use in reading.globals if use.called}
    plain = read(saved(np.array([1, "two", None, {"three": 3.0}], object)))
    assert {finding.level for finding in plain.findings} == {"info"}


def test_a_changed_pickle_in_an_archive_is_a_notice(scanned: list[tuple[str | None, bytes]]) -> None:
    data = saved_z(a=np.array(["needle"], object)).replace(b"needle", b"NEEDLE")
    assert codes(data) == {("npy.object", "info"), ("zip.crc", "notice")}


# --- archives -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_is_what_numpy_loads(compressed: bool) -> None:
    arrays = {**ARRAYS, "/sub/folder.name": np.ones(3)}
    data = saved_z(compressed, **{f"{i} {name}": a for i, (name, a) in enumerate(arrays.items())})
    reading = read(data)
    assert (reading.format, reading.findings) == ("npz", [])
    with np.load(io.BytesIO(data)) as expected:
        assert [tensor.name for tensor in reading.tensors] == list(expected)
        for tensor in reading.tensors:
            array = expected[tensor.name]
            assert (tensor.shape, tensor.dtype) == (array.shape, array.dtype.name)
            if compressed:
                assert tensor.name not in reading.places
            else:
                np.testing.assert_array_equal(values_at(reading.places[tensor.name]), array)


def test_arrays_whose_names_differ_in_case_are_ordinary() -> None:
    data = saved_z(w=np.ones(1), W=np.ones(2))
    assert codes(data) == {("zip.name", "info")}
    assert [tensor.name for tensor in read(data).tensors] == ["w", "W"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_both_arrays_of_a_name_are_shown_and_scanned(scanned: list[tuple[str | None, bytes]]) -> None:
    file = io.BytesIO(saved_z(a=np.ones(3)))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a.npy", saved(np.array([_Evil()], object)))
        archive.writestr("a.npy", saved(np.ones(4)))
    reading = read(file.getvalue())
    assert {finding.code for finding in reading.findings} == {"zip.duplicate", "npy.object"}
    assert [tensor.shape for tensor in reading.tensors] == [(3,), (1,), (4,)]
    assert len({tensor.name for tensor in reading.tensors}) == 3
    assert len(scanned) == 1


def test_one_pickle_listed_many_times_is_not_scanned_as_often(
    scanned: list[tuple[str | None, bytes]],
) -> None:
    data = saved_z(a=np.array(list(range(1000)), object))
    end = data.rindex(b"PK\5\6")
    at = struct.unpack_from("<L", data, end + 16)[0]
    record = data[at:end]
    many = data[:at] + record * 2000
    many += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2000, 2000, len(record) * 2000, at, 0)
    reading = read(many)
    assert {"zip.overlap", "zip.duplicate"} <= {finding.code for finding in reading.findings}
    assert len(scanned) < 100
    assert len([finding for finding in reading.findings if finding.code == "zip.overlap"]) < 25


def test_numpy_archives_are_told_from_others() -> None:
    def format_of(data: bytes) -> str | None:
        reading = Reading()
        archives.read(source_of(data), reading)
        return reading.format

    file = io.BytesIO(saved_z(a=np.ones(3)))
    assert format_of(file.getvalue()) == "npz"
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("archive/data.pkl", b"N.")
    assert format_of(file.getvalue()) == "torch"
    with pytest.raises(NotAModelError):
        format_of(saved_z())


def test_a_long_header_of_a_compressed_array_is_read() -> None:
    array = np.zeros(3, [(f"field{index}", "<f4") for index in range(400)])
    assert codes(saved_z(compressed=True, a=array)) == {("npy.structured", "info")}


def test_a_member_without_the_suffix_is_an_array_for_numpy_too() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", saved(np.ones(3)))
    assert [tensor.name for tensor in read(file.getvalue()).tensors] == ["a"]
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a.npy", saved(np.ones(4)))
    assert codes(file.getvalue()) == {("npz.ambiguous", "invalid")}


def test_a_bad_member_does_not_hide_the_next() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bad.npy", b"not an array")
        archive.writestr("short.npy", saved(np.ones(3))[:-1])
        archive.writestr("good.npy", saved(np.ones(3)))
    reading = read(file.getvalue())
    assert [(f.code, f.level, f.member) for f in reading.findings] == [
        ("npy.magic", "invalid", "bad.npy"),
        ("npy.truncated", "invalid", "short.npy"),
    ]
    assert [tensor.name for tensor in reading.tensors] == ["good"]


@pytest.mark.parametrize("descr", ["'|u1'", "'|O'"])
def test_a_bomb_is_a_limit_and_is_not_unpacked(descr: str, scanned: list[tuple[str | None, bytes]]) -> None:
    nbytes = 512 << 20
    head = raw(said(f"({nbytes},)", descr).ljust(1 << 10))
    stream, chunk = zlib.compressobj(1, zlib.DEFLATED, -15), bytes(1 << 20)
    body = b"".join((stream.compress(head), *(stream.compress(chunk) for _ in range(512)), stream.flush()))
    sizes = struct.pack("<3L", 0, len(body), len(head) + nbytes)
    local = struct.pack("<4s5H", b"PK\3\4", 20, 0, 8, 0, 0) + sizes + struct.pack("<2H", 5, 0) + b"a.npy"
    record = struct.pack("<4s6H", b"PK\1\2", 20, 20, 0, 8, 0, 0) + sizes
    record += struct.pack("<5H2L", 5, 0, 0, 0, 0, 0, 0) + b"a.npy"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(record), len(local) + len(body), 0)
    (finding,) = read(local + body + record + end).findings
    assert (finding.level, finding.member) == ("limit", "a.npy")
    assert finding.code == ("limit" if "O" in descr else "zip.bomb")
    assert scanned == []


# --- bad files ----------------------------------------------------------------------------------------

BAD = {
    "empty": (b"", "npy.magic"),
    "other magic": (b"\x93NUMPX\1\0", "npy.magic"),
    "only magic": (npy.MAGIC, "npy.truncated"),
    "no length": (npy.MAGIC + b"\1\0\1", "npy.truncated"),
    "version 9": (raw(said("()"), bytes(4), 9), "npy.version"),
    "version 1.1": (npy.MAGIC + b"\1\1\0\0", "npy.version"),
    "header of 2 GiB": (npy.MAGIC + b"\2\0\0\0\0\x80" + bytes(99), "npy.header"),
    "header behind the end": (npy.MAGIC + b"\1\0\xff\0{", "truncated"),
    "header of nothing": (raw(""), "npy.header"),
    "shape of 2^60": (raw(said(f"({2**60},)"), bytes(4)), "npy.truncated"),
    "shape of 2^124": (raw(said(f"({2**62}, {2**62})"), bytes(4)), "npy.header"),
    "a dim of 10^30": (raw(said(f"({10**30},)"), bytes(4)), "npy.header"),
    "a dim of a million digits": (raw(said("(" + "9" * 60_000 + ",)"), bytes(4)), "npy.header"),
    "negative dim": (raw(said("(-1,)"), bytes(4)), "npy.header"),
    "bool dim": (raw(said("(True,)"), bytes(4)), "npy.header"),
    "float dim": (raw(said("(1.0,)"), bytes(4)), "npy.header"),
    "text dim": (raw(said("('1',)"), bytes(4)), "npy.header"),
    "shape without a comma": (raw(said("(1)"), bytes(4)), "npy.header"),
    "shape as a list": (raw(said("[1]"), bytes(4)), "npy.header"),
    "65 dims": (raw(said("(" + "1," * 65 + ")"), bytes(4)), "npy.header"),
    "code": (raw(said("(__import__('os').system('true'),)")), "npy.header"),
    "call": (raw("exit()"), "npy.header"),
    "sum": (raw(said("(1+1,)"), bytes(8)), "npy.header"),
    "5,000 brackets": (raw("(" * 5000), "npy.header"),
    "5,000 brackets in descr": (raw(said("()", "[" * 5000 + "]" * 5000)), "npy.header"),
    "open text": (raw("{'descr"), "npy.header"),
    "open dict": (raw("{'descr': '<f4',"), "npy.header"),
    "key without value": (raw("{'descr'}"), "npy.header"),
    "colon without value": (raw("{'descr': }"), "npy.header"),
    "two commas": (raw(said("(1,,)"), bytes(4)), "npy.header"),
    "wrong bracket": (raw(said("(1]"), bytes(4)), "npy.header"),
    "something behind": (raw(said("()") + "x", bytes(4)), "npy.header"),
    "missing key": (raw("{'descr': '<f4', 'shape': ()}"), "npy.header"),
    "further key": (raw("{'a': 1, 'descr': '<f4', 'fortran_order': False, 'shape': ()}"), "npy.header"),
    "key twice": (raw("{'shape': (9,), 'descr': '<f4', 'fortran_order': False, 'shape': ()}"), "npy.header"),
    "key of a list": (raw("{[]: 1}"), "npy.header"),
    "fortran 1": (raw(said("()", fortran="1"), bytes(4)), "npy.header"),
    "unknown type": (raw(said("()", "'<q4'"), bytes(4)), "npy.header"),
    "no type": (raw(said("()", "''"), bytes(4)), "npy.header"),
    "type without size": (raw(said("()", "'<f'"), bytes(4)), "npy.header"),
    "type of a strange digit": (raw(said("()", "'<f\u0664'"), bytes(4), 3), "npy.header"),
    "type is None": (raw(said("()", "None")), "npy.header"),
    "field of two types": (raw(said("()", "[('a',)]")), "npy.header"),
    "field of 2^40 elements": (raw(said("()", f"[('a', '<f4', ({2**40},))]")), "npy.header"),
    "not UTF-8": (raw(b"{'\xff': 1}", b"", 3), "npy.header"),
    "unknown escape": (raw("{'\\q': 1}"), "npy.header"),
    "short escape": (raw("{'\\x1': 1}"), "npy.header"),
    "escape beyond Unicode": (raw("{'\\UFFFFFFFF': 1}"), "npy.header"),
}


@pytest.mark.parametrize(("data", "code"), BAD.values(), ids=BAD)
def test_bad_files_are_refused_by_name(data: bytes, code: str) -> None:
    with pytest.raises(CorruptFileError) as caught:
        read(data)
    assert caught.value.code == code
    assert caught.value.offset is not None


def test_a_bad_header_is_refused_at_its_byte() -> None:
    with pytest.raises(CorruptFileError) as caught:
        read(raw("{'größe' 1}", b"", 3))
    assert caught.value.offset == 12 + len("{'größe' ".encode())


def test_bytes_behind_the_values_are_invalid() -> None:
    assert codes(saved(np.ones(3)) + saved(np.ones(3))) == {("npy.trailing", "invalid")}


# --- any bytes ----------------------------------------------------------------------------------------

literals = st.recursive(
    st.integers(-(10**19), 10**19) | st.booleans() | st.none() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(literals)
def test_the_literal_of_a_value_gives_that_value(value: object) -> None:
    assert npy.literal(repr(value)) == value


@settings(max_examples=1000, deadline=None)
@given(st.text(alphabet="()[]{}'\",: 01aTrue\\x\n-L", max_size=14))
def test_what_is_read_as_a_literal_is_what_python_reads(text: str) -> None:
    try:
        value = npy.literal(text)
    except npy._NotALiteralError:
        return
    if "L" not in text:  # the numbers of Python 2
        assert ast.literal_eval(text.strip().replace("\n", " ")) == value


FILES = (
    saved(np.ones((2, 3), ">f4")),
    saved(np.zeros(2, [("a", "<f4"), ("b", "U2", (2,))])),
    saved_z(a=np.ones(3), b=np.array(["x"])),
    saved_z(compressed=True, a=np.ones(3), b=np.asfortranarray(np.ones((2, 2)))),
)


@settings(max_examples=800, deadline=None)
@given(st.sampled_from(FILES), st.data())
def test_any_changed_byte_gives_a_result_or_an_error_of_ours(file: bytes, data: st.DataObject) -> None:
    at, value = data.draw(st.integers(0, len(file) - 1)), data.draw(st.integers(0, 255))
    changed = file[:at] + bytes([value]) + file[at + 1 :]
    module = types.ModuleType("modelglass.formats.pickles")
    module.scan_stream = lambda source, reading: None  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(FileError):
        patch.setitem(sys.modules, "modelglass.formats.pickles", module)
        read(changed)


@pytest.mark.parametrize("file", FILES)
def test_a_file_cut_anywhere_is_refused(file: bytes) -> None:
    for length in range(len(file)):
        with pytest.raises(CorruptFileError):
            read(file[:length])
