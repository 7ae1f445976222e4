"""What operators are called in a diagram, and which of them only look at the same values in another way."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from modelglass.report import Op

LONGEST = 4  # operators named in a label

# These change neither values nor their order, or next to nothing: nobody draws them.
_UNSEEN = {"alias", "clone", "contiguous", "detach", "expand", "expand_as", "lift_fresh", "squeeze", "to"}
_UNSEEN |= {"type_as", "unsqueeze", "view_as"}
_UNSEEN |= {"astype", "broadcast_arrays", "broadcast_to", "depends", "expand_dims", "stop_gradient"}
# These keep the order of the values, and do nothing when the shape stays what it was.
_RESHAPING = _UNSEEN | {"flatten", "reshape", "unflatten", "view"}
# So do these, which hand on some of the values.
_CUTTING = {"getitem", "narrow", "slice", "split"}
# All that hand on the same values in another arrangement, or some of them.
_VIEWS = (
    _RESHAPING | _CUTTING | {"chunk", "movedim", "permute", "select", "split_with_sizes", "swapaxes", "t"}
)
_VIEWS |= {
    "mH",
    "mT",
    "matrix_H",
    "numpy_T",
    "swapdims",
    "tensor_split",
    "transpose",
    "unbind",
    "unsafe_chunk",
}
# Arithmetic that is not the point of a longer chain.
_COMMON = {"abs", "add", "and", "clamp", "copy", "div", "eq", "floor_divide", "full_like", "ge", "gt", "le"}
_COMMON |= {"lt", "masked_fill", "mean", "mul", "ne", "neg", "not", "ones_like", "or", "pow", "rsqrt", "sub"}
_COMMON |= {"sum", "where", "zeros_like"}
_COMMON |= {"divide", "equal", "greater", "greater_equal", "less", "less_equal", "logical_and", "logical_not"}
_COMMON |= {"logical_or", "maximum", "minimum", "multiply", "negative", "not_equal", "power", "square"}
_COMMON |= {"subtract"}


def word(op: Op) -> str:
    """The operator's own name, without where it lives and whether it worked in place."""
    return op.name.rpartition(".")[2].strip("_") or op.name


def is_view(op: Op) -> bool:
    """Whether it only hands on values in another arrangement."""
    return word(op) in _VIEWS


def is_unseen(op: Op) -> bool:
    """Whether it is a view that nobody would draw."""
    name = word(op)
    return name in _UNSEEN or (name in _RESHAPING | _CUTTING and _keeps_shape(op))


def is_reshaping(op: Op) -> bool:
    """Whether it is a view that keeps the order of the values."""
    return word(op) in _RESHAPING


def is_heavy(op: Op) -> bool:
    """Whether it does the work of a layer: multiply by weights and sum."""
    multiplies = bool(op.kernels) if op.macs is None else op.macs > 0
    return multiplies and any(value.tensor is not None for value in op.inputs)


def label(words: Iterable[str]) -> str:
    """The telling ones of a chain of operators, in order: "mul → sin → cos → cat"."""
    chain = list(words)
    seen = [each for each in chain if each not in _VIEWS] or [each for each in chain if each not in _UNSEEN]
    short = [each for each, _ in groupby(seen or chain)]
    if len(short) > LONGEST:
        short = list(dict.fromkeys(short))
    if len(short) > LONGEST:
        telling = [each for each in short[:-1] if each not in _COMMON] or short
        short = [*telling[: LONGEST - 1], short[-1]]
    return " → ".join(short)


def _keeps_shape(op: Op) -> bool:
    given = [value.shape for value in op.inputs if value.shape is not None]
    return len(given) == 1 and [value.shape for value in op.outputs] == given
