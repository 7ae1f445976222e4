"""Reports of files: what the formats read, brought together with the analyses. Nothing here needs torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelglass.analyses.counts import count
from modelglass.analyses.equal_blocks import equal_blocks
from modelglass.analyses.notes import count_notes
from modelglass.errors import CorruptFileError, NotAModelError, UsageError
from modelglass.formats import read
from modelglass.formats.documents.configs import config_of
from modelglass.formats.limits import Limits
from modelglass.formats.packing.layers import packed
from modelglass.formats.packing.mlx import ASSUMED, contradicted
from modelglass.formats.reading import Reading
from modelglass.formats.tensors.kinds import classify_tensors, find_doubtful
from modelglass.formats.tensors.tree import modules
from modelglass.gc_pause import paused_gc
from modelglass.report import Checkpoint, File, Model, Module, Note, Report
from modelglass.user_code import only_installed

if TYPE_CHECKING:
    from modelglass.report import Architecture, Counts, Finding, Json, Level, Scan, Severity, Tensor

LIMITS: Mapping[str, int] = {
    field.name: getattr(Limits(), field.name) for field in fields(Limits) if field.name != "spent"
}

MOST_GUESSED = 100  # names that a note has

_SHARD = re.compile(r"-\d{5}-of-(\d{5})\.(?:safetensors|bin|pt|pth|gguf)$")

Progress = Callable[[str], None]
WithStats = Callable[[Report, Reading], Report]


def inspect_file(
    path: Path, *, limits: Mapping[str, int] | None, progress: Progress, with_stats: WithStats | None = None
) -> Report:
    """The report of a file or folder; an error when it is damaged, or can be read in two ways.

    `with_stats` adds statistics, while the files are still open.
    """
    reading = Reading(limits=check_limits(limits))
    with paused_gc(), only_installed(path):
        try:
            progress(f"reading {path.name}")
            read(path, reading)
            _refuse_invalid(reading)
            report = _report(path, reading)
            return report if with_stats is None else with_stats(report, reading)
        finally:
            reading.close()


def scan_files(
    paths: Sequence[Path], *, limits: Mapping[str, int] | None, progress: Progress, isolate: bool
) -> Scan:
    """What is found in files and folders."""
    from modelglass.formats.scan.scan import scan

    with paused_gc(), only_installed(*paths):
        return scan(paths, check_limits(limits), progress, isolate=isolate)


def check_limits(chosen: Mapping[str, int] | None) -> Limits:
    """The limits with some of them changed."""
    for name, value in (chosen or {}).items():
        if name not in LIMITS:
            raise UsageError(f"there is no limit {name!r}", hint="limits are " + ", ".join(LIMITS))
        if type(value) is not int or value < 1:
            raise UsageError(
                f"the limit {name} = {value!r} must be a positive integer", hint=f"it is {LIMITS[name]:,}"
            )
    given: dict[str, Any] = dict(chosen or {})
    return Limits(**given)


def _refuse_invalid(reading: Reading) -> None:
    bad = next((finding for finding in reading.findings if finding.level == "invalid"), None)
    if bad is not None:
        raise CorruptFileError(
            bad.text,
            file=bad.file,
            code=bad.code,
            member=bad.member,
            offset=bad.offset,
            hint="modelglass scan shows all that is wrong with it",
        )


def _report(path: Path, reading: Reading) -> Report:
    config = config_of(reading)
    tensors, guessed = packed(reading.tensors, config, reading.metadata), list[str]()
    contradictions = contradicted(tensors, config, reading.metadata)
    if reading.has_buffers:
        tensors, guessed = classify_tensors(tensors)
    model = Model(
        name=path.name or str(path),
        source=reading.format or "file",
        modules=modules(tensors, reading.modules, ordered=reading.ordered),
        tensors=tuple(tensors),
        ops=tuple(reading.ops),
    )
    counts = count(model)
    found = _architecture(config, model, counts)
    if found is not None and found.active_params is not None:  # a configuration knows of fused experts, too
        counts = replace(counts, active_params=found.active_params)
    checkpoint = Checkpoint(
        format=reading.format or "file",
        files=tuple(File(path=each.file, nbytes=each.nbytes) for each in reading.opened),
        read_nbytes=sum(min(each.meter.nbytes, each.nbytes) for each in reading.opened),
        metadata=reading.metadata,
        parts=tuple(reading.parts),
        prefix=reading.prefix,
        inputs=tuple(reading.inputs),
        outputs=tuple(reading.outputs),
        architecture=found,
    )
    trained = {name for part in reading.parts for name in part.matched.values()}
    unsure = [name for name in find_doubtful(tensors) if name not in trained] if reading.has_buffers else []
    notes = (
        *_notes(reading),
        *_kind_notes(counts, guessed, unsure),
        *_packing_notes(tensors, contradictions),
        *_shard_notes(reading),
    )
    blocks = equal_blocks(model, counts)
    return Report(model=model, counts=counts, blocks=blocks, checkpoint=checkpoint, notes=notes)


def _architecture(config: Json, model: Model, counts: Counts) -> Architecture | None:
    if not isinstance(config, dict) or not counts.params:
        return None
    from modelglass.analyses.architecture import architecture

    return architecture(config, model, counts)


_SEVERITY: dict[Level, Severity] = {
    "info": "info",
    "notice": "warning",
    "high": "error",
    "invalid": "error",
    "limit": "warning",
}


def _notes(reading: Reading) -> Iterator[Note]:
    for finding in reading.findings:
        yield _note(finding)


def _note(finding: Finding) -> Note:
    place = "" if finding.offset is None else f", at byte {finding.offset:,}"
    where = (f"{finding.member or finding.file}{place}",)
    return Note(code=finding.code, text=finding.text, severity=_SEVERITY[finding.level], where=where)


def _kind_notes(counts: Counts, guessed: Sequence[str], unsure: Sequence[str]) -> Iterator[Note]:
    yield from count_notes(counts)
    if guessed:
        yield Note(
            code="buffers-guessed",
            text="the file does not mark buffers; these were classified as buffers by name or type",
            where=tuple(guessed[:MOST_GUESSED]),
        )
    if unsure:
        yield Note(
            code="buffers-unknown",
            text="the file does not mark buffers; these are counted as parameters and may be buffers",
            where=tuple(unsure[:MOST_GUESSED]),
        )


def _packing_notes(tensors: Sequence[Tensor], contradictions: Sequence[str]) -> Iterator[Note]:
    if contradictions:
        yield Note(
            code="packing-contradicted",
            text="the configuration gives these weights other bits or group sizes than they are stored with; "
            "the stored values are used",
            severity="warning",
            where=tuple(contradictions[:MOST_GUESSED]),
        )
    assumed = [t.name for t in tensors if t.packing is not None and ASSUMED in t.packing.scheme]
    if assumed:
        yield Note(
            code="packing-assumed",
            text="the group size is not recorded; 64 is assumed for the counts",
            severity="warning",
            where=tuple(assumed[:MOST_GUESSED]),
        )


def _shard_notes(reading: Reading) -> Iterator[Note]:
    """A note when the file is one shard, also when it is all that its folder has."""
    path = reading.opened[0].path
    shard = _SHARD.search(path.name)
    together = (reading.format or "").endswith("shards")
    if shard is not None and int(shard[1]) > 1 and not together:
        yield Note(
            code="one-shard",
            severity="warning",
            text=f"this is one file of {int(shard[1]):,}; for the whole model, pass their folder or index",
            where=(path.name,),
        )


def read_document(path: Path, limits: Mapping[str, int] | None = None) -> Json:
    """A JSON file beside weights, read as carefully as they are."""
    from modelglass.formats.documents.strict_json import document
    from modelglass.formats.source import OpenFile

    with OpenFile(path) as source:
        return document(source, check_limits(limits))


def inspect_pipeline(
    folder: Path,
    components: Mapping[str, str],
    *,
    name: str | None,
    limits: Mapping[str, int] | None,
    progress: Progress,
) -> Report:
    """The report of a pipeline, with a module for each part; `components` are their classes by name."""
    from modelglass.formats.files_beside import may_follow

    if not components:
        raise NotAModelError(
            "no part of this pipeline has weights here",
            file=str(folder),
            code="not-a-model",
            hint="download its parts: each is a folder beside model_index.json",
        )
    parts: dict[str, Report] = {}
    for part in components:
        if not may_follow(folder / part, folder):
            raise CorruptFileError(
                f"its part {part!r} is a link that leads out of the folder",
                file=str(folder),
                code="path.link",
                hint="pass the folder that it leads to",
            )
        parts[part] = inspect_file(folder / part, limits=limits, progress=progress)
    modules = [Module(path="", type=name or "", qualified_type="", tensors=(), children=tuple(parts))]
    tensors: list[Tensor] = []
    for part, report in parts.items():
        modules += _modules_under(part, components[part], report.model)
        tensors += (
            replace(tensor, name=f"{part}.{tensor.name}", storage=f"{part}: {tensor.storage}")
            for tensor in report.model.tensors
        )
    model = Model(
        name=folder.name or str(folder), source="pipeline", modules=tuple(modules), tensors=tuple(tensors)
    )
    counts = count(model)
    return Report(
        model=model,
        counts=counts,
        blocks=equal_blocks(model, counts),
        checkpoint=_joined(parts),
        notes=tuple(_of_part(part, note) for part, report in parts.items() for note in report.notes),
    )


def _modules_under(part: str, type: str, model: Model) -> Iterator[Module]:
    """The modules of a part, with its name before theirs."""
    for module in model.modules:
        yield replace(
            module,
            path=f"{part}.{module.path}" if module.path else part,
            type=module.type or ("" if module.path else type),
            tensors=tuple(f"{part}.{name}" for name in module.tensors),
            children=tuple(f"{part}.{child}" for child in module.children),
        )


def _joined(parts: Mapping[str, Report]) -> Checkpoint:
    """The files of all parts."""
    found = {part: report.checkpoint for part, report in parts.items() if report.checkpoint is not None}
    return Checkpoint(
        format="pipeline",
        files=tuple(file for each in found.values() for file in each.files),
        read_nbytes=sum(each.read_nbytes for each in found.values()),
        metadata={
            f"{part}.{key}": value for part, each in found.items() for key, value in each.metadata.items()
        },
    )


def _of_part(part: str, note: Note) -> Note:
    return replace(note, text=f"{part}: {note.text}")
