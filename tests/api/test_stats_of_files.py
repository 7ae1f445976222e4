"""Statistics of weights in files are those of numpy and torch, whatever the file's format."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import modelglass as mg
from command_line import run
from genuine import network
from modelglass.report import TensorStats

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def stats_of(path: Path) -> dict[str, TensorStats]:
    found = mg.inspect(path, stats=True).stats
    assert found is not None
    return {name: stats for name, stats in found.items() if stats is not None}


def check(stats: TensorStats, expected: Any) -> None:
    values = np.asarray(expected, dtype=np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    assert stats.count == values.size
    assert (stats.nan, stats.inf) == (np.isnan(values).sum(), np.isinf(values).sum())
    assert (stats.min, stats.max) == (finite.min(), finite.max())
    assert stats.zeros == np.count_nonzero(values == 0)
    assert stats.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-12)
    if finite.size > 1:
        assert stats.std == pytest.approx(finite.std(ddof=1), rel=1e-9)
    assert stats.l2 == pytest.approx(np.linalg.norm(finite), rel=1e-9)


def tensors() -> dict[str, torch.Tensor]:
    made = {str(dtype): torch.linspace(-3, 3, 60).reshape(5, 12).to(dtype) for dtype in FLOATS}
    made |= {str(dtype): torch.arange(60).reshape(5, 12).sub(7).to(dtype) for dtype in INTEGERS}
    made["strange"] = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 0.0, 2.0])
    made["scalar"] = torch.tensor(2.5)
    return made


def test_safetensors(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "x.safetensors")
    stats = stats_of(tmp_path / "x.safetensors")
    assert set(stats) == set(tensors())
    for name, tensor in tensors().items():
        check(stats[name], tensor.to(torch.float64))


def views() -> dict[str, torch.Tensor]:
    whole = torch.arange(600.0).reshape(20, 30)
    return {
        "whole": whole.clone(),
        "columns": whole[3:9, 5:17:2],
        "transposed": whole.clone().t(),
        "expanded": torch.arange(4.0).expand(6, 4),
        "last": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
    }


@pytest.mark.parametrize("legacy", [False, True])
def test_torch_files_with_views(tmp_path: Path, legacy: bool) -> None:
    content = views() | ({} if legacy else tensors())
    torch.save(content, tmp_path / "x.pt", _use_new_zipfile_serialization=not legacy)
    stats = stats_of(tmp_path / "x.pt")
    for name, tensor in content.items():
        check(stats[name], tensor.to(torch.float64))


def test_torch_files_of_the_other_byte_order(tmp_path: Path) -> None:
    torch.save({"w": torch.arange(24.0).reshape(4, 6), "h": torch.arange(5).half()}, tmp_path / "x.pt")
    swapped = {"data/0": "<f4", "data/1": "<f2"}
    with zipfile.ZipFile(tmp_path / "x.pt") as little, zipfile.ZipFile(tmp_path / "big.pt", "w") as big:
        for entry in little.infolist():
            content = little.read(entry)
            name = entry.filename.partition("/")[2]
            if name == "byteorder":
                content = b"big"
            elif name in swapped:
                content = np.frombuffer(content, swapped[name]).byteswap().tobytes()
            big.writestr(entry.filename, content)
    stats = stats_of(tmp_path / "big.pt")
    check(stats["w"], np.arange(24))
    check(stats["h"], np.arange(5))


def test_npz(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "f8": rng.normal(size=(7, 9)),
        "big": rng.normal(size=11).astype(">f4"),
        "fortran": np.asfortranarray(rng.normal(size=(5, 6)).astype(np.float32)),
        "i2": np.arange(9, dtype=np.int16),
        "b": np.array([True, False, True]),
    }
    np.savez(tmp_path / "x.npz", **arrays)
    stats = stats_of(tmp_path / "x.npz")
    for name, array in arrays.items():
        check(stats[name], array)


def test_gguf(tmp_path: Path) -> None:
    kinds = gguf.GGMLQuantizationType
    weights = np.random.default_rng(1).normal(size=(16, 256)).astype(np.float32)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    expected = {}
    for kind in (kinds.F32, kinds.F16, kinds.BF16, kinds.Q8_0, kinds.Q4_0, kinds.Q5_1):
        stored = gguf.quantize(weights, kind)
        writer.add_tensor(kind.name, stored, raw_dtype=kind)
        expected[kind.name] = gguf.dequantize(stored, kind)
    # Nothing in Python quantizes to these: any blocks of theirs, with scales that are small numbers.
    for kind in (kinds.Q4_K, kinds.Q6_K):
        stored = np.random.default_rng(2).integers(0, 60, (4, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        writer.add_tensor(kind.name, stored, raw_dtype=kind)
        expected[kind.name] = gguf.dequantize(stored, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    stats = stats_of(tmp_path / "x.gguf")
    for name, values in expected.items():
        check(stats[name], values)


def test_findings_are_about_what_gguf_blocks_stand_for(tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    weights = np.random.default_rng(1).normal(size=(64, 256)).astype(np.float32)
    weights[[9, 30]], weights[5, 7] = 0, 900
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    for name in ("a.weight", "b.weight"):
        writer.add_tensor(name, gguf.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    notes = {note.code: note for note in mg.inspect(tmp_path / "x.gguf", stats=True).notes}
    assert notes["dead-rows"].details[0] == "has 2, the first is 9"
    assert "reaches 899.9" in notes["outlier"].details[0]
    assert notes["duplicate"].where == ("b.weight",)
    assert notes["dequantized-values"].where == ("a.weight", "b.weight")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_exported_programs(tmp_path: Path) -> None:
    native = network().eval()
    torch.export.save(torch.export.export(native, (torch.randn(2, 4),)), tmp_path / "x.pt2")
    stats = stats_of(tmp_path / "x.pt2")
    for name, tensor in native.state_dict().items():
        check(stats[name], tensor.double())


def test_nan_in_one_shard_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = {
        "a.safetensors": {"one": torch.ones(3)},
        "b.safetensors": {"two": torch.tensor([1, float("nan")])},
    }
    for file, held in parts.items():
        save_file(held, tmp_path / file)
    where = {name: file for file, held in parts.items() for name in held}
    index = {"metadata": {"total_size": 20}, "weight_map": where}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert stats_of(tmp_path)["two"].nan == 1
    code, out, _ = run("stats", str(tmp_path), "--fail-on", "nan", capsys=capsys)
    assert code == 1
    assert "two" in out
    code, _, _ = run("stats", str(tmp_path), "--fail-on", "inf", capsys=capsys)
    assert code == 0


def test_a_pattern_chooses(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "x.pt")
    found = mg.inspect(tmp_path / "x.pt", stats="*.weight").stats
    assert found is not None
    assert set(found) == {"0.weight", "1.weight", "2.weight"}


def test_values_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    content = {"sparse": torch.eye(3).to_sparse(), "meta": torch.zeros(3, device="meta"), "w": torch.ones(2)}
    torch.save(content, tmp_path / "x.pt")
    report = mg.inspect(tmp_path / "x.pt", stats=True)
    assert report.stats is not None
    assert report.stats["w"] is not None
    said = " ".join(f"{note.text} {' '.join(note.where)}" for note in report.notes)
    for name in ("sparse", "meta"):
        assert report.stats.get(name) is None
        assert name in said


SMALL_PEAK = """
import resource, sys
import modelglass as mg
from pathlib import Path
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = mg.inspect(sys.argv[1], stats=True)
assert report.stats["w"].zeros == report.stats["w"].count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    nbytes = 1 << 30
    entry = {"w": {"dtype": "F32", "shape": [nbytes // 4], "data_offsets": [0, nbytes]}}
    header = json.dumps(entry).encode()
    path = tmp_path / "x.safetensors"
    with path.open("wb") as file:  # a hole, which takes no room on the disk
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + nbytes)
    command = [sys.executable, "-c", SMALL_PEAK, str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    unit = 1024 if sys.platform == "linux" else 1
    assert int(found.stdout) * unit < 200 << 20
