"""`dump_model_info`: parameters, memory and weight statistics, printed or logged, tensor by tensor.

It never raises: what fails is told, and the rest of the answer still comes. MB are 2**20 bytes, as always in
such listings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from modelglass import api
from modelglass.renderers._escape import cell_width, printable
from modelglass.renderers._notes import note_text
from modelglass.report import Counts, Report, Shape, Tensor

MB = 2**20
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
        return _memory(self.memory_mb)


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The whole model. `layers` are its parameter tensors, tied ones once; totals are their sums."""

    total_params: int
    trainable_params: int
    non_trainable_params: int
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
    save_path: str | os.PathLike[str] | None = None,
) -> ModelInfo:
    """Print a summary, every parameter tensor and its statistics, or send them to the logger; return them.

    `plot_distributions` draws every tensor's distribution to `save_path` as well: PNG, SVG or PDF by its
    suffix, by default model_weight_distributions.png.
    """
    teller = _Teller(logger)
    report = teller.attempt("the weights were not read", lambda: api.inspect(model, stats=True))
    if report is None:
        report = teller.attempt("the model was not inspected", lambda: api.inspect(model))
    layers = [] if report is None else list(_layers(report))
    if report is not None:
        for line in _listing(report, layers):
            teller.say(line)
    plot_path = None
    if report is not None and plot_distributions:
        path = DEFAULT_PLOT if save_path is None else str(save_path)
        plot_path = teller.attempt("weight distributions were not drawn", lambda: _drawn(report, path))
        if plot_path is not None:
            teller.say(f"Weight distributions: {plot_path}")
    counts = report.counts if report is not None and report.counts is not None else None
    return ModelInfo(
        total_params=counts.params if counts else 0,
        trainable_params=counts.trainable or 0 if counts else 0,
        non_trainable_params=counts.frozen or 0 if counts else 0,
        total_memory_mb=counts.param_nbytes / MB if counts else 0.0,
        layers=layers,
        num_layers=len(layers),
        problems=teller.problems,
        plot_path=plot_path,
        report=report,
    )


class _Teller:
    """Tells lines to the logger, or prints them, and whatever happens does not raise."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self.problems: list[str] = []

    def attempt(self, trouble: str, work: Callable[[], Any]) -> Any:
        """What the work gives, or None after telling what went wrong."""
        try:
            return work()
        except Exception as error:
            problem = f"{trouble}: {str(error) or type(error).__name__}"
            self.problems.append(problem)
            self.say(f"WARNING {problem}", level="warning")
            return None

    def say(self, line: str, *, level: str = "info") -> None:
        if self._logger is not None:
            try:
                getattr(self._logger, level)(line)
                return
            except Exception as error:
                self.problems.append(f"the logger failed, so this is printed: {error!r}")
                self._logger = None
        try:
            print(line)
        except UnicodeEncodeError:
            print(line.encode("ascii", "replace").decode())
        except (OSError, ValueError) as error:  # nobody is listening
            self.problems.append(f"cannot print: {error!r}")


def _drawn(report: Report, path: str) -> str:
    api.plot(report, path)
    return path


def _layers(report: Report) -> Iterator[LayerInfo]:
    tied = report.counts.tied if report.counts else {}
    for tensor in report.model.tensors:
        if tensor.kind != "buffer" and tensor.name not in tied:
            yield _layer(tensor, report)


def _layer(tensor: Tensor, report: Report) -> LayerInfo:
    stats = (report.stats or {}).get(tensor.name)
    return LayerInfo(
        name=tensor.name,
        shape=tensor.shape,
        num_params=tensor.params or 0,
        memory_mb=(tensor.nbytes or 0) / MB,
        dtype=tensor.dtype,
        requires_grad=tensor.trainable,
        mean=stats.mean if stats else None,
        std=stats.std if stats else None,
        min=stats.min if stats else None,
        max=stats.max if stats else None,
    )


def _listing(report: Report, layers: list[LayerInfo]) -> Iterator[str]:
    counts = report.counts
    if counts is not None:
        yield "SUMMARY"
        yield from _summary(counts, len(layers))
        yield ""
    if not layers:
        return
    name = max(40, *(cell_width(printable(layer.name)) for layer in layers))
    yield "LAYER DETAILS"
    shape = max(18, *(len(_shape(layer)) for layer in layers))
    yield f"{'Layer Name':<{name}}  {'Shape':<{shape}} {'Params':>15} {'Memory':>12}  Grad"
    for layer in layers:
        params = "?" if layer.shape is None else f"{layer.num_params:,}"
        mark = {True: "✓", False: "✗", None: "?"}[layer.requires_grad]
        left = f"{_padded(layer.name, name)}  {_shape(layer):<{shape}}"
        yield f"{left} {params:>15} {layer.memory:>12}   {mark}"
    yield ""
    yield "WEIGHT STATISTICS"
    yield f"{'Layer':<{name}} {'Mean':>13} {'Std':>13} {'Min':>13} {'Max':>13}"
    for layer in layers:
        figures = (layer.mean, layer.std, layer.min, layer.max)
        yield f"{_padded(layer.name, name)} " + " ".join(f"{_figure(figure):>13}" for figure in figures)
    yield ""
    if report.notes:
        yield "NOTES"
        for note in report.notes:
            yield f"  {note.severity} [{note.code}] {printable(note_text(note))}"
        yield ""


def _summary(counts: Counts, layers: int) -> Iterator[str]:
    unknown = "unknown"
    yield f"  Total parameters:      {counts.params:,}"
    yield f"  Trainable params:      {unknown if counts.trainable is None else f'{counts.trainable:,}'}"
    yield f"  Non-trainable params:  {unknown if counts.frozen is None else f'{counts.frozen:,}'}"
    yield f"  Total memory:          {_memory(counts.param_nbytes / MB)}"
    yield f"  Total layers:          {layers:,}"
    if counts.buffers:
        yield f"  Buffers, not included: {counts.buffers:,} ({_memory(counts.buffer_nbytes / MB)})"


def _padded(name: str, width: int) -> str:
    text = printable(name)
    return text + " " * (width - cell_width(text))


def _shape(layer: LayerInfo) -> str:
    return "uninitialised" if layer.shape is None else str(layer.shape)


def _memory(mb: float) -> str:
    """Binary units under their usual names: KB below a tenth of an MB, GB from 1024 MB on."""
    if mb >= 1024:
        return f"{mb / 1024:.2f} GB"
    return f"{mb:.2f} MB" if mb >= 0.1 or mb == 0 else f"{mb * 1024:.2f} KB"


def _figure(figure: float | None) -> str:
    """Six decimals, or an exponent where those would show nothing."""
    if figure is None:
        return "–"
    return f"{figure:.6f}" if figure == 0 or 1e-4 <= abs(figure) < 1e5 else f"{figure:.4e}"
