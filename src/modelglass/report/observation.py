"""The facts an adapter found about a model, before anything is worked out of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelglass.report.dataflow import Dataflow
from modelglass.report.engine import Engine, Shard
from modelglass.report.lifetimes import Lifetimes
from modelglass.report.memory import KvCache
from modelglass.report.model import Model
from modelglass.report.report import Note, Run


@dataclass(frozen=True)
class RankModel:
    """The modules of one rank of an engine, and how its tensors relate to the whole model's."""

    rank: int
    model: Model
    shards: Mapping[str, Shard] = field(default_factory=dict)


@dataclass(frozen=True)
class Observation:
    """The facts an adapter found."""

    model: Model
    run: Run
    notes: tuple[Note, ...] = ()
    lifetimes: Lifetimes | None = None  # None: nothing ran to its end
    dataflow: Dataflow | None = None  # None: nothing ran to its end
    optimizer: str | None = None  # of `lifetimes.tails`, the one that was asked for
    kv_cache: KvCache | None = None  # as the run's output showed it
    config: Mapping[str, Any] | None = None  # the model's own configuration, as its makers keep it
    cache_dtype: str | None = None  # of what attention would keep
    engine: Engine | None = None  # what serves the model, without the figures that are worked out of `ranks`
    ranks: tuple[RankModel, ...] = ()  # of the engine, those that were looked at
    whole: RankModel | None = None  # as one rank alone would hold it (rank 0); None: it was not looked at
    operators_unknown: bool = False  # the model ran, and which operators it executed could not be seen
