"""The nouns: plain, frozen data that every other room speaks in.

Making a data type takes a millisecond, so each file of them is loaded when one of its names is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelglass.report.architecture import Architecture
    from modelglass.report.checkpoint import Checkpoint, File
    from modelglass.report.comparison import (
        Compared,
        Comparison,
        Deviation,
        Matched,
        Pair,
        Standing,
        TensorPair,
        Term,
    )
    from modelglass.report.cost import Cost, ModuleCost
    from modelglass.report.dataflow import Dataflow, Dims, Symbol, Symbols
    from modelglass.report.engine import (
        CacheGroup,
        Component,
        Engine,
        PagedCache,
        Piece,
        Reached,
        Serving,
        Shard,
        Share,
    )
    from modelglass.report.execution import Call, Failure, Kernel, Op, Phase, SourceLine, Value
    from modelglass.report.fit import AUTOCAST, WEIGHTS, Axes, Fit, Option, Sharding, WhatIf
    from modelglass.report.flow import Flow, FlowEdge, FlowNode, NodeKind, Stage
    from modelglass.report.lifetimes import (
        VALUES_DECIDE,
        Category,
        Lifetimes,
        MemoryPhase,
        Step,
        Storage,
        Tail,
    )
    from modelglass.report.matching import Difference, Matching, Side
    from modelglass.report.memory import CATEGORIES, Coverage, KvCache, LiveTensor, Memory, Method, Moment
    from modelglass.report.model import Json, Model, Module, Packing, Shape, Tensor, TensorKind
    from modelglass.report.observation import Observation, RankModel
    from modelglass.report.parts import Part, PartKind
    from modelglass.report.report import (
        Counts,
        ModuleCounts,
        Note,
        Report,
        Run,
        RunMode,
        Severity,
        Tally,
    )
    from modelglass.report.scan import (
        LEVELS,
        Finding,
        GlobalKind,
        GlobalUse,
        Level,
        Scan,
        ScannedFile,
        Verdict,
    )
    from modelglass.report.stats import FINDINGS, Described, Histogram, TensorStats
    from modelglass.report.unique import Reproducers, Unique, UniqueModule, UniqueOp
    from modelglass.report.values import Values

_HOMES = {
    "architecture": ("Architecture",),
    "checkpoint": ("Checkpoint", "File"),
    "comparison": (
        "Compared",
        "Comparison",
        "Deviation",
        "Matched",
        "Pair",
        "Standing",
        "TensorPair",
        "Term",
    ),
    "cost": ("Cost", "ModuleCost"),
    "dataflow": ("Dataflow", "Dims", "Symbol", "Symbols"),
    "engine": (
        "CacheGroup",
        "Component",
        "Engine",
        "PagedCache",
        "Piece",
        "Reached",
        "Serving",
        "Shard",
        "Share",
    ),
    "execution": ("Call", "Failure", "Kernel", "Op", "Phase", "SourceLine", "Value"),
    "fit": ("Axes", "AUTOCAST", "WEIGHTS", "Fit", "Option", "Sharding", "WhatIf"),
    "flow": ("Flow", "FlowEdge", "FlowNode", "NodeKind", "Stage"),
    "lifetimes": ("VALUES_DECIDE", "Category", "Lifetimes", "MemoryPhase", "Step", "Storage", "Tail"),
    "matching": ("Difference", "Matching", "Side"),
    "memory": ("CATEGORIES", "Coverage", "KvCache", "LiveTensor", "Memory", "Method", "Moment"),
    "model": ("Json", "Model", "Module", "Packing", "Shape", "Tensor", "TensorKind"),
    "observation": ("Observation", "RankModel"),
    "parts": ("Part", "PartKind"),
    "report": (
        "Counts",
        "ModuleCounts",
        "Note",
        "Report",
        "Run",
        "RunMode",
        "Severity",
        "Tally",
    ),
    "scan": ("LEVELS", "Finding", "GlobalKind", "GlobalUse", "Level", "Scan", "ScannedFile", "Verdict"),
    "stats": ("FINDINGS", "Described", "Histogram", "TensorStats"),
    "unique": ("Reproducers", "Unique", "UniqueModule", "UniqueOp"),
    "values": ("Values",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AUTOCAST",
    "CATEGORIES",
    "FINDINGS",
    "LEVELS",
    "VALUES_DECIDE",
    "WEIGHTS",
    "Architecture",
    "Axes",
    "CacheGroup",
    "Call",
    "Category",
    "Checkpoint",
    "Compared",
    "Comparison",
    "Component",
    "Cost",
    "Counts",
    "Coverage",
    "Dataflow",
    "Described",
    "Deviation",
    "Difference",
    "Dims",
    "Engine",
    "Failure",
    "File",
    "Finding",
    "Fit",
    "Flow",
    "FlowEdge",
    "FlowNode",
    "GlobalKind",
    "GlobalUse",
    "Histogram",
    "Json",
    "Kernel",
    "KvCache",
    "Level",
    "Lifetimes",
    "LiveTensor",
    "Matched",
    "Matching",
    "Memory",
    "MemoryPhase",
    "Method",
    "Model",
    "Module",
    "ModuleCost",
    "ModuleCounts",
    "Moment",
    "NodeKind",
    "Note",
    "Observation",
    "Op",
    "Option",
    "Packing",
    "PagedCache",
    "Pair",
    "Part",
    "PartKind",
    "Phase",
    "Piece",
    "RankModel",
    "Reached",
    "Report",
    "Reproducers",
    "Run",
    "RunMode",
    "Scan",
    "ScannedFile",
    "Serving",
    "Severity",
    "Shape",
    "Shard",
    "Sharding",
    "Share",
    "Side",
    "SourceLine",
    "Stage",
    "Standing",
    "Step",
    "Storage",
    "Symbol",
    "Symbols",
    "Tail",
    "Tally",
    "Tensor",
    "TensorKind",
    "TensorPair",
    "TensorStats",
    "Term",
    "Unique",
    "UniqueModule",
    "UniqueOp",
    "Value",
    "Values",
    "Verdict",
    "WhatIf",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'modelglass.report' has no attribute {name!r}")
    value = getattr(import_module(f"modelglass.report.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
