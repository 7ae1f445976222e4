"""Weights that were quantized in groups, as MLX keeps them: what they stand for, from what is stored.

A group is a run of weights that share a scale. Groups follow each other without gaps in all parts of a
weight, so that any of them can be computed alone, wherever its parts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from modelglass.report import Packing, Shape, Values

SIDES = ("scales", "biases", "global_scale")  # what the arrays beside a weight are called

_FLOATS = ("float32", "float16", "bfloat16")


def dequantized(packing: Packing, weight: Values, sides: Mapping[str, Values | str]) -> Values | None:
    """The numbers that a packed weight stands for; None where what is stored does not settle them.

    `sides` are the arrays beside it, by the names in `SIDES`. Numbers are 32-bit floats, whatever the type
    of the scales: they are those of `mx.dequantize` for scales that have been made 32-bit floats, bit by bit.
    """
    scheme = _SCHEMES.get(packing.scheme)
    if scheme is None or weight.dtype != "uint32":
        return None
    known = {role: side for role, side in sides.items() if isinstance(side, Values)}
    if len(known) != len(sides) or not _fit(scheme, packing.logical_shape, weight, known):
        return None
    scales = known["scales"]
    parts = Parts(
        scheme=scheme,
        group=packing.logical_shape[-1] // scales.shape[-1],
        weight=weight,
        scales=scales,
        biases=known.get("biases"),
        global_scale=known.get("global_scale"),
    )
    return Values(
        dtype="float32",
        shape=packing.logical_shape,
        read=parts.read,
        described="dequantized",
        held=parts.held,
    )


class Scheme(NamedTuple):
    """How weights of some bits and their scales are written."""

    bits: int
    groups: tuple[int, ...]
    elements: Literal["integers", "e2m1", "e4m3"]
    scales: Literal["floats", "e8m0", "e4m3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The stored parts of one weight, of which each group has as many elements as any other."""

    scheme: Scheme
    group: int
    weight: Values
    scales: Values
    biases: Values | None
    global_scale: Values | None  # one for all, or one for each of the outermost slices

    def read(self, start: int, stop: int) -> Any:
        from modelglass.quantized.numbers import read  # the only part that needs numpy

        return read(self, start, stop)

    @contextmanager
    def held(self) -> Iterator[None]:
        with ExitStack() as stack:
            for part in (self.weight, self.scales, self.biases, self.global_scale):
                if part is not None:
                    stack.enter_context(part.holding())
            yield


def _fit(scheme: Scheme, shape: Shape, weight: Values, sides: Mapping[str, Values]) -> bool:
    """Whether the sizes and types of all parts are those of one weight of that shape."""
    scales, biases, global_scale = (sides.get(role) for role in SIDES)
    if scales is None or not shape or not scales.shape or not scales.shape[-1]:
        return False
    *outer, inputs = shape
    group, rest = divmod(inputs, scales.shape[-1])
    if rest or group not in scheme.groups or scales.shape[:-1] != tuple(outer):
        return False
    if weight.shape[:-1] != tuple(outer) or 32 * weight.shape[-1] != scheme.bits * inputs:
        return False
    if scheme.scales == "floats":
        is_biased = biases is not None and biases.shape == scales.shape and biases.dtype in _FLOATS
        return is_biased and scales.dtype in _FLOATS and global_scale is None
    if global_scale is not None and (scheme.scales != "e4m3" or not _covers(global_scale, shape)):
        return False
    return biases is None and scales.dtype == "uint8"


def _covers(global_scale: Values, shape: Shape) -> bool:
    """Whether there is one number for all of the weight, or one for each of its outermost slices."""
    of = global_scale.shape
    while of and of[-1] == 1:
        of = of[:-1]
    return global_scale.dtype in _FLOATS and of == shape[: len(of)] and len(of) < len(shape) - 1


_SCHEMES = {
    f"mlx-{bits}bit": Scheme(bits, (32, 64, 128), "integers", "floats") for bits in (1, 2, 3, 4, 5, 6, 8)
} | {
    "mxfp4": Scheme(4, (32,), "e2m1", "e8m0"),
    "nvfp4": Scheme(4, (16,), "e2m1", "e4m3"),
    "mxfp8": Scheme(8, (32,), "e4m3", "e8m0"),
}
