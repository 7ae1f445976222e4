"""Inputs that the user describes, with what files and code hold of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations, product
from math import prod
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from modelglass.api._inputs import NEEDS_VALUES
from modelglass.api._models import require_extra
from modelglass.errors import UsageError
from modelglass.frameworks.shared.specs import (
    PICTURES,
    CodeSpec,
    FileSpec,
    InputSpec,
    SeveralSpec,
    TensorSpec,
    ValueSpec,
    check_names,
)

if TYPE_CHECKING:
    from modelglass.formats.reading import Reading
    from modelglass.frameworks.protocol import Adapter
    from modelglass.inputs.signature import Parameter
    from modelglass.report import Note, Report

_NUMBER = re.compile(r"\b(?:int|float)\b")  # in the annotation of what takes a number
_TYPES = ("bool", "int64", "float32")
_MOST_CHANGED = 2  # inputs whose types are changed together
_MOST_NAMED = 8  # arrays in a message


def resolved(
    specs: Sequence[InputSpec], native: Any, adapter: Adapter, stack: ExitStack
) -> tuple[InputSpec, ...]:
    """The same inputs, with what files and code hold. What code imports is forgotten with the stack."""
    trials = adapter.trials(native)
    parameters = [] if trials is None else trials.known_of(native).parameters
    named = {each.name: each for each in parameters}
    found = [item for spec in specs for item in _contents(spec, native, adapter, stack)]
    check_names(found)
    return tuple(_number_if_meant(spec, named.get(spec.name or "")) for spec in found)


def typed(given: tuple[InputSpec, ...], native: Any, notes: list[Note]) -> tuple[InputSpec, ...]:
    """Inputs by keyword that were given without a type, in types with which the model runs.

    That of one input alone follows from what the model begins with, and where no type helps, the types are
    left as they are: the run then shows what is wrong.
    """
    open_ = [at for at, each in enumerate(given) if _is_open(each)]
    if len(given) < 2 or not open_ or _runs(native, given):
        return given
    for count in range(1, _MOST_CHANGED + 1):
        for places in combinations(open_, count):
            for types in product(_TYPES, repeat=count):
                tried = list(given)
                for at, dtype in zip(places, types, strict=True):
                    tried[at] = replace(tried[at], dtype=dtype)  # type: ignore[type-var]
                if _runs(native, tuple(tried)):
                    notes.append(_typed_note([tried[at] for at in places]))
                    return tuple(tried)
    return given


def _is_open(spec: InputSpec) -> bool:
    return isinstance(spec, TensorSpec) and spec.dtype is None and spec.name is not None


def _runs(native: Any, given: tuple[InputSpec, ...]) -> bool:
    from modelglass.frameworks import adapter_for
    from modelglass.frameworks.shared.request import Detail, Request

    adapter = adapter_for(native)
    if adapter is None:
        return True
    failure = adapter.observe(native, Request(inputs=given, detail=Detail.CALLS)).run.failure
    return failure is None or failure.error in NEEDS_VALUES


def _typed_note(specs: Sequence[Any]) -> Note:
    from modelglass.report import Note

    named = ", ".join(f"{each.name} is {each.dtype}" for each in specs)
    text = f"types that the model needs were found by trying: {named}; write them to decide, as mask=2x7:bool"
    return Note(code="types-found", text=text)


def _contents(spec: InputSpec, native: Any, adapter: Adapter, stack: ExitStack) -> Iterator[InputSpec]:
    """One input, or those that a file has by name."""
    if isinstance(spec, CodeSpec):
        from modelglass.targets.code import result_of

        yield ValueSpec(stack.enter_context(result_of(spec.code)), spec.name)
    elif isinstance(spec, SeveralSpec):
        items = (item for each in spec.items for item in _contents(each, native, adapter, stack))
        yield replace(spec, items=tuple(items))
    elif isinstance(spec, FileSpec):
        if PurePath(spec.path).suffix.lower() in PICTURES:
            from modelglass.formats.pictures import read_picture

            yield ValueSpec(adapter.picture(native, read_picture(Path(spec.path))), spec.name)
        else:
            yield from _of_file(spec, native, adapter)
    else:
        yield spec


def _of_file(spec: FileSpec, native: Any, adapter: Adapter) -> Iterator[ValueSpec]:
    """The one array of a file, or the one of that name; without a name all of them, by theirs."""
    arrays = {name: adapter.array(native, *each) for name, each in _arrays(Path(spec.path)).items()}
    if len(arrays) == 1:
        yield ValueSpec(next(iter(arrays.values())), spec.name)
    elif spec.name in arrays:
        yield ValueSpec(arrays[spec.name], spec.name)
    elif spec.name is None and arrays and all(map(_is_input_name, arrays)):
        for name, value in arrays.items():  # those of a list have numbers
            yield ValueSpec(value, name if name.isidentifier() else None)
    else:
        names = ", ".join(list(arrays)[:_MOST_NAMED])
        lack = "not all are called as inputs" if spec.name is None else f"none is called {spec.name!r}"
        raise UsageError(
            f"{spec.path!r} holds {len(arrays)} arrays, and {lack}",
            hint=f"it has {names}" if arrays else "give a file with an array",
        )


def _is_input_name(name: str) -> bool:
    return name.isidentifier() or name.isdigit()


def _arrays(path: Path) -> dict[str, tuple[Any, tuple[int, ...], str]]:
    """The words, the shape and the element type of each array in a file, which is read and never run."""
    from modelglass.checkpoints import inspect_file
    from modelglass.targets.kind import report_nothing
    from modelglass.targets.paths import check_exists

    found: dict[str, tuple[Any, tuple[int, ...], str]] = {}

    def collect(report: Report, reading: Reading) -> Report:
        with require_extra("numpy", "reading values", extra="stats"):
            from modelglass.formats.tensors.values import values
        for name, each in values(reading).items():
            if isinstance(each, str):
                raise UsageError(
                    f"{str(path)!r}: {name!r} cannot be read: it is {each}", hint="save it plainly"
                )
            found[name] = each.read(0, prod(each.shape)), each.shape, each.dtype
        return report

    check_exists(path)
    inspect_file(path, limits=None, progress=report_nothing, with_stats=collect)
    return found


def _number_if_meant(spec: InputSpec, parameter: Parameter | None) -> InputSpec:
    """`steps=5` is a tensor of five, and the number where the model takes one."""
    if parameter is None or not isinstance(spec, TensorSpec) or not _is_open(spec) or len(spec.shape) != 1:
        return spec
    is_number = isinstance(parameter.default, (int, float)) or _NUMBER.search(parameter.annotation)
    return ValueSpec(spec.shape[0], spec.name) if is_number and not parameter.is_list else spec
