"""What is drawn of one call: the calls in it and its own operators, in an order in which they could run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from modelglass.analyses.flow.call_signatures import CallSignatures, wiring
from modelglass.analyses.flow.clusters import Cluster, clusters
from modelglass.analyses.flow.relevance import Relevance
from modelglass.analyses.flow.trace import Trace
from modelglass.analyses.flow.words import is_reshaping, is_unseen, is_view


@dataclass(slots=True)
class Item:
    """A call, or operators when there is none. `reads` are what it reads from outside it, in order."""

    call: int | None
    ops: Sequence[int]
    reads: tuple[int, ...]
    kind: Hashable  # equal for those that do the same
    # The numbers that others may read of it, each with a name that is the same in those that do the same.
    exports: dict[int, Hashable] = field(default_factory=dict)


@dataclass(slots=True)
class Level:
    """One call from inside. `passed` says of numbers that operators only handed on what they were before."""

    call: int
    items: list[Item]
    passed: dict[int, tuple[int, Hashable]]  # with how they were handed on
    left_out: list[int]  # operators
    made_by: dict[int, int]  # the item that made a number, of numbers that leave an item


def level(trace: Trace, relevance: Relevance, same: CallSignatures, call: int, own: list[int]) -> Level:
    """Look into one call; `own` are its own operators."""
    grouped = clusters(trace, relevance, call, own)
    items = [_of_call(trace, same, child) for child in trace.children.get(call, ())]
    passed: dict[int, tuple[int, Hashable]] = {}
    for cluster in grouped.found:
        item = _of_cluster(trace, same, cluster)
        source = _passed_number(trace, relevance, item, grouped.at)
        if source is None:
            items.append(item)
        else:
            passed.update({number: (source, (item.kind, name)) for number, name in item.exports.items()})
    items = _in_order(items, passed)
    made_by = {number: place for place, item in enumerate(items) for number in item.exports}
    return Level(call=call, items=items, passed=passed, left_out=grouped.left_out, made_by=made_by)


def _of_call(trace: Trace, same: CallSignatures, call: int) -> Item:
    first = min(trace.writes[trace.span[call][0]])
    exports: dict[int, Hashable] = {number: number - first for number in trace.exports.get(call, ())}
    return Item(
        call=call,
        ops=range(*trace.span[call]),
        reads=same.reads[call],
        kind=same.kind[call],
        exports=exports,
    )


def _of_cluster(trace: Trace, same: CallSignatures, cluster: Cluster) -> Item:
    names = {
        number: (place, index)
        for place, at in enumerate(cluster.ops)
        for index, number in enumerate(trace.writes[at])
    }
    inside = {number: place for place, number in enumerate(names)}
    wiring, reads = _wiring(trace, same, cluster, inside)
    members = set(cluster.ops)
    exports: dict[int, Hashable] = {
        number: name
        for number, name in names.items()
        if number in trace.returned or any(each not in members for each in trace.readers.get(number, ()))
    }
    return Item(call=None, ops=cluster.ops, reads=reads, kind=("operators", wiring), exports=exports)


def _wiring(
    trace: Trace, same: CallSignatures, cluster: Cluster, inside: dict[int, int]
) -> tuple[Hashable, tuple[int, ...]]:
    """As of a call: numbers inside are renamed to their places first, those outside to below zero."""
    steps = [
        (same.op_kind[at], [inside.get(number, -1 - number) for number in trace.reads[at]])
        for at in cluster.ops
    ]
    places, outside = wiring(steps, range(len(inside)))
    return places, tuple(-1 - number for number in outside)


def _passed_number(trace: Trace, relevance: Relevance, item: Item, at: dict[int, Cluster]) -> int | None:
    """The one number that operators only hand on, if they do and that is not worth a box."""
    ops = [trace.ops[each] for each in item.ops]
    if not all(is_view(op) for op in ops):
        return None
    sources = [number for number in item.reads if _is_drawn(trace, relevance, number, item.ops[0])]
    if len(sources) != 1 or len(item.reads) != 1:
        return None
    if all(is_unseen(op) or (is_reshaping(op) and trace.call[item.ops[0]] != trace.root) for op in ops):
        return sources[0]
    users = [reader for number in item.exports for reader in trace.readers.get(number, ())]
    returned = any(number in trace.returned for number in item.exports)
    to_operators = not returned and all(user in at for user in users if relevance.used[user])
    return sources[0] if to_operators else None


def _is_drawn(trace: Trace, relevance: Relevance, number: int, reader: int) -> bool:
    maker = trace.made_by.get(number)
    if maker is None:
        return number in trace.inputs
    return relevance.fed[maker] or trace.side(trace.call[maker], trace.call[reader]) is not None


def _in_order(items: list[Item], passed: dict[int, tuple[int, Hashable]]) -> list[Item]:
    """Each after what it reads; apart from that, as they began to run."""
    makers = {number: place for place, item in enumerate(items) for number in item.exports}
    after: dict[int, set[int]] = {}
    waiting = [0] * len(items)
    for place, item in enumerate(items):
        before = {makers.get(origin(number, passed)) for number in item.reads} - {None, place}
        waiting[place] = len(before)
        for each in before:
            if each is not None:
                after.setdefault(each, set()).add(place)
    ready: list[tuple[int, int]] = []
    for place, item in enumerate(items):
        if not waiting[place]:
            heappush(ready, (item.ops[0], place))
    order = []
    while ready:
        _, place = heappop(ready)
        order.append(items[place])
        for each in after.get(place, ()):
            waiting[each] -= 1
            if not waiting[each]:
                heappush(ready, (items[each].ops[0], each))
    return order


def origin(number: int, passed: dict[int, tuple[int, Hashable]]) -> int:
    """What a number was before it was only handed on."""
    while number in passed:
        number = passed[number][0]
    return number
