"""The order in which MLX evaluates a graph: from what is asked for to what it needs, in layers, reversed.

Layers are walked no wider than a limit, beyond which one branch is followed before the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from modelglass.frameworks.mlx.graph.graph import Node, find_makers

WIDEST = 20  # nodes of a layer that wait; MLX's own default


def evaluation_order(nodes: Sequence[Node], wanted: Sequence[int]) -> list[int]:
    """The nodes that the wanted arrays need, by their place in `nodes`, in the order of evaluation."""
    made_by = find_makers(nodes)

    def needs(numbers: Sequence[int]) -> list[int]:
        return [made_by[number] for number in numbers if number in made_by]

    root = len(nodes)
    needed = {root: needs(wanted)}
    open_ = list(needed[root])
    while open_:
        index = open_.pop()
        if index not in needed:
            needed[index] = needs(nodes[index].inputs)
            open_.extend(needed[index])
    return _order_by_layers(root, needed, Counter(chain.from_iterable(needed.values())))


def _order_by_layers(root: int, needed: dict[int, list[int]], uses: Counter[int]) -> list[int]:
    """A node's turn comes when all that use it have had theirs."""
    tape, place = [root], 0
    interrupted: list[tuple[int, int]] = []
    while place < len(tape) or interrupted:
        if place < len(tape):
            index, since = tape[place], 0
            place += 1
        else:
            index, since = interrupted.pop()
        for at in range(since, len(needed[index])):
            if len(tape) - place >= WIDEST:
                interrupted.append((index, at))
                break
            each = needed[index][at]
            uses[each] -= 1
            if uses[each] == 0:
                tape.append(each)
    return tape[:0:-1]
