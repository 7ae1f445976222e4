"""Texts are harmless in the place they are shown in."""

from __future__ import annotations

import csv
import io
import re

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.api import RENDERERS
from modelglass.renderers._escape import csv_cell, markdown, printable, unspoken

UNIQUE = RENDERERS["unique"]


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
    assert shown == "see https&#58;&#8203;//example.org, www&#46;&#8203;example.org, &#64;&#8203;someone"


@pytest.mark.parametrize("char", ["\u3164", "\u115f", "\u2800", "\u034f", "\u200b"], ids=ascii)
def test_letters_without_a_shape_are_written_out(char: str) -> None:
    assert printable(f"a{char}b") == f"a\\u{ord(char):04x}b"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("::error::a", r"\u003a:error::a"),
        ("a\n \u00a0::add-mask::b", "a\n \u00a0\\u003a:add-mask::b"),
        ("\x1b[31m::error::a\x1b[0m", "\x1b[31m\\u003a:error::a\x1b[0m"),
        ("a ##vso[b]", r"a #\u0023vso[b]"),
        ("###[b]", r"##\u0023[b]"),
        ("travis_fold:start:a", r"\u0074ravis_fold:start:a"),
        ("section_end:1:a", r"\u0073ection_end:1:a"),
        ('["##[a", "\x7f"]', r'["#\u0023[a", "\u007f"]'),
    ],
    ids=ascii,
)
def test_lines_of_a_log_are_no_commands(text: str, written: str) -> None:
    assert unspoken(text) == written == unspoken(written)


@pytest.mark.parametrize("text", ["aten::conv2d", "t: 3", "a :: b", "### head", "##a", "section_a", "#[1]"])
def test_other_lines_stay(text: str) -> None:
    assert unspoken(text) == text


@pytest.mark.parametrize("text", ["    a", "- a", "--- ", "===", "1. a", "2) a", ":---:", "::error::a"])
def test_texts_are_no_blocks_of_a_page(text: str) -> None:
    assert re.match(r"\\|\d\\|&#32;", markdown(text))


@pytest.mark.parametrize("text", ["-1.5", "1.5 GiB", "–", "a - b"])
def test_numbers_stay_on_a_page(text: str) -> None:
    assert markdown(text) == text


def test_distinct_modules_are_no_formulas() -> None:
    hostile = type("=cmd|' /C calc'!A0", (nn.Identity,), {})
    report = mg.inspect(nn.Sequential(hostile()), inputs=torch.ones(1, 2))
    rows = list(csv.reader(io.StringIO(UNIQUE["csv"](report, mg.unique(report)))))
    assert "'=cmd|' /C calc'!A0" in [row[2] for row in rows]
    assert not any(cell.startswith("=") for row in rows for cell in row)
