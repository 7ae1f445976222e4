"""The rows of a module table: the tree in order, repeated identical blocks folded into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from modelglass.page import Cell
from modelglass.page.units import range_text, shape_text, share, short, size, value_text
from modelglass.report import Tally
from modelglass.report.blocks import representatives
from modelglass.report.layers import calls_by_module, saw_calls

if TYPE_CHECKING:
    from modelglass.report import Call, Json, Module, Report, Shape, Value

LEAF_RUN = 3  # fewer identical leaves than this are shown one by one
BLOCK_RUN = 2
SHOWN_TENSORS = 8  # of one module


class Row(NamedTuple):
    """One line of the table: a module, or `times` siblings that are the same, or a second path to one.

    `members` are all modules the line stands for: below a folded block, the same part of each block.
    """

    members: tuple[Module, ...]
    name: str
    guides: tuple[bool, ...]  # for each level above: whether more siblings follow there
    times: int = 1
    alias_of: str | None = None

    @property
    def module(self) -> Module:
        return self.members[0]

    @property
    def copies(self) -> int:
        """How many modules the line stands for."""
        return len(self.members)

    @property
    def depth(self) -> int:
        return len(self.guides)


def rows_of(report: Report, *, depth: int | None = None, fold: bool = True) -> list[Row]:
    """The rows down to `depth` levels below the root (None: all)."""
    return list(_Tree(report, fold=fold).rows(depth))


class _Tree:
    def __init__(self, report: Report, *, fold: bool) -> None:
        self._modules = {module.path: module for module in report.model.modules}
        self._aliases: dict[str, list[tuple[str, Module]]] = defaultdict(list)
        for module in report.model.modules:
            for alias in module.aliases:
                self._aliases[alias.rpartition(".")[0]].append((alias, module))
        groups = report.blocks if fold else ()
        self._standing = representatives(report.model.modules, groups or ())

    def rows(self, depth: int | None) -> Iterator[Row]:
        root = next(iter(self._modules.values()), None)
        if root is None:
            return
        yield Row((root,), "", ())
        stack = [iter(self._children(Row((root,), "", ())))]
        while stack:
            row = next(stack[-1], None)
            if row is None:
                stack.pop()
            elif depth is None or row.depth <= depth:
                yield row
                if row.alias_of is None:
                    stack.append(iter(self._children(row)))

    def _children(self, parent: Row) -> list[Row]:
        groups = self._groups(parent.module)
        aliases = self._aliases.get(parent.module.path, [])
        last = len(groups) + len(aliases) - 1
        rows = []
        for index, group in enumerate(groups):
            names = [child.rpartition(".")[2] for child in group]
            members = tuple(
                self._modules[f"{member.path}.{name}" if member.path else name]
                for member in parent.members
                for name in names
            )
            name = names[0] if len(names) == 1 else f"{names[0]}–{names[-1]}"
            rows.append(Row(members, name, (*parent.guides, index < last), times=len(group)))
        for index, (path, module) in enumerate(aliases, start=len(groups)):
            name = path.rpartition(".")[2]
            rows.append(Row((module,), name, (*parent.guides, index < last), alias_of=module.path))
        return rows

    def _groups(self, parent: Module) -> list[list[str]]:
        """A module's children, in runs of siblings that are equal."""
        groups: list[list[str]] = []
        for _, found in groupby(parent.children, key=self._standing.__getitem__):
            run = list(found)
            needed = BLOCK_RUN if self._modules[run[0]].children else LEAF_RUN
            groups.extend([run] if len(run) >= needed else [[path] for path in run])
        return groups


