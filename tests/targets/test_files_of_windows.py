"""Paths and files as they are on Windows, on every system."""

from __future__ import annotations

import sys
from pathlib import Path, PureWindowsPath

import pytest

import modelglass as mg
from modelglass.cli._types import TargetName
from modelglass.compat.unique_modules import _origin
from modelglass.errors import InspectError, TargetError
from modelglass.files import suggest_path
from modelglass.renderers.sarif import _uri
from modelglass.targets.paths import has_weights, is_code_name, is_config_path
from modelglass.user_code import CodeName, only_installed, parse_code_name

PATHS = (
    r"C:\models\net",
    "c:/models/net",
    r"models\net",
    r"\\server\share\net",
    r"\\?\C:\very\long\net",
    r"\\.\C:\net",
    r"\\?\UNC\server\share\net",
)


@pytest.mark.parametrize("path", PATHS)
def test_a_file_is_not_code_and_a_function_in_it_is(path: str) -> None:
    file, code = PureWindowsPath(f"{path}.pt"), PureWindowsPath(f"{path}.py")
    assert parse_code_name(str(file)) is None
    assert not is_code_name(f"{path}.pt")
    assert is_code_name(f"{code}::build")
    assert parse_code_name(f"{code}::Net.build") == CodeName(str(code), "Net.build", True)


@pytest.mark.parametrize("text", ["package.module:build", "m:build", "m:Net.build"])
def test_a_module_has_no_drive(text: str) -> None:
    place, _, name = text.partition(":")
    assert parse_code_name(text) == CodeName(place, name, False)


@pytest.mark.parametrize("path", PATHS)
def test_a_file_that_does_not_exist_is_said_to_be_missing(path: str) -> None:
    with pytest.raises(TargetError, match="there is no file"):
        mg.inspect(f"{path}.pt")
    with pytest.raises(TargetError, match="there is no file"):
        mg.inspect(f"{path}.py::build")


@pytest.mark.parametrize("path", PATHS)
def test_a_file_is_no_builder_and_no_optimizer(path: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: 1\n")
    with pytest.raises(InspectError, match="does not name a function"):
        mg.inspect(tmp_path / "c.yaml", builder=f"{path}.pt")


def test_completion_keeps_the_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelglass.api.roles_in", lambda path: {"build": "model"})
    items = TargetName().shell_complete(None, None, r"C:\x.py::b")  # type: ignore[arg-type]
    assert [item.value for item in items] == [r"C:\x.py::build"]


def test_origins_have_no_folders() -> None:
    assert _origin("models/net.py::build") == ("net.py:build", "build")
    assert _origin("package.module:build") == ("package.module:build", "build")


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (r"C:\models\a b.pt", "file:///C:/models/a%20b.pt"),
        ("c:/models/a.pt", "file:///c:/models/a.pt"),
        (r"\\server\share\a.pt", "file://server/share/a.pt"),
    ],
)
def test_addresses_are_those_of_pathlib(path: str, address: str) -> None:
    assert _uri(path) == PureWindowsPath(path).as_uri() == address


@pytest.mark.parametrize("name", ["MODEL.SAFETENSORS", "Model.Pt", "model.gguf"])
def test_suffixes_have_no_case(name: str, tmp_path: Path) -> None:
    assert not has_weights(tmp_path)
    (tmp_path / name).write_bytes(b"")
    assert has_weights(tmp_path)
    assert not is_config_path(tmp_path / name)


def test_code_in_capitals_is_code(tmp_path: Path) -> None:
    (tmp_path / "NET.PY").write_text("def build(): return 1\n")
    with pytest.raises(InspectError, match="is Python code"):
        mg.inspect(tmp_path / "NET.PY")


def test_what_is_suggested_for_a_missing_folder_does_not_fail() -> None:
    assert "does not exist" in suggest_path(Path(r"C:\no\such\a.pt") / "b")


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "with a mark"])
def test_files_with_line_ends_of_windows_are_read(mark: str, tmp_path: Path) -> None:
    files = {
        "net.py": "import torch\ndef build():\n    return torch.nn.Linear(3, 4)\n",
        "net.yaml": "model:\n  _target_: torch.nn.Linear\n  in_features: 3\n  out_features: 4\n",
        "net.json": '{"model": {"_target_": "torch.nn.Linear",\n "in_features": 3, "out_features": 4}}\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes((mark + text.replace("\n", "\r\n")).encode())
    for target in (f"{tmp_path / 'net.py'}::build", tmp_path / "net.yaml"):
        counts = mg.inspect(target, **({} if isinstance(target, str) else {"trust": True})).counts
        assert counts is not None
        assert counts.params == 16
    if mark:  # as json.load, and transformers, have it
        with pytest.raises(InspectError, match="byte order mark"):
            mg.inspect(tmp_path / "net.json", trust=True)
    else:
        assert mg.inspect(tmp_path / "net.json", trust=True).counts == counts


def test_a_folder_under_another_name_is_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On macOS `realpath` keeps the case that a folder was called in."""
    (tmp_path / "Models").mkdir()
    (tmp_path / "models").symlink_to("Models")
    monkeypatch.setattr("os.path.realpath", lambda path: str(path))
    monkeypatch.syspath_prepend(str(tmp_path / "models"))
    with only_installed(tmp_path / "Models" / "a.pt"):
        assert str(tmp_path / "models") not in sys.path
    assert str(tmp_path / "models") in sys.path
