"""The public functions: they join the rooms and hold no logic of their own."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from modelglass.api._flow import flow
from modelglass.api._inspect import (
    contained,
    held,
    inspect,
    inspect_calls,
    inspect_run,
    require_complete,
    scan,
    seeded,
)
from modelglass.api.showing import (
    COMPARISON_RENDERERS,
    FIT_RENDERERS,
    FLOW_RENDERERS,
    MEMORY_RENDERERS,
    RENDERERS,
    SCAN_RENDERERS,
    STATS_RENDERERS,
    UNIQUE_RENDERERS,
    load,
    plot,
    plot_memory,
    plotter,
    render,
    save,
    show,
    timeline_plotter,
)
from modelglass.options import AUTOMATIC
from modelglass.renderers._escape import told, unspoken
from modelglass.renderers.columns import COLUMNS, known_columns
from modelglass.targets.paths import has_weights_and_config

if TYPE_CHECKING:
    from modelglass.api._compare import compare, compare_structure
    from modelglass.api._fit import fit
    from modelglass.api._memory import memory
    from modelglass.api._unique import reproduce, unique
    from modelglass.checkpoints import limits_of as checked_limits
    from modelglass.frameworks.request import TensorSpec
    from modelglass.renderers.unique import COLUMNS as UNIQUE_COLUMNS
    from modelglass.renderers.unique import SORTS as UNIQUE_SORTS
    from modelglass.renderers.unique import Choice as UniqueChoice
    from modelglass.renderers.weights import COLUMNS as STATS_COLUMNS
    from modelglass.renderers.weights import SORTS as STATS_SORTS
    from modelglass.report import AUTOCAST, FINDINGS, WEIGHTS, Serving, WhatIf

__all__ = [
    "AUTOCAST",
    "AUTOMATIC",
    "COLUMNS",
    "COMPARISON_RENDERERS",
    "FINDINGS",
    "FIT_RENDERERS",
    "FLOW_RENDERERS",
    "MEMORY_RENDERERS",
    "RENDERERS",
    "SCAN_RENDERERS",
    "STATS_COLUMNS",
    "STATS_RENDERERS",
    "STATS_SORTS",
    "UNIQUE_COLUMNS",
    "UNIQUE_RENDERERS",
    "UNIQUE_SORTS",
    "WEIGHTS",
    "Serving",
    "TensorSpec",
    "UniqueChoice",
    "WhatIf",
    "checked_limits",
    "compare",
    "compare_structure",
    "contained",
    "fit",
    "flow",
    "has_weights_and_config",
    "held",
    "inspect",
    "inspect_calls",
    "inspect_run",
    "known_columns",
    "load",
    "memory",
    "plot",
    "plot_memory",
    "plotter",
    "render",
    "reproduce",
    "require_complete",
    "save",
    "scan",
    "seeded",
    "show",
    "timeline_plotter",
    "told",
    "unique",
    "unspoken",
]

_HOMES = {  # what a listing of a file does without, imported when it is asked for
    "compare": ("api._compare", "compare"),
    "compare_structure": ("api._compare", "compare_structure"),
    "memory": ("api._memory", "memory"),
    "fit": ("api._fit", "fit"),
    "reproduce": ("api._unique", "reproduce"),
    "unique": ("api._unique", "unique"),
    "FINDINGS": ("report", "FINDINGS"),
    "checked_limits": ("checkpoints", "limits_of"),
    "STATS_COLUMNS": ("renderers.weights", "COLUMNS"),
    "STATS_SORTS": ("renderers.weights", "SORTS"),
    "TensorSpec": ("frameworks.request", "TensorSpec"),
    "UNIQUE_COLUMNS": ("renderers.unique", "COLUMNS"),
    "UNIQUE_SORTS": ("renderers.unique", "SORTS"),
    "UniqueChoice": ("renderers.unique", "Choice"),
    "AUTOCAST": ("report", "AUTOCAST"),
    "Serving": ("report", "Serving"),
    "WEIGHTS": ("report", "WEIGHTS"),
    "WhatIf": ("report", "WhatIf"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'modelglass.api' has no attribute {name!r}")
    module, home_name = _HOMES[name]
    return getattr(import_module(f"modelglass.{module}"), home_name)
