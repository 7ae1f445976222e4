"""The same inputs with another batch size or sequence length, at no cost: large ones have no values.

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
from math import prod
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.rnn import PackedSequence

from modelglass.errors import InputsError, UsageError
from modelglass.frameworks.request import Inputs
from modelglass.frameworks.torch.describe import DEPTH_LIMIT, leaves
from modelglass.frameworks.torch.fake_mode import FakeMode
from modelglass.frameworks.torch.known import LARGEST, is_knowable
from modelglass.report import Shape

_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})


def dimensions(inputs: Inputs) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs show, None for what they do not."""
    found: list[torch.Tensor] = []

    def collect(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    _rebuilt((inputs.args, dict(inputs.kwargs)), collect)
    return _dimensions(map(_form, filter(_is_plain, found)))


def resized(inputs: Inputs, batch_size: int | None, seq_len: int | None) -> Inputs:
    """The inputs with another batch size, sequence length or both; what stays the same is the same object.

    A resized tensor has no values and no memory, except for small ones of whole numbers: theirs may decide.
    """
    change = _Change.of(dimensions(inputs), batch_size, seq_len)
    return _with_shapes(inputs, lambda tensor: change.shape(_form(tensor)))


def resized_at(inputs: Inputs, sizes: Mapping[tuple[int, int], int]) -> Inputs:
    """The inputs with other sizes, each by the leaf it is of, as a run numbers them, and the dimension.

    What stays the same is the same object. One tensor given in several places is one tensor still.
    """
    wanted: dict[int, dict[int, int]] = {}
    for index, (_, leaf) in enumerate(leaves((inputs.args, dict(inputs.kwargs)))):
        changed = {dim: size for (at, dim), size in sizes.items() if at == index}
        if changed:
            wanted.setdefault(id(leaf), {}).update(changed)

    def shape(tensor: torch.Tensor) -> Shape:
        changed = wanted.get(id(tensor), {})
        return tuple(changed.get(dim, size) for dim, size in enumerate(tensor.shape))

    return _with_shapes(inputs, shape)


def _with_shapes(inputs: Inputs, shape: Callable[[torch.Tensor], Shape]) -> Inputs:
    """The inputs with each tensor in its new shape."""
    made: dict[int, torch.Tensor] = {}

    def new(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            made[id(tensor)] = _resized_tensor(tensor, shape) if _is_plain(tensor) else tensor
        return made[id(tensor)]

    return Inputs(args=_rebuilt(inputs.args, new), kwargs=_rebuilt(dict(inputs.kwargs), new))


@dataclass(frozen=True)
class _Form:
    """What the rule looks at."""

    shape: Shape
    kind: str  # "whole", "floating" or "other"


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

    def shape(self, form: _Form) -> Shape:
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


def _dimensions(forms: Iterable[_Form]) -> tuple[int | None, int | None]:
    known = [form for form in forms if form.shape]
    ids = (form for form in known if form.kind == "whole" and len(form.shape) == 2)
    features = (form for form in known if form.kind == "floating" and len(form.shape) == 3)
    telling = next(ids, None) or next(features, None)
    if telling is not None:
        return telling.shape[0], telling.shape[1]
    return (known[0].shape[0], None) if known else (None, None)


def _form(tensor: torch.Tensor) -> _Form:
    kind = "floating" if tensor.dtype.is_floating_point or tensor.dtype.is_complex else "other"
    return _Form(tuple(tensor.shape), "whole" if tensor.dtype in _WHOLE else kind)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is rows of memory and no more: only such ones can be made in another size."""
    kinds = (torch.Tensor, torch.nn.Parameter, FakeTensor)
    return (
        type(tensor) in kinds
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
    )


def _resized_tensor(tensor: torch.Tensor, new_shape: Callable[[torch.Tensor], Shape]) -> torch.Tensor:
    shape = new_shape(tensor)
    if shape == tuple(tensor.shape):
        return tensor
    if tensor.device.type == "cpu" and is_knowable(tensor) and prod(shape) * tensor.itemsize <= LARGEST:
        return _repeated(tensor, shape)
    made = torch.empty_strided(shape, _strides(tensor, shape), dtype=tensor.dtype, device="meta")
    if tensor.device.type not in ("cpu", "meta"):
        made = FakeTensor(FakeMode(), made, tensor.device)
    return made.requires_grad_(tensor.requires_grad)


def _repeated(tensor: torch.Tensor, shape: Shape) -> torch.Tensor:
    """The same values over again, or the first of them: a mask of ones stays one."""
    for dim, size in enumerate(shape):
        tensor = tensor.index_select(dim, torch.arange(size) % max(tensor.shape[dim], 1))
    return tensor


def _strides(tensor: torch.Tensor, shape: Shape) -> Shape:
    """Dense, in the order of the original: channels that come last do so again. Expanded ones are filled."""
    old = tensor.stride()
    order = list(range(len(shape)))
    if 0 not in old:
        order.sort(key=lambda dim: -old[dim])
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _rebuilt(value: Any, new: Callable[[torch.Tensor], torch.Tensor], depth: int = 0) -> Any:
    """The structure with each tensor replaced; what holds no replaced one is itself."""
    if isinstance(value, torch.Tensor):
        return new(value)
    if depth > DEPTH_LIMIT or isinstance(value, PackedSequence):
        return value  # the sizes of a packed batch are in its values
    if isinstance(value, Mapping):
        return _changed(value, value.items(), new, depth)
    if isinstance(value, (tuple, list)):
        items = [_rebuilt(item, new, depth + 1) for item in value]
        if all(now is before for now, before in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if is_dataclass(value) and not isinstance(value, type):
        held = [(field.name, getattr(value, field.name, None)) for field in fields(value)]
        return _changed(value, held, new, depth)
    return value


def _changed(
    holder: Any, held: Iterable[tuple[Any, Any]], new: Callable[[torch.Tensor], torch.Tensor], depth: int
) -> Any:
    """A copy of a mapping or dataclass in which replaced parts are put; itself when none is."""
    parts = [(key, item, _rebuilt(item, new, depth + 1)) for key, item in held]
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
