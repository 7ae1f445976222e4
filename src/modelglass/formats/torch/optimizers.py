"""Optimizer states: which algorithm wrote them, and which parameter each belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from modelglass.formats.pickles.objects import as_text
from modelglass.formats.tensors.kinds import is_buffer, is_named_as_parameter, may_be_buffer
from modelglass.formats.torch.tensors import BadTensorError, is_tensor, items_of, tensor_of
from modelglass.report import Shape, Tensor

Keys: TypeAlias = list[list[str]]  # of parameters, by group
Shapes: TypeAlias = Mapping[str, "Shape | None"]  # of what is kept for each of them

_ADAM = "Adam or AdamW"
_LBFGS = "LBFGS"  # keeps one state for all parameters
# What each algorithm keeps for a parameter; the first whose names are all there.
_KEPT = (
    ("Adam with amsgrad", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    ("NAdam", {"exp_avg", "exp_avg_sq", "mu_product"}),
    (_ADAM, {"exp_avg", "exp_avg_sq"}),
    ("Adamax", {"exp_avg", "exp_inf"}),
    ("Adafactor", {"exp_avg_sq_row", "exp_avg_sq_col"}),
    ("Adafactor", {"row_var", "col_var"}),
    ("Adadelta", {"square_avg", "acc_delta"}),
    ("RMSprop", {"square_avg"}),
    ("Adagrad", {"sum"}),
    ("ASGD", {"eta", "ax"}),
    ("Rprop", {"prev", "step_size"}),
    (_LBFGS, {"old_dirs", "old_stps"}),
    ("8-bit Adam", {"state1", "state2"}),
    ("Lion", {"exp_avg"}),
    ("SGD with momentum", {"momentum_buffer"}),
)


def is_optimizer(value: Any) -> bool:
    """Whether this is the state dict of an optimizer."""
    items = items_of(value)
    if items is None:
        return False
    keys = {as_text(key) for key in items.flat[::2][:8] if isinstance(key, (str, bytes))}
    return {"state", "param_groups"} <= keys


def algorithm(optimizer: Any) -> str | None:
    """The algorithm, by the names of what it keeps and of its settings; None when none is known by them."""
    kept = {
        name for entry in _states(optimizer).values() for name, value in entry.items() if value is not None
    }
    settings = next(iter(_groups(optimizer)), None)
    found = next((name for name, names in _KEPT if names <= kept), None)
    if settings is None:
        return found
    decoupled, amsgrad = settings.get("decoupled_weight_decay"), settings.get("amsgrad")
    if found == _ADAM and decoupled is not None:  # newer ones say which
        return "RAdam" if amsgrad is None else "AdamW" if decoupled is True else "Adam"
    if found == "SGD with momentum" and settings.get("ns_steps") is not None:
        return "Muon"
    if found is None and not kept and settings.get("dampening") is not None:
        return "SGD"
    return found


def matched(optimizer: Any, tensors: Sequence[Tensor], prefix: str = "") -> dict[str, str]:
    """The parameter that each state belongs to, or nothing when that cannot be told for all of them.

    By their names where the optimizer has them, without the prefix that was taken off those of the tensors.
    Otherwise by their order, which is that of the model: all of the parameters, or the only ones that states
    of these shapes can belong to.
    """
    known = {tensor.name for tensor in tensors}
    names = {key: name.removeprefix(prefix) for key, name in _given_names(optimizer).items()}
    if names:
        return names if known.issuperset(names.values()) else {}
    shapes = {key: _shape(entry) for key, entry in _states(optimizer).items()}
    groups = _order(optimizer)
    if not shapes or None in shapes.values() or algorithm(optimizer) == _LBFGS:
        return {}
    pools = _pools(tensors)
    ways = (way(groups, shapes, pool) for way in (_in_order, _by_group) for pool in pools)
    return next((found for found in ways if found), {})


def _pools(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """The tensors that an optimizer may have been given, from all of them to those that are named so."""
    first: dict[str, Tensor] = {}
    for tensor in tensors:
        if tensor.kind == "parameter" and not is_buffer(tensor):
            first.setdefault(tensor.storage, tensor)
    pool = list(first.values())
    likely = [tensor for tensor in pool if not may_be_buffer(tensor)]
    return [pool, likely, [tensor for tensor in pool if is_named_as_parameter(tensor)]]


def _in_order(groups: Keys, shapes: Shapes, pool: Sequence[Tensor]) -> dict[str, str]:
    """When it was given as many parameters as there are: each to its own, frozen ones have no state."""
    keys = [key for group in groups for key in group]
    if len(keys) != len(pool):
        return {}
    pairs = [(key, tensor) for key, tensor in zip(keys, pool, strict=True) if key in shapes]
    if len(pairs) != len(shapes) or any(shapes[key] != tensor.shape for key, tensor in pairs):
        return {}
    return {key: tensor.name for key, tensor in pairs}


def _by_group(groups: Keys, shapes: Shapes, pool: Sequence[Tensor]) -> dict[str, str]:
    """When it was given some of them: each group is in order, and may fit in one way only."""
    waiting = [keys for group in groups if (keys := [key for key in group if key in shapes])]
    free = list(pool)
    found: dict[str, str] = {}
    while waiting:
        for keys in waiting:
            chosen = _only_way([shapes[key] for key in keys], free)
            if chosen is not None:
                break
        else:
            return {}
        waiting.remove(keys)
        found |= {key: free[place].name for key, place in zip(keys, chosen, strict=True)}
        taken = set(chosen)
        free = [tensor for place, tensor in enumerate(free) if place not in taken]
    return found if len(found) == len(shapes) else {}


def _only_way(shapes: Sequence[Shape | None], pool: Sequence[Tensor]) -> list[int] | None:
    """The places of tensors of these shapes, in this order; None when there are none, or several ways."""
    first = _first_way(shapes, [tensor.shape for tensor in pool])
    last = _first_way(shapes[::-1], [tensor.shape for tensor in reversed(pool)])
    if first is None or last is None or first != [len(pool) - 1 - place for place in reversed(last)]:
        return None
    return first


def _first_way(shapes: Sequence[Shape | None], pool: Sequence[Shape | None]) -> list[int] | None:
    places: list[int] = []
    remaining = iter(enumerate(pool))
    for shape in shapes:
        place = next((place for place, other in remaining if other == shape), None)
        if place is None:
            return None
        places.append(place)
    return places


def _states(optimizer: Any) -> Mapping[str, dict[str, Any]]:
    items = items_of(optimizer)
    state = items_of(items.get("state")) if items is not None else None
    if state is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for key, entry in state.items():
        kept = items_of(entry)
        if kept is not None and isinstance(key, (int, str)):
            found[str(key)] = {as_text(name): value for name, value in kept.items()}
    return found


def _shape(entry: Mapping[str, Any]) -> Shape | None:
    """The shape of the parameter: that of the largest thing that is kept for it."""
    shapes: dict[str, Shape] = {}
    for name, value in entry.items():
        if is_tensor(value):
            try:
                shapes[name] = tensor_of(value).shape
            except BadTensorError:
                return None
    row, column = shapes.get("exp_avg_sq_row"), shapes.get("exp_avg_sq_col")
    if row is not None and column:  # sums along the last axis, and along the one before it
        return (*row, column[-1])
    row, column = shapes.get("row_var"), shapes.get("col_var")
    if row and column:  # torch's own keep these axes
        return (*row[:-1], column[-1])
    return max(shapes.values(), key=len, default=None)


def _groups(optimizer: Any) -> list[Any]:
    items = items_of(optimizer)
    groups = None if items is None else items.get("param_groups")
    return [group for group in map(items_of, groups) if group] if isinstance(groups, list) else []


def _order(optimizer: Any) -> Keys:
    """The keys of the parameters of each group."""
    groups: Keys = []
    for group in _groups(optimizer):
        params = group.get("params")
        if isinstance(params, list):
            groups.append([str(each) for each in params if isinstance(each, (int, str))])
    return groups


def _given_names(optimizer: Any) -> dict[str, str]:
    names: dict[str, str] = {}
    for group in _groups(optimizer):
        params, given = group.get("params"), group.get("param_names")
        if isinstance(params, list) and isinstance(given, list) and len(params) == len(given):
            names |= {str(key): as_text(name) for key, name in zip(params, given, strict=True)}
    return names
