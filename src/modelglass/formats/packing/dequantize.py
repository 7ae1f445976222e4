"""The numbers that blocks of quantized weights stand for.

Each block format of GGUF is a small structure: one or two scales, and the integers they scale, packed into
bits. All are decoded with 32-bit floats and in the same order of operations as the programs that run them,
so that the numbers are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float32]
Decoder = Callable[[Array], Any]  # blocks in, their numbers in order


def dequantized(encoding: str, blocks: bytes | Array, *, big_endian: bool = False) -> Floats:
    """The numbers of whole blocks, one after the other.

    >>> dequantized("Q8_0", b"\\x00\\x38" + bytes(range(32)))[:4].tolist()
    [0.0, 0.5, 1.0, 1.5]
    """
    layout, decoder = _ENCODINGS[encoding]
    rows = np.frombuffer(blocks, layout.newbyteorder(">") if big_endian else layout)
    if not len(rows):
        return np.empty(0, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):  # scales may be infinite or no number
        found: Floats = decoder(rows).astype(np.float32, copy=False).reshape(-1)
        return found


def is_known(encoding: str) -> bool:
    """Whether blocks of that name can be decoded."""
    return encoding in _ENCODINGS


def _q1_0(rows: Array) -> Any:
    signs = np.unpackbits(rows["qs"], axis=-1, bitorder="little")
    d = _scale(rows["d"])
    return np.where(signs == 1, d, -d)


def _q4_0(rows: Array) -> Any:
    return _scale(rows["d"]) * (_halves(rows["qs"]).view(np.int8) - np.int8(8))


def _q4_1(rows: Array) -> Any:
    return _scale(rows["d"]) * _halves(rows["qs"]).astype(np.float32) + _scale(rows["m"])


def _q5_0(rows: Array) -> Any:
    return _scale(rows["d"]) * (_five_bits(rows).view(np.int8) - np.int8(16))


def _q5_1(rows: Array) -> Any:
    return _scale(rows["d"]) * _five_bits(rows).astype(np.float32) + _scale(rows["m"])


def _q8(rows: Array) -> Any:
    return _scale(rows["d"]) * rows["qs"].astype(np.float32)


def _q2_k(rows: Array) -> Any:
    scales = rows["scales"]
    d = _scale(rows["d"]) * (scales & 15).astype(np.float32)
    low = _scale(rows["dmin"]) * (scales >> 4).astype(np.float32)
    return d[..., None] * _in_groups(_quarters(rows["qs"]), 16) - low[..., None]


def _q3_k(rows: Array) -> Any:
    packed = rows["scales"]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=-1)
    high = _planes(packed[:, 8:], 2).reshape(-1, 16)
    scales = (low | high << 4).view(np.int8) - np.int8(32)
    unset = _planes(rows["hmask"], 1).reshape(-1, 256) ^ 1
    quants = _quarters(rows["qs"]).view(np.int8) - (unset << 2).view(np.int8)
    d = _scale(rows["d"]) * scales.astype(np.float32)
    return d[..., None] * _in_groups(quants, 16)


def _q4_k(rows: Array) -> Any:
    return _scaled_by_six_bits(rows, _halves_of(rows["qs"], 32))


def _q5_k(rows: Array) -> Any:
    high = _planes(rows["qh"], 1).reshape(-1, 256)
    return _scaled_by_six_bits(rows, _halves_of(rows["qs"], 32) | high << 4)


def _q6_k(rows: Array) -> Any:
    low = _halves_of(rows["ql"], 64)
    quants = (low | _quarters(rows["qh"]) << 4).view(np.int8) - np.int8(32)
    d = _scale(rows["d"]) * rows["scales"].astype(np.float32)
    return d[..., None] * _in_groups(quants, 16)


def _iq4_nl(rows: Array) -> Any:
    return _scale(rows["d"]) * _UNEVEN[_halves(rows["qs"])]


def _iq4_xs(rows: Array) -> Any:
    low = _planes(rows["scales_l"][..., None], 4).reshape(-1, 8)
    high = rows["scales_h"][:, None] >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = (low | high.astype(np.uint8) << 4).view(np.int8) - np.int8(32)
    d = _scale(rows["d"]) * scales.astype(np.float32)
    return d[..., None] * _UNEVEN[_halves_of(rows["qs"], 16)].reshape(-1, 8, 32)


def _tq1_0(rows: Array) -> Any:
    parts = (rows["qs"][:, :32], 5), (rows["qs"][:, 32:], 5), (rows["qh"], 4)
    digits = [_ternary(part, count) for part, count in parts]
    return _scale(rows["d"]) * np.concatenate(digits, axis=-1)


def _tq2_0(rows: Array) -> Any:
    return _scale(rows["d"]) * (_quarters(rows["qs"]).view(np.int8) - np.int8(1))


def _mxfp4(rows: Array) -> Any:
    return _POWERS[rows["e"]][:, None] * _SMALL_FLOATS[_halves(rows["qs"])]


def _nvfp4(rows: Array) -> Any:
    values = _SMALL_FLOATS[_halves_of(rows["qs"], 8)]
    return _EIGHT_BIT_SCALES[rows["d"]][..., None] * values.reshape(-1, 4, 16)


def _scale(field: Array) -> Floats:
    return field.astype(np.float32)[:, None]


def _planes(packed: Array, bits: int) -> Any:
    """Numbers of so many bits: first the lowest of every byte in a row, then the next."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return packed[..., None, :] >> shifts & np.uint8((1 << bits) - 1)


