"""Values for an operator's arguments, as expressions: made up, but such that the operator accepts them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from math import prod
from typing import Any

import torch

from modelglass.errors import CannotReproduceError
from modelglass.report import Op, Value

Rule = Callable[[Op, Value], str | None]  # None: nothing particular is known

_QUANTIZED = ("qint8", "quint8", "qint32")
_LAYOUTS = {  # how a tensor is made sparse, by the text that describes it
    "sparse_coo tensor": "to_sparse()",
    "sparse_csr tensor": "to_sparse_csr()",
    "sparse_csc tensor": "to_sparse_csc()",
}


def expression(op: Op, value: Value) -> str:
    """Python that makes a tensor like the one the operator was given."""
    if value.dtype is None:
        return "None"
    torch_constant(value.dtype)
    if value.parts:
        parts = ", ".join(f"torch.rand({list(part)})" for part in value.parts)
        layout = "torch.jagged" if value.text == "jagged nested tensor" else "torch.strided"
        made = f"torch.nested.nested_tensor([{parts}], dtype=torch.{value.dtype}, layout={layout}"
        return f"{made}, device=device)"
    if value.shape is None:
        raise CannotReproduceError(f"its argument {value.name!r} has no shape: {value.text or 'unknown'}")
    rule = _RULES.get(f"{op.overload.split('.')[1]}.{value.name.partition('.')[0]}")
    sparse = _LAYOUTS.get(value.text or "")
    if sparse is not None and value.nnz is not None:
        return f"{_write_mask(value, value.nnz)}.{sparse}"
    return (rule(op, value) if rule is not None else None) or _any_values(value)


def torch_constant(name: Any) -> str:
    """`torch.float32` for "float32". A report may come from a file: only names torch knows become code."""
    if not isinstance(getattr(torch, str(name), None), (torch.dtype, torch.layout, torch.memory_format)):
        raise CannotReproduceError(f"torch has no {name!r}")
    return f"torch.{name}"


def _any_values(value: Value) -> str:
    """Fractions between 0 and 1, small whole numbers that are not 0, or truth by the toss of a coin."""
    shape, dtype = list(value.shape or ()), value.dtype or ""
    if dtype in _QUANTIZED:
        return f"torch.quantize_per_tensor(torch.rand({shape}), 0.1, 0, torch.{dtype}).to(device)"
    if dtype == "bool":
        return f"torch.rand({shape}, device=device) < 0.5"
    if "int" in dtype:
        return _integers(value, 1, 8)
    if dtype in ("float32", "float64", "float16", "bfloat16", "complex64", "complex128"):
        return f"torch.rand({shape}, dtype=torch.{dtype}, device=device)"
    return f"torch.rand({shape}, device=device).to(torch.{dtype})"


def _integers(value: Value, low: int, high: int) -> str:
    """Whole numbers from `low` to below `high`."""
    shape = list(value.shape or ())
    if high <= low:  # an index into nothing: there can be none
        return f"torch.zeros({shape}, dtype=torch.{value.dtype}, device=device)"
    return f"torch.randint({low}, {high}, {shape}, dtype=torch.{value.dtype}, device=device)"


def _write_list(value: Value, numbers: list[int] | int) -> str:
    return f"torch.tensor({numbers}, dtype=torch.{value.dtype})"


def _input(op: Op, name: str) -> Value | None:
    return next((value for value in op.inputs if value.name == name), None)


def _indices_into(name: str, dim: int | str) -> Rule:
    """Indices into a dimension of another argument: one of that number, or one an attribute names."""

    def rule(op: Op, value: Value) -> str | None:
        indexed = _input(op, name)
        at = op.attributes.get(dim) if isinstance(dim, str) else dim
        if indexed is None or not indexed.shape or not isinstance(at, int):
            return _integers(value, 0, 1)
        return _integers(value, 0, indexed.shape[at])

    return rule


def _classes(op: Op, value: Value) -> str | None:
    """Labels: whole numbers below the number of classes, or probabilities like any other fraction."""
    if "int" not in (value.dtype or ""):
        return None
    scores = _input(op, "self")
    if scores is None or not scores.shape:
        return _integers(value, 0, 1)
    return _integers(value, 0, scores.shape[1] if len(scores.shape) > 1 else scores.shape[0])


def _indices_up_to_result(op: Op, value: Value) -> str | None:
    """Whole numbers down from one below the result's last size, which may follow from the largest of them."""
    result, shape = op.outputs[0].shape, list(value.shape or ())
    if not result or not result[-1]:
        return None
    numbers = f"{result[-1] - 1} - torch.arange({prod(shape)}, device=device) % {result[-1]}"
    return f"({numbers}).reshape({shape}).to(torch.{value.dtype})"


