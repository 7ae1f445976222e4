"""What a model's own signature calls its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from typing import Any


def positional_names(call: Callable[..., Any]) -> list[str]:
    """What a signature calls positional arguments; one that takes any number has a last "*name"."""
    try:
        parameters = signature(call).parameters.values()
    except (TypeError, ValueError):  # TorchScript, and what is written in C
        return []
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in parameters if each.kind in kinds]
    return names + [f"*{each.name}" for each in parameters if each.kind is Parameter.VAR_POSITIONAL]


def input_name(way: str, parameters: Sequence[str]) -> str:
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
