"""What a model is: facts, in no framework's terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from modelglass.report.dtypes import bits_of, nbytes_of

if TYPE_CHECKING:  # what only a run needs is not loaded to list a file
    from modelglass.report.execution import Call, Op

# Text, numbers, booleans, None, and lists and string-keyed dicts of them; typing cannot say it in a form
# that the codec could read at run time.
Json: TypeAlias = Any

Shape: TypeAlias = tuple[int, ...]
TensorKind: TypeAlias = Literal["parameter", "buffer", "packed"]


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
    shards: int | None = None  # plain elements, of which `nbytes` are one of so many shards

    def __post_init__(self) -> None:
        _require_shape(self.logical_shape)

    @property
    def logical_numel(self) -> int:
        return prod(self.logical_shape)

    @property
    def bits_per_weight(self) -> float | None:
        if self.shards is not None:
            return None  # that is a matter of the element type
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
    trainable: bool | None = None  # None: not specified by the source (by files never)
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
        if self.packing is None or self.packing.shards is not None:
            return bits_of(self.dtype)
        return self.packing.bits_per_weight


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
            raise ValueError(f"unknown children: {sorted(strangers)}")
