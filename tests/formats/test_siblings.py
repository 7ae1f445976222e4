from __future__ import annotations

import os
from pathlib import Path

import pytest

from modelglass.formats.files_beside import is_safe_relative, open_sibling
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile
from modelglass.report import Level


@pytest.fixture(autouse=True, params=["held", "by path"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case where folders can be held open, and where they cannot, as on Windows."""
    if request.param == "by path":
        monkeypatch.setattr(os, "supports_dir_fd", set())


def _open(model: Path, relative: str, level: Level = "high") -> tuple[bytes | None, list[tuple[str, str]]]:
    """The content of the sibling, if it was opened, and the findings."""
    reading = Reading()
    with OpenFile(model) as source:
        sibling = open_sibling(source, relative, reading, level)
    content = None if sibling is None else sibling.read(0, sibling.nbytes, "all")
    assert reading.opened == ([] if sibling is None else [sibling])
    if sibling is not None:
        assert sibling.file == str(model.parent / relative)
    reading.close()
    assert reading.opened == []
    return content, [(finding.code, finding.level) for finding in reading.findings]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "sub").mkdir(parents=True)
    (folder / "m.onnx").write_bytes(b"model")
    (folder / "w.data").write_bytes(b"weights")
    (folder / "sub" / "w.data").write_bytes(b"below")
    (tmp_path / "secret").write_bytes(b"secret")
    return folder / "m.onnx"


@pytest.mark.parametrize(
    ("relative", "content"),
    [("w.data", b"weights"), ("sub/w.data", b"below"), ("./sub/.//w.data", b"below")],
)
def test_a_file_beside_or_below_is_opened(model: Path, relative: str, content: bytes) -> None:
    assert _open(model, relative) == (content, [])


@pytest.mark.parametrize(
    ("relative", "reason"),
    [
        ("", "empty"),
        ("../secret", "'..'"),
        ("sub/../../secret", "'..'"),
        ("sub/..", "'..'"),
        ("/etc/passwd", "absolute"),
        ("//host/share", "another computer"),
        ("\\\\host\\share", "another computer"),
        ("sub\\w.data", "backslash"),
        ("C:w.data", "drive"),
        ("c:/w.data", "drive"),
        ("https://host/w.data", "URL"),
        ("FILE:w.data", "URL"),
        ("w.data\0.txt", "NUL"),
        ("sub/", "folder"),
        (".", "folder"),
        ("nul", "device"),
        ("sub/Con.txt", "device"),
        ("com1 .bin", "device"),
        ("\ud800", "text"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(model: Path, relative: str, reason: str) -> None:
    assert reason in (is_safe_relative(relative) or "")
    assert _open(model, relative) == (None, [("path.outside", "high")])
    assert _open(model, relative, "invalid") == (None, [("path.outside", "invalid")])


@pytest.mark.parametrize("relative", ["w.data", "console.bin", "a..b", "x/kernel:0", "weights:0", "…"])
def test_an_ordinary_name_is_not_refused(relative: str) -> None:
    assert is_safe_relative(relative) is None


@pytest.mark.parametrize("relative", ["nothing", "nothing/w.data", "w.data/x"])
def test_a_missing_file_is_said_to_be_missing(model: Path, relative: str) -> None:
    assert _open(model, relative) == (None, [("path.missing", "high")])


def test_a_name_that_is_too_long_gives_a_finding(model: Path) -> None:
    assert _open(model, "x" * 5000) == (None, [("path.cannot-open", "invalid")])


def test_a_pipe_or_a_folder_is_not_waited_for(model: Path) -> None:
    os.mkfifo(model.parent / "pipe")
    assert _open(model, "pipe") == (None, [("path.not-a-file", "invalid")])
    assert _open(model, "sub") == (None, [("path.not-a-file", "invalid")])


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "w.data", "loop", "nothing"])
def test_a_link_is_not_followed(model: Path, target: str) -> None:
    (model.parent / "loop").symlink_to(target)
    assert _open(model, "loop") == (None, [("path.link", "high")])


def test_a_folder_that_is_a_link_is_not_followed(model: Path) -> None:
    (model.parent / "up").symlink_to("..")
    (model.parent / "same").symlink_to("sub")
    assert _open(model, "up/secret") == (None, [("path.link", "high")])
    assert _open(model, "same/w.data") == (None, [("path.link", "high")])


def test_the_path_that_the_user_typed_may_be_a_link(model: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("models")
    assert _open(tmp_path / "link" / "m.onnx", "w.data") == (b"weights", [])


def test_a_hard_link_is_opened_and_mentioned(model: Path) -> None:
    os.link(model.parent / "w.data", model.parent / "other.data")
    assert _open(model, "w.data") == (b"weights", [("path.hard-link", "info")])


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A model in the layout of the Hugging Face cache."""
    root = tmp_path / "hub" / "models--a--b"
    snapshot = root / "snapshots" / "0123abc"
    (root / "blobs").mkdir(parents=True)
    (snapshot / "onnx").mkdir(parents=True)
    (root / "blobs" / "d1").write_bytes(b"model")
    (root / "blobs" / "d2").write_bytes(b"weights")
    (snapshot / "m.onnx").symlink_to("../../blobs/d1")
    (snapshot / "w.data").symlink_to("../../blobs/d2")
    (snapshot / "onnx" / "m.onnx").symlink_to("../../../blobs/d1")
    (snapshot / "onnx" / "w.data").symlink_to("../../../blobs/d2")
    (tmp_path / "secret").write_bytes(b"secret")
    return snapshot / "m.onnx"


def test_a_link_into_the_blobs_of_the_same_cache_is_followed(
    cached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = (b"weights", [("path.cache-link", "info")])
    assert _open(cached, "w.data") == followed
    assert _open(cached.parent / "onnx" / "m.onnx", "w.data") == followed
    assert _open(cached, "onnx/w.data") == followed
    (tmp_path / "link").symlink_to(cached.parent)
    assert _open(tmp_path / "link" / "m.onnx", "w.data") == followed
    monkeypatch.chdir(cached.parent)
    assert _open(Path("m.onnx"), "w.data") == followed


@pytest.mark.parametrize(
    "target", ["../../../../secret", "../../blobs/../../../secret", "../../blobs", "../x/y", "w2"]
)
def test_a_link_out_of_the_cache_is_not_followed(cached: Path, target: str) -> None:
    (cached.parent / "bad").symlink_to(target)
    assert _open(cached, "bad") == (None, [("path.link", "high")])


def test_a_blob_that_is_missing_or_a_link_is_not_followed(cached: Path, tmp_path: Path) -> None:
    blobs = cached.parents[2] / "blobs"
    (cached.parent / "gone").symlink_to("../../blobs/d3")
    assert _open(cached, "gone") == (None, [("path.missing", "high")])
    (blobs / "d4").symlink_to(tmp_path / "secret")
    (cached.parent / "far").symlink_to("../../blobs/d4")
    assert _open(cached, "far") == (None, [("path.link", "high")])


def test_a_blobs_folder_that_is_a_link_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "s").write_bytes(b"secret")
    snapshot = tmp_path / "m" / "snapshots" / "r"
    snapshot.mkdir(parents=True)
    (tmp_path / "m" / "blobs").symlink_to("../secrets")
    (snapshot / "m.onnx").write_bytes(b"model")
    (snapshot / "w.data").symlink_to("../../blobs/s")
    assert _open(snapshot / "m.onnx", "w.data") == (None, [("path.link", "high")])
