"""What the modules of two models gave when both ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from modelglass.analyses.compare.common_form.conventions import channels_first, channels_last
from modelglass.report import Note
from modelglass.report.comparison import Deviation

if TYPE_CHECKING:
    from modelglass.report import Call, Model, Shape, Value
    from modelglass.report.comparison import Pair


class Macs(NamedTuple):
    """The multiply-accumulates of a forward pass, as far as they are known; None: it did not run."""

    known: int | None
    complete: bool


def forward_macs(model: Model) -> Macs:
    """What the forward pass of a model takes."""
    found = [op.macs for op in model.ops if op.phase == "forward"]
    known = [macs for macs in found if macs is not None]
    return Macs(sum(known) if found else None, len(known) == len(found))


class RunDiff:
    """The first forward call of each module of two models that both ran."""

    def __init__(self, a: Model, b: Model) -> None:
        self._calls = [call for call in a.calls if call.phase == "forward" and call.completed]
        self._a, self._b = _first_calls(a), _first_calls(b)
        self.both = bool(self._a and self._b)
        inputs = [_sizes(calls[""].inputs) if "" in calls else [] for calls in (self._a, self._b)]
        self._comparable = self.both and inputs[0] == inputs[1]
        self._macs = forward_macs(a), forward_macs(b)

    def outputs(self, a: str, b: str) -> Iterator[Deviation]:
        """Whether two modules gave as many numbers, if not in what shape."""
        if not self._comparable or a not in self._a or b not in self._b:
            return
        one, other = _tensor(self._a[a]), _tensor(self._b[b])
        if one is None or other is None or one.shape is None or other.shape is None:
            return
        if one.shape == other.shape:
            return
        shapes = ["x".join(map(str, each.shape or ())) for each in (one, other)]
        if one.numel != other.numel:
            text = "their outputs have different shapes"
            yield Deviation(code="output", standing="different", text=text, a=shapes[0], b=shapes[1])
        elif _differ_in_layout(one.shape, other.shape):
            text = "channels come first in the output of one, and last in that of the other"
            yield Deviation(code="layout", standing="framework", text=text, a=shapes[0], b=shapes[1])

    def first(self, pairs: Sequence[Pair]) -> int | None:
        """The pair that differs first in the order in which modules were called."""
        if not self.both:
            return None
        called = [
            (self._a[pair.a].index, place)
            for place, pair in enumerate(pairs)
            if not pair.same and pair.a in self._a and pair.a
        ]
        return min(called, default=(None, None))[1]

    def notes(self, pairs: Sequence[Pair]) -> Iterator[Note]:
        """What is odd about the two runs."""
        if self.both and not self._comparable:
            text = "the two were called with inputs of different sizes, so what modules gave is not compared"
            yield Note(code="inputs-differ", text=text)
        elif bool(self._a) != bool(self._b):
            text = f"only {'a' if self._a else 'b'} ran, so what modules gave is not compared"
            yield Note(code="one-run", text=text)
        one, other = self._macs
        if self._comparable and one.complete and other.complete and one.known != other.known:
            text = f"a takes {one.known:,} multiply-accumulates, b {other.known:,}"
            yield Note(code="macs-differ", text=text)
        if self._comparable:
            yield from self._note_flattening(pairs)

    def _note_flattening(self, pairs: Sequence[Pair]) -> Iterator[Note]:
        """Layers that take all positions and channels at once, whose order is not the same in both."""
        of_module = {pair.a: pair for pair in pairs if pair.a}
        mixed, found = 0, []
        for call in self._calls:
            pair = of_module.get(call.module)
            if pair is None or pair.b is None or pair.b not in self._b:
                continue
            shape = pair.tensors[0].shape_a if pair.tensors else None
            if mixed and shape is not None and shape[1:] == (mixed,):
                found.append(call.module)
            one, first, other = (_shape(each) for each in (call, self._a[call.module], self._b[pair.b]))
            mixed = prod(one[1:]) if _differ_in_layout(first, other) else 0
        if found:
            text = "what these take comes with channels first in one and last in the other: unless the port "
            text += "moves them before it flattens, the columns of the weights are in another order"
            yield Note(code="flattened", text=text, severity="warning", where=tuple(dict.fromkeys(found)))


def _differ_in_layout(one: Shape, other: Shape) -> bool:
    """Whether channels come first in one and last in the other."""
    if len(one) < 3 or len(one) != len(other) or one == other:
        return False
    return one in (channels_first(other), channels_last(other))


def _shape(call: Call) -> Shape:
    """Of the first tensor that a call gave."""
    value = _tensor(call)
    return () if value is None or value.shape is None else value.shape


def _first_calls(model: Model) -> Mapping[str, Call]:
    found: dict[str, Call] = {}
    for call in model.calls:
        if call.phase == "forward" and call.completed:
            found.setdefault(call.module, call)
    return found


def _tensor(call: Call) -> Value | None:
    return next((value for value in call.outputs if value.dtype is not None), None)


def _sizes(values: Sequence[Value]) -> list[int | None]:
    """The sizes of tensors, in order of size: frameworks order arguments and dimensions as they like."""
    return sorted((value.numel for value in values if value.dtype is not None), key=lambda n: n or 0)
