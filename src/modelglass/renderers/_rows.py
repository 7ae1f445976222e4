"""The rows of a module table: the tree in order, repeated identical blocks folded into one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelglass.errors import UsageError
from modelglass.renderers._units import share, short, size, value_text
from modelglass.report import Call, Json, Module, ModuleCost, ModuleCounts, Report, Tally, Value

LEAF_RUN = 3  # fewer identical leaves than this are shown one by one
BLOCK_RUN = 2

# Settings that only repeat a block's position; they must not keep equal blocks apart.
_POSITION_KEYS = ("idx", "index", "layer_id", "layer_number", "block_id", "layer_num")

COLUMNS = (
    "name",
    "type",
    "path",
    "input",
    "output",
    "dtype",
    "params",
    "trainable",
    "share",
    "buffers",
    "size",
    "macs",
    "calls",
    "config",
)


def known_columns(names: Sequence[str]) -> list[str]:
    """The names, each checked to be a column."""
    for name in names:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint="columns are " + ", ".join(COLUMNS))
    return list(names)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a module, or `times` identical ones, or a second path to a known module."""

    module: Module
    name: str
    guides: tuple[bool, ...]  # for each level above: whether more siblings follow there
    times: int = 1
    alias_of: str | None = None

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
        self._signatures = _signatures(report) if fold else {}

    def rows(self, depth: int | None) -> Iterator[Row]:
        root = next(iter(self._modules.values()), None)
        if root is None:
            return
        yield Row(root, "", ())
        stack = [iter(self._children(root, ()))]
        while stack:
            row = next(stack[-1], None)
            if row is None:
                stack.pop()
            elif depth is None or row.depth <= depth:
                yield row
                if row.alias_of is None:
                    stack.append(iter(self._children(row.module, row.guides)))

    def _children(self, parent: Module, guides: tuple[bool, ...]) -> list[Row]:
        groups = self._groups([self._modules[path] for path in parent.children])
        aliases = self._aliases.get(parent.path, [])
        last = len(groups) + len(aliases) - 1
        rows = [
            Row(group[0], _group_name(group), (*guides, index < last), times=len(group))
            for index, group in enumerate(groups)
        ]
        for index, (path, module) in enumerate(aliases, start=len(groups)):
            name = path.rpartition(".")[2]
            rows.append(Row(module, name, (*guides, index < last), alias_of=module.path))
        return rows

    def _groups(self, children: list[Module]) -> list[list[Module]]:
        """Runs of siblings that are the same in everything that would be shown."""
        groups: list[list[Module]] = []
        for child in children:
            if groups and self._same(groups[-1][0], child):
                groups[-1].append(child)
            else:
                groups.append([child])
        unfolded: list[list[Module]] = []
        for group in groups:
            needed = BLOCK_RUN if group[0].children else LEAF_RUN
            unfolded.extend([group] if len(group) >= needed else [[module] for module in group])
        return unfolded

    def _same(self, first: Module, second: Module) -> bool:
        if not self._signatures or not (first.name.isdigit() and second.name.isdigit()):
            return False
        return self._signatures[first.path] == self._signatures[second.path]


def _group_name(group: list[Module]) -> str:
    return group[0].name if len(group) == 1 else f"{group[0].name}–{group[-1].name}"


def _signatures(report: Report) -> dict[str, int]:
    """A number per module, equal exactly for modules whose subtrees would print the same."""
    numbers: dict[object, int] = {}
    result: dict[str, int] = {}
    tensors = {tensor.name: tensor for tensor in report.model.tensors}
    calls = calls_by_module(report)
    tied = report.counts.tied if report.counts else {}
    failed = report.run.failure.module if report.run.failure else None
    for module in reversed(report.model.modules):
        key = (
            module.qualified_type,
            module.training,
            _frozen(_config_beyond_position(module)),
            tuple(
                (t.name.rpartition(".")[2], t.shape, t.dtype, t.trainable, t.name in tied, t.nonzero)
                for t in map(tensors.__getitem__, module.tensors)
            ),
            tuple((_shapes(c.inputs), _shapes(c.outputs)) for c in calls.get(module.path, ())),
            report.cost.by_module[module.path] if report.cost else None,
            module.path == failed,
            bool(module.aliases),
            tuple((path.rpartition(".")[2], result[path]) for path in module.children),
        )
        result[module.path] = numbers.setdefault(key, len(numbers))
    return result


def _shapes(values: tuple[Value, ...]) -> tuple[object, ...]:
    return tuple((v.name, v.shape, v.dtype, v.text if v.dtype is None else None) for v in values)


