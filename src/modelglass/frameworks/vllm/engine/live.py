"""A live engine: what its ranks hold, where that was read, and what it generates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from modelglass.errors import InspectError, TargetError, UsageError
from modelglass.frameworks.shared.request import Request
from modelglass.frameworks.vllm.engine.components import (
    architecture,
    components,
    has_workers_here,
    tokenizer_of,
    version,
)
from modelglass.frameworks.vllm.engine.generate import generate
from modelglass.frameworks.vllm.engine.rpc import NotReachedError, check_open, inspect_workers
from modelglass.frameworks.vllm.structure.tensors import UNCLEAR
from modelglass.frameworks.vllm.versions import version_notes
from modelglass.options import Progress
from modelglass.report import (
    Engine,
    Model,
    Module,
    Note,
    Observation,
    PagedCache,
    RankModel,
    Reached,
    Report,
    Run,
    Serving,
    Tensor,
    WhatIf,
)

_REACH = (
    "to read the engine itself, install modelglass where its workers run and leave VLLM_PLUGINS unset, or "
    "start the engine with VLLM_ENABLE_V1_MULTIPROCESSING=0"
)


def observe_engine(native: Any, engine: Any, request: Request) -> Observation:
    """What the ranks of an engine hold; with prompts, what it generates.

    `native` is what the user gave: the engine itself, or an object around it.
    """
    check_open(engine)
    _check(request)
    report_progress = request.progress or _ignore_progress
    report_progress("asking the engine's workers what they hold")
    found = _read_ranks(engine, report_progress)
    run, more = Run(mode="none"), tuple[Note, ...]()
    if request.runs:
        report_progress("generating text")
        run, more = generate(native, engine, request)
    return Observation(
        model=found.ranks[0].model,
        run=run,
        notes=tuple(dict.fromkeys((*found.notes, *more, *_note_missing(engine), *version_notes(version())))),
        engine=_engine(engine, found),
        ranks=_ranks_to_sum(found),
        whole=found.whole,
        operators_unknown=request.runs,
    )


def _ignore_progress(text: str) -> None:
    """Discard progress messages."""


def _check(request: Request) -> None:
    if request.train or request.optimizer is not None:
        raise UsageError("an engine does not train", hint="pass the model itself, as transformers builds it")
    if request.device is not None:
        raise UsageError("an engine runs where it was started", hint="leave the device out")
    if request.calibrate or request.what_if != WhatIf():
        raise UsageError(
            "the memory of an engine under other conditions cannot be derived from the engine",
            hint="pass the model's folder with framework='vllm', and specify how it is served",
        )


@dataclass(frozen=True)
class _EngineRanks:
    """What ranks hold, and how that was found out."""

    reached: Reached
    ranks: tuple[RankModel, ...]
    notes: tuple[Note, ...] = ()
    cache: PagedCache | None = None
    whole: RankModel | None = None
    are_real: bool = True  # False: nothing is known of what ranks hold


def _read_ranks(engine: Any, report_progress: Progress) -> _EngineRanks:
    try:
        reports = inspect_workers(engine)
    except NotReachedError as problem:
        return _build_ranks(engine, problem, report_progress)
    ranks = tuple(_rank_model(report, number) for number, report in enumerate(reports))
    notes = tuple(_merge_notes(note for report in reports for note in report.notes))
    cache = next((each.engine.cache for each in reports if each.engine is not None), None)
    return _EngineRanks("in-process" if has_workers_here(engine) else "workers", ranks, notes, cache)


def _ranks_to_sum(found: _EngineRanks) -> tuple[RankModel, ...]:
    """The ranks that figures are made of: not all of them where their relation is not known."""
    if not found.are_real:
        return ()
    is_unclear = found.whole is None and any(note.code == UNCLEAR for note in found.notes)
    return found.ranks[:1] if is_unclear else found.ranks


def _merge_notes(notes: Iterable[Note]) -> Iterator[Note]:
    """Each note once, at all the places that some rank names: stages of a pipeline have their own."""
    places: dict[Note, dict[str, None]] = {}
    for note in notes:
        alike = note if note.details else replace(note, where=())
        places.setdefault(alike, {}).update(dict.fromkeys(note.where))
    for note, where in places.items():
        yield replace(note, where=tuple(where))


def _rank_model(report: Report, number: int) -> RankModel:
    engine = report.engine
    if engine is None:
        return RankModel(number, report.model)
    return RankModel(engine.rank, report.model, engine.shards)


def _build_ranks(engine: Any, problem: NotReachedError, report_progress: Progress) -> _EngineRanks:
    """The same classes, built without weights in a process apart, where the real ones are out of reach."""
    from modelglass.frameworks.vllm.build import build_rank

    report_progress("building the model's classes without weights")
    config: Any = getattr(engine, "vllm_config", None)
    try:
        if _missing_settings(config):
            raise TargetError("the engine does not report its settings", hint=_REACH)
        with _folder(config.model_config) as folder:
            found = build_rank(folder, _serving(config), progress=report_progress)
    except InspectError as cause:
        return _unknown_model(
            config, f"{problem.problem}, and its classes cannot be built here: {cause.problem}"
        )
    text = f"{problem.problem}, so the same classes were built from its settings, without weights; {_REACH}"
    note = Note(code="engine-not-reached", severity="warning", text=text)
    cache = None if found.engine is None else found.engine.cache
    ranks = found.ranks or (RankModel(0, found.model, {} if found.engine is None else found.engine.shards),)
    return _EngineRanks("meta", ranks, (note, *found.notes), cache, found.whole)


@contextmanager
def _folder(model: Any) -> Iterator[Path]:
    """A folder with the model's configuration: its own, or one made for what is elsewhere or was changed."""
    named = Path(model.model)
    if named.is_dir() and not getattr(model, "hf_overrides", None):
        yield named
        return
    config = getattr(model, "hf_config", None)
    if config is None:
        raise TargetError("the engine does not report its model's configuration", hint=_REACH)
    with TemporaryDirectory(prefix="modelglass-vllm-") as scratch:
        Path(scratch, "config.json").write_text(config.to_json_string(use_diff=False))
        yield Path(scratch)


