"""Colours of the stages, for pictures on light and on dark pages."""

from __future__ import annotations

from collections.abc import Mapping

from modelglass.report import Stage

# Fill, border and text on a light page, then on a dark one.
COLOURS: Mapping[Stage, tuple[tuple[str, str], tuple[str, str]]] = {
    "input": (("#e0f2fe", "#0284c7"), ("#0c2d48", "#38bdf8")),
    "embedding": (("#ede9fe", "#7c3aed"), ("#2a2150", "#a78bfa")),
    "blocks": (("#dcfce7", "#16a34a"), ("#0f3323", "#4ade80")),
    "head": (("#ffedd5", "#ea580c"), ("#3f2410", "#fb923c")),
    "output": (("#fce7f3", "#db2777"), ("#43142f", "#f472b6")),
}


def _styles() -> str:
    light = [
        ".page{fill:#fff}",
        "text{font-family:Helvetica,Arial,'Liberation Sans',sans-serif;font-size:11px;fill:#0f172a}",
        ".heading{font-size:17px;font-weight:700}",
        ".name{font-size:13px;font-weight:600}",
        ".type{fill:#64748b}",
        "rect{stroke-width:1.2}",
        ".group rect{fill:#e9eef5;stroke:#94a3b8}",
        ".group.light rect{fill:#f6f8fb}",
        ".edge path{stroke:#64748b;stroke-width:1.3;fill:none}",
        ".edge .head,.head.carried{fill:#64748b;stroke:none}",
        ".each .line{stroke-width:3}",
        ".carried .line,path.edge.carried{stroke:#64748b;stroke-width:1.3;fill:none;stroke-dasharray:4 3}",
        ".edge:hover path{stroke-width:2.4}",
    ]
    dark = [
        ".page{fill:#0d1117}",
        "text{fill:#e6edf3}",
        ".type{fill:#9aa5b1}",
        ".group rect{fill:#21262d;stroke:#6e7681}",
        ".group.light rect{fill:#161b22}",
        ".edge path,.carried .line,path.edge.carried{stroke:#9aa5b1}",
        ".edge .head,.head.carried{fill:#9aa5b1}",
    ]
    for stage, (by_day, by_night) in COLOURS.items():
        boxes = f".module.{stage} rect,.operators.{stage} rect,.input.{stage} rect,.output.{stage} rect"
        light.append(f"{boxes}{{fill:{by_day[0]};stroke:{by_day[1]}}}")
        dark.append(f"{boxes}{{fill:{by_night[0]};stroke:{by_night[1]}}}")
    return _scoped(light) + f"@media (prefers-color-scheme:dark){{{_scoped(dark)}}}"


def _scoped(rules: list[str]) -> str:
    """The rules for our own picture only: a page may hold others."""
    made = []
    for rule in rules:
        selectors, _, body = rule.partition("{")
        own = ",".join(f".modelglass-flow {selector}" for selector in selectors.split(","))
        made.append(f"{own}{{{body}")
    return "".join(made)


STYLE = _styles()
