"""What the user fixes of the inputs, and inputs that are there already, as descriptions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from modelglass.inputs.described import BATCH, FLOAT, LENGTH, Call, Named, Node, Plain, Several, Shape, Tensor
from modelglass.inputs.signature import Parameter


class Spec(Protocol):
    """A description of an input by the user; without a name it is given by its place.

    It has a `value`, or `items` and whether it `is_list`, or a `shape` and a `dtype`.
    """

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
    nodes = {name: _described(spec) for name, spec in named.items()}
    return Fixed(nodes, frozenset(name for name, spec in named.items() if is_untyped(spec)))


def is_untyped(spec: Spec) -> bool:
    """Whether this is a tensor of whatever element type."""
    return getattr(spec, "dtype", "") is None


def with_values(call: Call, specs: Sequence[Spec], parameters: Sequence[Parameter]) -> Call:
    """The call with the values themselves where the user gave some."""
    for name, spec in _named(specs, parameters).items():
        node = _valued(spec)
        if node is not None:
            call = call.having((name,), node)
    return call


def _valued(spec: Any) -> Node | None:
    if hasattr(spec, "value"):
        return Plain(spec.value)
    if not hasattr(spec, "items") or not any(map(_valued, spec.items)):
        return None
    return Several(tuple(_valued(each) or _described(each) for each in spec.items), spec.is_list)


def _described(spec: Any) -> Node:
    if hasattr(spec, "value"):
        return _node(spec.value)
    if hasattr(spec, "items"):
        return Several(tuple(map(_described, spec.items)), spec.is_list)
    return Tensor(spec.shape, spec.dtype or FLOAT)


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
