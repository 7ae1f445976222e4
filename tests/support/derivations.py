"""Cases for `diff`: what can be done to weights, and which operations on which tensors that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from build_weights import TYPES, Weights, copied

Rng = np.random.Generator


class Done(NamedTuple):
    """The operations that were done, by the tensors that they were done to, and a figure to be found."""

    operations: dict[str, frozenset[str]]
    figures: dict[str, Any]


Derivation = Callable[[Weights, Rng], Done]


def _matrices(weights: Weights, rng: Rng, *, square: bool = False) -> list[str]:
    names = [name for name, array in weights.items() if array.ndim == 2 and "layers" in name]
    if square:
        names = [name for name in names if len(set(weights[name].shape)) == 1]
    return sorted(rng.choice(names, size=min(len(names), int(rng.integers(1, 5))), replace=False))


def _in_floats(weights: Weights, name: str, make: Callable[[Any], Any]) -> None:
    dtype = weights[name].dtype
    weights[name] = np.asarray(make(weights[name].astype(np.float32)), np.float32).astype(dtype)


def _each(kind: str, make: Callable[[Any, Rng], Any], **how: bool) -> Derivation:
    def derive(weights: Weights, rng: Rng) -> Done:
        names = _matrices(weights, rng, **how)
        for name in names:
            _in_floats(weights, name, lambda array: make(array, rng))
        return Done({kind: frozenset(names)}, {})

    return derive


def _low_rank(weights: Weights, rng: Rng) -> Done:
    names, rank = _matrices(weights, rng), int(rng.choice([1, 2, 4, 8, 16]))
    scale = float(rng.choice([0.2, 0.5, 1.0, 2.0]))

    def make(array: Any) -> Any:
        rows, columns = array.shape
        product = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, columns))
        return array + scale * product / np.sqrt(rank) * np.nanstd(array)

    for name in names:
        _in_floats(weights, name, make)
    return Done({"low-rank": frozenset(names)}, {"rank": rank})


def _scaled(weights: Weights, rng: Rng) -> Done:
    names, factor = _matrices(weights, rng), float(rng.choice([0.5, 0.9, 1.1, 2.0, -1.0, 16.0]))
    for name in names:
        _in_floats(weights, name, lambda array: array * np.float32(factor))
    return Done({"scaled": frozenset(names)}, {"factor": factor})


def _offset(weights: Weights, rng: Rng) -> Done:
    names = [name for name in weights if "layernorm" in name][: int(rng.integers(1, 4))]
    for name in names:
        _in_floats(weights, name, lambda array: array - 1)
    return Done({"offset": frozenset(names)}, {"offset": -1.0})


def _sparse(array: Any, rng: Rng) -> Any:
    chosen = rng.choice(array.size, size=max(1, array.size // 200), replace=False)
    array.reshape(-1)[chosen] += np.float32(0.5)
    return array


def _pruned(array: Any, rng: Rng) -> Any:
    return np.where(np.abs(array) < np.quantile(np.abs(array), 0.4), 0, array)


def _quantized(array: Any, rng: Rng) -> Any:
    scale = np.abs(array).max(axis=1, keepdims=True) / 127
    return np.rint(array / scale) * scale


def _fp8(array: Any, rng: Rng) -> Any:
    return array.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def _permuted(array: Any, rng: Rng) -> Any:
    axis = int(rng.integers(2))
    return np.take(array, rng.permutation(array.shape[axis]), axis=axis)


def _both_permuted(array: Any, rng: Rng) -> Any:
    return array[rng.permutation(array.shape[0])][:, rng.permutation(array.shape[1])]


def _fine_tuned(array: Any, rng: Rng) -> Any:
    return array + rng.normal(size=array.shape) * array.std() * float(rng.choice([0.02, 0.1, 0.5]))


def _made_anew(array: Any, rng: Rng) -> Any:
    return rng.normal(size=array.shape) * array.std()


def _nan(array: Any, rng: Rng) -> Any:
    array.reshape(-1)[rng.choice(array.size, size=3)] = np.nan
    return array


def _cast(weights: Weights, rng: Rng) -> Done:
    old = next(iter(weights.values())).dtype
    new = next(dtype for dtype in (ml_dtypes.bfloat16, np.float16) if np.dtype(dtype) != old)
    for name in weights:
        weights[name] = weights[name].astype(np.float32).astype(new)
    return Done({"cast": frozenset(weights)}, {})


def _exchanged(weights: Weights, rng: Rng) -> Done:
    one, other = rng.choice(3, size=2, replace=False)
    kind = str(rng.choice(["self_attn", "mlp"]))
    names = [name for name in weights if f"layers.{one}.{kind}" in name]
    others = [name.replace(f"layers.{one}.", f"layers.{other}.") for name in names]
    for a, b in zip(names, others, strict=True):
        weights[a], weights[b] = weights[b], weights[a]
    return Done({"exchanged": frozenset(names + others)}, {})


def _repeated(weights: Weights, rng: Rng) -> Done:
    names = [name for name in weights if "layers.2." in name]
    for name in names:
        weights[name] = weights[name.replace("layers.2.", "layers.1.")].copy()
    return Done({"repeated": frozenset(names)}, {})


def _resized(weights: Weights, rng: Rng) -> Done:
    names = [name for name in weights if "embed" in name or "lm_head" in name]
    extends = bool(rng.integers(2))
    for name in names:
        array = weights[name]
        more = (rng.normal(size=(8, array.shape[1])) * 0.02).astype(array.dtype)
        weights[name] = np.concatenate([array, more]) if extends else array[:-8].copy()
    return Done({"extended" if extends else "truncated": frozenset(names)}, {})


def _missing(weights: Weights, rng: Rng) -> Done:
    name = _matrices(weights, rng)[0]
    del weights[name]
    return Done({"missing": frozenset([name])}, {})


def _added(weights: Weights, rng: Rng) -> Done:
    dtype = next(iter(weights.values())).dtype
    weights["model.layers.0.extra.weight"] = rng.normal(size=(10, 20)).astype(dtype)
    return Done({"added": frozenset(["model.layers.0.extra.weight"])}, {})


DERIVATIONS: dict[str, Derivation] = {
    "low-rank": _low_rank,
    "scaled": _scaled,
    "offset": _offset,
    "sparse": _each("sparse", _sparse),
    "pruned": _each("pruned", _pruned),
    "int8": _each("quantized", _quantized),
    "fp8": _each("quantized", _fp8),
    "permuted": _each("permuted", _permuted),
    "both-permuted": _each("permuted", _both_permuted),
    "transposed": _each("transposed", lambda array, rng: array.T, square=True),
    "fine-tuned": _each("fine-tuned", _fine_tuned),
    "reinitialised": _each("reinitialised", _made_anew),
    "zeroed": _each("zeroed", lambda array, rng: 0 * array),
    "nan": _each("nan", _nan),
    "cast": _cast,
    "exchanged": _exchanged,
    "repeated": _repeated,
    "resized": _resized,
    "missing": _missing,
    "added": _added,
}

# Pairs that leave traces of both, in this order.
COMPOSITIONS = (
    *(("low-rank", "cast"), ("scaled", "cast"), ("sparse", "cast"), ("permuted", "cast"), ("pruned", "cast")),
    *(("resized", "low-rank"), ("exchanged", "cast"), ("fine-tuned", "resized"), ("nan", "low-rank")),
    *(("missing", "low-rank"), ("low-rank", "offset"), ("permuted", "scaled"), ("scaled", "pruned")),
    *(("transposed", "cast"), ("fine-tuned", "cast"), ("repeated", "resized"), ("zeroed", "cast")),
)


def derived(weights: Weights, names: tuple[str, ...], rng: Rng) -> tuple[Weights, Done]:
    """The weights after some operations, and what these were."""
    made = copied(weights)
    operations: dict[str, frozenset[str]] = {}
    figures: dict[str, Any] = {}
    for name in names:
        done = DERIVATIONS[name](made, rng)
        for kind, tensors in done.operations.items():
            operations[kind] = operations.get(kind, frozenset()) | tensors
        figures |= done.figures
    gone = operations.get("missing", frozenset())
    return made, Done(
        {kind: tensors if kind == "missing" else tensors - gone for kind, tensors in operations.items()},
        figures,
    )


__all__ = ["COMPOSITIONS", "DERIVATIONS", "TYPES", "Done", "derived"]
