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
    from modelglass.api import (
        compare,
        compare_structure,
        fit,
        flow,
        inspect,
        load,
        memory,
        plot,
        plot_memory,
        render,
        reproduce,
        save,
        scan,
        show,
        unique,
    )
    from modelglass.compat.dump_model_info import LayerInfo, ModelInfo, dump_model_info
    from modelglass.compat.model_info import model_info
    from modelglass.compat.summary import ModelSummary, summary
    from modelglass.compat.unique_modules import extract_pytorch_ops, extract_unique_modules
    from modelglass.errors import ForwardError, InspectError
    from modelglass.frameworks.request import Inputs
    from modelglass.report import Comparison, Engine, Fit, Flow, Report, Scan, Serving, WhatIf

__version__ = "0.1.0"

_HOMES = {
    "Comparison": "modelglass.report",
    "Engine": "modelglass.report",
    "Fit": "modelglass.report",
    "Flow": "modelglass.report",
    "ForwardError": "modelglass.errors",
    "Inputs": "modelglass.frameworks.request",
    "InspectError": "modelglass.errors",
    "LayerInfo": "modelglass.compat.dump_model_info",
    "ModelInfo": "modelglass.compat.dump_model_info",
    "ModelSummary": "modelglass.compat.summary",
    "Report": "modelglass.report",
    "Scan": "modelglass.report",
    "Serving": "modelglass.report",
    "WhatIf": "modelglass.report",
    "compare": "modelglass.api",
    "compare_structure": "modelglass.api",
    "dump_model_info": "modelglass.compat.dump_model_info",
    "extract_pytorch_ops": "modelglass.compat.unique_modules",
    "extract_unique_modules": "modelglass.compat.unique_modules",
    "fit": "modelglass.api",
    "flow": "modelglass.api",
    "inspect": "modelglass.api",
    "load": "modelglass.api",
    "memory": "modelglass.api",
    "model_info": "modelglass.compat.model_info",
    "plot": "modelglass.api",
    "plot_memory": "modelglass.api",
    "register_formula": "modelglass.analyses.formulas",
    "render": "modelglass.api",
    "reproduce": "modelglass.api",
    "save": "modelglass.api",
    "scan": "modelglass.api",
    "show": "modelglass.api",
    "summary": "modelglass.compat.summary",
    "unique": "modelglass.api",
}

__all__ = [
    "Comparison",
    "Engine",
    "Fit",
    "Flow",
    "ForwardError",
    "Inputs",
    "InspectError",
    "LayerInfo",
    "ModelInfo",
    "ModelSummary",
    "Report",
    "Scan",
    "Serving",
    "WhatIf",
    "__version__",
    "compare",
    "compare_structure",
    "dump_model_info",
    "extract_pytorch_ops",
    "extract_unique_modules",
    "fit",
    "flow",
    "inspect",
    "load",
    "memory",
    "model_info",
    "plot",
    "plot_memory",
    "register_formula",
    "render",
    "reproduce",
    "save",
    "scan",
    "show",
    "summary",
    "unique",
]


def __getattr__(name: str) -> Any:
    if name == "mlx":  # modelglass.mlx without an import of its own
        return import_module("modelglass.mlx")
    if name not in _HOMES:
        raise AttributeError(f"module 'modelglass' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
