"""Whatever a file or a model says stays data in every output: each renderer with each kind of report."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from torch import nn

import modelglass as mg
from modelglass import api
from modelglass.compat.summary import short_summary
from modelglass.report import Note
from output_checks import NASTY, check, check_coloured, check_plain
from renderers.test_flow_languages import MERMAID, Dot
from renderers.test_scan_texts import hostile


def readable(text: str) -> str:
    """The text without halves of surrogate pairs, which no type and few files can be called."""
    return text.encode(errors="replace").decode()


class Nasty(nn.Module):
    """Modules of such names and types, one after the other, each with a parameter of the name."""

    def __init__(self) -> None:
        super().__init__()
        for index, name in enumerate(NASTY):
            layer = nn.Linear(2, 2, bias=False)
            layer.__class__ = type(readable(name), (nn.Linear,), {})
            layer.register_parameter(name, nn.Parameter(torch.full((1,), float(index))))
            self.add_module(name, layer)

    def forward(self, x: Any) -> Any:
        for layer in self.children():
            x = layer(x)
        return x


Nasty.__name__ = "::error::##[x]\x1b<b>"


class Failing(Nasty):
    def forward(self, x: Any) -> Any:
        raise ValueError("\n".join(NASTY))


@pytest.fixture(scope="module")
def ran() -> mg.Report:
    return mg.inspect(Nasty(), torch.ones(1, 2), train=True, symbols=True, optimizer="adamw", stats=True)


@pytest.fixture(scope="module")
def failed() -> mg.Report:
    return mg.inspect(Failing(), torch.ones(1, 2), on_failure="report")


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> mg.Report:
    """A file whose tensors, metadata and own name are such texts."""
    folder = tmp_path_factory.mktemp("files")
    path = folder / "##vso[x]\x1b\u202e.safetensors"
    texts = [text for text in NASTY if readable(text) == text]
    save_file({text: np.ones(2, "f4") for text in texts}, path, metadata={text: text for text in texts})
    return mg.inspect(path, stats=True)


def renderings(table: dict[str, Callable[..., str]], *nouns: Any) -> Iterator[tuple[str, str]]:
    for format, render in table.items():
        yield format, render(*nouns)
        if format == "text":
            for width in (40, 60, 100, 173):
                yield format, render(*nouns, width=width)


def check_all(table: dict[str, Callable[..., str]], *nouns: Any) -> None:
    for format, text in renderings(table, *nouns):
        check(format, text)
    check_coloured(table["text"](*nouns, color=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ran", "failed", "read"])
def test_reports(kind: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(kind)
    check_all(api.RENDERERS["inspect"], report)
    if report.stats is not None:
        check_all(api.RENDERERS["stats"], report)


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_notes(text: str) -> None:
    notes = tuple(
        Note(code="x", severity=level, text=text, where=(text, "b")) for level in ("info", "warning")
    )
    small = mg.inspect(nn.Linear(1, 1))
    check_all(api.RENDERERS["inspect"], replace(small, notes=notes))


def test_memory(ran: mg.Report) -> None:
    check_all(api.RENDERERS["memory"], ran)


def test_distinct_modules_and_operators(ran: mg.Report) -> None:
    check_all(api.RENDERERS["unique"], ran, mg.unique(ran))


def test_flow(ran: mg.Report) -> None:
    flow = mg.flow(ran)
    check_all(api.RENDERERS["flow"], flow)
    assert len(Dot(api.RENDERERS["flow"]["dot"](flow)).edges) == len(flow.edges)
    for line in api.RENDERERS["flow"]["mermaid"](flow).splitlines()[4:]:
        assert any(re.fullmatch(kind, line.strip()) for kind in MERMAID), line


@pytest.mark.slow
def test_fit() -> None:
    check_all(api.RENDERERS["fit"], mg.fit(Nasty(), torch.ones(1, 2), device_nbytes=1000, train=True))


def test_comparison() -> None:
    check_all(api.RENDERERS["compare"], mg.compare_structure(Nasty(), nn.Sequential(nn.Linear(2, 2))))
    check_all(api.RENDERERS["compare"], mg.compare_structure(Nasty(), Nasty(), inputs=torch.ones(1, 2)))


@pytest.mark.parametrize("text", NASTY, ids=ascii)
def test_scan(text: str) -> None:
    check_all(api.RENDERERS["scan"], hostile(text))


def test_each_command_has_the_same_family_of_formats() -> None:
    for formats in api.RENDERERS.values():
        assert list(formats)[:5] == ["text", "json", "markdown", "csv", "html"]
    others = {noun: list(formats)[5:] for noun, formats in api.RENDERERS.items() if len(formats) > 5}
    assert others == {"flow": ["mermaid", "dot", "svg"], "scan": ["sarif"]}


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_summaries(verbose: int, ran: mg.Report) -> None:
    check_plain(str(mg.summary(Nasty(), (2,), verbose=verbose)))
    check_plain(short_summary(ran, verbose=verbose))


def test_listings(capsys: pytest.CaptureFixture[str]) -> None:
    mg.dump_model_info(Nasty(), plot_distributions=False)
    check_plain(capsys.readouterr().out)


@pytest.mark.slow
def test_pictures(ran: mg.Report, tmp_path: Path) -> None:
    mg.plot(ran, tmp_path / "a.svg")
    mg.plot_memory(ran, tmp_path / "b.svg")
    for name in ("a.svg", "b.svg"):
        check("svg", (tmp_path / name).read_text())


@pytest.mark.slow
def test_saved_reports_are_the_same_when_they_are_read(ran: mg.Report, tmp_path: Path) -> None:
    mg.save(ran, tmp_path / "a.json")
    check("json", (tmp_path / "a.json").read_text())
    assert mg.load(tmp_path / "a.json") == ran
