"""What a built model can be called with: its own example, or inputs made from what its configuration says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modelglass.configs.examples.facts import Facts, Probe
from modelglass.configs.examples.pictured import picture

_OWN = ("example_input_array", "dummy_inputs")  # of Lightning, and of many others


@dataclass(frozen=True)
class Example:
    """Inputs for a model, None where nothing tells what it takes; and what it could have been given, too."""

    inputs: Any = None
    left_out: tuple[str, ...] = ()


def example(native: Any, probe: Probe) -> Example:
    """What a model can be called with.

    `probe` runs a module without computing and names what it gives; it decides where there is a choice.
    """
    facts = Facts.of(native, probe)
    if facts is None:
        own = _own(native)
        return Example(picture(native) if own is None else own)
    if not facts.can_be_called:
        return Example()
    from modelglass.configs.examples.candidates import candidates, optional

    ways = candidates(facts)
    first = None
    for way in ways:
        given = way()
        if given and (len(ways) == 1 or probe(native, given) is not None):
            return Example(given, tuple(name for name in optional(facts) if name not in given))
        first = first or given
    return Example(first or _own(native))


def _own(native: Any) -> Any:
    """What a model itself shows as an example of its inputs."""
    for name in _OWN:
        try:
            found = getattr(native, name, None)
        except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError):
            continue  # a property that asks for values, which a model without weights does not have
        if found is not None and not callable(found):
            return found
    return None
