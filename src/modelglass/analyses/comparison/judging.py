"""What differs between two counterparts, and whether frameworks or storage explain it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from modelglass.analyses.comparison import conventions
from modelglass.analyses.comparison.conventions import LIVE, STATISTICS
from modelglass.report.comparison import Deviation, TensorPair

if TYPE_CHECKING:
    from modelglass.analyses.comparison.parts import Match, Part, Slot
    from modelglass.report import Shape
    from modelglass.report.comparison import Standing

_ORDERED = ("weight", "bias")


class Sides(NamedTuple):
    """Where the two models come from, and which buffers of each are never stored."""

    a: str
    b: str
    unsaved_a: frozenset[str] | None = None  # None: nobody knows
    unsaved_b: frozenset[str] | None = None

    @property
    def live(self) -> bool:
        return self.a in LIVE and self.b in LIVE

    @property
    def names(self) -> tuple[str, str]:
        return self.a, self.b


def judged(match: Match, sides: Sides) -> tuple[tuple[TensorPair, ...], tuple[Deviation, ...]]:
    """The tensors of two counterparts in pairs, and everything in which they differ."""
    pairs: list[TensorPair] = []
    found: list[Deviation] = []
    for one, other in slot_pairs(match.a, match.b):
        if one is not None and other is not None:
            pairs.append(_tensor_pair(one, other))
            found += _of_slots(match, one, other, sides)
        else:
            found.append(_lone(match, one, other))
    found += _of_parts(match, sides)
    return tuple(pairs), tuple(found)


def slot_pairs(a: Part, b: Part) -> Iterator[tuple[Slot | None, Slot | None]]:
    """The weights of two parts: by role, then those of one shape, then the only ones left."""
    left, right = dict(a.slots), dict(b.slots)
    if not (left and right):
        return  # what has no counterpart at all is told as one
    for role in [role for role in left if role in right]:
        yield left.pop(role), right.pop(role)
    for role, slot in list(left.items()):
        twin = next((key for key, other in right.items() if other.shape == slot.shape), None)
        if twin is not None and "bias" not in (role, twin):
            yield left.pop(role), right.pop(twin)
    yield from ((slot, None) for slot in left.values())
    yield from ((None, slot) for slot in right.values())


def _tensor_pair(one: Slot, other: Slot) -> TensorPair:
    return TensorPair(
        a=one.names,
        b=other.names,
        shape_a=one.own_shape,
        shape_b=other.own_shape,
        dtype_a=one.tensor.dtype,
        dtype_b=other.tensor.dtype,
    )


def _of_slots(match: Match, one: Slot, other: Slot, sides: Sides) -> Iterator[Deviation]:
    yield from _of_shapes(match, one, other, sides)
    yield from _of_storage(one, other)
    if sides.live:
        yield from _of_training(match, one, other)
        yield from _of_ties(one, other)
    several, single = sorted((one.names, other.names), key=len, reverse=True)
    if match.how not in ("joined", "stacked") and len(several) > 1 and len(single) == 1:
        folded = "its" if "weight" in several[0] else "two biases as their sum, or its"
        yield _deviation(
            "folded", "framework", f"one keeps {folded} parts, the other what they make", one, other
        )


def _of_shapes(match: Match, one: Slot, other: Slot, sides: Sides) -> Iterator[Deviation]:
    if one.shape is None or other.shape is None:
        return  # what waits for its first input takes any shape
    own_a, own_b = one.own_shape, other.own_shape
    if one.shape == other.shape:
        if own_a != own_b and match.how not in ("joined", "stacked"):
            yield _deviation("layout", "framework", "the same weights in another layout", one, other)
        return
    if one.numel == other.numel == 1 or _is_turned(match, one.shape, other.shape, sides):
        yield _deviation("layout", "framework", "the same weights in another layout", one, other)
    elif own_a is not None and own_a == own_b:
        wrong = "b" if sides.b == "mlx" else "a"
        text = f"{wrong} keeps the weights in the layout of the other's framework"
        yield _deviation("layout", "different", text, one, other)
    else:
        yield _deviation("shape", "different", "the shapes differ", one, other)


def _is_turned(match: Match, one: Shape, other: Shape, sides: Sides) -> bool:
    """Whether a side that does not say what its modules are has the weights in the other layout."""
    if len(one) != len(other):
        return False
    if len(one) >= 3 and not _are_experts(match):
        untyped = [
            shape for shape, source in zip((one, other), sides.names, strict=True) if source not in LIVE
        ]
        known = other if untyped and untyped[0] is one else one
        return any(_turns(shape, known) for shape in untyped)
    if len(one) == 3:  # a matrix for each expert
        return one == (other[0], other[2], other[1])
    return not sides.live and one == other[::-1] and len(one) == 2


def _are_experts(match: Match) -> bool:
    return not any(conventions.is_convolution(part.kind) for part in (match.a, match.b)) and any(
        part.type for part in (match.a, match.b)
    )


def _turns(shape: Shape, known: Shape) -> bool:
    """Whether a shape is a known one with channels last, or with outputs and inputs exchanged."""
    exchanged = (shape[1], shape[0], *shape[2:])
    last = conventions.channels_first(shape)
    return known in (exchanged, last, (last[1], last[0], *last[2:]))


def _of_storage(one: Slot, other: Slot) -> Iterator[Deviation]:
    left, right = one.tensor, other.tensor
    if (left.packing is None) != (right.packing is None) or (
        left.packing and right.packing and left.packing.scheme != right.packing.scheme
    ):
        words = [each.packing.scheme if each.packing else each.dtype for each in (left, right)]
        yield _deviation("packed", "storage", "the same weights, packed in another way", one, other, *words)
    elif left.packing is None and left.dtype != right.dtype:
        alike = _family(left.dtype) == _family(right.dtype)
        standing: Standing = "storage" if alike else "different"
        text = "the element types differ"
        yield _deviation("dtype", standing, text, one, other, left.dtype, right.dtype)


def _family(dtype: str) -> str:
    """Whether numbers have fractions, are whole, or are something else."""
    if "float" in dtype:
        return "floating"
    return "whole" if "int" in dtype else dtype


def _of_training(match: Match, one: Slot, other: Slot) -> Iterator[Deviation]:
    left, right = one.tensor, other.tensor
    if "buffer" in (left.kind, right.kind) and left.kind != right.kind:
        text = "one framework keeps it as a buffer, the other among the parameters"
        yield _deviation("buffer", "framework", text, one, other, left.kind, right.kind)
        return
    if left.trainable == right.trainable or None in (left.trainable, right.trainable):
        return
    words = ["trains" if each.trainable else "frozen" for each in (left, right)]
    packed = left.packing is not None or right.packing is not None
    text = "packed weights do not train" if packed else "it trains in one and is frozen in the other"
    yield _deviation("trainable", "storage" if packed else "different", text, one, other, *words)


def _of_ties(one: Slot, other: Slot) -> Iterator[Deviation]:
    if (one.tied is None) != (other.tied is None):
        words = [f"is {slot.tied}" if slot.tied else "its own" for slot in (one, other)]
        text = "it shares its memory in one and has its own in the other"
        yield _deviation("tied", "different", text, one, other, *words)


def _lone(match: Match, one: Slot | None, other: Slot | None) -> Deviation:
    """A weight of a part whose counterpart has no such weight."""
    slot = one or other
    assert slot is not None
    name = slot.names[0].rpartition(".")[2]
    side, where = ("missing-in-b", "b") if one is not None else ("extra-in-b", "a")
    if "bias" in name:
        return _deviation("bias", "different", f"{where} has no bias", one, other)
    if name in STATISTICS:
        return _deviation(side, "different", f"{where} keeps no running statistics", one, other)
    return _deviation(side, "different", f"{where} has no {name}", one, other)


def _of_parts(match: Match, sides: Sides) -> Iterator[Deviation]:
    a, b = match.a, match.b
    if match.how == "joined":
        text = "weights that are apart in one are joined in the other"
        yield Deviation(code="joined", standing="framework", text=text)
    elif match.how == "stacked" and (a.slots or b.slots):
        text = "weights that are apart in one are stacked in the other"
        yield Deviation(code="stacked", standing="framework", text=text)
    if match.moved:
        text = "they stand at different places of their list"
        yield Deviation(code="order", standing="different", text=text, a=a.path, b=b.path)
    if a.sure and b.sure and a.kind != b.kind:
        yield Deviation(
            code="kind", standing="different", text="the kinds of layer differ", a=a.type, b=b.type
        )
    elif match.how != "joined" and _are_comparable(a.kind, b.kind):
        yield from _of_settings(a, b, sides)
    if (a.counter is None) != (b.counter is None):
        text = "a counter of batches that only one framework keeps"
        yield Deviation(
            code="buffer", standing="framework", text=text, tensor_a=a.counter, tensor_b=b.counter
        )


def _are_comparable(one: str | None, other: str | None) -> bool:
    """Whether two kinds of layer have the same settings."""
    return one == other or (conventions.is_norm(one) and conventions.is_norm(other))


def _of_settings(a: Part, b: Part, sides: Sides) -> Iterator[Deviation]:
    one, other = conventions.settings(a.kind, a.config), conventions.settings(b.kind, b.config)
    for name in (name for name in one if name in other):
        if one[name] != other[name] and isinstance(one[name], str) == isinstance(other[name], str):
            causal = name == "padding" and _is_causal(a, {one[name], other[name]})
            yield Deviation(
                code="config",
                standing="framework" if causal else "different",
                text="one pads in the layer, the other before it" if causal else f"{name} differs",
                a=f"{name}={one[name]}",
                b=f"{name}={other[name]}",
            )
    if _groups_otherwise(a, one, sides.a, sides.b) or _groups_otherwise(b, other, sides.b, sides.a):
        text = "channels are grouped in another way: pytorch_compatible is off"
        yield Deviation(code="config", standing="different", text=text)


def _is_causal(part: Part, paddings: set[Any]) -> bool:
    """Whether what a convolution over time sees before its beginning is added in it or before it."""
    weight = part.slots.get("weight")
    if part.kind != "conv1d" or weight is None or not weight.shape:
        return False
    dilation = conventions.settings(part.kind, part.config).get("dilation", 1)
    return paddings == {0, dilation * (weight.shape[-1] - 1)}


def _groups_otherwise(part: Part, settings: Mapping[str, Any], source: str, other: str) -> bool:
    """Whether a GroupNorm of MLX takes every n-th channel where torch takes neighbours."""
    if (source, other) != ("mlx", "torch") or part.config.get("pytorch_compatible") is not False:
        return False
    weight = part.slots.get("weight")
    channels = part.config.get("dims") if weight is None or not weight.shape else weight.shape[0]
    return settings.get("num_groups") not in (None, 1, channels)


def _deviation(
    code: str,
    standing: Standing,
    text: str,
    one: Slot | None,
    other: Slot | None,
    a: str | None = None,
    b: str | None = None,
) -> Deviation:
    return Deviation(
        code=code,
        standing=standing,
        text=text,
        a=_shape(one) if a is None else a,
        b=_shape(other) if b is None else b,
        tensor_a=None if one is None else one.names[0],
        tensor_b=None if other is None else other.names[0],
    )


def _shape(slot: Slot | None) -> str:
    if slot is None:
        return ""
    return "?" if slot.own_shape is None else "x".join(map(str, slot.own_shape)) or "scalar"
