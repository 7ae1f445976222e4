"""Zip archives: genuine ones give nothing but their members, and every lie is named."""

import contextlib
import io
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.archives import zip as zips
from modelglass.formats.archives.zip import Archive
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source

EVIL = b"cos\nsystem\n(S'true'\ntR."


def source_of(data: bytes) -> Source:
    return Source(lambda at, n: data[at : at + n], len(data), file="test.zip")


def opened(data: bytes, **limits: int) -> tuple[Archive, Reading]:
    reading = Reading(limits=Limits(**limits))
    return zips.read(source_of(data), reading), reading


def codes(data: bytes) -> set[tuple[str, str]]:
    return {(finding.code, finding.level) for finding in opened(data)[1].findings}


def zipped(*members: tuple[str, bytes], method: int = 0, comment: bytes = b"") -> bytes:
    with warnings.catch_warnings(), io.BytesIO() as file:
        warnings.simplefilter("ignore")  # about duplicate names, which are meant
        with zipfile.ZipFile(file, "w", method) as archive:
            for name, data in members:
                archive.writestr(zipfile.ZipInfo(name), data, method)
            archive.comment = comment
        return file.getvalue()


def ptzip(data: bytes = EVIL, *more: tuple[str, bytes]) -> bytes:
    return zipped(
        ("archive/data.pkl", data),
        ("archive/version", b"3\n"),
        ("archive/byteorder", b"little"),
        ("archive/data/0", bytes(16)),
        *more,
    )


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def directory_at(data: bytes) -> int:
    return int(struct.unpack_from("<L", data, data.rindex(b"PK\5\6") + 16)[0])


def in_directory(data: bytes, field: int, value: bytes) -> bytes:
    """The archive with a field of its first central record overwritten."""
    return patched(data, directory_at(data) + field, value)


