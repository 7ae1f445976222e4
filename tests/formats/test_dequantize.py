"""Every block format decodes to the numbers that the reference package gives, bit by bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from modelglass.formats.gguf.types import NAMED, BlockType
from modelglass.formats.packing.dequantize import dequantized, is_known

KNOWN = [kind for kind in NAMED.values() if is_known(kind.name)]
SPECIFIED_BY_REFERENCE = [kind.name for kind in KNOWN if kind.name not in ("Q1_0", "Q8_K")]


def random_blocks(encoding: str, count: int = 4096) -> np.ndarray:
    """Any bytes at all: scales that are infinite, NaN or denormal among them."""
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (count, NAMED[encoding].nbytes), dtype=np.uint8)


@pytest.mark.parametrize("encoding", SPECIFIED_BY_REFERENCE)
def test_random_blocks_decode_as_the_reference_decodes_them(encoding: str) -> None:
    blocks = random_blocks(encoding)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(blocks, gguf.GGMLQuantizationType[encoding]).reshape(-1)
    found = dequantized(encoding, blocks)
    assert found.dtype == np.float32
    same = found.view(np.uint32) == expected.astype(np.float32).view(np.uint32)
    assert np.all(same | (np.isnan(found) & np.isnan(expected)))


def test_every_format_but_those_with_large_tables_is_known() -> None:
    unknown = {kind.name for kind in NAMED.values() if kind.dtype is None and not is_known(kind.name)}
    assert unknown == {"Q8_1", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"}


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.name)
def test_a_block_gives_as_many_numbers_as_its_type_says(kind: BlockType) -> None:
    assert dequantized(kind.name, bytes(3 * kind.nbytes)).size == 3 * kind.numel


def test_signs_of_one_bit_stand_for_the_scale() -> None:
    block = np.float16(0.25).tobytes() + bytes([0b0000_0101]) + bytes(15)
    assert dequantized("Q1_0", block).tolist() == [0.25, -0.25, 0.25] + [-0.25] * 125


def test_blocks_with_a_single_precision_scale() -> None:
    numbers = np.arange(-128, 128, dtype=np.int8)
    block = np.float32(0.3).tobytes() + numbers.tobytes() + bytes(32)
    assert np.array_equal(dequantized("Q8_K", block), np.float32(0.3) * numbers.astype(np.float32))


@pytest.mark.parametrize("encoding", ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "NVFP4"])
def test_big_endian_blocks_differ_in_their_scales_only(encoding: str) -> None:
    swap = {"Q4_0": [0], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208]}.get(encoding, [])
    blocks = random_blocks(encoding, 64)
    swapped = blocks.copy()
    for at in swap:
        swapped[:, [at, at + 1]] = blocks[:, [at + 1, at]]
    found = dequantized(encoding, swapped, big_endian=True)
    assert np.array_equal(found, dequantized(encoding, blocks), equal_nan=True)


@pytest.mark.parametrize("encoding", [kind.name for kind in KNOWN])
def test_no_blocks_are_no_numbers(encoding: str) -> None:
    assert dequantized(encoding, b"").size == 0
