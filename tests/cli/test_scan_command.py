"""`modelglass scan` as a person meets it; what it finds is tested with the formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from modelglass import api
from modelglass.cli.main import run as run_command
from modelglass.report import LEVELS, Finding, Scan, ScannedFile

Capture = pytest.CaptureFixture[str]


class Scanner:
    """Stands for the function that reads files: remembers how it was called, finds what it is told."""

    def __init__(self) -> None:
        self.levels: list[str] = []
        self.calls: list[tuple[Any, Any]] = []

    def __call__(self, paths: Any, *, limits: Any, isolate: bool, progress: Any) -> Scan:
        self.calls.append((paths, limits))
        click.echo("noise")
        progress("reading")
        text = "opens /home/alice/secret"
        findings = [Finding(code="a.b", level=level, text=text, file="m.pt") for level in self.levels]  # type: ignore[arg-type]
        return Scan(
            files=(
                ScannedFile(path="m.pt", format="gguf", nbytes=9, read_nbytes=9, findings=tuple(findings)),
            )
        )


@pytest.fixture
def scanner(monkeypatch: pytest.MonkeyPatch) -> Scanner:
    made = Scanner()
    monkeypatch.setattr(api, "scan", made, raising=False)
    return made


@pytest.fixture
def run(scanner: Scanner, capsys: Capture) -> Callable[..., tuple[int, str, str]]:
    command: click.Command = import_module("modelglass.cli.scan").scan

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            run_command(command, "scan", list(args))
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


Run = Callable[..., tuple[int, str, str]]

CODES = [
    ([], "notice", 0),
    (["info"], "notice", 0),
    (["info"], "info", 1),
    (["notice"], "notice", 1),
    (["notice"], "high", 0),
    (["high", "notice"], "high", 1),
    (["high", "limit"], "high", 4),
    (["high", "limit", "invalid"], "high", 3),
]


@pytest.mark.parametrize(("levels", "fail_on", "expected"), CODES)
def test_exit_codes(levels: list[str], fail_on: str, expected: int, run: Run, scanner: Scanner) -> None:
    scanner.levels = levels
    code, out, err = run("m.pt", "--fail-on", fail_on)
    assert code == expected
    assert out.startswith("m.pt: gguf, 9 B\n")
    assert "Traceback" not in err


def test_notices_fail_unless_said_otherwise(run: Run, scanner: Scanner) -> None:
    scanner.levels = ["notice"]
    assert run("m.pt")[0] == 1


@pytest.mark.parametrize(("given", "level"), [*((each, each) for each in LEVELS), ("any", "info")])
def test_every_level_can_be_chosen(run: Run, scanner: Scanner, given: str, level: str) -> None:
    for index, found in enumerate(LEVELS):
        scanner.levels = [found]
        assert run("m.pt", "--fail-on", given)[0] == int(index >= LEVELS.index(level))


def test_all_paths_are_scanned_in_one_run(run: Run, scanner: Scanner) -> None:
    run("a.pt", "b.pt", "folder")
    assert scanner.calls == [(("a.pt", "b.pt", "folder"), None)]


@pytest.mark.parametrize("format_", api.RENDERERS["scan"])
def test_only_the_result_is_printed(format_: str, run: Run, scanner: Scanner) -> None:
    scanner.levels = ["high"]
    code, out, err = run("m.pt", "--format", format_)
    assert code == 1
    assert "noise" not in out
    assert "noise" in err
    assert "alice" in out
    if format_ in ("json", "sarif"):
        json.loads(out)


@pytest.mark.parametrize("format_", api.RENDERERS["scan"])
def test_redacted(format_: str, run: Run, scanner: Scanner) -> None:
    scanner.levels = ["high"]
    _, out, _ = run("m.pt", "--format", format_, "--redact")
    assert "alice" not in out


def test_the_result_goes_to_a_file_and_the_code_stays(run: Run, scanner: Scanner, tmp_path: Path) -> None:
    scanner.levels = ["high"]
    target = tmp_path / "scan.sarif"
    code, out, _ = run("m.pt", "--format", "sarif", "-o", str(target))
    assert (code, out) == (1, "")
    assert json.loads(target.read_text())["version"] == "2.1.0"


def test_an_output_that_cannot_be_written_is_told(run: Run, tmp_path: Path) -> None:
    code, out, err = run("m.pt", "-o", str(tmp_path / "missing" / "scan.txt"))
    assert (code, out) == (2, "")
    assert "cannot write" in err


def test_width_and_colour(run: Run, scanner: Scanner) -> None:
    scanner.levels = ["high"]
    _, out, _ = run("m.pt", "--width", "40", "--color", "always")
    assert "\x1b[31m" in out
    _, out, _ = run("m.pt", "--width", "40")
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 40


def test_limits(run: Run, scanner: Scanner) -> None:
    assert run("m.pt", "--limit", "tensors=5", "--limit", "dims=3")[0] == 0
    assert scanner.calls == [(("m.pt",), {"tensors": 5, "dims": 3})]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("colour=5", "limits are pickle_opcodes"),
        ("tensors", "must be a positive integer"),
        ("tensors=", "must be a positive integer"),
        ("tensors=0", "must be a positive integer"),
        ("tensors=-1", "must be a positive integer"),
        ("tensors=many", "must be a positive integer"),
        ("tensors=" + "9" * 5_000, "must be a positive integer"),
        ("=5", "there is no limit ''"),
    ],
)
def test_wrong_limits_are_told_before_anything_is_read(
    given: str, message: str, run: Run, scanner: Scanner
) -> None:
    code, out, err = run("m.pt", "--limit", given)
    assert (code, out) == (2, "")
    assert message in err
    assert not scanner.calls


@pytest.mark.parametrize(
    "args", [[], ["m.pt", "--fail-on", "limit"], ["m.pt", "--format", "yaml"], ["--what"]]
)
def test_wrong_usage(args: list[str], run: Run, scanner: Scanner) -> None:
    assert run(*args)[0] == 2
    assert not scanner.calls


def test_help_has_examples_and_exit_codes(run: Run) -> None:
    code, out, _ = run("--help")
    assert code == 0
    for part in ("modelglass scan pytorch_model.bin", "Exit codes:", "0  nothing", "4  stopped", "--redact"):
        assert part in out
