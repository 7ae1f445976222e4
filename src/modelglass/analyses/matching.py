"""Which tensors of a checkpoint a model would load, whatever a wrapper has put before their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from modelglass.report import Difference, Matching, Tensor

if TYPE_CHECKING:
    from modelglass.report import Model, Shape, Side

# What wrappers put into names, also inside: for several devices, compiled, sharded, checkpointed modules.
WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
MOST_PARTS = 4  # of a prefix
EXTRA = "_extra_state"  # what a module saves besides tensors, as it likes

Tensors = Mapping[str, Tensor]
Form = Mapping[str, tuple["Shape", str, str | None]]  # by stored name: shape, type, and the model's own name


def match(model: Model, checkpoint: Model, *, unsaved: Collection[str] = ()) -> Matching:
    """The tensors of a checkpoint against those of a model; `unsaved` are buffers that no checkpoint has."""
    wanted = {tensor.name: tensor for tensor in model.tensors if tensor.name not in unsaved}
    given = {tensor.name: tensor for tensor in checkpoint.tensors}
    naming = _best_naming(_Names(wanted, given, _aliases(model)))
    found: dict[str, Tensor] = {}
    unexpected = []
    for name, tensor in given.items():
        target = naming.target(name)
        if target is not None and target not in found:
            found[target] = tensor
        elif name.rpartition(".")[2] != EXTRA:
            unexpected.append(name)
    differences = [_difference(wanted[name], tensor) for name, tensor in found.items()]
    reshaped = tuple(each for each in differences if each.shape != each.stored_shape)
    missing, tied = _absent(wanted, found)
    return Matching(
        matched=len({wanted[name].storage for name in found} - {wanted[e.name].storage for e in reshaped}),
        wanted=len({tensor.storage for tensor in wanted.values()}),
        prefix=naming.prefix,
        side=naming.side,
        missing=missing,
        unexpected=tuple(unexpected),
        reshaped=reshaped,
        retyped=tuple(
            each
            for each in differences
            if each.shape == each.stored_shape and each.dtype != each.stored_dtype
        ),
        tied=tied,
    )


def match_stored(model: Model, form: Form, checkpoint: Model, *, own: Matching, library: str) -> Matching:
    """The better of two: with the tensors under the model's own names, and in the form that a library stores.

    A checkpoint may be in either form; the one that leaves fewer tensors over counts.
    """
    other = replace(match(_to_stored_form(model, form), checkpoint), library=library)
    return min(own, other, key=_count_left_over)


def _to_stored_form(model: Model, form: Form) -> Model:
    """The model with the tensors that its library would write."""
    known = {tensor.name: tensor for tensor in model.tensors}
    tensors = []
    for name, (shape, dtype, own) in form.items():
        made = Tensor(name=name, kind="parameter", shape=shape, dtype=dtype, storage=f"stored {name}")
        tensors.append(replace(known[own], name=name) if own in known else made)
    return replace(model, tensors=tuple(tensors))


def _count_left_over(matching: Matching) -> int:
    return len(matching.missing) + len(matching.unexpected) + len(matching.reshaped)


def _absent(wanted: Tensors, found: Tensors) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names that are not there: those of memory that is not there at all, and those that only repeat it."""
    there = {wanted[name].storage for name in found}
    names = [name for name in wanted if name not in found]
    missing = dict.fromkeys(wanted[name].storage for name in names if wanted[name].storage not in there)
    first: dict[str, str] = {}
    for name in names:
        if wanted[name].storage in missing:
            first.setdefault(wanted[name].storage, name)
    return tuple(first.values()), tuple(name for name in names if wanted[name].storage in there)


def _difference(wanted: Tensor, stored: Tensor) -> Difference:
    return Difference(
        name=wanted.name,
        stored=stored.name,
        shape=_shape(wanted),
        # What waits for its first input takes any shape.
        stored_shape=None if wanted.shape is None else _shape(stored),
        dtype=wanted.dtype,
        stored_dtype=stored.dtype,
    )


def _shape(tensor: Tensor) -> Shape | None:
    return tensor.shape if tensor.packing is None else tensor.packing.logical_shape


def _aliases(model: Model) -> list[tuple[str, str]]:
    """Further paths of modules, each with the path that their tensors are known by."""
    return [(f"{alias}.", f"{each.path}.") for each in model.modules for alias in each.aliases]


class _Names:
    """The names of both sides."""

    def __init__(self, wanted: Tensors, given: Tensors, aliases: list[tuple[str, str]]) -> None:
        self.wanted, self.given, self._aliases = wanted, given, aliases
        self._bare = {_bare(name): name for name in reversed(list(wanted))}

    def find(self, name: str) -> str | None:
        """The model's tensor of that name, or of another name for the same module."""
        if name in self.wanted:
            return name
        others = (path + name.removeprefix(alias) for alias, path in self._aliases if name.startswith(alias))
        return next((other for other in others if other in self.wanted), None)

    def alike(self, name: str) -> str | None:
        """The model's tensor whose name differs only in what wrappers put into it."""
        return self._bare.get(_bare(name))


class _Naming(NamedTuple):
    """How the names of a checkpoint become those of the model."""

    names: _Names
    prefix: str = ""
    side: Side | None = None

    def target(self, name: str) -> str | None:
        """The name of the model's tensor; None: it has none."""
        changed = self._rename(name)
        return self._find(name) or self.names.alike(changed) or self.names.alike(name)

    @property
    def score(self) -> int:
        """How many tensors find each other, those of the same shape doubly.

        A prefix that few names have, and no tensor of the same shape, is a coincidence.
        """
        wanted, given = self.names.wanted, self.names.given
        targets = {target: name for name in given if (target := self._find(name)) is not None}
        alike = sum(_shape(wanted[target]) == _shape(given[name]) for target, name in targets.items())
        if self.prefix and not alike and 2 * len(targets) < max(len(wanted), len(given)):
            return 0
        return len(targets) + alike

    def _find(self, name: str) -> str | None:
        return self.names.find(self._rename(name)) or self.names.find(name)

    def _rename(self, name: str) -> str:
        return name.removeprefix(self.prefix) if self.side == "checkpoint" else self.prefix + name


def _best_naming(names: _Names) -> _Naming:
    """The names as they are, or with the one prefix that lets most tensors find each other."""
    before_stored = _commonest(names.given, lambda rest: names.find(rest) is not None)
    before_wanted = _commonest(names.wanted, names.given.__contains__)
    candidates = [_Naming(names)]
    if before_stored is not None:
        candidates.append(_Naming(names, before_stored, "checkpoint"))
    if before_wanted is not None:
        candidates.append(_Naming(names, before_wanted, "model"))
    return max(candidates, key=lambda candidate: candidate.score)  # the first of equals changes least


def _commonest(names: Iterable[str], is_known: Callable[[str], bool]) -> str | None:
    """What most names begin with whose rest is known on the other side."""
    counts: Counter[str] = Counter()
    for name in names:
        counts.update(prefix for prefix, rest in _splits(name) if is_known(rest))
    return min(counts, key=lambda prefix: (-counts[prefix], len(prefix)), default=None)


def _splits(name: str) -> Iterator[tuple[str, str]]:
    at = 0
    for _ in range(MOST_PARTS):
        at = name.find(".", at) + 1
        if not at:
            return
        yield name[:at], name[at:]


def _bare(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)
