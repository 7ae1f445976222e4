"""The public functions: they join the rooms and hold no logic of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from modelglass import frameworks
from modelglass.analyses.cost import cost, priced
from modelglass.analyses.counts import count
from modelglass.errors import UnknownTargetError
from modelglass.frameworks.request import Inputs, Observation, Request
from modelglass.report import Report, RunMode

def inspect(target: Any, inputs: Any = None, *, run: RunMode = "fake", train: bool = False) -> Report:
    native = target
    framework = frameworks.framework_of(native)
    adapter = None if framework is None else frameworks.adapter(framework)
    if not isinstance(inputs, (Inputs, type(None))):
        inputs = Inputs(args=inputs) if type(inputs) is tuple else Inputs(kwargs=inputs) if isinstance(inputs, dict) else Inputs(args=(inputs,))
    o = adapter.observe(native, Request(inputs=inputs, mode=run, train=train))
    model = priced(o.model)
    return Report(model=model, run=o.run, counts=count(model), cost=cost(model), notes=o.notes)
