"""Files are read where nothing is there that only Unix has, and what cannot hold there is said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from formats_of_small import FORMATS, write

SUPPORT = Path(__file__).parents[1] / "support"
RUN = """
import contextlib, io, json, sys
from modelglass.cli.main import main

def answer(args):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(args)
        except SystemExit as stop:
            code = stop.code or 0
    return [code, out.getvalue(), err.getvalue()]

print(json.dumps([answer(args) for args in json.loads(sys.argv[1])]))
"""


def answers(commands: list[list[str]], folder: Path, *, elsewhere: bool) -> list[tuple[int, str, str]]:
    """What commands answer, one after the other in a process of their own: here, or on another system."""
    environment = {**os.environ, **({"PYTHONPATH": str(SUPPORT / "other_system")} if elsewhere else {})}
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(commands)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [(code, out, err) for code, out, err in json.loads(done.stdout.splitlines()[-1])]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    made = {}
    for name in FORMATS:
        (folder / name).mkdir()
        made[name] = write(name, folder / name)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("command", ["inspect", "stats", "scan"])
def test_every_format_is_read_as_here(command: str, files: dict[str, Path], tmp_path: Path) -> None:
    commands = [[command, str(path), "--format", "json"] for path in files.values()]
    here = answers(commands, tmp_path, elsewhere=False)
    there = answers(commands, tmp_path, elsewhere=True)
    for name, (code, out, _), (other_code, other_out, other_err) in zip(files, here, there, strict=True):
        assert (name, other_code, other_out) == (name, code, out)
        assert "Traceback" not in other_err


@pytest.mark.slow
def test_what_scanning_cannot_bound_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(b"\x80\x02N.")
    command = ["scan", "a.pkl"]
    (here,) = answers([command], tmp_path, elsewhere=False)
    (there,) = answers([command], tmp_path, elsewhere=True)
    assert here[2] == ""
    assert "this system does not bound memory and writing" in there[2]
    assert there[:2] == here[:2]


@pytest.mark.slow
def test_time_is_bounded_there_too_and_what_was_found_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(
        b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R0" + b"N0" * 30_000_000 + b"N."
    )
    command = [
        "scan",
        "a.pkl",
        "--limit",
        "seconds=3",
        "--limit",
        "pickle_opcodes=999999999",
        "--format",
        "json",
    ]
    ((code, out, _),) = answers([command], tmp_path, elsewhere=True)
    (file,) = json.loads(out)["files"]
    assert code == 4
    assert any("seconds = 3" in finding["text"] for finding in file["findings"])
    assert [each["name"] for each in file["globals"]] == ["os.system"]


def test_a_folder_and_a_file_that_is_kept_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.pt").mkdir()
    ((code, _, err),) = answers([["scan", "--no-isolate", "a.pt"]], tmp_path, elsewhere=True)
    assert (code, "Traceback" in err) == (3, False)


SOURCE = Path(__file__).parents[2] / "src" / "modelglass"
# Files that look whether a name is there before they use it, or are only reached where it is.
LOOKING = {
    "formats/opening.py",
    "formats/scan/isolated.py",
    "formats/confine.py",
    "analyses/stats/engine.py",
    "forking.py",
    "inputs/process.py",
    "frameworks/vllm/build.py",
    "frameworks/torch/memory/calibration.py",
}
_NAMES = (
    r"os\.(?:O_(?:NOFOLLOW|DIRECTORY|CLOEXEC|NONBLOCK)|p(?:read|write)|fork|killpg|get[eu]?[ug]id|sysconf|mkfifo|"
    r"posix_\w+|sched_\w+)|signal\.(?:SIGKILL|SIGALRM|SIGHUP|SIGPIPE|setitimer|alarm)|dir_fd=|preexec_fn|"
    r"^\s*(?:import|from) (?:resource|pwd|grp|fcntl|termios)\b"
)


def test_names_of_unix_are_used_where_they_are_looked_for() -> None:
    """Names of what a configuration may not call are data, in `guarding.py`."""
    used = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(_NAMES, path.read_text(encoding="utf-8"), re.MULTILINE) and path.name != "guarding.py"
    }
    assert used <= LOOKING
