"""The same inputs with another batch size or sequence length, whatever framework their tensors are of.

Which dimensions of which tensor are the batch and the sequence is what a run showed (`Axes`). Where nobody
looked, shapes suggest it: the *leading* tensor is the first one of whole numbers with 2 dimensions (token
ids), else the first floating one with 3 (features of a sequence). Its first dimension is the batch, its
second the sequence. Without one, the first dimension of the first tensor is the batch, and there is no
sequence.

- Every tensor whose first dimension equals the batch gets the new one; where the batch comes second, so does
  every one whose second dimension does. A floating tensor of 3 dimensions may have it second in any case
  (states of a recurrent layer).
- Every other dimension that equals the sequence length gets the new one, except in floating tensors the
  features of 3 dimensions, which come last unless that is where the sequence is, and all of 4 or more,
  which are pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain
from typing import Any

from modelglass.errors import InputsError, UsageError
from modelglass.frameworks.shared.describe import DEPTH_LIMIT, leaves
from modelglass.frameworks.shared.request import Inputs
from modelglass.report import Axes, Shape


@dataclass(frozen=True)
class Form:
    """What the rule looks at."""

    shape: Shape
    kind: str  # "whole", "floating" or "other"


@dataclass(frozen=True)
class Tensors:
    """One framework's tensors: which values they are, what the rule sees of them, how one is resized.

    `form` is None for one that cannot be made in another size. Values of a `closed` type are not looked into.
    """

    is_tensor: Callable[[Any], bool]
    form: Callable[[Any], Form | None]
    resize: Callable[[Any, Shape], Any]
    closed: tuple[type, ...] = ()


def dimensions(inputs: Inputs, tensors: Tensors, axes: Axes | None = None) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs show, None for what they do not."""
    given = inputs.args, dict(inputs.kwargs)
    seen: set[int] = set()

    def see(tensor: Any) -> Any:
        seen.add(id(tensor))
        return tensor

    _rebuild(given, see, tensors)
    forms = [
        tensors.form(leaf) if id(leaf) in seen else None for _, leaf in leaves(given, "", tensors.is_tensor)
    ]
    if axes is None:
        axes = _suggest_axes(forms)
    form = None if axes.leaf is None else forms[axes.leaf]
    if form is None:
        return None, None
    return tuple(None if dim is None else form.shape[dim] for dim in (axes.batch, axes.seq))  # type: ignore[return-value]


def resize_inputs(
    inputs: Inputs, batch_size: int | None, seq_len: int | None, tensors: Tensors, axes: Axes | None = None
) -> Inputs:
    """The inputs with another batch size, sequence length or both; what stays the same is the same object."""
    found = dimensions(inputs, tensors, axes)
    change = _Change.of(found, batch_size, seq_len, axes or Axes(batch=0, seq=1))
    return _with_shapes(inputs, lambda tensor, form: change.shape(form), tensors)


def resize_inputs_at(inputs: Inputs, sizes: Mapping[tuple[int, int], int], tensors: Tensors) -> Inputs:
    """The inputs with other sizes, each by the leaf it is of, as a run numbers them, and the dimension.

    What stays the same is the same object. One tensor given in several places is one tensor still.
    """
    wanted: dict[int, dict[int, int]] = {}
    for index, (_, leaf) in enumerate(leaves((inputs.args, dict(inputs.kwargs)), "", tensors.is_tensor)):
        changed = {dim: size for (at, dim), size in sizes.items() if at == index}
        if changed:
            wanted.setdefault(id(leaf), {}).update(changed)

    def shape(tensor: Any, form: Form) -> Shape:
        changed = wanted.get(id(tensor), {})
        return tuple(changed.get(dim, size) for dim, size in enumerate(form.shape))

    return _with_shapes(inputs, shape, tensors)


def _with_shapes(inputs: Inputs, shape: Callable[[Any, Form], Shape], tensors: Tensors) -> Inputs:
    """The inputs with each tensor in its new shape."""
    made: dict[int, Any] = {}

    def new(tensor: Any) -> Any:
        if id(tensor) not in made:
            form = tensors.form(tensor)
            wanted = None if form is None else shape(tensor, form)
            same = form is None or wanted is None or wanted == form.shape
            made[id(tensor)] = tensor if same or wanted is None else tensors.resize(tensor, wanted)
        return made[id(tensor)]

    return Inputs(
        args=_rebuild(inputs.args, new, tensors), kwargs=_rebuild(dict(inputs.kwargs), new, tensors)
    )


