"""One operator execution as a Python file of its own, so that it can be tried where the model is not.

The file has the operator's shapes, types and attributes; its values are made up, within what the operator
accepts: indices lie inside what they index, lengths add up, masks select as many elements as they did.
"""

from __future__ import annotations

import importlib.util
import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from modelglass.errors import CannotReproduceError
from modelglass.frameworks.torch.inputs.sample_values import expression, torch_constant
from modelglass.report import Op, Value

# Namespaces of operators that come with torch.
_TORCHS_OWN = ("aten", "prims", "quantized", "_quantized", "quantized_decomposed", "mkldnn", "prim")

_FILE = """\
{header}

import sys

import torch
{imports}
device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
torch.manual_seed(0)

arguments = {{
{arguments}
}}
result = {operator}(**arguments)

results = result if isinstance(result, (tuple, list)) else [result]
got = [(list(each.shape), each.dtype) for each in results if isinstance(each, torch.Tensor)]{checked}
expected = [
{expected}
]
assert got == expected, f"got {{got}}, expected {{expected}}"
print({name!r}, *(f"{{'x'.join(map(str, shape)) or 'scalar'}} {{dtype}}" for shape, dtype in got))
"""


# Operators by how many of their results mean something. The others are for the gradient, and torch's fake
# and real kernels do not agree on their shapes.
_WORKSPACES = {"embedding_bag": 1, "_embedding_bag": 1}


@dataclass(frozen=True)
class _Argument:
    """An argument of the operator's schema: `kind` is its type without "optional" and "list of"."""

    name: str
    kind: str
    is_list: bool


def reproducer(op: Op, *, file: str, details: str = "") -> str:
    """The source of a file that runs the operator once and checks what comes out."""
    imports, schema = _imports(op), _schema(op)
    checked = _WORKSPACES.get(op.overload.split(".")[1])
    outputs = [value for value in op.outputs if value.dtype is not None]
    lines = [f"    {name!r}: {text}," for name, text in _arguments(op, schema)]
    header = f"{op.name} ({op.overload}), alone, as a model ran it.\n{details}\n\n    python {file} [device]"
    return _FILE.format(
        # Comments, because a name from a model may hold anything, and a comment ends with its line.
        header="\n".join(f"# {line}".rstrip() for line in header.splitlines()),
        imports=imports,
        arguments="\n".join(lines),
        operator=_operator(op),
        checked="" if checked is None else f"[:{checked}]",
        expected="\n".join(f"    {_write_expected(value)}," for value in outputs[:checked]),
        name=op.name,
    )


def _operator(op: Op) -> str:
    """How Python reaches the operator: an overload may be called "from", which is not a valid name."""
    packet, _, overload = op.overload.rpartition(".")
    if keyword.iskeyword(overload):
        return f"getattr(torch.ops.{packet}, {overload!r})"
    return f"torch.ops.{op.overload}"


def _schema(op: Op) -> tuple[_Argument, ...]:
    """The operator's arguments, as torch knows them."""
    namespace, *rest = op.overload.split(".")
    if len(rest) != 2:
        raise CannotReproduceError("it was seen as a Python function or takes functions, not as an operator")
    packet = getattr(getattr(torch.ops, namespace), rest[0], None)
    overload = getattr(packet, rest[1], None)
    if overload is None:
        raise CannotReproduceError(f"torch does not know {op.overload} any more")
    return tuple(_argument(arg) for arg in overload._schema.arguments)


def _argument(arg: Any) -> _Argument:
    kind, is_list = str(arg.real_type), False
    while kind.endswith("]"):
        is_list = is_list or kind.startswith("List[")
        kind = kind.partition("[")[2][:-1]
    return _Argument(arg.name, kind, is_list)


def _imports(op: Op) -> str:
    namespace = op.overload.partition(".")[0]
    if namespace in _TORCHS_OWN:
        return ""
    if namespace == "higher_order":
        raise CannotReproduceError("it takes functions, which are not in the report")
    if namespace.isidentifier() and importlib.util.find_spec(namespace) is not None:
        return f"import {namespace}  # defines the operator\n"
    raise CannotReproduceError(f"the library that defines {namespace!r} is not known by that name")


def _arguments(op: Op, schema: Sequence[_Argument]) -> Iterator[tuple[str, str]]:
    given = _by_argument(op.inputs)
    for argument in schema:
        values = given.get(argument.name)
        if values is None:
            if argument.kind.startswith("__torch__") and op.attributes.get(argument.name) is not None:
                raise CannotReproduceError(_OPAQUE)
            if argument.name in op.attributes:
                yield argument.name, _literal(op.attributes[argument.name], argument.kind)
        elif argument.kind.startswith("__torch__"):
            yield argument.name, _write_packed(op, argument, values)
        elif argument.is_list:
            items = ", ".join(expression(op, value) for value in values)
            yield argument.name, f"[{items}]"
        else:
            yield argument.name, expression(op, values[0])


def _by_argument(inputs: Sequence[Value]) -> Mapping[str, list[Value]]:
    """Values by the argument they belong to: "tensors.0" and "tensors.1" to "tensors"."""
    found: dict[str, list[Value]] = {}
    for value in inputs:
        found.setdefault(value.name.partition(".")[0], []).append(value)
    return found


def _literal(value: Any, kind: str) -> str:
    """An attribute, which the report holds as JSON, as Python."""
    if value is None or kind == "Generator":
        return "None"
    if isinstance(value, list):
        return f"[{', '.join(_literal(item, kind) for item in value)}]"
    if kind in ("ScalarType", "Layout", "MemoryFormat"):
        return torch_constant(value)
    if kind == "Device":
        return "device"
    if kind in ("float", "number", "Tensor") and isinstance(value, str):  # inf, nan, or a complex number
        return f"complex({value!r})" if "j" in value else f"float({value!r})"
    return repr(value)


_OPAQUE = "its weights are packed in an object that cannot be made from outside"

# What packs the weights of a quantized operator: from the weight, the bias, and attributes of the packing.
_PACKERS = {
    "LinearPackedParamsBase": ("linear_prepack", ()),
    "Conv2dPackedParamsBase": ("conv2d_prepack", ("stride", "padding", "dilation", "groups")),
    "Conv3dPackedParamsBase": ("conv3d_prepack", ("stride", "padding", "dilation", "groups")),
}


def _write_packed(op: Op, argument: _Argument, values: Sequence[Value]) -> str:
    packer = _PACKERS.get(argument.kind.rpartition(".")[2])
    parts = {value.name.partition(".")[2]: value for value in values}
    if packer is None or argument.is_list or "weight" not in parts:
        raise CannotReproduceError(_OPAQUE)
    name, settings = packer
    if (parts["weight"].dtype or "").startswith("float"):  # packed as half precision, not as integers
        name += "_fp16"
    weight = expression(op, parts["weight"])
    bias = expression(op, parts["bias"]) if "bias" in parts else "None"
    packing = [_literal(op.attributes[f"{argument.name}.{key}"], "int") for key in settings]
    return f"torch.ops.quantized.{name}({', '.join([weight, bias, *packing])})"


def _write_expected(value: Value) -> str:
    if value.shape is None:
        raise CannotReproduceError("its result does not have a single shape")
    return f"({list(value.shape)}, {torch_constant(value.dtype)})"
