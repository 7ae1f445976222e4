"""Texts are harmless in the place they are shown in."""

from __future__ import annotations

import csv
import io

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.renderers import unique
from modelglass.renderers._escape import csv_cell, markdown, printable


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1"], ids=ascii
)
def test_formulas_become_texts(text: str) -> None:
    assert csv_cell(text) == f"'{printable(text)}"


@pytest.mark.parametrize("text", ["a=1", "", "layers.0", "'=1"])
def test_other_texts_stay_in_a_spreadsheet(text: str) -> None:
    assert csv_cell(text) == text


@pytest.mark.parametrize("char", ["x", "\x1b"], ids=ascii)
def test_a_cell_stays_one_cell(char: str) -> None:
    assert len(csv_cell(char * 100_000)) < 32_767
    assert csv_cell(char * 100_000).endswith("…")


def test_addresses_and_names_make_no_links() -> None:
    shown = markdown("see https://example.org, www.example.org, @someone")
    assert shown == "see https&#58;//example.org, www&#46;example.org, &#64;someone"


@pytest.mark.parametrize("char", ["\u3164", "\u115f", "\u2800", "\u034f", "\u200b"], ids=ascii)
def test_letters_without_a_shape_are_written_out(char: str) -> None:
    assert printable(f"a{char}b") == f"a\\u{ord(char):04x}b"


def test_distinct_modules_are_no_formulas() -> None:
    hostile = type("=cmd|' /C calc'!A0", (nn.Identity,), {})
    report = mg.inspect(nn.Sequential(hostile()), inputs=torch.ones(1, 2))
    rows = list(csv.reader(io.StringIO(unique.render_csv(report, mg.unique(report)))))
    assert "'=cmd|' /C calc'!A0" in [row[2] for row in rows]
    assert not any(cell.startswith("=") for row in rows for cell in row)
