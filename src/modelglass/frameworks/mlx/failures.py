"""Notes for a user whose model raised."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from modelglass.report import Failure, Note, Value

_FOREIGN = frozenset({"ndarray", "Tensor"})  # what others call their arrays


def failure_notes(failure: Failure, given: Iterable[Value]) -> Iterator[Note]:
    """Where the run ended and why, and what is usually wrong where that is known."""
    lines = failure.message.strip().splitlines()
    yield Note(
        code="forward-failed",
        severity="error",
        text=f"{failure.error} in {failure.module or '(root)'}: {lines[0][:300] if lines else failure.error}",
        where=(failure.module,),
    )
    foreign = tuple(value.name for value in given if value.text in _FOREIGN)
    if foreign:
        yield Note(
            code="foreign-input",
            text="inputs that are arrays of another framework; MLX's layers take mx.array(...)",
            where=foreign,
        )
    if _is_channels_first(failure):
        yield Note(
            code="channels-last",
            text="MLX's convolutions take channels last (N, H, W, C); this input looks like channels first "
            "(N, C, H, W), so move its axis 1 to the end: mx.moveaxis(x, 1, -1)",
            where=(failure.module,),
        )


def _is_channels_first(failure: Failure) -> bool:
    """Whether a convolution met an input that has its channels where torch has them."""
    shapes = re.search(r"input: \(([\d,]*)\) and weight: \(([\d,]*)\)", failure.message)
    if shapes is None or "conv" not in failure.message:
        return False
    given, weight = ([int(size) for size in found.split(",") if size] for found in shapes.groups())
    return len(given) == len(weight) >= 3 and given[1] == weight[-1] != given[-1]
