"""`dump_model_info`: parameters, memory and weight statistics, printed or logged, tensor by tensor.

It never raises: what fails is told, and the rest of the answer still comes. MB are 2**20 bytes, as always in
such listings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from modelglass import api
from modelglass.compat import listing
from modelglass.console import AS_ASCII
from modelglass.page.units import MB, megabytes
from modelglass.report import Report, Shape, Tensor

DEFAULT_PLOT = "model_weight_distributions.png"


@dataclass(frozen=True, slots=True)
class LayerInfo:
    """One parameter tensor. Statistics are None where there are no values, or too few."""

    name: str
    shape: Shape | None  # None: not initialised yet
    num_params: int
    memory_mb: float
    dtype: str = ""
    requires_grad: bool | None = None
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None

    @property
    def memory(self) -> str:
        """The memory as people read it: "2.00 KB"."""
        return megabytes(self.memory_mb)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The whole model. `layers` are its parameter tensors, tied ones once; totals are their sums."""

    total_params: int
    trainable_params: int | None  # None: the model does not say
    non_trainable_params: int | None
    total_memory_mb: float
    layers: list[LayerInfo]
    num_layers: int
    problems: list[str] = field(default_factory=list)  # what failed on the way
    plot_path: str | None = None
    report: Report | None = field(default=None, repr=False)


def dump_model_info(
    model: Any,
    logger: Any = None,
    plot_distributions: bool = True,
    save_path: str | bytes | os.PathLike[Any] | None = None,
) -> ModelInfo:
    """Print a summary, every parameter tensor and its statistics, or send them to the logger; return them.

    `plot_distributions` draws every tensor's distribution to `save_path` as well: PNG, SVG or PDF by its
    suffix, by default model_weight_distributions.png.
    """
    teller = _Teller(logger)
    report = teller.attempt("the model was not inspected", lambda: _inspect(model, teller))
    if report is None:
        return ModelInfo(0, 0, 0, 0.0, [], 0, teller.problems)  # with the problem that explains the zeros
    for line in teller.attempt("nothing can be listed", lambda: list(listing.lines(report))) or ():
        teller.say(line)
    path = DEFAULT_PLOT if save_path is None else save_path
    plot_path = teller.attempt(
        "weight distributions were not drawn",
        lambda: _draw(report, path) if plot_distributions else None,
    )
    if plot_path is not None:
        teller.say(f"Weight distributions: {plot_path}")
    return _info(report, teller.problems, plot_path)


def _info(report: Report, problems: list[str], plot_path: str | None) -> ModelInfo:
    layers = [_layer(tensor, report) for tensor in report.parameters]
    counts = report.counts
    return ModelInfo(
        total_params=counts.params if counts else 0,
        trainable_params=counts.trainable if counts else None,
        non_trainable_params=counts.frozen if counts else None,
        total_memory_mb=counts.param_nbytes / MB if counts else 0.0,
        layers=layers,
        num_layers=len(layers),
        problems=problems,
        plot_path=plot_path,
        report=report,
    )


def _inspect(model: Any, teller: _Teller) -> Report:
    """The report with statistics, or without where the weights cannot be read."""
    try:
        return api.inspect(model, stats=True)
    except Exception as error:
        report = api.inspect(model)  # when this fails, too, its error is the one to tell
        teller.trouble("the weights were not read", error)
        return report


class _Teller:
    """Tells lines to the logger, or prints them, and whatever happens does not raise."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self._silent = False
        self.problems: list[str] = []

    def attempt(self, what: str, work: Callable[[], Any]) -> Any:
        """What the work gives, or None after telling what went wrong."""
        try:
            return work()
        except Exception as error:
            self.trouble(what, error)
            return None

    def trouble(self, what: str, error: Exception) -> None:
        self.problems.append(f"{what}: {_words(error)}")
        self.say(f"WARNING {self.problems[-1]}", level="warning")

    def say(self, line: str, *, level: str = "info") -> None:
        line = api.told(*line.split("\n"))  # it may quote what a model or an error says
        if self._logger is not None:
            try:
                getattr(self._logger, level)(line)
                return
            except Exception as error:
                self.problems.append(f"the logger failed, so this is printed: {_words(error)}")
                self._logger = None
        if not self._silent:
            self._print(line)

    def _print(self, line: str) -> None:
        try:
            try:
                print(line)
            except UnicodeEncodeError:
                print(line.encode("ascii", AS_ASCII).decode())
        except Exception as error:  # nobody is listening
            self.problems.append(f"cannot print: {_words(error)}")
            self._silent = True


def _words(error: Exception) -> str:
    """What the error says, if it says anything."""
    try:
        return str(error) or type(error).__name__
    except Exception:  # even its text may fail
        return type(error).__name__


def _draw(report: Report, path: str | bytes | os.PathLike[Any]) -> str:
    name = os.fsdecode(path)
    api.plot(report, name)
    return name


def _layer(tensor: Tensor, report: Report) -> LayerInfo:
    stats = (report.stats or {}).get(tensor.name)
    packing = tensor.packing if tensor.kind == "packed" else None
    return LayerInfo(
        name=tensor.name,
        shape=tensor.shape if packing is None else packing.logical_shape,
        num_params=tensor.params or 0,
        memory_mb=(tensor.nbytes or 0) / MB,
        dtype=tensor.dtype,
        requires_grad=tensor.trainable,
        mean=stats.mean if stats else None,
        std=stats.std if stats else None,
        min=stats.min if stats else None,
        max=stats.max if stats else None,
    )
