"""Ask one tool everything it can be asked, each question in a process of its own; JSON lines on stdout.

    python benchmarks/peers/worker.py catalogue            # the cases and the tools
    python benchmarks/peers/worker.py accuracy torchinfo
    python benchmarks/peers/worker.py traces torchinfo

What the processes share is imported once, before they are forked.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from textwrap import dedent
from typing import Any

ROOT = Path(__file__).parents[2]
if __name__ == "__main__":
    sys.path[:1] = [str(ROOT / "benchmarks"), str(ROOT / "tests/support")]
    os.environ["HF_HUB_OFFLINE"] = "1"

from torchvision_beside_cpu import make_torchvision_importable  # noqa: E402

make_torchvision_importable()

from peers import asking, tracing  # noqa: E402
from peers.known import CASES, GROUPS, QUESTIONS  # noqa: E402
from peers.tools import TOOLS  # noqa: E402

SECONDS = 300  # for one question, on a machine that may be busy
MOST_NBYTES = 24 * 2**30  # of addresses; a wrong length in a file must not take the machine along
Row = dict[str, Any]


def main(what: str, tool: str = "") -> None:
    rows = {"catalogue": catalogue, "accuracy": accuracy, "traces": traces}[what](*[tool] if tool else [])
    for row in rows:
        print(json.dumps(row), flush=True)


def catalogue() -> Iterator[Row]:
    """Everything a page needs to know besides the answers."""
    yield {
        "groups": GROUPS,
        "questions": QUESTIONS,
        "cases": {
            case.id: {
                "group": case.group,
                "what": case.what,
                "asked": dict(case.asked),
                "by_hand": dict(case.by_hand),
            }
            for case in CASES.values()
        },
        "tools": {
            name: {
                "package": tool.package,
                "version": version(tool.package),
                "setup": dedent(tool.setup).strip(),
                "calls": {question: tool.shown(question) for question in tool.calls},
                "adapted": {question: tool.shown(question, adapted=True) for question in tool.adapted},
                "why": tool.why,
                "remark": tool.remark,
            }
            for name, tool in TOOLS.items()
        },
        "models": tracing.WORDS,
    }


def accuracy(name: str) -> Iterator[Row]:
    """The tool's answer to each question that it takes."""
    asking.prepare(TOOLS[name])
    for case in CASES.values():
        for question in case.asked:
            if asking.takes(TOOLS[name], case, question):
                row = apart(asking.answer, name, case.id, question)
                yield {"case": case.id, "question": question, **row}


def traces(name: str) -> Iterator[Row]:
    """What the tool changes about each model."""
    for model in tracing.MODELS:
        yield {"model": model, **apart(tracing.trace, name, model)}


def apart(work: Callable[..., Row], *args: Any) -> Row:
    """The result from a process that does nothing else, or what ended it."""
    receiver, sender = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = (
            os.fork()
        )  # not by multiprocessing: some tools refuse to work in what they take for its workers
        if child == 0:
            _alone(sender, Path(folder), work, *args)
        os.close(sender)
        try:
            row = _received(receiver)
        finally:
            os.close(receiver)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        return row or {"verdict": "crashes", "error": _ended(os.waitstatus_to_exitcode(status))}


def _alone(sender: int, folder: Path, work: Callable[..., Row], *args: Any) -> None:
    """Do the work, hand over the result, and end."""
    signal.alarm(2 * SECONDS)  # should nobody be left who would end it
    resource.setrlimit(resource.RLIMIT_AS, (MOST_NBYTES, MOST_NBYTES))
    printed = os.open(folder / "printed", os.O_RDWR | os.O_CREAT)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    try:
        os.write(sender, json.dumps(work(*args, folder)).encode())
    except BaseException:  # noqa: BLE001 (the parent must not be continued here)
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _received(receiver: int) -> Row | None:
    """What the other end wrote; None: it ended without a word."""
    text, until = b"", time.monotonic() + SECONDS
    while select.select([receiver], [], [], max(0, until - time.monotonic()))[0]:
        part = os.read(receiver, 2**16)
        if not part:
            return json.loads(text) if text else None
        text += part
    return {"verdict": "over time", "error": f"no answer in {SECONDS} s"}


def _ended(code: int | None) -> str:
    if code is not None and code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


if __name__ == "__main__":
    main(*sys.argv[1:])
