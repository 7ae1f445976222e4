"""The report that follows from an observation: counts, cost, memory, and notes on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from modelglass.analyses.cost.cost import cost, with_macs
from modelglass.analyses.counts import count
from modelglass.analyses.equal_blocks import equal_blocks
from modelglass.analyses.notes import change_notes, figure_notes, memory_notes
from modelglass.analyses.sizes.axes import find_axes, sizes_at
from modelglass.report import Report, WhatIf

if TYPE_CHECKING:
    from modelglass.report import Axes, Engine, Memory, Note, Observation


def analyse(observation: Observation, what_if: WhatIf | None = None, axes: Axes | None = None) -> Report:
    """Work out what an observation means. `what_if` is a change of the memory that a run took."""
    lifetimes = observation.lifetimes
    model = with_macs(observation.model)
    counts = count(model)
    costs = None if observation.operators_unknown else cost(model, observation.run)
    memory = _memory(replace(observation, model=model), what_if or WhatIf(), axes)
    return Report(
        model=model,
        run=observation.run,
        counts=counts,
        blocks=equal_blocks(model, counts, observation.run),
        cost=costs,
        memory=memory,
        dataflow=observation.dataflow,
        engine=_engine(observation),
        notes=(
            *observation.notes,
            *(note for note in figure_notes(counts, costs) if not _is_reported(note, observation)),
            *(memory_notes(lifetimes) if lifetimes is not None else ()),
            *change_notes(memory),
        ),
    )


def _is_reported(note: Note, observation: Observation) -> bool:
    """Whether the adapter already reported this: an engine empties parameters, and they are not lazy."""
    return note.code == "uninitialised" and observation.engine is not None


def _engine(observation: Observation) -> Engine | None:
    """What serves the model, with the figures that follow from what its ranks hold."""
    from modelglass.analyses.serving import with_shares

    if observation.engine is None:
        return None
    return with_shares(observation.engine, observation.ranks, observation.whole)


def _memory(observation: Observation, what_if: WhatIf, axes: Axes | None) -> Memory | None:
    """What the run took in memory, with the parts of a change that need no run of their own."""
    from modelglass.analyses.kv_cache import kv_cache
    from modelglass.analyses.memory.what_if import memory_with, needs_run

    lifetimes = observation.lifetimes
    if lifetimes is None or not _has_stepped(observation):
        return None
    found = memory_with(lifetimes, what_if, observation.model, optimizer=observation.optimizer)
    batch_size, seq_len = _sizes(observation, axes)
    found = replace(found, batch_size=batch_size, seq_len=seq_len)
    cache, dtype = observation.kv_cache, needs_run(what_if).weights or observation.cache_dtype
    if cache is None and observation.config is not None and dtype is not None:
        cache = kv_cache(observation.config, dtype)
    return replace(found, kv_cache=cache)


def _sizes(observation: Observation, axes: Axes | None) -> tuple[int | None, int | None]:
    """The batch size and the sequence length that the inputs of a run show."""
    run = observation.run
    if axes is None:
        axes, _ = find_axes((observation.model, run, observation.dataflow))
    return sizes_at(axes, run)


def _has_stepped(observation: Observation) -> bool:
    """Whether the optimizer that was asked for took its step: without it the figures are not of a step."""
    lifetimes = observation.lifetimes
    return observation.optimizer is None or (
        lifetimes is not None and observation.optimizer in lifetimes.tails
    )
