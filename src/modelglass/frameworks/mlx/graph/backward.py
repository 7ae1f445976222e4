"""To which call a primitive of the backward pass belongs, found from what it reads and what it leads to.

MLX does not report that. Of each primitive, the first that exists decides:

- a parameter that it reads: the gradient of an input is made of the weights that the call used;
- a parameter whose gradient it makes: the call used that parameter;
- arrays of the forward pass that it reads: the call that read most of them, else the one that made them;
- whatever reads its result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from modelglass.frameworks.mlx.graph.graph import Graph, find_makers

# The same values in another shape, type or order.
_SAME = frozenset(
    """
    AsStrided AsType Broadcast BroadcastAxes Contiguous Copy ExpandDims Flatten Pad Reshape Slice Split
    Squeeze Transpose Unflatten
    """.split()
)


def match_backward_calls(
    graph: Graph,
    forward: Mapping[int, int | None],
    backward: Sequence[int],
    parameters: Mapping[int, Sequence[int]],
) -> dict[int, int | None]:
    """The call of each node of the backward pass, by the node's place.

    `forward` has the call of each node before it, None for those of the loss; `backward` are the places of
    the rest, in order. `parameters` has the gradients of each parameter, all by number.
    """
    return _CallSearch(graph, forward, backward, parameters).find_calls()


class _CallSearch:
    def __init__(
        self,
        graph: Graph,
        forward: Mapping[int, int | None],
        backward: Sequence[int],
        parameters: Mapping[int, Sequence[int]],
    ) -> None:
        self._graph = graph
        self._forward = forward
        self._backward = backward
        self._places = set(backward)
        self._parameters = parameters
        self._makers = find_makers(graph.nodes)
        self._readers = self._find_readers()
        self._uses = Counter(number for place in backward for number in graph.nodes[place].inputs)
        self._asked: Counter[int] = Counter()

    def find_calls(self) -> dict[int, int | None]:
        gradients = dict(self._find_gradient_nodes())
        calls: dict[int, int | None] = {}
        for place in self._backward:
            if self._graph.nodes[place].primitive in _SAME and place not in gradients:
                continue  # belongs to whoever reads it
            origins = self._origins(place)
            weight = next((each for each in origins if each in self._parameters), None)
            if weight is not None and self._readers[weight]:
                calls[place] = self._next_reader(weight)
            elif place in gradients:
                calls[place] = self._reader_of(gradients[place], origins)
            elif self._scores(origins):
                calls[place] = self._best(origins)
        self._inherit(calls)
        return calls

    def _find_readers(self) -> dict[int, list[int | None]]:
        """By array, the calls of the forward pass that read it, in order."""
        readers: dict[int, list[int | None]] = defaultdict(list)
        for place in sorted(self._forward):
            node = self._graph.nodes[place]
            if node.primitive not in _SAME:
                for origin in self._origins(place):
                    readers[origin].append(self._forward[place])
        return readers

    def _origins(self, place: int) -> list[int]:
        """What a node reads, before it was turned into another shape."""
        found = []
        for number in self._graph.nodes[place].inputs:
            maker = self._makers.get(number)
            while maker is not None and self._graph.nodes[maker].primitive in _SAME:
                number = self._graph.nodes[maker].inputs[0]
                maker = self._makers.get(number)
            found.append(number)
        return found

    def _is_of_forward(self, number: int) -> bool:
        maker = self._makers.get(number)
        return maker in self._forward if maker is not None else bool(self._readers[number])

    def _find_gradient_nodes(self) -> Iterator[tuple[int, int]]:
        """Nodes that work for the gradient of one parameter, each with that parameter."""
        for parameter, gradients in self._parameters.items():
            open_ = list(gradients)
            while open_:
                place = self._makers.get(open_.pop())
                if place is None or place not in self._places:
                    continue
                origins = self._origins(place)
                if any(each in self._parameters for each in origins):
                    continue  # an input's gradient, which goes on to other layers
                yield place, parameter
                if not any(map(self._is_of_forward, origins)):
                    inputs = self._graph.nodes[place].inputs
                    open_.extend(number for number in inputs if self._uses[number] == 1)

    def _next_reader(self, weight: int) -> int | None:
        """Of the calls that used a weight, the last one that has not been come back to."""
        calls = self._readers[weight]
        self._asked[weight] += 1
        return calls[-self._asked[weight] % len(calls)]

    def _reader_of(self, parameter: int, origins: Sequence[int]) -> int | None:
        """Of the calls that used a parameter, the one that read these as well."""
        calls = self._readers[parameter]
        scores = self._scores(origins)
        return max(calls, key=lambda call: scores.get(call, 0), default=None)

    def _best(self, origins: Sequence[int]) -> int | None:
        scores = self._scores(origins)
        return max(scores, key=lambda call: (scores[call], -1 if call is None else call))

    def _scores(self, origins: Sequence[int]) -> Counter[int | None]:
        scores: Counter[int | None] = Counter()
        for origin in origins:
            maker = self._makers.get(origin)
            if maker is None or maker in self._forward:
                scores.update(dict.fromkeys(self._readers[origin], 2))
            if maker is not None and maker in self._forward:
                scores[self._forward[maker]] += 1
        return scores

    def _inherit(self, calls: dict[int, int | None]) -> None:
        """Give the rest to whoever reads their results, or made what they read."""
        reader: dict[int, int | None] = {}
        for place in reversed(self._backward):
            node = self._graph.nodes[place]
            if place not in calls:
                known = [number for number in node.outputs if number in reader]
                if known:
                    calls[place] = reader[known[0]]
            if place in calls:
                reader.update(dict.fromkeys(node.inputs, calls[place]))
        for place in self._backward:
            if place not in calls:
                made = (self._makers.get(number) for number in self._graph.nodes[place].inputs)
                calls[place] = next((calls[each] for each in made if each in calls), None)
