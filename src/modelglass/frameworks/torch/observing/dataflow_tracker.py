"""Tensors through a run: each is numbered when it appears, and operators read and make numbers.

The number is an attribute of the tensor, and of the memory that came with it: a tensor that no operator made,
such as a Parameter around one, is known by its memory. Numbers of one run mean nothing in another, and those
on tensors that may outlive the run are taken off again. What is written in place gets a new number; whoever
reads that part of the memory through another view afterwards also reads it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, count
from typing import Any, NamedTuple

import torch
from torch import nn

from modelglass.frameworks.shared.signatures import input_name, positional_names
from modelglass.frameworks.torch.describe import leaves, tensors_in
from modelglass.frameworks.torch.privates import FakeTensor, is_transformed, is_transforming, transformed
from modelglass.frameworks.torch.structure.regions import Region
from modelglass.report import Dataflow

_NUMBER = "_modelglass_number"
_WRITTEN = "_modelglass_written"  # of a memory: what was written to it in place, and where
_RUN = 2**40  # numbers that a run has for itself
_runs = count(1)
_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout})
_Made = tuple[int | None, ...]
_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_BITWISE = ("and", "or", "xor", "lshift", "rshift")
_ASSIGNING = frozenset({"__setitem__", *(f"__i{name}__" for name in (*_ARITHMETIC, *_BITWISE))})


class DataflowTracker:
    """Numbers the tensors of one run."""

    def __init__(self) -> None:
        self._first = self._next = next(_runs) * _RUN
        self._has_writes = False
        self._weights: frozenset[int] = frozenset()  # ids of what the model holds
        # Of the operator that runs: the ids of what it read that has no number; whether it is transformed.
        self._unnumbered: set[int] = set()
        self._transforms = False
        self._lasting: list[weakref.ref[Any]] = []
        self._names: tuple[str, ...] = ()
        self._inputs: tuple[int | None, ...] = ()
        self._outputs: tuple[tuple[int, ...], ...] = ()

    def enter(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Number the model's inputs."""
        named = list(leaves((args, kwargs)))
        parameters = positional_names(getattr(model, "forward", model))
        self._weights = frozenset(map(id, chain(model.parameters(), model.buffers())))
        self._names = tuple(input_name(name, parameters) for name, _ in named)
        self._inputs = tuple(self._input(value) for _, value in named)

    def leave(self, output: Any) -> None:
        """Take down what the model returned."""
        self._outputs = tuple(
            self._read([value], writes=True) if isinstance(value, torch.Tensor) else ()
            for _, value in leaves(output)
        )

    def forget(self) -> None:
        """Take the numbers off whatever outlives the run."""
        for reference in self._lasting:
            attributes = getattr(reference(), "__dict__", {})
            attributes.pop(_NUMBER, None)
            attributes.pop(_WRITTEN, None)
        self._lasting.clear()

    def read(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[int, ...]:
        """The numbers of the tensors among the arguments, each followed by later writes to its memory."""
        given = _tensor_arguments(args, kwargs)
        return self._read(given, writes=self._has_writes and not _effects(func).is_view)

    def add_operator(
        self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any, reads: tuple[int, ...]
    ) -> tuple[tuple[int, ...], _Made]:
        """What an operator read, and the numbers of what it made: its outputs, then what else it wrote to.

        `reads` are what `read` found just before. A view adds the writes to the part that it looks at.
        """
        effects = _effects(func)
        if effects.is_view and self._has_writes:
            reads = tuple(
                dict.fromkeys((*reads, *self._find_writes_to_views(_tensor_arguments(args, kwargs), result)))
            )
        if not effects.places and isinstance(result, torch.Tensor):
            return reads, (self._number_result(result, effects.may_alias),)
        changed = {
            id(each): self._renumber(each, effects) for each in _written_tensors(effects, args, kwargs)
        }
        numbers: list[int | None] = []
        for _, value in leaves(result):
            if not isinstance(value, torch.Tensor):
                numbers.append(None)
            elif id(value) in changed:
                numbers.append(changed.pop(id(value)))
            else:
                numbers.append(self._number_result(value, effects.may_alias))
        return reads, (*numbers, *changed.values())

    def dataflow(self, reads: Iterable[tuple[int, ...]], writes: Iterable[_Made]) -> Dataflow:
        """All of it, with what each operator read and made."""
        return Dataflow(
            names=self._names,
            inputs=self._inputs,
            outputs=self._outputs,
            reads=tuple(reads),
            writes=tuple(writes),
        )

    def _input(self, value: Any) -> int | None:
        if not isinstance(value, torch.Tensor):
            return None
        number: int = value.__dict__.get(_NUMBER, 0) - self._first  # the same tensor may be given twice
        return self._number_new(value, in_new_memory=True) if number < 0 else number

    def _read(self, tensors: Iterable[torch.Tensor], *, writes: bool) -> tuple[int, ...]:
        first = self._first
        found: dict[int, None] = {}
        self._unnumbered.clear()
        self._transforms = is_transforming()
        for tensor in map(_bottom, tensors) if self._transforms else tensors:
            own: int = tensor.__dict__.get(_NUMBER, 0)
            if own < first:
                self._unnumbered.add(id(tensor))
                own = first - 1 if id(tensor) in self._weights else self._origin(tensor)
            if own >= first:
                found[own - first] = None
            if writes:
                storage = _storage(tensor)
                written = () if storage is None else storage.__dict__.get(_WRITTEN, ())
                if written:
                    since = _find_last_writes(written, Region.of(tensor), own)
                    found.update((number - first, None) for number in since)
        return tuple(found)

    def _origin(self, tensor: torch.Tensor) -> int:
        """The number of a tensor by the memory that it looks at; one before all others if that has none."""
        storage = _storage(tensor)
        number = 0 if storage is None else storage.__dict__.get(_NUMBER, 0)
        return max(number, self._first - 1)

    def _find_writes_to_views(self, given: Iterable[torch.Tensor], result: Any) -> Iterator[int]:
        """What was written to the parts of the given tensors that the results are views of."""
        results = [(view, _storage(view)) for view in map(_bottom, tensors_in(result))]
        for tensor in map(_bottom, given):
            storage = _storage(tensor)
            written = () if storage is None else storage.__dict__.get(_WRITTEN, ())
            if not written:
                continue
            own = tensor.__dict__.get(_NUMBER, 0)
            own = own if own >= self._first else self._origin(tensor)
            views = [view for view, memory in results if memory is storage]
            for view in views or [tensor]:  # it may have been copied after all
                yield from (
                    number - self._first for number in _find_last_writes(written, Region.of(view), own)
                )

    def _number_result(self, tensor: torch.Tensor, may_alias: bool) -> int | None:
        """The number of an operator's result; None for one that is handed on and stays what it was."""
        if self._transforms:
            tensor = _bottom(tensor)
        if tensor.__dict__.get(_NUMBER, 0) >= self._first or id(tensor) in self._unnumbered:
            return None
        return self._number_new(tensor, in_new_memory=not may_alias)

    def _number_new(self, tensor: torch.Tensor, *, in_new_memory: bool) -> int:
        """Number a tensor, and the memory that it brings along."""
        number = self._next
        self._next += 1
        tensor.__dict__[_NUMBER] = number
        storage = _storage(tensor) if in_new_memory else None
        if storage is not None:
            storage.__dict__[_NUMBER] = number
        if type(tensor) is not FakeTensor:
            self._keep_alive(tensor, storage)
        return number - self._first

    def _renumber(self, tensor: torch.Tensor, effects: _Effects) -> int:
        """Give a tensor that was written to a new number, which its memory remembers."""
        if self._transforms:
            tensor = _bottom(tensor)
        number = self._number_new(tensor, in_new_memory=False)
        storage = _storage(tensor) if effects.in_memory else None
        if storage is not None:
            region = Region.of(tensor)
            written = storage.__dict__.setdefault(_WRITTEN, [])
            while written and region.covers(written[-1][1]):
                written.pop()
            written.append((number + self._first, region))
            self._has_writes = True
            if type(tensor) is not FakeTensor:
                self._keep_alive(storage)
        return number

    def _keep_alive(self, *holders: Any) -> None:
        """Keep in mind tensors that are not fake, so that it may live on when the run is over."""
        self._lasting.extend(weakref.ref(holder) for holder in holders if holder is not None)


def _find_last_writes(written: Sequence[tuple[int, Region]], region: Region, since: int) -> list[int]:
    """What was written to a region, without what was written over."""
    found: list[int] = []
    for number, where in reversed(written):
        if number <= since:
            break
        if region.meets(where):
            found.append(number)
            if where.covers(region):
                break
    return found[::-1]


def _bottom(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that function transforms have wrapped, maybe several times."""
    while is_transformed(tensor):
        tensor = transformed(tensor)
    return tensor


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):  # sparse ones have several, others none to show
        return None


def _tensor_arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Every tensor among an operator's arguments."""
    found: list[torch.Tensor] = []
    _gather(args, found)
    if kwargs:
        _gather(kwargs.values(), found)
    return found


def _gather(values: Iterable[Any], found: list[torch.Tensor]) -> None:
    for value in values:
        kind = type(value)
        if kind in _PLAIN:
            continue
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif kind is list or kind is tuple:
            _gather(value, found)
        else:
            found.extend(tensors_in(value))


class _Effects(NamedTuple):
    """What an operator does to its arguments."""

    places: tuple[tuple[int, str], ...]  # of the arguments it changes: position and name
    in_memory: bool  # it changes values, and not only which of them a tensor looks at
    may_alias: bool  # what it gives may look at the memory of its arguments

    @property
    def is_view(self) -> bool:
        return self.may_alias and not self.places


def _written_tensors(
    effects: _Effects, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    """The tensors an operator was given to write to."""
    for index, name in effects.places:
        yield from tensors_in(args[index] if index < len(args) else kwargs.get(name))


@cache
def _effects(func: Any) -> _Effects:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a function is known by its name
        name = getattr(func, "__name__", "")
        writes = name in _ASSIGNING or (name.endswith("_") and not name.endswith("__"))
        return _Effects(((0, "input") if writes else (sys.maxsize, "out"),), in_memory=True, may_alias=True)
    places = tuple(
        (index, each.name)
        for index, each in enumerate(schema.arguments)
        if each.alias_info is not None and each.alias_info.is_write
    )
    in_memory = torch.Tag.inplace_view not in getattr(func, "tags", ())
    return _Effects(places, in_memory, any(each.alias_info is not None for each in schema.returns))
