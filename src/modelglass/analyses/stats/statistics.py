"""The statistics of a model's tensors, each memory read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from modelglass.analyses.stats.engine import Advance, describe
from modelglass.errors import UsageError
from modelglass.report import Model, Tensor, TensorStats, Values


def statistics(
    model: Model,
    values: Mapping[str, Values | str],
    *,
    pattern: str = "*",
    advance: Advance | None = None,
) -> dict[str, TensorStats | None]:
    """The statistics of each tensor whose name fits the pattern; None where there are no values to read.

    `values` says how to read each tensor, or why it cannot be read.
    """
    literal = pattern.replace("[", "[[]")  # only * and ? are special: names may have brackets
    wanted = [tensor for tensor in model.tensors if fnmatchcase(tensor.name, literal)]
    if not wanted and model.tensors:
        raise UsageError(
            f"no tensor is called {pattern!r}",
            hint=f"names look like {model.tensors[0].name!r}; * matches anything",
        )
    readable = {
        tensor.name: source for tensor in wanted if isinstance(source := source_of(tensor, values), Values)
    }
    # A view of a part of another tensor shares its storage, and has values of its own.
    first: dict[object, str] = {}
    same = {
        tensor.name: first.setdefault((tensor.storage, readable[tensor.name].elements), tensor.name)
        for tensor in wanted
        if tensor.name in readable
    }
    found = describe({name: readable[name] for name in first.values()}, advance=advance)
    return {tensor.name: found.get(same.get(tensor.name, "")) for tensor in wanted}


def source_of(tensor: Tensor, values: Mapping[str, Values | str]) -> Values | str:
    """Where the values of a tensor are. Those of a packed one are not the weights themselves."""
    source = values.get(tensor.name, "not offered by the framework")
    if isinstance(source, Values) and tensor.packing is not None and source.described != "dequantized":
        return replace(source, described="stored")
    return source
