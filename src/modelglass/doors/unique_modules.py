"""`extract_unique_modules` and `extract_pytorch_ops`: which distinct modules and operators a model uses.

The first document numbers the model's calls; by those numbers the second one finds the module that each
operator ran in, so that both speak of the same run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from modelglass import api
from modelglass.errors import ReportFormatError, UsageError
from modelglass.renderers._json import pretty
from modelglass.renderers.records import ModuleRecord, OpRecord, module_records, op_records
from modelglass.report import Report, Unique

MODULES_FILE, OPS_FILE = "unique_modules.json", "pytorch_ops.json"
Progress = Callable[[str], None]


class Remark(TypedDict):
    """What is unknown or odd."""

    code: str
    text: str


class ModulesMetadata(TypedDict):
    """Where the model came from and how many modules it has; `aliases` are further names of a module."""

    load_fn_location: str
    load_fn_name: str
    model_class: str
    total_modules: int
    unique_modules: int
    total_calls: int
    aliases: dict[str, str]
    notes: list[Remark]
    timestamp: str


class UniqueModulesDocument(TypedDict):
    """The distinct modules of a model, in the order of its tree."""

    metadata: ModulesMetadata
    modules: list[ModuleRecord]


class OpsMetadata(TypedDict):
    """Which modules the operators belong to and how many ran. Updates of counters are not among them."""

    source_modules_json: str
    model_class: str
    total_ops: int
    unique_ops: int
    counter_updates: int
    total_macs: int | None
    notes: list[Remark]
    timestamp: str


class PytorchOpsDocument(TypedDict):
    """The distinct operators of a run, in the order in which they first ran."""

    metadata: OpsMetadata
    ops: list[OpRecord]


def extract_unique_modules(
    load_fn: Any, get_sample_input: Any, output_path: str | os.PathLike[str] | None = None
) -> UniqueModulesDocument:
    """The distinct modules of the model that `load_fn` returns, when called with what the other returns.

    Both are functions, or name one: "file.py::function". The document is written to `output_path` as well.
    """
    report = api.completed(api.inspect_operators(load_fn, get_sample_input))
    document = _modules_document(report, api.unique(report), load_fn)
    _write(document, output_path)
    return document


def extract_pytorch_ops(
    modules_json_path: str | os.PathLike[str],
    load_fn: Any,
    get_sample_input: Any,
    output_path: str | os.PathLike[str] | None = None,
) -> PytorchOpsDocument:
    """The distinct operators of the same run, each with the modules of that file in which it ran."""
    source = Path(modules_json_path)
    known = _modules_by_call(source)
    report = api.completed(api.inspect(load_fn, get_sample_input))
    unique = _with_ids(api.unique(report), report, known, source)
    document = _ops_document(report, unique, source)
    _write(document, output_path)
    return document


@dataclass(frozen=True)
class Analysis:
    """What `analyse` found, and the files it wrote."""

    report: Report
    unique: Unique
    files: tuple[Path, ...]


def analyse(
    load_fn: str, get_sample_input: str, folder: Path | None = None, progress: Progress | None = None
) -> Analysis:
    """Both documents from one observation, in a folder that is named after the model's class by default."""
    report = api.completed(api.inspect(load_fn, get_sample_input, progress=progress))
    unique = api.unique(report)
    target = Path(report.model.name) if folder is None else folder
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise UsageError(
            f"cannot make the folder {str(target)!r}: {cause.strerror}", hint="choose another with --dir"
        ) from cause
    files = target / MODULES_FILE, target / OPS_FILE
    _write(_modules_document(report, unique, load_fn), files[0])
    _write(_ops_document(report, unique, files[0]), files[1])
    return Analysis(report, unique, files)


def _modules_document(report: Report, unique: Unique, load_fn: Any) -> UniqueModulesDocument:
    location, name = _origin(load_fn)
    return {
        "metadata": {
            "load_fn_location": location,
            "load_fn_name": name,
            "model_class": report.model.name,
            "total_modules": len(report.model.modules),
            "unique_modules": len(unique.modules),
            "total_calls": len(report.model.calls),
            "aliases": {alias: module.path for module in report.model.modules for alias in module.aliases},
            "notes": _notes(report),
            "timestamp": _now(),
        },
        "modules": module_records(report, unique.modules),
    }


def _ops_document(report: Report, unique: Unique, source: Path) -> PytorchOpsDocument:
    cost = report.cost
    return {
        "metadata": {
            "source_modules_json": source.name,
            "model_class": report.model.name,
            "total_ops": unique.total_ops,
            "unique_ops": len(unique.ops),
            "counter_updates": len(unique.counters),
            "total_macs": cost.macs if cost is not None and cost.complete else None,
            "notes": _notes(report),
            "timestamp": _now(),
        },
        "ops": op_records(report, unique),
    }


def _origin(load_fn: Any) -> tuple[str, str]:
    """The file and the name of a function, without the folders that differ between machines."""
    if isinstance(load_fn, str):
        place, _, name = load_fn.rpartition(":")
        return f"{Path(place.rstrip(':')).name}:{name}", name
    function = getattr(load_fn, "func", load_fn)  # of a partial
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    place = Path(code.co_filename).name if code is not None else getattr(function, "__module__", "")
    return f"{place}:{name}", name


def _notes(report: Report) -> list[Remark]:
    return [{"code": note.code, "text": note.text} for note in report.notes]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(document: Mapping[str, Any], path: str | os.PathLike[str] | None) -> None:
    if path is not None:
        api.write_whole(Path(path), pretty(document))


def _modules_by_call(path: Path) -> Mapping[int, Mapping[str, Any]]:
    """The records of a modules file, by the number of each call."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {call: record for record in document["modules"] for call in record["calls"]}
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise ReportFormatError(
            f"{str(path)!r} holds no unique modules: {cause}",
            hint="write it with extract_unique_modules first",
        ) from cause


def _with_ids(unique: Unique, report: Report, known: Mapping[int, Mapping[str, Any]], source: Path) -> Unique:
    """The same operators, their modules by the ids of the file; an error when it is about another run."""
    types = {module.path: module.type for module in report.model.modules}
    for call in report.model.calls:
        record = known.get(call.index, {})
        if record.get("class_name") != types[call.module]:
            raise ReportFormatError(
                f"{str(source)!r} is about another model or other inputs: call {call.index} of this one "
                f"is of {types[call.module]} at {call.module or '(root)'}",
                hint="write it again with extract_unique_modules and the same functions",
            )
    ids = {call: record["id"] for call, record in known.items()}
    owner = {module.id: ids[module.calls[0]] for module in unique.modules if module.calls}
    ops = tuple(replace(op, modules=tuple(owner.get(id, id) for id in op.modules)) for op in unique.ops)
    return replace(unique, ops=ops)
