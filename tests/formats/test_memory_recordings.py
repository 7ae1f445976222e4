"""Files that `torch.cuda.memory._dump_snapshot` writes, real ones and hostile ones."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import modelglass as mg
import replays
from command_line import run
from modelglass.analyses.memory.replay import memory_snapshot
from modelglass.errors import CorruptFileError, UnknownTargetError, UsageError
from modelglass.formats import snapshots
from modelglass.report import MemorySnapshot

FRAMES = [
    {"filename": "??", "line": 0, "name": "torch::empty"},
    {"filename": "/x/site-packages/torch/nn/modules/linear.py", "line": 125, "name": "forward"},
    {"filename": "/home/me/model.py", "line": 7, "name": "forward"},
]


class Calling:
    def __reduce__(self) -> Any:
        return print, ("run",)


def write(folder: Path, content: object) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return path


@pytest.fixture(scope="module", params=replays.RECORDINGS[:6], ids=replays.name_of)
def recording(request: pytest.FixtureRequest) -> dict[str, Any]:
    return replays.load(request.param)


def test_a_snapshot_has_the_figures_of_the_real_run(recording: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, replays.file_content(recording, FRAMES))
    (device,) = memory_snapshot("x", snapshots.read(path)).devices
    truth = recording["truth"]
    assert device.peak.allocated_nbytes == truth["peak_allocated"]
    assert device.peak_reserved_nbytes == truth["peak_reserved"]
    assert (device.end.allocated_nbytes, device.end.reserved_nbytes) == (
        truth["end_allocated"],
        truth["end_reserved"],
    )
    assert device.unexplained == 0
    assert sum(held.nbytes for held in device.held_at_peak) == truth["peak_allocated"]


def test_what_is_held_is_named_by_the_users_own_line(tmp_path: Path) -> None:
    recording = replays.load(replays.RECORDINGS[-1])
    found = mg.memory(write(tmp_path, replays.file_content(recording, FRAMES)))
    assert isinstance(found, MemorySnapshot)
    places = {held.place for held in found.devices[0].held_at_peak}
    assert "/home/me/model.py:7 forward" in places
    assert places <= {"/home/me/model.py:7 forward", "before the recording began"}


def test_a_snapshot_reads_back_from_what_was_saved(tmp_path: Path) -> None:
    found = mg.memory(write(tmp_path, replays.file_content(replays.load(replays.RECORDINGS[-1]), FRAMES)))
    mg.save(found, tmp_path / "saved.json")
    assert mg.load(tmp_path / "saved.json") == found


@pytest.mark.parametrize("format", ["text", "markdown", "csv", "json", "html"])
def test_the_command_writes_every_format(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, replays.file_content(replays.load(replays.RECORDINGS[-1]), FRAMES))
    code, out, _ = run("memory", str(path), "--format", format, capsys=capsys)
    assert code == 0
    assert "model.py:7" in out


def test_a_snapshot_is_not_a_model(tmp_path: Path) -> None:
    path = write(tmp_path, replays.file_content(replays.load(replays.RECORDINGS[-1])))
    with pytest.raises(UnknownTargetError, match="recording of GPU memory"):
        mg.inspect(path)
    with pytest.raises(UsageError, match="train"):
        mg.memory(path, train=True)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"segments": [], "device_traces": [[Calling()]]}, "plain data only"),
        ({"segments": [{"device": -1}], "device_traces": [[]]}, "device"),
        ({"segments": {}, "device_traces": []}, "list"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "size": 1 << 80, "stream": 0}]]}, "size"),
        (pickle.dumps({"segments": [], "device_traces": []})[:-4], "pickle|input"),
        (b"\x80\x04}\x94\x8c\x08segments\x94r\xff\xff\xff\xff.", "memory|ended"),
    ],
)
def test_hostile_files_are_refused(
    content: object, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CorruptFileError, match=why):
        snapshots.read(write(tmp_path, content), memory_nbytes=256 << 20)
    assert "run" not in capfd.readouterr().out


def test_events_that_contradict_each_other_make_an_estimate(tmp_path: Path) -> None:
    event = {"action": "alloc", "addr": 512, "size": 10, "stream": 0, "frames": []}
    gone = {**event, "action": "segment_free"}
    new = {**event, "action": "segment_alloc", "size": 2 << 20}
    content = {"segments": [], "device_traces": [[event, event, gone, new, new, event, gone]]}
    found = mg.memory(write(tmp_path, content))
    assert isinstance(found, MemorySnapshot)
    assert found.devices[0].unexplained > 0
    assert any(note.code == "unexplained-events" for note in found.notes)
