"""Which calls did the same: of equal modules, the same operators on the same shapes, wired alike."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from modelglass.analyses.equal_blocks import Numbers, Structures, work
from modelglass.analyses.flow.trace import Trace
from modelglass.report import Model


@dataclass(frozen=True, slots=True)
class CallSignatures:
    """`kind` is equal for calls that did the same; `reads` are what they read from outside, in order."""

    kind: dict[int, int]
    reads: dict[int, tuple[int, ...]]
    op_kind: list[int]


def find_signatures(trace: Trace, model: Model, *, sizes: bool = True) -> CallSignatures:
    """Compare all calls, from the innermost out, each operator once; without sizes, shapes may differ."""
    structures = Structures(model, Numbers()) if sizes else None
    known: dict[Hashable, int] = {}
    found = CallSignatures(
        kind={}, reads={}, op_kind=[_op_kind(trace, known, at, sizes) for at in range(len(trace.ops))]
    )
    own: dict[int, list[int]] = {}
    for at, call in enumerate(trace.call):
        own.setdefault(call, []).append(at)
    for call in sorted(trace.span, key=lambda call: -trace.depth[call]):
        parts = [(at, found.op_kind[at], trace.reads[at]) for at in own.get(call, ())]
        inner = trace.children.get(call, ())
        parts += [(trace.span[each][0], found.kind[each], found.reads[each]) for each in inner]
        first = min(trace.writes[trace.span[call][0]])
        steps = [(kind, reads) for _, kind, reads in sorted(parts)]
        shape, found.reads[call] = wiring(steps, range(first, _after(trace, call)))
        kind = trace.type[call] if structures is None else structures.of(trace.module[call])
        found.kind[call] = _number(known, ("call", kind, shape))
    return found


def wiring(steps: Iterable[tuple[int, Sequence[int]]], inside: range) -> tuple[Hashable, tuple[int, ...]]:
    """How steps are wired, by places instead of numbers, and the numbers they read from outside."""
    outside: dict[int, int] = {}
    shape = []
    for kind, reads in steps:
        places = tuple(
            number - inside.start if number in inside else -1 - outside.setdefault(number, len(outside))
            for number in reads
        )
        shape.append((kind, places))
    return tuple(shape), tuple(outside)


def _after(trace: Trace, call: int) -> int:
    return max(trace.writes[trace.span[call][1] - 1]) + 1


def _op_kind(trace: Trace, known: dict[Hashable, int], at: int, sizes: bool) -> int:
    op = trace.ops[at]
    if not sizes:
        return _number(known, (op.name, len(trace.writes[at])))
    return _number(known, (op.name, work(op), len(trace.writes[at])))


def _number(known: dict[Hashable, int], key: Hashable) -> int:
    return known.setdefault(key, len(known))
