"""Weights of checkpoints whose stored elements are not the weights: how many there really are.

Each layout is recognised by the names beside each other and by shapes that fit together; a configuration
helps where shapes leave two readings. What fits no layout stays as it is. No values are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from modelglass.formats.packing.layouts import Hints, Layout, Match, Named, present, whole
from modelglass.formats.packing.mlx import mlx
from modelglass.report import Json, Packing, Shape, Tensor


def packed(
    tensors: Sequence[Tensor],
    config: Mapping[str, Json] | None = None,
    metadata: Mapping[str, Json] | None = None,
) -> list[Tensor]:
    """The same tensors in the same order, with packed weights and their side tensors marked as such.

    `config` is the model's `config.json`, `metadata` what the weights file says of itself. A weight gets a
    `packing`, and the kind "packed" when its elements are not one weight each; scales, zero points and the
    like become buffers, so that the sum of parameters is the number of weights.
    """
    marked = [tensor for tensor in tensors if tensor.name.endswith(_MARKERS)]
    if not marked:
        return list(tensors)
    named = {tensor.name: tensor for tensor in tensors}
    hints = Hints.of(config, metadata)
    changed: dict[str, Tensor] = {}
    for tensor in marked:
        for suffix, layout in _LAYOUTS:
            if tensor.name.endswith(suffix) and tensor.shape is not None:
                match = layout(tensor.name[: -len(suffix)], named, hints)
                if match is not None:
                    _apply(match, named, changed)
                    break
    return [changed.get(tensor.name, tensor) for tensor in tensors]


def _apply(match: Match, named: Named, changed: dict[str, Tensor]) -> None:
    sides = [named[name] for name in match.sides if name in named]
    for side in sides:
        changed.setdefault(side.name, replace(side, kind="buffer"))
    weight = None if match.weight is None else named[match.weight]
    nbytes = None if weight is None else weight.nbytes
    if weight is None or nbytes is None or weight.packing is not None:
        return
    packing = Packing(
        scheme=match.scheme,
        logical_shape=match.logical_shape,
        nbytes=nbytes,
        side_nbytes=sum({side.storage: side.nbytes or 0 for side in sides}.values()),
    )
    kind: Literal["packed", "parameter"] = "parameter" if packing.logical_numel == weight.numel else "packed"
    changed[weight.name] = replace(weight, kind=kind, packing=packing)


def _gptq_or_awq(stem: str, named: Named, hints: Hints) -> Match | None:
    """Words of 32 bits: GPTQ packs the input dimension, AWQ the output dimension.

    `qzeros` is packed along the outputs in both, and `scales` is not packed: their ratio is the bit width.
    """
    weight, scales = named[stem + "qweight"], named.get(stem + "scales")
    shape = weight.shape or ()
    if weight.dtype not in ("int32", "uint32") or len(shape) != 2 or scales is None:
        return None
    sides = present(named, stem, ("qzeros", "scales", "g_idx", "perm"))
    rows, columns = shape
    outputs = scales.shape[-1] if scales.shape else 0
    g_idx, zeros = named.get(stem + "g_idx"), named.get(stem + "qzeros")
    inputs = g_idx.shape[0] if g_idx is not None and g_idx.shape is not None and len(g_idx.shape) == 1 else 0
    bits = None
    if zeros is not None and zeros.shape and len(zeros.shape) == 2 and len(scales.shape or ()) == 2:
        bits = whole(32 * zeros.shape[-1], outputs)
    if bits is None and inputs and columns == outputs:
        bits = whole(32 * rows, inputs)
    if bits is None:
        bits = hints.of_layer(stem[:-1])[0]
    if bits not in (2, 3, 4, 5, 6, 8):
        return None
    if columns == outputs and (inputs == 0 or inputs * bits == rows * 32):
        if (logical := whole(rows * 32, bits)) is not None:
            return Match(stem + "qweight", f"gptq-{bits}bit", (outputs, logical), sides)
    elif columns * 32 == outputs * bits:
        return Match(stem + "qweight", f"awq-{bits}bit", (outputs, rows), sides)
    elif hints.of_layer(stem[:-1])[0] == bits and (numel := whole(rows * columns * 32, bits)) is not None:
        method = hints.text("quant_method") or "packed"
        return Match(stem + "qweight", f"{method}-{bits}bit", (numel,), sides)
    return None


def _bitsandbytes_4bit(stem: str, named: Named, hints: Hints) -> Match | None:
    """Two weights a byte, in a column; the shape they once had is inside a tensor, which is not read."""
    weight, table = named.get(stem), named.get(stem + ".quant_map")
    if weight is None or table is None or table.numel != 16 or weight.nbytes is None:
        return None
    sides = present(named, stem, _BITSANDBYTES_SIDES)
    kind = next((name[-3:] for name in sides if "bitsandbytes__" in name), "4bit")
    return Match(stem, f"bitsandbytes-{kind}", (2 * weight.nbytes,), sides)


def _bitsandbytes_8bit(stem: str, named: Named, hints: Hints) -> Match | None:
    weight = named.get(stem + "weight")
    if weight is None or weight.dtype != "int8" or weight.shape is None:
        return None
    sides = present(named, stem, ("SCB", "weight_format"))
    return Match(weight.name, "bitsandbytes-int8", weight.shape, sides)


def _scaled(suffix: str) -> Layout:
    """A layout whose weight `x` has its scales beside it, called `x` and the suffix."""

    def layout(stem: str, named: Named, hints: Hints) -> Match | None:
        return _with_scale(stem, stem + suffix, named, hints)

    return layout


def _beside(suffix: str) -> Layout:
    """A layout whose weight is called "weight", and its scales something else."""

    def layout(stem: str, named: Named, hints: Hints) -> Match | None:
        return _with_scale(stem + "weight", stem + suffix, named, hints)

    return layout


def _with_scale(name: str, scale_name: str, named: Named, hints: Hints) -> Match | None:
    """Weights of one byte or of half a byte; the scale's type and shape tell which."""
    weight, scale = named.get(name), named[scale_name]
    if weight is None or not weight.shape or scale.shape is None:
        return None
    stem = name[: len(name) - len("weight")] if name.endswith("weight") else ""
    sides = {scale_name, *present(named, name, _SCALE_SUFFIXES)}
    if stem or name == "weight":
        sides.update(present(named, stem, _ACTIVATION_SCALES))
    ordered = tuple(sorted(sides))
    if weight.dtype.startswith("float8_"):
        return Match(name, weight.dtype, weight.shape, ordered)
    if weight.dtype in ("uint8", "int8", "float4_e2m1fn_x2"):
        halves = _halves(weight.shape, scale)
        if halves is not None:
            return Match(name, halves, (*weight.shape[:-1], 2 * weight.shape[-1]), ordered)
    if weight.dtype == "int8":
        return Match(name, "int8", weight.shape, ordered)
    if weight.dtype == "uint8" and hints.text("quant_method") == "bitnet" and len(weight.shape) == 2:
        rows, columns = weight.shape
        return Match(name, "bitnet-2bit", (4 * rows, columns), ordered)
    return None


