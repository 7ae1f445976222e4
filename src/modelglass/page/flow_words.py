"""What every diagram says of a node, before it is escaped for its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from modelglass.report import Flow, FlowNode, Stage
from modelglass.report.dataflow import Dims

STAGES: Mapping[Stage, str] = {
    "input": "Input",
    "embedding": "Embedding",
    "blocks": "Blocks",
    "head": "Head",
    "output": "Output",
}
NEXT = "to the next"  # what a carried edge does
EACH = "from each"  # of the repetitions, not from the last alone
# All that the text says of its own; `model-inspector` has it in another language.
ENGLISH: Mapping[str, str] = {
    **{str(stage): word for stage, word in STAGES.items()},
    "shape": "shape",
    "parameters": "parameters",
    "next": NEXT,
    "each-next": f", each {NEXT}",
    "each": "each of {name}",
    "tried": "{line} (also ran with {sizes})",
    "and": " and ",
    "tensors": "[name]: a parameter or buffer that operators read themselves",
}
MOST_SHAPES = 3  # of one node; the others are counted
MANY_PLACES = 4  # of a symbol, in one list; they are counted


def drawn_order(flow: Flow) -> Iterator[FlowNode]:
    """The nodes as they are drawn: each group right before what is in it."""
    inside = contents(flow)

    def walk(group: str | None) -> Iterator[FlowNode]:
        for node in inside[group]:
            yield node
            if node.kind == "group":
                yield from walk(node.id)

    return walk(None)


def contents(flow: Flow) -> Mapping[str | None, Sequence[FlowNode]]:
    """The nodes by the group they are drawn in."""
    inside: dict[str | None, list[FlowNode]] = defaultdict(list)
    for node in flow.nodes:
        inside[node.group].append(node)
    return inside


def used_stages(flow: Flow) -> list[Stage]:
    """The stages that have nodes, in their order."""
    used = {node.stage for node in flow.nodes}
    return [stage for stage in STAGES if stage in used]


def name_of(node: FlowNode) -> str:
    """What the node is called, and how often it repeats."""
    name = node.label or "(root)"
    return f"{name}{_to_last(node)} × {node.count:,}" if node.count > 1 else name


def _to_last(node: FlowNode) -> str:
    """Of a list's modules in a row, the number of the last: "…11" after "layers.0"."""
    ends = [path.rpartition(".") for path in node.paths]
    if len({list for list, _, _ in ends}) != 1 or not all(
        end.isascii() and end.isdigit() for *_, end in ends
    ):
        return ""
    numbers = [int(end) for *_, end in ends]
    follows = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"…{numbers[-1]}" if follows and node.label.rpartition(".")[2] == str(numbers[0]) else ""


def called(node: FlowNode) -> str:
    """What others call it: operators by the last of them, which made what is read."""
    return (node.label.rpartition(" → ")[2] if node.kind == "operators" else node.label) or "(root)"


def tensors_of(node: FlowNode) -> list[str]:
    """The parameters and buffers it reads itself, by what its module calls them."""
    return [name.removeprefix(f"{node.path}.") for name in node.tensors]


def self_repeating(flow: Flow) -> set[str]:
    """The modules that repeat, each of them reading what the one before it gave."""
    counts = {node.id: node.count for node in flow.nodes}
    return {edge.source for edge in flow.edges if edge.source == edge.target and counts[edge.source] > 1}


def shape(dims: Dims) -> str:
    """A shape as a tuple without the comma of one: "(B, L, 16)", "(B)"; "scalar" where there is none."""
    return f"({', '.join(dims)})" if dims else "scalar"


def shapes(node: FlowNode) -> str:
    """The shapes that it gives to others, the first few of them."""
    shown = [shape(dims) for dims in node.dims[:MOST_SHAPES]]
    if len(node.dims) > MOST_SHAPES:
        shown.append(f"+{len(node.dims) - MOST_SHAPES}")
    return ", ".join(shown)


def details(node: FlowNode) -> Iterator[str]:
    """Everything about the node, a line each: for tooltips."""
    yield f"{node.path or node.label or '(root)'} {node.type}".strip()
    if node.paths:
        yield f"{node.count:,} times: {node.paths[0]} … {node.paths[-1]}"
    elif node.count > 1:
        yield f"{node.count:,} times"
    if node.operators:
        yield ", ".join(node.operators)
    if node.tensors:
        yield f"reads {', '.join(node.tensors)}"
    if node.dims:
        yield f"gives {', '.join(map(shape, node.dims))}{f' {node.dtype}' if node.dtype else ''}"
    if node.params is not None:
        yield f"{node.params:,} parameters"


def legend(flow: Flow) -> Iterator[str]:
    """Each symbol with its size in this run and the places it stands for."""
    for symbol in flow.symbols:
        yield f"{symbol.name} = {symbol.size:,}: {', '.join(_count(symbol.places))}"


def _count(places: Sequence[str]) -> Iterator[str]:
    """The places, those of a list's tensors as one: "cache.*.0 × 32" for the first size of all of them."""
    alike: dict[str, list[list[str]]] = {}
    for place in places:
        parts = place.split(".")
        inner = ("*" if part.isdecimal() else part for part in parts[1:-1])
        alike.setdefault(".".join([parts[0], *inner, parts[-1]]), []).append(parts)
    for every in alike.values():
        if len(every) < MANY_PLACES:
            yield from map(".".join, every)
        else:
            columns = (set(column) for column in zip(*every, strict=True))
            name = ".".join("*" if len(column) > 1 else column.pop() for column in columns)
            yield f"{name} × {len(every):,}"
