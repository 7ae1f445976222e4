"""modelglass: see through any model.

>>> import modelglass as mg
>>> report = mg.inspect(torch.nn.Linear(3, 8), inputs=torch.ones(5, 10, 3))  # doctest: +SKIP
"""

from modelglass.analyses.formulas import register_formula
from modelglass.api import ModelSummary, inspect, load, render, save, show, summary
from modelglass.errors import InspectError
from modelglass.frameworks.request import Inputs
from modelglass.report import Report

__version__ = "0.1.0"

__all__ = [
    "Inputs",
    "InspectError",
    "ModelSummary",
    "Report",
    "__version__",
    "inspect",
    "load",
    "register_formula",
    "render",
    "save",
    "show",
    "summary",
]
