"""Which blocks are equal: they do the same work on the same shapes.

Two modules have the same structure when their classes, settings, tensors and contents are. Two blocks of a
list are equal when, beyond that, what was asked of them and what ran in them had the same shapes, and the
same of their weights are trainable, shared or pruned. These settings may differ:

- a rate of dropout or of dropped paths: it changes values, not work;
- the block's own number: in every block of the list a whole number that goes up with the blocks;
- the block's own name: in every block of the list a text with the block's number or path in it.

A number or text that agrees with the place of some blocks, not of all, is a setting like any other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from modelglass.analyses.tree import children_by_module
from modelglass.report.blocks import EqualBlocks, Varying

if TYPE_CHECKING:
    from modelglass.report import Call, Counts, Json, Model, Module, Op, Report, Run, Tensor, Value

# How far a window reaches shows in no shape where padding makes up for it.
WINDOW = ("kernel_size", "stride", "padding", "dilation", "groups")
SURE = 3  # blocks that carry their numbers under any name: two may do so by chance
MOST_DIGITS = 9  # of the number of a block

_RATE = r"drop|survival"
_PROBABILITY = frozenset({"p", "prob", "rate"})
_PLACE = r"_?((layer|block|stage|expert|level)s?_?)?(idx|index|id|num|number)"
_LIBRARY = ("torch.nn.", "mlx.nn.")  # whose layers do not know their place
_ANY = "…"  # for a setting that may differ


def equal_blocks(model: Model, counts: Counts | None, run: Run | None = None) -> tuple[EqualBlocks, ...]:
    """The equal blocks of each list, of a list inside of equal blocks those in the first of them."""
    tied = {} if counts is None else counts.tied
    failed = run.failure.module if run is not None and run.failure is not None else None
    return tuple(_Blocks(model, tied, failed).groups())


def with_blocks(report: Report) -> Report:
    """The report with its equal blocks: one made by hand has none, nor one that an older version saved."""
    if report.blocks is not None:
        return report
    return replace(report, blocks=equal_blocks(report.model, report.counts, report.run))


class Numbers:
    """One number for each distinct key, so that keys of keys stay small."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


class Structures:
    """A number for each module, equal for modules of the same class, settings, tensors and contents."""

    def __init__(self, model: Model, numbers: Numbers) -> None:
        self.settings = _Settings(model)
        self._numbers = numbers
        self._modules = {module.path: module for module in model.modules}
        self._tensors = {tensor.name: tensor for tensor in model.tensors}
        self._contents = children_by_module(model)
        self._known: dict[str, int | None] = {}
        for module in reversed(model.modules):  # what it contains comes first
            self.of(module.path)

    def contents(self, path: str) -> Sequence[tuple[str, str]]:
        """The names of what hangs below a module, each with the path that it is known by."""
        return self._contents.get(path, ())

    def of(self, path: str) -> int | None:
        """The module's number; None inside itself, where a module holds one that holds it."""
        if path not in self._known:
            self._known[path] = None
            self._known[path] = self._numbers.of(self._key(self._modules[path]))
        return self._known[path]

    def _key(self, module: Module) -> Hashable:
        return (
            module.qualified_type,
            self.settings.of(module),
            _order(module, [_tensor_key(self._tensors[name]) for name in module.tensors]),
            _order(module, [(name, self.of(child)) for name, child in self.contents(module.path)]),
        )


def _text(settings: Mapping[str, Json]) -> str:
    """The same text for the same settings."""
    return _encoder()(settings)


@cache
def _encoder() -> Callable[[Any], str]:
    import json  # most files that are listed have no settings

    return json.JSONEncoder(sort_keys=True).encode


