"""What is wrong or odd about the weights, under codes that stay the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from modelglass.analyses.stats.duplicates import duplicates
from modelglass.report import FINDINGS, Json, Model, Note, Severity, Tensor, TensorStats, Values
from modelglass.report.stats import Described, described_shape

OUTLIER_REACH = 20  # times half the range of the middle 98 %: some 47 standard deviations of a normal one
SMALL_SCALE, LARGE_SCALE = 1e-6, 100.0
ENOUGH_FOR_SCALE = 8  # values below which their size means nothing
DENORMAL_SHARE = 0.1


def findings(
    model: Model, stats: Mapping[str, TensorStats | None], values: Mapping[str, Values | str]
) -> Iterator[Note]:
    """A note for each kind of finding, in the order of `FINDINGS`, and for tensors without statistics."""
    owners: dict[str, Tensor] = {}
    for tensor in model.tensors:
        if stats.get(tensor.name):
            owner = owners.setdefault(tensor.storage, tensor)
            if (tensor.numel or 0) > (owner.numel or 0):  # of which the other is a part
                owners[tensor.storage] = tensor
    owned = list(owners.values())
    met: dict[tuple[str, Severity], dict[str, str]] = defaultdict(dict)
    padding = _padding_rows(model)
    for tensor in owned:
        known = stats[tensor.name]
        if known is not None:
            for finding in _of_one(tensor, known, padding.get(tensor.storage)):
                met[finding.code, finding.severity][tensor.name] = finding.detail
    for tensor, original in duplicates(owned, stats, values):
        # Tables that do not train, such as positions, are often made anew in each layer.
        severity: Severity = "warning" if tensor.trainable else "info"
        met["duplicate", severity][tensor.name] = f"equals {original.name}"
    order = list(FINDINGS)
    for code, severity in sorted(met, key=lambda key: order.index(key[0])):
        yield _note(code, severity, met[code, severity])
    yield from _mixed_dtypes([tensor for tensor in model.tensors if tensor.name in stats])
    yield from _absent(model, stats, values)


@dataclass(frozen=True)
class _Finding:
    code: str
    severity: Severity
    detail: str


def _padding_rows(model: Model) -> dict[str, Json]:
    """By storage, the row that an embedding, under any of its names, keeps at zero."""
    storages = {tensor.name: tensor.storage for tensor in model.tensors}
    return {
        storages[name]: module.config["padding_idx"]
        for module in model.modules
        if module.config.get("padding_idx") is not None
        for name in module.tensors
    }


def _of_one(tensor: Tensor, stats: TensorStats, padding: Json) -> Iterator[_Finding]:
    """What there is to say about one tensor's values."""
    if stats.nan:
        where = _place(tensor, stats, stats.first_nan)
        yield _Finding("nan", "error", f"has {stats.nan:,}, the first at {where}")
    if stats.inf:
        # Masks are buffers, and full of infinities on purpose.
        severity: Severity = "info" if tensor.kind == "buffer" else "error"
        where = _place(tensor, stats, stats.first_inf)
        yield _Finding("inf", severity, f"has {stats.inf:,}, the first at {where}")
    if tensor.kind != "buffer" and stats.described != "stored":
        yield from _of_weights(tensor, stats, padding)


def _of_weights(tensor: Tensor, stats: TensorStats, padding: Json) -> Iterator[_Finding]:
    # Biases start as zeros and the scales of norms as ones; a matrix should not.
    matrix = _is_matrix(tensor, stats)
    severity: Severity = "warning" if matrix else "info"
    if stats.constant and stats.count > 1:
        if stats.max == 0:
            yield _Finding("zero", severity, "")
        else:
            yield _Finding("constant", severity, f"is {stats.max:g}")
        return
    is_padding = stats.dead_rows == 1 and stats.first_dead_row == padding
    if stats.dead_rows and matrix and not is_padding:
        detail = f"has {stats.dead_rows:,}, the first is {stats.first_dead_row}"
        yield _Finding("dead-rows", "warning", detail)
    if stats.dead_columns and matrix:
        detail = f"has {stats.dead_columns:,}, the first is {stats.first_dead_column}"
        yield _Finding("dead-columns", "warning", detail)
    if not tensor.dtype.startswith(("float", "bfloat", "complex")) and stats.described != "dequantized":
        return
    if stats.reach is not None and stats.reach > OUTLIER_REACH:
        detail = f"reaches {stats.absmax:g}, {stats.reach:,.0f} times as far as usual"
        yield _Finding("outlier", "info", detail)
    scale = stats.rms
    if scale and stats.finite >= ENOUGH_FOR_SCALE and not SMALL_SCALE <= scale <= LARGE_SCALE:
        yield _Finding("scale", severity, f"is around {scale:.1e}")
    if stats.denormals > DENORMAL_SHARE * stats.finite:
        yield _Finding("denormal", "info", f"has {stats.denormals:,} of {stats.count:,}")


def _is_matrix(tensor: Tensor, stats: TensorStats) -> bool:
    """More than a vector, whatever sides of one it has, and no bias."""
    sides = [side for side in described_shape(tensor, stats) or () if side > 1]
    return len(sides) > 1 and "bias" not in tensor.name.rpartition(".")[2]


def _place(tensor: Tensor, stats: TensorStats, flat: int | None) -> str:
    """An index as one would write it in Python; of stored values, how far into them."""
    shape = described_shape(tensor, stats)
    if flat is None or shape is None or stats.described == "stored":
        return f"stored value {flat}"
    indices = np.unravel_index(flat, shape) if shape else ()
    return f"[{', '.join(str(int(i)) for i in indices)}]"


def _note(code: str, severity: Severity, details: Mapping[str, str]) -> Note:
    return Note(
        code=code,
        severity=severity,
        text=FINDINGS[code],
        where=tuple(details),
        details=tuple(details.values()),
    )


def _mixed_dtypes(tensors: list[Tensor]) -> Iterator[Note]:
    floats = [t for t in tensors if t.kind == "parameter" and "float" in t.dtype]
    numbers = Counter(tensor.dtype for tensor in floats)
    if len(numbers) > 1:
        text = ", ".join(f"{number:,} of {dtype}" for dtype, number in numbers.most_common())
        common = max(numbers, key=numbers.__getitem__)
        yield Note(
            code="mixed-dtypes",
            text=f"{FINDINGS['mixed-dtypes']}: {text}",
            where=tuple(tensor.name for tensor in floats if tensor.dtype != common),
        )


def _absent(
    model: Model, stats: Mapping[str, TensorStats | None], values: Mapping[str, Values | str]
) -> Iterator[Note]:
    reasons: dict[str, list[str]] = defaultdict(list)
    for tensor in model.tensors:
        if tensor.name in stats and stats[tensor.name] is None:
            reason = values.get(tensor.name)
            reasons[reason if isinstance(reason, str) else f"of type {tensor.dtype}"].append(tensor.name)
    for reason, names in reasons.items():
        yield Note(
            code="no-values",
            text=f"no statistics for {len(names):,} tensors without values to read: {reason}",
            where=tuple(names),
        )
    for described, (code, text) in _OTHERWISE.items():
        names = [name for name, known in stats.items() if known is not None and known.described == described]
        if names:
            yield Note(code=code, text=text, where=tuple(names))


_OTHERWISE: dict[Described, tuple[str, str]] = {
    "dequantized": (
        "dequantized-values",
        "quantized: described dequantized, in 32-bit floats",
    ),
    "stored": (
        "stored-values",
        "packed, quantized or sparse: described as stored, not dequantized",
    ),
}
