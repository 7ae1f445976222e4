"""How data flows through a model: what is drawn, in no drawing's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from modelglass.printing import Printed
from modelglass.report.dataflow import Dims, Symbol
from modelglass.report.report import Note

NodeKind: TypeAlias = Literal["input", "output", "module", "operators", "group"]
Stage: TypeAlias = Literal["input", "embedding", "blocks", "head", "output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowNode:
    """One box of a diagram.

    An "input" or "output" is one tensor by name. A "module" is one call of a module, drawn whole. "operators"
    ran in `path` itself, where no module did the work: `operators` names them in order. A "group" is a call
    whose inside is drawn: nodes name it as their `group`. `count` calls in a row that do the same are drawn
    once, and `paths` are their modules.
    """

    id: str  # "n0", "n1" …: the order of drawing, groups before what is in them
    kind: NodeKind
    label: str  # what it is called: the input's name, the module's path below its group, "add"
    stage: Stage
    path: str = ""  # of the module, or of the module whose operators they are
    type: str = ""  # the module's class
    group: str | None = None  # the id of the group it is drawn in
    count: int = 1
    paths: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()  # parameters and buffers that operators read themselves
    dims: tuple[Dims, ...] = ()  # the shapes of what it gives to others, each once
    dtype: str | None = None  # of inputs and outputs
    params: int | None = None  # of a module or group, all `count` of them; None: it has none of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEdge:
    """Data that goes from one node to another; never to or from a group.

    A `carried` edge goes from one repetition of a group or module to the next one. What leaves a repetition
    comes from the last of them, unless it comes from `each`.
    """

    source: str
    target: str
    dims: Dims = ()
    carried: bool = False
    each: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow(Printed):
    """The dataflow of one forward pass, down to some depth. Nodes are in the order in which they ran."""

    name: str
    nodes: tuple[FlowNode, ...]
    edges: tuple[FlowEdge, ...]
    symbols: tuple[Symbol, ...] = ()
    depth: int | None = None  # None: as deep as keeps it readable
    notes: tuple[Note, ...] = ()

    def __post_init__(self) -> None:
        groups = {node.id for node in self.nodes if node.kind == "group"}
        ids = {node.id for node in self.nodes}
        if len(ids) != len(self.nodes):
            raise ValueError("two nodes have the same id")
        ends = {end for edge in self.edges for end in (edge.source, edge.target)}
        if not ends <= ids - groups:
            raise ValueError(f"edges of unknown nodes or of groups: {sorted(ends - (ids - groups))}")
        if not {node.group for node in self.nodes} - {None} <= groups:
            raise ValueError("a node is in an unknown group")