class _Settings:
    """The settings of modules, without those in which equal blocks may differ."""

    def __init__(self, model: Model) -> None:
        self._modules = {module.path: module for module in model.modules}
        self._flat = {module.path: dict(_flat(module.config)) for module in model.modules if module.config}
        # By path, the settings of a module and of all below it that may be rates, numbers or names.
        self._open: dict[str, list[tuple[str, str]]] = {}
        self._instead: dict[tuple[str, str], Json] = {}
        if any(module.config for module in model.modules):  # few files have any
            self._find(model.modules)

    def of(self, module: Module) -> Hashable:
        if not module.config:
            return ""
        return _text({key: self._value(module, key, value) for key, value in self._own(module)})

    def has_rate(self, module: Module) -> bool:
        """Whether a module's own settings say how much is dropped in training."""
        return any(_is_rate(module, key, value) for key, value in self._own(module))

    def varying(self, paths: Sequence[str]) -> Iterator[Varying]:
        """In which settings equal blocks differ."""
        for part, key in self._parts(paths[0]):
            values = [self._flat[path + part][key] for path in paths]
            if any(_differ(value, values[0]) for value in values):
                yield Varying(part=part.removeprefix("."), setting=key, values=tuple(values))

    def _value(self, module: Module, key: str, value: Json) -> Json:
        return self._instead.get((module.path, key), value)

    def _own(self, module: Module) -> Iterable[tuple[str, Json]]:
        return self._flat.get(module.path, {}).items()

    def _find(self, modules: Sequence[Module]) -> None:
        forms: dict[Hashable, int] = {}
        form: dict[str, int | None] = {}
        alone: list[list[str]] = []  # whose numbers may be those of the lists around them
        for module in reversed(modules):  # what it contains comes first
            for members in _lists_by(form, module.children):
                if len(members) > 1:
                    self._settle(members)
                else:
                    alone.append(members)
            opened = [(module.path, key) for key, value in self._own(module) if _is_open(module, key, value)]
            for child in module.children:
                opened += self._open.get(child, ())
            if opened:
                self._open[module.path] = opened
            known = {k: _ANY if _is_open(module, k, v) else v for k, v in self._own(module)}
            below = [(self._modules[path].name, form[path]) for path in module.children]
            alike = module.qualified_type, _text(known) if known else "", _order(module, below)
            form[module.path] = forms.setdefault(alike, len(forms))
            for key, value in self._own(module):
                if _is_rate(module, key, value) or _is_own_path(value, module.path):
                    self._instead[module.path, key] = _ANY
        for members in alone:
            self._settle(members)

    def _settle(self, members: Sequence[str]) -> None:
        """Find out which open settings of a list's blocks are their numbers and names."""
        places = [int(path.rpartition(".")[2]) for path in members]
        parts = self._parts(members[0])
        for part, key in parts:
            at = [(path + part, key) for path in members]
            values = [self._instead.get(each, self._flat[each[0]][key]) for each in at]
            own = _without_places(key, values, members, places)
            if own is not None:
                self._instead.update(zip(at, own, strict=True))

    def _parts(self, path: str) -> list[tuple[str, str]]:
        return [(each[len(path) :], key) for each, key in self._open.get(path, ())]


