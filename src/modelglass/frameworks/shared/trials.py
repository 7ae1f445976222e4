"""What trials of inputs have in common in every framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from modelglass.frameworks.shared.request import Inputs
from modelglass.inputs import Call, Named, Plain, Several, Tensor, Trial, Want
from modelglass.inputs.described import Node
from modelglass.report import Failure, Run, Value

_NAMES = ("size", "chan", "len", "length", "dim", "features", "nodes", "points", "res", "width", "height")
_LARGEST = 1 << 16  # of a size among attributes


def made_inputs(call: Call, make: Callable[[str, Tensor], Any]) -> Inputs:
    """Inputs as described, whose arrays are made by a function of the argument's name and the description."""

    def made(name: str, node: Node) -> Any:
        if isinstance(node, Plain):
            return node.value
        if isinstance(node, Several):
            items = [made(name, each) for each in node.items]
            return items if node.is_list else tuple(items)
        if isinstance(node, Named):
            return {key: made(key, each) for key, each in node.items}
        return make(name, node)

    values = {name: made(name, node) for name, node in call.arguments}
    args = tuple(values.pop(call.spread)) if call.spread is not None else ()
    return Inputs(args=args, kwargs=values)


def size_hints(attributes: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, int]]:
    """Whole numbers among attributes whose names are those of sizes."""
    seen = set()
    for name, value in attributes:
        first = value[-1] if isinstance(value, (tuple, list)) and value else value
        is_size = isinstance(first, int) and not isinstance(first, bool) and 0 < first < _LARGEST
        if is_size and name not in seen and any(part in name for part in _NAMES):
            seen.add(name)
            yield name, first


def trial_of(run: Run, depth: int, want_of: Callable[[str], Want | None]) -> Trial:
    """What a run shows: shapes of outputs, or where and why it ended."""
    if run.failure is not None:
        return _failed(run.failure, depth, want_of(run.failure.module))
    outputs = tuple(value.shape for value in run.outputs if value.shape is not None)
    return Trial(ran=True, depth=depth, outputs=outputs)


def _failed(failure: Failure, depth: int, want: Want | None) -> Trial:
    shapes = [value for value in failure.inputs if value.shape is not None]
    return Trial(
        ran=False,
        depth=depth,
        module=failure.module,
        op=failure.op,
        error=failure.error,
        message=failure.message[:1000],
        line="" if failure.source is None else failure.source.text,
        met=tuple(map(_shape, shapes)),
        weights=tuple(_shape(value) for value in shapes if value.tensor is not None),
        want=want,
    )


def _shape(value: Value) -> tuple[int, ...]:
    return value.shape or ()