def _halves(packed: Array) -> Any:
    """Four-bit numbers: the low halves of all bytes, then the high ones."""
    return _planes(packed, 4).reshape(len(packed), -1)


def _halves_of(packed: Array, run: int) -> Any:
    """The same, of each run of so many bytes on its own."""
    return _planes(packed.reshape(len(packed), -1, run), 4).reshape(len(packed), -1)


def _quarters(packed: Array) -> Any:
    """Two-bit numbers of each run of 32 bytes."""
    return _planes(packed.reshape(len(packed), -1, 32), 2).reshape(len(packed), -1)


def _five_bits(rows: Array) -> Any:
    fifth = np.unpackbits(rows["qh"], axis=-1, bitorder="little")
    return _halves(rows["qs"]) | fifth << 4


def _in_groups(quants: Array, numel: int) -> Floats:
    return quants.astype(np.float32).reshape(len(quants), -1, numel)


def _scaled_by_six_bits(rows: Array, quants: Array) -> Any:
    """Eight groups with a scale and a minimum each, which share twelve bytes."""
    first, second, third = (rows["scales"][:, i : i + 4] for i in (0, 4, 8))
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=-1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=-1)
    d = _scale(rows["d"]) * scales.astype(np.float32)
    low = _scale(rows["dmin"]) * minima.astype(np.float32)
    return d[..., None] * _in_groups(quants, 32) - low[..., None]


def _ternary(packed: Array, count: int) -> Floats:
    """Digits -1, 0 and 1: a byte is a fraction of 256, to be read in base 3, digit by digit."""
    powers = np.array([1, 3, 9, 27, 81][:count], np.uint8)[:, None]
    fractions = packed[:, None, :] * powers  # only what is behind the point stays in eight bits
    digits = fractions.astype(np.uint16) * 3 >> 8
    return digits.reshape(len(packed), -1).astype(np.float32) - np.float32(1)


def _eight_bit_scales() -> Floats:
    """Half of what an unsigned float with four bits of exponent and three of mantissa stands for."""
    words = np.arange(256)
    exponents, fractions = words >> 3 & 15, (words & 7) / 8
    scales = np.where(exponents == 0, np.ldexp(fractions, -6), np.ldexp(1 + fractions, exponents - 7)) / 2
    scales[0x7F] = 0
    return scales.astype(np.float32)


_UNEVEN = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32
)
_SMALL_FLOATS = np.array(
    [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32
)  # doubled
_POWERS = np.ldexp(1.0, np.arange(256) - 128).astype(np.float32)  # halved, because those are doubled
_EIGHT_BIT_SCALES = _eight_bit_scales()


def _layout(*fields: tuple[str, str, int]) -> np.dtype[Any]:
    return np.dtype([(name, kind) if count == 1 else (name, kind, (count,)) for name, kind, count in fields])


_D, _M, _DMIN = ("d", "<f2", 1), ("m", "<f2", 1), ("dmin", "<f2", 1)
_QS16, _QS128 = ("qs", "u1", 16), ("qs", "u1", 128)

_ENCODINGS: dict[str, tuple[np.dtype[Any], Decoder]] = {
    "Q1_0": (_layout(_D, _QS16), _q1_0),
    "Q4_0": (_layout(_D, _QS16), _q4_0),
    "Q4_1": (_layout(_D, _M, _QS16), _q4_1),
    "Q5_0": (_layout(_D, ("qh", "u1", 4), _QS16), _q5_0),
    "Q5_1": (_layout(_D, _M, ("qh", "u1", 4), _QS16), _q5_1),
    "Q8_0": (_layout(_D, ("qs", "i1", 32)), _q8),
    "Q2_K": (_layout(("scales", "u1", 16), ("qs", "u1", 64), _D, _DMIN), _q2_k),
    "Q3_K": (_layout(("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), _D), _q3_k),
    "Q4_K": (_layout(_D, _DMIN, ("scales", "u1", 12), _QS128), _q4_k),
    "Q5_K": (_layout(_D, _DMIN, ("scales", "u1", 12), ("qh", "u1", 32), _QS128), _q5_k),
    "Q6_K": (_layout(("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), _D), _q6_k),
    "Q8_K": (_layout(("d", "<f4", 1), ("qs", "i1", 256), ("bsums", "<i2", 16)), _q8),
    "IQ4_NL": (_layout(_D, _QS16), _iq4_nl),
    "IQ4_XS": (_layout(_D, ("scales_h", "<u2", 1), ("scales_l", "u1", 4), _QS128), _iq4_xs),
    "TQ1_0": (_layout(("qs", "u1", 48), ("qh", "u1", 4), _D), _tq1_0),
    "TQ2_0": (_layout(("qs", "u1", 64), _D), _tq2_0),
    "MXFP4": (_layout(("e", "u1", 1), _QS16), _mxfp4),
    "NVFP4": (_layout(("d", "u1", 4), ("qs", "u1", 32)), _nvfp4),
}
