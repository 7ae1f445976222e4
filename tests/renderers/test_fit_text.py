"""Whether it fits, as people and programs read it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from modelglass.api import RENDERERS
from modelglass.renderers._escape import cell_width
from modelglass.report import Fit, Note, Option, WhatIf

Golden = Callable[[str, str], None]
GIB = 2**30


def option(what_if: WhatIf, nbytes: int | None, method: str = "exact", **more: Any) -> Option:
    fits = None if nbytes is None else nbytes <= 24 * GIB
    return Option(what_if=what_if, peak_nbytes=nbytes, method=method, fits=fits, **more)


FITS = Fit(
    device_nbytes=24 * GIB,
    train=False,
    optimizer=None,
    calibrated=True,
    fits=True,
    peak_nbytes=19_700_000_000,
    method="measured",
    batch_size=8,
    largest_batch=12,
    largest_batch_peak_nbytes=25_600_000_000,
    next_batch_peak_nbytes=27_100_000_000,
    seq_len=512,
    largest_seq_len=1_024,
    largest_seq_len_peak_nbytes=23_456_789_012,
    seq_len_problem="model.wpe has 1,024 positions",
    runs=9,
    excludes=("the device's context",),
)

FIT = RENDERERS["fit"]
DOES_NOT = replace(
    FITS,
    train=True,
    optimizer="adamw",
    calibrated=False,
    fits=False,
    method="exact",
    peak_nbytes=40 * GIB + 123,
    largest_batch=None,
    largest_batch_peak_nbytes=None,
    next_batch_peak_nbytes=31 * GIB,
    largest_seq_len=63,
    next_seq_len_peak_nbytes=25 * GIB,
    seq_len_problem=None,
    runs=14,
    notes=(Note(code="train-in-eval-mode", text="backward was observed in eval mode"),),
    options=(
        option(WhatIf(recompute=("model.layers.*",)), 23 * GIB),
        option(WhatIf(sharding="fsdp3", devices=4), 21 * GIB + 5, "estimate"),
        option(WhatIf(weights="bfloat16", batch_size=1, accumulate=8), 20 * GIB),
        option(WhatIf(optimizer="sgd"), 30 * GIB),
        option(WhatIf(autocast="bfloat16"), None, problem="layers.0 has no kernel for bfloat16"),
    ),
)
LIMITED = replace(
    FITS,
    batch_size=1,
    largest_batch=2**20,
    largest_batch_peak_nbytes=1_000,
    next_batch_peak_nbytes=None,
    limited=True,
    seq_len_problem=None,
    options=(),
)
IMAGES = replace(FITS, seq_len=None, largest_seq_len=None, largest_seq_len_peak_nbytes=None, options=())
BATCH_FAILS = replace(
    DOES_NOT,
    next_batch_peak_nbytes=None,
    batch_problem="blocks.0 raised ValueError",
    options=(),
)
CASES = {"fits": FITS, "batch_fails": BATCH_FAILS, "does_not": DOES_NOT, "limited": LIMITED, "images": IMAGES}


@pytest.mark.parametrize("name", CASES)
def test_text(name: str, golden: Golden) -> None:
    golden(f"fit/{name}.txt", FIT["text"](CASES[name], width=88))


@pytest.mark.parametrize("name", ["fits", "does_not"])
def test_markdown(name: str, golden: Golden) -> None:
    golden(f"fit/{name}.md", FIT["markdown"](CASES[name]))


def test_json_has_every_field_in_exact_bytes(golden: Golden) -> None:
    text = FIT["json"](DOES_NOT)
    golden("fit/does_not.json", text)
    document = json.loads(text)
    assert (document["format"], document["version"]) == ("modelglass-fit", 1)
    assert {field.name for field in fields(Fit)} < document.keys()
    assert document["margin_nbytes"] == 24 * GIB - (40 * GIB + 123)
    assert document["options"][1]["what_if"]["devices"] == 4
    assert document["largest_batch"] is None


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_keep_to_the_width(case: Fit, width: int) -> None:
    for color in (False, True):
        text = FIT["text"](case, width=width, color=color)
        plain = [line for line in text.splitlines() if "\x1b" not in line]
        assert max(map(cell_width, plain)) <= width


def test_one_byte_too_many_can_be_seen() -> None:
    close = replace(FITS, next_batch_peak_nbytes=24 * GIB + 1)
    assert "13 would take 24.00 GiB (25,769,803,777 bytes)" in FIT["text"](close)


def test_the_answer_is_painted() -> None:
    assert FIT["text"](DOES_NOT, color=True).startswith("\x1b[31mdoes not fit")
    assert FIT["text"](FITS, color=True).startswith("\x1b[1mfits")


def test_a_search_that_was_limited_in_one_dimension_says_so_of_that_one() -> None:
    lines = FIT["text"](LIMITED, width=200).splitlines()
    largest = [line for line in lines if "largest" in line or "longest" in line]
    assert largest[0].endswith("the search went no further")
    assert largest[1].endswith("1,025 does not fit")


@pytest.mark.parametrize("render", [FIT["text"], FIT["markdown"]])
def test_what_came_from_a_model_cannot_command_a_terminal(render: Callable[[Fit], str]) -> None:
    evil = option(WhatIf(recompute=("a\x1b[2J.*",)), None, problem="\x1b]0;title\x07 raised")
    text = render(replace(DOES_NOT, optimizer="\x1b[31madam", options=(evil,)))
    assert "\x1b" not in text
    assert "\x07" not in text
