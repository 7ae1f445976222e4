"""What a pass or a training step takes in memory, as text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from modelglass.errors import InspectError, UsageError
from modelglass.renderers import _sparkline
from modelglass.renderers._escape import cell_width, csv_cell, fitted, markdown, printable
from modelglass.renderers._markdown import head, line, note_items
from modelglass.renderers._terminal import (
    BOLD,
    CYAN,
    DIM,
    GAP,
    RED,
    Paint,
    Table,
    note_lines,
    painter,
    wrapped,
)
from modelglass.page.sections.totals import failure_lines
from modelglass.page.units import exactly, shape_text, share, size
from modelglass.page.what_if import coverage_text, sure_text, what_if_text
from modelglass.report.memory import CATEGORIES, UNKNOWN_MEMORY

if TYPE_CHECKING:
    from modelglass.report import Note, Report
    from modelglass.report.memory import KvCache, LiveTensor, Memory, Moment

CONTEXTS = (1_024, 8_192, 32_768, 131_072)  # tokens that a cache is shown for unless others are asked for
SHOWN_MODULES = 8
SHOWN_TENSORS = 10
SHOWN_INPUTS = 4
_PAGE = 100  # cells of the chart in Markdown
_LONGEST_BAR, _SHORTEST_BAR = 40, 6
_HEADS = {"times": "×", "what": "held as", "tensor": "tensor or module", "op": "made by", "bar": ""}
_NUMBERS = frozenset({"bytes", "size", "share", "times", "each"})
_PATHS = {"module": 20, "tensor": 20}  # cut in the middle, down to this
_ROOMY = 100  # cells that a line must have for columns that only complete others
_FLEXIBLE = {**_PATHS, "op": 10, "type": 10}
_SPARE = (
    "bytes",
    "each",
    "type",
    "phase",
    "shape",
    "op",
    "share",
)  # left out first where a line is too short
_STYLES = {
    "category": CYAN,
    "module": CYAN,
    "tensor": CYAN,
    "bar": CYAN,
    "type": DIM,
    "bytes": DIM,
    "op": DIM,
}
_TIE = "\N{NO-BREAK SPACE}"


def render(report: Report, *, width: int = 100, color: bool = False, contexts: Sequence[int] = ()) -> str:
    """The memory as text of at most `width` cells a line.

    `contexts` are lengths in tokens for which the cache of generation is shown.
    """
    paint = painter(color)
    sections = [paint(fitted(printable(_title(report)), width), BOLD)]
    if report.run.failure is not None:
        told = [
            part for text in failure_lines(report.run.failure) for part in wrapped(printable(text), width)
        ]
        sections.append("\n".join(paint(text, RED) for text in told))
    else:
        sections += _sections(report, known_memory(report), contexts or CONTEXTS, width, paint)
    notes = _notes(report)
    if notes:
        sections.append(note_lines(notes, width, paint))
    return "\n\n".join(sections) + "\n"


def render_markdown(report: Report, *, contexts: Sequence[int] = ()) -> str:
    """The memory for a pull request."""
    lines = [f"### {markdown(_title(report))}", ""]
    if report.run.failure is not None:
        lines += [f"> {markdown(text)}  " for text in failure_lines(report.run.failure)]
    else:
        lines += _markdown_sections(report, known_memory(report), contexts or CONTEXTS)
    notes = _notes(report)
    if notes:
        lines += ["", *note_items(notes)]
    return "\n".join(lines) + "\n"


def render_csv(report: Report) -> str:
    """What is held while each kernel runs, in bytes, one line a kernel."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["moment", "phase", "module", "op", "nbytes", *CATEGORIES])
    for index, moment in enumerate(known_memory(report).timeline):
        texts = map(csv_cell, (moment.phase, moment.module, moment.op))
        writer.writerow([index, *texts, moment.nbytes, *moment.held])
    return out.getvalue()


def known_memory(report: Report) -> Memory:
    """The memory in the report; that there is none is an error."""
    if report.memory is None and report.engine is not None:
        raise UsageError(
            "memory is not followed inside an engine",
            hint="modelglass inspect shows what its weights take, and its cache",
        )
    if report.memory is None:
        reasons = [note.text for note in report.notes if note.code in UNKNOWN_MEMORY]
        if reasons:
            raise InspectError(f"the memory of this run is not known: {reasons[0]}", hint=_way_out(report))
        raise UsageError(
            "this report knows nothing of memory", hint="inspect the model with inputs that it can run with"
        )
    return report.memory