class Cells:
    """The cells of a report's table. Where a row's members differ, the cell gives the range."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._calls = calls_by_module(report)
        self._ran = saw_calls(report)
        self._shards = {} if report.engine is None else report.engine.shards
        self._tensors = {tensor.name: tensor for tensor in report.model.tensors}

    def cell(self, row: Row, column: str) -> Cell | str:
        if row.alias_of is not None and column not in ("name", "type"):
            return ""  # shown where the module first stands
        cell: Cell | str = getattr(self, f"_cell_{column}")(row)
        return cell

    def has_failed(self, row: Row) -> bool:
        failure = self._report.run.failure
        return failure is not None and failure.module == row.module.path and not row.alias_of

    def _cell_name(self, row: Row) -> str:
        if row.alias_of is not None:
            return f"{row.name} = {row.alias_of or '(root)'}"
        name = row.name or "(root)"
        return f"{name} ×{row.times}" if row.times > 1 else name

    def _cell_type(self, row: Row) -> str:
        return row.module.type

    def _cell_path(self, row: Row) -> str:
        return row.module.path or "(root)"

    def _cell_input(self, row: Row) -> str:
        return self._values([call.inputs for call in self._first_calls(row)])

    def _cell_output(self, row: Row) -> str:
        if not self._ran:
            return ""
        calls = self._first_calls(row)
        if self.has_failed(row):
            return "✗ failed"
        if not calls:
            if any(self._calls.get(child) for child in row.module.children):
                return "–"  # a list of modules is not called itself
            return "not reached" if self._report.run.failure else "not called"
        if not calls[0].completed:
            return "✗ not finished"
        return self._values([call.outputs for call in calls])

    def _first_calls(self, row: Row) -> list[Call]:
        return [calls[0] for member in row.members if (calls := self._calls.get(member.path))]

    def _values(self, alternatives: list[tuple[Value, ...]]) -> str:
        """Tensors by shape; other values only where there are no tensors."""
        if not alternatives:
            return ""
        shown = [value for value in alternatives[0] if value.dtype is not None]
        names = [value.name for value in shown]
        if not shown:
            return ", ".join(value_text(value) for value in alternatives[0])
        texts = []
        for name in names:
            shapes = [v.shape for values in alternatives for v in values if v.name == name]
            texts.append(_shape_range(shapes))
        return ", ".join(texts)

    def _cell_calls(self, row: Row) -> str:
        if not self._ran:
            return ""
        return _range([len(self._calls.get(m.path, ())) for m in row.members], str)

    def _cell_tensors(self, row: Row) -> str:
        """The module's own tensors, each by its name and shape."""
        names = row.module.tensors
        shown = [self._own(name, row.module) for name in names[:SHOWN_TENSORS]]
        more = len(names) - SHOWN_TENSORS
        return ", ".join([*shown, f"{more:,} more"] if more > 0 else shown)

    def _own(self, name: str, module: Module) -> str:
        tensor = self._tensors[name]
        packing = tensor.packing
        shape = shape_text(tensor.shape if packing is None else packing.logical_shape)
        own = name.removeprefix(f"{module.path}.") if name != module.path else ""
        return f"{own} {shape}".lstrip()

    def _cell_part(self, row: Row) -> str:
        """What a rank holds of the module's own tensors."""
        if not self._shards:
            return ""
        from modelglass.page.sections.engine import part_text

        path = f"{row.module.path}."
        own = [name for name in row.module.tensors if name in self._shards]
        cut = [(name.removeprefix(path), self._tensors[name], self._shards[name]) for name in own]
        return part_text(cut)

    def _cell_dtype(self, row: Row) -> str:
        dtypes = dict.fromkeys(
            self._tensors[name].dtype for name in row.module.tensors if self._tensors[name].kind != "buffer"
        )
        return ", ".join(dtypes)

    def _counts(self, row: Row) -> Tally:
        counts = self._report.counts
        return counts.by_module[row.module.path].total if counts else Tally()

    def _cell_params(self, row: Row) -> Cell | str:
        total = self._counts(row).params
        tensors = [self._tensors[name] for name in row.module.tensors]
        counts = self._report.counts
        if not row.module.children and counts is not None:
            if any(t.shape is None for t in tensors):
                return "unknown" if self._report.engine else "uninitialised"
            if total == 0 and any(t.kind != "buffer" and t.name in counts.tied for t in tensors):
                return "tied"
        return _count(row, total)

    def _cell_trainable(self, row: Row) -> Cell | str:
        trainable = self._counts(row).trainable
        return "?" if trainable is None else _count(row, trainable)

    def _cell_share(self, row: Row) -> str:
        counts = self._report.counts
        return share(row.copies * self._counts(row).params, counts.params if counts else 0)

    def _cell_buffers(self, row: Row) -> Cell | str:
        return _count(row, self._counts(row).buffers)

    def _cell_size(self, row: Row) -> str:
        nbytes = self._counts(row).nbytes
        return _times(row, size(nbytes) if nbytes else "–")

    def _cell_macs(self, row: Row) -> str:
        cost = self._report.cost
        if cost is None:
            return ""
        found = [cost.by_module[member.path] for member in row.members]
        known = [each.total_macs for each in found if each.total_macs is not None]
        if not known:
            return _times(row, "?")  # the run failed before
        text = _range(known, short)
        if all(each.complete for each in found):
            return _times(row, text)
        return _times(row, f"≥ {text}" if text != "–" else "?")

    def _cell_config(self, row: Row) -> str:
        configs = [member.config for member in row.members]
        return ", ".join(f"{key}={_setting([each[key] for each in configs])}" for key in configs[0])


def _count(row: Row, number: int) -> Cell | str:
    if not number:
        return "–"
    return Cell(_times(row, f"{number:,}"), row.copies * number, brief=_times(row, short(number)))


def _times(row: Row, text: str) -> str:
    return text if row.copies == 1 or text == "–" else f"{row.copies} × {text}"


def _range(numbers: list[int], show: Callable[[int], str]) -> str:
    low, high = min(numbers), max(numbers)
    if high == 0:
        return "–"
    return show(low) if low == high else f"{show(low)}…{show(high)}"


def _shape_range(shapes: Sequence[Shape | None]) -> str:
    """One shape; where the first dimension varies, its range."""
    first = shapes[0]
    if not first or any(not shape for shape in shapes):
        return shape_text(first)
    sizes = [shape[0] for shape in shapes if shape]
    return "x".join([_range(sizes, str) if any(sizes) else "0", *map(str, first[1:])])


def _setting(values: Sequence[Json]) -> str:
    """A setting of one module, or the range of it in several."""
    return range_text(values, _plain)


def _plain(value: Json) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(map(_plain, value)) + ")"
    return str(value)
