"""What a pass or a training step takes in memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from modelglass.errors import InspectError, UsageError
from modelglass.page import UNBROKEN, Block, Cell, Column, Facts, Table, Timeline
from modelglass.page.units import exactly, shape_text, share, size
from modelglass.page.what_if import coverage_text, sure_text, what_if_text
from modelglass.report.blocks import representatives
from modelglass.report.memory import CATEGORIES, UNKNOWN_MEMORY

if TYPE_CHECKING:
    from modelglass.report import Report
    from modelglass.report.memory import KvCache, LiveTensor, Memory, Moment

CONTEXTS = (1_024, 8_192, 32_768, 131_072)  # tokens that a cache is shown for unless others are asked for
SHOWN_MODULES = 8
SHOWN_TENSORS = 10
SHOWN_INPUTS = 4
_ROOMY = 100  # cells that a line must have for columns that only complete others
_SIZE = Column("nbytes", "size", number=True)
_SHARE = Column("share", "share", number=True)
_TIMES = Column("times", "×", number=True)
_TYPE = Column("type", "type", least=10, tone="quiet")
_CATEGORIES = (
    Column("category", "category", tone="accent"),
    Column("bytes", "bytes", number=True, tone="quiet"),
    _SIZE,
    _SHARE,
)
_MODULE = Column("module", "module", least=20, cut="middle", tone="accent")
_SAVED = (_MODULE, _TYPE, _TIMES, Column("each_nbytes", "each", number=True), _SIZE, _SHARE)
_LARGEST = (
    _TIMES,
    _SIZE,
    Column("category", "held as"),
    Column("shape", "shape"),
    Column("tensor", "tensor or module", least=20, cut="middle", tone="accent"),
    Column("op", "made by", least=10, tone="quiet"),
    Column("phase", "phase", from_width=_ROOMY),
)
_SPARE = ("bytes", "each_nbytes", "type", "phase", "shape", "op", "share")


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
            "this report has no memory data", hint="inspect the model with inputs that it can run with"
        )
    return report.memory


def _way_out(report: Report) -> str:
    if any(note.code == "optimizer-failed" for note in report.notes):
        return "choose another optimizer, or none: forward and backward alone"
    if any(note.code == "nothing-trains" for note in report.notes):
        return "leave out the training step: nothing in it would change a weight"
    return "measure it: modelglass inspect --run real"


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


def blocks(report: Report, contexts: Sequence[int], top: int | None) -> Iterator[Block]:
    """Figures, what is held at the peak, the run, what is saved, and what is largest."""
    memory = known_memory(report)
    yield Facts(list(_facts(report, memory, contexts or CONTEXTS)))
    yield _categories(memory)
    if memory.timeline:
        count = len(memory.timeline)
        title = "over the one kernel of the run" if count == 1 else f"over the {count:,} kernels of the run"
        yield Timeline(title, memory)
    if memory.saved_by_module:
        yield _saved(report, memory.saved_by_module, memory.saved_nbytes or 0, top or SHOWN_MODULES)
    if memory.largest:
        yield _largest(report, memory.largest, top or SHOWN_TENSORS)


def timeline(report: Report) -> Table:
    """What is held while each kernel runs, in bytes, a row a kernel."""
    names = ("moment", "phase", "module", "op", "nbytes", *CATEGORIES)
    moments = enumerate(known_memory(report).timeline)
    rows = [
        [Cell(f"{figure:,}", figure) if isinstance(figure, int) else figure for figure in each]
        for each in ((i, m.phase, m.module, m.op, m.nbytes, *m.held) for i, m in moments)
    ]
    return Table([Column(name, words(name)) for name in names], rows)


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
        parts.append(f"{exactly(cache.fixed_nbytes)} at any length")
    yield "KV cache", f"{' + '.join(parts)}, each sequence; {cache.method}, from {cache.source}"
    at = (f"{tokens:,} tokens {size(cache.nbytes(tokens))}" for tokens in contexts)
    yield "  at", ", ".join(text.replace(" ", UNBROKEN) for text in at)


def _categories(memory: Memory) -> Table:
    held = {name: memory.by_category[name] for name in CATEGORIES if memory.by_category.get(name)}
    rows = [
        (words(name), Cell(f"{nbytes:,}", nbytes), _sized(nbytes), _shared(nbytes, memory.peak_nbytes))
        for name, nbytes in held.items()
    ]
    return Table(_CATEGORIES, rows, "held at the peak", weights=list(held.values()), spare=_SPARE, whole=True)


def _sized(nbytes: int) -> Cell:
    return Cell(size(nbytes), nbytes)


def _shared(nbytes: int, whole: int) -> Cell:
    return Cell(share(nbytes, whole), nbytes / whole if whole else None)


def _count(times: int) -> Cell:
    return Cell(f"{times:,}" if times > 1 else "", times)


def _saved(report: Report, saved: Mapping[str, int], whole: int, most: int) -> Table:
    """What modules saved; those that differ only in numbers of their paths are one row."""
    types = {module.path: module.type for module in report.model.modules}
    stands_for = representatives(report.model.modules, report.blocks or ())
    alike: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for path, nbytes in saved.items():
        alike[stands_for.get(path, path), nbytes].append(path)
    groups = sorted(alike.values(), key=lambda paths: -len(paths) * saved[paths[0]])[:most]
    rows = [_saved_row(paths, types.get(paths[0], ""), saved[paths[0]], whole) for paths in groups]
    title = "saved for backward, by the module that needs it"
    shown = sum(map(len, groups))
    if shown < len(saved):
        title += f" (the most, {shown:,} of {len(saved):,} modules)"
    weights = [len(paths) * saved[paths[0]] for paths in groups]
    return Table(_SAVED, rows, title, weights=weights, spare=_SPARE)


def _saved_row(paths: Sequence[str], type: str, nbytes: int, whole: int) -> tuple[Cell | str, ...]:
    times, total = len(paths), len(paths) * nbytes
    each = Cell(size(nbytes) if times > 1 else "", nbytes)
    return _together(paths), type, _count(times), each, _sized(total), _shared(total, whole)


def _stand_in(place: str, stands_for: Mapping[str, str]) -> str:
    """A module or a tensor as it is called in the first of equal blocks."""
    holder, _, own = place.rpartition(".")
    return stands_for.get(place) or f"{stands_for.get(holder, holder)}.{own}"


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


def _largest(report: Report, tensors: Sequence[LiveTensor], most: int) -> Table:
    """What is largest; neighbours that differ only in numbers of their names are one row."""
    stands_for = representatives(report.model.modules, report.blocks or ())
    usual = Counter(tensor.dtype for tensor in tensors).most_common(1)[0][0]
    alike: dict[tuple[object, ...], list[LiveTensor]] = defaultdict(list)
    for tensor in tensors:
        made = tensor.nbytes, tensor.category, tensor.shape, tensor.dtype, tensor.op, tensor.phase
        alike[*made, _stand_in(_place(tensor), stands_for)].append(tensor)
    groups = list(alike.values())[:most]
    rows = [_largest_row(group, usual) for group in groups]
    shown = sum(map(len, groups))
    title = "the largest tensor at the peak" if shown == 1 else f"the {shown:,} largest tensors at the peak"
    title += f", {usual} unless noted" if usual else ""
    return Table(_LARGEST, rows, title, spare=_SPARE)


def _largest_row(group: Sequence[LiveTensor], usual: str | None) -> tuple[Cell | str, ...]:
    tensor = group[0]
    other = f":{tensor.dtype}" if tensor.dtype not in (None, usual) else ""
    return (
        _count(len(group)),
        _sized(tensor.nbytes),
        words(tensor.category),
        shape_text(tensor.shape) + other,
        _together(list(dict.fromkeys(map(_place, group)))),
        (tensor.op or "–").removeprefix("aten."),
        tensor.phase or "before",
    )


def _place(tensor: LiveTensor) -> str:
    """What it holds, else the module that made it; what only an optimizer or a loss made has neither."""
    outside = tensor.phase in ("loss", "optimizer")
    if tensor.name is not None:
        return f"input {tensor.name}" if tensor.category == "inputs" else tensor.name
    return tensor.module or ("–" if outside else "(root)")
