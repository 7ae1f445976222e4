"""What has no counterpart, or the wrong one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from modelglass.report import Note
from modelglass.report.comparison import Deviation, Pair

if TYPE_CHECKING:
    from modelglass.analyses.compare.common_form.parts import Match, Part, Slot
    from modelglass.analyses.compare.differences import Sides
    from modelglass.analyses.compare.sides import Side
    from modelglass.report import Engine

# Layers that do nothing to what an inspected model computes.
_IDLE = ("Dropout", "Identity", "DropPath")
_FEW = 0.1  # of its weights: what may have found a counterpart of a member of a list that is missing


def unmatched_pairs(root: Part, met: Set[str], *, of_a: bool, side: Side) -> Iterator[tuple[Part, Pair]]:
    """The largest parts nothing of which has a counterpart: a missing block is one, not all its layers."""
    state = _states(root, met)
    waiting = [root]
    while waiting:
        part = waiting.pop()
        some, missing = state[id(part)]
        constants = [slot for slot in part.slots.values() if slot.constant]
        if constants:
            if not met >= set(constants[0].names):
                yield part, _constant_pair(constants[0], of_a, side)
        elif missing and part is not root and (not some or _is_mostly_missing(part, met)):
            yield part, _lone_pair(part.below(), of_a, met)
            continue
        elif missing and any(not met >= set(names) for names in _own_names(part)):
            yield part, _lone_pair([part], of_a, met)
        waiting.extend(reversed(part.children.values()))


def _own_names(part: Part) -> Iterator[tuple[str, ...]]:
    return (slot.names for slot in part.slots.values() if slot.tensor.kind != "buffer")


def _states(root: Part, met: Set[str]) -> dict[int, tuple[bool, bool]]:
    """Of each part, whether any weight in or below it has a counterpart, and whether any has none."""
    found: dict[int, tuple[bool, bool]] = {}
    for part in reversed(list(root.below())):
        below = [found[id(child)] for child in part.children.values()]
        own = [name in met for names in _own_names(part) for name in names]
        some = any(own) or any(each for each, _ in below)
        missing = not all(own) or any(each for _, each in below)
        found[id(part)] = some, missing
    return found


def _constant_pair(slot: Slot, of_a: bool, side: Side) -> Pair:
    """A buffer without a counterpart: the other may compute it, unless it is stored with the weights."""
    name = slot.names[0]
    stored = side.unsaved is not None and name not in side.unsaved
    code = "buffer" if not stored else "missing-in-b" if of_a else "extra-in-b"
    text = "a constant that the other may compute"
    if stored:
        text = "a stored buffer without a counterpart"
    elif side.served:
        text = "a constant that only the engine keeps"
    deviation = Deviation(
        code=code,
        standing="different" if stored else "framework",
        text=text,
        tensor_a=name if of_a else None,
        tensor_b=None if of_a else name,
    )
    return Pair(a=name if of_a else None, b=None if of_a else name, deviations=(deviation,))


def _is_mostly_missing(part: Part, met: Set[str]) -> bool:
    """Whether a member of a list has no counterpart, though a few of its weights have found theirs."""
    if part.met or part.is_leaf or not part.token.isdecimal():
        return False
    slots = [slot for each in part.below() for slot in each.slots.values() if slot.tensor.kind != "buffer"]
    known = sum(slot.numel for slot in slots if met >= set(slot.names))
    return known < _FEW * sum(slot.numel for slot in slots)


def _lone_pair(held: Iterable[Part], of_a: bool, met: Set[str]) -> Pair:
    parts = list(held)
    part = parts[0]
    slots = [
        slot
        for each in parts
        for slot in each.slots.values()
        if slot.tensor.kind != "buffer" and not met >= set(slot.names)
    ]
    tied = next((slot.tied for slot in slots if slot.tied is not None), None)
    names = [name for slot in slots for name in slot.names]
    if tied is not None and all(slot.tied is not None for slot in slots):
        text = f"the same memory as {tied}: the other uses that twice"
        deviation = Deviation(code="tied", standing="framework", text=text)
    else:
        numel = sum(slot.numel for slot in slots if slot.tied is None)
        count = "1 tensor" if len(names) == 1 else f"{len(names):,} tensors"
        code = "missing-in-b" if of_a else "extra-in-b"
        text = f"{count}, {numel:,} parameters"
        shape = "x".join(map(str, slots[0].own_shape or ())) if len(slots) == 1 else ""
        deviation = Deviation(
            code=code,
            standing="different",
            text=text,
            a=shape if of_a else "",
            b="" if of_a else shape,
            tensor_a=names[0] if of_a and len(names) == 1 else None,
            tensor_b=names[0] if not of_a and len(names) == 1 else None,
        )
    path = _full_path(part)
    return Pair(
        a=path if of_a else None,
        b=None if of_a else path,
        type_a=part.type if of_a else "",
        type_b="" if of_a else part.type,
        deviations=(deviation,),
    )


def _full_path(part: Part) -> str:
    """Where it is: a parameter that a module holds beside others is called by its own name."""
    name = next((slot.names[0] for slot in part.slots.values()), "")
    return part.path if part.type or not name or part.children else name.removesuffix(".weight")


def find_exchanged(matches: Sequence[Match]) -> Mapping[int, tuple[Deviation, ...]]:
    """By the index of a match: namesakes that fit each other's counterparts rather than their own."""
    named = [
        (place, match)
        for place, match in enumerate(matches)
        if match.how == "name" and match.a.sort != match.b.sort and match.a.weighs and match.b.weighs
    ]
    homes = {(_parent(match.a), match.a.sort, match.b.sort): match for _, match in named}
    found = {}
    for place, match in named:
        other = homes.get((_parent(match.a), match.b.sort, match.a.sort))
        if other is not None and other is not match:
            fits = f"{_full_path(other.a)} fits {_full_path(match.b)}"
            text = f"it fits {_full_path(other.b)}, and {fits}: they are exchanged"
            deviation = Deviation(
                code="order", standing="different", text=text, a=match.a.path, b=match.b.path
            )
            found[place] = (deviation,)
    return found


def _parent(part: Part) -> str:
    return part.path.rpartition(".")[0]


def note_weightless(root_a: Part, root_b: Part, matches: Sequence[Match], sides: Sides) -> Iterator[Note]:
    """Layers without weights that only one has as modules; the other may use functions."""
    if not sides.live:
        return
    met = {id(part) for match in matches for part in (match.a, match.b)}
    for root, name in ((root_a, "a"), (root_b, "b")):
        found = [part for part in root.below() if _is_layer(part) and id(part) not in met]
        if found:
            yield Note(
                code="without-weights",
                text=f"layers without weights that only {name} has as modules; the other may use functions",
                where=tuple(part.path for part in found),
                details=tuple(part.type for part in found),
            )


def note_stages(name: str, engine: Engine | None) -> Iterator[Note]:
    """That a rank holds some layers of a model, and other ranks the others."""
    if engine is not None and engine.pipeline_parallel > 1:
        yield Note(
            code="stage",
            text=f"{name} is one of {engine.pipeline_parallel} stages of a pipeline; others hold the layers "
            "that it has not",
            severity="warning",
        )


def _is_layer(part: Part) -> bool:
    return part.kind is not None and not part.slots and not part.children and not part.type.startswith(_IDLE)
