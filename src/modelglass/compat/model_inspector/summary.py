"""The model's type, configuration, parameters and normalisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from modelglass.compat.model_inspector._lines import (
    INDENT,
    heading,
    mebibytes,
    padded,
    rows,
    value_text,
)
from modelglass.compat.model_inspector.labels import readable
from modelglass.renderers._escape import cell_width, fitted, printable

if TYPE_CHECKING:
    from modelglass.compat.model_inspector.inspection import Inspection, TypeCount
    from modelglass.compat.model_inspector.words import Words
    from modelglass.report import Counts, Json

SHOWN_SETTINGS = 40
MOST_SETTINGS = 2000  # with --verbose
_DEPTH = 6  # of nested settings, below which they are one line
_LONGEST_TYPE = 40


def sections(inspection: Inspection, say: Words, width: int, verbose: bool) -> Iterator[str]:
    """What the model is."""
    yield heading(say("summary"))
    name = say("type-unknown") if inspection.name is None else printable(inspection.name)
    yield fitted(f"{say('type')}: {name}", width)
    if inspection.config:
        yield f"{say('config')}:\n{_config(inspection.config, say, width, verbose)}"
    counts = inspection.described.counts
    if counts is not None:
        yield f"{say('statistics')}:\n{rows(_statistics(inspection, counts, say), width)}"
        yield f"{say('by-type')}:\n{_by_type(inspection.by_type, counts, say)}"
    if inspection.normalisation:
        listed = [
            (readable(key, say), say("no-values") if value is None else value_text(value))
            for key, value in flattened(inspection.normalisation)
        ]
        yield f"{say('normalisation')}:\n{rows(listed, width)}"


def reason(text: str, say: Words) -> str:
    """Why something is missing: our own sentence by its key, or what went wrong."""
    return say(text) if text == "needs-code" else say("failed").format(why=printable(text))


def _config(config: Mapping[str, Json], say: Words, width: int, verbose: bool) -> str:
    flat = list(flattened(config))
    most = MOST_SETTINGS if verbose else SHOWN_SETTINGS
    text = rows([(readable(key, say), value_text(value)) for key, value in flat[:most]], width)
    return text + (f"\n{INDENT}… {say('config-more').format(n=len(flat) - most)}" if len(flat) > most else "")


def flattened(value: Json, path: str = "", depth: int = 0) -> Iterator[tuple[str, Json]]:
    """Nested settings by dotted keys."""
    if isinstance(value, Mapping) and value and depth <= _DEPTH:
        for key, item in value.items():
            yield from flattened(item, f"{path}.{key}" if path else str(key), depth + 1)
    else:
        yield path, value


def _statistics(inspection: Inspection, counts: Counts, say: Words) -> Iterator[tuple[str, str]]:
    plus = f" {say('uninitialised')}" if counts.uninitialised else ""
    listed = {"params": counts.params, "buffers": counts.buffers}
    trainable = say("file-silent") if inspection.report is None else say("unknown")
    numbers = {key: f"{number:,}" for key, number in listed.items()}
    width = max(map(len, numbers.values()))
    yield say("params"), numbers["params"].rjust(width) + plus
    if counts.logical_params != counts.params:
        yield say("logical"), f"{counts.logical_params:,}".rjust(width)
    if counts.active_params not in (None, counts.params):
        yield say("active"), f"{counts.active_params:,}".rjust(width)
    known = counts.trainable is not None
    yield say("trainable"), f"{counts.trainable:,}".rjust(width) if known else trainable
    if counts.frozen:
        yield say("frozen"), f"{counts.frozen:,}".rjust(width)
    yield say("buffers"), numbers["buffers"].rjust(width)
    yield say("model-size"), _size(inspection.nbytes_by_dtype, counts)


def _size(by_dtype: Mapping[str, int], counts: Counts) -> str:
    """What parameters take, in the types they have."""
    at_least = "≥ " if counts.unsized or counts.uninitialised else ""
    total = at_least + mebibytes(sum(by_dtype.values()), 2)
    if len(by_dtype) < 2:
        return total + "".join(f" ({dtype})" for dtype in by_dtype)
    return f"{total} ({', '.join(f'{dtype} {mebibytes(n, 2)}' for dtype, n in by_dtype.items())})"


def _by_type(listed: tuple[TypeCount, ...], counts: Counts, say: Words) -> str:
    if not listed:
        return INDENT + say("no-params")
    names = [fitted(printable(each.type or say("unknown")), _LONGEST_TYPE) for each in listed]
    wide = max(20, *map(cell_width, [*names, say("total")]))
    digits = max(10, len(f"{counts.params:,}"))
    lines = []
    for name, each in zip(names, listed, strict=True):
        guessed = f"  {say('guessed')}" if each.guessed else ""
        share = f"({each.permille / 10:5.1f}%)"
        lines.append(f"{INDENT}{padded(name, wide)}: {f'{each.params:,}'.rjust(digits)} {share}{guessed}")
    total = sum(each.permille for each in listed) / 10
    lines.append(
        f"{INDENT}{padded(say('total'), wide)}: {f'{counts.params:,}'.rjust(digits)} ({total:5.1f}%)"
    )
    return "\n".join(lines)
