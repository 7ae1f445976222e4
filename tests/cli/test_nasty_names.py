"""Names that try to be more than data, on the command line: a sentence and an exit code."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from modelglass.cli import main as commands, model_inspector, tt_model_analysis
from output_checks import NASTY, check, check_plain

FORMATS = ("text", "json", "markdown", "csv", "html", "sarif")
NAMES = [text for text in NASTY if text != "\ud800"]  # which no file can be called
LONG = "a" * 5000
DEEP = "/".join(["a" * 50] * 200)
CODES = (0, 1, 2, 3, 4)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """What a command says and its exit code, once both streams are known to be harmless."""

    def run(*args: str, main: Callable[[list[str]], None] = commands.main) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(list(args))
        out, err = capfd.readouterr()
        check_plain(out)
        check_plain(err)
        assert "Traceback" not in err
        code = int(stop.value.code or 0)
        assert code in CODES
        assert code == 0 or out or err
        return code, out, err

    return run


COMMANDS = ("inspect", "scan", "stats", "flow", "memory", "unique", "info")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_files_that_are_not_there(command: str, said: Callable[..., tuple[int, str, str]]) -> None:
    for name in (*NAMES, LONG, DEEP):
        said(command, name)
        said(command, f"./{name}.pt")
        said(command, f"./{name}.json")


@pytest.mark.slow
def test_two_files_that_are_not_there(said: Callable[..., tuple[int, str, str]]) -> None:
    for name in (*NAMES, LONG, DEEP):
        said("compare", name, f"./{name}.safetensors")
        said("fit", f"./{name}.yaml", "--memory", name)
        said("--config", name, main=model_inspector.main)
        said("--checkpoint", f"./{name}.bin", main=model_inspector.main)
        said("--model-path", name, "--inputs-path", name, main=tt_model_analysis.main)


def test_options_that_there_are_not(said: Callable[..., tuple[int, str, str]]) -> None:
    for name in (*NAMES, LONG, DEEP):
        for args in ([f"--{name}"], ["x.pt", "--format", name], ["x.pt", "--limit", name]):
            assert said("scan", *args)[0] == 2
        said("inspect", "a.py::b", "--input", name, "--columns", name)
        said(name)


def safetensors(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


class _Named:
    """A pickle of a call to that name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def dumped(self) -> bytes:
        name = self.name.replace("\n", " ").encode(errors="surrogatepass")
        return b"\x80\x02X" + struct.pack("<I", len(name)) + name + b"0c" + name + b"\n" + name + b"\n)R."


def damaged(name: str) -> Iterator[tuple[str, bytes]]:
    """Files that are wrong, and say so with the name."""
    entry = {"dtype": name, "shape": [1], "data_offsets": [0, 4]}
    yield ".safetensors", safetensors({name: entry, "__metadata__": {name: name}})
    yield ".safetensors", safetensors({name: {"dtype": "F32", "shape": [name], "data_offsets": [0, 4]}})
    yield ".pt", _Named(name).dumped()
    yield ".pkl", pickle.dumps({name: name})
    yield ".json", json.dumps({"_target_": name, name: name}).encode()
    yield (
        "/config.json",
        json.dumps({"model_type": name, "architectures": [name], "auto_map": {name: name}}).encode(),
    )
    yield ".yaml", f"model: !!python/object/apply:{name!r} [{name!r}\n".encode(errors="replace")
    yield ".yaml", json.dumps({"class_path": name, "init_args": {name: name}}).encode()
    yield ".gguf", b"GGUF" + name.encode(errors="replace")
    yield ".onnx", name.encode(errors="replace")
    yield ".jinja", name.encode(errors="replace")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_files_that_are_damaged(name: str, tmp_path: Path, said: Callable[..., tuple[int, str, str]]) -> None:
    for number, (suffix, content) in enumerate(damaged(name)):
        path = tmp_path / str(number) / f"{name}{suffix}"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        os.chdir(path.parent)
        for command in ("inspect", "memory", "flow") if suffix.endswith(("json", "yaml")) else ("inspect",):
            said(command, f"./{path.name}")
        said("scan", "--", path.name)
    for format in FORMATS:
        check(format, said("scan", str(tmp_path), "--format", format)[1])


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_of_such_names(
    format: str, tmp_path: Path, said: Callable[..., tuple[int, str, str]]
) -> None:
    for name in NAMES:
        for suffix in ("", ".pt", ".json"):
            Path(tmp_path, f"{name}{suffix}").write_bytes(_Named(name).dumped())
    code, out, err = said("scan", ".", "--format", format)
    assert code in (1, 3)
    check(format, out)
    check_plain(err)
    assert all(line.startswith("modelglass: scanning ") for line in err.splitlines())  # of a slow machine


def test_a_listing_as_users_get_it(tmp_path: Path) -> None:
    """The quick way of a file alone, and a stream of bytes that is not UTF-8."""
    for name in ("##vso[x]\x1b", "a\udcff"):
        Path(tmp_path, f"{name}.safetensors").write_bytes(safetensors({"__metadata__": {"a": "::error::x"}}))
        done = subprocess.run(
            [sys.executable, "-c", "from modelglass.cli.start import main; main()", f"./{name}.safetensors"],
            capture_output=True,
            check=False,
        )
        check_plain(done.stdout.decode())
        check_plain(done.stderr.decode())
        assert done.returncode in CODES


def test_nothing_is_written_past_the_places_that_make_it_harmless() -> None:
    """Streams are written by `emit`, `tell`, progress and the quick listing alone."""
    folder = Path(commands.__file__).parent
    writers = {
        (path.name, ast.unparse(node.func))
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and re.search(r"\b(echo|print|write|print_exc)$", ast.unparse(node.func))
    }
    assert writers == {
        ("_exit.py", "sys.stderr.write"),
        ("_output.py", "echo"),
        ("_progress.py", "sys.stderr.write"),
        ("start.py", "sys.stdout.write"),
        ("view.py", "file.write"),  # a page for the browser
    }
