"""Weights of MLX models whose stored elements are not the weights: how many there really are.

A packed weight is known by the arrays beside it and by sizes that fit together, not by the class of its
layer. Nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import mlx.core as mx
from mlx import nn

from modelglass.frameworks.mlx.structure.tree import Slot, find_slots
from modelglass.quantized import SIDES
from modelglass.report import Packing

_BITS = (2, 3, 4, 5, 6, 8)  # that are guessed; a layer may also specify 1
_GROUPS = (32, 64, 128)
_USUAL_GROUP = 64  # weights in a group unless the one who quantized chose otherwise
_MODES = {4 * 32: ("mxfp4", 4), 4 * 16: ("nvfp4", 4), 8 * 32: ("mxfp8", 8)}  # by bits x group size


class PackedSlot(NamedTuple):
    """An array of a module, how it is packed, and whether it only serves a packed one.

    `sides` are the arrays that serve it, by what they are called: "scales", "biases".
    """

    slot: Slot
    packing: Packing | None
    serves: bool
    sides: Mapping[str, mx.array]


def find_packed_slots(module: nn.Module) -> Iterator[PackedSlot]:
    """The module's own arrays, each with how it is packed."""
    found = list(find_slots(module))
    beside: dict[int, dict[Any, mx.array]] = {}
    for slot in found:
        beside.setdefault(id(slot.container), {})[slot.key] = slot.array
    packed: dict[tuple[int, Any], _Packed] = {}
    serving: set[tuple[int, Any]] = set()
    for at, arrays in beside.items():
        for weight in _find_packed(arrays, module):
            packed[at, weight.key] = weight
            serving.update((at, key) for key in weight.sides.values())
    for slot in found:
        place = id(slot.container), slot.key
        known, arrays = packed.get(place), beside[place[0]]
        sides = {} if known is None else {role: arrays[key] for role, key in known.sides.items()}
        yield PackedSlot(slot, None if known is None else known.packing, place in serving, sides)


class _Packed(NamedTuple):
    """A packed weight among arrays: its key, how it is packed, and the keys of those that only serve it."""

    key: Any
    packing: Packing
    sides: Mapping[str, Any]


def _find_packed(arrays: Mapping[Any, mx.array], module: nn.Module) -> Iterator[_Packed]:
    """The packed weights among arrays that stand beside each other, in that module or a container of it."""
    for key, weight in arrays.items():
        if isinstance(key, str) and key.endswith("weight"):
            found = _words(key, weight, arrays, module) or _ternary(key, weight, arrays, module)
            if found is not None:
                yield found


def _words(key: str, weight: mx.array, arrays: Mapping[Any, mx.array], module: nn.Module) -> _Packed | None:
    """Words of 32 bits along the inputs, with a scale (and, when affine, a bias) for each group.

    A layer that quantizes while it runs has bits and groups too, but no scales before it does.
    """
    stem = key.removesuffix("weight")
    scales = arrays.get(stem + "scales")
    if scales is None or weight.dtype != mx.uint32 or len(weight.shape) < 2:
        return None
    *outer, words = weight.shape
    if tuple(outer) != tuple(scales.shape[:-1]) or not scales.shape[-1] or (32 * words) % scales.shape[-1]:
        return None
    sides = {side: name for side in SIDES if (name := stem + side) in arrays}
    group_bits = 32 * words // scales.shape[-1]
    scheme, bits = _scheme(group_bits, scales.dtype == mx.uint8 and "biases" not in sides, module)
    if not bits or (32 * words) % bits:
        return None
    packing = Packing(
        scheme=scheme,
        logical_shape=(*outer, 32 * words // bits),
        nbytes=weight.nbytes,
        side_nbytes=sum({id(arrays[name]): arrays[name].nbytes for name in sides.values()}.values()),
    )
    return _Packed(key, packing, sides)


def _scheme(group_bits: int, unbiased: bool, module: nn.Module) -> tuple[str, int]:
    """Mode and bits: as the layer specifies, when its sizes agree; else as the sizes allow.

    A layer may leave bits or the size of a group to MLX; the other one then determines it.
    """
    settings = vars(module)
    bits, group, mode = settings.get("bits"), settings.get("group_size"), settings.get("mode", "affine")
    if type(bits) is not int:
        bits = group_bits // group if type(group) is int and group > 0 else None
    if type(group) is not int:
        group = group_bits // bits if type(bits) is int and bits > 0 else None
    if bits is not None and group is not None and bits * group == group_bits:
        return (f"mlx-{bits}bit" if mode == "affine" else str(mode)), bits
    if unbiased:
        return _MODES.get(group_bits, ("", 0))
    possible = [b for b in _BITS if group_bits % b == 0 and group_bits // b in _GROUPS]
    if len(possible) == 1:
        return f"mlx-{possible[0]}bit", possible[0]
    usual = group_bits // _USUAL_GROUP
    return (f"mlx-{usual}bit, if groups have {_USUAL_GROUP}", usual) if usual in possible else ("", 0)


def _ternary(key: str, weight: mx.array, arrays: Mapping[Any, mx.array], module: nn.Module) -> _Packed | None:
    """Four weights of -1, 0 or 1 a byte, along the outputs, as BitNet's layers have them."""
    scale, settings = arrays.get(f"{key}_scale"), vars(module)
    outputs, inputs = settings.get("out_features"), settings.get("in_features")
    if scale is None or weight.dtype != mx.uint8 or type(outputs) is not int or type(inputs) is not int:
        return None
    if tuple(weight.shape) != (-(-outputs // 4), inputs):
        return None
    packing = Packing(
        scheme="bitnet-2bit",
        logical_shape=(outputs, inputs),
        nbytes=weight.nbytes,
        side_nbytes=scale.nbytes,
    )
    return _Packed(key, packing, {"weight_scale": f"{key}_scale"})
