"""Operators out of a graph: which call each primitive ran in, and which arrays it read and made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from modelglass.frameworks.mlx.graph.graph import Graph, Node, find_makers
from modelglass.frameworks.mlx.graph.primitives import attributes, public_name, roles
from modelglass.report import Json, Kernel, Op, Phase, Value


@dataclass(frozen=True)
class PlacedNode:
    """A node with the call it ran in, None for what ran in none."""

    node: Node
    call: int | None
    phase: Phase = "forward"


def find_owners(graph: Graph, crossings: Iterable[tuple[int | None, Sequence[int]]]) -> dict[int, int | None]:
    """The call in which each node ran, by the node's place.

    `crossings` are arrays in the order in which they crossed the border of a call, with the call they came
    from: whatever they are made of and was not needed before came to be there.
    """
    made_by = find_makers(graph.nodes)
    found: dict[int, int | None] = {}
    for call, arrays in crossings:
        for place in find_needed(graph, made_by, arrays, known=found):
            found[place] = call
    return found


def find_needed(
    graph: Graph, made_by: Mapping[int, int], arrays: Iterable[int], known: Iterable[int] = ()
) -> set[int]:
    """The places of the nodes that these arrays are made by, those of `known` and what they need left out."""
    known = known if isinstance(known, (set, dict)) else set(known)
    found: set[int] = set()
    pending = list(arrays)
    while pending:
        place = made_by.get(pending.pop())
        if place is not None and place not in found and place not in known:
            found.add(place)
            pending.extend(graph.nodes[place].inputs)
    return found


def build_operators(
    graph: Graph,
    placed: Sequence[PlacedNode],
    paths: Sequence[str],
    names: Mapping[int, str],
    is_free: Callable[[str], bool],
) -> tuple[Op, ...]:
    """The operators; `paths` are the modules of calls, `names` what the model's own arrays are called."""
    describing = _OperatorBuilder(graph, names, is_free)
    return tuple(
        describing.operator(index, each, "" if each.call is None else paths[each.call])
        for index, each in enumerate(placed)
    )


def digest_calls(ops: Iterable[Op], calls: int) -> dict[int, str]:
    """By call, a digest of what ran in it: the same for two calls in which the same ran alike."""
    found = [blake2b(digest_size=8) for _ in range(calls)]
    texts: dict[tuple[int, tuple[Value, ...]], bytes] = {}  # a run repeats itself
    for op in ops:
        if op.call is not None:
            key = id(op.attributes), op.inputs
            if key not in texts:
                given = [(value.shape, value.dtype) for value in op.inputs]
                texts[key] = f"{op.overload} {op.attributes} {given}\n".encode()
            found[op.call].update(texts[key])
    return {call: each.hexdigest() for call, each in enumerate(found)}


@dataclass(frozen=True, slots=True)
class _Kind:
    """What all primitives of one class with the same arguments have in common."""

    name: str
    kernel: str
    attributes: Mapping[str, Json]
    roles: tuple[str, ...]
    is_free: bool


class _OperatorBuilder:
    """Describes nodes and arrays; equal descriptions are one object, since a run repeats itself."""

    def __init__(self, graph: Graph, names: Mapping[int, str], is_free: Callable[[str], bool]) -> None:
        self._graph = graph
        self._names = names
        self._is_free = is_free
        self._kinds: dict[tuple[str, str, int], _Kind] = {}
        self._seen: dict[tuple[Any, ...], Value] = {}

    def operator(self, index: int, placed: PlacedNode, path: str) -> Op:
        """One operator."""
        node = placed.node
        kind = self._kind(node)
        given = tuple(map(self._value, kind.roles, node.inputs))
        single = len(node.outputs) == 1
        made = tuple(
            self._value("" if single else str(place), number) for place, number in enumerate(node.outputs)
        )
        kernels: tuple[Kernel, ...] = ()
        if not kind.is_free:
            kernels = (Kernel(name=kind.kernel, attributes=kind.attributes, inputs=given, outputs=made),)
        return Op(
            index=index,
            name=kind.name,
            overload=kind.kernel,
            module=path,
            call=placed.call,
            phase=placed.phase,
            attributes=kind.attributes,
            inputs=given,
            outputs=made,
            kernels=kernels,
            macs=0 if kind.is_free else None,
        )

    def _kind(self, node: Node) -> _Kind:
        key = node.primitive, str(node.arguments), len(node.inputs)
        kind = self._kinds.get(key)
        if kind is None:
            arguments, kernel = node.arguments, f"mlx.{node.primitive}"
            kind = self._kinds[key] = _Kind(
                public_name(node.primitive, arguments),
                kernel,
                attributes(node.primitive, arguments),
                roles(node.primitive, len(node.inputs), arguments),
                self._is_free(kernel),
            )
        return kind

    def _value(self, name: str, number: int) -> Value:
        shape, dtype = self._graph.shapes.get(number), self._graph.dtypes.get(number)
        key = name, shape, dtype, self._names.get(number)
        value = self._seen.get(key)
        if value is None:
            text = "array of unknown shape" if shape is None else None
            value = Value(name=name, shape=shape, dtype=dtype, text=text, tensor=key[-1])
            self._seen[key] = value
        return value
