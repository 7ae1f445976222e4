"""Damaged and hostile files: nothing in them runs, each gets a clear answer, time and memory are bounded."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy
import onnx
import pytest
import safetensors
import torch

from hostile import gguf_files, legacy, numpy_files, onnx_files, safetensors_files, torch_files
from hostile.cases import CASES, Case
from modelglass.errors import CorruptFileError
from modelglass.formats.source import OpenFile

pytestmark = pytest.mark.slow

RUNNER = Path(__file__).parents[1] / "support" / "hostile" / "runner.py"
FORMATS = ("text", "json", "sarif", "markdown")
KEPT_NBYTES = 200_000_000  # a process that held more is not used again: memory does not all come back
PATIENCE = 120  # seconds for all commands on one file, before the process is given up

GOOD = {
    "zip.pt": torch_files.pt_zip(torch_files.PLAIN),
    "legacy.pt": legacy.legacy(),
    "tar.pt": legacy.tar(),
    "good.safetensors": safetensors_files.GOOD,
    "good.gguf": gguf_files.model(),
    "good.onnx": onnx_files.model(onnx_files.tensor()),
    "good.npy": numpy_files.npy(numpy_files.described(), bytes(16)),
    "good.npz": numpy_files.npz(("w.npy", numpy_files.npy(numpy_files.described(), bytes(16)))),
}

# Imported only when a file that names them is unpickled.
NAMED_BY_FILES = {"pickle", "_pickle", "sqlite3", "tarfile"}
# Control characters but the line feed, surrogates, and what changes or hides the text around it.
UNPRINTABLE = re.compile(
    "[^\n -~\u00a0-\U0010ffff]"
    "|[\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
    "|[\U000e0000-\U000e007f]"
)


class Runner:
    """A process that runs commands under watch, started when it is first asked.

    It first runs those of `warm_up`, so that what every command imports is there.
    """

    def __init__(self, main: str, *, warm_up: list[list[str]], out: Path) -> None:
        self._main, self._warm_up, self._out = main, warm_up, out
        self._process: subprocess.Popen[str] | None = None

    def ask(self, commands: list[list[str]], out: Path) -> list[dict[str, Any]]:
        """What each command did; what it printed is in `out`."""
        if self._process is None:
            self._process = self._started()
            self.ask(self._warm_up, self._out)
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"commands": commands, "out": str(out)}) + "\n")
        process.stdin.flush()
        answered, _, _ = select.select([process.stdout], [], [], PATIENCE)
        line = process.stdout.readline() if answered else ""
        if not line:
            self.stop()
            pytest.fail("the process died" if answered else f"no answer within {PATIENCE} s")
        results: list[dict[str, Any]] = json.loads(line)
        return results

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            # Without -B, importing a module would write its compiled form.
            [sys.executable, "-B", str(RUNNER), self._main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Our command line, which has seen a good file."""
    out = tmp_path_factory.mktemp("warm")
    (out / "good.safetensors").write_bytes(safetensors_files.GOOD)
    runner = Runner("modelglass.cli.main:main", warm_up=_commands(out / "good.safetensors"), out=out)
    yield runner
    runner.stop()


