"""modelglass: see through any model.

    import modelglass as mg
    report = mg.inspect(model, inputs=x)
    mg.show(report)

Importing this loads next to nothing; each name brings what it needs when it is first used.
"""

from typing import TYPE_CHECKING

from modelglass._lazy import attach
from modelglass._version import __version__ as __version__

if TYPE_CHECKING:
    from modelglass.analyses.cost.formulas import register_formula as register_formula
    from modelglass.api import (
        compare as compare,
        compare_structure as compare_structure,
        diff as diff,
        find_inputs as find_inputs,
        fit as fit,
        flow as flow,
        footprint as footprint,
        inspect as inspect,
        load as load,
        memory as memory,
        plot as plot,
        plot_memory as plot_memory,
        render as render,
        reproduce as reproduce,
        save as save,
        scan as scan,
        show as show,
        stats as stats,
        unique as unique,
    )
    from modelglass.compat.dump_model_info import (
        LayerInfo as LayerInfo,
        ModelInfo as ModelInfo,
        dump_model_info as dump_model_info,
    )
    from modelglass.compat.model_info import info as info, model_info as model_info
    from modelglass.compat.summary import ModelSummary as ModelSummary, summary as summary
    from modelglass.compat.unique_modules import (
        extract_pytorch_ops as extract_pytorch_ops,
        extract_unique_modules as extract_unique_modules,
    )
    from modelglass.errors import ForwardError as ForwardError, InspectError as InspectError
    from modelglass.frameworks.shared.request import Inputs as Inputs
    from modelglass.report import (
        Comparison as Comparison,
        Diff as Diff,
        Engine as Engine,
        Fit as Fit,
        Flow as Flow,
        Footprint as Footprint,
        Report as Report,
        Scan as Scan,
        Serving as Serving,
        WhatIf as WhatIf,
    )

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "modelglass.analyses.cost.formulas": "register_formula",
        "modelglass.api": (
            "compare compare_structure diff find_inputs fit flow footprint inspect load memory plot "
            "plot_memory render reproduce save scan show stats unique"
        ),
        "modelglass.compat.dump_model_info": "LayerInfo ModelInfo dump_model_info",
        "modelglass.compat.model_info": "info model_info",
        "modelglass.compat.summary": "ModelSummary summary",
        "modelglass.compat.unique_modules": "extract_pytorch_ops extract_unique_modules",
        "modelglass.errors": "ForwardError InspectError",
        "modelglass.frameworks.shared.request": "Inputs",
        "modelglass.report": "Comparison Diff Engine Fit Flow Footprint Report Scan Serving WhatIf",
    },
    modules=("mlx",),
)
__all__ += ["__version__"]