def _pivots(op: Op, value: Value) -> str:
    """Rows in their own places, counted from 1."""
    shape = list(value.shape or ())
    rows = f"torch.arange(1, {shape[-1] + 1}, dtype=torch.{value.dtype}, device=device)"
    return f"{rows}.expand({shape}).clone()"


def _unpool_indices(op: Op, value: Value) -> str:
    """Places in the larger plane that the values go back to."""
    return _integers(value, 0, prod(op.attributes.get("output_size") or [1]))


def _advanced_index(op: Op, value: Value) -> str | None:
    """One of several indices of `x[i, j]`: whole numbers below a size, or a mask that selects."""
    indexed = _input(op, "self")
    if indexed is None or indexed.shape is None:
        return None
    dim = 0
    for other in op.inputs:
        if other.name == value.name:
            break
        if other.name.startswith("indices."):
            is_mask = other.dtype in ("bool", "uint8")
            dim += len(other.shape or ()) if is_mask else 1
    if value.dtype in ("bool", "uint8"):
        return _write_mask(value, _count_selected(op, value, dim))
    return _integers(value, 0, indexed.shape[dim] if dim < len(indexed.shape) else 1)


def _count_selected(op: Op, mask: Value, dim: int) -> int:
    """How many elements a mask selected, known from the result or the values written."""
    result = op.outputs[0].shape if op.outputs else None
    others = [v for v in op.inputs if v.name.startswith("indices.") and v is not mask and v.shape is not None]
    if op.overload.startswith("aten.index.") and result is not None and not others and len(result) > dim:
        return result[dim]
    written = _input(op, "values")
    if written is not None and written.shape and written.numel != 1:
        return written.shape[0]
    return max((v.shape[0] for v in others if v.shape), default=1)


def _write_mask(value: Value, count: int) -> str:
    """So many elements that are true, or 1, and the rest 0."""
    shape = list(value.shape or ())
    chosen = f"(torch.arange({prod(shape)}, device=device) < {count})"
    return f"{chosen}.reshape({shape}).to(torch.{value.dtype})"


def _nonzero(op: Op, value: Value) -> str | None:
    result = op.outputs[0].shape
    return None if not result else _write_mask(value, result[0])


def _where(op: Op, value: Value) -> str | None:
    """Without anything to choose from, it finds what is true."""
    return _nonzero(op, value) if op.overload == "aten.where.default" else None


