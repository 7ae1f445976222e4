"""Each noun for machines: versioned JSON whose schema is published in docs/."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modelglass.renderers._json import plain, pretty
from modelglass.report.codec import dumps

if TYPE_CHECKING:
    from modelglass.page.sections.distinct import UniqueChoice
    from modelglass.report import Comparison, Fit, Flow, Report, Scan, Unique

FIT, FLOW, SCAN = "modelglass-fit", "modelglass-flow", "modelglass-scan"
VERSION = 1  # of each of them


def inspect(report: Report | Comparison, *, indent: int | None = 2) -> str:
    """All that is known, as JSON text that `mg.load` reads back equal."""
    return dumps(report, indent=indent)


stats = memory = compare = inspect


def fit(fit: Fit) -> str:
    """Every field in exact bytes, the same text for the same answer."""
    return pretty({"format": FIT, "version": VERSION, "margin_nbytes": fit.margin_nbytes, **plain(fit)})


def flow(flow: Flow) -> str:
    """Every field of every node and edge, the same text for the same flow."""
    return pretty({"format": FLOW, "version": VERSION, **plain(flow)})


def scan(scan: Scan, *, redact: bool = False) -> str:
    """Every field of the scan, the same text for the same scan."""
    from modelglass.page.redact import redacted_noun

    scan = redacted_noun(scan) if redact else scan
    return pretty({"format": SCAN, "version": VERSION, **plain(scan)})


def unique(report: Report, unique: Unique, choice: UniqueChoice | None = None) -> str:
    """The records that `unique_modules.json` and `pytorch_ops.json` have, in one document."""
    from modelglass.page.sections.distinct import UniqueChoice, module_rows
    from modelglass.renderers.records import module_records, op_records, remarks

    choice = choice or UniqueChoice()
    document: dict[str, Any] = {"model_class": report.model.name}
    if "modules" in choice.kinds:
        rows = choice.of(module_rows(report, unique))
        chosen = {each.id: each for each in unique.modules}
        modules = [chosen[row.id] for row in rows]
        records = zip(modules, module_records(report, modules), strict=True)
        document |= {
            "total_modules": len(report.model.modules),
            "unique_modules": len(unique.modules),
            "modules": [
                {**record, "macs": each.macs, "total_macs": each.total_macs} for each, record in records
            ],
        }
    if "ops" in choice.kinds and report.run.mode != "none":
        document |= {
            "total_ops": unique.total_ops,
            "unique_ops": len(unique.ops),
            "counter_updates": len(unique.counters),
            "ops": op_records(report, unique, choice.of(unique.ops)),
        }
    document["notes"] = remarks(report)
    return pretty(document)
