from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

import modelglass as mg
from modelglass import formats
from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats import safetensors
from modelglass.formats.documents.strict_json import document
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.shards import read_index
from modelglass.formats.source import OpenFile
from modelglass.report import Scan, ScannedFile, Tensor

SHARDS = {
    "m-1.safetensors": {"a": np.arange(4, dtype=np.float32), "b": np.ones((2, 3), np.int8)},
    "m-2.safetensors": {"c": np.zeros((5,), np.float64)},
}
WEIGHT_MAP = {name: shard for shard, tensors in SHARDS.items() for name in tensors}
TOTAL = 16 + 6 + 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    for shard, tensors in SHARDS.items():
        save_file(tensors, tmp_path / "model" / shard, metadata={"format": "np"})
    return tmp_path / "model"


def _read(folder: Path, index: Any, limits: Limits | None = None) -> Reading:
    path = folder / "m.safetensors.index.json"
    path.write_text(index if isinstance(index, str) else json.dumps(index))
    reading = Reading(limits=limits or Limits())
    with OpenFile(path) as source:
        read_index(source, document(source, reading.limits), reading, safetensors.read)
    return reading


def _index(weight_map: dict[str, str] | None = None, total: Any = TOTAL) -> dict[str, Any]:
    return {"metadata": {"total_size": total}, "weight_map": weight_map or WEIGHT_MAP}


def _codes(reading: Reading) -> list[tuple[str, str]]:
    return [(finding.code, finding.level) for finding in reading.findings]


def _exit_code(reading: Reading) -> int:
    file = ScannedFile(path="x", format=None, nbytes=None, read_nbytes=0, findings=tuple(reading.findings))
    return Scan(files=(file,)).exit_code()


def test_all_shards_are_read_as_one_model(folder: Path) -> None:
    reading = _read(folder, _index())
    assert reading.format == "safetensors shards"
    assert {t.name: t.shape for t in reading.tensors} == {"a": (4,), "b": (2, 3), "c": (5,)}
    assert reading.findings == []
    assert reading.metadata == {"format": "np", "total_size": TOTAL}
    assert len(reading.opened) == 2
    assert set(reading.places) == set(WEIGHT_MAP)
    assert len(reading.places) == 3
    for shard, tensors in SHARDS.items():
        for name, array in tensors.items():
            place = reading.places[name]
            assert place.source.file == str(folder / shard)
            assert place.source.read(place.offset, place.nbytes, "values") == array.tobytes()
    reading.close()


@pytest.mark.parametrize(
    ("shard", "code"),
    [
        ("../secret.safetensors", "path.outside"),
        ("sub/../../secret.safetensors", "path.outside"),
        ("{absolute}", "path.outside"),
        ("nothing.safetensors", "path.missing"),
        ("link.safetensors", "path.link"),
        ("m.safetensors.index.json", "index.not-a-shard"),
    ],
)
def test_a_shard_that_is_not_beside_the_index_is_not_opened(folder: Path, shard: str, code: str) -> None:
    secret = folder.parent / "secret.safetensors"
    save_file(SHARDS["m-2.safetensors"], secret)
    (folder / "link.safetensors").symlink_to(secret)
    shard = shard.format(absolute=secret)
    reading = _read(folder, _index({**WEIGHT_MAP, "c": shard}))
    assert _codes(reading) == [(code, "invalid")]
    assert _exit_code(reading) == 3
    assert [file.file for file in reading.opened] == [str(folder / "m-1.safetensors")]
    assert [t.name for t in reading.tensors] == ["a", "b"]
    reading.close()


def test_many_missing_shards_end_the_reading(folder: Path) -> None:
    with pytest.raises(CorruptFileError, match="100 of its shards"):
        _read(folder, _index({f"t{i}": f"s{i}" for i in range(1000)}))


def test_tensors_that_the_index_and_the_shards_disagree_about_are_found(folder: Path) -> None:
    weight_map = {"a": "m-1.safetensors", "d": "m-2.safetensors", "e": "m-2.safetensors"}
    reading = _read(folder, _index(weight_map))
    assert _codes(reading) == [
        ("index.extra-tensor", "notice"),
        ("index.missing-tensor", "invalid"),
        ("index.extra-tensor", "notice"),
    ]
    assert reading.findings[1].details == {"shard": "m-2.safetensors", "count": 2, "names": ["d", "e"]}
    assert "'d' and 1 more" in reading.findings[1].text
    reading.close()


