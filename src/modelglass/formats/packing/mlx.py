"""Weights that MLX quantized, in files: words of 32 bits, each group of weights with a scale of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from modelglass.formats.packing.layouts import Hints, Match, Named, present, whole
from modelglass.formats.packing.mlx_widths import (
    GROUPS,
    USUAL_GROUP,
    Layer,
    Widths,
    affine_layer,
    bits_of_group,
)
from modelglass.report import Json, Tensor

ASSUMED = ", if groups have "  # in a scheme that neither configuration nor sizes settle

_BITS = (1, 2, 3, 4, 5, 6, 8)
_MODES = {4 * 32: ("mxfp4", 4), 4 * 16: ("nvfp4", 4), 8 * 32: ("mxfp8", 8)}  # by bits x group size


def mlx(stem: str, named: Named, hints: Hints) -> Match | None:
    """Words of 32 bits along the inputs, with a scale (and, when affine, a bias) for each group."""
    weight, scales = named.get(stem + "weight"), named[stem + "scales"]
    group_bits = None if weight is None else bits_of_group(weight, scales)
    if weight is None or not weight.shape or group_bits is None:
        return None
    layer = affine_layer(stem, named)
    sides: tuple[str, ...] = (scales.name,)
    if layer is not None:
        scheme, bits = _affine(layer, named, hints)
        sides = (scales.name, stem + "biases")
    elif stem + "biases" not in named and scales.dtype == "uint8" and group_bits in _MODES:
        scheme, bits = _MODES[group_bits]
        sides += present(named, stem, ("global_scale",))
    else:
        return None
    inputs = whole(32 * weight.shape[-1], bits) if bits else None
    return None if inputs is None else Match(weight.name, scheme, (*weight.shape[:-1], inputs), sides)


def contradicted(tensors: Sequence[Tensor], *documents: Mapping[str, Json] | None) -> list[str]:
    """Weights whose bits or group size, as they were read, are not those that the documents give them."""
    hints = Hints.of(*documents)
    if not hints.settings:
        return []
    found = []
    for tensor, stem, bits, group in _as_read(tensors):
        said_bits, said_group = hints.of_layer(stem[:-1])
        if said_bits not in (None, bits) or said_group not in (None, group):
            found.append(tensor.name)
    return found


def _as_read(tensors: Sequence[Tensor]) -> Iterator[tuple[Tensor, str, int, int]]:
    """The affine weights, each with its path, bits and group size."""
    named = {tensor.name: tensor for tensor in tensors}
    for tensor in tensors:
        packing, stem = tensor.packing, tensor.name.removesuffix("weight")
        layer = affine_layer(stem, named) if packing is not None else None
        if packing is not None and layer is not None:
            bits = 32 * layer.words // packing.logical_shape[-1]
            yield tensor, stem, bits, layer.group_bits // bits


def _affine(layer: Layer, named: Named, hints: Hints) -> tuple[str, int]:
    """Bits of a weight: as configured, else as other tensors' sizes attest, else of the usual groups.

    What is configured is believed of a layer only where it fits it: those that were quantized in another way
    are not always listed.
    """
    known = _configured(layer, hints)
    if known is None:
        if hints.widths is None:
            hints.widths = _widths(named, hints)
        known = hints.widths.bits(layer)
    if known is not None:
        return f"mlx-{known}bit", known
    usual = None if hints.widths is None else hints.widths.assumed(layer)
    return ("", 0) if usual is None else (f"mlx-{usual[0]}bit{ASSUMED}{usual[1]}", usual[0])


def _widths(named: Named, hints: Hints) -> Widths:
    stems = (name.removesuffix("scales") for name in named if name.endswith("scales"))
    layers = [layer for stem in stems if (layer := affine_layer(stem, named)) is not None]
    unknown = [layer for layer in layers if _configured(layer, hints) is None]
    group = hints.number("group_size") if len(unknown) < len(layers) else None  # else it is right for none
    return Widths(named, unknown, group or USUAL_GROUP)


def _configured(layer: Layer, hints: Hints) -> int | None:
    """The bits that were set for that very layer, or for all, if they can be those of this one."""
    for said in (hints.of_only(layer.stem[:-1]), (hints.number("bits"), hints.number("group_size"))):
        if said is not None and (bits := _fitting(layer.group_bits, *said)) is not None:
            return bits
    return None


def _fitting(group_bits: int, bits: int | None, group: int | None) -> int | None:
    """The bits that make such groups, as they were set, or by the group size when only that was."""
    if bits is None and group is not None:
        bits = whole(group_bits, group)
    size = whole(group_bits, bits) if bits in _BITS else None
    return bits if size == group or (group is None and size in GROUPS) else None
