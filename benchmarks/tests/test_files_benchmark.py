"""The benchmark of files: its files are what they claim, and its contestants work on them."""

from __future__ import annotations

from pathlib import Path

import files_speed as bench
import gguf
import made_files as made
import pytest
from safetensors.numpy import load_file

import modelglass as mg

CALLS = {
    "many.safetensors": (bench.scanning, bench.inspecting, bench.safe_open),
    "many.gguf": (bench.inspecting, bench.gguf_reader),
    "weights.safetensors": (bench.inspecting_with_stats, bench.torch_figures),
    "blocks.gguf": (bench.inspecting_with_stats, bench.gguf_figures),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    made.state_dict_file(folder / "layers.pt", 3)
    made.safetensors_file(folder / "many.safetensors", 5, 2)
    made.safetensors_file(folder / "large.safetensors", 4, 2**36)
    made.gguf_file(folder / "many.gguf", 5, 8)
    made.bfloat16_file(folder / "weights.safetensors", 4096, tensors=2)
    made.q4_k_file(folder / "blocks.gguf", 4 * made.Q4_K_NBYTES, tensors=2)
    return folder


def test_files_are_what_they_claim(folder: Path) -> None:
    tensors = {path.name: mg.inspect(path).model.tensors for path in folder.iterdir()}
    assert {name: len(each) for name, each in tensors.items()} == {
        "layers.pt": 6,
        "many.safetensors": 5,
        "large.safetensors": 4,
        "many.gguf": 5,
        "weights.safetensors": 2,
        "blocks.gguf": 2,
    }
    assert (folder / "large.safetensors").stat().st_size > 2**40
    assert len(load_file(folder / "many.safetensors")) == 5
    assert [each.tensor_type.name for each in gguf.GGUFReader(folder / "blocks.gguf").tensors] == ["Q4_K"] * 2


@pytest.mark.parametrize("name", CALLS)
def test_every_call_gives_something(folder: Path, name: str) -> None:
    for prepare in CALLS[name]:
        assert prepare(str(folder / name))() is not None


@pytest.mark.slow
def test_calls_are_measured_in_processes_of_their_own(folder: Path) -> None:
    costs = bench.calls_take_turns({"ours": bench.inspecting}, str(folder / "many.gguf"), 1)
    assert costs["ours"].seconds > 0
    assert costs["ours"].peak_mib > 0


@pytest.mark.slow
def test_commands_are_measured_as_processes(folder: Path) -> None:
    commands = {
        "list": bench.modelglass(str(folder / "layers.pt")),
        "scan": bench.modelglass("scan", str(folder / "layers.pt")),
        "python": bench.python("pass"),
    }
    assert all(seconds > 0 for seconds in bench.commands_take_turns(commands, 1).values())


def test_a_missed_goal_is_said_to_be_missed() -> None:
    assert bench.faster("a", 1, "b", 10, at_least=10).verdict == "met"
    assert bench.faster("a", 1, "b", 9, at_least=10).verdict == "**missed**"
    assert bench.longer("a", 6, "b", 1, at_most=6).verdict == "met"
    assert bench.longer("a", 7, "b", 1, at_most=6).verdict == "**missed**"