def _flat(config: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Settings, and those inside of settings under their names in turn."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from ((f"{key}.{inner}", item) for inner, item in _flat(value))
        else:
            yield key, value


def _last(key: str) -> str:
    """The name of a setting, without those of the settings around it."""
    return key.rpartition(".")[2]


def _lists_by(form: Mapping[str, int | None], children: Iterable[str]) -> Iterator[list[str]]:
    """The numbered ones among siblings, those of one form together."""
    found: dict[int | None, list[str]] = defaultdict(list)
    for path in children:
        if is_numbered(path):
            found[form[path]].append(path)
    yield from found.values()


def is_numbered(path: str) -> bool:
    """Whether a module is called by a number, as elements of lists are."""
    name = path.rpartition(".")[2]
    return name.isdecimal() and name.isascii() and len(name) <= MOST_DIGITS


def _is_open(module: Module, key: str, value: Json) -> bool:
    """Whether a setting may be one in which equal blocks differ."""
    place = (
        type(value) in (int, str)
        and not module.qualified_type.startswith(_LIBRARY)
        and _last(key) not in WINDOW
    )
    return place or _is_rate(module, key, value)


def _is_rate(module: Module, key: str, value: Json) -> bool:
    """Whether a setting says how much is dropped in training."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        return False
    named = _last(key).lower()
    return bool(re.search(_RATE, named)) or (
        named in _PROBABILITY and bool(re.search("drop|stochasticdepth", module.type.lower()))
    )


def _without_places(
    key: str, values: Sequence[Json], paths: Sequence[str], places: Sequence[int]
) -> Sequence[Json] | None:
    """The values without the blocks' own numbers or names; None when they are something else."""
    if all(type(value) is int for value in values):
        return [_ANY] * len(values) if _count_up(key, values, places) else None
    if not all(type(value) is str for value in values) or len(set(values)) < len(values):
        return None
    ways = [[_nameless(*each) for each in zip(values, paths, strict=True)]]
    if len(values) >= SURE:
        ways.append(
            [re.sub(rf"(?<!\d){place}(?!\d)", "#", text) for text, place in zip(values, places, strict=True)]
        )
    return next((way for way in ways if len(set(way)) == 1 and way[0] not in values), None)


def _count_up(key: str, values: Sequence[int], places: Sequence[int]) -> bool:
    """Whether whole numbers are those of the blocks: as their names say, or evenly under a name for that."""
    if list(values) == list(places):
        return len(values) >= SURE or bool(re.fullmatch(_PLACE, _last(key)))
    if not re.fullmatch(_PLACE, _last(key)) or len(values) < 2:
        return False
    step, rest = divmod(values[1] - values[0], places[1] - places[0])
    even = (
        value - values[0] == step * (place - places[0]) for value, place in zip(values, places, strict=True)
    )
    return step > 0 and not rest and all(even)


def _is_own_path(value: Json, path: str) -> bool:
    """Whether a text is the path of the module that has it, as seen from anywhere around it."""
    if type(value) is not str or "." not in value or not path:
        return False
    return f".{path}".endswith(f".{value}") or value.endswith(f".{path}")


def _nameless(text: str, path: str) -> str:
    """A text without the number of a block, where it stands behind the name of the block's list."""
    holder, _, number = path.rpartition(".")
    name = re.escape(holder.rpartition(".")[2])
    return re.sub(rf"(?<![^.]){name}\.{number}(?![^.])" if name else rf"^{number}(?=\.)", "#", text)


def _differ(one: Json, other: Json) -> bool:
    return type(one) is not type(other) or bool(one != other)


def _order(module: Module, items: list[Any]) -> tuple[Any, ...]:
    """The items; of a file, which holds them in any order, in one and the same."""
    return tuple(sorted(items, key=lambda item: item[0]) if module.training is None else items)


def _tensor_key(tensor: Tensor) -> tuple[Hashable, ...]:
    return tensor.name.rpartition(".")[2], tensor.kind, tensor.shape, tensor.dtype, tensor.packing


class _Blocks:
    """A number for each module, equal for those that are the same in all they hold and were called with."""

    def __init__(self, model: Model, tied: Collection[str], failed: str | None) -> None:
        self._model, self._tied, self._failed = model, tied, failed
        self._modules = {module.path: module for module in model.modules}
        self._tensors = {tensor.name: tensor for tensor in model.tensors}
        self._numbers = Numbers()
        self._structures = Structures(model, self._numbers)
        self._work = _Work(model, self._structures)
        self._kinds: dict[str, int | None] = {}
        for module in reversed(model.modules):  # what it contains comes first
            self._kinds[module.path] = self._numbers.of(self._key(module))

    def groups(self) -> Iterator[EqualBlocks]:
        waiting = [module.path for module in self._model.modules[:1]]
        while waiting:
            children = self._modules[waiting.pop()].children
            equal = [paths for paths in _lists_by(self._kinds, children) if len(paths) > 1]
            for paths in equal:
                varying = self._structures.settings.varying(paths)
                yield EqualBlocks(paths=tuple(paths), varying=tuple(varying))
            others = {path for paths in equal for path in paths[1:]}
            waiting += [path for path in reversed(children) if path not in others]

    def _key(self, module: Module) -> Hashable:
        return (
            self._structures.of(module.path),
            module.training,
            _order(module, [self._tensor_key(name) for name in module.tensors]),
            self._work.of(module.path),
            module.path == self._failed,
            bool(module.aliases),
            _order(module, [(self._modules[path].name, self._kinds[path]) for path in module.children]),
        )

    def _tensor_key(self, name: str) -> tuple[Hashable, ...]:
        tensor = self._tensors[name]
        return name.rpartition(".")[2], tensor.trainable, name in self._tied, tensor.nonzero


class _Work:
    """What modules were called with, and the operators that ran in them.

    Experts get as many rows as are routed to them: where blocks of a list differ in the first dimension of
    what they were called with, neither that nor the shapes inside of them count.
    """

    def __init__(self, model: Model, structures: Structures) -> None:
        self._calls: dict[str, list[Call]] = defaultdict(list)
        self._ops: dict[int | None, list[Op]] = defaultdict(list)
        for call in model.calls:
            if call.phase == "forward":
                self._calls[call.module].append(call)
        if self._calls:
            for op in model.ops:
                if op.phase == "forward":
                    self._ops[op.call].append(op)
        self._routed = self._find_routed(model, structures) if self._calls else set()

    def of(self, path: str) -> Hashable:
        calls = self._calls.get(path)
        if calls is None:
            return ()
        routed = path in self._routed
        return tuple(
            (_call_key(call, routed), tuple(work(op, routed) for op in self._ops[call.index]))
            for call in calls
        )

    def _find_routed(self, model: Model, structures: Structures) -> set[str]:
        """The blocks that get different numbers of rows, and all that is in them."""
        form = {module.path: structures.of(module.path) for module in model.modules}
        found: set[str] = set()
        for module in model.modules:
            if module.path in found:
                found.update(module.children)
            for members in _lists_by(form, module.children):
                alike: dict[Hashable, dict[Hashable, list[str]]] = defaultdict(lambda: defaultdict(list))
                for path in members:
                    free, exact = (self._calls_key(path, routed) for routed in (True, False))
                    alike[free][exact].append(path)
                for calls in alike.values():
                    if len(calls) > 1:
                        found.update(chain.from_iterable(calls.values()))
        return found

    def _calls_key(self, path: str, routed: bool) -> Hashable:
        return tuple(_call_key(call, routed) for call in self._calls.get(path, ()))


def _call_key(call: Call, routed: bool) -> Hashable:
    return shapes(call.inputs, routed), shapes(call.outputs, routed)


def work(op: Op, routed: bool = False) -> Hashable:
    """An operator with its shapes and windows; other numbers, such as a scale, make no other work."""
    exact = () if routed else (_op_shapes(op.inputs), _op_shapes(op.outputs))
    return op.overload, tuple(str(op.attributes.get(name)) for name in WINDOW), exact


def _op_shapes(values: Sequence[Value]) -> Hashable:
    return tuple((value.shape, value.dtype) for value in values if value.dtype is not None)


def shapes(values: Sequence[Value], routed: bool = False) -> Hashable:
    """Names, shapes and types. What a number or a flag was shows in what ran, where it matters."""
    return tuple(
        (
            v.name,
            (len(v.shape), v.shape[1:]) if routed and v.shape else v.shape,
            v.dtype,
            v.nnz,
            v.parts,
            v.text == "None",
        )
        for v in values
    )