def _way_out(report: Report) -> str:
    if any(note.code == "optimizer-failed" for note in report.notes):
        return "choose another optimizer, or none: forward and backward alone"
    if any(note.code == "nothing-trains" for note in report.notes):
        return "leave out the training step: nothing in it would change a weight"
    return "measure it: modelglass inspect --run real"


def shortened(text: str, width: int) -> str:
    """The text with its middle left out where it is too long: both ends of a path tell more."""
    if cell_width(text) <= width:
        return text
    ahead = fitted(text, (width + 1) // 2)  # with the ellipsis
    behind = fitted(text[::-1], width - cell_width(ahead) + 1)[::-1]
    return ahead + behind[1:]


def what_ran(report: Report, memory: Memory | None) -> str:
    """The pass or step that the figures are of."""
    if not report.run.train:
        return "one forward pass without gradients"
    if memory is None or memory.optimizer is None:
        return "one forward and backward pass"
    return f"one training step with {memory.optimizer}"


def where_text(moment: Moment) -> str:
    """The phase, module and kernel of a moment."""
    return ", ".join(filter(None, (moment.phase, moment.module, moment.op)))


def words(category: str) -> str:
    """The category as people write it."""
    return category.replace("_", " ")


def sizes_text(batch_size: int | None, seq_len: int | None) -> str:
    """The batch and the sequence that ran, as far as they are known."""
    batch = None if batch_size is None else f"batch {batch_size:,}"
    return ", ".join(filter(None, (batch, None if seq_len is None else f"sequence length {seq_len:,}")))


def _title(report: Report) -> str:
    return f"{report.model.name} ({report.model.source}): {what_ran(report, report.memory)}"


def _notes(report: Report) -> list[Note]:
    return [note for note in report.notes if note.code != "forward-failed"]


def _facts(report: Report, memory: Memory, contexts: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Label and text of each figure, in reading order."""
    given = _inputs_text(report, memory)
    if given:
        yield "inputs", given
    what_if = memory.what_if
    if what_if is not None:
        yield "what if", what_if_text(what_if)
    for coverage in memory.coverage:
        yield "  covers", coverage_text(coverage)
    each = " on each device" if what_if is not None and what_if.sharding else ""
    yield "peak", f"{exactly(memory.peak_nbytes)}{each}, {sure_text(memory)}"
    if memory.peak is not None and memory.at is not None:
        yield "  where", f"{where_text(memory.peak)} (kernel {memory.at + 1:,} of {len(memory.timeline):,})"
    else:
        yield "  where", "rest: no kernel ran"
    if memory.excludes:
        yield "  excludes", ", ".join(memory.excludes)
    yield from _step_facts(memory)
    yield "base", f"{exactly(memory.base_nbytes)} of parameters, buffers and inputs"
    if memory.saved_nbytes is not None:
        yield "saved", f"{exactly(memory.saved_nbytes)} for backward when forward ends"
    if memory.kv_cache is not None:
        yield from _cache_facts(memory.kv_cache, contexts)


def _step_facts(memory: Memory) -> Iterator[tuple[str, str]]:
    """Which step the figures are of, and what the others take."""
    first, later = memory.first_peak_nbytes, memory.later_peak_nbytes
    if first is None or later is None:
        return
    if not memory.in_first_step:
        yield "  step", "a later one, with optimizer state from the start"
        yield "first step", exactly(first)
    elif later < first:
        yield "  step", "the first"
        yield "later steps", f"{exactly(later)}, with optimizer state from the start"
    else:
        yield "  step", "every one, the first included"


def _inputs_text(report: Report, memory: Memory) -> str:
    """The batch size, the sequence length and the inputs themselves."""
    tensors = [value for value in report.run.inputs if value.shape is not None]
    listed = [
        f"{'' if value.name.isdecimal() else value.name} {shape_text(value.shape)}".strip()
        for value in tensors[:SHOWN_INPUTS]
    ]
    if len(tensors) > SHOWN_INPUTS:
        listed.append(f"and {len(tensors) - SHOWN_INPUTS} more")
    return ": ".join(filter(None, (sizes_text(memory.batch_size, memory.seq_len), ", ".join(listed))))


def _cache_facts(cache: KvCache, contexts: Sequence[int]) -> Iterator[tuple[str, str]]:
    parts = []
    if cache.nbytes_per_token or not cache.windows:
        parts.append(f"{exactly(cache.nbytes_per_token)} a token")
    parts += [f"{exactly(each)} a token up to {window:,}" for window, each in sorted(cache.windows.items())]
    if cache.fixed_nbytes:
        parts.append(f"{exactly(cache.fixed_nbytes)} whatever the length")
    yield "KV cache", f"{' + '.join(parts)}, each sequence; {cache.method}, from {cache.source}"
    yield (
        "  at",
        ", ".join(_unbroken(f"{tokens:,} tokens {size(cache.nbytes(tokens))}") for tokens in contexts),
    )


def _unbroken(text: str) -> str:
    """The text as one word, as far as lines are concerned."""
    return text.replace(" ", _TIE)


class Grid(NamedTuple):
    """A table: its rows, and what each row weighs where bars are to be drawn."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    weights: Sequence[int] = ()

    @property
    def heads(self) -> list[str]:
        return [_HEADS.get(name, name) for name in self.columns]

    @property
    def table(self) -> Table:
        return Table(self.columns, self.heads, self.rows, numbers=_NUMBERS, flexible=_FLEXIBLE)

    def without(self, column: str) -> Grid:
        """The same with a column less."""
        kept = [place for place, name in enumerate(self.columns) if name != column]
        rows = [[row[place] for place in kept] for row in self.rows]
        return self._replace(columns=[self.columns[place] for place in kept], rows=rows)

    def with_bars(self, cells: int) -> Grid:
        """The same with a column more: what each row weighs, against the heaviest."""
        bars = [_sparkline.bar(weight, max(self.weights), cells) for weight in self.weights]
        rows = [[*row, text] for row, text in zip(self.rows, bars, strict=True)]
        return self._replace(columns=[*self.columns, "bar"], rows=rows)


def _grids(report: Report, memory: Memory) -> Iterator[Grid]:
    yield _categories(memory)
    if memory.saved_by_module:
        yield _saved(report, memory.saved_by_module, memory.saved_nbytes or 0)
    if memory.largest:
        yield _largest(memory.largest)


def _categories(memory: Memory) -> Grid:
    held = {name: memory.by_category[name] for name in CATEGORIES if memory.by_category.get(name)}
    rows = [
        (words(name), f"{nbytes:,}", size(nbytes), share(nbytes, memory.peak_nbytes))
        for name, nbytes in held.items()
    ]
    return Grid("held at the peak", ("category", "bytes", "size", "share"), rows, list(held.values()))


def _saved(report: Report, saved: Mapping[str, int], whole: int) -> Grid:
    """What modules saved; those that differ only in numbers of their paths are one line."""
    types = {module.path: module.type for module in report.model.modules}
    alike: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, nbytes in saved.items():
        alike[_pattern(path), types.get(path), nbytes].append(path)
    groups = sorted(alike.values(), key=lambda paths: -len(paths) * saved[paths[0]])[:SHOWN_MODULES]
    rows = [_saved_row(paths, types.get(paths[0], ""), saved[paths[0]], whole) for paths in groups]
    title = "saved for backward, by the module that needs it"
    shown = sum(map(len, groups))
    if shown < len(saved):
        title += f" (the most, {shown:,} of {len(saved):,} modules)"
    weights = [len(paths) * saved[paths[0]] for paths in groups]
    return Grid(title, ("module", "type", "times", "each", "size", "share"), rows, weights)


def _saved_row(paths: Sequence[str], type: str, nbytes: int, whole: int) -> tuple[str, ...]:
    times, total = len(paths), len(paths) * nbytes
    several = (f"{times:,}", size(nbytes)) if times > 1 else ("", "")
    return _together(paths), type, *several, size(total), share(total, whole)


def _pattern(path: str) -> tuple[str, ...]:
    """The path without its numbers."""
    return tuple("#" if part.isdecimal() else part for part in path.split("."))


def _together(paths: Sequence[str]) -> str:
    """Paths that differ in numbers as one: "layers.0–5.mlp", or "layers.*.mlp" where some are left out."""
    parts = []
    for values in zip(*(path.split(".") for path in paths), strict=True):
        if len(set(values)) == 1:
            parts.append(values[0])
            continue
        numbers = sorted(map(int, values))
        follow = numbers == list(range(numbers[0], numbers[0] + len(paths)))
        parts.append(f"{numbers[0]}–{numbers[-1]}" if follow else "*")
    return ".".join(parts) or "(root)"


def _largest(tensors: Sequence[LiveTensor]) -> Grid:
    """What is largest; neighbours that differ only in numbers of their names are one line."""
    usual = Counter(tensor.dtype for tensor in tensors).most_common(1)[0][0]
    alike: dict[tuple[object, ...], list[LiveTensor]] = defaultdict(list)
    for tensor in tensors:
        made = tensor.nbytes, tensor.category, tensor.shape, tensor.dtype, tensor.op, tensor.phase
        alike[*made, _pattern(_place(tensor))].append(tensor)
    groups = list(alike.values())[:SHOWN_TENSORS]
    rows = [_largest_row(group, usual) for group in groups]
    shown = sum(map(len, groups))
    title = "the largest tensor at the peak" if shown == 1 else f"the {shown:,} largest tensors at the peak"
    title += f", {usual} unless said otherwise" if usual else ""
    return Grid(title, ("times", "size", "what", "shape", "tensor", "op", "phase"), rows)


def _largest_row(group: Sequence[LiveTensor], usual: str | None) -> tuple[str, ...]:
    tensor = group[0]
    times = f"{len(group):,}" if len(group) > 1 else ""
    other = f":{tensor.dtype}" if tensor.dtype not in (None, usual) else ""
    place = _together(list(dict.fromkeys(map(_place, group))))
    made = (tensor.op or "–").removeprefix("aten."), tensor.phase or "before"
    return times, size(tensor.nbytes), words(tensor.category), shape_text(tensor.shape) + other, place, *made


def _place(tensor: LiveTensor) -> str:
    """What it holds, else the module that made it; what only an optimizer or a loss made has neither."""
    outside = tensor.phase in ("loss", "optimizer")
    if tensor.name is not None:
        return f"input {tensor.name}" if tensor.category == "inputs" else tensor.name
    return tensor.module or ("–" if outside else "(root)")


def _sections(
    report: Report, memory: Memory, contexts: Sequence[int], width: int, paint: Paint
) -> Iterator[str]:
    yield _fact_lines(_facts(report, memory, contexts), width, paint)
    held, *more = (_grid_text(grid, width, paint) for grid in _grids(report, memory))
    yield held
    if memory.timeline:
        count = len(memory.timeline)
        title = "over the one kernel of the run" if count == 1 else f"over the {count:,} kernels of the run"
        yield f"{paint(title, BOLD)}\n\n{_sparkline.timeline(memory, width, paint)}"
    yield from more


def _fact_lines(facts: Iterator[tuple[str, str]], width: int, paint: Paint) -> str:
    rows = list(facts)
    label_width = max(len(label) for label, _ in rows) + GAP
    room = max(20, width - label_width)
    lines = []
    for label, text in rows:
        fitting = " ".join(shortened(word, room) for word in printable(text).split(" "))
        for index, part in enumerate(wrapped(fitting, room)):
            name = "" if index else label
            lines.append(paint(name.ljust(label_width), DIM) + part.strip().replace(_TIE, " "))
    return "\n".join(lines)


def _grid_text(grid: Grid, width: int, paint: Paint) -> str:
    """The table under its title, with bars where there is room for them."""
    grid = grid._replace(rows=[[printable(text) for text in row] for row in grid.rows])
    if width < _ROOMY and "phase" in grid.columns:
        grid = grid.without("phase")
    for column in _SPARE:
        if column in grid.columns and grid.table.width(at_least=_FLEXIBLE) > width:
            grid = grid.without(column)
    grid = _with_shorter_paths(grid, grid.table.width() - width)
    bars = min(_LONGEST_BAR, width - grid.table.width() - GAP)
    if grid.weights and bars >= _SHORTEST_BAR:
        grid = grid.with_bars(bars)
    table = grid.table.text(width, [_STYLES.get] * len(grid.rows), paint)
    return f"{paint(fitted(grid.title, width), BOLD)}\n\n{table}"


def _with_shorter_paths(grid: Grid, excess: int) -> Grid:
    place = next((place for place, name in enumerate(grid.columns) if name in _PATHS), None)
    if place is None or excess <= 0:
        return grid
    room = max(cell_width(row[place]) for row in grid.rows) - excess
    room = max(room, _PATHS[grid.columns[place]])
    rows = [[*row[:place], shortened(row[place], room), *row[place + 1 :]] for row in grid.rows]
    return grid._replace(rows=rows)


def _markdown_sections(report: Report, memory: Memory, contexts: Sequence[int]) -> Iterator[str]:
    yield from (line(["figure", ""]), line(["---", "---"]))
    for label, text in _facts(report, memory, contexts):
        yield line([markdown(label.strip()), markdown(text.replace(_TIE, " "))])
    for grid in _grids(report, memory):
        yield from ("", f"**{markdown(grid.title)}**", "", *head(grid.columns, grid.heads, _NUMBERS))
        yield from (line(map(markdown, row)) for row in grid.rows)
    if memory.timeline:
        yield from ("", "```text", *_sparkline.timeline(memory, _PAGE, painter(False)).splitlines(), "```")