class _Forward(io.RawIOBase):
    """A file that cannot seek, for which the writer leaves sizes to data descriptors."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.data += bytes(data)  # type: ignore[call-overload]
        return len(bytes(data))  # type: ignore[call-overload]


# --- genuine archives ---------------------------------------------------------------------------------


def torch_save() -> bytes:
    file = io.BytesIO()
    torch.save({"w": torch.ones(3, 4), "e": torch.zeros(0), "é": 1}, file)
    return file.getvalue()


def torch_jit() -> bytes:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU())), file)
    return file.getvalue()


def torch_export() -> bytes:
    file = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(4, 5), (torch.zeros(2, 4),)), file)
    return file.getvalue()


def numpy_savez() -> bytes:
    file = io.BytesIO()
    np.savez(file, a=np.ones((3, 4)), b=np.int8(3))
    return file.getvalue()


def numpy_savez_compressed() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, a=np.ones((3, 4000)), b=np.int8(3))
    return file.getvalue()


def stdlib_mixed() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/", "")
        archive.writestr("folder/text", "x" * 10_000)
        archive.writestr("é", "umlaut")
        archive.comment = b"a comment"
        with archive.open("large", "w", force_zip64=True) as member:
            member.write(b"1" * 100)
    return file.getvalue()


def stdlib_forward() -> bytes:
    file = _Forward()
    with zipfile.ZipFile(file, "w") as archive:  # type: ignore[call-overload]
        archive.writestr("a", "x" * 100)
        archive.writestr("b", "x" * 100, zipfile.ZIP_DEFLATED)
    return bytes(file.data)


def empty() -> bytes:
    return zipped()


GENUINE = (
    torch_save,
    torch_jit,
    torch_export,
    numpy_savez,
    numpy_savez_compressed,
    stdlib_mixed,
    stdlib_forward,
    empty,
)


@pytest.mark.parametrize("make", GENUINE)
@pytest.mark.filterwarnings("ignore")  # the writers' own, about their future
def test_genuine_archives_give_their_members_and_no_finding(make: Callable[[], bytes]) -> None:
    data = make()
    archive, reading = opened(data)
    with zipfile.ZipFile(io.BytesIO(data)) as expected:
        infos = expected.infolist()
        assert [entry.name for entry in archive.entries] == [info.filename for info in infos]
        for entry, info in zip(archive.entries, infos, strict=True):
            assert (entry.nbytes, entry.packed_nbytes, entry.crc, entry.offset, entry.method) == (
                info.file_size,
                info.compress_size,
                info.CRC,
                info.header_offset,
                info.compress_type,
            )
            member = archive.member(entry, Limits())
            assert member.up_to(0, member.nbytes) == expected.read(info)
            assert archive.start(entry, 7, Limits()) == expected.read(info)[:7]
            zips.check_crc(archive, entry, reading)
    assert reading.findings == []


def test_a_torch_file_above_4_gib_is_read_by_its_zip64_fields(tmp_path) -> None:
    path = tmp_path / "big.pt"
    with torch.serialization.skip_data():  # the file has holes instead of values
        torch.save({"a": torch.empty(5_000_000_000, dtype=torch.uint8), "b": torch.empty(10)}, path)
    with OpenFile(path) as source, zipfile.ZipFile(path) as expected:
        reading = Reading()
        archive = zips.read(source, reading)
        assert reading.findings == []
        assert {entry.name: (entry.nbytes, entry.offset) for entry in archive.entries} == {
            info.filename: (info.file_size, info.header_offset) for info in expected.infolist()
        }
        assert source.meter.nbytes < 300_000


def test_more_members_than_16_bits_count_are_all_read() -> None:
    data = zipped(*((f"data/{index}", b"") for index in range(66_000)))
    archive, reading = opened(data)
    assert len(archive.entries) == 66_000
    assert reading.findings == []
    # Both of its end records count the members, and must agree.
    lying = patched(data, data.rindex(b"PK\5\6") + 10, b"\1\0")
    assert ("zip.ambiguous", "invalid") in codes(lying)


def test_a_stored_member_is_a_window_with_positions_of_its_own() -> None:
    archive, _ = opened(ptzip())
    entry = archive.find("archive/data.pkl")
    assert entry is not None
    member = archive.member(entry, Limits())
    assert (member.member, member.nbytes, member.read(4, 6, "")) == ("archive/data.pkl", len(EVIL), b"system")
    assert archive.find("archive/none") is None


def test_a_comment_is_no_finding() -> None:
    assert codes(zipped(("a", b"1"), comment=b"c" * 65_535)) == set()


# --- two readings -------------------------------------------------------------------------------------


def test_a_name_twice_is_invalid_and_the_first_is_found() -> None:
    archive, reading = opened(ptzip(EVIL, ("archive/data.pkl", b"N.")))
    (finding,) = reading.findings
    assert (finding.code, finding.level, finding.member) == ("zip.duplicate", "invalid", "archive/data.pkl")
    assert "2 members" in finding.text
    assert archive.by_name["archive/data.pkl"] is archive.entries[0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("archive/DATA.pkl", {("zip.name", "invalid")}),
        ("archive/Version", {("zip.name", "invalid")}),
        ("Archive/data/0", {("zip.name", "notice")}),
        ("archive\\data.pkl", {("zip.name", "invalid")}),
        ("../version", {("zip.name", "invalid")}),
        ("a/../../version", {("zip.name", "invalid")}),
        ("/etc/passwd", {("zip.name", "invalid")}),
        ("C:/x", {("zip.name", "invalid")}),
        ("a..b/c:d", set()),
        ("two\nlines", set()),
    ],
)
def test_names_that_readers_understand_differently_are_found(name: str, expected: set[object]) -> None:
    # Written under another name, because the standard library repairs some of these.
    data = ptzip(EVIL, ("#" * len(name), b"x")).replace(b"#" * len(name), name.encode())
    assert codes(data) == expected


def test_a_nul_or_no_name_is_invalid() -> None:
    assert codes(ptzip(EVIL, ("a#b", b"x")).replace(b"a#b", b"a\0b")) == {("zip.name", "invalid")}
    assert codes(zipped(("", b"x"))) == {("zip.name", "invalid")}


def test_a_name_that_is_not_the_utf_8_it_says_is_a_notice() -> None:
    data = zipped(("é", b"x")).replace("é".encode(), b"\xff\xfe")
    archive, reading = opened(data)
    assert [(finding.code, finding.level) for finding in reading.findings] == [("zip.name", "notice")]
    assert archive.entries[0].name == "\udcff\udcfe"


def test_a_second_name_in_an_extra_field_is_invalid() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("good")
        info.extra = struct.pack("<2HBL", 0x7075, 9, 1, zlib.crc32(b"good")) + b"evil"
        archive.writestr(info, "x")
    assert codes(file.getvalue()) == {("zip.name", "invalid")}


def test_bytes_before_the_archive_are_invalid_and_the_members_still_read() -> None:
    archive, reading = opened(EVIL + ptzip(b"N."))
    assert [(finding.code, finding.level) for finding in reading.findings] == [("zip.outside", "invalid")]
    entry = archive.by_name["archive/data.pkl"]
    assert archive.member(entry, Limits()).up_to(0, 9) == b"N."


def test_bytes_before_the_archive_that_it_knows_of_are_invalid_too() -> None:
    file = io.BytesIO()
    file.write(EVIL)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a", "x")
    assert codes(file.getvalue()) == {("zip.outside", "invalid")}


def test_bytes_after_the_archive_are_invalid() -> None:
    assert codes(ptzip() + b"more") == {("zip.outside", "invalid")}


def test_an_archive_behind_another_is_invalid() -> None:
    assert ("zip.outside", "invalid") in codes(ptzip() + ptzip(b"N."))


def test_an_archive_in_the_comment_of_another_is_ambiguous() -> None:
    inner = zipped(("archive/data.pkl", EVIL))
    assert ("zip.ambiguous", "invalid") in codes(zipped(("archive/data.pkl", b"N."), comment=inner))


def test_bytes_that_no_member_has_are_a_notice() -> None:
    data = zipped(("a", b"1"))
    at = directory_at(data)
    data = data[:at] + b"hidden" + data[at:]
    data = patched(data, data.rindex(b"PK\5\6") + 16, struct.pack("<L", at + len(b"hidden")))
    assert codes(data) == {("zip.gap", "notice")}


# --- what is said twice -------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [0x1, 0x20, 0x40])
def test_encrypted_members_are_invalid(flag: int) -> None:
    data = ptzip()
    both = patched(in_directory(data, 8, bytes([flag, 0])), 6, bytes([flag, 0]))
    assert codes(both) == {("zip.flags", "invalid")}
    assert codes(in_directory(data, 8, bytes([flag, 0]))) == {
        ("zip.flags", "invalid"),
        ("zip.mismatch", "invalid"),
    }


def test_an_unknown_method_is_invalid_and_cannot_be_unpacked() -> None:
    data = patched(in_directory(ptzip(), 10, b"\x63\0"), 8, b"\x63\0")
    archive, reading = opened(data)
    assert [(finding.code, finding.level) for finding in reading.findings] == [("zip.method", "invalid")]
    with pytest.raises(CorruptFileError, match="method 99") as caught:
        archive.member(archive.entries[0], Limits())
    assert caught.value.code == "zip.method"


@pytest.mark.parametrize(
    ("at", "value"), [(30, b"X"), (6, b"\0\x08"), (8, b"\x08"), (22, b"\7"), (18, b"\7")]
)
def test_a_local_header_that_differs_is_invalid_and_the_directory_is_believed(at: int, value: bytes) -> None:
    archive, reading = opened(patched(ptzip(), at, value))
    assert {(finding.code, finding.level) for finding in reading.findings} == {("zip.mismatch", "invalid")}
    assert archive.member(archive.by_name["archive/data.pkl"], Limits()).up_to(0, 99) == EVIL


def test_a_wrong_checksum_is_a_notice_of_the_members_that_are_read() -> None:
    archive, reading = opened(in_directory(ptzip(), 16, b"\0\0\0\0"))
    assert reading.findings == []
    zips.check_crc(archive, archive.entries[0], reading)
    zips.check_crc(archive, archive.entries[1], reading)
    assert [(f.code, f.level, f.member) for f in reading.findings] == [
        ("zip.crc", "notice", "archive/data.pkl")
    ]


def test_many_records_of_one_member_overlap() -> None:
    data = zipped(("archive/data.pkl", EVIL))
    at, end = directory_at(data), data.rindex(b"PK\5\6")
    record = data[at:end]
    many = data[:at] + record * 2000
    many += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2000, 2000, len(record) * 2000, at, 0)
    _, reading = opened(many)
    assert {finding.code for finding in reading.findings} == {"zip.overlap", "zip.duplicate"}
    assert len(reading.findings) < 20, "a hostile archive must not fill the report"
    assert reading.findings[-1].details == {"count": 1999}


def test_a_member_that_reaches_into_the_directory_overlaps() -> None:
    data = zipped(("a", b"12345678"))
    larger = struct.pack("<2L", 20, 20)
    data = patched(in_directory(data, 20, larger), 18, larger)
    assert codes(data) == {("zip.overlap", "invalid")}


def test_a_zip64_size_beyond_the_file_is_invalid() -> None:
    data = zipped(("a", b"12345678"))
    at = directory_at(data)
    record = struct.pack(
        "<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, 1, 20, 0, 0, 0, 0, 0
    )
    record += b"a" + struct.pack("<2H2Q", 1, 16, 2**62, 2**62)
    data = data[:at] + record + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(record), at, 0)
    archive, reading = opened(data)
    assert ("zip.overlap", "invalid") in {(finding.code, finding.level) for finding in reading.findings}
    with pytest.raises(FileError):
        archive.member(archive.entries[0], Limits())


def test_a_zip64_field_that_is_too_short_is_invalid() -> None:
    data = zipped(("a", b"12345678"))
    at = directory_at(data)
    record = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, 2**32 - 1, 8, 1, 6, 0, 0, 0, 0, 0)
    record += b"a" + struct.pack("<2HH", 1, 2, 7)
    data = data[:at] + record + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(record), at, 0)
    assert ("zip.zip64", "invalid") in codes(data)


def test_a_record_that_points_to_no_member_is_invalid() -> None:
    assert ("zip.local", "invalid") in codes(in_directory(ptzip(), 42, b"\1"))
    assert ("zip.local", "invalid") in codes(in_directory(ptzip(), 42, b"\xf0\xff\xff\xff"))


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        (10, b"\xff\0", "zip.count"),
        (12, b"\xff\xff\xff\x7f", "zip.directory"),
        (16, b"\xff\xff\xff\x7f", "zip.directory"),
    ],
)
def test_an_end_record_that_cannot_be_true_stops_the_reading(field: int, value: bytes, code: str) -> None:
    data = ptzip()
    with pytest.raises(CorruptFileError) as caught:
        opened(patched(data, data.rindex(b"PK\5\6") + field, value))
    assert caught.value.code == code


def test_a_wrong_count_of_members_is_invalid() -> None:
    data = ptzip()
    end = data.rindex(b"PK\5\6")
    assert codes(patched(data, end + 8, b"\3\0\3\0")) == {("zip.count", "invalid")}


@pytest.mark.parametrize("data", [ptzip()[:-30], b"", b"PK\3\4", b"PK\5\6", bytes(100_000)])
def test_an_archive_without_its_end_is_truncated(data: bytes) -> None:
    with pytest.raises(CorruptFileError) as caught:
        opened(data)
    assert caught.value.code == "zip.truncated"


# --- unpacking ----------------------------------------------------------------------------------------


def bomb(nbytes: int, byte: bytes = b"N") -> bytes:
    """One member of very many equal bytes, packed without holding them."""
    stream, chunk = zlib.compressobj(1, zlib.DEFLATED, -15), byte * (1 << 20)
    packed = [stream.compress(chunk) for _ in range(nbytes >> 20)]
    body = b"".join((*packed, stream.flush()))
    sizes = struct.pack("<3L", 0, len(body), nbytes)
    name = b"archive/data.pkl"
    local = struct.pack("<4s5H", b"PK\3\4", 20, 0, 8, 0, 0) + sizes + struct.pack("<2H", len(name), 0) + name
    record = struct.pack("<4s6H", b"PK\1\2", 20, 20, 0, 8, 0, 0) + sizes
    record += struct.pack("<5H2L", len(name), 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(record), len(local) + len(body), 0)
    return local + body + record + end


def test_a_bomb_stops_at_a_limit_and_takes_little_memory() -> None:
    data = bomb(1 << 30)
    archive, reading = opened(data)
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="inflated_nbytes"):
            archive.member(archive.entries[0], reading.limits)
        with pytest.raises(LimitError, match="inflated_ratio"):
            archive.member(archive.entries[0], Limits(inflated_nbytes=1 << 40))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert archive.start(archive.entries[0], 5, reading.limits) == b"NNNNN"


@pytest.mark.parametrize("declared", [0, 999, 1001, 2**31])
def test_a_wrong_unpacked_size_is_corrupt(declared: int) -> None:
    data = zipped(("a", bytes(range(250)) * 4), method=8)
    size = struct.pack("<L", declared)
    archive, _ = opened(patched(in_directory(data, 24, size), 22, size))
    with pytest.raises(FileError) as caught:
        archive.member(archive.entries[0], Limits())
    assert caught.value.code == ("limit" if declared == 2**31 else "zip.size")


def test_a_size_that_no_compression_reaches_is_invalid() -> None:
    data = zipped(("a", b"x" * 1000), method=8)
    size = struct.pack("<L", 2**31)
    assert codes(patched(in_directory(data, 24, size), 22, size)) == {("zip.size", "invalid")}


def test_a_broken_stream_is_corrupt() -> None:
    data = zipped(("a", b"x" * 1000), method=8)
    archive, _ = opened(patched(data, 31, b"\xff\xff\xff"))
    with pytest.raises(CorruptFileError) as caught:
        archive.member(archive.entries[0], Limits())
    assert caught.value.code == "zip.deflate"


def test_limits_of_the_directory_are_named() -> None:
    with pytest.raises(LimitError, match="zip_entries = 3"):
        opened(ptzip(), zip_entries=3)
    with pytest.raises(LimitError, match="zip_directory_nbytes = 100"):
        opened(ptzip(), zip_directory_nbytes=100)


# --- any bytes ----------------------------------------------------------------------------------------

SMALL = (ptzip(), zipped(("a", b"x" * 500), ("b/c", b"yz"), method=8), torch_save())


def read_all(data: bytes) -> None:
    archive, reading = opened(data)
    for entry in archive.entries:
        with contextlib.suppress(FileError):
            zips.check_crc(archive, entry, reading)


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_any_changed_byte_gives_a_result_or_an_error_of_ours(data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(SMALL))
    at = data.draw(st.integers(0, len(file) - 1))
    with contextlib.suppress(FileError):
        read_all(patched(file, at, bytes([data.draw(st.integers(0, 255))])))


@pytest.mark.parametrize("file", SMALL)
def test_an_archive_cut_anywhere_is_truncated(file: bytes) -> None:
    for length in range(len(file)):
        with pytest.raises(CorruptFileError):
            opened(file[:length])
