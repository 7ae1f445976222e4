"""What a model did when it ran: calls of modules, operators, and where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from modelglass.report.dtypes import nbytes_of
from modelglass.report.model import Json, Shape

Phase: TypeAlias = Literal["forward", "backward", "recompute"]


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
            return None  # a sparse tensor's indices take room that does not follow from its shape
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
    `macs` is None until cost is analysed, unless it is known to be 0, and after that when no formula covers
    what ran.
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

    def costing(self, macs: int | None) -> Op:
        """The same operator with its multiply-accumulates; there are many, so written out."""
        return Op(
            index=self.index,
            name=self.name,
            overload=self.overload,
            module=self.module,
            call=self.call,
            phase=self.phase,
            attributes=self.attributes,
            inputs=self.inputs,
            outputs=self.outputs,
            kernels=self.kernels,
            macs=macs,
        )

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensors it read and wrote, or None when one has an unknown size."""
        sizes = [v.nbytes for v in (*self.inputs, *self.outputs) if v.dtype is not None]
        return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """A line of the code that a model is written in."""

    file: str
    line: int
    text: str  # without indentation; empty where the source is not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Where and why the run ended early. `inputs` are the shapes that met there."""

    module: str
    module_type: str
    error: str
    message: str
    op: str | None
    inputs: tuple[Value, ...]
    source: SourceLine | None = None  # the innermost line that is not the framework's own
