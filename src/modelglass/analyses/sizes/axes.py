"""Which dimensions of the inputs are the batch and the sequence, from what a run did with them.

Shapes alone do not decide it: an edge list looks like token ids, and layers may take the sequence first. So:

- Whole numbers with 2 dimensions are token ids where a table of weights is looked up with them.
- The *telling* tensor is the first of token ids, else the first floating one with 3 dimensions.
- Layers say which dimension of theirs is which (`batch_first`; convolutions have channels before a length).
  By its size that is one of the telling tensor; of two equal sizes another run shows which one it is.
- Where no layer says anything, the batch comes first and the sequence second.
- Without a telling tensor, the first dimension of the first tensor is the batch, and there is no sequence.
- Whole numbers with sizes of their own that point at rows of data (the edges of a graph) would not go with
  another batch, so that beside these there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from modelglass.report import Call, Dataflow, Model, Module, Note, Run, Value
from modelglass.report.fit import Axes

Seen = tuple[Model, Run, Dataflow | None]
Look = Callable[[], Seen | None]  # a run that shows which operator read what; None: it failed
Resize = Callable[[Axes, int], Model | None]  # a run with another batch; None: it failed

_LOOKUPS = ("embedding", "one_hot")
_PICKING = ("index", "take", "gather", "scatter", "__getitem__")
_CHANNELS_LAST = frozenset({"mlx"})


def find_axes(seen: Seen, look: Look | None = None, resize: Resize | None = None) -> tuple[Axes, list[Note]]:
    """The batch and the sequence of the inputs, and what is to be said about it."""
    run, shown = seen[1], cache(lambda: seen if seen[2] is not None or look is None else look())
    leaves = {at: value for at, value in enumerate(run.inputs) if value.shape and value.text is None}
    matrices = [at for at, value in leaves.items() if _is_whole(value) and len(value.shape or ()) == 2]
    ids = [at for at in matrices if _is_looked_up(run.inputs[at], seen[0])]
    if matrices and not ids:
        ids = [at for at in matrices if "table" in _index_uses(at, shown())]
    features = [at for at, value in leaves.items() if _is_floating(value) and len(value.shape or ()) == 3]
    telling = next(iter((*ids, *features)), None)
    if telling is None:
        first = next((at for at in leaves if at not in matrices), next(iter(leaves), None))
        axes = _find_unbatched(leaves, seen[0]) or Axes(leaf=first, batch=None if first is None else 0)
    else:
        axes = _roles(telling, run.inputs[telling], seen[0], resize)
    if axes.leaf in ids:
        return axes, []
    known = {size for size in sizes_at(axes, run) if size is not None}
    others = [at for at, value in leaves.items() if _is_whole(value) and known.isdisjoint(value.shape or ())]
    pointing = [at for at in others if run.inputs[at].numel != 1 and "rows" in _index_uses(at, shown())]
    return (Axes(), [_choice_note(pointing, seen)]) if pointing and known else (axes, [])


def sizes_at(axes: Axes, run: Run) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs of a run show."""
    shape = () if axes.leaf is None else run.inputs[axes.leaf].shape or ()
    return tuple(None if dim is None else shape[dim] for dim in (axes.batch, axes.seq))  # type: ignore[return-value]


def _choice_note(leaves: list[int], seen: Seen) -> Note:
    names = [value.name for value in seen[1].inputs] if seen[2] is None else seen[2].names
    return Note(
        code="batch-unknown",
        severity="warning",
        text="no batch is known: whole numbers with sizes of their own point at rows of other inputs",
        where=tuple(names[at] for at in leaves),
    )


def _find_unbatched(leaves: dict[int, Value], model: Model) -> Axes | None:
    """The first floating matrix, when a layer that takes sequences took it as one without a batch."""
    rows = [at for at, value in leaves.items() if _is_floating(value) and len(value.shape or ()) == 2]
    for shape in (_first_shape(call) for call, _ in _calls(model, "batch_first")):
        for at in rows:
            if len(shape) == 2 and shape[0] == (leaves[at].shape or ())[0]:
                return Axes(leaf=at, seq=0)
    return None


