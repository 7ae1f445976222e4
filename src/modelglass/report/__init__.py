"""The nouns: plain, frozen data that every other room speaks in.

Making a data type takes a millisecond, so each file of them is loaded when one of its names is asked for.
"""

# ruff: noqa: F403

from typing import TYPE_CHECKING

from modelglass._lazy import attach

if TYPE_CHECKING:
    from modelglass.report.architecture import *
    from modelglass.report.blocks import *
    from modelglass.report.checkpoint import *
    from modelglass.report.comparison import *
    from modelglass.report.cost import *
    from modelglass.report.dataflow import *
    from modelglass.report.diff import *
    from modelglass.report.engine import *
    from modelglass.report.execution import *
    from modelglass.report.fit import *
    from modelglass.report.flow import *
    from modelglass.report.footprint import *
    from modelglass.report.lifetimes import *
    from modelglass.report.matching import *
    from modelglass.report.memory import *
    from modelglass.report.model import *
    from modelglass.report.observation import *
    from modelglass.report.parts import *
    from modelglass.report.report import *
    from modelglass.report.scan import *
    from modelglass.report.snapshot import *
    from modelglass.report.stats import *
    from modelglass.report.unique import *
    from modelglass.report.values import *

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "modelglass.report.architecture": "Architecture",
        "modelglass.report.blocks": "EqualBlocks Varying",
        "modelglass.report.checkpoint": "Checkpoint File",
        "modelglass.report.comparison": (
            "ComparedModel Comparison Deviation Matched Pair ParameterTerm Standing TensorPair"
        ),
        "modelglass.report.cost": "Cost ModuleCost",
        "modelglass.report.dataflow": "Dataflow Dims Symbol Symbols",
        "modelglass.report.diff": "Diff DiffSide DiffVerdict Operation ReadFailure Relation TensorDiff",
        "modelglass.report.engine": (
            "CacheGroup Component Engine PagedCache Piece Reached Serving Shard Share"
        ),
        "modelglass.report.execution": "Call Failure Kernel Op Phase SourceLine Value",
        "modelglass.report.fit": "AUTOCAST Axes Fit Option Sharding WEIGHTS WhatIf",
        "modelglass.report.footprint": "Footprint FootprintAt FootprintPart",
        "modelglass.report.flow": "Flow FlowEdge FlowNode NodeKind Stage",
        "modelglass.report.lifetimes": (
            "Category Lifetimes MemoryPhase MemoryPiece OptimizerStep Step Storage VALUES_DECIDE"
        ),
        "modelglass.report.matching": "Difference Matching Side",
        "modelglass.report.memory": "CATEGORIES Coverage KvCache LiveTensor Memory Method Moment",
        "modelglass.report.model": "Json Model Module Packing Shape Tensor TensorKind",
        "modelglass.report.observation": "Observation RankModel",
        "modelglass.report.parts": "CheckpointPart PartKind",
        "modelglass.report.report": "Counts ModuleCounts Note Report Run RunMode Severity Tally",
        "modelglass.report.scan": "Finding GlobalKind GlobalUse LEVELS Level Scan ScannedFile Verdict",
        "modelglass.report.snapshot": (
            "DeviceSnapshot HeldMemory MemorySnapshot RecordedBlock RecordedEvent RecordedSegment Recording"
            " SnapshotMoment"
        ),
        "modelglass.report.stats": "Described FINDINGS Histogram TensorStats",
        "modelglass.report.unique": "Reproducers Unique UniqueModule UniqueOp",
        "modelglass.report.values": "Stored Values",
    },
)
