"""A model as a tree of parts: its modules with their weights in one form for all frameworks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from modelglass.analyses.compare.common_form import conventions
from modelglass.analyses.compare.common_form.conventions import (
    COUNTER,
    FOLDED,
    LIVE,
    NORM_ROLES,
    ROLES,
    SIDES,
    STATISTICS,
)
from modelglass.analyses.matching import WRAPPERS

if TYPE_CHECKING:
    from modelglass.report import Json, Model, Module, Shape, Tensor
    from modelglass.report.comparison import Matched

# torch's names of what is one matrix where keys and values are as wide as queries.
_PROJECTIONS = {f"{word[0]}_proj_weight": f"{word}_proj" for word in ("query", "key", "value")}
_TURNED = ("lora_a", "lora_b")  # mlx_lm keeps (inputs, rank) and (rank, outputs)
_VECTORS = ("weight_u", "weight_v")  # by which spectral norm divides a weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One weight of a part: the tensors that hold it, and its shape in the one form."""

    names: tuple[str, ...]
    shape: Shape | None
    own_shape: Shape | None  # as its framework has it
    tensor: Tensor  # the first that holds it
    tied: str | None = None  # the name under which the same memory was met before
    constant: bool = False  # a buffer, which holds no weights
    pieces: tuple[str, ...] = ()  # names of the weights that lie side by side in it, where they are told
    filled: tuple[str, ...] = ()  # of those, the ones that have no bias, for which the other keeps zeros

    @property
    def numel(self) -> int:
        return 0 if self.shape is None else prod(self.shape)


@dataclass(eq=False, slots=True, kw_only=True)
class Part:
    """A module, or a weight that a module holds beside others, as a part of a tree.

    `sort` is equal for parts that hold weights of the same shapes, and `sorts` are numbers for all the parts
    with weights in and below it, equal for equal shapes.
    """

    token: str
    path: str
    order: int
    type: str = ""
    kind: str | None = None
    sure: bool = False
    config: Mapping[str, Json] = field(default_factory=dict)
    slots: dict[str, Slot] = field(default_factory=dict)
    children: dict[str, Part] = field(default_factory=dict)
    counter: str | None = None  # the tensor that counts batches
    sort: int = 0
    sorts: tuple[int, ...] = ()
    met: bool = False  # whether it has a counterpart
    numel: int = 0  # of all weights, without biases, which a port may have forgotten

    @property
    def weighs(self) -> bool:
        """Whether it, or anything below it, holds weights that are not only repeated."""
        return bool(self.sorts)

    @property
    def is_leaf(self) -> bool:
        return not any(child.sorts for child in self.children.values())

    def below(self) -> Iterator[Part]:
        """It and everything below it, in order."""
        waiting = [self]
        while waiting:
            part = waiting.pop()
            yield part
            waiting.extend(reversed(part.children.values()))


class Match(NamedTuple):
    """Two counterparts. `moved`: they stand at different places of the same list."""

    a: Part
    b: Part
    how: Matched
    moved: bool = False


class Interner:
    """Numbers for things, equal for equal things, over both models."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def __getitem__(self, thing: object) -> int:
        return self._numbers.setdefault(thing, len(self._numbers) + 1)


def build_tree(
    model: Model,
    sorts: Interner,
    pieces: Mapping[str, tuple[str, ...]] | None = None,
    homes: Mapping[str, str] | None = None,
) -> Part:
    """The tree of a model's parts.

    `pieces` are, by tensor, the names of those that are joined in it, and `homes`, by path of a module,
    another path of it at which it is put.
    """
    tree = _Tree(model, pieces or {}, homes or {})
    for module in model.modules:
        tree.add(module)
    tree.sort_lists()
    for part in reversed(tree.made):  # what is below comes first
        describe(part, sorts)
    return tree.root


def describe(part: Part, sorts: Interner) -> None:
    """Say what a part is like, once everything below it is described."""
    weights = {role: slot for role, slot in part.slots.items() if role not in STATISTICS}
    fresh = [slot for slot in weights.values() if slot.tied is None and not slot.constant]
    own: tuple[int, ...] = ()
    if fresh:
        own = (sorts[tuple(sorted((role, _rough(slot.shape)) for role, slot in weights.items()))],)
    found = [sort for child in part.children.values() for sort in child.sorts]
    part.sorts = tuple(sorted((*own, *found)))
    part.sort = sorts[part.sorts] if part.sorts else 0
    matter = [slot for role, slot in weights.items() if slot in fresh and "bias" not in role]
    part.numel = sum(slot.numel for slot in matter) + sum(c.numel for c in part.children.values())


def squeeze(shape: Shape) -> Shape:
    """A shape without dimensions of 1, where two are left without them."""
    return tuple(size for size in shape if size != 1) if len(shape) - shape.count(1) == 2 else shape


def _rough(shape: Shape | None) -> Shape:
    """A shape in which neither the order of a convolution's dimensions matters, nor a kernel of 1."""
    least = squeeze(shape or ())
    return least if len(least) < 3 else tuple(sorted(least))