def _roles(leaf: int, value: Value, model: Model, resize: Resize | None) -> Axes:
    """The batch and the sequence of the telling tensor."""
    shape, usual = value.shape or (), Axes(leaf=leaf, batch=0, seq=1)
    hints = list(_hints(model))
    if hints and hints[0].channels is not None and shape[1:] == (hints[0].channels, hints[0].length):
        return Axes(leaf=leaf, batch=0, seq=2)
    if shape[0] == shape[1] and any(hint.batch_at for hint in hints) and resize is not None:
        return _follow_batch(usual, hints, shape[0], resize)
    batches = [hint.batch for hint in hints if hint.batch in shape[:2] and shape[0] != shape[1]]
    swapped = bool(batches) and batches[0] == shape[1]
    return Axes(leaf=leaf, batch=1, seq=0) if swapped else usual


def _follow_batch(usual: Axes, hints: list[_Hint], size: int, resize: Resize) -> Axes:
    """Which of two dimensions of one size layers take for the batch: it is the one that follows."""
    model = resize(usual, 2 * size)
    before = hints[0]
    again = next(_hints(model), None) if model is not None else None
    if again is None or again.shape == before.shape or again.shape[before.batch_at] != before.batch:
        return usual
    return Axes(leaf=usual.leaf, batch=1, seq=0)


@dataclass(frozen=True)
class _Hint:
    """What a layer says of its input: where its batch is, and of a convolution its channels."""

    shape: tuple[int, ...]
    batch_at: int
    channels: int | None = None
    length: int | None = None

    @property
    def batch(self) -> int:
        return self.shape[self.batch_at]


def _hints(model: Model) -> Iterator[_Hint]:
    """In the order of the calls."""
    modules = {module.path: module for module in model.modules}
    for call in model.calls:
        module, shape = modules.get(call.module), _first_shape(call)
        if module is None or len(shape) != 3 or call.phase != "forward":
            continue
        if type(module.config.get("batch_first")) is bool:
            yield _Hint(shape, 0 if module.config["batch_first"] else 1)
        elif _is_line(module):
            last = model.source in _CHANNELS_LAST
            yield _Hint(shape, 0, channels=shape[2 if last else 1], length=shape[1 if last else 2])


def _is_line(module: Module) -> bool:
    """Whether it is a convolution along one dimension."""
    kernel = module.config.get("kernel_size")
    one = type(kernel) is int or (isinstance(kernel, (list, tuple)) and len(kernel) == 1)
    return one and {"in_channels", "out_channels"} <= module.config.keys()


def _calls(model: Model, key: str) -> Iterator[tuple[Call, Module]]:
    modules = {module.path: module for module in model.modules}
    for call in model.calls:
        module = modules.get(call.module)
        if module is not None and key in module.config:
            yield call, module


def _first_shape(call: Call) -> tuple[int, ...]:
    return next((value.shape for value in call.inputs if value.shape is not None), ())


def _is_looked_up(ids: Value, model: Model) -> bool:
    """Whether a layer with a table was called with them."""
    return any(
        _is_whole(value) and value.shape == ids.shape
        for call, _ in _calls(model, "num_embeddings")
        for value in call.inputs
    )


def _index_uses(leaf: int, seen: Seen | None) -> frozenset[str]:
    """What operators pick with these numbers or others made of them: "table" of weights, "rows" of data.

    Both, where no run shows it.
    """
    model, _, flow = seen if seen is not None else (None, None, None)
    if model is None or flow is None or flow.inputs[leaf] is None:
        return frozenset({"table", "rows"})
    made, found = {flow.inputs[leaf]}, set()
    for op, reads, writes in zip(model.ops, flow.reads, flow.writes, strict=False):
        if made.isdisjoint(reads):
            continue
        name = op.name.rpartition(".")[2].lower()
        weights = bool(op.inputs) and op.inputs[0].tensor is not None
        if any(word in name for word in _LOOKUPS):
            found.add("table")
        elif any(word in name for word in _PICKING):
            found.add("table" if weights else "rows")
        if all(_is_whole(value) for value in op.outputs if value.shape is not None):
            made.update(number for number in writes if number is not None)
    return frozenset(found)


def _is_whole(value: Value) -> bool:
    return str(value.dtype).startswith(("int", "uint"))


def _is_floating(value: Value) -> bool:
    return str(value.dtype).startswith(("float", "bfloat", "complex"))
