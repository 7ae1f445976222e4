"""Substitution of the arrays of an MLX model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.state.substitution import Substitution, substitute_tensors
from modelglass.undo import run_and_undo


def make_substitution(substitute: Callable[[mx.array], mx.array]) -> Substitution:
    """Every array is exchanged."""
    return Substitution(package="mlx", module=nn.Module, substitutes={mx.array: substitute})


def find_arrays(*roots: Any) -> Iterator[mx.array]:
    """Every array that a substitution of these would exchange, once."""
    found: dict[int, mx.array] = {}

    def keep(array: mx.array) -> mx.array:
        return found.setdefault(id(array), array)

    run_and_undo(lambda log: substitute_tensors(log, make_substitution(keep), *roots, reach=False))
    return iter(found.values())