def _mask(op: Op, value: Value) -> str | None:
    """A mask that may be smaller than what it selects from, along which it is repeated."""
    whole, result = _input(op, "self"), op.outputs[0].numel
    if whole is None or not whole.numel or not value.numel or result is None:
        return None
    return _write_mask(value, result * value.numel // max(whole.numel, value.numel))


def _distinct_values(op: Op, value: Value) -> str | None:
    """As many different values, or slices, as came out, in ascending order."""
    result, shape, dim = op.outputs[0].shape, list(value.shape or ()), op.attributes.get("dim")
    if not result:
        return None
    along = list(shape) if dim is None else [1] * len(shape)
    if dim is not None:
        along[dim] = shape[dim]
    last = result[0 if dim is None else dim] - 1
    count = f"torch.arange({prod(along)}, device=device).clamp(max={last}).reshape({along})"
    if value.dtype == "bool" and "consecutive" in op.overload:
        count = f"({count} % 2)"  # runs of only two values take turns
    return f"{count}.expand({shape}).to(torch.{value.dtype}, copy=True)"


def _repeats(op: Op, value: Value) -> str | None:
    """Numbers that add up to the size of the result."""
    dim = op.attributes.get("dim")
    shape = op.outputs[0].shape
    if shape is None or not value.numel:
        return None
    whole = shape[dim] if isinstance(dim, int) else prod(shape)
    return f"{_write_list(value, _shares(whole, value.numel))}.to(device)"


def _split_points(op: Op, value: Value) -> str | None:
    """Where the pieces that came out begin, but for the first."""
    dim = op.attributes.get("dim") or 0
    sizes = [piece.shape[dim] for piece in op.outputs if piece.shape]
    return _write_list(value, list(accumulate(sizes))[:-1] if value.shape else len(sizes))


def _shares(whole: int, number: int) -> list[int]:
    """Whole numbers that add up, as equal as can be, the larger first."""
    each, left = divmod(whole, number)
    return [each + (index < left) for index in range(number)]


def _segments(op: Op, value: Value) -> str | None:
    """Lengths that add up to what is reduced."""
    data, axis = _input(op, "data"), op.attributes.get("axis") or 0
    if data is None or not data.shape or not value.numel:
        return None
    return f"{_write_list(value, _shares(data.shape[axis], value.numel))}.to(device)"


def _ctc_lengths(op: Op, value: Value) -> str | None:
    """Input lengths: all steps. Target lengths: all of a padded row, or shares of targets laid end to end."""
    steps, targets = _input(op, "log_probs"), _input(op, "targets")
    if steps is None or targets is None or not steps.shape or not targets.shape or not value.numel:
        return None
    if value.name == "input_lengths":
        return _write_list(value, [steps.shape[0]] * value.numel)
    padded = len(targets.shape) == 2
    whole = targets.shape[-1]
    return _write_list(value, [whole] * value.numel if padded else _shares(whole, value.numel))


def _group_ends(op: Op, value: Value) -> str | None:
    """Where each group of rows ends: the last one at the end of them."""
    rows = _input(op, "self")
    if rows is None or not rows.shape or not value.numel:
        return None
    ragged = rows.shape[-1] if len(op.outputs[0].shape or ()) == 3 else rows.shape[0]
    ends = [ragged * (index + 1) // value.numel for index in range(value.numel)]
    return f"{_write_list(value, ends)}.to(device)"


def _batch_sizes(op: Op, value: Value) -> str | None:
    """How many sequences reach each step of a packed batch: all of them at first, never more later."""
    data, state = _input(op, "data"), _input(op, "hx.0") or _input(op, "hx")
    padded = op.outputs[0].shape
    if data is None or not data.shape or not value.numel:
        return None
    if state is not None and state.shape:
        first = state.shape[1]
    elif padded:  # unpacking: the result has the number of sequences
        first = padded[0 if op.attributes.get("batch_first") else 1]
    else:
        return None
    rest = _shares(data.shape[0] - first, value.numel - 1) if value.numel > 1 else []
    return _write_list(value, [first, *rest])


def _lengths(op: Op, value: Value) -> str | None:
    """Lengths of padded sequences, the longest first, that add up to what was packed."""
    packed, steps = op.outputs[0].shape, op.outputs[1].shape
    if not packed or not steps or not value.numel:
        return None
    rest = _shares(packed[0] - steps[0], value.numel - 1) if value.numel > 1 else []
    return _write_list(value, [steps[0], *rest])


def _positive_definite(op: Op, value: Value) -> str | None:
    if not value.shape:
        return None
    identity = f"torch.eye({value.shape[-1]}, dtype=torch.{value.dtype}, device=device)"
    return f"{identity}.expand({list(value.shape)}).clone()"


def _strided_memory(op: Op, value: Value) -> str | None:
    """A tensor at the beginning of memory that holds whatever the operator reaches."""
    sizes, strides = op.attributes.get("size"), op.attributes.get("stride")
    if not isinstance(sizes, list) or not isinstance(strides, list):
        return None
    reach = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    reach += op.attributes.get("storage_offset") or 0
    if reach <= (value.numel or 0):
        return None
    own = Value(name=value.name, shape=(max(reach, 1),), dtype=value.dtype)
    return f"{_any_values(own)}[:{value.numel}].view({list(value.shape or ())})"


def _first(op: Op, value: Value) -> str:
    """Zeros: the first of whatever is counted, which is always there."""
    return _integers(value, 0, 1)


# How values are made, and for which arguments of which operators.
_PLACES: tuple[tuple[Rule, str], ...] = (
    (_advanced_index, "index.indices index_put.indices index_put_.indices"),
    (_batch_sizes, "lstm.batch_sizes gru.batch_sizes rnn_tanh.batch_sizes rnn_relu.batch_sizes"),
    (_batch_sizes, "_pad_packed_sequence.batch_sizes"),
    (_classes, "nll_loss.target nll_loss_nd.target nll_loss2d.target cross_entropy_loss.target"),
    (_classes, "multi_margin_loss.target multilabel_margin_loss.target"),
    (_ctc_lengths, "ctc_loss.input_lengths ctc_loss.target_lengths"),
    (_distinct_values, "unique_dim.self unique_dim_consecutive.self unique_consecutive.self"),
    (_distinct_values, "_unique.self _unique2.self"),
    (_first, "embedding_bag.offsets _embedding_bag.offsets take.index"),
    (_group_ends, "_grouped_mm.offs _scaled_grouped_mm.offs"),
    (_indices_into("log_probs", -1), "ctc_loss.targets"),
    (_indices_into("self", 0), "embedding_renorm_.indices"),
    (_indices_into("self", "dim"), "gather.index index_select.index take_along_dim.indices"),
    (_indices_into("self", "dim"), "scatter.index scatter_add.index scatter_reduce.index"),
    (_indices_into("self", "dim"), "scatter_.index scatter_add_.index scatter_reduce_.index"),
    (_indices_into("self", "dim"), "index_add.index index_copy.index index_fill.index index_reduce.index"),
    (
        _indices_into("self", "dim"),
        "index_add_.index index_copy_.index index_fill_.index index_reduce_.index",
    ),
    (_indices_into("sorted_sequence", -1), "searchsorted.sorter"),
    (_indices_into("weight", 0), "embedding.indices embedding_bag.indices _embedding_bag.indices"),
    (_lengths, "_pack_padded_sequence.lengths"),
    (_mask, "masked_select.mask"),
    (_nonzero, "nonzero.self nonzero_numpy.self argwhere.self"),
    (_pivots, "linalg_lu_solve.pivots linalg_ldl_solve.pivots lu_solve.LU_pivots lu_unpack.LU_pivots"),
    (_positive_definite, "linalg_cholesky.self linalg_cholesky_ex.self cholesky.self"),
    (_indices_up_to_result, "one_hot.self bincount.self"),
    (_repeats, "repeat_interleave.repeats"),
    (_segments, "segment_reduce.lengths"),
    (_split_points, "tensor_split.tensor_indices_or_sections"),
    (_strided_memory, "as_strided.self as_strided_.self"),
    (_unpool_indices, "max_unpool2d.indices max_unpool3d.indices"),
    (_where, "where.condition"),
)
_RULES = {place: rule for rule, places in _PLACES for place in places.split()}
