"""Optimizer states: which algorithm wrote them, and which parameter each belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modelglass.formats.pickles.objects import as_text
from modelglass.formats.torch.tensors import BadTensorError, is_tensor, items_of, tensor_of
from modelglass.report import Shape, Tensor

# What each algorithm keeps for a parameter; the first whose names are all there.
_KEPT = (
    ("Adam with amsgrad", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}),
    ("Adam or AdamW", {"exp_avg", "exp_avg_sq"}),
    ("Adamax", {"exp_avg", "exp_inf"}),
    ("Adafactor", {"exp_avg_sq_row", "exp_avg_sq_col"}),
    ("Adadelta", {"square_avg", "acc_delta"}),
    ("RMSprop", {"square_avg"}),
    ("Adagrad", {"sum"}),
    ("ASGD", {"eta", "ax"}),
    ("Rprop", {"prev", "step_size"}),
    ("LBFGS", {"old_dirs", "old_stps"}),
    ("8-bit Adam", {"state1", "state2"}),
    ("Lion", {"exp_avg"}),
    ("SGD with momentum", {"momentum_buffer"}),
)
_BUFFERLESS = "SGD"


def is_optimizer(value: Any) -> bool:
    """Whether this is the state dict of an optimizer."""
    items = items_of(value)
    if items is None:
        return False
    keys = {as_text(key) for key in items.flat[::2][:8] if isinstance(key, (str, bytes))}
    return {"state", "param_groups"} <= keys


def algorithm(optimizer: Any) -> str | None:
    """The algorithm, by the names of what it keeps; None when no algorithm is known by them."""
    kept: set[str] = set()
    for entry in _states(optimizer).values():
        kept |= set(entry)
    if not kept:
        return None
    return next((name for name, names in _KEPT if names <= kept), None)


def matched(optimizer: Any, tensors: Sequence[Tensor]) -> dict[str, str]:
    """The parameter that each state belongs to, or nothing when that cannot be told for all of them.

    By their names where the optimizer has them. Otherwise both lists are in the order of the model, so
    states and parameters are paired in order; parameters without a state of their shape are passed over.
    """
    names = _given_names(optimizer)
    if names:
        return names
    shapes = {key: _shape(entry) for key, entry in _states(optimizer).items()}
    order = [key for key in _order(optimizer) if key in shapes]
    if not order or None in (shapes[key] for key in order):
        return {}
    found: dict[str, str] = {}
    remaining = iter(tensors)
    for key in order:
        name = next((tensor.name for tensor in remaining if tensor.shape == shapes[key]), None)
        if name is None:
            return {}
        found[key] = name
    return found


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
    shapes: list[Shape] = []
    for value in entry.values():
        if is_tensor(value):
            try:
                shapes.append(tensor_of(value).shape)
            except BadTensorError:
                return None
    return max(shapes, key=len, default=None)


def _groups(optimizer: Any) -> list[Any]:
    items = items_of(optimizer)
    groups = None if items is None else items.get("param_groups")
    return [group for group in map(items_of, groups) if group] if isinstance(groups, list) else []


def _order(optimizer: Any) -> list[str]:
    order: list[str] = []
    for group in _groups(optimizer):
        params = group.get("params")
        if isinstance(params, list):
            order += [str(each) for each in params if isinstance(each, (int, str))]
    return order


def _given_names(optimizer: Any) -> dict[str, str]:
    names: dict[str, str] = {}
    for group in _groups(optimizer):
        params, given = group.get("params"), group.get("param_names")
        if isinstance(params, list) and isinstance(given, list) and len(params) == len(given):
            names |= {str(key): as_text(name) for key, name in zip(params, given, strict=True)}
    return names
