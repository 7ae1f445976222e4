"""Embedding, blocks and head: from what is repeated and what is before and after it.

No name means anything here. Only that a module is an element of a list is read from its path, as lists name
their elements by number: a single block in a list is a block, one that is held by itself is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from modelglass.analyses.flow.call_signatures import CallSignatures
from modelglass.analyses.flow.trace import Trace
from modelglass.report import Stage

LAYERS = 4  # operators of a call, from which on it can be a block
MOST = 0.4  # of a model's operators are in its blocks
LISTED = 0.3  # of them are when lists hold the blocks


def repeated_blocks(trace: Trace, same: CallSignatures) -> set[int]:
    """The calls that a model mainly consists of, none inside another; empty when it repeats none.

    They do the same as a call beside them. Those of their class in the same kind of place belong to them.
    Where no two do the same, they are what lists hold, or else calls of one class beside each other.
    """
    inner = [call for call in trace.span if call != trace.root and _is_substantial(trace, call)]
    place = {call: (trace.type[call], trace.type[trace.parent[call]]) for call in inner}
    twice = Counter((trace.parent[call], same.kind[call]) for call in inner)
    repeated = [call for call in inner if twice[trace.parent[call], same.kind[call]] > 1]
    places = {place[call] for call in _main(trace, repeated)}
    beside = Counter((trace.parent[call], place[call]) for call in inner)
    for share, found in (
        (MOST, [call for call in inner if place[call] in places]),
        (LISTED, [call for call in inner if _is_listed(trace, call)]),
        (MOST, [call for call in inner if beside[trace.parent[call], place[call]] > 1]),
    ):
        blocks = _outermost(trace, found)
        held = sum(stop - first for first, stop in (trace.span[call] for call in blocks))
        if held > len(trace.ops) * share:
            return blocks
    return set()


def _is_substantial(trace: Trace, call: int) -> bool:
    """Whether it does more than one layer: a norm with its activation does not, one fused operator may."""
    first, stop = trace.span[call]
    return call in trace.composite and (stop - first >= LAYERS or not trace.children.get(call))


def _outermost(trace: Trace, calls: Iterable[int]) -> set[int]:
    found = set(calls)
    return {call for call in found if not any(each in found for each in _outside(trace, call))}


def _main(trace: Trace, repeated: Iterable[int]) -> set[int]:
    """The outermost ones, without those inside what is only beside a block."""
    found = _outermost(trace, repeated)
    holders = {trace.parent[call] for call in found}
    return {
        call for call in found if not any(trace.parent.get(each) in holders for each in _outside(trace, call))
    }


def _outside(trace: Trace, call: int) -> Iterable[int]:
    around = trace.around(call)
    next(around)
    return around


def _is_listed(trace: Trace, call: int) -> bool:
    """Whether the module is an element of a list, which nobody calls."""
    holder, _, name = trace.module[call].rpartition(".")
    return name.isdecimal() and holder != trace.module[trace.parent[call]]


def assign_stages(
    nodes: Iterable[str], edges: Iterable[tuple[str, str]], blocks: set[str]
) -> dict[str, Stage]:
    """The stage of each node that computes something. Without blocks, all of it is what blocks are else."""
    names = list(nodes)
    if not blocks:
        return dict.fromkeys(names, "blocks")
    after: dict[str, list[str]] = {}
    before: dict[str, list[str]] = {}
    for source, target in edges:
        after.setdefault(source, []).append(target)
        before.setdefault(target, []).append(source)
    reached, reaching = _reach(blocks, after), _reach(blocks, before)
    late = _reach(reached, before)
    stages: dict[str, Stage] = {}
    for name in names:
        if name in reached:
            stages[name] = "blocks" if name in reaching else "head"
        else:
            stages[name] = "head" if name in late and name not in reaching else "embedding"
    return stages


def _reach(start: Iterable[str], ways: Mapping[str, list[str]]) -> set[str]:
    found = set(start)
    waiting = list(found)
    while waiting:
        for name in ways.get(waiting.pop(), ()):
            if name not in found:
                found.add(name)
                waiting.append(name)
    return found