@pytest.fixture(scope="module")
def naughty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    runner = Runner("hostile.naughty:main", warm_up=[["nothing"]], out=tmp_path_factory.mktemp("warm"))
    yield runner
    runner.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a bad file is built; it does not stay, because some are large."""
    folder = tmp_path / "case"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


OURS = ("modelglass", "jinja2", "markupsafe", "yaml", "_yaml")  # with the parsers of templates and YAML


def _commands(path: Path) -> list[list[str]]:
    # Not isolated, so that the process which is watched is the one that reads.
    scans = (["scan", "--no-isolate", str(path), "--format", format] for format in FORMATS)
    return [*scans, [str(path)]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_hostile_file_gets_a_clear_answer_and_runs_nothing(
    case: Case, runner: Runner, folder: Path, tmp_path: Path
) -> None:
    path = case.build(folder)
    *scans, inspected = results = runner.ask(_commands(path), tmp_path)

    assert not (folder / "canary").exists()
    if max(result["peak_nbytes"] for result in results) > KEPT_NBYTES:
        runner.stop()
    for at, result in enumerate(results):
        _check_deeds(result, case)
        _check_output((tmp_path / f"{at}.out").read_bytes(), (tmp_path / f"{at}.err").read_bytes())
    text, printed, sarif, markdown = ((tmp_path / f"{at}.out").read_text() for at in range(len(FORMATS)))
    for result in scans:
        assert result["exit_code"] in case.exit_codes, text[:2000] + (tmp_path / "0.err").read_text()[:2000]
    assert inspected["exit_code"] in ({3} if case.exit_codes == {3} else {0, 1, 3, 4})
    _check_findings(case, json.loads(printed))
    json.loads(sarif)
    assert "<script" not in markdown


@pytest.mark.parametrize("name", GOOD)
def test_the_good_form_of_each_file_gets_exit_code_0(
    name: str, runner: Runner, folder: Path, tmp_path: Path
) -> None:
    path = folder / name
    path.write_bytes(GOOD[name])
    for result in runner.ask(_commands(path), tmp_path):
        assert result["exit_code"] == 0, (result["args"], (tmp_path / "0.out").read_text()[:2000])


def test_the_good_form_of_each_file_is_accepted_by_its_own_library(folder: Path) -> None:
    for name, content in GOOD.items():
        (folder / name).write_bytes(content)
    assert torch.load(folder / "zip.pt", weights_only=True)["w"].shape == (2, 2)
    assert torch.load(folder / "legacy.pt", weights_only=True)["w"].shape == (2, 2)
    # weights_only refuses every tar; this one has nothing in it but a tensor.
    assert torch.load(folder / "tar.pt", weights_only=False)["w"].shape == (2, 2)
    with safetensors.safe_open(folder / "good.safetensors", "pt") as opened:
        assert list(opened.keys()) == ["w"]
    assert [tensor.name for tensor in gguf.GGUFReader(folder / "good.gguf").tensors] == ["w"]
    onnx.checker.check_model(onnx.load(folder / "good.onnx"))
    assert numpy.load(folder / "good.npy").shape == (4,)
    assert list(numpy.load(folder / "good.npz")) == ["w"]


def _check_deeds(result: dict[str, Any], case: Case) -> None:
    """What the process did while it ran one command."""
    command = " ".join(result["args"])
    assert result["trouble"] is None, command
    assert result["forbidden"] == [], command
    assert result["seconds"] <= case.seconds, command
    assert result["peak_nbytes"] <= case.peak_nbytes, command
    for name in result["imports"]:
        package = name.partition(".")[0]
        assert package in sys.stdlib_module_names or package in OURS, (command, name)
        assert package not in NAMED_BY_FILES, (command, name)
    assert not any(Path(opened).name.startswith("secret") for opened in result["opened"]), command


def _check_output(out: bytes, err: bytes) -> None:
    for printed in (out.decode(), err.decode()):
        assert "Traceback" not in printed, printed[-2000:]
        found = UNPRINTABLE.search(printed)
        assert found is None, (
            f"U+{ord(found[0]):04X} in {printed[max(0, found.start() - 80) : found.end()]!r}"
        )


def _check_findings(case: Case, printed: object) -> None:
    findings = list(_findings(printed))
    if case.codes:
        assert case.codes & {finding["code"] for finding in findings}, findings
    if case.contains is not None:
        assert any(case.contains in json.dumps(finding) for finding in findings), findings
    if case.exit_codes.isdisjoint({0}):
        assert findings, "an exit code that is not 0 comes with a finding"


def _findings(printed: object) -> Iterator[dict[str, Any]]:
    """Everything in the JSON that has a code and a level, wherever it is."""
    waiting = [printed]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "code" in value and "level" in value:
                yield value
            else:
                waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def test_case_ids_are_unique() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize(
    ("deed", "seen"),
    [
        ("exec", "exec"),
        ("compile", "compile"),
        ("find_class", "pickle.find_class"),
        ("system", "os.system"),
        ("process", "subprocess.Popen"),
        ("write", "open for writing"),
    ],
)
def test_the_watch_sees_what_is_forbidden(deed: str, seen: str, naughty: Runner, tmp_path: Path) -> None:
    (result,) = naughty.ask([[deed]], tmp_path)
    assert any(event.startswith(seen) for event in result["forbidden"]), result


def test_the_watch_sees_imports_and_opened_files(naughty: Runner, tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(b"x")
    imported, read = naughty.ask([["import"], ["read", str(secret)]], tmp_path)
    assert "onnx" in imported["imports"]
    assert str(secret) in read["opened"]


def test_the_watch_tells_a_crash_from_an_answer(naughty: Runner, tmp_path: Path) -> None:
    crashed, fine = naughty.ask([["crash"], ["nothing"]], tmp_path)
    assert crashed["trouble"].startswith("ZeroDivisionError")
    assert (fine["exit_code"], fine["trouble"], fine["forbidden"]) == (0, None, [])
    assert (tmp_path / "1.out").read_text() == "fine\n"


def test_a_process_that_dies_fails_its_own_case_only(naughty: Runner, tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="died"):
        naughty.ask([["die"]], tmp_path)
    (fine,) = naughty.ask([["nothing"]], tmp_path)
    assert fine["exit_code"] == 0


def test_unprintable_characters_are_found_and_letters_are_not() -> None:
    hidden = ("\x1b", "\r", "\t", "\0", "\x7f", "\x9b", "\u202e", "\u2066", "\u200b", "\ufeff", "\ud800")
    assert all(UNPRINTABLE.search(character) for character in hidden)
    assert UNPRINTABLE.search("weights: 2 × 3 – größer, 重み\n│ └─ ✓") is None


def test_a_file_that_shrinks_after_it_was_opened_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_files.GOOD)
    with OpenFile(path) as source:
        source.read(0, 8, "the header length")
        shrinking = threading.Thread(target=os.truncate, args=(path, 8))
        shrinking.start()
        shrinking.join()
        with pytest.raises(CorruptFileError) as trouble:
            source.read(8, 40, "the header")
        assert trouble.value.code in {"changed", "truncated"}
        with pytest.raises(CorruptFileError) as trouble:
            source.check_unchanged()
        assert trouble.value.code == "changed"


def test_a_file_that_grows_after_it_was_opened_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors_files.GOOD)
    with OpenFile(path) as source:
        os.truncate(path, 1 << 20)
        with pytest.raises(CorruptFileError) as trouble:
            source.check_unchanged()
        assert trouble.value.code == "changed"