class _Tree:
    """The tree while it is made."""

    def __init__(self, model: Model, pieces: Mapping[str, tuple[str, ...]], homes: Mapping[str, str]) -> None:
        self.source = model.source
        self._pieces = pieces
        self._homes = homes
        self.is_live = model.source in LIVE and any(module.type for module in model.modules)
        self.root = Part(token="", path="", order=0)
        self.made = [self.root]
        self._tensors = {tensor.name: tensor for tensor in model.tensors}
        self._members = {
            f"{module.path}.{name}".lstrip(".")
            for module in model.modules
            if (name := conventions.MEMBERS.get((model.source, module.type))) is not None
        }
        self._first: dict[str, str] = {}
        self._held: dict[str, list[str]] = defaultdict(list)  # by path of a module, the tensors it holds
        for module in model.modules:
            self._held[_home(module)] += (name for name in module.tensors if name in self._tensors)

    def add(self, module: Module) -> None:
        """Add a module with the tensors of its own."""
        place, steps = module.path, module.path.split(".") if module.path else []
        if len(steps) >= 2 and steps[-2] == "parametrizations":
            self._add_parametrized(module, steps)
            return
        if (steps and steps[-1] == "parametrizations") or _home(module) != place:
            return
        if "parametrizations" in steps and all(name.endswith(("._u", "._v")) for name in self._held[place]):
            return
        part = self._part(self._move(steps) if self._homes else steps)
        part.path, part.type, part.config = place, module.type, module.config
        part.kind, part.sure = conventions.kind_of(module, self.source)
        own = {name: self._tensors[name] for name in self._held[place]}
        packed = any(tensor.packing is not None for tensor in own.values())
        local = {name.removeprefix(f"{place}.") if place else name: each for name, each in own.items()}
        for name, tensor in local.items():
            if not (packed and (tensor.kind == "buffer" or name in SIDES)):
                self._put(part, name, tensor, local.keys())
        fold_recurrent(part)
        if part.slots.keys() & {"in_proj_weight", "in_proj_bias"}:
            self._split_attention(part)

    def _move(self, steps: list[str]) -> list[str]:
        """The steps to where a module is put, with all that it is in."""
        for count in range(len(steps), 0, -1):
            home = self._homes.get(".".join(steps[:count]))
            if home is not None:
                return self._move([*home.split("."), *steps[count:]])
        return steps

    def sort_lists(self) -> None:
        """Bring members of lists into the order of their numbers, in which files do not always have them."""
        changed = False
        for part in self.made:
            numbers = [int(token) for token in part.children if token.isdecimal()]
            if numbers != sorted(numbers):
                changed = True
                members = iter(sorted(filter(str.isdecimal, part.children), key=int))
                tokens = [next(members) if token.isdecimal() else token for token in part.children]
                part.children = {token: part.children[token] for token in tokens}
        if changed:
            self.made = list(self.root.below())
            for place, part in enumerate(self.made):
                part.order = place

    def _part(self, steps: Iterable[str]) -> Part:
        """The part at a path, made with those above it; members of a Sequential are right below it."""
        part, path = self.root, ""
        for step in steps:
            path = f"{path}.{step}" if path else step
            if step in WRAPPERS or path in self._members:
                continue
            part = self._child(part, step, path)
        return part

    def _child(self, part: Part, token: str, path: str) -> Part:
        if token not in part.children:
            part.children[token] = Part(token=token, path=path, order=len(self.made))
            self.made.append(part.children[token])
        return part.children[token]

    def _put(self, part: Part, local: str, tensor: Tensor, own_names: Collection[str]) -> None:
        """Put a tensor where it belongs: a weight of the part, a part by itself, or a mere buffer."""
        recurrent = conventions.recurrent_role(local, self.source, part.kind)
        if recurrent is not None:
            role, layer = recurrent
            several = _has_several(own_names, self.source)
            home = self._child(part, str(layer), part.path) if several else part
            home.kind = home.kind or part.kind
            home.slots[role] = self._slot(tensor, tensor.name)
            return
        role = ROLES.get(local) or (NORM_ROLES.get(local, local) if "gamma" in own_names else local)
        if (local in FOLDED and len(own_names) > 1) or ("weight_orig" in own_names and local in _VECTORS):
            return
        if local == COUNTER:
            part.counter = tensor.name
        elif tensor.kind == "buffer" and role not in STATISTICS and self.is_live:
            child = self._child(part, local, part.path)
            child.slots["weight"] = replace(self._slot(tensor, tensor.name), constant=True)
        elif local in _PROJECTIONS:
            child = self._child(part, _PROJECTIONS[local], part.path)
            child.kind, child.slots["weight"] = "linear", self._slot(tensor, tensor.name)
        elif role in ("weight", "bias", *STATISTICS) or local in ("in_proj_weight", "in_proj_bias"):
            part.slots[role] = self._slot(tensor, tensor.name, part, role)
        else:
            self._put_raw(part, local, tensor)

    def _put_raw(self, part: Part, local: str, tensor: Tensor) -> None:
        """A parameter of a name of its own is as good as a module with a weight."""
        *outer, name = local.split(".")
        for step in outer:
            part = self._child(part, step, part.path)
        stem, _, last = name.rpartition("_")
        stem = stem if stem and last in ("weight", "bias", "blocks") else name
        role = last if stem != name and last == "bias" else "weight"
        if role == "bias" and stem not in part.children:
            stem, role = name, "weight"  # nothing that it would be the bias of
        child = self._child(part, stem, part.path)
        slot = self._slot(tensor, tensor.name)
        if local in _TURNED and slot.shape is not None:
            slot = replace(slot, shape=slot.shape[::-1])
        child.slots[role] = slot

    def _add_parametrized(self, module: Module, steps: list[str]) -> None:
        """A weight that is computed from others stands for itself: the last of them has its shape."""
        part = self._part(steps[:-2])
        names = [name for name in module.tensors if self._tensors[name].kind == "parameter"]
        if names:
            tensor = self._tensors[names[-1]]
            slot = self._slot(tensor, tensor.name, part, steps[-1])
            part.slots[steps[-1]] = Slot(
                names=tuple(names), shape=slot.shape, own_shape=slot.own_shape, tensor=tensor
            )

    def _slot(self, tensor: Tensor, name: str, part: Part | None = None, role: str = "") -> Slot:
        # A buffer that looks at the memory of a weight shares nothing that would count twice.
        first = name if tensor.kind == "buffer" else self._first.setdefault(tensor.storage, name)
        shape = logical_shape(tensor)
        own = shape
        if part is not None and role == "weight" and shape is not None:
            shape = conventions.torch_shape(shape, kind=part.kind, source=self.source, config=part.config)
        tied = first if first != name and self.is_live else None
        pieces = self._pieces.get(name, ())
        return Slot(names=(name,), shape=shape, own_shape=own, tensor=tensor, tied=tied, pieces=pieces)

    def _split_attention(self, part: Part) -> None:
        """Queries, keys and values as three parts, where they are one tensor that is known to be three."""
        joined = {role: part.slots.pop(f"in_proj_{role}", None) for role in ("weight", "bias")}
        for place, token in enumerate(("query_proj", "key_proj", "value_proj")):
            for role, slot in joined.items():
                if slot is None or slot.shape is None or slot.shape[0] % 3:
                    continue
                shape = (slot.shape[0] // 3, *slot.shape[1:])
                child = self._child(part, token, part.path)
                child.kind = "linear"
                tied = slot.tied if place == 0 else None
                child.slots[role] = Slot(
                    names=slot.names, shape=shape, own_shape=shape, tensor=slot.tensor, tied=tied
                )


def matched_names(matches: Iterable[Match]) -> tuple[set[str], set[str]]:
    """The names of tensors, on each side, whose parts have counterparts with weights."""
    names: tuple[set[str], set[str]] = (set(), set())
    for match in matches:
        if match.a.slots and match.b.slots:
            for part, known in ((match.a, names[0]), (match.b, names[1])):
                known.update(name for slot in part.slots.values() for name in slot.names)
    return names


def logical_shape(tensor: Tensor) -> Shape | None:
    """The shape of what a tensor stands for."""
    return tensor.shape if tensor.packing is None else tensor.packing.logical_shape


def fold_recurrent(part: Part) -> None:
    """The two biases of torch's recurrent layers as MLX has them: summed, but for a GRU's reset part."""
    for each in (part, *part.children.values()):
        given, hidden = each.slots.get("input bias"), each.slots.get("hidden bias")
        if given is None or hidden is None or given.shape is None:
            continue
        matrix = each.slots.get("hidden weight")
        rows, width = matrix.shape if matrix is not None and matrix.shape is not None else (1, 1)
        del each.slots["input bias"], each.slots["hidden bias"]
        names = (*given.names, *hidden.names)
        each.slots["bias"] = Slot(names=names, shape=given.shape, own_shape=given.shape, tensor=given.tensor)
        if rows == 3 * width:
            each.slots["hidden bias"] = Slot(
                names=hidden.names, shape=(width,), own_shape=(width,), tensor=hidden.tensor
            )


def _home(module: Module) -> str:
    """The path of the module that holds a module's tensors: a file may have a tensor where modules are."""
    path = module.path
    return path.rpartition(".")[0] if path and not module.type and module.tensors == (path,) else path


def _has_several(own: Collection[str], source: str) -> bool:
    """Whether a module holds several recurrent layers, one above or beside the other."""
    return source != "mlx" and any("_l1" in name or "_reverse" in name for name in own)
