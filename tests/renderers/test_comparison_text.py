"""Two models side by side, as people and programs read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import modelglass as mg
from modelglass.api import RENDERERS
from modelglass.errors import ReportFormatError, UsageError
from modelglass.renderers._escape import cell_width
from modelglass.report import ComparedModel, Comparison, Deviation, Note, Pair, ParameterTerm, TensorPair

Golden = Callable[[str, str], None]


def weight(layer: int, *, shape: tuple[int, ...] = (8, 8)) -> TensorPair:
    return TensorPair(
        a=(f"layers.{layer}.weight",),
        b=(f"blocks.{layer}.weight",),
        shape_a=(8, 8),
        shape_b=shape,
        dtype_a="float32",
        dtype_b="float16",
    )


STORED = Deviation(
    code="dtype", standing="storage", text="the element types differ", a="float32", b="float16"
)

COMPARE = RENDERERS["compare"]


def layer(number: int, *deviations: Deviation) -> Pair:
    return Pair(
        a=f"layers.{number}",
        b=f"blocks.{number}",
        type_a="Linear",
        type_b="Linear",
        matched="order",
        tensors=(weight(number),),
        deviations=(STORED, *deviations),
    )


def no_bias(number: int) -> Deviation:
    return Deviation(
        code="bias",
        standing="different",
        text="b has no bias",
        a="8",
        tensor_a=f"layers.{number}.bias",
    )


SAME = Comparison(
    a=ComparedModel(name="Net", source="torch", tensors=2, matched=2, params=128),
    b=ComparedModel(name="Port", source="mlx", tensors=2, matched=2, params=128),
    pairs=(layer(0), layer(1)),
)
DIFFERENT = Comparison(
    a=ComparedModel(name="Net", source="torch", tensors=8, matched=3, params=1_234_567, macs=2_000),
    b=ComparedModel(name="Port", source="mlx", tensors=5, matched=3, params=None, macs=None),
    pairs=(
        *(layer(number, no_bias(number)) for number in range(3)),
        Pair(
            a="norm",
            b=None,
            type_a="LayerNorm",
            deviations=(
                Deviation(
                    code="missing-in-b",
                    standing="different",
                    text="2 tensors, 16 parameters",
                ),
            ),
        ),
    ),
    first=3,
    notes=(Note(code="macs-differ", text="a takes 2,000 multiply-accumulates, b 1,000"),),
)


SERVED = replace(
    SAME,
    a=replace(SAME.a, params=263_552),
    b=ComparedModel(name="Net", source="vllm", tensors=2, matched=2, params=139_909),
    reconciliation=(
        ParameterTerm(code="total", text="parameters of a", params=263_552),
        ParameterTerm(
            code="buffer",
            text="a parameter in one only",
            params=5,
            tensors_a=("layers.0.gate.bias", "layers.1.gate.bias"),
            tensors_b=("blocks.0.gate.bias", "blocks.1.gate.bias"),
        ),
        ParameterTerm(
            code="ranks",
            text="what other ranks hold",
            params=-139_264,
            tensors_b=tuple(f"{name}.weight" for name in ("embed", "blocks.0.qkv", "blocks.1.qkv", *"abcd")),
        ),
        ParameterTerm(
            code="padding",
            text="padding elements",
            params=15_616,
            tensors_b=("embed.weight", "head.weight"),
        ),
        ParameterTerm(code="total", text="parameters of b, rank 1 of 2", params=139_909),
    ),
)


@pytest.mark.parametrize("name", ["same", "different", "served"])
def test_texts(name: str, golden: Golden) -> None:
    comparison = {"same": SAME, "different": DIFFERENT, "served": SERVED}[name]
    golden(f"comparison/{name}.txt", COMPARE["text"](comparison, width=90))
    golden(f"comparison/{name}.md", COMPARE["markdown"](comparison))


def test_everything_side_by_side(golden: Golden) -> None:
    golden("comparison/all.txt", COMPARE["text"](DIFFERENT, all=True, width=100))
    golden("comparison/all.md", COMPARE["markdown"](DIFFERENT, all=True))


def test_the_first_line_is_the_verdict_and_colour_changes_nothing_else() -> None:
    plain = COMPARE["text"](DIFFERENT)
    assert plain.splitlines()[0].startswith("different: 4 differences")
    assert COMPARE["text"](SAME).splitlines()[0] == "same: 2 of 2 tensors of a line up with 2 of 2 of b"
    painted = COMPARE["text"](DIFFERENT, color=True)
    for code in ("0", "1", "2", "31", "33"):
        painted = painted.replace(f"\x1b[{code}m", "")
    assert painted == plain


def test_lines_fit_the_width() -> None:
    for width in (40, 60, 80, 120):
        lines = COMPARE["text"](DIFFERENT, all=True, width=width).splitlines()
        assert max(map(cell_width, lines)) <= width or width < 60


def test_names_cannot_command_a_terminal_or_a_page() -> None:
    named = replace(DIFFERENT, a=replace(DIFFERENT.a, name="\x1b[2J<b>|x"))
    assert "\x1b" not in COMPARE["text"](named, all=True)
    assert "<b>" not in COMPARE["markdown"](named)


def test_a_comparison_is_saved_and_read_back_equal(tmp_path: Path) -> None:
    path = tmp_path / "compared.json"
    for comparison in (SAME, SERVED, DIFFERENT):
        mg.save(comparison, path)
        assert mg.load(path) == comparison
        assert mg.load(path, mg.Comparison).same == comparison.same
        assert mg.render(comparison, "json") == path.read_text()
    assert json.loads(path.read_text())["format"] == "modelglass-comparison"
    with pytest.raises(ReportFormatError, match="holds a Comparison, not a Report"):
        mg.load(path, mg.Report)


def test_formats_are_those_that_there_are() -> None:
    with pytest.raises(UsageError, match="formats are text, json, markdown"):
        mg.render(SAME, "svg")


def test_what_nothing_explains_is_a_difference() -> None:
    odd = ParameterTerm(code="unexplained", text="unexplained", params=3, standing="different")
    totals = [ParameterTerm(code="total", text=f"parameters of {side}", params=125) for side in "ab"]
    comparison = replace(SAME, reconciliation=(totals[0], odd, replace(totals[1], params=128)))
    text = COMPARE["text"](comparison)
    assert text.startswith("different: 1 difference; 2 of 2 tensors")
    assert "unexplained: unexplained" in text


def test_a_pair_that_is_not_there_cannot_be_the_first() -> None:
    with pytest.raises(ValueError, match="no pair 9"):
        replace(SAME, first=9)
