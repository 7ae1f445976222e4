"""Whether two tensors are the same weights, though their dimensions stand in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from modelglass.analyses.compare.common_form import conventions
from modelglass.analyses.compare.common_form.conventions import channels_first, channels_last

if TYPE_CHECKING:
    from modelglass.analyses.compare.common_form.parts import Match, Part, Slot
    from modelglass.analyses.compare.sides import Side, Sides
    from modelglass.report import Shape

# "turned": another order, which frameworks or libraries explain. "left": that of the wrong framework.
Verdict: TypeAlias = Literal["same", "turned", "left", "other"]

# Of transformers' Conv1D, which keeps (inputs, outputs): the names that it has in files.
_TRANSPOSED = ("c_attn", "c_fc", "c_proj", "q_attn")


def compare_layouts(match: Match, one: Slot, other: Slot, sides: Sides) -> Verdict:
    """How the shapes of two weights agree, both of which are known."""
    if match.how in ("joined", "stacked") and one.shape == other.shape:
        return "same"
    if one.numel == other.numel == 1:
        return "same" if one.own_shape == other.own_shape else "turned"
    if sides.a.stored and sides.b.stored:
        return _of_two_files(one, other, sides)
    if sides.b.stored:
        return _of_file(match, other, sides.b, one, match.a, sides.a)
    if sides.a.stored:
        return _of_file(match, one, sides.a, other, match.b, sides.b)
    if one.shape == other.shape:
        return "same" if one.own_shape == other.own_shape else "turned"
    if (_are_experts(match) or sides.served) and _by_matrix(one.shape, other.shape):
        return "turned"
    if _is_vector(one) and _is_vector(other) and one.numel == other.numel:
        return "turned"  # written with dimensions of 1 by one of them
    if sides.served and are_one_below_the_other(one.shape, other.shape):
        return "turned"
    return "left" if one.own_shape == other.own_shape else "other"


def _of_file(match: Match, kept: Slot, file: Side, live: Slot, part: Part, owner: Side) -> Verdict:
    """A weight of a file beside that of a model, which says what it is of."""
    found, own = kept.own_shape or (), live.own_shape or ()
    foreign = file.layout is not None and file.layout != owner.source
    if conventions.is_convolution(part.kind) and len(own) >= 3:
        forms = {layout: _form(live, part, owner.source, layout) for layout in ("torch", "mlx")}
        if found == (own if not foreign else forms[str(file.layout)]):
            return "same" if found == own else "turned"
        if found in forms.values():
            return "turned" if file.layout is None else "left"
        return "other"
    if found == own:
        return "same"
    if file.layout == owner.source:
        return "other"
    if len(own) == 2:
        return "turned" if found == own[::-1] and (_is_transposed(part) or _is_named(kept)) else "other"
    if _are_experts(match) and _by_matrix(found, own):
        return "turned"
    return "turned" if not part.type and len(own) >= 3 and _turns(found, own) else "other"


def _form(live: Slot, part: Part, source: str, layout: str) -> Shape:
    """The shape that a convolution's weight has in the layout of a framework."""
    if source == layout:
        return live.own_shape or ()
    shape = live.shape or ()
    if layout == "mlx":
        return channels_last(shape)
    is_transposed = part.kind is not None and part.kind.startswith("transposed")
    return (shape[1], shape[0], *shape[2:]) if is_transposed else shape


def _of_two_files(one: Slot, other: Slot, sides: Sides) -> Verdict:
    left, right = one.own_shape or (), other.own_shape or ()
    if left == right:
        return "same"
    if len(left) != len(right) or sides.a.layout == sides.b.layout is not None:
        return "other"
    if len(left) == 2:
        return "turned" if left == right[::-1] and (_is_named(one) or _is_named(other)) else "other"
    return "turned" if len(left) >= 3 and (_turns(left, right) or _turns(right, left)) else "other"


def _is_transposed(part: Part) -> bool:
    return part.kind == "transposed linear"


def _is_named(slot: Slot) -> bool:
    """Whether a file's weight is called as those that are kept transposed."""
    return slot.names[0].removesuffix(".weight").endswith(_TRANSPOSED)


def _turns(shape: Shape, known: Shape) -> bool:
    """Whether a shape is a known one with channels last, or with outputs and inputs exchanged."""
    exchanged = (shape[1], shape[0], *shape[2:])
    last = channels_first(shape)
    return known in (exchanged, last, (last[1], last[0], *last[2:]))


def _are_experts(match: Match) -> bool:
    parts = (match.a, match.b)
    return not any(conventions.is_convolution(part.kind) for part in parts) and any(
        part.type for part in parts
    )


def _is_vector(slot: Slot) -> bool:
    return sum(size > 1 for size in slot.shape or ()) == 1


def are_one_below_the_other(one: Shape | None, other: Shape | None) -> bool:
    """Whether one is a stack of matrices, and the other has them one below the other, turned or not."""
    stack, flat = sorted((one or (), other or ()), key=len, reverse=True)
    if (len(stack), len(flat)) != (3, 2):
        return False
    experts, rows, columns = stack
    return flat in ((experts * rows, columns), (experts * columns, rows))


def _by_matrix(one: Shape | None, other: Shape | None) -> bool:
    """Whether there is a matrix for each expert, with inputs and outputs exchanged."""
    if one is None or other is None or not len(one) == len(other) == 3:
        return False
    return one == (other[0], other[2], other[1])