def test_a_tensor_in_two_shards_is_refused(folder: Path) -> None:
    save_file(SHARDS["m-1.safetensors"], folder / "m-2.safetensors")
    with pytest.raises(CorruptFileError, match="'a' is in the shards") as raised:
        _read(folder, _index())
    assert raised.value.code == "index.duplicate"


def test_a_wrong_total_size_is_a_notice_and_a_missing_one_is_fine(folder: Path) -> None:
    for total, codes in ((TOTAL + 1, ["index.total-size"]), (float(TOTAL), []), (None, []), ("x", [])):
        reading = _read(folder, _index(total=total))
        assert [finding.code for finding in reading.findings] == codes
        reading.close()


@pytest.mark.parametrize(
    ("index", "code"),
    [
        ({}, "index.weight-map"),
        ([], "index.weight-map"),
        ({"weight_map": {}}, "index.weight-map"),
        ({"weight_map": {"a": 1}}, "index.weight-map"),
        ({"weight_map": ["a"]}, "index.weight-map"),
        ("{", "json.syntax"),
        ('{"weight_map": {"a": "x", "a": "y"}}', "json.duplicate-key"),
    ],
)
def test_an_index_that_is_none_is_refused(folder: Path, index: Any, code: str) -> None:
    with pytest.raises(CorruptFileError) as raised:
        _read(folder, index)
    assert raised.value.code == code


def test_what_came_before_a_corrupt_shard_is_kept(folder: Path) -> None:
    (folder / "m-2.safetensors").write_bytes(b"\xff" * 100)
    path = folder / "m.safetensors.index.json"
    path.write_text(json.dumps(_index()))
    reading = Reading()
    with OpenFile(path) as source, pytest.raises(FileError) as raised:
        read_index(source, document(source, reading.limits), reading, safetensors.read)
    assert raised.value.file == str(folder / "m-2.safetensors")
    assert [t.name for t in reading.tensors] == ["a", "b"]
    assert reading.format == "safetensors shards"
    reading.close()


def test_limits_hold_for_all_shards_together(folder: Path) -> None:
    with pytest.raises(LimitError, match="tensors = 2"):
        _read(folder, _index(), Limits(tensors=2))
    with pytest.raises(LimitError, match="json_nbytes"):
        _read(folder, _index(), Limits(json_nbytes=10))


def test_one_refusal_decides_and_equal_storage_keys_of_two_shards_stay_apart(folder: Path) -> None:
    def read_shard(source: OpenFile, part: Reading) -> None:
        part.format = "torch"
        part.weights_only = "refuses" if source.file.endswith("1.safetensors") else "accepts"
        part.refusal = "why" if part.weights_only == "refuses" else None
        name = "a" if part.refusal else "c"
        part.tensors.append(Tensor(name=name, kind="parameter", shape=(), dtype="int8", storage="0"))
        part.found(source, "x.y", "info", "text")

    path = folder / "pytorch_model.bin.index.json"
    path.write_text(json.dumps({"weight_map": {"a": "m-1.safetensors", "c": "m-2.safetensors"}}))
    reading = Reading()
    with OpenFile(path) as source:
        read_index(source, document(source, reading.limits), reading, read_shard)
    assert (reading.format, reading.weights_only, reading.refusal) == ("torch shards", "refuses", "why")
    assert len({t.storage for t in reading.tensors}) == 2
    assert len(reading.findings) == 2
    assert dict(reading.places) == {}
    reading.close()


