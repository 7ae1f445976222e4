"""Which tools leave a model, its inputs and the process as they were, also when the model raises.

python benchmarks/run.py --only traces
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peers.accuracy import from_worker, of_tools

BARE = "bare forward"  # for comparison: what calling the model changes by itself
LOOKING = ("macs", "outputs", "nbytes")  # what a tool is asked here: the first of these that it takes
RAISING = "raises"  # the model whose forward pass raises
Section = dict[str, Any]
Row = Mapping[str, Any]


def traces(*, quick: bool = False, jobs: int = 2) -> Section:
    """Models, and what each tool changes about them. It is the same when it has to be quick."""
    catalogue = from_worker("catalogue")[0]
    tools = [
        name for name, tool in catalogue["tools"].items() if any(each in tool["calls"] for each in LOOKING)
    ]
    return {"models": catalogue["models"], "answers": of_tools("traces", [*tools, BARE], jobs)}


def traces_page(section: Section) -> Iterator[str]:
    """The section as Markdown, a line at a time."""
    yield "## Traces"
    yield ""
    yield "A fingerprint of the model, its inputs and the process, before and after a tool looked: modes,"
    yield "hooks, attributes, values and gradients bit by bit, random states, what torch's own functions are."
    yield "Each tool is used by its call for MACs, torchview by that for shapes; accelerate, by that for"
    yield "bytes, does not run the model. For comparison, what calling it changes by itself. The models:"
    yield ""
    for name, words in section["models"].items():
        yield f"- *{name}*: {words}"
    yield ""
    yield "| tool | as before | changed |"
    yield "|---|---:|---|"
    for tool, rows in section["answers"].items():
        yield f"| {tool} | {sum(map(is_as_before, rows))} of {len(rows)} | {_changes(rows) or 'nothing'} |"


def is_as_before(row: Row) -> bool:
    """Whether the tool looked at the model, and nothing is left of it; one model is there to raise."""
    return not row.get("changed") and ("error" not in row or row["model"] == RAISING)


def _changes(rows: list[Row]) -> str:
    """What was changed, or what a tool raised of its own, each with the models that it happened to."""
    where: dict[str, list[str]] = {}
    for row in rows:
        raised = [f"crashes: `{row['error']}`"] if "error" in row and row["model"] != RAISING else []
        for change in (*row.get("changed", ()), *raised):
            where.setdefault(change, []).append(row["model"])
    return "; ".join(
        f"{change} ({'all' if len(models) == len(rows) else ', '.join(models)})"
        for change, models in where.items()
    )
