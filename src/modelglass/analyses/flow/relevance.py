"""Which operators are worth drawing: those that lead from the inputs to something."""

from __future__ import annotations

from dataclasses import dataclass

from modelglass.analyses.flow.trace import Trace

_Held = dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Relevance:
    """What is known of each operator, and of calls.

    `fed` operators depend on an input, or on a module that is drawn. `used` ones lead to an output or into a
    module. `held` are the parameters and buffers that a number was made from, of numbers that depend on
    nothing else.
    """

    fed: list[bool]
    used: list[bool]
    held: _Held


def relevance(trace: Trace) -> Relevance:
    """Look at every operator once from the front, and once from the back."""
    held: _Held = {}
    fed: list[bool] = []
    for at, numbers in enumerate(trace.reads):
        fed.append(any(_is_fed(trace, fed, held, at, number) for number in numbers))
        if not fed[at]:
            names = dict.fromkeys(name for number in numbers for name in held.get(number, ()))
            names.update(dict.fromkeys(trace.tensors(at)))
            if names:
                held.update(dict.fromkeys(trace.writes[at], tuple(names)))
    return Relevance(fed=fed, used=_find_used(trace), held=held)


def _is_fed(trace: Trace, fed: list[bool], held: _Held, reader: int, number: int) -> bool:
    maker = trace.made_by.get(number)
    if maker is None:
        return number in trace.inputs
    if fed[maker] or trace.side(trace.call[maker], trace.call[reader]) is None:
        return fed[maker]
    return number in held or not trace.children.get(trace.call[maker])  # what calls no other is drawn whole


def _find_used(trace: Trace) -> list[bool]:
    used = [False] * len(trace.ops)
    for at in range(len(trace.ops) - 1, -1, -1):
        used[at] = any(number in trace.returned for number in trace.writes[at]) or any(
            used[reader] or trace.side(trace.call[reader], trace.call[at]) is not None
            for number in trace.writes[at]
            for reader in trace.readers.get(number, ())
        )
    return used
