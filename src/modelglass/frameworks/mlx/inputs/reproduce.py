"""One primitive as a Python file of its own, so that it can be tried where the model is not.

The file has the primitive's shapes, types and arguments, and calls the function that makes it; its values are
made up, within what the function accepts.
"""

from __future__ import annotations

import re

from modelglass.errors import CannotReproduceError
from modelglass.frameworks.mlx.graph.invocations import write_call
from modelglass.frameworks.mlx.inputs.sample_values import expression, mlx_dtype, shape_list
from modelglass.report import Op, Value

_FILE = """\
{header}

import sys

import mlx.core as mx

if len(sys.argv) > 1:
    mx.set_default_device({{"cpu": mx.cpu, "gpu": mx.gpu}}[sys.argv[1]])
mx.random.seed(0)

inputs = [
{inputs}
]
{call}

results = result if isinstance(result, (tuple, list)) else [result]
mx.eval(*results)
got = [(list(each.shape), each.dtype) for each in results]
expected = [
{expected}
]
assert got == expected, f"got {{got}}, expected {{expected}}"
print({name!r}, *(f"{{'x'.join(map(str, shape)) or 'scalar'}} {{dtype}}" for shape, dtype in got))
"""


def reproducer(op: Op, *, file: str, details: str = "") -> str:
    """The source of a file that runs the primitive once and checks what comes out."""
    header = f"{op.name} ({op.overload}), alone, as a model ran it.\n{details}\n\n    python {file} [cpu|gpu]"
    made = [f"    {expression(op, value)},  # {_sanitize(value.name)}" for value in op.inputs]
    return _FILE.format(
        # Comments, because a name from a model may hold anything, and a comment ends with its line.
        header="\n".join(f"# {line}".rstrip() for line in header.splitlines()),
        inputs="\n".join(made),
        call=write_call(op),
        expected="\n".join(f"    {_write_expected(value)}," for value in op.outputs),
        name=op.name,
    )


def _sanitize(name: str) -> str:
    return re.sub(r"[^\w.]", "?", name)


def _write_expected(value: Value) -> str:
    if value.shape is None:
        raise CannotReproduceError("MLX does not report the shape of its result")
    return f"({shape_list(value)}, {mlx_dtype(value.dtype)})"
