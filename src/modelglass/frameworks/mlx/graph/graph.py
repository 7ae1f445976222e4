"""The primitives of a traced function, with the shapes that each met, found without evaluating anything.

MLX reports them in two ways, and neither is enough. An export has shapes and arguments, but merges equal
nodes that a plain run computes each for itself, and ends at a primitive it cannot write down. A drawing has
every node, but neither shapes nor arguments. What the function returned is known in both: from there back,
each drawn array is found in the export.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

import mlx.core as mx

from modelglass.frameworks.mlx.describe import dtype_name
from modelglass.frameworks.mlx.graph.primitives import exported_name
from modelglass.report import Shape

Arrays = Sequence[mx.array]

# An arrow into a node, an arrow out of it, the node itself.
_LINES = re.compile(r'^(?:"(\w+)" -> \d|\d+ -> "(\w+)"|\{ \d+ \[label ="([^"]*)")', re.MULTILINE)
# Nothing happens to the values; what comes out are the last of those that go in.
_PASSED_ON = frozenset({"Copy", "StopGradient", "CustomTransforms"})


@dataclass(frozen=True, slots=True)
class Node:
    """One primitive; `arguments` are None where MLX does not report them."""

    primitive: str
    arguments: tuple[Any, ...] | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """The primitives of a function in an order in which they can run; arrays are known by number.

    An array whose shape MLX does not report is in neither `shapes` nor `dtypes`: then `unexported` names the
    primitive at which the export ended.
    """

    shapes: Mapping[int, Shape]
    dtypes: Mapping[int, str]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]  # of what the function was given, in order
    constants: frozenset[int]  # what was there before, and was not given
    outputs: tuple[int, ...]  # of what it returned, in order
    unexported: str | None = None
    behind: frozenset[int] = frozenset()  # places of the outputs that need such a primitive


def find_makers(nodes: Sequence[Node]) -> dict[int, int]:
    """By array, the place of the node that makes it."""
    return {number: place for place, node in enumerate(nodes) for number in node.outputs}


def trace(function: Callable[[Arrays], Arrays], arrays: Arrays, *, left_out: Collection[int] = ()) -> Graph:
    """The graph of a function of arrays. It is called once, with substitutes that have no values.

    What it returns at the places `left_out` is not exported: of what only that needs, no shapes are known.
    """
    reader = _GraphReader()

    def drawn(*given: mx.array) -> Arrays:
        returned = function(given)
        reader.draw(returned, given)
        is_exported = [place not in left_out for place in range(len(returned))]
        reader.is_exported = is_exported
        return [array for array, included in zip(returned, is_exported, strict=True) if included]

    unexported = None
    try:
        mx.export_function(reader.read_export, drawn, *arrays)
    except ValueError as error:
        unexported = _find_unexportable(error)
        if unexported is None:
            raise
    return reader.graph(unexported)


def _find_unexportable(error: ValueError) -> str | None:
    """The primitive that cannot be exported, if that is what the error, a plain ValueError, is about."""
    found = re.search(r"\[export_function\].*primitive (\w+)", str(error))
    return None if found is None else found[1]


@dataclass(slots=True)
class _DrawnNode:
    """A node of the drawing: arrays by the names they have there."""

    primitive: str  # as drawings call it: "Sum" for a Reduce
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class _ExportedNode(NamedTuple):
    """A node of the export: arrays by the names they have there."""

    primitive: str
    arguments: tuple[Any, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


_Spec = tuple[Shape, str]  # shape and type of an array


class _GraphReader:
    """What MLX reports of one function."""

    def __init__(self) -> None:
        self.is_exported: Sequence[bool] = ()  # of what the function returned, whether it is exported
        self._ends: dict[str, tuple[str, ...]] = {"inputs": (), "outputs": ()}  # of the export
        self._makers: dict[str, _ExportedNode] = {}  # by exported array
        self._specs: dict[str, _Spec] = {}
        self._equal: dict[_Spec, _Spec] = {}  # equal ones are one object: there are few
        self._drawing = ""
        self._returned: list[_Spec] = []

    def draw(self, returned: Arrays, given: Arrays) -> None:
        """Draw what the function returned and was given, all as inputs of one last node: it keeps order."""
        self._returned = [(tuple(array.shape), dtype_name(array.dtype)) for array in returned]
        ends = [*returned, *given]
        if ends:
            text = io.StringIO()
            mx.export_to_dot(text, mx.depends(ends[0], ends))
            self._drawing = text.getvalue()

    def read_export(self, record: dict[str, Any]) -> None:
        """Keep one piece of the export."""
        kind = record["type"]
        if kind == "primitive":
            inputs, outputs = self._keep_specs(record["inputs"]), self._keep_specs(record["outputs"])
            found = _ExportedNode(record["name"], tuple(record["arguments"]), inputs, outputs)
            for name in outputs:
                self._makers[name] = found
        elif kind in self._ends:
            self._ends[kind] = self._keep_specs(record[kind])

    def _keep_specs(self, arrays: Iterable[tuple[str, Sequence[int], mx.Dtype]]) -> tuple[str, ...]:
        """The names of exported arrays; what they are is kept."""
        names = []
        for name, shape, dtype in arrays:
            names.append(name)
            if name not in self._specs:
                spec = tuple(shape), dtype_name(dtype)
                self._specs[name] = self._equal.setdefault(spec, spec)
        return tuple(names)

    def graph(self, unexported: str | None) -> Graph:
        """Both as one."""
        *nodes, last = _parse_drawing(self._drawing) or [_DrawnNode("Depends")]
        behind = _find_behind(nodes, last.inputs[1:], unexported)
        same = _find_unchanged(nodes)
        kept = [node for node in nodes if node.primitive not in _PASSED_ON]
        for node in (*kept, last):
            node.inputs = [same.get(name, name) for name in node.inputs]
        ends = last.inputs[1:]  # the first is there twice
        returned, given = ends[: len(self._returned)], ends[len(self._returned) :]
        names = [name for name, included in zip(returned, self.is_exported, strict=True) if included]
        exported = self._match_names(kept, (*names, *given))
        graph = self._number_nodes(kept, returned, exported)
        return replace(graph, unexported=unexported, behind=frozenset(behind & set(range(len(returned)))))

    def _match_names(self, nodes: Sequence[_DrawnNode], ends: Sequence[str]) -> dict[str, str]:
        """What each array of the drawing is called in the export."""
        names = dict(zip(ends, (*self._ends["outputs"], *self._ends["inputs"]), strict=True))
        for node in reversed(nodes):
            found = self._find_exported(node, names)
            if found is not None:
                names.update(zip(node.outputs, found.outputs, strict=True))
                names.update(zip(node.inputs, found.inputs, strict=True))
        return names

    def _find_exported(self, node: _DrawnNode, names: Mapping[str, str]) -> _ExportedNode | None:
        """The exported node that the drawn one is, or is equal to; None where the export does not have it."""
        for drawn in node.outputs:
            if drawn in names:
                return self._makers.get(names[drawn])
        return None

    def _number_nodes(
        self,
        nodes: Sequence[_DrawnNode],
        returned: Sequence[str],
        exported: Mapping[str, str],
    ) -> Graph:
        made = {name for node in nodes for name in node.outputs}
        numbering = _Numbering(self._ends["inputs"], self._specs, exported, made)
        listed = []
        for node in nodes:
            found = self._find_exported(node, exported)
            primitive = exported_name(node.primitive) if found is None else found.primitive
            arguments = None if found is None else found.arguments
            inputs = tuple(map(numbering.number, node.inputs))
            listed.append(Node(primitive, arguments, inputs, tuple(map(numbering.number, node.outputs))))
        outputs = tuple(map(numbering.number, returned))
        for number, spec in zip(outputs, self._returned, strict=True):
            numbering.shapes[number], numbering.dtypes[number] = spec
        return Graph(
            shapes=numbering.shapes,
            dtypes=numbering.dtypes,
            nodes=tuple(listed),
            inputs=tuple(numbering.given.values()),
            constants=frozenset(numbering.constants()),
            outputs=outputs,
        )


class _Numbering:
    """Numbers of drawn arrays: those of what the function was given first, then as they come."""

    def __init__(
        self,
        given: Sequence[str],
        specs: Mapping[str, _Spec],
        exported: Mapping[str, str],
        made: Collection[str],
    ) -> None:
        self.given = {name: number for number, name in enumerate(given)}
        self.shapes = {number: specs[name][0] for name, number in self.given.items()}
        self.dtypes = {number: specs[name][1] for name, number in self.given.items()}
        self._specs = specs
        self._match_names = exported
        self._made = made
        self._numbers: dict[str, int] = {}
        self._counter = count(len(given))

    def number(self, drawn: str) -> int:
        """The number of an array by its name in the drawing."""
        if drawn not in self._numbers:
            name = self._match_names.get(drawn, "")
            known = None if drawn in self._made else self.given.get(name)
            number = self._numbers[drawn] = next(self._counter) if known is None else known
            if name in self._specs:
                self.shapes[number], self.dtypes[number] = self._specs[name]
        return self._numbers[drawn]

    def constants(self) -> Iterator[int]:
        """Of what was numbered, that which nothing makes and nobody gave."""
        for drawn, number in self._numbers.items():
            if drawn not in self._made and number >= len(self.given):
                yield number


def _find_unchanged(nodes: Sequence[_DrawnNode]) -> dict[str, str]:
    """What an array is the same as, where nothing happens to its values."""
    same: dict[str, str] = {}
    for node in nodes:
        if node.primitive in _PASSED_ON:
            sources = [same.get(name, name) for name in node.inputs[-len(node.outputs) :]]
            same.update(zip(node.outputs, sources, strict=True))
    return same


def _find_behind(nodes: Sequence[_DrawnNode], ends: Sequence[str], unexported: str | None) -> set[int]:
    """The places of the ends that need a primitive of that name."""
    found: set[str] = set()
    for node in nodes:
        if exported_name(node.primitive) == unexported or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return {place for place, name in enumerate(ends) if name in found}


def _parse_drawing(drawing: str) -> list[_DrawnNode]:
    """The nodes of a drawing, in order; each is followed by its arrows."""
    nodes: list[_DrawnNode] = []
    for into, out_of, label in _LINES.findall(drawing):
        if into:
            nodes[-1].inputs.append(into)
        elif out_of:
            nodes[-1].outputs.append(out_of)
        else:
            nodes.append(_DrawnNode(label))
    return nodes
