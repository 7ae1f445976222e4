"""The primitives of a traced function, with the shapes that each met, found without evaluating anything.

MLX tells them in two ways, and neither is enough. An export has shapes and arguments, but merges equal nodes
that a plain run computes each for itself, and ends at a primitive it cannot write down. A drawing has every
node, but neither shapes nor arguments. What the function returned is known in both: from there back, each
drawn array is found in the export.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import mlx.core as mx

from modelglass.frameworks.mlx.describe import dtype_name
from modelglass.frameworks.mlx.primitives import exported_name
from modelglass.report import Shape

Arrays = Sequence[mx.array]

# An arrow into a node, an arrow out of it, the node itself.
_LINES = re.compile(r'^(?:"(\w+)" -> \d|\d+ -> "(\w+)"|\{ \d+ \[label ="([^"]*)")', re.MULTILINE)
# Nothing happens to the values; what comes out are the last of those that go in.
_PASSED_ON = frozenset({"Copy", "StopGradient", "CustomTransforms"})


@dataclass(frozen=True, slots=True)
class Node:
    """One primitive; `arguments` are None where MLX does not tell them."""

    primitive: str
    arguments: tuple[Any, ...] | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """The primitives of a function in an order in which they can run; arrays are known by number.

    An array whose shape MLX does not tell is in neither `shapes` nor `dtypes`: then `untold` names the
    primitive at which the telling ended.
    """

    shapes: Mapping[int, Shape]
    dtypes: Mapping[int, str]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]  # of what the function was given, in order
    constants: frozenset[int]  # what was there before, and was not given
    outputs: tuple[int, ...]  # of what it returned, in order
    untold: str | None = None


def traced(function: Callable[[Arrays], Arrays], arrays: Arrays, *, left_out: Collection[int] = ()) -> Graph:
    """The graph of a function of arrays. It is called once, with stand-ins that have no values.

    What it returns at the places `left_out` is not exported: of what only that needs, no shapes are known.
    """
    telling = _Telling()

    def drawn(*given: mx.array) -> Arrays:
        returned = function(given)
        telling.draw(returned, given)
        told = [place not in left_out for place in range(len(returned))]
        telling.told = told
        return [array for array, is_told in zip(returned, told, strict=True) if is_told]

    untold = None
    try:
        mx.export_function(telling.hear, drawn, *arrays)
    except ValueError as error:
        untold = _untold(error)
        if untold is None:
            raise
    return telling.graph(untold)


def _untold(error: ValueError) -> str | None:
    """The primitive that cannot be exported, if that is what the error is about."""
    found = re.search(r"\[export_function\].*primitive (\w+)", str(error))
    return None if found is None else found[1]


@dataclass(slots=True)
class _Drawn:
    """A node of the drawing: arrays by the names they have there."""

    primitive: str  # as drawings call it: "Sum" for a Reduce
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


class _Telling:
    """What MLX tells of one function."""

    def __init__(self) -> None:
        self._told: dict[str, Any] = {"inputs": (), "outputs": (), "constants": ()}
        self._makers: dict[str, dict[str, Any]] = {}  # by exported array, the node that makes it
        self._drawing = ""
        self._returned: list[tuple[Shape, str]] = []
        self.told: Sequence[bool] = ()  # of what the function returned, whether it is exported

    def draw(self, returned: Arrays, given: Arrays) -> None:
        """Draw what the function returned and was given, all as inputs of one last node: it keeps order."""
        self._returned = [(tuple(array.shape), dtype_name(array.dtype)) for array in returned]
        ends = [*returned, *given]
        if ends:
            text = io.StringIO()
            mx.export_to_dot(text, mx.depends(ends[0], ends))
            self._drawing = text.getvalue()

    def hear(self, record: dict[str, Any]) -> None:
        """Keep one piece of the export."""
        kind = record["type"]
        if kind == "primitive":
            for made in record["outputs"]:
                self._makers[made[0]] = record
        else:
            self._told[kind] = record.get(kind)

    def graph(self, untold: str | None) -> Graph:
        """Both as one."""
        *nodes, last = _drawn(self._drawing) or [_Drawn("Depends")]
        same = _passed_on(nodes)
        kept = [node for node in nodes if node.primitive not in _PASSED_ON]
        for node in (*kept, last):
            node.inputs = [same.get(name, name) for name in node.inputs]
        ends = last.inputs[1:]  # the first is there twice
        returned, given = ends[: len(self._returned)], ends[len(self._returned) :]
        told = [name for name, is_told in zip(returned, self.told, strict=True) if is_told]
        exported = self._exported(kept, (*told, *given))
        return self._numbered(kept, returned, exported, untold)

    def _exported(self, nodes: Sequence[_Drawn], ends: Sequence[str]) -> dict[str, str]:
        """What each array of the drawing is called in the export."""
        told_ends = (*self._told["outputs"], *self._told["inputs"])
        names = {drawn: told[0] for drawn, told in zip(ends, told_ends, strict=True)}
        for node in reversed(nodes):
            record = self._record(node, names)
            if record is not None:
                for drawn, told in zip(node.outputs, record["outputs"], strict=True):
                    names[drawn] = told[0]
                for drawn, told in zip(node.inputs, record["inputs"], strict=True):
                    names[drawn] = told[0]
        return names

    def _record(self, node: _Drawn, names: Mapping[str, str]) -> dict[str, Any] | None:
        """The exported node that the drawn one is, or is equal to; None where the export does not have it."""
        for drawn in node.outputs:
            if drawn in names:
                return self._makers.get(names[drawn])
        return None

    def _numbered(
        self,
        nodes: Sequence[_Drawn],
        returned: Sequence[str],
        exported: Mapping[str, str],
        untold: str | None,
    ) -> Graph:
        counter = count(len(self._told["inputs"]))
        given = {told[0]: number for number, told in enumerate(self._told["inputs"])}
        numbers: dict[str, int] = {}
        made = {name for node in nodes for name in node.outputs}
        specs = self._specs()
        shapes = {given[name]: specs[name][0] for name in given}
        dtypes = {given[name]: specs[name][1] for name in given}

        def number(drawn: str) -> int:
            if drawn not in numbers:
                name = exported.get(drawn, "")
                numbers[drawn] = given[name] if name in given and drawn not in made else next(counter)
                if name in specs:
                    shapes[numbers[drawn]], dtypes[numbers[drawn]] = specs[name]
            return numbers[drawn]

        def listed(node: _Drawn) -> Node:
            record = self._record(node, exported)
            primitive = exported_name(node.primitive) if record is None else record["name"]
            arguments = None if record is None else tuple(record["arguments"])
            return Node(
                primitive, arguments, tuple(map(number, node.inputs)), tuple(map(number, node.outputs))
            )

        every = tuple(map(listed, nodes))
        outputs = tuple(map(number, returned))
        for each, (shape, dtype) in zip(outputs, self._returned, strict=True):
            shapes[each], dtypes[each] = shape, dtype
        return Graph(
            shapes=shapes,
            dtypes=dtypes,
            nodes=every,
            inputs=tuple(range(len(given))),
            constants=frozenset(
                each for name, each in numbers.items() if name not in made and each >= len(given)
            ),
            outputs=outputs,
            untold=untold,
        )

    def _specs(self) -> dict[str, tuple[Shape, str]]:
        """Shape and type of every exported array."""
        found: dict[str, tuple[Shape, str]] = {}
        for record in (self._told, *self._makers.values()):
            for name, shape, dtype in (*record["inputs"], *record["outputs"]):
                if name not in found:
                    found[name] = tuple(shape), dtype_name(dtype)
        return found


def _passed_on(nodes: Sequence[_Drawn]) -> dict[str, str]:
    """What an array is the same as, where nothing happens to its values."""
    same: dict[str, str] = {}
    for node in nodes:
        if node.primitive in _PASSED_ON:
            sources = [same.get(name, name) for name in node.inputs[-len(node.outputs) :]]
            same.update(zip(node.outputs, sources, strict=True))
    return same


def _drawn(drawing: str) -> list[_Drawn]:
    """The nodes of a drawing, in order; each is followed by its arrows."""
    nodes: list[_Drawn] = []
    for into, out_of, label in _LINES.findall(drawing):
        if into:
            nodes[-1].inputs.append(into)
        elif out_of:
            nodes[-1].outputs.append(out_of)
        else:
            nodes.append(_Drawn(label))
    return nodes
