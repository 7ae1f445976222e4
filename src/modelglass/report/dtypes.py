"""Element types by name, and how many bits each takes.

Names follow the common spelling of torch, MLX, numpy and ml_dtypes ("float32", "bfloat16"), without a
framework's prefix.
"""

BITS = {
    "bool": 8,
    "uint8": 8,
    "uint16": 16,
    "uint32": 32,
    "uint64": 64,
    "int8": 8,
    "int16": 16,
    "int32": 32,
    "int64": 64,
    "float16": 16,
    "bfloat16": 16,
    "float32": 32,
    "float64": 64,
    "float8_e4m3fn": 8,
    "float8_e4m3fnuz": 8,
    "float8_e5m2": 8,
    "float8_e5m2fnuz": 8,
    "float8_e8m0fnu": 8,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
    "float4_e2m1fn_x2": 8,  # one element of this type holds two 4-bit values
    "complex32": 32,
    "complex64": 64,
    "complex128": 128,
    "qint8": 8,
    "quint8": 8,
    "qint32": 32,
    "bits8": 8,
    "bits16": 16,
    "bits1x8": 8,
    "bits2x4": 8,
    "bits4x2": 8,
    "quint4x2": 4,
    "quint2x4": 2,
} | {f"{sign}int{bits}": bits for sign in ("", "u") for bits in range(1, 8)}


def bits_of(dtype: str) -> int | None:
    """The size of one element in bits, or None for a type this table does not know."""
    return BITS.get(dtype)


def nbytes_of(dtype: str, numel: int) -> int | None:
    """The bytes `numel` elements take, packed types rounded up to whole bytes."""
    bits = bits_of(dtype)
    return None if bits is None else (numel * bits + 7) // 8


def is_complex(dtype: str | None) -> bool:
    """Whether one element is a pair of a real and an imaginary part."""
    return dtype is not None and dtype.startswith("complex")


_SHORT_NAMES = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "i8": "int8",
    "i32": "int32",
    "int": "int32",
    "i64": "int64",
    "long": "int64",
}


def full_dtype_name(name: str) -> str:
    """The common spelling of an element type.

    >>> full_dtype_name("bf16"), full_dtype_name("torch.float32")
    ('bfloat16', 'float32')
    """
    plain = name.rpartition(".")[2]
    return _SHORT_NAMES.get(plain.lower(), plain)
