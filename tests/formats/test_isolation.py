"""Files that would exhaust whoever reads them: the answer comes in time, and says what was not looked at."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

import modelglass as mg
from command_line import run
from modelglass.formats.limits import Limits
from modelglass.formats.scan import isolated, scan as scanning
from modelglass.formats.scan.isolated import Isolated
from modelglass.report import Scan

Capture = pytest.CaptureFixture[str]
CALL = b"cos\nsystem\nX\x04\x00\x00\x00true\x85R0"
CALL_FIRST = b"\x80\x02" + CALL


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def limits_met(scan: Scan) -> list[str]:
    return [finding.text for finding in scan.findings if finding.level == "limit"]


def torch_file(path: Path, members: dict[str, bytes]) -> Path:
    return zipped(path, {"a/data.pkl": b"\x80\x02}.", "a/version": b"3\n", **members})


def test_all_members_of_a_file_share_one_account(tmp_path: Path) -> None:
    """Each of the pickles alone stays below the limit."""
    pickle = b"\x80\x02" + b"N0" * 400 + b"N."
    path = torch_file(tmp_path / "a.pt", {f"a/{number}.pkl": pickle for number in range(20)})
    assert limits_met(mg.scan(path)) == []
    assert any(
        "pickle_opcodes = 5,000" in text
        for text in limits_met(mg.scan(path, limits={"pickle_opcodes": 5000}))
    )


def test_what_members_unpack_to_is_shared_too(tmp_path: Path) -> None:
    pickle = b"\x80\x02(" + b"N" * 5000 + b"t."
    path = torch_file(tmp_path / "a.pt", {f"a/{number}.pkl": pickle for number in range(9)})
    assert limits_met(mg.scan(path)) == []
    assert mg.scan(path, limits={"inflated_nbytes": 20_000}).exit_code() == 4


def test_accounts_of_two_files_are_apart(tmp_path: Path) -> None:
    pickle = b"\x80\x02" + b"N0" * 400 + b"N."
    for name in "ab":
        (tmp_path / f"{name}.pkl").write_bytes(pickle)
    assert limits_met(mg.scan(tmp_path, limits={"pickle_opcodes": 1000})) == []


def test_what_was_found_before_the_time_was_over_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(CALL_FIRST + b"N0" * 30_000_000 + b"N.")
    begun = monotonic()
    scan = mg.scan(tmp_path / "a.pkl", limits={"seconds": 2, "pickle_opcodes": 10**12})
    assert monotonic() - begun < 10  # and not the minute that it takes
    assert scan.exit_code() == 4
    assert any("seconds = 2" in text for text in limits_met(scan))
    assert [each.name for each in scan.files[0].globals] == ["os.system"]


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In a new process: a copy of this one would have room of its own that other tests left free.
    monkeypatch.setattr(isolated, "_THREADED", ("os",))
    (tmp_path / "a.pkl").write_bytes(CALL_FIRST + b"(" + b"]" * 4_000_000 + b"l.")
    scan = mg.scan(tmp_path / "a.pkl", limits={"memory_nbytes": 64 << 20})
    assert scan.exit_code() == 4
    assert any("memory_nbytes = 67,108,864" in text for text in limits_met(scan))


def endless(path: Path, within: Path | None, limits: Limits, **options: Any) -> Any:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    sleep(60)


def dying(path: Path, within: Path | None, limits: Limits, **options: Any) -> Any:
    os._exit(7)


@pytest.mark.parametrize(("behaviour", "said"), [(endless, "seconds = 1"), (dying, "ended (7)")])
def test_a_reader_that_does_not_come_back_is_a_finding_and_the_next_file_is_read(
    behaviour: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = tmp_path / "good.pkl", tmp_path / "bad.pkl"
    for path in (good, bad):
        path.write_bytes(b"\x80\x02N.")

    def looking(path: Path, within: Path | None, limits: Limits, **options: Any) -> Any:
        return (behaviour if path == bad else scanning.look)(path, within, limits, **options)

    monkeypatch.setattr(isolated, "look", looking)
    monkeypatch.setattr(isolated, "_THREADED", ())  # a copy of this process has what was exchanged in it
    with Isolated(Limits(seconds=1)) as process:
        found = [process.look(path, None).file for path in (bad, good)]
    assert said in found[0].findings[0].text
    assert found[0].findings[0].level == "limit"
    assert found[1].findings == mg.scan(good).files[0].findings


@pytest.mark.parametrize("threaded", [(), ("sys",)], ids=["copied", "new"])
def test_another_process_finds_what_this_one_does(
    threaded: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / os.fsdecode(b"odd \xff name.pkl")
    path.write_bytes(CALL_FIRST + b"N.")
    monkeypatch.setattr(isolated, "_THREADED", threaded)
    assert mg.scan(path) == mg.scan(path, isolate=False)


def test_no_process_is_copied_on_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pkl"
    path.write_bytes(CALL_FIRST + b"N.")
    monkeypatch.setattr(isolated, "_THREADED", ())
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "fork", None)
    assert mg.scan(path) == mg.scan(path, isolate=False)


def test_the_process_can_write_nothing(tmp_path: Path) -> None:
    code = "import os; from modelglass.formats.confine import confine; confine(1 << 30)\n"
    code += "os.write(os.open('made', os.O_CREAT | os.O_WRONLY), b'x')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "File too large" in done.stderr
    assert (tmp_path / "made").read_bytes() == b""


def test_the_command_line_chooses(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.pkl").write_bytes(CALL_FIRST + b"N0" * 9_000_000 + b"N.")
    command = ("scan", str(tmp_path / "a.pkl"), "--format", "json")
    code, out, _ = run(*command, "--limit", "seconds=3", "--limit", "pickle_opcodes=999999999", capsys=capsys)
    assert (code, json.loads(out)["files"][0]["globals"][0]["name"]) == (4, "os.system")
    assert run(*command, "--no-isolate", "--limit", "seconds=3", capsys=capsys)[0] == 1