def _config_beyond_position(module: Module) -> dict[str, Json]:
    positions = {int(part) for part in module.path.split(".") if part.isdigit()}
    return {
        key: value
        for key, value in module.config.items()
        if not (key.endswith(_POSITION_KEYS) and value in positions)
    }


def _frozen(value: Json) -> object:
    if isinstance(value, dict):
        return tuple((key, _frozen(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return (type(value).__name__, value)


def calls_by_module(report: Report) -> dict[str, list[Call]]:
    """The forward calls of each module, in order."""
    calls: dict[str, list[Call]] = defaultdict(list)
    for call in report.model.calls:
        if call.phase == "forward":
            calls[call.module].append(call)
    return calls


class Cells:
    """The text of each cell of a report's table."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._calls = calls_by_module(report)
        self._ran = report.run.mode != "none"
        self._tensors = {tensor.name: tensor for tensor in report.model.tensors}

    def text(self, row: Row, column: str) -> str:
        if row.alias_of is not None and column not in ("name", "type", "path"):
            return f"= {row.alias_of}" if column == "output" else ""
        return str(getattr(self, f"_cell_{column}")(row))

    def failed(self, row: Row) -> bool:
        failure = self._report.run.failure
        return failure is not None and failure.module == row.module.path and not row.alias_of

    def _cell_name(self, row: Row) -> str:
        name = row.name or "(root)"
        return f"{name} ×{row.times}" if row.times > 1 else name

    def _cell_type(self, row: Row) -> str:
        return row.module.type

    def _cell_path(self, row: Row) -> str:
        return row.module.path or "(root)"

    def _cell_input(self, row: Row) -> str:
        call = self._first_call(row)
        return "" if call is None else _values(call.inputs)

    def _cell_output(self, row: Row) -> str:
        if not self._ran:
            return ""
        call = self._first_call(row)
        if self.failed(row):
            return "✗ failed"
        if call is None:
            return "not reached" if self._report.run.failure else "not called"
        return _values(call.outputs) if call.completed else "✗ not finished"

    def _first_call(self, row: Row) -> Call | None:
        calls = self._calls.get(row.module.path)
        return calls[0] if calls else None

    def _cell_calls(self, row: Row) -> str:
        return str(len(self._calls.get(row.module.path, ())) or "–") if self._ran else ""

    def _cell_dtype(self, row: Row) -> str:
        dtypes = dict.fromkeys(
            self._tensors[name].dtype
            for name in row.module.tensors
            if self._tensors[name].kind != "buffer"
        )
        return ", ".join(dtypes)

    def _counts(self, row: Row) -> Tally:
        counts = self._report.counts
        found: ModuleCounts | None = counts.by_module[row.module.path] if counts else None
        return found.total if found else Tally()

    def _cell_params(self, row: Row) -> str:
        total = self._counts(row).params
        tensors = [self._tensors[name] for name in row.module.tensors]
        counts = self._report.counts
        if not row.module.children and counts is not None:
            if any(t.shape is None for t in tensors):
                return "uninitialised"
            if total == 0 and any(t.kind != "buffer" and t.name in counts.tied for t in tensors):
                return "tied"
        return _times(row, f"{total:,}" if total else "–")

    def _cell_trainable(self, row: Row) -> str:
        trainable = self._counts(row).trainable
        return "?" if trainable is None else _times(row, f"{trainable:,}" if trainable else "–")

    def _cell_share(self, row: Row) -> str:
        counts = self._report.counts
        return share(row.times * self._counts(row).params, counts.params if counts else 0)

    def _cell_buffers(self, row: Row) -> str:
        buffers = self._counts(row).buffers
        return _times(row, f"{buffers:,}" if buffers else "–")

    def _cell_size(self, row: Row) -> str:
        nbytes = self._counts(row).nbytes
        return _times(row, size(nbytes) if nbytes else "–")

    def _cell_macs(self, row: Row) -> str:
        cost = self._report.cost
        found: ModuleCost | None = cost.by_module.get(row.module.path) if cost else None
        if found is None:
            return ""
        text = short(found.total_macs) if found.total_macs or not found.complete else "–"
        return _times(row, text if found.complete else f"≥ {text}")

    def _cell_config(self, row: Row) -> str:
        config = _config_beyond_position(row.module) if row.times > 1 else row.module.config
        return ", ".join(f"{key}={_plain(value)}" for key, value in config.items())


def _times(row: Row, text: str) -> str:
    return text if row.times == 1 or text == "–" else f"{row.times} × {text}"


def _values(values: tuple[Value, ...]) -> str:
    tensors = [value for value in values if value.dtype is not None]
    return ", ".join(value_text(value) for value in (tensors or values))


def _plain(value: Json) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(map(_plain, value)) + ")"
    return str(value)
