"""What a model's parameters take in memory, in the form in which they are stored."""

from __future__ import annotations

from modelglass.report import Report


def parameters_nbytes(report: Report) -> int:
    """Bytes of the parameters, tied ones once, with the scales and zero points of packed ones."""
    sides = sum(tensor.packing.side_nbytes for tensor in report.parameters if tensor.packing is not None)
    return sides + (0 if report.counts is None else report.counts.param_nbytes)
