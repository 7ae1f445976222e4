"""The findings as figures and as a page: how many pass each check, and every failure with its reason."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from zoo import explained, repairs
from zoo.judging import is_other_work, judged, unexplained
from zoo.names import CHECKS, KINDS, ONLY
from zoo.results import versions

Row = Mapping[str, Any]
Summary = dict[str, Any]
LIBRARIES = {
    "timm": "timm",
    "base": "transformers, base",
    "causal": "transformers, causal",
    "other": "transformers, other",
}


def write_page(rows: Sequence[Row], output: Path | None, *, partly: bool) -> int:
    """Print the page, and write it where the user wants it; 1 where a failure is unexplained."""
    rows = judged(rows)
    found = summary(rows)
    text = page(found)
    print(text)
    if output is not None and partly:
        print(
            "not written: a page is of all architectures by the code as it is, and this one of some",
            file=sys.stderr,
        )
    elif output is not None:
        figures = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        (output / "zoo.json").write_text(figures, encoding="utf-8")
        (output / "zoo.md").write_text(text, encoding="utf-8")
    open_questions = list(unexplained(rows))
    for each in open_questions:
        print(f"unexplained: {each}", file=sys.stderr)
    return 1 if open_questions else 0


def summary(rows: Sequence[Row]) -> Summary:
    """What a page says of all rows, as plain values."""
    there = [row for row in rows if row["name"] not in repairs.OUT]
    return {
        "machine": f"Python {platform.python_version()}, {os.cpu_count()} CPU cores",
        "versions": versions(),
        "listed": len(rows),
        "architectures": {kind: len(_of(kind, there)) for kind in KINDS},
        "passed": {
            check: {kind: _passed(check, _of(kind, there)) for kind in ONLY.get(check, KINDS)}
            for check in CHECKS
        },
        "all passed": {kind: sum(not row["wrong"] for row in _of(kind, there)) for kind in KINDS},
        "ways": dict(Counter(row["way"] for row in there if "way" in row).most_common()),
        "weights": sum("weights" in row for row in there),
        "repaired": _repaired(there),
        "as built": [
            _as_built(row) for row in there if is_other_work(row) and row["name"] in explained.AS_BUILT
        ],
        "missed": _tally(there, "added"),
        "free": _tally(there, "free"),
        "effort": _effort(there),
        "failures": [
            {
                "name": row["name"],
                "check": check,
                "said": said,
                "why": explained.EXPLAINED.get((row["name"], check)),
            }
            for row in there
            for check, said in row["wrong"].items()
        ],
        "not built": {row["name"]: repairs.OUT[row["name"]] for row in rows if row["name"] in repairs.OUT},
    }


def _of(kind: str, rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["name"].startswith(f"{kind}:")]


def _passed(check: str, rows: Sequence[Row]) -> int:
    """How many pass a check; where a run did not get so far, it was not passed."""
    needs = {"macs": ("inspected", "ran"), "coverage": ("inspected", "ran"), "ran": ("inspected",)}
    needed = (*needs.get(check, ("inspected",)), check)
    return sum(not any(each in row["wrong"] for each in needed) for row in rows)


def _repaired(rows: Sequence[Row]) -> list[str]:
    """Types of transformers whose default configuration contradicts itself."""
    return sorted(
        {name for kind, _, name in (row["name"].partition(":") for row in rows) if kind != "timm"}
        & set(repairs.REPAIRS)
    )


def _as_built(row: Row) -> dict[str, Any]:
    name = row["name"]
    return {
        "name": name,
        "written out": row["truth"],
        "as built": row["as_built"],
        "why": explained.AS_BUILT[name],
    }


def _tally(rows: Sequence[Row], field: str) -> dict[str, int]:
    """By operator, in how many architectures it is among these."""
    return dict(sorted(Counter(op for row in rows for op in row.get(field, ())).items()))


def _effort(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Median, 95th of a hundred and most, of those that were inspected and counted on meta."""
    ran = [row for row in rows if row.get("way", "").startswith("on meta") and "weights" not in row]
    if not ran:
        return {}
    return {
        "seconds": _spread([row["seconds"] for row in ran]),
        "seconds to find inputs for it": _spread([row["inputs_seconds"] for row in ran]),
        "times torch's counter": _spread([row["seconds"] / max(row["counter_seconds"], 1e-3) for row in ran]),
        "MiB added to the peak": _spread([row["mib"] for row in ran]),
    }


