"""modelglass: see through any model.

    import modelglass as mg
    report = mg.inspect(model, inputs=x)
    mg.show(report)

Importing this loads next to nothing; each name brings what it needs when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelglass.analyses.formulas import register_formula
    from modelglass.api import ModelSummary, inspect, load, plot, render, save, show, summary
    from modelglass.doors.dump_model_info import LayerInfo, ModelInfo, dump_model_info
    from modelglass.errors import InspectError
    from modelglass.frameworks.request import Inputs
    from modelglass.report import Report

__version__ = "0.1.0"

_HOMES = {
    "Inputs": "modelglass.frameworks.request",
    "InspectError": "modelglass.errors",
    "LayerInfo": "modelglass.doors.dump_model_info",
    "ModelInfo": "modelglass.doors.dump_model_info",
    "ModelSummary": "modelglass.api",
    "Report": "modelglass.report",
    "dump_model_info": "modelglass.doors.dump_model_info",
    "inspect": "modelglass.api",
    "load": "modelglass.api",
    "plot": "modelglass.api",
    "register_formula": "modelglass.analyses.formulas",
    "render": "modelglass.api",
    "save": "modelglass.api",
    "show": "modelglass.api",
    "summary": "modelglass.api",
}

__all__ = [
    "Inputs",
    "InspectError",
    "LayerInfo",
    "ModelInfo",
    "ModelSummary",
    "Report",
    "__version__",
    "dump_model_info",
    "inspect",
    "load",
    "plot",
    "register_formula",
    "render",
    "save",
    "show",
    "summary",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'modelglass' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
