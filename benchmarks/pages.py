"""Pages, pictures and the README's table, made from results and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from files_ratios import files_details
from readme_table import overview, readme_table
from sections import SECTIONS, named

ROOT = Path(__file__).parents[1]
RESULTS, ZOO = Path("docs/benchmarks.json"), Path("docs/zoo.json")
BEGIN, END = "<!-- results: begin -->\n", "<!-- results: end -->\n"
MUCH_OTHER_WORK = 0.05  # of the processors' time, from which on times say less
Results = Mapping[str, Any]


def made(results: Results, zoo: Results, readme: str) -> dict[Path, str]:
    """The text of every file that shows results, by its path."""
    texts = {Path("docs/benchmarks.md"): page(results), Path("README.md"): with_table(readme, results, zoo)}
    if _measured(results, "files"):
        texts[Path("docs/benchmarks-files.md")] = "\n".join(files_details(results["files"])) + "\n"
    for name, section in SECTIONS.items():
        if section.pictures and _measured(results, name):
            pictures = named(section.pictures)(results[name])
            texts |= {Path("docs/pictures", file): text for file, text in pictures.items()}
    return texts


def page(results: Results) -> str:
    """docs/benchmarks.md; a section that is not there yet is left out."""
    table = ["", "## In one table", "", *overview(results)]
    return "\n".join([*_header(results), *table, *_sections(results), *_further()]) + "\n"


def with_table(readme: str, results: Results, zoo: Results) -> str:
    """The README with the table that these results give, where it has a place for it."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return readme
    table = "\n".join(readme_table(results, zoo))
    return f"{before}{BEGIN}\n{table}\n\n{END}{after}"


def read(path: Path) -> Results:
    """Results of a file, none where there is none."""
    found: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _measured(results: Results, name: str) -> bool:
    return name in results and "failed" not in results[name]


def _header(results: Results) -> Iterator[str]:
    machine, versions = results["machine"], results["versions"]
    yield "# Benchmarks"
    yield ""
    whole = "all in one run" if results["one_run"] else "not all in one run"
    yield f"Printed by `make bench`, {whole}: modelglass beside other tools, each called as its"
    yield "documentation says, in one environment. Where a call had to be adapted, the page says so; a tool"
    yield "that crashes is shown with what it raised. Counts are the same in every run; times are not, so"
    yield "compare contestants, not machines."
    yield ""
    if results.get("quick"):
        yield "**A quick run, to try the benchmarks out: sizes are tiny, and times mean nothing.**"
        yield ""
    yield f"- Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
    yield f"  {machine['system']}, Python {machine['python']}"
    yield f"- Versions: {', '.join(f'{name} {number}' for name, number in versions.items())}"
    yield from _other_work(results.get("other_work", {}))


def _other_work(shares: Mapping[str, float | None]) -> Iterator[str]:
    """What the machine did besides, which makes times longer and lines of growth steeper."""
    known = {name: share for name, share in shares.items() if share is not None}
    if not known:
        return
    most = max(known, key=lambda name: known[name])
    yield f"- Other work on the machine: at most {known[most]:.1%} of the processors' time (in *{most}*)"
    busy = [name for name, share in known.items() if share > MUCH_OTHER_WORK]
    if busy:
        yield ""
        yield f"**The machine had much other work while it measured {', '.join(busy)}: times may be too long"
        yield "there, and growth too steep.**"


def _sections(results: Results) -> Iterator[str]:
    for name, section in SECTIONS.items():
        if name in results:
            yield ""
            if _measured(results, name):
                yield from named(section.page)(results[name])
            else:
                yield f"## {name.capitalize()}"
                yield ""
                yield f"Could not be measured: {results[name]['failed']}"


def _further() -> Iterator[str]:
    yield ""
    yield "## Further pages"
    yield ""
    yield "[Two thousand architectures](zoo.md), [files, in seconds](benchmarks-files.md),"
    yield "[statistics of weights](benchmarks-stats.md), [distinct modules](benchmarks-unique.md),"
    yield "[memory, to the byte](benchmarks-memory.md) and [at what price](benchmarks-memory-speed.md),"
    yield "[MLX](benchmarks-mlx.md)."
