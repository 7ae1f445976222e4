"""Small files that ask for much work, or hide something in a corner, get a quick and whole answer."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path
from time import process_time

import pytest
import torch

import modelglass as mg
from modelglass.errors import CorruptFileError
from modelglass.formats.limits import Limits
from modelglass.formats.reading import MOST_FINDINGS, Reading
from modelglass.formats.source import OpenFile, Source
from modelglass.report import Scan

EVIL = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."
SECONDS = 5  # of the processor, on any machine


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def quickly_scanned(path: Path) -> Scan:
    begun = process_time()
    scan = mg.scan(path)
    assert process_time() - begun < SECONDS
    return scan


def codes(scan: Scan) -> set[str]:
    return {finding.code for finding in scan.findings}


def test_a_member_of_another_format_does_not_hide_the_pickle(tmp_path: Path) -> None:
    members = {"a/data.pkl": EVIL, "a/version": b"3\n", "a/archive_format": b"pt2"}
    scan = mg.scan(zipped(tmp_path / "a.pt", members))
    assert {"ambiguous", "pickle.call"} <= codes(scan)
    assert scan.exit_code() == 3


@pytest.mark.parametrize("name", ["a/extra.pkl", "a/data/constants/custom_obj_0"])
def test_pickles_in_an_exported_program_are_scanned(name: str, tmp_path: Path) -> None:
    members = {"a/archive_format": b"pt2", "a/models/model.json": b"{}", name: EVIL}
    assert "pickle.call" in codes(mg.scan(zipped(tmp_path / "a.pt2", members)))


def test_compiled_code_in_an_exported_program_is_named(tmp_path: Path) -> None:
    members = {"a/archive_format": b"pt2", "a/data/aotinductor/model/x.so": b"\x7fELF"}
    scan = mg.scan(zipped(tmp_path / "a.pt2", members))
    assert "code.native" in codes(scan)
    assert scan.exit_code() == 1


def test_a_limit_inside_a_nested_pickle_is_a_limit(tmp_path: Path) -> None:
    inner = b"\x80\x02" + b"N" * 3000 + b"."
    outer = b"\x80\x03ctorch.storage\n_load_from_bytes\nB" + struct.pack("<I", len(inner)) + inner + b"\x85R."
    (tmp_path / "a.pkl").write_bytes(outer)
    scan = mg.scan(tmp_path / "a.pkl", limits={"pickle_opcodes": 1000})
    assert scan.exit_code() == 4


def test_sparse_tensors_inside_sparse_tensors_are_refused(tmp_path: Path) -> None:
    sparse = torch.eye(2).to_sparse()
    file = io.BytesIO()
    torch.save(sparse, file)
    with zipfile.ZipFile(file) as archive:
        data = archive.read("archive/data.pkl")
    rebuild = b"ctorch._utils\n_rebuild_sparse_tensor\n"
    assert rebuild in data
    layered = data[:-1]
    for _ in range(40):  # each twice in the next, through the memo
        layered += (
            b"r\xff\xff\x00\x000" + rebuild + b"N(j\xff\xff\x00\x00j\xff\xff\x00\x00K\x02K\x02\x86t\x86R"
        )
    scan = quickly_scanned(
        zipped(tmp_path / "a.pt", {"archive/data.pkl": layered + b".", "archive/version": b"3\n"})
    )
    assert "torch.tensor" in codes(scan)


@pytest.mark.slow
def test_one_list_under_many_keys_is_listed_once(tmp_path: Path) -> None:
    shared = [torch.zeros(1) for _ in range(500)]
    content = {"state_dict": {"w": torch.zeros(2)}, **{f"key_{i}": shared for i in range(500)}}
    torch.save(content, tmp_path / "a.pt")
    quickly_scanned(tmp_path / "a.pt")


def test_long_keys_in_deep_dicts_take_no_memory(tmp_path: Path) -> None:
    content: dict[str, object] = {"w": torch.zeros(1)}
    for depth in range(100):
        content = {f"{depth}" + "k" * 4000: content, **{f"{depth}.{i}": torch.zeros(1) for i in range(3)}}
    torch.save(content, tmp_path / "a.pt")
    report = mg.inspect(tmp_path / "a.pt")
    assert max(len(tensor.name) for tensor in report.model.tensors) < 20_000
    assert "torch.deep" in {note.code for note in report.notes}


@pytest.mark.slow
def test_many_streams_and_many_findings_stay_linear(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(EVIL * 5000)
    scan = quickly_scanned(tmp_path / "a.pkl")
    found = [finding for finding in scan.findings if finding.code == "pickle.call"]
    assert len(found) == MOST_FINDINGS + 1
    assert "4,000 more" in found[-1].text


@pytest.mark.slow
def test_a_deep_version_in_an_old_file_is_no_bug_of_ours(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    data = (tmp_path / "a.pt").read_bytes()
    version = pickle.dumps(1001, 2)
    assert version in data
    deep = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    (tmp_path / "b.pt").write_bytes(data.replace(version, deep))
    with pytest.raises(CorruptFileError, match="version"):
        mg.inspect(tmp_path / "b.pt")


def test_arguments_of_several_calls_are_shown(tmp_path: Path) -> None:
    calls = b"".join(b"cos\nsystem\nX\x01\x00\x00\x00" + name + b"\x85R0" for name in (b"a", b"b"))
    (tmp_path / "a.pkl").write_bytes(b"\x80\x02" + calls + b"N.")
    (use,) = mg.scan(tmp_path / "a.pkl").files[0].globals
    assert (use.count, use.arguments) == (2, "('a'); ('b')")


def test_a_compressed_storage_is_listed_without_values(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(100)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    assert torch.load(tmp_path / "b.pt")["w"].shape == (100,)
    assert [tensor.shape for tensor in mg.inspect(tmp_path / "b.pt").model.tensors] == [(100,)]


def test_more_shards_than_a_process_may_open(tmp_path: Path) -> None:
    import json
    import resource

    head = b'{"w%d":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    weight_map = {}
    for index in range(300):
        text = head % index
        (tmp_path / f"{index}.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
        weight_map[f"w{index}"] = f"{index}.safetensors"
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        report = mg.inspect(tmp_path, stats=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(report.model.tensors) == 300
    assert report.stats is not None
    assert report.stats["w299"] is not None


def test_links_out_of_a_scanned_folder_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.pkl").write_bytes(EVIL)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "model.bin").symlink_to(tmp_path / "secret.pkl")
    scan = mg.scan(tmp_path / "models")
    assert codes(scan) == {"path.link"}
    (tmp_path / "models" / "epoch_1.bin").write_bytes(EVIL)
    (tmp_path / "models" / "model.bin").unlink()
    (tmp_path / "models" / "latest.bin").symlink_to("epoch_1.bin")
    assert [file.format for file in mg.scan(tmp_path / "models").files] == ["pickle", "pickle"]


def test_a_page_beside_a_model_is_passed_over(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "model.bin")
    (tmp_path / "index.html").write_text("<!doctype html><html></html>")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    scan = mg.scan(tmp_path)
    assert scan.exit_code() == 0
    assert [file.format for file in scan.files] == ["torch", None]  # the last is the folder, with its links


def test_odd_paths_are_no_bugs_of_ours() -> None:
    assert mg.scan("x" * 5000).exit_code() == 3
    assert mg.scan("a\0b").exit_code() == 3


def test_a_disk_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "a.pt")

    def fails(*args: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", fails)
    scan = mg.scan(tmp_path / "a.pt", isolate=False)
    assert codes(scan) == {"cannot-read"}


def test_a_file_at_rest_is_read_again_and_must_be_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"0123456789")
    with OpenFile(path) as source:
        source.rest()
        assert source.read(2, 3, "bytes") == b"234"
        other = tmp_path / "b.bin"
        other.write_bytes(b"abcdefghij")
        other.replace(path)
        with pytest.raises(CorruptFileError, match="exchanged"):
            source.read(2, 3, "bytes")


def test_shards_of_wrapped_models_keep_the_names_of_their_index(tmp_path: Path) -> None:
    import json

    names = {"module.a.weight": "one.bin", "module.b.weight": "two.bin"}
    for name, file in names.items():
        torch.save({name: torch.zeros(2)}, tmp_path / file)
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    report = mg.inspect(tmp_path)
    assert [tensor.name for tensor in report.model.tensors] == list(names)


def test_findings_beyond_many_are_counted() -> None:
    reading = Reading(limits=Limits())
    source = Source(lambda at, length: b"", 0, file="x")
    for _ in range(MOST_FINDINGS + 5):
        reading.found(source, "a.b", "notice", "text")
    assert len(reading.findings) == MOST_FINDINGS
    assert dict(reading.beyond) == {("a.b", "notice"): 5}


STARTS = [
    b"K\x010",
    b"N0",
    b"(1",
    b"\x95\0\0\0\0\0\0\0\0",
    b"MZ\x000",
    b"BZh\0\0" + b"x" * 0x685A + b"0",
    b"X\1\0\0\0a0",
]


@pytest.mark.parametrize("start", STARTS)
def test_a_pickle_may_begin_with_anything(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.pickle").write_bytes(start + EVIL[2:])
    assert "pickle.call" in codes(mg.scan(tmp_path))
    assert "pickle.call" in codes(mg.scan(tmp_path / "model.pickle"))


def test_a_file_of_another_format_that_is_also_a_pickle(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("cos\nsystem\n(S'true'\ntR."))
    scan = mg.scan(tmp_path / "a.tar")
    assert {"ambiguous", "pickle.call"} <= codes(scan)
    assert scan.exit_code() == 3


def test_ordinary_files_beside_a_model_give_no_alarm(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "model.bin")
    texts = {
        "chat_template.jinja": "{%- if x %}{{ x }}{%- endif %}",
        "vocab.txt": "[PAD]\n[UNK]\n",
        "README.md": "[![badge](x)](y)\n",
        "LICENSE": "(c) 2024 somebody\n",
        "trainer_state.json": '{"best_metric": NaN}',
        "log.jsonl": '{"a": 1}\n{"a": 2}\n',
        "notes.txt": "N.B. this is text\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    scan = mg.scan(tmp_path)
    assert [(f.code, f.level) for f in scan.findings if f.level != "info"] == []
    assert "code.chat-template" in codes(scan)


def test_what_is_not_understood_is_told_of(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "model.bin")
    (tmp_path / "other").write_bytes(b"\x1f\x8b" + bytes(30))
    scan = mg.scan(tmp_path)
    assert scan.exit_code() == 1
    (tmp_path / "other").rename(tmp_path / "other.joblib")  # which claims to be a model
    assert mg.scan(tmp_path).exit_code() == 3
    assert "compressed" in codes(scan)


def test_pieces_that_nobody_describes_are_scanned(tmp_path: Path) -> None:
    import warnings

    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"w": torch.zeros(2)}, checkpoint_id=tmp_path / "d")
    assert mg.scan(tmp_path / "d").exit_code() == 0
    (tmp_path / "d" / "__9_9.distcp").write_bytes(EVIL)
    assert "pickle.call" in codes(mg.scan(tmp_path / "d"))


def test_long_keys_that_repeat_take_no_memory(tmp_path: Path) -> None:
    key = b"x" * 60_000
    data = b"\x80\x02}(X" + struct.pack("<I", len(key)) + key + b"q\0N" + b"h\0N" * 20_000 + b"u."
    (tmp_path / "a.pkl").write_bytes(data)
    begun = process_time()
    mg.inspect(tmp_path / "a.pkl")
    assert process_time() - begun < SECONDS


def test_scans_are_rendered_and_saved(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(EVIL)
    scan = mg.scan(tmp_path / "a.pkl")
    for format in ("text", "json", "markdown", "csv", "sarif"):
        assert "os.system" in mg.render(scan, format).replace("\\", "")
    mg.save(scan, tmp_path / "s.json")
    assert mg.load(tmp_path / "s.json", mg.Scan) == scan


def test_a_described_piece_is_ordinary_by_itself_and_another_is_not(tmp_path: Path) -> None:
    import warnings

    from torch.distributed import checkpoint

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checkpoint.save({"w": torch.zeros(4), "step": 3}, checkpoint_id=tmp_path, no_dist=True)
    (piece,) = tmp_path.glob("*.distcp")
    assert mg.scan(piece).exit_code() == 0
    other = piece.with_name("__9_9.distcp")
    other.write_bytes(piece.read_bytes())
    assert mg.scan(other).exit_code() == 3
