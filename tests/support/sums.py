"""Where the totals of a report are not the sums of their rows."""

from __future__ import annotations

from collections import Counter

from modelglass import Report


def disagreements(report: Report) -> list[str]:
    """What does not add up, in words; empty when everything does."""
    return [*_of_counts(report), *_of_costs(report)]


def _of_counts(report: Report) -> list[str]:
    counts = report.counts
    pairs = {
        "parameters of all modules": (
            sum(each.own.params for each in counts.by_module.values()),
            counts.params,
        ),
        "parameters below the root": (counts.by_module[""].total.params, counts.params),
        "parameters by dtype": (sum(counts.params_by_dtype.values()), counts.params),
        "bytes": (counts.param_nbytes + counts.buffer_nbytes, counts.nbytes),
    }
    return _unequal(pairs)


def _of_costs(report: Report) -> list[str]:
    if report.cost is None:
        return []
    costs = report.cost.by_module
    by_module: Counter[str] = Counter()
    for op in report.model.ops:
        by_module[op.module] += op.macs or 0
    pairs = {
        "MACs of all operators": (sum(by_module.values()), report.cost.macs),
        "MACs below the root": (costs[""].total_macs, report.cost.macs),
    }
    for path, each in costs.items():
        pairs[f"own MACs of {path}"] = (by_module[path], each.own_macs)
    for module in report.model.modules:
        below = sum(costs[child].total_macs for child in module.children)
        pairs[f"MACs below {module.path}"] = (
            costs[module.path].own_macs + below,
            costs[module.path].total_macs,
        )
    return _unequal(pairs)


def _unequal(pairs: dict[str, tuple[int, int]]) -> list[str]:
    return [f"{what}: {found}, and not {total}" for what, (found, total) in pairs.items() if found != total]