def _halves(shape: Shape, scale: Tensor) -> str | None:
    """The scheme of weights of four bits, which only block scales of eight bits can have beside them."""
    if not scale.shape or scale.shape[:-1] != shape[:-1]:
        return None
    if scale.dtype == "float8_e4m3fn" and 2 * shape[-1] == 16 * scale.shape[-1]:
        return "nvfp4"
    if scale.dtype in ("uint8", "float8_e8m0fnu") and 2 * shape[-1] == 32 * scale.shape[-1]:
        return "mxfp4"
    return None


def _compressed(stem: str, named: Named, hints: Hints) -> Match | None:
    """What compressed-tensors packs: words of 32 bits along the inputs, or two weights of 4 bits a byte."""
    weight, scale = named[stem + "weight_packed"], named.get(stem + "weight_scale")
    if not weight.shape or scale is None or not scale.shape or len(weight.shape) < 2:
        return None
    sides = present(named, stem, ("weight_shape", *_COMPRESSED_SIDES, *_ACTIVATION_SCALES))
    *outer, words = weight.shape
    if weight.dtype == "uint8":
        halves = _halves(weight.shape, scale)
        return None if halves is None else Match(weight.name, halves, (*outer, 2 * words), sides)
    if weight.dtype != "int32":
        return None
    bits = _compressed_bits(stem, weight.shape, scale.shape, named, hints)
    inputs = None if bits is None else whole(32 * words, bits)
    return None if inputs is None else Match(weight.name, f"pack-{bits}bit", (*outer, inputs), sides)


def _compressed_bits(stem: str, shape: Shape, scale: Shape, named: Named, hints: Hints) -> int | None:
    outputs, words = shape[-2:]
    order, zeros = named.get(stem + "weight_g_idx"), named.get(stem + "weight_zero_point")
    if order is not None and order.numel:
        return _bits(32 * words, order.numel)
    if zeros is not None and zeros.dtype == "int32" and zeros.shape and len(zeros.shape) > 1:
        return _bits(32 * zeros.shape[-2], outputs)
    groups = set(hints.weight_groups())
    if scale[-1] > 1:
        group_bits = whole(32 * words, scale[-1])
        fitting = {bits for bits, size in groups if size is None or bits * size == group_bits}
    else:
        fitting = {bits for bits, _ in groups}
    return fitting.pop() if len(fitting) == 1 and max(fitting) in _PACKED_BITS else None