def _numbered(folder: Path, names: tuple[str, ...] = ("model", "model"), count: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    for number, (stem, tensors) in enumerate(zip(names, SHARDS.values(), strict=True), start=1):
        save_file(tensors, folder / f"{stem}-{number:05}-of-{count:05}.safetensors")
    return folder


def _of_folder(folder: Path) -> Reading:
    reading = Reading()
    try:
        formats.read(folder, reading)
    finally:
        reading.close()
    return reading


@pytest.mark.parametrize("stem", ["model", "weights of a"])
def test_files_that_are_numbered_are_one_model_without_an_index(tmp_path: Path, stem: str) -> None:
    reading = _of_folder(_numbered(tmp_path, (stem, stem)))
    assert reading.format == "safetensors shards"
    assert {tensor.name for tensor in reading.tensors} == set(WEIGHT_MAP) == set(reading.places)
    assert _codes(reading) == [("index.absent", "info")]


def test_other_files_beside_a_numbered_model_do_not_matter(tmp_path: Path) -> None:
    save_file({"x": np.zeros(3)}, tmp_path / "consolidated.safetensors")
    assert len(_of_folder(_numbered(tmp_path)).tensors) == 3
    save_file({"x": np.zeros(3)}, tmp_path / "model.safetensors")
    assert len(_of_folder(tmp_path).tensors) == 1


@pytest.mark.parametrize(
    ("names", "count", "hint"),
    [
        (("model", "model"), 3, "'model-00003-of-00003.safetensors' is missing, of 3 files"),
        (("a", "b"), 2, ""),
    ],
    ids=["one is missing", "two models"],
)
def test_files_that_are_numbered_otherwise_are_refused(
    tmp_path: Path, names: tuple[str, ...], count: int, hint: str
) -> None:
    with pytest.raises(FileError, match="2 files here may be the model") as raised:
        _of_folder(_numbered(tmp_path, names, count))
    assert hint in (raised.value.hint or "")


def test_numbered_files_with_the_same_tensor_are_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        save_file({"x": np.zeros(3)}, tmp_path / f"model-{number:05}-of-00002.safetensors")
    with pytest.raises(CorruptFileError, match="is in the shards"):
        _of_folder(tmp_path)


def test_a_numbered_file_out_of_the_folder_is_not_followed(folder: Path) -> None:
    here = _numbered(folder / "here")
    (here / "model-00002-of-00002.safetensors").rename(folder / "elsewhere")
    (here / "model-00002-of-00002.safetensors").symlink_to(folder / "elsewhere")
    reading = _of_folder(here)
    assert ("path.link", "invalid") in _codes(reading)
    assert len(reading.tensors) == 2


def test_pieces_of_a_gguf_are_one_model(tmp_path: Path) -> None:
    for number, tensors in enumerate(({"a": (4, 32), "b": (3,)}, {"c": (2, 32)}), start=1):
        writer = gguf.GGUFWriter(tmp_path / f"m-{number:05}-of-00002.gguf", "llama")
        if number == 1:
            writer.add_block_count(7)
        for name, shape in tensors.items():
            writer.add_tensor(name, np.zeros(shape, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    report = mg.inspect(tmp_path)
    assert report.counts is not None
    assert report.counts.params == 128 + 3 + 64
    assert report.checkpoint is not None
    assert report.checkpoint.architecture is not None
    assert report.checkpoint.architecture.layers == 7


def _blocks() -> dict[str, np.ndarray]:
    """Twelve blocks between an embedding and an output, in the model's own order."""
    per_block = {"attn_norm": (32,), "attn_q": (32, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}
    shapes = {f"blk.{n}.{name}.weight": shape for n in range(12) for name, shape in per_block.items()}
    named = {"token_embd.weight": (10, 32), **shapes, "output.weight": (10, 32)}
    return {name: np.zeros(shape, np.float32) for name, shape in named.items()}


def _write_gguf(folder: Path, most: int) -> None:
    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "m.gguf", "llama", split_max_tensors=most)
    for name, values in _blocks().items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_torch(folder: Path, most: int) -> None:
    torch = pytest.importorskip("torch")
    folder.mkdir()
    state = {name: torch.from_numpy(values) for name, values in _blocks().items()}
    names = list(state)
    size = most or len(names)
    parts = [names[first : first + size] for first in range(0, len(names), size)]
    weight_map = {}
    for number, part in enumerate(parts, start=1):
        file = f"pytorch_model-{number:05}-of-{len(parts):05}.bin" if most else "pytorch_model.bin"
        torch.save({name: state[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    if most:  # names are sorted, as the library that writes these has them
        index = json.dumps({"metadata": {}, "weight_map": weight_map}, sort_keys=True)
        (folder / "pytorch_model.bin.index.json").write_text(index)


@pytest.mark.parametrize("write", [_write_gguf, _write_torch])
@pytest.mark.parametrize("most", [1, 7, 3])
def test_pieces_list_and_fold_modules_as_the_one_file_does(tmp_path: Path, write: Any, most: int) -> None:
    write(tmp_path / "one", 0)
    write(tmp_path / "many", most)
    one, many = mg.inspect(tmp_path / "one"), mg.inspect(tmp_path / "many")
    assert len(list((tmp_path / "many").iterdir())) >= 50 // most
    assert many.model.modules == one.model.modules
    assert many.blocks == one.blocks
    assert one.blocks is not None
    assert [len(group.paths) for group in one.blocks] == [12]
