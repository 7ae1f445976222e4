"""The one table that the README shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from inspect_speed import ASKED, BARE
from peers.traces import is_as_before

Results = Mapping[str, Any]
ADDRESS = "https://github.com/modelglass/modelglass/blob/main/"  # the README is shown elsewhere as well
SHOWN = ("modelglass", "torchinfo", "fvcore", "FlopCounterMode", "torchlens")
TIMED = {"ResNet-50": "ResNet-50", "GPT-2": "GPT-2", "78 B": "78 B, on meta"}  # by how a model's name begins
NEAR = 0.01  # other rules, such as to count a bias, too, make less of a difference
DASH = "–"


def readme_table(results: Results, zoo: Results) -> Iterator[str]:
    """The best known tools, then how it went with every architecture."""
    yield from _table(results, SHOWN)
    yield ""
    yield "Right answers: questions each tool claims to answer, including answers that are right under"
    yield "another convention. The sample is biased: most cases are known weak spots. No trace: models left"
    yield "bit-identical, and the process unchanged. MACs: real models counted within"
    yield f"{100 * NEAR:g} %. Times are multiples of a bare forward pass. All tools, with the calls:"
    yield f"[benchmarks]({ADDRESS}docs/benchmarks.md)."
    if zoo:
        yield ""
        yield from _zoo(zoo)


def overview(results: Results) -> Iterator[str]:
    """Every tool: who is right, who leaves a trace, and what it costs."""
    yield from _table(
        results, tuple(dict.fromkeys((*ASKED, *_section(results, "accuracy").get("answers", ()))))
    )


def _table(results: Results, tools: tuple[str, ...]) -> Iterator[str]:
    timed = {_model(results, begins): title for begins, title in TIMED.items()}
    titles = ["tool", "right answers", "no trace", "MACs", *timed.values()]
    yield f"| {' | '.join(titles)} |"
    yield f"|---|{'---:|' * (len(titles) - 1)}"
    for tool in tools:
        cells = [_right(results, tool), _traceless(results, tool), _real(results, tool)]
        cells += [_time(results, name, tool) for name in timed]
        yield f"| {f'**{tool}**' if tool == 'modelglass' else tool} | {' | '.join(cells)} |"


def _right(results: Results, tool: str) -> str:
    rows = _section(results, "accuracy").get("answers", {}).get(tool)
    if not rows:
        return DASH
    verdicts = Counter(row["verdict"] for row in rows)
    return f"{verdicts['right'] + verdicts['other rule']} of {verdicts.total()}"


def _traceless(results: Results, tool: str) -> str:
    rows = _section(results, "traces").get("answers", {}).get(tool)
    if not rows:
        return DASH
    return f"{sum(map(is_as_before, rows))} of {len(rows)}"


def _real(results: Results, tool: str) -> str:
    """Of all models, also those that the tool cannot look at."""
    models = _section(results, "speed").get("models", {}).values()
    if not models or ASKED.get(tool) != "macs":
        return DASH
    told = [(model["tools"].get(tool, {}).get("macs") or 0, model["macs"]) for model in models]
    right = sum(abs(each - truth) <= NEAR * truth for each, truth in told)
    return f"{right} of {len(models)}"


def _time(results: Results, name: str, tool: str) -> str:
    tools = _section(results, "speed").get("models", {}).get(name, {}).get("tools", {})
    figures, bare = tools.get(tool, {}), tools.get(BARE, {}).get("seconds")
    if "failed" in figures:
        return figures["failed"].partition(":")[0]
    return f"{figures['seconds'] / bare:.1f} x" if figures and bare else DASH


def _model(results: Results, begins: str) -> str:
    names = _section(results, "speed").get("models", {})
    return next((name for name in names if name.startswith(begins)), begins)


def _section(results: Results, name: str) -> Results:
    """A section's results, none where it could not be measured."""
    found: Results = results.get(name, {})
    return {} if "failed" in found else found


def _zoo(zoo: Results) -> Iterator[str]:
    total = sum(zoo["architectures"].values())
    passed = {check: sum(kinds.values()) for check, kinds in zoo["passed"].items()}
    yield f"[The zoo]({ADDRESS}docs/zoo.md) has the {total:,} architectures that timm and"
    yield "transformers build without weights, with inputs made automatically:"
    yield f"{passed['inspected']:,} are inspected without an exception, {passed['params']:,} have the right"
    yield f"parameters, {passed['macs']:,} the right MACs by an independent count,"
    yield f"{passed['trace']:,} are left without a trace."
