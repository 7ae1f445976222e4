"""What differs between two counterparts, and whether frameworks or storage explain it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from modelglass.analyses.compare import layouts
from modelglass.analyses.compare.common_form import conventions, settings
from modelglass.analyses.compare.common_form.conventions import IDLE, STATISTICS
from modelglass.analyses.compare.sides import Sides as Sides
from modelglass.report.comparison import Deviation, TensorPair

if TYPE_CHECKING:
    from modelglass.analyses.compare.common_form.parts import Match, Part, Slot
    from modelglass.analyses.compare.common_form.settings import Setting
    from modelglass.report import Shape, Shard
    from modelglass.report.comparison import Standing

# On each side, the names of tensors whose parts have counterparts.
Met: TypeAlias = tuple[Collection[str], Collection[str]]

_PLAIN = ("weight", "bias", "qweight", "weight_packed")  # names of tensors that say nothing of their layer
_SUM = "one keeps the parts (two biases), the other their sum"
_FOLDED = "one keeps the parts of the weights, the other what they make"


def find_differences(
    match: Match, sides: Sides, met: Met = (frozenset(), frozenset())
) -> tuple[tuple[TensorPair, ...], tuple[Deviation, ...]]:
    """The tensors of two counterparts in pairs, and everything in which they differ."""
    pairs: list[TensorPair] = []
    found: list[Deviation] = []
    for one, other in slot_pairs(match.a, match.b):
        if one is not None and other is not None:
            pairs.append(_tensor_pair(one, other))
            found += _of_slots(match, one, other, sides, met)
        else:
            found.append(_lone(one, other))
    found += _of_parts(match, sides)
    return tuple(pairs), tuple(found)


def slot_pairs(a: Part, b: Part) -> Iterator[tuple[Slot | None, Slot | None]]:
    """The weights of two parts: by role, then those of one shape, then the only ones left."""
    left, right = dict(a.slots), dict(b.slots)
    if not (left and right):
        return  # what has no counterpart at all is reported as one
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


def _of_slots(match: Match, one: Slot, other: Slot, sides: Sides, met: Met) -> Iterator[Deviation]:
    yield from _of_shapes(match, one, other, sides)
    yield from _of_storage(one, other)
    yield from _of_padding(one, other, sides)
    yield from _of_zeros(one, other)
    if sides.live:
        yield from _of_training(one, other, sides)
        yield from _of_ties(one, other, sides, met)
    several, single = sorted((one.names, other.names), key=len, reverse=True)
    if match.how not in ("joined", "stacked") and len(several) > 1 and len(single) == 1:
        yield _deviation("folded", "framework", _FOLDED if "weight" in several[0] else _SUM, one, other)


def _of_shapes(match: Match, one: Slot, other: Slot, sides: Sides) -> Iterator[Deviation]:
    if one.shape is None or other.shape is None:
        return  # what waits for its first input takes any shape
    verdict = layouts.compare_layouts(match, one, other, sides)
    if verdict == "turned":
        yield _deviation("layout", "framework", "the same weights in another layout", one, other)
    elif verdict == "left":
        wrong = "b" if sides.b.stored or (sides.b.source == "mlx" and not sides.a.stored) else "a"
        text = f"{wrong} keeps the weights in the layout of the other's framework"
        if sides.a.stored or sides.b.stored:
            text = f"{wrong} keeps the weights in another layout than its framework's"
        yield _deviation("layout", "different", text, one, other)
    elif verdict == "other":
        yield _deviation("shape", "different", "the shapes differ", one, other)


def _of_storage(one: Slot, other: Slot) -> Iterator[Deviation]:
    left, right = one.tensor, other.tensor
    if (left.packing is None) != (right.packing is None) or (
        left.packing and right.packing and left.packing.scheme != right.packing.scheme
    ):
        words = [each.packing.scheme if each.packing else each.dtype for each in (left, right)]
        yield _deviation("packed", "storage", "the same weights, packed in another way", one, other, *words)
    elif left.packing is None and left.dtype != right.dtype:
        families = {_family(left.dtype), _family(right.dtype)}
        standing: Standing = "storage" if len(families) == 1 else "different"
        mixed = families == {"floating", "whole"}
        text = "integers in one, floating point in the other" if mixed else "the element types differ"
        yield _deviation("dtype", standing, text, one, other, left.dtype, right.dtype)


def _family(dtype: str) -> str:
    """Whether numbers have fractions, are whole, or are something else."""
    if "float" in dtype:
        return "floating"
    return "whole" if "int" in dtype else dtype


def _of_padding(one: Slot, other: Slot, sides: Sides) -> Iterator[Deviation]:
    """Elements that an engine adds so that sizes suit it, and that stand for nothing."""
    for slot, side, of_a in ((one, sides.a, True), (other, sides.b, False)):
        for name in slot.names:
            shard = side.shards.get(name)
            if shard is None or not shard.padding or slot.tied is not None:
                continue
            text = _padding(shard, side.held.get(name))
            words = (f"{shard.padding:,}", "") if of_a else ("", f"{shard.padding:,}")
            yield _deviation("padding", "framework", text, one, other, *words)


def _of_zeros(one: Slot, other: Slot) -> Iterator[Deviation]:
    """Zeros of a joined bias, in place of biases that some of the parts do not have."""
    for slot, where in ((one, "b"), (other, "a")):
        if slot.filled:
            text = f"{where} has zeros for {', '.join(slot.filled)}, which has no bias"
            yield _deviation("zeros", "framework", text, one, other)


def _padding(shard: Shard, held: Shape | None) -> str:
    """How many rows are added, and to how many."""
    rows, rest = divmod(shard.padding, prod(shard.whole[1:]))
    if held is None or rest or held[1:] != shard.whole[1:]:
        return f"{shard.padding:,} elements of padding"
    what = "row" if rows == 1 else "rows"
    summed = f"{held[0]:,} = {held[0] - rows:,} + {rows:,}"
    return f"{rows:,} {what} of padding: {summed} ({shard.padding:,} elements)"


def _of_training(one: Slot, other: Slot, sides: Sides) -> Iterator[Deviation]:
    left, right = one.tensor, other.tensor
    if "buffer" in (left.kind, right.kind) and left.kind != right.kind:
        text = "one framework keeps it as a buffer, the other among the parameters"
        yield _deviation("buffer", "framework", text, one, other, left.kind, right.kind)
        return
    if left.trainable == right.trainable or None in (left.trainable, right.trainable):
        return
    if sides.served:
        return  # an engine trains nothing
    words = ["trains" if each.trainable else "frozen" for each in (left, right)]
    packed = left.packing is not None or right.packing is not None
    text = "packed weights do not train" if packed else "it trains in one and is frozen in the other"
    yield _deviation("trainable", "storage" if packed else "different", text, one, other, *words)


def _of_ties(one: Slot, other: Slot, sides: Sides, met: Met) -> Iterator[Deviation]:
    if any(
        side.served and slot.tied is not None and slot.tied not in names
        for slot, side, names in zip((one, other), sides, met, strict=True)
    ):
        return  # an engine has another name for the same memory, and the other model has no such thing
    if (one.tied is None) != (other.tied is None):
        words = [f"is {slot.tied}" if slot.tied else "its own" for slot in (one, other)]
        text = "it shares its memory in one and has its own in the other"
        yield _deviation("tied", "different", text, one, other, *words)


def _lone(one: Slot | None, other: Slot | None) -> Deviation:
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
        yield Deviation(code="joined", standing="framework", text=_describe_joined(a, b))
    elif match.how == "stacked" and (a.slots or b.slots):
        text = "weights that are apart in one are stacked in the other"
        yield Deviation(code="stacked", standing="framework", text=text)
    if match.moved:
        text = "they are at different positions in their list"
        yield Deviation(code="order", standing="different", text=text, a=a.path, b=b.path)
    if a.sure and b.sure and a.kind != b.kind:
        if not _are_idle(a, b):
            text = "the kinds of layer differ"
            yield Deviation(code="kind", standing="different", text=text, a=a.type, b=b.type)
    elif match.how != "joined" and _are_comparable(a.kind, b.kind):
        yield from _of_settings(a, b, sides)
    if (a.counter is None) != (b.counter is None):
        text = "a counter of batches that only one framework keeps"
        yield Deviation(
            code="buffer", standing="framework", text=text, tensor_a=a.counter, tensor_b=b.counter
        )


def _describe_joined(a: Part, b: Part) -> str:
    """Which weights are apart in one and lie side by side in the other."""
    left, right = _class_names(a), _class_names(b)
    apart, whole, where, there = (left, right, "a", "b") if len(left) > 1 else (right, left, "b", "a")
    return f"{', '.join(apart)} of {where} are joined in {', '.join(whole)} of {there}"


def _class_names(part: Part) -> list[str]:
    """What the layers are called whose weights a part has, each name once."""
    names = [name.split(".") for slot in part.slots.values() for name in slot.names]
    return list(
        dict.fromkeys(each[-2] if len(each) > 1 and each[-1] in _PLAIN else each[-1] for each in names)
    )


def _are_comparable(one: str | None, other: str | None) -> bool:
    """Whether two kinds of layer have the same settings."""
    return one == other or (conventions.is_norm(one) and conventions.is_norm(other))


def _are_idle(a: Part, b: Part) -> bool:
    """Whether both do nothing in inference, or one stands for a layer that has weights."""
    kinds = {a.kind, b.kind}
    return kinds <= IDLE or bool(kinds & IDLE and (a.slots or b.slots))


def _of_settings(a: Part, b: Part, sides: Sides) -> Iterator[Deviation]:
    one, other = settings.common_settings(a, sides.a.source), settings.common_settings(b, sides.b.source)
    for each in settings.unequal_settings(one, other, akin=sides.a.source == sides.b.source):
        if each.name == "padding" and _is_causal(a, one, {each.a, each.b}):
            text = "one pads in the layer, the other before it"
            yield of_setting(each, standing="framework", text=text)
        else:
            yield of_setting(each)
    mlx_in_b = _groups_otherwise(b, other, sides.b.source, sides.a.source)
    if mlx_in_b or _groups_otherwise(a, one, sides.a.source, sides.b.source):
        text = "channels are grouped in another way: pytorch_compatible is off"
        yield Deviation(code="config", standing="different", text=text)


def of_setting(setting: Setting, *, standing: Standing = "different", text: str | None = None) -> Deviation:
    """A setting that is not the same in both."""
    name = setting.name
    return Deviation(
        code="config",
        standing=standing,
        text=f"{name} differs" if text is None else text,
        a=f"{name}={setting.a}",
        b=f"{name}={setting.b}",
    )


def _is_causal(part: Part, found: Mapping[str, Any], paddings: set[Any]) -> bool:
    """Whether what a convolution over time sees before its beginning is added in it or before it."""
    weight = part.slots.get("weight")
    if part.kind != "conv1d" or weight is None or not weight.shape:
        return False
    return paddings == {0, found.get("dilation", 1) * (weight.shape[-1] - 1)}


def _groups_otherwise(part: Part, found: Mapping[str, Any], source: str, other: str) -> bool:
    """Whether a GroupNorm of MLX takes every n-th channel where torch takes neighbours."""
    if (source, other) != ("mlx", "torch") or part.config.get("pytorch_compatible") is not False:
        return False
    weight = part.slots.get("weight")
    channels = part.config.get("dims") if weight is None or not weight.shape else weight.shape[0]
    return found.get("num_groups") not in (None, 1, channels)


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
