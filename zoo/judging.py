"""What people know, applied to what was found: which failures are none, which operators no products."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zoo import explained, repairs
from zoo.free import FREE

Row = Mapping[str, Any]


def judged(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The rows, with what is wrong in the light of that."""
    return [{**row, "wrong": _wrong(row)} for row in rows]


def _wrong(row: Row) -> dict[str, str]:
    wrong = dict(row["wrong"])
    if is_other_work(row) and row["name"] in explained.AS_BUILT:
        del wrong["macs"]
    unjudged = [op for op in row.get("free", ()) if op not in FREE]
    if unjudged and "macs" not in wrong:
        wrong["macs"] = f"nobody has judged whether these are products: {', '.join(unjudged)}"
    return wrong


def is_other_work(row: Row) -> bool:
    """Whether a model does other work written out than as built, and modelglass counts the latter right."""
    return "as_built" in row and row["as_built"] == row["macs"] != row["truth"]


def unexplained(rows: Sequence[Row]) -> Iterator[str]:
    """Failures that nobody has explained, and explanations of what is not a failure any more."""
    failing = {(row["name"], check) for row in rows for check in row["wrong"]}
    yield from (f"{name}: {check}" for name, check in sorted(failing - explained.EXPLAINED.keys()))
    there = {row["name"] for row in rows}
    stale = {name for name, check in explained.EXPLAINED.keys() - failing}
    stale |= explained.AS_BUILT.keys() - {row["name"] for row in rows if is_other_work(row)}
    stale |= repairs.OUT.keys() - {row["name"] for row in rows if "unbuilt" in row}
    yield from (f"{name}: explained, and needs no explanation" for name in sorted(stale & there))
