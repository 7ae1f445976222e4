"""Which calls are drawn from inside: down to a depth, or as far as people can still read it."""

from __future__ import annotations

from collections.abc import Hashable

from modelglass.analyses.flow.drawn_calls import DrawnCalls, DrawnItem

ENOUGH = 28  # boxes in a picture, from which on nothing is opened that is not repeated
READABLE = 40  # as many when it takes them to show a repeated block
ROOMY = 60  # and to get to one
LARGE = 8  # operators of a block, from which on it is opened although others beside it are not


def is_crowded(picture: DrawnCalls) -> bool:
    """Whether what the model itself calls is more than people can read."""
    return sum(1 for _ in picture.leaves(picture.trace.root)) > ROOMY


def open_to(picture: DrawnCalls, depth: int) -> None:
    """Open all calls that are nested less deep; those in which no module is at work stay whole."""
    waiting = [picture.trace.root]
    while waiting:
        for call in _closed_calls(picture, waiting.pop()):
            if picture.trace.depth[call] < depth:
                picture.look_inside(call)
                waiting.append(call)


def open_readably(picture: DrawnCalls, blocks: set[int], ends: int) -> None:
    """Open what leads to repeated blocks, one block of each make, then what is large, while there is room.

    `ends` is how many inputs and outputs are drawn.
    """
    shown = ends + sum(1 for _ in picture.leaves(picture.trace.root))
    holders = {call for block in blocks for call in picture.trace.around(block)} - blocks
    shown = _open(picture, shown, ROOMY, holders)
    for block, room in _clear_blocks(picture, blocks):
        more = _count_added(picture, [block])
        if shown + more <= room:
            picture.look_inside(block)
            shown = _open_all(picture, shown + more, block)
    rest = {call for call in picture.trace.span if _consists(picture, call)} - blocks
    _open(picture, shown, ENOUGH, rest)


def _closed_calls(picture: DrawnCalls, call: int) -> list[int]:
    calls = [each.call for each, _ in picture.leaves(call)]
    return [call for call in calls if call is not None and picture.can_open(call)]


def _consists(picture: DrawnCalls, call: int) -> bool:
    """Whether there is something to see in a call: several modules, or one that does all of the work."""
    children = picture.trace.children.get(call, ())
    return len(children) > 1 or any(_size(picture, child) == _size(picture, call) for child in children)


def _open(picture: DrawnCalls, shown: int, room: int, wanted: set[int]) -> int:
    """Open the largest first, and what comes to light in it, as long as there is room; how much is shown.

    Calls of one class beside each other are opened together, lest equals look different.
    """
    refused: set[int] = set()
    while True:
        beside: dict[Hashable, list[int]] = {}
        for call in _closed_calls(picture, picture.trace.root):
            if call in wanted and call not in refused:
                beside.setdefault((picture.trace.parent[call], picture.trace.type[call]), []).append(call)
        if not beside:
            return shown
        largest = max(beside.values(), key=lambda calls: sum(_size(picture, call) for call in calls))
        more = _count_added(picture, largest)
        if shown + more > room:
            refused.update(largest)
            continue
        shown += more
        for call in largest:
            picture.look_inside(call)


def _open_all(picture: DrawnCalls, shown: int, block: int) -> int:
    """Open what a block consists of, and that again: all of it or nothing."""
    while waiting := [call for call in _closed_calls(picture, block) if _consists(picture, call)]:
        more = _count_added(picture, waiting)
        if shown + more > READABLE:
            break
        for call in waiting:
            picture.look_inside(call)
        shown += more
    return shown


def _clear_blocks(picture: DrawnCalls, blocks: set[int]) -> list[tuple[int, int]]:
    """One drawn block of each make, those that stand for most first, and how many boxes it may take."""
    makes: dict[Hashable, list[tuple[int, int]]] = {}
    for each, times in picture.leaves(picture.trace.root):
        if each.call in blocks and picture.can_open(each.call):
            makes.setdefault(_make(picture, each.call), []).append((times, each.call))
    best = [(*max(drawn, key=lambda each: each[0]), len(drawn)) for drawn in makes.values()]
    best.sort(key=lambda each: -each[0])
    return [
        (call, READABLE if times > 1 or equals == 1 else ENOUGH)
        for times, call, equals in best
        if times > 1 or equals == 1 or _size(picture, call) >= LARGE
    ]


def _make(picture: DrawnCalls, call: int) -> Hashable:
    """What is the same for blocks of other sizes: their class, and the classes at work in them."""
    return picture.trace.type[call], frozenset(
        picture.trace.type[each] for each in picture.trace.children[call]
    )


def _size(picture: DrawnCalls, call: int) -> int:
    first, stop = picture.trace.span[call]
    return stop - first


def _count_added(picture: DrawnCalls, calls: list[int]) -> int:
    """How many boxes more there are when calls are open."""
    return sum(_boxes(picture.look(call).drawn) - 1 for call in calls)


def _boxes(drawn: list[DrawnItem]) -> int:
    return sum(_boxes(each.parts) if each.parts else 1 for each in drawn)
