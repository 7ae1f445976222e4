"""A process of its own in which vLLM builds the modules of a rank, started by `building`.

It reads one line of JSON, what to build, and writes JSON, what was built or why it was not, to a file that is
named there. It ends when nobody listens any more.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from modelglass.frameworks.vllm.meta.build_errors import BuildError
from modelglass.report import Report, Serving, codec

SCRATCH = "modelglass-vllm-"  # begins the name of the folder for all that is written


@dataclass(frozen=True)
class Order:
    """What to build, and the files to write to."""

    folder: str
    architecture: str
    version: str
    serving: Serving
    answer: str
    progress: str

    @classmethod
    def read(cls, line: str) -> Order:
        given = json.loads(line)
        return cls(**{**given, "serving": Serving(**given["serving"])})

    def tell(self, text: str) -> None:
        _write(self.progress, text)


def main() -> None:
    order = Order.read(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, args=(Path(order.answer).parent,), daemon=True).start()
    try:
        answer = _answer(order)
    except Exception as problem:
        cause = _cause(problem, order.architecture)
        error = BuildError(type(cause).__name__, str(cause), order.architecture, order.version)
        answer = dict(zip(("problem", "hint"), error.explanation, strict=True))
    _write(order.answer, json.dumps(answer))
    os._exit(0)  # what torch and vLLM do at their end takes time, and is of no use


def _end_with_parent(scratch: Path) -> None:
    sys.stdin.read()  # nothing more is written: it returns when the other end is closed
    if scratch.name.startswith(SCRATCH):
        shutil.rmtree(scratch, ignore_errors=True)  # whoever made it can no longer remove it
    os._exit(1)


def _write(path: str, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    part = Path(f"{path}.part")
    part.write_text(text)
    part.replace(path)


def _answer(order: Order) -> dict[str, str]:
    """The rank that was asked for, and the whole model where that is something else, as JSON of reports."""
    from modelglass.frameworks.vllm.meta.builder import Builder
    from modelglass.frameworks.vllm.meta.rank_report import correct_shards, read, read_with_engine

    serving = order.serving
    builder = Builder(order.folder, serving)
    order.tell(f"building rank {serving.rank} of {serving.tensor_parallel}")
    rank = builder.build(
        serving.rank,
        serving.tensor_parallel,
        lambda native, config: read_with_engine(native, config, serving, order.version),
    )
    if serving.tensor_parallel == 1:
        return {"rank": _text(builder.add_notes(rank))}
    order.tell("building the whole model")
    whole = builder.build(0, 1, lambda native, config: read(native, order.version))
    return {"rank": _text(builder.add_notes(correct_shards(rank, whole))), "whole": _text(whole)}


def _text(report: Report) -> str:
    return codec.dumps(report, indent=None)


def _cause(problem: Exception, architecture: str) -> Exception:
    """What is behind the problem: of a class that vLLM cannot import it only reports that it cannot."""
    # vLLM raises a plain ValueError for it.
    if "failed to be inspected" not in str(problem):
        return problem
    try:
        from vllm.model_executor.models.registry import ModelRegistry

        ModelRegistry.models[architecture].load_model_cls()
    except Exception as cause:
        return cause
    return problem


if __name__ == "__main__":
    main()
