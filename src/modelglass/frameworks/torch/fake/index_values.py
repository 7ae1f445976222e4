"""Whole numbers that index, checked against what they index.

A fake kernel that looks something up knows the sizes of both sides, and not the numbers. Where a fake run
knows these, they are compared with the size that bounds them. A number that is out of bounds is given to the
real kernel in a call of the smallest size that still has it: what that raises is what a real run would. The
kernel decides, so numbers below zero, labels to be ignored and the like need no rules here.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import torch

from modelglass.frameworks.torch.describe import tensors_among, unobserved
from modelglass.frameworks.torch.privates import OpOverload

MOST = 32  # distinct numbers out of bounds that the kernel is asked about
SMALL = 2**20  # elements of a call that is repeated in its own sizes

Given: TypeAlias = Mapping[str, Any]  # arguments by name
ValueOf: TypeAlias = Callable[[torch.Tensor], torch.Tensor | None]
Witness: TypeAlias = dict[str, Any]  # arguments of a small real call
Rule: TypeAlias = Callable[[Any, Given, ValueOf], Iterator[Witness]]


class Indexing(NamedTuple):
    """Which argument indexes which other one, along which dimension: its number, or the argument with it."""

    numbers: str
    into: str
    dim: int | str | None  # None: all elements, as if they lay in one row


def check_values(rule: Rule, func: Any, args: Sequence[Any], kwargs: Given, value_of: ValueOf) -> None:
    """Raise what the real kernel raises if known whole numbers among its arguments are out of bounds."""
    given = dict(zip(_names(func), args, strict=False)) | dict(kwargs)
    with unobserved(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a result given as `out=` gets another size
        for witness in rule(func, given, value_of):
            func(**witness)


@cache
def _names(func: Any) -> tuple[str, ...]:
    return tuple(argument.name for argument in func._schema.arguments)


def rule_of(func: Any) -> Rule | None:
    """How a kernel's numbers are checked; None for one whose arguments do not index."""
    if not isinstance(func, OpOverload) or func.namespace != "aten":
        return None
    kernel = func._schema.name.removeprefix("aten::")
    indexing = _INDEXING.get(kernel.rstrip("_"))
    if indexing is not None:
        return partial(_index_and_others if "offsets" in _names(func) else _one_index, indexing)
    if kernel.rstrip("_") in _OTHERS:
        return _OTHERS[kernel.rstrip("_")]
    if kernel.endswith("_backward"):  # its forward pass was checked, and its result can be a whole table
        return None
    tensors = {each.name for each in func._schema.arguments if "Tensor" in str(each.type)}
    return None if _COUNTS.isdisjoint(tensors) else _repeat


