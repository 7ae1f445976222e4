"""One question put to one tool, in a process that does nothing else, and what its answer is worth."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from errors_said import one_line, said
from torch import nn

from peers.builders import Given
from peers.known import CASES, Case
from peers.tools import TOOLS, Tool, run

Row = dict[str, Any]
CONTRACTIONS = re.compile(
    r"mm|matmul|linear|conv|attention|einsum|lstm|gru|rnn|dot|bilinear|prod\b", re.IGNORECASE
)


class PlainCall(nn.Module):
    """A model with its keyword arguments bound, which gives back nothing but tensors."""

    def __init__(self, model: nn.Module, kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.kwargs = model, kwargs

    def forward(self, *args: Any) -> Any:
        output = self.model(*args, **self.kwargs)
        return getattr(output, "logits", output)


def prepare(tool: Tool) -> None:
    """Import what questions need, so that each forked process has it."""
    import transformers  # noqa: F401

    with suppress(Exception):  # each question will meet it, and tell
        run(tool.setup, {})


def takes(tool: Tool, case: Case, question: str) -> bool:
    """Whether it is a question that the tool claims to answer."""
    return question in tool.calls and (tool.only is None or tool.only in case.what.split(",")[0])


def answer(name: str, id: str, question: str, folder: Path) -> Row:
    """What the tool says, compared with what is known."""
    tool, case = TOOLS[name], CASES[id]
    names = _names(case, folder)
    adapted = question in tool.adapted and bool(names.get("kwargs"))
    row = _asked(tool, case, question, names, adapted=adapted)
    if row["verdict"] == "crashes" and question in tool.adapted and not adapted:
        again = _asked(tool, case, question, _names(case, folder), adapted=True)
        return again if again["verdict"] != "crashes" else row
    if row["verdict"] == "crashes" and "None" in row["error"]:
        row["error"] = _printed(folder) or row["error"]
    return row


def _asked(tool: Tool, case: Case, question: str, names: dict[str, Any], *, adapted: bool) -> Row:
    code = tool.adapted[question] if adapted else tool.calls[question]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(tool.setup, names)
            found = plain(run(code, names))
            row = _judged(found, case, question)
            if row["verdict"] == "wrong" and question == "macs" and tool.left_out:
                listed = (str(each) for each in run(tool.left_out, names))
                row["left_out"] = sorted(each for each in listed if CONTRACTIONS.search(each))
    except Exception as error:  # noqa: BLE001 (whatever a tool raises is its answer)
        verdict = "hands on" if question == "until the error" else "crashes"
        row = {"verdict": verdict, "error": said(error)}
    return {**row, "adapted": True} if adapted else row


def _judged(found: Any, case: Case, question: str) -> Row:
    expected = case.asked[question]
    if found is None:
        return {"verdict": "crashes", "error": "gives None"}
    if question == "outputs" and all(isinstance(each, list) for each in found):
        found = sorted(found)
    if _fits(found, expected):
        return {"verdict": "right", "answer": found}
    if question == "macs" and found in case.otherwise:
        return {"verdict": "other rule", "answer": found, "rule": case.otherwise[found]}
    return {"verdict": "wrong", "answer": found}


def _fits(found: Any, expected: Any) -> bool:
    if isinstance(expected, tuple):
        least, most = expected
        return least <= found <= most
    return found == expected


def _names(case: Case, folder: Path) -> dict[str, Any]:
    """What a call may refer to."""
    torch.manual_seed(0)
    if case.file is not None:
        place = folder / "given"
        place.mkdir(exist_ok=True)
        canary = place / "canary"
        return {"path": case.file(place), "raises": _raises(canary)}
    given = case.inputs()
    model = case.build()
    names = {"model": model, "args": given.args, "kwargs": given.kwargs, "PlainCall": PlainCall}
    return {**names, "named": by_name(model, given)}


def _raises(canary: Path) -> Callable[..., bool]:
    """Tells whether a call raises and nothing happened before that."""

    def raises(call: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
        try:
            call(*args, **kwargs)
        except Exception:  # noqa: BLE001 (that it raises is the answer)
            return not canary.exists()
        return False

    return raises


def by_name(model: nn.Module, given: Given) -> dict[str, Any]:
    """The arguments by the names of the parameters that take them."""
    if isinstance(model, torch.jit.ScriptModule):
        names = [argument.name for argument in model.forward.schema.arguments[1:]]
        return {**dict(zip(names, given.args, strict=False)), **given.kwargs}
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    bound = inspect.signature(inner.forward).bind(*given.args, **given.kwargs).arguments
    return {**bound, **bound.pop("kwargs", {})}


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    return int(value) if hasattr(value, "__index__") else str(type(value).__name__)


def _printed(folder: Path) -> str:
    """The last line that looks like an exception, of what a tool printed instead of raising it."""
    sys.stdout.flush()
    sys.stderr.flush()
    lines = (folder / "printed").read_text(errors="replace").splitlines()
    errors = [line for line in lines if re.match(r"\w*(Error|Exception)\b", line)]
    return f"gives None and prints {one_line(errors[-1])}" if errors else ""