def _spread(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return [
        round(each, 2) for each in (median(ordered), ordered[int(0.95 * (len(ordered) - 1))], ordered[-1])
    ]


def page(found: Summary) -> str:
    total = sum(found["architectures"].values())
    with_versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    lines = [
        "# The zoo",
        "",
        "`make zoo` inspects every architecture that timm lists, and every type that `AutoModel` or",
        "`AutoModelForCausalLM` of transformers lists.",
        "Where neither lists a type, another of its auto classes does.",
        f"These are {found['listed']:,} names, of which {total:,} can be built. Each gets automatic inputs,",
        "and what modelglass says of it is checked against an independent truth.",
        f"Printed with {with_versions}, {found['machine']}.",
        "",
        *_table(found),
        "",
        *_truths(found),
        "",
        *_efforts(found["effort"]),
        *_failures(found["failures"]),
        *_unbuilt(found["not built"]),
        *_completed(found["repaired"]),
    ]
    return "\n".join(lines) + "\n"


def _table(found: Summary) -> Iterator[str]:
    kinds = found["architectures"]
    yield f"| check | {' | '.join(LIBRARIES[kind] for kind in kinds)} | all | |"
    yield f"|---|{'---:|' * (len(kinds) + 2)}"
    yield _line("architectures", kinds, kinds, None)
    for check, what in CHECKS.items():
        yield _line(what, found["passed"][check], kinds, kinds)
    yield _line("**all of these**", found["all passed"], kinds, kinds)


def _line(
    what: str, figures: Mapping[str, int], kinds: Mapping[str, int], of: Mapping[str, int] | None
) -> str:
    """One check: how many of each kind that it is about, of all, and their share."""
    cells = [f"{figures[kind]:,}" if kind in figures else "–" for kind in kinds]
    total = sum(figures.values())
    every = sum(of[kind] for kind in figures) if of else 0
    share = f"{100 * total / every:.2f} %" if every else ""
    return f"| {what} | {' | '.join(cells)} | {total:,} | {share} |"


def _truths(found: Summary) -> Iterator[str]:
    ways = ", ".join(f"{number} {way}" for way, number in found["ways"].items())
    missed = ", ".join(f"`{op}` in {number}" for op, number in found["missed"].items()) or "none was met"
    free = ", ".join(f"`{op.removeprefix('aten.')}`" for op in found["free"])
    yield f"""## The independent truth

- **Parameters**: the elements of `model.parameters()`, which lists each one once.
- **MACs**: half of what torch's `FlopCounterMode` counts when a second model, built with attention written
  out and experts as batched products, is called with the same inputs. It is called on meta, where the
  counter sees every product. A model that looks at values of its inputs is called with these kept, and one
  that looks at values of its weights is computed on the CPU, where it is small enough. So were counted:
  {ways}.
- **What the counter misses** is added by formulas of its own, and listed: {missed}. A
  distance between two points counts as their product, here and in modelglass; that is a convention.
- **What counts as nothing**: every operator that ran and is not a product, in what was counted. A person has
  looked at each name, and a new one fails the check. {free}.
- **No trace**: everything about the model, its inputs and the process that making inputs and an inspection
  could change is compared before and after.
- {found["weights"]} look at values of weights, and were inspected with weights; all others on meta."""
    if found["as built"]:
        yield ""
        yield "Written out, these do other work than as they are built, and were counted as built, too:"
        yield ""
        for each in found["as built"]:
            counts = f"{each['written out']:,} MACs written out, {each['as built']:,} as built"
            yield f"- `{each['name']}`: {each['why']}; {counts}"


def _efforts(effort: Mapping[str, list[float]]) -> Iterator[str]:
    if not effort:
        return
    yield "## Time and memory"
    yield ""
    yield "| an inspection | median | 95 of 100 take no more | most |"
    yield "|---|---:|---:|---:|"
    for what, figures in effort.items():
        yield f"| {what} | {' | '.join(map(str, figures))} |"
    yield ""
    yield "Of those that were inspected and counted on meta, as many at a time as there are cores. The"
    yield "peak is that of the process, after it gave back what it had freed, and by how much the inspection"
    yield "raised it. torch's counter calls the model on meta, once, and adds up."
    yield ""


def _failures(failures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"## Failures: {len(failures)}"
    yield ""
    groups: dict[str, list[str]] = defaultdict(list)
    for each in failures:
        line = f"- `{each['name']}`: {CHECKS[each['check']]}: {_plain(each['said'])}"
        groups[each["why"] or "Unexplained."].append(line)
    for why, lines in sorted(groups.items()):
        yield why
        yield ""
        yield from lines
        yield ""


def _unbuilt(unbuilt: Mapping[str, str]) -> Iterator[str]:
    yield f"## Not built: {len(unbuilt)}"
    yield ""
    yield "transformers itself does not build these here, whatever the configuration."
    yield ""
    for name, why in unbuilt.items():
        yield f"- `{name}`: {why}"


def _completed(repaired: Sequence[str]) -> Iterator[str]:
    yield ""
    yield f"## Made consistent: {len(repaired)}"
    yield ""
    yield "Default configurations of transformers that contradict themselves, or ask for weights that are too"
    yield "large to be had: `zoo/repairs.py` has the least that makes a model of each that can be called."
    yield ""
    yield ", ".join(f"`{name}`" for name in repaired) or "None."


def _plain(text: str) -> str:
    """What was raised, as Markdown that says just that."""
    return text.replace("`", "'").replace("|", "/").replace("<", "&lt;")[:240]
