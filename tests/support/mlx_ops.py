"""Operators of an MLX function, from nothing but what an export says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx

from modelglass.analyses.cost.formulas import macs_of
from modelglass.frameworks.mlx.graph.primitives import attributes, public_name, roles
from modelglass.report import Kernel, Op, Value

HEADERS = Path(mx.__file__).parent / "include" / "mlx"
BASES = ("UnaryPrimitive", "Custom", "DistPrimitive")  # what primitives derive from


def declared() -> dict[str, str]:
    """Every primitive that this MLX declares, with the text of its class."""
    files = ("primitives.h", "fast_primitives.h", "distributed/primitives.h")
    text = "".join((HEADERS / name).read_text() for name in files)
    classes = re.findall(
        r"^class (?:MLX_API )?(\w+) : public \w+ \{(.*?)^\};", text, re.DOTALL | re.MULTILINE
    )
    return {name: body for name, body in classes if name not in BASES}


def exported(function: Callable[..., Any], *arrays: mx.array) -> list[dict[str, Any]]:
    """The primitives of a function of arrays, as MLX exports them; nothing is evaluated."""
    records: list[dict[str, Any]] = []
    mx.export_function(records.append, lambda *given: list(_flat(function(*given))), *arrays)
    return [record for record in records if record["type"] == "primitive"]


def ops_of(function: Callable[..., Any], *arrays: mx.array) -> list[Op]:
    """The operators of a function of arrays."""
    return [_op(index, record) for index, record in enumerate(exported(function, *arrays))]


def macs(function: Callable[..., Any], *arrays: mx.array) -> int | None:
    """Multiply-accumulates of a function of arrays; None when one of its kernels is unknown."""
    costs = [macs_of(op.kernels[0]) for op in ops_of(function, *arrays)]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _op(index: int, record: dict[str, Any]) -> Op:
    name, arguments = record["name"], record["arguments"]
    given = roles(name, len(record["inputs"]), arguments)
    kernel = Kernel(
        name=f"mlx.{name}",
        attributes=attributes(name, arguments),
        inputs=tuple(map(_value, given, record["inputs"])),
        outputs=tuple(_value("", spec) for spec in record["outputs"]),
    )
    return Op(
        index=index,
        name=public_name(name, arguments),
        overload=kernel.name,
        module="",
        call=None,
        phase="forward",
        attributes=kernel.attributes,
        inputs=kernel.inputs,
        outputs=kernel.outputs,
        kernels=(kernel,),
    )


def _value(name: str, spec: tuple[str, tuple[int, ...], mx.Dtype]) -> Value:
    return Value(name=name, shape=tuple(spec[1]), dtype=str(spec[2]).rpartition(".")[2])


def _flat(value: Any) -> Iterator[mx.array]:
    if isinstance(value, mx.array):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _flat(item)
