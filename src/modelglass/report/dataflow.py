"""Which tensor went where in a forward pass, and which of its sizes follow the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Dims: TypeAlias = tuple[str, ...]  # a shape for people: ("B", "L", "16"), ("4·L",), ("B", "(H/16)·(W/16)+1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataflow:
    """The tensors of a forward pass, numbered as they appear, and the operators that read and made them.

    `inputs` and `names` go with `Run.inputs`, `outputs` with `Run.outputs`, `reads` and `writes` with
    `Model.ops`. An operator that works in place makes a tensor of a new number, and whoever reads that memory
    afterwards, through whichever view, reads it: so an output or a read argument may be several numbers, the
    tensor's own first. `writes` begin with the operator's outputs in order; None is an output that is no
    tensor, or one that the operator was given and handed on as it was. Parameters and buffers have no number
    before they are written to; nor has anything of a backward pass.
    """

    names: tuple[str, ...]  # what the model's signature calls each input: "x", "cache.0", "mask"
    inputs: tuple[int | None, ...]
    outputs: tuple[tuple[int, ...], ...]  # empty: not a tensor, or from no input and no operator
    reads: tuple[tuple[int, ...], ...]
    writes: tuple[tuple[int | None, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A size of the inputs that can change: `size` in this run, at the places "x.0", "mask.1" of the inputs.

    `tried` are the sizes with which it was found; formulas were tried with more.
    """

    name: str
    size: int
    places: tuple[str, ...]
    tried: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """The sizes that can change, and the shapes that follow them, by the tensors' numbers in `Dataflow`.

    A formula stands in a shape only where it held in every run; a size that changed by no formula that was
    found stands there as its number with the symbols in braces: "197{H,W}".
    """

    symbols: tuple[Symbol, ...] = ()
    shapes: Mapping[int, Dims] = field(default_factory=dict)  # of tensors that have a symbol in their shape
