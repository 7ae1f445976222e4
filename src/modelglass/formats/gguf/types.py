"""The element and block types of GGUF files: what each is called, and how many bytes it takes."""

from __future__ import annotations

from typing import NamedTuple


class BlockType(NamedTuple):
    """So many elements of a row are stored together, in so many bytes.

    `dtype` is the plain element type; None: only a whole block can be decoded.
    """

    name: str
    numel: int
    nbytes: int
    dtype: str | None = None


TYPES = {
    0: BlockType("F32", 1, 4, "float32"),
    1: BlockType("F16", 1, 2, "float16"),
    2: BlockType("Q4_0", 32, 18),
    3: BlockType("Q4_1", 32, 20),
    6: BlockType("Q5_0", 32, 22),
    7: BlockType("Q5_1", 32, 24),
    8: BlockType("Q8_0", 32, 34),
    9: BlockType("Q8_1", 32, 40),
    10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144),
    13: BlockType("Q5_K", 256, 176),
    14: BlockType("Q6_K", 256, 210),
    15: BlockType("Q8_K", 256, 292),
    16: BlockType("IQ2_XXS", 256, 66),
    17: BlockType("IQ2_XS", 256, 74),
    18: BlockType("IQ3_XXS", 256, 98),
    19: BlockType("IQ1_S", 256, 50),
    20: BlockType("IQ4_NL", 32, 18),
    21: BlockType("IQ3_S", 256, 110),
    22: BlockType("IQ2_S", 256, 82),
    23: BlockType("IQ4_XS", 256, 136),
    24: BlockType("I8", 1, 1, "int8"),
    25: BlockType("I16", 1, 2, "int16"),
    26: BlockType("I32", 1, 4, "int32"),
    27: BlockType("I64", 1, 8, "int64"),
    28: BlockType("F64", 1, 8, "float64"),
    29: BlockType("IQ1_M", 256, 56),
    30: BlockType("BF16", 1, 2, "bfloat16"),
    34: BlockType("TQ1_0", 256, 54),
    35: BlockType("TQ2_0", 256, 66),
    39: BlockType("MXFP4", 32, 17),
    40: BlockType("NVFP4", 64, 36),
    41: BlockType("Q1_0", 128, 18),
}

NAMED = {kind.name: kind for kind in TYPES.values()}

# Numbers that once meant a type. Their layouts are gone from every current program.
REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

# Made for memory only, and grown smaller over time: a reader cannot tell which size a file means.
DISPUTED = {"Q8_1": (36, 40)}
