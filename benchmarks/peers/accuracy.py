"""How many of the questions whose answer is known each tool answers, and how.

    python benchmarks/run.py --only accuracy

Every question is put in a process of its own, which is given up after five minutes; one that crashes is a
result. Nothing here is a time, so a new run gives the same.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

WORKER = Path(__file__).with_name("worker.py")
# What an answer may be worth, and the title of its column.
VERDICTS = {
    "right": "right",
    "other rule": "right by another rule",
    "told": "wrong, names what it left out",
    "wrong": "wrong",
    "hands on": "hands the model's own error on",
    "crashes": "crashes",
    "over time": "over time",
}
Section = dict[str, Any]
Row = Mapping[str, Any]


def accuracy(*, quick: bool = False, jobs: int = 2) -> Section:
    """Cases, tools, and each tool's answers. It is the same when it has to be quick."""
    catalogue = from_worker("catalogue")[0]
    del catalogue["models"]
    return {**catalogue, "answers": of_tools("accuracy", list(catalogue["tools"]), jobs)}


def of_tools(what: str, tools: list[str], jobs: int) -> dict[str, list[Row]]:
    """What workers find out about each tool, several at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting = {tool: pool.submit(from_worker, what, tool) for tool in tools}
        found = {}
        for number, (tool, rows) in enumerate(waiting.items(), 1):
            found[tool] = rows.result()
            print(f"  {what} {number}/{len(tools)}: {tool}", file=sys.stderr, flush=True)
    return found


def from_worker(*words: str) -> list[Any]:
    """The rows that a worker prints."""
    done = subprocess.run([sys.executable, str(WORKER), *words], stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def accuracy_page(section: Section) -> Iterator[str]:
    """The section as Markdown, a line at a time."""
    yield "## Right answers"
    yield ""
    yield f"{len(section['cases'])} cases whose right answer is known by hand. They are no fair sample: most"
    yield "are here because some tool in use gets them wrong. Each tool is asked what it claims to tell, and"
    yield "only that. MACs are those of contractions that ran, without biases, norms and element-wise work;"
    yield "where a tool counts by another rule and is right by it, that has a column of its own."
    yield ""
    yield from _summary(section)
    for group, title in section["groups"].items():
        yield ""
        yield f"### {title}"
        yield ""
        yield from _group(section, group)
    yield ""
    yield from _failures(section)
    yield ""
    yield from _calls(section)


def _summary(section: Section) -> Iterator[str]:
    found = {tool: Counter(map(_worth, rows)) for tool, rows in section["answers"].items()}
    columns = [verdict for verdict in VERDICTS if any(each[verdict] for each in found.values())]
    yield f"| tool | version | asked | {' | '.join(VERDICTS[each] for each in columns)} |"
    yield f"|---|---|---:|{'---:|' * len(columns)}"
    for tool, counts in found.items():
        cells = " | ".join(str(counts[each]) for each in columns)
        yield f"| {tool} | {section['tools'][tool]['version']} | {counts.total()} | {cells} |"


def _worth(row: Row) -> str:
    return "told" if row["verdict"] == "wrong" and row.get("left_out") else row["verdict"]


def _group(section: Section, group: str) -> Iterator[str]:
    cases = {id: case for id, case in section["cases"].items() if case["group"] == group}
    answers = {
        tool: {(row["case"], row["question"]): row for row in rows if row["case"] in cases}
        for tool, rows in section["answers"].items()
    }
    answers = {tool: rows for tool, rows in answers.items() if rows}
    yield f"| | case | asked | known | {' | '.join(answers)} |"
    yield f"|---|---|---|---:|{'---:|' * len(answers)}"
    for id, case in cases.items():
        for number, (question, known) in enumerate(case["asked"].items()):
            cells = [_cell(rows.get((id, question))) for rows in answers.values()]
            start = f"{id} | {case['what']}" if number == 0 else " | "
            hand = case.get("by_hand", {}).get(question)
            right = _known(known, question) + (f" = `{hand}`" if hand else "")
            yield f"| {start} | {question} | {right} | {' | '.join(cells)} |"
    yield ""
    questions = dict.fromkeys(question for case in cases.values() for question in case["asked"])
    yield "; ".join(f"*{each}*: {section['questions'][each]}" for each in questions) + "."


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    if row["verdict"] == "right":
        return "right"
    if "error" in row:
        return f"{row['verdict']} the error" if row["verdict"] == "hands on" else row["verdict"]
    sign = {"other rule": " ◦", "told": " ▵"}.get(_worth(row), "")
    return f"{_shown(row['answer'], row['question'])}{sign}"


def _known(known: Any, question: str) -> str:
    if question in ("training memory",):
        return " to ".join(f"{each:,}" for each in known)
    return _shown(known, question)


def _shown(answer: Any, question: str) -> str:
    if question == "stopped":
        return "stopped" if answer else "let through"
    if question == "refused":
        return "refused" if answer else "accepted"
    if isinstance(answer, int):
        return f"{answer:,}"
    return f"`{json.dumps(answer)}`".replace("|", "\\|")


def _failures(section: Section) -> Iterator[str]:
    """What a short cell cannot say."""
    yield "### What was raised, left out or counted by another rule"
    yield ""
    yield "◦ right by another rule, ▵ wrong, but the tool itself lists the operators that it did not count."
    yield ""
    for tool, rows in section["answers"].items():
        notes: dict[str, list[str]] = {}
        for row in rows:
            if note := _note(row):
                notes.setdefault(note, []).append(row["case"])
        for note, cases in notes.items():
            yield f"- {tool}, {', '.join(dict.fromkeys(cases))}: {note}"


def _note(row: Row) -> str:
    if "error" in row:
        return f"`{row['error'].replace('`', chr(39))}`"
    if row["verdict"] == "other rule":
        return row["rule"]
    if _worth(row) == "told":
        return f"not counted: {', '.join(row['left_out'])}"
    return ""


def _calls(section: Section) -> Iterator[str]:
    """Each tool's calls, as they are run."""
    yield "### The calls"
    yield ""
    yield "As they are run. `args` and `kwargs` are what the model is called with, `named` has the same by"
    yield "the names of its parameters, `raises` tells whether a call raises, and `PlainCall` is a module"
    yield "that calls the model with the keyword arguments it was given."
    for tool, about in section["tools"].items():
        used = [row for row in section["answers"][tool] if row.get("adapted")]
        yield ""
        yield f"**{tool}** {about['version']}. {about['remark']}".rstrip()
        yield ""
        yield "```py"
        yield about["setup"]
        for question, code in about["calls"].items():
            yield f"# {question}"
            yield code
        if used:
            for question, code in about["adapted"].items():
                yield f"# {question}, adapted"
                yield code
        yield "```"
        if used:
            cases = ", ".join(dict.fromkeys(row["case"] for row in used))
            yield ""
            yield f"Adapted for {cases}: {about['why']}."
