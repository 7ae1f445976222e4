"""`extract_unique_modules` and `extract_pytorch_ops`: which distinct modules and operators a model uses.

The first document numbers the model's calls; by those numbers the second one finds the module that each
operator ran in, so that both speak of the same run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from inspect import unwrap
from pathlib import Path
from typing import Any, TypedDict

from modelglass import api
from modelglass.errors import ReportFormatError, UsageError
from modelglass.files import make_folder, write_together, write_whole
from modelglass.renderers._json import pretty
from modelglass.renderers.records import (
    ModuleRecord,
    OpRecord,
    Remark,
    module_records,
    op_records,
    remarks,
)
from modelglass.report import Report, Unique

MODULES_FILE, OPS_FILE = "unique_modules.json", "pytorch_ops.json"
# What must be equal in a record for it to be about the same call.
COMPARED = ("qualified_name", "parameters", "input_shapes", "input_dtypes", "output_shapes", "output_dtypes")
Progress = Callable[[str], None]


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
    report = _observe(api.inspect_calls, load_fn, get_sample_input)
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
    report = _observe(api.inspect, load_fn, get_sample_input)
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
    load_fn: Any, get_sample_input: Any, folder: Path | None = None, progress: Progress | None = None
) -> Analysis:
    """Both documents from one observation, in a folder that is named after the model's class by default."""
    report = _observe(api.inspect, load_fn, get_sample_input, progress)
    unique = api.unique(report)
    target = Path(re.sub(r"\W", "_", report.model.name)) if folder is None else folder
    make_folder(target)
    files = target / MODULES_FILE, target / OPS_FILE
    documents = _modules_document(report, unique, load_fn), _ops_document(report, unique, files[0])
    write_together(dict(zip(files, map(pretty, documents), strict=True)))
    return Analysis(report, unique, files)


def _observe(
    inspect: Callable[..., Report], load_fn: Any, get_sample_input: Any, progress: Progress | None = None
) -> Report:
    """The whole run of what the functions make, seeded so that the next observation is of the same run."""
    makers = _maker(load_fn, "load_fn"), _maker(get_sample_input, "get_sample_input")
    with api.fixed_seed():
        return inspect(*makers, progress=progress)


def _maker(function: Any, name: str) -> Any:
    """A function of whatever kind, in a form that is known to be one."""
    if isinstance(function, str):
        return function
    is_model = hasattr(function, "parameters") and not isinstance(function, type)
    if not callable(function) or is_model:
        raise UsageError(
            f"{name} is a {type(function).__name__}, not a function",
            hint="pass a function that returns it, as lambda: model",
        )
    return partial(function)


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
            "notes": remarks(report),
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
            "notes": remarks(report),
            "timestamp": _now(),
        },
        "ops": op_records(report, unique),
    }


def _origin(load_fn: Any) -> tuple[str, str]:
    """The file and the name of a function, without the folders that differ between machines."""
    if isinstance(load_fn, str):
        named = api.parse_code_name(load_fn)
        if named is None:  # a configuration
            return Path(load_fn).name, Path(load_fn).name
        return f"{Path(named.place).name}:{named.name}", named.name
    function = unwrap(getattr(load_fn, "func", load_fn))  # of a partial, or of what a decorator made
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    place = Path(code.co_filename).name if code is not None else getattr(function, "__module__", "")
    return f"{place}:{name}", name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(document: Mapping[str, Any], path: str | os.PathLike[str] | None) -> None:
    if path is not None:
        write_whole(Path(path), pretty(document))


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
    records = module_records(report, unique.modules)
    for record in records:
        for call in record["calls"]:
            written = known.get(call, {})
            if any(written.get(key) != record[key] for key in COMPARED):  # type: ignore[literal-required]
                raise ReportFormatError(
                    f"{str(source)!r} is about another model or other inputs: call {call} of this one is of "
                    f"{record['class_name']} at {record['module_path']}",
                    hint="write it again with extract_unique_modules and the same functions",
                )
    owner = {record["id"]: known[record["calls"][0]]["id"] for record in records if record["calls"]}
    ops = tuple(replace(op, modules=tuple(owner.get(id, id) for id in op.modules)) for op in unique.ops)
    return replace(unique, ops=ops)