def _mxfp4_blocks(stem: str, named: Named, hints: Hints) -> Match | None:
    """Blocks of 32 four-bit values in 16 bytes, with one scale byte a block beside them."""
    blocks, scales = named[stem + "_blocks"], named.get(stem + "_scales")
    shape = blocks.shape or ()
    if scales is None or blocks.dtype != "uint8" or len(shape) < 2 or scales.shape != shape[:-1]:
        return None
    *outer, count, width = shape
    return Match(blocks.name, "mxfp4", (*outer, count * width * 2), (scales.name,))


def _hqq(stem: str, named: Named, hints: Hints) -> Match | None:
    """Rows of one group each, several rows in one stored row; `scale` has one number per row."""
    weight, scale = named[stem + "W_q"], named.get(stem + "scale")
    shape = weight.shape or ()
    if scale is None or scale.shape is None or len(shape) != 2 or len(scale.shape) != 2:
        return None
    sides = present(named, stem, _HQQ_SIDES)
    stored, group = shape
    rows = scale.shape[0]
    if scale.shape[1] != 1 or rows < 1:
        return None
    if weight.dtype == "uint8" and (bits := whole(8 * stored, rows)) in (1, 2, 4, 8):
        return Match(weight.name, f"hqq-{bits}bit", (rows * group,), sides)
    if weight.dtype == "int32" and stored == -(-rows // 10):  # ten values of three bits a word
        return Match(weight.name, "hqq-3bit", (rows * group,), sides)
    return None


def _quanto(stem: str, named: Named, hints: Hints) -> Match | None:
    weight = named[stem + "._data"]
    if stem + "._scale" not in named or weight.shape is None:
        return None
    if weight.dtype != "int8" and not weight.dtype.startswith("float8_"):
        return None  # fewer bits are packed, and how is not certain
    sides = present(named, stem, ("._scale", "._shift"))
    return Match(weight.name, f"quanto-{weight.dtype}", weight.shape, sides)


def _cache_scale(suffix: str) -> Layout:
    """Scales of the attention cache, one number each, which serve no weight."""

    def layout(stem: str, named: Named, hints: Hints) -> Match | None:
        scale = named[stem + suffix]
        certain = bool(hints.settings) and scale.numel == 1 and stem.endswith(".")
        return Match(None, sides=(scale.name,)) if certain else None

    return layout


def _bits(numerator: int, denominator: int) -> int | None:
    bits = whole(numerator, denominator)
    return bits if bits in _PACKED_BITS else None


_PACKED_BITS = (1, 2, 3, 4, 5, 6, 7, 8)
_BITSANDBYTES_SIDES = (
    ".absmax",
    ".quant_map",
    ".nested_absmax",
    ".nested_quant_map",
    ".quant_state.bitsandbytes__nf4",
    ".quant_state.bitsandbytes__fp4",
)
_SCALE_SUFFIXES = ("_scale", "_scale_inv", "_scale_2", "_scales", "_zero_point", "_input_scale")
_ACTIVATION_SCALES = (
    *("input_scale", "input_scale_ub", "input_zero_point", "input_global_scale"),
    *("activation_scale", "activation_scale_inv", "output_scale", "scale_input"),
)
_COMPRESSED_SIDES = ("weight_scale", "weight_zero_point", "weight_g_idx", "weight_global_scale")
_HQQ_SIDES = (
    "scale",
    "zero",
    "nbits",
    "axis",
    "group_size",
    "shape",
    "packing",
    "compute_dtype",
    "channel_wise",
    "optimize",
    "round_zero",
    "unpack_view_dtype",
    "view_as_float",
    "quant_scale",
    "quant_zero",
    "offload_meta",
    "stores_quant_config",
)
# The tensor that tells, by how its name ends; of several endings that fit, the first.
_LAYOUTS: tuple[tuple[str, Layout], ...] = (
    ("qweight", _gptq_or_awq),
    (".absmax", _bitsandbytes_4bit),
    ("SCB", _bitsandbytes_8bit),
    ("weight_packed", _compressed),
    ("_blocks", _mxfp4_blocks),
    ("W_q", _hqq),
    ("._data", _quanto),
    ("k_scale", _cache_scale("k_scale")),
    ("v_scale", _cache_scale("v_scale")),
    ("_scale_inv", _scaled("_scale_inv")),
    ("_scale", _scaled("_scale")),
    ("scale_weight", _beside("scale_weight")),
    ("weight_scales", _beside("weight_scales")),
    ("scales", mlx),
    ("scale", _beside("scale")),
)
_MARKERS = tuple(suffix for suffix, _ in _LAYOUTS)
