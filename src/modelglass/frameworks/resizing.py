"""The same inputs with another batch size or sequence length, whatever framework their tensors are of.

What is what follows from shapes alone:

- The *telling* tensor is the first one of whole numbers with 2 dimensions (token ids), else the first
  floating one with 3 (features of a sequence). Its first dimension is the batch, its second the sequence.
  Without one, the first dimension of the first tensor is the batch, and there is no sequence.
- Every tensor whose first dimension equals the batch gets the new one.
- Every other dimension that equals the sequence length gets the new one, except in floating tensors the last
  of 3 dimensions, which are features, and all of 4 or more, which are pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from modelglass.errors import InputsError, UsageError
from modelglass.frameworks.describing import DEPTH_LIMIT, leaves
from modelglass.frameworks.request import Inputs
from modelglass.report import Shape


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


def dimensions(inputs: Inputs, tensors: Tensors) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs show, None for what they do not."""
    found: list[Form] = []

    def collect(tensor: Any) -> Any:
        form = tensors.form(tensor)
        if form is not None:
            found.append(form)
        return tensor

    _rebuilt((inputs.args, dict(inputs.kwargs)), collect, tensors)
    return _dimensions(found)


def resized(inputs: Inputs, batch_size: int | None, seq_len: int | None, tensors: Tensors) -> Inputs:
    """The inputs with another batch size, sequence length or both; what stays the same is the same object."""
    change = _Change.of(dimensions(inputs, tensors), batch_size, seq_len)
    return _with_shapes(inputs, lambda tensor, form: change.shape(form), tensors)


def resized_at(inputs: Inputs, sizes: Mapping[tuple[int, int], int], tensors: Tensors) -> Inputs:
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
        args=_rebuilt(inputs.args, new, tensors), kwargs=_rebuilt(dict(inputs.kwargs), new, tensors)
    )


@dataclass(frozen=True)
class _Change:
    """From which sizes to which; None: it stays."""

    batch: int | None
    seq: int | None
    new_batch: int | None
    new_seq: int | None

    @classmethod
    def of(cls, found: tuple[int | None, int | None], batch_size: int | None, seq_len: int | None) -> _Change:
        """The change that is asked for, which the inputs must be able to show."""
        for name, asked in (("batch size", batch_size), ("sequence length", seq_len)):
            if asked is not None and asked < 1:
                raise UsageError(f"a {name} of {asked} is none", hint="give 1 or more")
        if batch_size is not None and found[0] is None:
            raise InputsError(
                "the inputs have no batch that could be resized: none of them is a tensor with dimensions",
                hint="pass tensors whose first dimension is the batch",
            )
        if seq_len is not None and found[1] is None:
            raise InputsError(
                "the inputs show no sequence length",
                hint="it is the second dimension of ids (2x16:int64) or of features (2x16x768)",
            )
        return cls(*found, batch_size, seq_len)

    def shape(self, form: Form) -> Shape:
        free = len(form.shape)
        if form.kind == "floating" and free >= 3:
            free = 2 if free == 3 else 0
        return tuple(
            self._size(size, first=index == 0, free=index < free) for index, size in enumerate(form.shape)
        )

    def _size(self, size: int, *, first: bool, free: bool) -> int:
        if first and size == self.batch:
            return size if self.new_batch is None else self.new_batch
        if free and size == self.seq:
            return size if self.new_seq is None else self.new_seq
        return size


def _dimensions(forms: Iterable[Form]) -> tuple[int | None, int | None]:
    known = [form for form in forms if form.shape]
    ids = (form for form in known if form.kind == "whole" and len(form.shape) == 2)
    features = (form for form in known if form.kind == "floating" and len(form.shape) == 3)
    telling = next(ids, None) or next(features, None)
    if telling is not None:
        return telling.shape[0], telling.shape[1]
    return (known[0].shape[0], None) if known else (None, None)


def _rebuilt(value: Any, new: Callable[[Any], Any], tensors: Tensors, depth: int = 0) -> Any:
    """The structure with each tensor replaced; what holds no replaced one is itself."""
    if tensors.is_tensor(value):
        return new(value)
    if depth > DEPTH_LIMIT or isinstance(value, tensors.closed):
        return value
    if isinstance(value, Mapping):
        return _changed(value, value.items(), new, tensors, depth)
    if isinstance(value, (tuple, list)):
        items = [_rebuilt(item, new, tensors, depth + 1) for item in value]
        if all(now is before for now, before in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        held = [(field.name, getattr(value, field.name, None)) for field in fields(value)]
        return _changed(value, held, new, tensors, depth)
    return value


def _changed(
    holder: Any, held: Iterable[tuple[Any, Any]], new: Callable[[Any], Any], tensors: Tensors, depth: int
) -> Any:
    """A copy of a mapping or dataclass in which replaced parts are put; itself when none is."""
    parts = [(key, item, _rebuilt(item, new, tensors, depth + 1)) for key, item in held]
    changes = [(key, now) for key, before, now in parts if now is not before]
    if not changes:
        return holder
    result = copy(holder)
    for key, now in changes:
        if isinstance(holder, Mapping):
            result[key] = now
        else:
            object.__setattr__(result, key, now)  # frozen ones, too
    return result
