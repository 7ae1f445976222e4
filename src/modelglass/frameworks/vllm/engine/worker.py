"""The report of a worker process of an engine, as text."""

from __future__ import annotations

from typing import Any

from torch import nn

from modelglass.frameworks.shared.foreign import foreign_errors
from modelglass.frameworks.vllm.engine.cache import describe_live_cache
from modelglass.frameworks.vllm.engine.components import version
from modelglass.frameworks.vllm.structure.modules import read
from modelglass.report import Engine, Note, PagedCache, Report, codec


def dump_worker(worker: Any) -> str:
    """The modules that a worker holds and the cache it keeps, as the JSON of a report; nothing is changed."""
    reading = read(_native(worker))
    cache, notes = _cache(worker)
    engine = Engine(
        version=version(), reached="workers", rank=int(worker.rank), shards=reading.shards, cache=cache
    )
    report = Report(model=reading.model, engine=engine, notes=(*reading.notes, *notes))
    return codec.dumps(report, indent=None)


def _native(worker: Any) -> nn.Module:
    """The model that the worker runs, without what vLLM wraps around it."""
    getter = getattr(worker, "get_model", None) or worker.model_runner.get_model
    native: nn.Module = getter()
    return native


def _cache(worker: Any) -> tuple[PagedCache | None, tuple[Note, ...]]:
    """The cache as vLLM made it; a version that describes it otherwise leaves the modules to be read."""
    with foreign_errors() as found:
        made = getattr(worker.model_runner, "kv_cache_config", None)
        return describe_live_cache(worker.vllm_config, made), ()
    text = f"the cache of this vLLM cannot be read: {found.text}"
    return None, (Note(code="cache-unknown", severity="warning", text=text),)