@dataclass(frozen=True)
class _Change:
    """From which sizes to which; None: it stays."""

    batch: int | None
    seq: int | None
    new_batch: int | None
    new_seq: int | None
    axes: Axes

    @classmethod
    def of(
        cls,
        found: tuple[int | None, int | None],
        batch_size: int | None,
        seq_len: int | None,
        axes: Axes,
    ) -> _Change:
        """The change that is asked for, which the inputs must be able to show."""
        for name, asked in (("batch size", batch_size), ("sequence length", seq_len)):
            if asked is not None and asked < 1:
                raise UsageError(f"{name} must be 1 or more, got {asked}", hint="pass a positive integer")
        if batch_size is not None and found[0] is None:
            raise InputsError(
                "the batch of the inputs cannot be changed: no tensor among them is known to have one",
                hint="pass tensors whose first dimension is the batch",
            )
        if seq_len is not None and found[1] is None:
            raise InputsError(
                "the inputs show no sequence length",
                hint="it is the second dimension of ids (2x16:int64) or of features (2x16x768)",
            )
        return cls(*found, batch_size, seq_len, axes)

    def shape(self, form: Form) -> Shape:
        at = self._batch_dims(form)
        seqs = self._seq_dims(form)
        return tuple(self._size(size, dim in at, dim in seqs) for dim, size in enumerate(form.shape))

    def _batch_dims(self, form: Form) -> frozenset[int]:
        """Where a tensor may have the batch."""
        features = form.kind == "floating" and len(form.shape) == 3
        if self.axes.batch == 1:
            return frozenset({1} if features or self.batch == self.seq else {0, 1})
        state = features and form.shape[0] != self.batch and form.shape[1] != self.seq
        return frozenset({1 if state else 0})

    def _seq_dims(self, form: Form) -> frozenset[int]:
        """Where a tensor may have the sequence."""
        count = len(form.shape)
        if form.kind != "floating" or count < 3:
            return frozenset(range(count))
        return frozenset() if count > 3 else frozenset({2} if self.axes.seq == 2 else {0, 1})

    def _size(self, size: int, may_be_batch: bool, may_be_seq: bool) -> int:
        if may_be_batch and size == self.batch:
            return size if self.new_batch is None else self.new_batch
        if may_be_seq and size == self.seq:
            return size if self.new_seq is None else self.new_seq
        return size


def _suggest_axes(forms: Sequence[Form | None]) -> Axes:
    """The axes that shapes suggest."""
    known = {at: form for at, form in enumerate(forms) if form is not None and form.shape}
    ids = (at for at, form in known.items() if form.kind == "whole" and len(form.shape) == 2)
    features = (at for at, form in known.items() if form.kind == "floating" and len(form.shape) == 3)
    leading = next(chain(ids, features), None)
    if leading is not None:
        return Axes(leaf=leading, batch=0, seq=1)
    return Axes(leaf=next(iter(known)), batch=0) if known else Axes()


def _rebuild(value: Any, new: Callable[[Any], Any], tensors: Tensors, depth: int = 0) -> Any:
    """The structure with each tensor replaced; what holds no replaced one is itself."""
    if tensors.is_tensor(value):
        return new(value)
    if depth > DEPTH_LIMIT or isinstance(value, tensors.closed):
        return value
    if isinstance(value, Mapping):
        return _change_parts(value, value.items(), new, tensors, depth)
    if isinstance(value, (tuple, list)):
        items = [_rebuild(item, new, tensors, depth + 1) for item in value]
        if all(now is before for now, before in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        held = [(field.name, getattr(value, field.name, None)) for field in fields(value)]
        return _change_parts(value, held, new, tensors, depth)
    return value


def _change_parts(
    holder: Any, held: Iterable[tuple[Any, Any]], new: Callable[[Any], Any], tensors: Tensors, depth: int
) -> Any:
    """A copy of a mapping or dataclass in which replaced parts are put; itself when none is."""
    parts = [(key, item, _rebuild(item, new, tensors, depth + 1)) for key, item in held]
    changes = [(key, now) for key, before, now in parts if now is not before]
    if not changes:
        return holder
    result = copy(holder)
    for key, now in changes:
        if isinstance(holder, Mapping):
            result[key] = now
        else:
            object.__setattr__(result, key, now)  # also frozen ones
    return result
