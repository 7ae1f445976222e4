"""What a report says of the file it was read from, as labels and texts for any output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from modelglass.page.units import shape_text, size, value_text

if TYPE_CHECKING:
    from modelglass.report import Architecture, Checkpoint, CheckpointPart, Json, Report, Value

SHOWN_METADATA = 12
SHOWN_ITEMS = 64  # of one list
SHOWN_TEXT = 300  # characters of one value

Rows = Iterator[tuple[str, str]]


def file_rows(report: Report, checkpoint: Checkpoint) -> Rows:
    """Which file it is, and what it holds beside the model's tensors."""
    yield "file", _files(checkpoint)
    yield "read", f"{size(checkpoint.read_nbytes)} of {size(checkpoint.nbytes)}"
    yield "tensors", f"{len(report.model.tensors):,}"
    if checkpoint.prefix:
        yield "prefix", f"{checkpoint.prefix!r} taken off every name"


def more_rows(report: Report, checkpoint: Checkpoint) -> Rows:
    """What follows the counts: the architecture, the parts, the metadata."""
    if checkpoint.architecture is not None:
        yield from _architecture(checkpoint.architecture, report)
    if report.model.ops:
        yield "graph", f"{len(report.model.ops):,} nodes"
    for label, values in (("input", checkpoint.inputs), ("output", checkpoint.outputs)):
        if values:
            yield label, ", ".join(_value(value) for value in values[:6])
    for part in checkpoint.parts:
        if part.kind != "model":
            shown = part_text(part)
            yield part.kind, f"{part.key}: {shown}" if part.key else shown
        elif part.key:
            yield "model", f"under {part.key!r}"
    yield from _metadata(checkpoint.metadata)


def _files(checkpoint: Checkpoint) -> str:
    first, *rest = checkpoint.files
    others = f" and {len(rest):,} more" if rest else ""
    return f"{first.path}{others}, {size(checkpoint.nbytes)} ({checkpoint.format})"


def _value(value: Value) -> str:
    shape = value_text(value) if value.dtype is None or value.shape is not None else value.text or "?"
    return f"{value.name}: {shape} {value.dtype or ''}".rstrip()


def _architecture(found: Architecture, report: Report) -> Rows:
    parts = [found.name or found.model_type or "unknown"]
    if found.layers is not None:
        parts.append(f"{found.layers} layers")
    if found.hidden_size is not None:
        parts.append(f"hidden {found.hidden_size:,}")
    if found.heads is not None:
        shared = "" if found.kv_heads in (None, found.heads) else f" ({found.kv_heads} for keys and values)"
        parts.append(f"{found.heads} heads{shared}")
    if found.experts is not None:
        chosen = "" if found.experts_per_token is None else f", {found.experts_per_token} for a token"
        parts.append(f"{found.experts} experts{chosen}")
    yield "architecture", ", ".join(parts)
    counted = None if report.counts is None else report.counts.active_params
    if found.active_params not in (None, found.total_params, counted):
        yield "  active", f"{found.active_params:,} parameters for a token"
    if found.tied_output:
        stored = report.counts is not None and report.counts.tied
        yield "  output", "tied to the embedding" + ("" if stored else ": absent by design")
    yield "KV cache", _cache(found)


def _cache(found: Architecture) -> str:
    each = found.kv_cache_nbytes_per_token
    if each is None:
        return f"unknown: {found.kv_cache_reason or 'the configuration does not specify it'}"
    text = f"{each:,} B a token in {found.kv_cache_dtype or 'its type'}"
    beyond = found.kv_cache_nbytes_per_token_beyond_window
    if found.sliding_window is not None and beyond != each:
        text += f", {beyond:,} B beyond {found.sliding_window:,} tokens"
    return text + (" (compressed)" if found.kv_cache_compressed else "")


def part_text(part: CheckpointPart) -> str:
    """What a part of a training checkpoint holds."""
    texts = []
    if part.type is not None:
        texts.append(part.type)
    if part.tensors:
        alone = part.tensors[0] if len(part.tensors) == 1 else None
        shape = "" if alone is None else f" {shape_text(alone.shape)} {alone.dtype}"
        count = "a tensor" if alone is not None else f"{len(part.tensors):,} tensors"
        texts.append(f"{count}{shape}, {size(part.nbytes)}")
    if part.matched:
        texts.append(f"of {len(part.matched):,} parameters")
    if part.kind == "optimizer" and isinstance(part.value, list):
        texts.append(_groups(part.value))
    elif part.value is not None and not (part.tensors and isinstance(part.value, str)):
        texts.append(plain(part.value))
    return "; ".join(texts) or "empty"


def _groups(groups: list[Json]) -> str:
    """The settings of an optimizer's groups, without those that are off."""
    shown = [
        {key: value for key, value in group.items() if value is not None and value is not False}
        for group in groups
        if isinstance(group, dict)
    ]
    if len(shown) == 1:
        return plain(shown[0])
    return f"{len(shown):,} groups: " + plain(shown)


def _metadata(metadata: Mapping[str, Json]) -> Rows:
    label = "metadata"
    for key, value in list(metadata.items())[:SHOWN_METADATA]:
        yield label, f"{key}: {plain(value)}"
        label = ""
    more = len(metadata) - SHOWN_METADATA
    if more > 0:
        yield "", f"and {more:,} more, which JSON output has"


def plain(value: Json, *, most: int = SHOWN_TEXT) -> str:
    """Data in a line, without more quotes and braces than it takes."""
    text = _plain(value, 0)
    return text if len(text) <= most else text[:most] + "…"


def _plain(value: Json, depth: int) -> str:
    if depth > 3:
        return "…"
    if isinstance(value, dict):
        pairs = [f"{key}={_plain(item, depth + 1)}" for key, item in list(value.items())[:SHOWN_ITEMS]]
        shown = ", ".join(pairs + ["…"] * (len(value) > SHOWN_ITEMS))
        return f"({shown})" if depth else shown
    if isinstance(value, list):
        items = [_plain(item, depth + 1) for item in value[:SHOWN_ITEMS]]
        return "[" + ", ".join(items + ["…"] * (len(value) > SHOWN_ITEMS)) + "]"
    return str(value)[: SHOWN_TEXT + 1]
