"""The cases that other tools are asked, too: the known answers are right, and modelglass gives them."""

from __future__ import annotations

import multiprocessing
import pickle
import warnings
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from peers import asking, tracing
from peers.accuracy import accuracy_page
from peers.known import CASES, GROUPS, QUESTIONS, Case
from peers.known_runs import RUNNING
from peers.tools import TOOLS, run
from peers.traces import traces_page
from torch import nn

ASKED = [
    pytest.param(case, question, id=f"{case.id} {question}")
    for case in CASES.values()
    for question in case.asked
    if question != "macs"  # with what else is asserted of them: test_cases.py
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "question"), ASKED)
def test_the_documented_call_gives_the_known_answer(case: Case, question: str, tmp_path: Path) -> None:
    row = asking.answer("modelglass", case.id, question, tmp_path)
    if question == "nbytes" and int(version("transformers").partition(".")[0]) < 5:
        assert row["answer"] == held_by(
            case.build()
        )  # transformers 4 has other buffers than the known answers
    else:
        assert row["verdict"] == "right", row


def held_by(model: nn.Module) -> int:
    """Bytes of parameters and buffers, each storage once."""
    held = {
        each.untyped_storage().data_ptr(): each.nbytes for each in (*model.parameters(), *model.buffers())
    }
    return sum(held.values())


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.by_hand], ids=lambda case: case.id)
def test_the_arithmetic_that_is_shown_gives_what_is_expected(case: Case) -> None:
    for question, arithmetic in case.by_hand.items():
        assert eval(arithmetic) == case.asked[question]


def load(path: Path) -> None:
    warnings.simplefilter("ignore")  # tarfile in Python 3.12 has one, and the process has no other work
    with path.open("rb") as file:
        torch.load(file, weights_only=False) if path.suffix == ".pt" else pickle.load(file)


@pytest.mark.parametrize("id", RUNNING)
def test_loading_these_files_really_does_more_than_load(id: str, tmp_path: Path) -> None:
    """In a process of its own; all that they do is to make a file beside them."""
    path = next(case for case in CASES.values() if case.what == RUNNING[id]).file(tmp_path)
    process = multiprocessing.get_context("fork").Process(target=load, args=(path,))
    process.start()
    process.join(20)
    process.kill()
    assert (tmp_path / "canary").exists()


def test_every_case_has_a_group_and_words_for_its_questions() -> None:
    assert {case.group for case in CASES.values()} == GROUPS.keys()
    assert {question for case in CASES.values() for question in case.asked} == QUESTIONS.keys()
    assert {question for tool in TOOLS.values() for question in tool.calls} <= QUESTIONS.keys()


def test_a_call_is_its_text() -> None:
    names = {"model": nn.Linear(2, 3)}
    assert run("weights = model.weight\nweights.numel()", names) == 6
    assert run("import math", names) is None


@pytest.mark.parametrize(
    ("found", "verdict"), [(1_200, "right"), (1_600, "other rule"), (160, "wrong"), (None, "crashes")]
)
def test_an_answer_is_worth_what_it_says(found: int | None, verdict: str) -> None:
    assert asking._judged(found, CASES["A1"], "macs")["verdict"] == verdict


def test_changes_are_told_in_words() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    before = tracing.fingerprint(model)
    model[1].eval()
    model[0].register_forward_hook(lambda *_: None)
    model[0].note = 1
    model[1].running_mean += 1
    with torch.no_grad():
        model[0].weight.zero_()
    torch.rand(1)
    found = list(tracing.changes(before, tracing.fingerprint(model)))
    assert found == [
        "attributes added: `note`",
        "hooks left behind",
        "parameters: values",
        "train or eval mode",
        "buffers: values",
        "torch's random state",
    ]


ABOUT = {
    "version": "1",
    "setup": "import tool",
    "calls": {"macs": "count(model)"},
    "adapted": {"macs": "count(Plain(model))"},
}
ANSWERS = [
    {"case": "A1", "question": "macs", "verdict": "wrong", "answer": 0, "left_out": ["aten::lstm"]},
    {"case": "A1", "question": "params", "verdict": "crashes", "error": "KeyError: 'a|b'", "adapted": True},
]
SECTION = {
    "groups": {"A": "One layer"},
    "questions": {"macs": "MACs", "params": "parameters"},
    "cases": {"A1": {"group": "A", "what": "an LSTM", "asked": {"macs": 24_000, "params": 32}}},
    "tools": {"tool": {**ABOUT, "why": "it had to be", "remark": ""}},
    "answers": {"tool": ANSWERS},
}


def test_the_page_shows_every_answer_and_every_call() -> None:
    page = "\n".join(accuracy_page(SECTION))
    assert "| A1 | an LSTM | macs | 24,000 | 0 ▵ |" in page
    assert "- tool, A1: not counted: aten::lstm" in page
    assert "- tool, A1: `KeyError: 'a|b'`" in page
    assert "count(model)" in page
    assert "Adapted for A1: it had to be." in page


def test_traces_are_shown_with_the_models_they_were_left_on() -> None:
    rows = [{"model": "plain", "changed": []}, {"model": "dropout", "changed": ["torch's random state"]}]
    page = list(traces_page({"models": {"plain": "…", "dropout": "…"}, "answers": {"tool": rows}}))
    assert page[-1] == "| tool | 1 of 2 | torch's random state (dropout) |"


def test_a_tool_that_crashes_has_not_left_a_model_as_it_was() -> None:
    rows = [
        {"model": "plain", "changed": [], "error": "TypeError: no"},
        {"model": "raises", "changed": [], "error": "RuntimeError: the model's own"},
    ]
    page = list(traces_page({"models": {"plain": "…", "raises": "…"}, "answers": {"tool": rows}}))
    assert page[-1] == "| tool | 1 of 2 | crashes: `TypeError: no` (plain) |"
