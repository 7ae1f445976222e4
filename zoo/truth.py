"""What is true of a model, found without modelglass: by torch's own figures and its own counter."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode
from zoo.architectures import build, quietly
from zoo.values import NumbersKept, ValuesKept

MOST_COMPUTED = 1_500_000_000  # parameters of a model whose products are computed, to count them


@dataclass(frozen=True)
class Truth:
    """Multiplications with additions in products, and how they were counted.

    `added` is what torch's counter misses, by operator; `free` are the operators that count as nothing.
    """

    macs: int
    way: str
    seconds: float  # of the call
    added: dict[str, int] = field(default_factory=dict)
    free: tuple[str, ...] = ()


def params(model: torch.nn.Module) -> int:
    """torch lists each parameter once, however many names it has."""
    return sum(each.numel() for each in model.parameters())


def macs(
    architecture: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, written_out: bool = True
) -> Truth:
    """The products of one call, by torch's counter, on meta where the model can be called there.

    A mask that masks nothing is left out there: models ask whether it does, and nobody can tell. A model that
    asks more is called with what it asks for kept, and a small one that asks for values of weights, too, is
    computed.
    """
    model = build(architecture, written_out=written_out)
    plain = {name: value for name, value in kwargs.items() if not _masks_nothing(name, value)}
    tried: list[str] = []
    try:
        return _counted(model, *_moved((args, plain), "meta"), "on meta")
    except Exception as error:  # noqa: BLE001 (whatever a model raises where it has no values)
        tried.append(f"on meta: {type(error).__name__}: {error}")
    try:
        with ValuesKept(), NumbersKept():
            return _counted(model, args, kwargs, "on meta, with values that do not depend on weights")
    except Exception as error:  # noqa: BLE001
        tried.append(f"with values: {type(error).__name__}: {error}")
    if params(model) > MOST_COMPUTED:
        raise RuntimeError("; ".join(tried))
    del model
    model = build(architecture, written_out=written_out, device="cpu")
    with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        return _counted(model, args, kwargs, "computed")


def _counted(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], way: str) -> Truth:
    added: Counter[str] = Counter()
    counter = FlopCounterMode(display=False, custom_mapping=_missing(added))
    seen = _Seen()
    model.requires_grad_(False)  # the counter follows gradients, also where there are none
    with quietly(), seen, counter, torch.no_grad():  # the counter takes operators apart before they are seen
        began = time.perf_counter()
        model(*args, **kwargs)
        took = time.perf_counter() - began
    free = sorted(str(op) for op in seen.ops if op not in counter.flop_registry)
    return Truth(counter.get_total_flops() // 2, way, took, dict(added), tuple(free))


class _Seen(TorchDispatchMode):
    """Which operators run."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: set[Any] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops.add(func._overloadpacket)
        return func(*args, **(kwargs or {}))


def _masks_nothing(name: str, value: Any) -> bool:
    return name.endswith("mask") and isinstance(value, torch.Tensor) and bool((value == 1).all())


def _moved(given: Any, device: str) -> Any:
    return tree_map_only(torch.Tensor, lambda each: each.to(device), given)


def _rows(matrix: Any, *_: Any, **__: Any) -> int:
    """Of a matrix and a vector, or of two vectors: each number of the first is used once."""
    return prod(matrix)


def _added_rows(start: Any, matrix: Any, *_: Any, **__: Any) -> int:
    return prod(matrix)


def _grouped(rows: Any, weights: Any, *_: Any, **__: Any) -> int:
    """Each row meets the matrix of its group."""
    return prod(rows) * weights[-1]


def _distances(points: Any, *_: Any, out_shape: Any, **__: Any) -> int:
    """Each distance is a product of two points."""
    return prod(out_shape) * points[-1]


MISSED: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mv: _rows,
    torch.ops.aten.dot: _rows,
    torch.ops.aten.vdot: _rows,
    torch.ops.aten.addmv: _added_rows,
    torch.ops.aten._grouped_mm: _grouped,
    torch.ops.aten._cdist_forward: _distances,
    torch.ops.aten._euclidean_dist: _distances,
}


def _missing(added: Counter[str]) -> dict[Any, Any]:
    """Formulas for products that torch's counter has none for, which note what they add."""

    def noting(op: Any, formula: Callable[..., int]) -> Callable[..., int]:
        def flops(*shapes: Any, **options: Any) -> int:
            found = formula(*shapes, **options)
            added[str(op)] += found
            return 2 * found

        return flops

    return {op: noting(op, formula) for op, formula in MISSED.items()}
