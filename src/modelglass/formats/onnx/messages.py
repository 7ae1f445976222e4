"""The messages of ONNX that are read, field by field, and its element types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modelglass.formats.protobuf import DEEPEST, Rule, Schema, Span, Wire
from modelglass.report import Shape

# The number of an element type in the file: our name for it, its bits, and the field that holds its values
# when they are not raw. A complex number is two values there.
DTYPES: Mapping[int, tuple[str, int, str]] = {
    1: ("float32", 32, "float_data"),
    2: ("uint8", 8, "int32_data"),
    3: ("int8", 8, "int32_data"),
    4: ("uint16", 16, "int32_data"),
    5: ("int16", 16, "int32_data"),
    6: ("int32", 32, "int32_data"),
    7: ("int64", 64, "int64_data"),
    8: ("string", 0, "string_data"),
    9: ("bool", 8, "int32_data"),
    10: ("float16", 16, "int32_data"),
    11: ("float64", 64, "double_data"),
    12: ("uint32", 32, "uint64_data"),
    13: ("uint64", 64, "uint64_data"),
    14: ("complex64", 64, "float_data"),
    15: ("complex128", 128, "double_data"),
    16: ("bfloat16", 16, "int32_data"),
    17: ("float8_e4m3fn", 8, "int32_data"),
    18: ("float8_e4m3fnuz", 8, "int32_data"),
    19: ("float8_e5m2", 8, "int32_data"),
    20: ("float8_e5m2fnuz", 8, "int32_data"),
    21: ("uint4", 4, "int32_data"),
    22: ("int4", 4, "int32_data"),
    23: ("float4_e2m1fn", 4, "int32_data"),
    24: ("float8_e8m0fnu", 8, "int32_data"),
    25: ("uint2", 2, "int32_data"),
    26: ("int2", 2, "int32_data"),
    27: ("float6_e2m3fn", 6, "int32_data"),
    28: ("float6_e3m2fn", 6, "int32_data"),
}

MODEL = Schema(
    {
        1: Rule("ir_version", "int"),
        2: Rule("producer_name", "text"),
        3: Rule("producer_version", "text"),
        4: Rule("domain", "text"),
        5: Rule("model_version", "int"),
        6: Rule("doc_string", "span"),
        7: Rule("graph", "span"),
        8: Rule("opset_import", "span", repeated=True),
        14: Rule("metadata_props", "span", repeated=True),
        20: Rule("training_info", "span", repeated=True),
        25: Rule("functions", "span", repeated=True),
    }
)
GRAPH = Schema(
    {
        1: Rule("node", "span", repeated=True),
        2: Rule("name", "text"),
        5: Rule("initializer", "span", repeated=True),
        11: Rule("input", "span", repeated=True),
        12: Rule("output", "span", repeated=True),
        13: Rule("value_info", "span", repeated=True),
        15: Rule("sparse_initializer", "span", repeated=True),
    }
)
FUNCTION = Schema(
    {
        1: Rule("name", "text"),
        7: Rule("node", "span", repeated=True),
        9: Rule("opset_import", "span", repeated=True),
        10: Rule("domain", "text"),
        11: Rule("attribute_proto", "span", repeated=True),
        12: Rule("value_info", "span", repeated=True),
        13: Rule("overload", "text"),
    }
)
TRAINING = Schema({1: Rule("initialization", "span"), 2: Rule("algorithm", "span")})
NODE = Schema(
    {
        1: Rule("input", "text", repeated=True),
        2: Rule("output", "text", repeated=True),
        3: Rule("name", "text"),
        4: Rule("op_type", "text"),
        5: Rule("attribute", "span", repeated=True),
        7: Rule("domain", "text"),
        8: Rule("overload", "text"),
    }
)
ATTRIBUTE = Schema(
    {
        1: Rule("name", "text"),
        2: Rule("f", "float"),
        3: Rule("i", "int"),
        4: Rule("s", "span"),
        5: Rule("t", "span"),
        6: Rule("g", "span"),
        7: Rule("floats", "float", repeated=True),
        8: Rule("ints", "int", repeated=True),
        9: Rule("strings", "span", repeated=True),
        10: Rule("tensors", "span", repeated=True),
        11: Rule("graphs", "span", repeated=True),
        14: Rule("tp", "span"),
        15: Rule("type_protos", "span", repeated=True),
        20: Rule("type", "int"),
        21: Rule("ref_attr_name", "text"),
        22: Rule("sparse_tensor", "span"),
        23: Rule("sparse_tensors", "span", repeated=True),
    }
)
# The field of an attribute that its type says holds the value.
ATTRIBUTE_FIELDS = {
    1: "f",
    2: "i",
    3: "s",
    4: "t",
    5: "g",
    6: "floats",
    7: "ints",
    8: "strings",
    9: "tensors",
    10: "graphs",
    11: "sparse_tensor",
    12: "sparse_tensors",
    13: "tp",
    14: "type_protos",
}
TENSOR = Schema(
    {
        1: Rule("dims", "int", repeated=True),
        2: Rule("data_type", "int"),
        3: Rule("segment", "span"),
        4: Rule("float_data", "span", repeated=True),
        5: Rule("int32_data", "span", repeated=True),
        6: Rule("string_data", "span", repeated=True),
        7: Rule("int64_data", "span", repeated=True),
        8: Rule("name", "text"),
        9: Rule("raw_data", "span"),
        10: Rule("double_data", "span", repeated=True),
        11: Rule("uint64_data", "span", repeated=True),
        13: Rule("external_data", "span", repeated=True),
        14: Rule("data_location", "int"),
    }
)
SPARSE = Schema(
    {
        1: Rule("values", "span"),
        2: Rule("indices", "span"),
        3: Rule("dims", "int", repeated=True),
    }
)
ENTRY = Schema({1: Rule("key", "text"), 2: Rule("value", "text")})
LONG_ENTRY = Schema({1: Rule("key", "text"), 2: Rule("value", "span")})
OPSET = Schema({1: Rule("domain", "text"), 2: Rule("version", "int")})
VALUE_INFO = Schema({1: Rule("name", "text"), 2: Rule("type", "span")})

_TYPE = Schema(
    {
        1: Rule("tensor", "span"),
        4: Rule("sequence", "span"),
        5: Rule("map", "span"),
        7: Rule("opaque", "span"),
        8: Rule("sparse tensor", "span"),
        9: Rule("optional", "span"),
    }
)
_TENSOR_TYPE = Schema({1: Rule("elem_type", "int"), 2: Rule("shape", "span")})
_HOLDER = Schema({1: Rule("elem_type", "span")})
_MAP = Schema({1: Rule("key_type", "int"), 2: Rule("value_type", "span")})
_SHAPE = Schema({1: Rule("dim", "span", repeated=True)})
_DIM = Schema({1: Rule("value", "int"), 2: Rule("param", "text")})


@dataclass(frozen=True, slots=True)
class Type:
    """What a value of a graph is: a shape when all of it is known, otherwise words about it."""

    dtype: str | None = None
    shape: Shape | None = None
    text: str | None = None


def dtype_of(wire: Wire, number: int, what: str, offset: int) -> tuple[str, int, str]:
    """The row of an element type; a number that stands for none is an error."""
    row = DTYPES.get(number)
    if row is None:
        raise wire.source.corrupt(
            f"{what} has the element type {number:,}, which does not exist", code="onnx.dtype", offset=offset
        )
    return row


def type_of(wire: Wire, span: Span, depth: int, dims: int) -> Type:
    """What a TypeProto says. `depth` is that of its message, `dims` the most dimensions a shape may have."""
    around: list[str] = []  # a sequence of optional maps … is told from outside to inside
    while True:
        if depth > DEEPEST:
            raise wire.source.corrupt(
                f"types lie more than {DEEPEST} messages deep", code="onnx.depth", offset=span.start
            )
        kinds = wire.message(span, _TYPE, "a type")
        if len(kinds) > 1:
            raise wire.source.corrupt("a type is two things at once", code="onnx.type", offset=span.start)
        if not kinds:
            return _wrapped(around, Type())
        (kind, inner), depth = next(iter(kinds.items())), depth + 2
        if kind in ("tensor", "sparse tensor"):
            around += [kind] if kind == "sparse tensor" else []
            return _wrapped(around, _tensor_type(wire, inner, dims))
        if kind == "opaque":
            return _wrapped(around, Type(text="opaque"))
        fields = wire.message(inner, _MAP if kind == "map" else _HOLDER, f"the type of a {kind}")
        if kind == "map":
            kind = f"map from {_dtype(wire, fields.get('key_type', 0), inner.start) or '?'}"
        around.append(kind)
        content = fields.get("value_type", fields.get("elem_type"))
        if content is None:
            return _wrapped(around, Type())
        span = content


def _tensor_type(wire: Wire, span: Span, dims: int) -> Type:
    fields = wire.message(span, _TENSOR_TYPE, "the type of a tensor")
    dtype = _dtype(wire, fields.get("elem_type", 0), span.start)
    if "shape" not in fields:
        return Type(dtype=dtype, text="?")
    sizes: list[int | str] = []
    for _, dim, at in wire.entries(fields["shape"], _SHAPE, "a shape"):
        if len(sizes) == dims:
            raise wire.source.over("dims", dims, offset=at)
        sizes.append(_size(wire.message(dim, _DIM, "a dimension")))
    known = tuple(size for size in sizes if isinstance(size, int))
    if len(known) == len(sizes):
        return Type(dtype=dtype, shape=known)
    return Type(dtype=dtype, text="x".join(map(str, sizes)))


def _size(dim: dict[str, Any]) -> int | str:
    value, param = dim.get("value"), dim.get("param")
    if value is not None and value >= 0:
        return int(value)
    # Some exporters write -1, or nothing, for a size that is only known when the model runs.
    return str(param)[:200] if param else "?"


def _dtype(wire: Wire, number: int, offset: int) -> str | None:
    return dtype_of(wire, number, "a value", offset)[0] if number else None


def _wrapped(around: list[str], inner: Type) -> Type:
    if not around:
        return inner
    shape = inner.text if inner.shape is None else "x".join(map(str, inner.shape))
    return Type(text=" of ".join((*around, " ".join(filter(None, (inner.dtype, shape))) or "?")))
