"""The public functions: they join the rooms and hold no logic of their own."""

from typing import TYPE_CHECKING

from modelglass._lazy import attach

if TYPE_CHECKING:
    from modelglass.api._compare import compare as compare, compare_structure as compare_structure
    from modelglass.api._diff import diff as diff
    from modelglass.api._fit import fit as fit
    from modelglass.api._flow import flow as flow
    from modelglass.api._footprint import asks_of_files as asks_of_files, footprint as footprint
    from modelglass.api._found import (
        OF_INPUTS as OF_INPUTS,
        FoundInputs as FoundInputs,
        find_inputs as find_inputs,
    )
    from modelglass.api._inspect import (
        children_by_module as children_by_module,
        fixed_seed as fixed_seed,
        inputs_of as inputs_of,
        inspect as inspect,
        inspect_calls as inspect_calls,
        inspect_modules as inspect_modules,
        inspect_run as inspect_run,
        require_complete as require_complete,
        scan as scan,
        tensors_by_module as tensors_by_module,
    )
    from modelglass.api._memory import inspect_memory as inspect_memory, memory as memory
    from modelglass.api._output import (
        RENDERERS as RENDERERS,
        cell as cell,
        load as load,
        plot as plot,
        plot_memory as plot_memory,
        plotter as plotter,
        render as render,
        save as save,
        show as show,
        timeline_plotter as timeline_plotter,
    )
    from modelglass.api._page import page as page, scan_of as scan_of
    from modelglass.api._stats import stats as stats
    from modelglass.api._unique import reproduce as reproduce, unique as unique
    from modelglass.checkpoints import LIMITS as LIMITS, check_limits as check_limits
    from modelglass.formats.confine import unbounded as unbounded
    from modelglass.frameworks.shared.specs import TensorSpec as TensorSpec, parse_specs as parse_specs
    from modelglass.options import (
        AUTOMATIC as AUTOMATIC,
        SEARCH_SECONDS as SEARCH_SECONDS,
        Automatic as Automatic,
    )
    from modelglass.page import parse_columns as parse_columns
    from modelglass.page.sections.distinct import (
        UNIQUE_COLUMNS as UNIQUE_COLUMNS,
        UNIQUE_DATA_COLUMNS as UNIQUE_DATA_COLUMNS,
        UNIQUE_SORTS as UNIQUE_SORTS,
        UniqueChoice as UniqueChoice,
    )
    from modelglass.page.sections.layers import (
        COLUMNS as COLUMNS,
        DATA_COLUMNS as DATA_COLUMNS,
        SORTS as SORTS,
    )
    from modelglass.page.sections.statistics import (
        STATS_COLUMNS as STATS_COLUMNS,
        STATS_SORTS as STATS_SORTS,
    )
    from modelglass.renderers._escape import told as told, unspoken as unspoken
    from modelglass.report import (
        AUTOCAST as AUTOCAST,
        FINDINGS as FINDINGS,
        WEIGHTS as WEIGHTS,
        MemorySnapshot as MemorySnapshot,
        Serving as Serving,
        WhatIf as WhatIf,
    )
    from modelglass.report.dtypes import full_dtype_name as full_dtype_name
    from modelglass.report.scan import LEVELS as LEVELS, Level as Level
    from modelglass.report.sizes import parse_nbytes as parse_nbytes, parse_tokens as parse_tokens
    from modelglass.targets.paths import is_plain_file as is_plain_file
    from modelglass.targets.python_file import roles_in as roles_in
    from modelglass.user_code import parse_code_name as parse_code_name

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "modelglass.api._compare": "compare compare_structure",
        "modelglass.api._diff": "diff",
        "modelglass.api._fit": "fit",
        "modelglass.api._flow": "flow",
        "modelglass.api._footprint": "asks_of_files footprint",
        "modelglass.api._found": "OF_INPUTS FoundInputs find_inputs",
        "modelglass.api._inspect": (
            "children_by_module fixed_seed inputs_of inspect inspect_calls inspect_modules inspect_run "
            "require_complete scan tensors_by_module"
        ),
        "modelglass.api._memory": "inspect_memory memory",
        "modelglass.api._page": "page scan_of",
        "modelglass.api._stats": "stats",
        "modelglass.api._unique": "reproduce unique",
        "modelglass.api._output": (
            "RENDERERS cell load plot plot_memory plotter render save show timeline_plotter"
        ),
        "modelglass.checkpoints": "LIMITS check_limits",
        "modelglass.formats.confine": "unbounded",
        "modelglass.frameworks.shared.specs": "TensorSpec parse_specs",
        "modelglass.options": "AUTOMATIC SEARCH_SECONDS Automatic",
        "modelglass.renderers._escape": "told unspoken",
        "modelglass.page": "parse_columns",
        "modelglass.page.sections.layers": "COLUMNS DATA_COLUMNS SORTS",
        "modelglass.page.sections.distinct": "UNIQUE_COLUMNS UNIQUE_DATA_COLUMNS UNIQUE_SORTS UniqueChoice",
        "modelglass.page.sections.statistics": "STATS_COLUMNS STATS_SORTS",
        "modelglass.report": "AUTOCAST FINDINGS WEIGHTS MemorySnapshot Serving WhatIf",
        "modelglass.report.dtypes": "full_dtype_name",
        "modelglass.report.scan": "LEVELS Level",
        "modelglass.report.sizes": "parse_nbytes parse_tokens",
        "modelglass.targets.paths": "is_plain_file",
        "modelglass.targets.python_file": "roles_in",
        "modelglass.user_code": "parse_code_name",
    },
)
