"""The trail of tensors through a run: each is numbered when it appears, and operators read and make numbers.

The number is an attribute of the tensor, which is one of the run's own: no one else ever sees it. What is
written in place gets a new number. Whoever reads the same memory through another view reads that, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.torch.describe import leaves, memory_of, tensors_in
from modelglass.report import Dataflow

_NUMBER = "_modelglass_number"
_Made = tuple[int | None, ...]


class Trail:
    """Numbers the tensors of one run."""

    def __init__(self) -> None:
        self._count = 0
        # By memory: what was written to it in place, and by what view. Later ones have higher numbers, so a
        # memory that was given back and taken again misleads nobody: its new tensors come after.
        self._written: dict[int, list[int]] = {}
        self._names: tuple[str, ...] = ()
        self._inputs: tuple[int | None, ...] = ()
        self._outputs: tuple[tuple[int, ...], ...] = ()

    def enter(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Number the model's inputs."""
        named = list(leaves((args, kwargs)))
        parameters = _positional(model)
        self._names = tuple(_name(name, parameters) for name, _ in named)
        self._inputs = tuple(self._input(value) for _, value in named)

    def leave(self, output: Any) -> None:
        """Take down what the model returned."""
        self._outputs = tuple(
            self.read([value]) if isinstance(value, torch.Tensor) else () for _, value in leaves(output)
        )

    def read(self, values: Any) -> tuple[int, ...]:
        """The numbers of the tensors among the values, each followed by later writes to its memory."""
        found: dict[int, None] = {}
        for tensor in tensors_in(values):
            own: int = getattr(tensor, _NUMBER, -1)
            if own >= 0:
                found[own] = None
            if self._written:
                memory = memory_of(tensor)
                later = () if memory is None else self._written.get(memory, ())
                found.update((number, None) for number in later if number > own)
        return tuple(found)

    def made(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> _Made:
        """Number what an operator made: its outputs, then what else it wrote to."""
        written = list(_written_by(func, args, kwargs))
        changed = {id(tensor): self._rewritten(tensor) for tensor in written}
        given = {id(tensor) for tensor in tensors_in((args, kwargs))}
        numbers: list[int | None] = []
        for _, value in leaves(result):
            if not isinstance(value, torch.Tensor):
                numbers.append(None)
            elif id(value) in changed:
                numbers.append(changed.pop(id(value)))
            else:  # one that is handed on as it was stays what it was
                numbers.append(None if id(value) in given else self._next(value))
        return (*numbers, *changed.values())

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
        number = getattr(value, _NUMBER, None)  # the same tensor may be given twice
        return self._next(value) if number is None else number

    def _next(self, tensor: torch.Tensor) -> int:
        number = self._count
        self._count += 1
        setattr(tensor, _NUMBER, number)
        return number

    def _rewritten(self, tensor: torch.Tensor) -> int:
        number = self._next(tensor)
        memory = memory_of(tensor)
        if memory is not None:
            self._written.setdefault(memory, []).append(number)
        return number


def _written_by(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors an operator was given to write to."""
    for index, name in _places_written(func):
        value = args[index] if index < len(args) else kwargs.get(name)
        yield from tensors_in(value)


@cache
def _places_written(func: Any) -> tuple[tuple[int, str], ...]:
    schema = getattr(func, "_schema", None)
    arguments = () if schema is None else schema.arguments
    return tuple(
        (index, each.name)
        for index, each in enumerate(arguments)
        if each.alias_info is not None and each.alias_info.is_write
    )


def _positional(model: nn.Module) -> list[str]:
    """What the model's signature calls positional arguments; one that takes any number has a last "*name"."""
    try:
        parameters = signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # TorchScript, and what is written in C
        return []
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in kinds]
    return names + [f"*{each.name}" for each in parameters if each.kind is Parameter.VAR_POSITIONAL]


def _name(way: str, parameters: list[str]) -> str:
    """The way to an input, "0.1.mask" or "1.cache.0", with a positional argument by its name."""
    kind, _, rest = way.partition(".")
    if kind == "1":
        return rest
    at, _, inside = rest.partition(".")
    index = int(at)
    if index < len(parameters) and not parameters[index].startswith("*"):
        return ".".join(filter(None, (parameters[index], inside)))
    if parameters and parameters[-1].startswith("*"):
        return ".".join(filter(None, (parameters[-1][1:], str(index - len(parameters) + 1), inside)))
    return rest