def _serving(config: Any) -> Serving:
    """The setup of the engine."""
    model, parallel, cache = config.model_config, config.parallel_config, config.cache_config
    kept_in = getattr(cache, "cache_dtype", None)
    return Serving(
        tensor_parallel=getattr(parallel, "tensor_parallel_size", 1),
        expert_parallel=bool(getattr(parallel, "enable_expert_parallel", False)),
        quantization=getattr(model, "quantization", None),
        dtype=str(model.dtype).removeprefix("torch."),
        kv_cache_dtype=kept_in if isinstance(kept_in, str) and kept_in != "auto" else None,
        block_size=getattr(cache, "block_size", None),
        max_model_len=getattr(model, "max_model_len", None),
    )


def _unknown_model(config: Any, problem: str) -> _EngineRanks:
    """From the configuration alone: a model of unknown size."""
    name = architecture(config) or "model"
    text = f"{problem}; its modules and how much they hold are unknown; {_REACH}"
    note = Note(code="engine-not-reached", severity="error", text=text)
    dtype = str(getattr(getattr(config, "model_config", None), "dtype", "float32")).removeprefix("torch.")
    hole = Tensor(name="weights", kind="parameter", shape=None, dtype=dtype, storage="weights")
    root = Module(path="", type=name, qualified_type=name, tensors=(hole.name,))
    model = Model(name=name, source="vllm", modules=(root,), tensors=(hole,))
    return _EngineRanks("meta", (RankModel(0, model),), (note,), are_real=False)


def _engine(engine: Any, found: _EngineRanks) -> Engine:
    config = getattr(engine, "vllm_config", None)
    parallel, held = getattr(config, "parallel_config", None), found.ranks[0]
    return Engine(
        version=version(),
        reached=found.reached,
        rank=held.rank,
        tensor_parallel=getattr(parallel, "tensor_parallel_size", 1),
        pipeline_parallel=getattr(parallel, "pipeline_parallel_size", 1),
        data_parallel=getattr(parallel, "data_parallel_size", 1),
        expert_parallel=bool(getattr(parallel, "enable_expert_parallel", False)),
        shards=held.shards,
        cache=_cache(getattr(config, "cache_config", None), found.cache),
        components=components(config, tokenizer_of(engine), engine),
    )


def _missing_settings(config: Any) -> tuple[str, ...]:
    """The settings that every engine should have, and this engine lacks."""
    wanted = ("model_config", "parallel_config", "cache_config")
    return tuple(name for name in wanted if getattr(config, name, None) is None)


def _note_missing(engine: Any) -> Iterator[Note]:
    lacking = _missing_settings(getattr(engine, "vllm_config", None))
    if lacking:
        text = (
            f"this vLLM does not report the engine's {', '.join(lacking)}; figures that need it are missing"
        )
        yield Note(code="settings-unknown", severity="warning", text=text)


def _cache(config: Any, found: PagedCache | None) -> PagedCache | None:
    """The cache with the number of blocks that the engine itself reports."""
    if found is None or found.blocks is not None:
        return found
    blocks, tokens = getattr(config, "num_gpu_blocks", None), getattr(config, "kv_cache_size_tokens", None)
    return replace(
        found,
        blocks=blocks if type(blocks) is int else None,
        tokens=tokens if type(tokens) is int else None,
        sequences=getattr(config, "kv_cache_max_concurrency", None),
    )
