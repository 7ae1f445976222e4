"""Where eager torch writes in place but avoids it under fake tensors and dispatch modes.

There it does not write to its own intermediate results. Each rule here
names such a place: what a real run writes to instead of taking new memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from modelglass.frameworks.torch.describe import tensors_among
from modelglass.frameworks.torch.observing.recorder import Place
from modelglass.frameworks.torch.privates import current_node

_aten = torch.ops.aten
# A bias or a mask is added to a product that the operator itself has just made.
_ADDS_TO_ITS_OWN = frozenset({_aten.linear.default, _aten.scaled_dot_product_attention.default})
_RECURRENT = frozenset(
    packet.input
    for packet in (_aten.lstm, _aten.gru, _aten.rnn_tanh, _aten.rnn_relu)  # of linear layers inside them
)


# What puts a gradient where an index took its value from: into zeros that nobody else has.
_SPREADS = frozenset(
    {
        _aten.index_put.default,
        _aten.scatter.src,
        _aten.scatter.value,
        _aten.scatter_add.default,
        _aten.put.default,
        _aten.index_add.default,
        _aten.index_fill.int_Tensor,
        _aten.index_fill.int_Scalar,
        _aten.masked_scatter.default,
    }
)
# Formulas that go on in what they have just made, and how they do.
_GOES_ON = frozenset({"BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0"})
_WAYS_ON = frozenset({_aten.sub.Tensor, _aten.mul.Tensor})


# Kernels that give vectors besides values, and the place of the argument that selects them.
VECTORS = {_aten._linalg_svd.default: 2, _aten._linalg_eigh.default: 2}
# Operators that give no vectors.
_VALUES_ALONE = frozenset(
    getattr(packet, name)
    for packet in (
        _aten.linalg_svdvals,
        _aten.linalg_eigvalsh,
        _aten.linalg_matrix_norm,
        _aten.linalg_norm,
        _aten.linalg_cond,
        _aten.linalg_matrix_rank,
        _aten.nuclear_norm,
    )
    for name in packet.overloads()
)


def in_place_targets(func: Any, args: tuple[Any, ...], place: Place) -> Iterable[torch.Tensor]:
    """The tensors one of which a real run would write the result to, provided that nobody else holds it."""
    if func is _aten.add.Tensor and not place.transformed:
        biased = place.operator in _RECURRENT and isinstance(args[1], torch.Tensor) and args[1].dim() == 1
        return [args[0]] if biased or place.operator in _ADDS_TO_ITS_OWN else ()
    return ()


def writes_to_its_own(func: Any, place: Place) -> bool:
    """Whether a formula of gradients writes to the first argument, provided that it has made it itself."""
    return place.phase == "backward" and (func in _SPREADS or continues_in_place(func, place))


def continues_in_place(func: Any, place: Place) -> bool:
    """Whether a formula of gradients is one expression, in which each part writes to the one before it.

    Watched, all of them live until the expression ends.
    """
    if place.phase != "backward" or func not in _WAYS_ON:
        return False
    node = current_node()
    return node is not None and node.name() in _GOES_ON


def is_sum_of_gradients(func: Any, args: tuple[Any, ...], place: Place) -> bool:
    """Whether this may be the engine adding up what reaches one node on several ways."""
    return (
        func is _aten.add.Tensor
        and place.phase == "backward"
        and place.operator is func
        and all(isinstance(arg, torch.Tensor) for arg in args[:2])
    )


def gives_twice_to_one() -> bool:
    """Whether the engine adds up two gradients of the node at work, once its formula has ended."""
    node = current_node()
    goals = [] if node is None else [goal for goal in node.next_functions if goal[0] is not None]
    return len(set(goals)) < len(goals)


def restore_arguments(func: Any, args: tuple[Any, ...], place: Place, at: int) -> tuple[Any, ...]:
    """The arguments as a real run has them: vectors are worked out for gradients, and for who watches.

    The argument `at` selects them.
    """
    if place.operator not in _VALUES_ALONE:
        return args
    trains = torch.is_grad_enabled() and any(arg.requires_grad for arg in tensors_among(args))
    if trains or place.phase != "forward":
        return args
    usual = [arg.default_value for arg in func._schema.arguments[len(args) : at]]
    return (*args[:at], *usual, False, *args[at + 1 :])


def kept_results(result: Any, place: Place) -> Iterable[torch.Tensor]:
    """The results that a real run also has."""
    return list(tensors_among(result))[:1] if _keeps_no_indices(place) else tensors_among(result)


def dropped_results(result: Any, place: Place) -> Iterable[torch.Tensor]:
    """The results that a real run does not have."""
    return list(tensors_among(result))[1:] if _keeps_no_indices(place) else ()


def _keeps_no_indices(place: Place) -> bool:
    """Whether this is in an operator that has a kernel of its own where there are no gradients."""
    return place.operator is _aten.max_pool1d.default and not torch.is_grad_enabled()
