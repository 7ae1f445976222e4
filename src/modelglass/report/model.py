"""What a model is and what it did when it ran: facts, in no framework's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

from modelglass.report.dtypes import bits_of, nbytes_of

# Text, numbers, booleans, None, and lists and string-keyed dicts of them; typing cannot say it in a form
# that the codec could read at run time.
Json: TypeAlias = Any

Shape: TypeAlias = tuple[int, ...]
TensorKind: TypeAlias = Literal["parameter", "buffer", "packed"]
Phase: TypeAlias = Literal["forward", "backward", "recompute"]


def _require_shape(shape: Shape | None) -> None:
    for dim in shape or ():  # a plain loop: there may be a million shapes
        if type(dim) is not int or dim < 0:
            raise ValueError(f"not a shape: {shape}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How a weight is stored when one stored element is not one weight.

    `nbytes` is what the tensor itself takes; `side_nbytes` what scales and zero points take that are
    tensors of their own.
    """

    scheme: str
    logical_shape: Shape
    nbytes: int
    side_nbytes: int = 0

    def __post_init__(self) -> None:
        _require_shape(self.logical_shape)

    @property
    def logical_numel(self) -> int:
        return prod(self.logical_shape)

    @property
    def bits_per_weight(self) -> float | None:
        numel = self.logical_numel
        return 8 * (self.nbytes + self.side_nbytes) / numel if numel else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One named parameter, buffer or packed weight.

    Two tensors have the same `storage` exactly when they are the same elements in memory. `shape` is None
    while a lazy parameter waits for its first input.
    """

    name: str
    kind: TensorKind
    shape: Shape | None
    dtype: str
    storage: str
    trainable: bool | None = None  # None: the source does not say (no file does)
    device: str | None = None
    packing: Packing | None = None
    nonzero: int | None = None  # elements a pruning mask lets through; None: not pruned

    def __post_init__(self) -> None:
        _require_shape(self.shape)

    @property
    def numel(self) -> int | None:
        return None if self.shape is None else prod(self.shape)

    @property
    def logical_numel(self) -> int | None:
        return self.numel if self.packing is None else self.packing.logical_numel

    @property
    def params(self) -> int | None:
        """Elements as the framework counts them; of weights that it hides, what they stand for."""
        return self.logical_numel if self.kind == "packed" else self.numel

    @property
    def nbytes(self) -> int | None:
        if self.packing is not None:
            return self.packing.nbytes
        return None if self.numel is None else nbytes_of(self.dtype, self.numel)

    @property
    def bits_per_weight(self) -> float | None:
        return bits_of(self.dtype) if self.packing is None else self.packing.bits_per_weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One node of the module tree.

    `tensors` names what the module itself holds, tied names included. `aliases` are further paths at which
    the very same module hangs.
    """

    path: str
    type: str
    qualified_type: str
    config: Mapping[str, Json] = field(default_factory=dict)
    training: bool | None = None
    tensors: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One thing handed to or returned by a call or an operator.

    A tensor has `shape` and `dtype`; anything else has `text`. `name` says how to reach it: "0" for the
    first positional argument, "mask" for a keyword, "0.hidden" inside a structure, "" when it is the whole.
    `tensor` names the parameter or buffer whose memory it is.
    """

    name: str
    shape: Shape | None = None
    dtype: str | None = None
    text: str | None = None
    tensor: str | None = None
    nnz: int | None = None  # stored elements of a sparse tensor
    parts: tuple[Shape, ...] = ()  # shapes of a nested tensor's parts, which has none of its own

    @property
    def numel(self) -> int | None:
        return None if self.shape is None else prod(self.shape)

    @property
    def nbytes(self) -> int | None:
        if self.shape is None or self.dtype is None or self.nnz is not None:
            return None  # a sparse tensor's indices take room that its shape does not tell
        return nbytes_of(self.dtype, prod(self.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One execution of one module. `completed` is False for the calls an error ended.

    `ran` is a digest of the kernels that ran in the call itself, in order, with their attributes, shapes and
    types: two calls have the same exactly when the same ran in them. None: nobody looked.
    """

    index: int
    module: str
    parent: int | None
    phase: Phase
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    completed: bool = True
    ran: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What really ran below an operator, kept when it may contract (multiply and sum)."""

    name: str
    attributes: Mapping[str, Json]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def input(self, name: str) -> Value | None:
        """The input of that name, or None when the call left it out."""
        return next((value for value in self.inputs if value.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operator execution, under the name a user would call it by.

    `module` and `call` own it: for a backward operator, the forward call whose gradient it computes.
    `macs` is None until cost is analysed, and after that when no formula covers what ran.
    """

    index: int
    name: str
    overload: str
    module: str
    call: int | None
    phase: Phase
    attributes: Mapping[str, Json]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    kernels: tuple[Kernel, ...] = ()
    macs: int | None = None

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensors it read and wrote, or None when one has an unknown size."""
        sizes = [v.nbytes for v in (*self.inputs, *self.outputs) if v.dtype is not None]
        return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The module tree, its tensors, and what an observed run called and executed, in order."""

    name: str
    source: str
    modules: tuple[Module, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    calls: tuple[Call, ...] = ()
    ops: tuple[Op, ...] = ()

    def __post_init__(self) -> None:
        paths = {module.path for module in self.modules}
        if len(paths) != len(self.modules):
            raise ValueError("two modules have the same path")
        strangers = {child for module in self.modules for child in module.children} - paths
        if strangers:
            raise ValueError(f"children that are no modules: {sorted(strangers)}")