def _one_index(indexing: Indexing, func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    values, into = value_of(given[indexing.numbers]), given[indexing.into]
    if values is None:
        return
    dim = given[indexing.dim] if isinstance(indexing.dim, str) else indexing.dim
    if dim is not None and into.dim():
        dim = min(dim, into.dim() - 1)
    shape = [1] * into.dim()
    if dim is None:
        shape = [into.numel()]
    elif shape:
        shape[dim] = into.shape[dim]
    size = 1 if not shape else shape[0 if dim is None else dim]
    for number in _out_of_bounds(values, size):
        index = torch.full([1] * values.dim(), number, dtype=values.dtype)
        yield {name: _tiny(func, name, value) for name, value in given.items()} | {
            indexing.numbers: index,
            indexing.into: torch.zeros(shape, dtype=into.dtype),
        }


def _index_and_others(indexing: Indexing, func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    yield from _one_index(indexing, func, given, value_of)
    yield from _repeat(func, given, value_of)


def _several_indices(func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    """`x[i, j]`: an index for each dimension, none for a whole one, a mask for several of them."""
    into, dim = given["self"], 0
    for index in given["indices"]:
        if index is None or index.dtype in _MASKS:
            if index is not None and "values" in given:  # it may select more than there are values for
                yield from _repeat(func, given, value_of)
            dim += 1 if index is None else index.dim()
            continue
        values = value_of(index)
        if values is not None and dim < into.dim():
            shape = [1] * into.dim()
            shape[dim] = into.shape[dim]
            for number in _out_of_bounds(values, into.shape[dim]):
                found = torch.full([1], number, dtype=values.dtype)
                alone = {"self": torch.zeros(shape, dtype=into.dtype), "indices": [None] * dim + [found]}
                rest = {name: _tiny(func, name, value) for name, value in given.items() if name not in alone}
                yield rest | alone
        dim += 1


def _out_of_bounds(values: torch.Tensor, size: int) -> list[int]:
    """The numbers below 0 and from `size` on, each once and in order."""
    if not values.numel() or values.dtype.is_floating_point:
        return []
    low, high = torch.aminmax(values)
    if low.item() >= 0 and high.item() < size:
        return []
    outside = values[(values < 0) | (values >= size)].tolist()
    return list(dict.fromkeys(outside))[:MOST]


def _tiny(func: Any, name: str, value: Any) -> Any:
    """An argument that goes with those under test: of one element, or none where none is needed."""
    if not isinstance(value, torch.Tensor):
        return value
    return None if name in _optional(func) else torch.zeros([1] * value.dim(), dtype=value.dtype)


@cache
def _optional(func: Any) -> frozenset[str]:
    return frozenset(each.name for each in func._schema.arguments if str(each.type) == "Optional[Tensor]")


def _repeat(func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    """The call itself, if it is small: whole numbers as they are known, ones for all the others."""
    tensors = list(tensors_among(list(given.values())))
    if sum(tensor.numel() for tensor in tensors) > SMALL or any(
        each.device.type != "cpu" for each in tensors
    ):
        return
    whole = [tensor for tensor in tensors if not (tensor.is_floating_point() or tensor.is_complex())]
    if whole and all(value_of(tensor) is not None for tensor in whole):
        yield {name: _real(value, value_of) for name, value in given.items()}


def _real(value: Any, value_of: ValueOf) -> Any:
    if isinstance(value, torch.Tensor):
        known = value_of(value)
        return torch.ones(value.shape, dtype=value.dtype) if known is None else known.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(_real(item, value_of) for item in value)
    return value


def _check_mask(func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    """As many values as a mask selects must be there."""
    into, source, mask = given["self"], given["source"], value_of(given["mask"])
    if mask is None or mask.dtype is not torch.bool:
        return
    shape = torch.broadcast_shapes(into.shape, mask.shape)
    if int(mask.expand(shape).sum()) > source.numel():
        yield {
            "self": torch.zeros(2, dtype=into.dtype),
            "mask": torch.ones(2, dtype=torch.bool),
            "source": torch.zeros(1, dtype=source.dtype),
        }


def _check_draw(func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    """At least one is drawn, and without replacement no more than there are."""
    weights, number = given["self"], given["num_samples"]
    is_too_many = weights.dim() and number > weights.shape[-1] and not given.get("replacement", False)
    if number < 1 or is_too_many:
        shape = [1] * (weights.dim() - 1) + [*weights.shape[-1:]]
        yield {"self": torch.ones(shape, dtype=weights.dtype), "num_samples": number}
    yield from _check_parameters(func, given, value_of)


def _check_parameters(func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    """A draw by probabilities, rates or bounds that are known; those of `x.uniform_(a, b)` are numbers."""
    into = given["self"] if func._schema.is_mutable else None
    names = [name for name, value in given.items() if isinstance(value, torch.Tensor) and value is not into]
    known = {name: value_of(given[name]) for name in names}
    if not all(each is not None and each.numel() <= SMALL for each in known.values()):
        return
    numbers = (value for value in given.values() if type(value) in (int, float))
    question = func, None if into is None else into.dtype, *numbers
    if not known and question in _accepted:
        return
    drawn = dict(given) | known
    if into is not None:
        drawn["self"] = torch.zeros(into.shape if known else 1, dtype=into.dtype)
    drawn["generator"] = torch.Generator()  # the user's are not ours to draw from
    yield drawn
    if not known:
        _accepted.add(question)


_accepted: set[Any] = set()  # draws that depend on numbers alone


def _check_layout(func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    """A look at memory beyond its end: the kernel of fake tensors does not know where that is."""
    into, shape, strides = given["self"], given["size"], given["stride"]
    offset = given.get("storage_offset")
    first = into.storage_offset() if offset is None else offset
    last = first + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    nbytes = into.untyped_storage().nbytes()
    if 0 not in shape and (last + 1) * into.itemsize > nbytes:
        memory = torch.empty(nbytes // into.itemsize, dtype=into.dtype)
        yield dict(given) | {"self": memory.as_strided(into.shape, into.stride(), into.storage_offset())}


def _run_on_zeros(func: Any, given: Given, value_of: ValueOf) -> Iterator[Witness]:
    """The call itself on zeros, if it is small: only sizes and places matter."""
    if sum(tensor.numel() for tensor in tensors_among(list(given.values()))) <= SMALL:
        yield {
            name: torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value
            for name, value in given.items()
        }


def check_operator(func: Any, args: Sequence[Any], kwargs: Given) -> None:
    """The same for an operator that leaves out its own check of values where tensors are fake."""
    if func is not torch.ops.aten.one_hot.default:
        return
    known = getattr(getattr(args[0], "fake_mode", None), "known", None)
    values = None if known is None else known.value(args[0])
    if values is not None and values.numel():
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        with unobserved():
            for number in _out_of_bounds(values, classes if classes > 0 else int(values.max()) + 1):
                func(torch.full([1], number, dtype=values.dtype), classes)


_MASKS = (torch.bool, torch.uint8)
_INDEXING = {
    "embedding": Indexing("indices", "weight", 0),
    "embedding_renorm": Indexing("indices", "self", 0),
    "_embedding_bag": Indexing("indices", "weight", 0),
    "_embedding_bag_forward_only": Indexing("indices", "weight", 0),
    "gather": Indexing("index", "self", "dim"),
    "index_add": Indexing("index", "self", "dim"),
    "index_copy": Indexing("index", "self", "dim"),
    "index_fill": Indexing("index", "self", "dim"),
    "index_reduce": Indexing("index", "self", "dim"),
    "index_select": Indexing("index", "self", "dim"),
    "multi_margin_loss": Indexing("target", "self", 1),
    "nll_loss2d_forward": Indexing("target", "self", 1),
    "nll_loss_forward": Indexing("target", "self", 1),
    "put": Indexing("index", "self", None),
    "scatter": Indexing("index", "self", "dim"),
    "scatter_add": Indexing("index", "self", "dim"),
    "scatter_reduce": Indexing("index", "self", "dim"),
    "take": Indexing("index", "self", None),
}
_OTHERS: Mapping[str, Rule | None] = {
    "index": _several_indices,
    "index_put": _several_indices,
    "_index_put_impl": _several_indices,
    "_unsafe_index": None,  # trusts its indices
    "_unsafe_index_put": None,
    "masked_scatter": _check_mask,
    "multinomial": _check_draw,
    "bernoulli": _check_parameters,
    "normal": _check_parameters,
    "poisson": _check_parameters,
    "binomial": _check_parameters,
    "uniform": _check_parameters,
    "exponential": _check_parameters,
    "geometric": _check_parameters,
    "log_normal": _check_parameters,
    "cauchy": _check_parameters,
    "random": _check_parameters,
    "as_strided": _check_layout,
    "as_strided_scatter": _run_on_zeros,
    "select_scatter": _run_on_zeros,
}
# Arguments of other kernels whose numbers count or index.
_COUNTS = frozenset(
    {"batch_sizes", "index", "indices", "input_lengths", "lengths", "offs", "offsets", "repeats", "sorter"}
    | {"target", "target_lengths", "targets"}
)
