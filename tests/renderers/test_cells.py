"""What a notebook shows of a noun: the text that `print` shows, and a piece of HTML that needs no script."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from output_checks import NASTY

VOID = {"img", "br", "rect"}


class Tags(HTMLParser):
    """The tags of a piece of HTML, each closed where it belongs."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def tags_of(piece: str) -> list[tuple[str, dict[str, str | None]]]:
    tags = Tags()
    tags.feed(piece)
    assert tags.open == []
    return tags.seen


@pytest.fixture(scope="module")
def report() -> mg.Report:
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 2))
    return mg.inspect(model, torch.zeros(4, 8))


def nouns(report: mg.Report, folder: Path) -> list[Any]:
    mg.save(report, folder / "a.json")
    path = folder / "weights.pt"
    torch.save({"weight": torch.zeros(3)}, path)
    fit = mg.fit(nn.Linear(8, 2), torch.zeros(4, 8), device_memory="1GiB")
    return [report, mg.flow(report), fit, mg.scan(path), mg.compare_structure(report, report)]


def test_every_noun_has_its_text_and_a_piece_of_html(report: mg.Report, tmp_path: Path) -> None:
    for noun in nouns(report, tmp_path):
        bundle = noun._repr_mimebundle_()
        assert bundle["text/plain"] == str(noun)
        names = {name for name, _ in tags_of(bundle["text/html"])}
        assert not names & {"script", "link", "iframe", "object", "html", "body"}


def test_layers_fold(report: mg.Report) -> None:
    piece = report._repr_mimebundle_()["text/html"]
    tags = tags_of(piece)
    assert sum(name == "details" for name, _ in tags) == 2  # the model and its inner Sequential
    assert re.search(r"<summary class=row><span[^>]*>\(root\)", piece)
    assert f"{report.counts.params:,}" in piece


def test_a_summary_shows_its_layers() -> None:
    summary = mg.summary(nn.Linear(10, 5), (10,))
    bundle = summary._repr_mimebundle_()
    assert bundle["text/plain"] == str(summary)
    assert "Linear" in bundle["text/html"]


@pytest.mark.parametrize(
    "name", ["</style><script>alert(1)</script>", "<img src=x onerror=alert(1)>", *NASTY]
)
def test_names_stay_texts(name: str) -> None:
    model = nn.Module()
    model._modules[name] = nn.Linear(2, 2)
    tags = tags_of(mg.inspect(model)._repr_mimebundle_()["text/html"])
    assert not any(tag == "script" or any(key.startswith("on") for key in found) for tag, found in tags)


def test_show_displays_in_a_notebook(
    report: mg.Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[Any] = []
    shell = SimpleNamespace(kernel=object())
    fake = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=shown.append))
    monkeypatch.setitem(__import__("sys").modules, "IPython", fake)
    mg.show(report)
    assert shown == [report]
    assert capsys.readouterr().out == ""
    mg.show(report, width=60)  # options are those of the text
    assert "Sequential" in capsys.readouterr().out
    del shell.kernel  # a shell in a terminal
    mg.show(report)
    assert "Sequential" in capsys.readouterr().out
