"""What the user fixes of the inputs, and inputs that are there already, as descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from modelglass.inputs.described import BATCH, FLOAT, LENGTH, Call, Named, Node, Plain, Several, Shape, Tensor
from modelglass.inputs.signature import Parameter


class Spec(Protocol):
    """A description of an input by the user; without a name it is given by its place."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def name(self) -> str | None: ...


@dataclass(frozen=True)
class Fixed:
    """Inputs that a search keeps as they are. Those in `untyped` have sizes, and any element type."""

    nodes: Mapping[str, Node] = field(default_factory=dict)
    untyped: frozenset[str] = frozenset()

    def kept(self, call: Call) -> Call:
        """The call with what is fixed."""
        arguments = dict(call.arguments)
        for name, node in self.nodes.items():
            guess = arguments.get(name)
            if name in self.untyped and isinstance(node, Tensor) and isinstance(guess, Tensor):
                arguments[name] = replace(node, dtype=guess.dtype)
            else:
                arguments[name] = node
        return replace(call, arguments=tuple(arguments.items()))

    def followed(self, call: Call) -> Call:
        """The call with the batch and the length that are fixed, in place of ordinary ones."""
        shapes = [node.shape for node in self.nodes.values() if isinstance(node, Tensor) and node.shape]
        batch = next((shape[0] for shape in shapes), BATCH)
        length = next((shape[1] for shape in shapes if len(shape) in (2, 3)), LENGTH)

        def follow(shape: Shape) -> Shape:
            first = (batch if size == BATCH else size for size in shape[:1])
            return (*first, *(length if size == LENGTH else size for size in shape[1:]))

        tensors = call.tensors()
        return call.having_all(
            {path: replace(each, shape=follow(each.shape)) for path, each in tensors.items()}
        )


def fixed_by(specs: Sequence[Spec], parameters: Sequence[Parameter]) -> Fixed:
    """What the user has fixed, by the names of parameters."""
    named = _named(specs, parameters)
    nodes = {name: Tensor(spec.shape, spec.dtype or FLOAT) for name, spec in named.items()}
    return Fixed(nodes, frozenset(name for name, spec in named.items() if spec.dtype is None))


def missing(specs: Sequence[Spec], parameters: Sequence[Parameter]) -> list[str]:
    """The required parameters that are not given."""
    named = _named(specs, parameters)
    return [each.name for each in parameters if each.required and not each.spread and each.name not in named]


def call_of(args: Sequence[Any], kwargs: Mapping[str, Any], parameters: Sequence[Parameter]) -> Call:
    """The description of inputs that are there."""
    places = [each.name for each in parameters if not each.spread]
    names = [*places, *(f"input_{at}" for at in range(len(places), len(args)))]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return Call(tuple((name, _node(value)) for name, value in given.items()))


def _named(specs: Sequence[Spec], parameters: Sequence[Parameter]) -> dict[str, Spec]:
    places: Iterator[str] = (each.name for each in parameters if not each.spread)
    found: dict[str, Spec] = {}
    for spec in specs:
        name = spec.name or next(places, None)
        if name is not None:
            found[name] = spec
    return found


def _node(value: Any) -> Node:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return Tensor(tuple(value.shape), str(value.dtype).rpartition(".")[2])
    if isinstance(value, Mapping):
        return Named(tuple((str(key), _node(each)) for key, each in value.items()))
    if isinstance(value, (tuple, list)):
        return Several(tuple(map(_node, value)), is_list=isinstance(value, list))
    return Plain(value)
