"""The classic layer table: `summary(model, input_shape)`."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any, Self

from modelglass.api import cell, inspect
from modelglass.compat.sizes import layer_outputs_nbytes, parameters_nbytes
from modelglass.compat.summary_table import render, render_short
from modelglass.errors import UsageError
from modelglass.frameworks.shared.request import is_shape
from modelglass.report import Report


class ModelSummary(str):
    """The text of a summary, with the report it was made from."""

    report: Report

    def __new__(cls, text: str, report: Report) -> Self:
        made = super().__new__(cls, text)
        made.report = report
        return made

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows of it: the layers of its report; as text, the summary."""
        return {"text/plain": str(self), "text/html": cell(self.report)}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have the text and what belongs to it; nothing is inspected again."""
        return _with_text, (type(self), str(self)), vars(self)


def _with_text(kind: type[ModelSummary], text: str) -> ModelSummary:
    return str.__new__(kind, text)


def summary(
    model: Any,
    input_shape: Any = None,
    batch_size: int = 1,
    device: Any = None,
    verbose: int = 1,
) -> ModelSummary:
    """The classic layer table as text. `input_shape` has no batch dimension, or is a sample input itself.

    `verbose` 0 gives the totals, 1 every layer, 2 every weight and bias too. Where the model raises, the
    table ends and says so.

    >>> import torch
    >>> "Total params: 55" in summary(torch.nn.Linear(10, 5))
    True
    """
    report = summarised(model, input_shape, batch_size=batch_size, device=device)
    return ModelSummary(render(report, **_sizes(report), verbose=_verbosity(verbose)), report)


def short_summary(report: Report, *, verbose: int = 1) -> str:
    """The layer table in three columns: layer, parameters, trainable."""
    return render_short(report, **_sizes(report), verbose=_verbosity(verbose))


def summarised(
    model: Any, input_shape: Any, *, batch_size: int = 1, dtype: Any = None, device: Any = None
) -> Report:
    """The report that a summary is made from; without a shape or a sample input, of the structure alone.

    A number is a shape of one dimension.
    """
    batch = batch_of(batch_size)
    if isinstance(input_shape, Integral) and not isinstance(input_shape, bool):
        input_shape = (int(input_shape),)
    if input_shape is not None and not is_shape(input_shape):
        return inspect(model, input_shape, on_failure="report")
    return inspect(
        model,
        input_shape=input_shape,
        batch_size=batch,
        dtype=dtype,
        device=device,
        on_failure="report",
    )


def batch_of(size: Any) -> int:
    """The size of a batch; -1 is how others say that it does not matter, and is 1."""
    if not isinstance(size, Integral) or (size < 1 and size != -1):
        raise UsageError(
            f"batch_size={size!r} must be a positive integer", hint="leave it out for a batch of 1"
        )
    return 1 if size == -1 else int(size)


def _verbosity(verbose: Any) -> int:
    if not isinstance(verbose, Integral):
        raise UsageError(
            f"verbose={verbose!r} must be an integer",
            hint="0 gives the totals, 1 every layer, 2 every weight and bias too",
        )
    return int(verbose)


def _sizes(report: Report) -> Mapping[str, Any]:
    """What a summary says about memory, as its renderers take it."""
    return {
        "outputs_nbytes": layer_outputs_nbytes(report.model),
        "params_nbytes": parameters_nbytes(report),
    }
