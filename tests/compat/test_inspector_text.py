"""What the inspector shows, in both of its languages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import build
from modelglass.analyses.counts import count
from modelglass.compat.model_inspector import LANGUAGES, Question, inspect_model, render
from modelglass.compat.model_inspector._lines import mebibytes, value_text
from modelglass.compat.model_inspector.by_type import by_type, nbytes_by_dtype
from modelglass.compat.model_inspector.inspection import Estimate, Inspection
from modelglass.compat.model_inspector.words import _WORDS
from modelglass.renderers._escape import cell_width
from modelglass.report import File, Matching, Report

EXAMPLES = Path(__file__).parents[2] / "examples"
Golden = Callable[[str, str], None]


@pytest.fixture(scope="module")
def diffusion() -> Inspection:
    """The document's model. Its flow, and what is said of it, is shown by tests of flows."""
    question = Question(
        trust=True, config=EXAMPLES / "diffusion.yaml", inputs=f"{EXAMPLES / 'diffusion.py'}::batch"
    )
    found = inspect_model(question)
    report = replace(found.described, notes=())
    return replace(found, report=report, flow=None, unknown={"flow": "not drawn here"})


def told(found: Inspection) -> Inspection:
    """The same, of a file without a folder, and of a size that every version of torch writes."""
    assert found.checkpoint is not None
    checkpoint = found.checkpoint.checkpoint
    assert checkpoint is not None
    files = (File(path="best.pt", nbytes=4096),)
    return replace(found, checkpoint=replace(found.checkpoint, checkpoint=replace(checkpoint, files=files)))


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Question:
    """A checkpoint that lacks a tensor of its model, has another, and a third in another shape."""
    folder = tmp_path_factory.mktemp("training")
    (folder / "net.py").write_text(
        "from torch import nn\n\n\ndef build(config):\n"
        "    return nn.Sequential(nn.Linear(4, config['width']), nn.ReLU(), nn.Linear(8, 2))\n"
    )
    torch.manual_seed(0)
    state = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).state_dict()
    del state["0.bias"]
    state["head.weight"] = torch.zeros(2, 2).half()
    state["0.weight"] = state["0.weight"].half()
    content = {
        "state_dict": {f"net.{name}": tensor for name, tensor in state.items()},
        "epoch": 12,
        "global_step": 3400,
        "best_loss": 0.125,
        "config": {"width": 8},
        "normalization": {"time_transform": "ln", "offsets": [0.0, -600.0]},
    }
    torch.save(content, folder / "best.pt")
    inputs = (torch.zeros(3, 4),)
    return Question(checkpoint=folder / "best.pt", builder=f"{folder / 'net.py'}::build", inputs=inputs)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_configuration(language: str, diffusion: Inspection, golden: Golden) -> None:
    golden(f"inspector/diffusion.{language}.txt", render(diffusion, language=language))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_checkpoint_in_a_model(language: str, training: Question, golden: Golden) -> None:
    found = told(inspect_model(training))
    golden(f"inspector/training.{language}.txt", render(found, language=language))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_checkpoint_alone(language: str, training: Question, golden: Golden) -> None:
    alone = told(inspect_model(replace(training, builder=None, inputs=None)))
    golden(f"inspector/alone.{language}.txt", render(alone, language=language))


def test_every_module(diffusion: Inspection, golden: Golden) -> None:
    text = render(diffusion, verbose=True)
    golden("inspector/verbose.txt", text)
    for module in diffusion.described.model.modules:
        assert f"\n{module.path or '(root)'} " in text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_keep_to_the_width_where_texts_are_long(language: str, width: int) -> None:
    long = {"a" * 100: "b" * 1000, "list": list(range(1000)), "deep": {str(n): {"x": n} for n in range(9)}}
    model = build.model(build.tensor("w" * 300, (3,)))
    counts = count(model)
    found = Inspection(
        name="N" * 300,
        report=Report(model=model, counts=counts),
        config=long,
        by_type=by_type(model, counts),
        nbytes_by_dtype=nbytes_by_dtype(model, counts),
        matching=Matching(matched=0, wanted=1, missing=("w" * 300,)),
    )
    text = render(found, language=language, width=width)
    assert max(map(cell_width, text.splitlines())) <= max(width, 100)


def test_long_lists_are_cut_unless_all_is_asked_for(diffusion: Inspection) -> None:
    found = replace(diffusion, config={f"key{n}": n for n in range(100)})
    assert "60 more, which --verbose shows" in render(found)
    assert "key99" not in render(found)
    assert "key99" in render(found, verbose=True)


def test_unknown_activations_are_not_zero(diffusion: Inspection) -> None:
    assert isinstance(diffusion.estimate, Estimate)
    text = render(replace(diffusion, estimate=replace(diffusion.estimate, activations=None)))
    line = next(line for line in text.splitlines() if "Activations" in line)
    assert "unknown" in line
    assert "≥" in next(line for line in text.splitlines() if "Total Batch" in line)


def test_every_word_has_both_languages() -> None:
    for key, texts in _WORDS.items():
        assert len(texts) == len(LANGUAGES), key
        assert all(texts), key
        assert len({text.count("{") for text in texts}) == 1, key


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (394_592, "0.376 MiB"),
        (12_288, "0.0117 MiB"),
        (88, "0.0000839 MiB"),
        (21_135_360, "20.156 MiB"),
        (0, "0.000 MiB"),
        (2**30, "1.000 GiB"),
        (3 * 2**40, "3.000 TiB"),
        (-1024, "-0.000977 MiB"),
    ],
    ids=str,
)
def test_sizes_have_digits_that_count(nbytes: int, text: str) -> None:
    assert mebibytes(nbytes) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [([0.0, -600.0], "(0.0, -600.0)"), (0.1, "0.1"), ("ln", "ln"), ({"a": 1}, "a=1"), (None, "None")],
    ids=str,
)
def test_settings_read_as_they_are_written(value: object, text: str) -> None:
    assert value_text(value) == text
