"""`nn.summary` and `Module.summary` for MLX, and what they are made of.

Nothing is patched on import: `install()` adds the two names to MLX, `uninstall()` takes them away. No array
is ever evaluated. MB are 2**20 bytes, as always in such tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import MethodType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from modelglass.api._models import require_extra
from modelglass.compat.sizes import outputs_by_module, outputs_with_batch
from modelglass.compat.summary import ModelSummary as _Text, batch_of, short_summary, summarised
from modelglass.compat.summary_table import is_layer, render_layers
from modelglass.errors import UsageError
from modelglass.page.units import MB
from modelglass.report import Report, Shape

if TYPE_CHECKING:
    from modelglass.report import Call, Module

# Of one output its shape; of several a tuple of them, None for what is not an array. None: it was not called.
OutputShape: TypeAlias = Shape | tuple[Shape | None, ...] | None


@dataclass
class LayerInfo:
    """One module, with what it holds itself: rows add up to the model.

    `param_bytes` has the scales of quantized weights in it. `output_bytes` is what calls of this layer gave
    back, by real type, where no layer inside them did; None: it was not observed. `batch_size` is that of the
    observation.
    """

    name: str
    module_type: str
    output_shape: OutputShape = None
    num_params: int = 0
    trainable_params: int = 0
    param_bytes: int = 0
    output_bytes: int | None = None
    batch_size: int = 1


class ModelSummary(_Text):
    """The table as text, with `layer_infos` by name, and the `report` that it was made from."""

    layer_infos: dict[str, LayerInfo]

    def __new__(
        cls, model: Any, input_shape: Any = None, *, batch_size: int = 1, verbose: int = 1, dtypes: Any = None
    ) -> Self:
        report = summarised(_check(model), input_shape, batch_size=batch_size, dtype=_one_dtype(dtypes))
        made = super().__new__(cls, short_summary(report, verbose=verbose), report)
        made.layer_infos = {info.name: info for info in _layer_infos(report)}
        return made


def summary(
    model: Any,
    input_shape: Any = None,
    batch_size: int = 1,
    device: Any = None,
    verbose: int = 1,
    dtypes: Any = None,
) -> ModelSummary:
    """The table of a model's layers as text.

    `input_shape` is without the batch, or a sample input itself; then shapes of outputs are known, too. When
    the model cannot take it, the table says why. `verbose` 0 gives the totals, 1 every layer, 2 every array
    and shapes of outputs. Nothing is computed, so that `device` makes no difference.
    """
    return ModelSummary(model, input_shape, batch_size=batch_size, verbose=verbose, dtypes=dtypes)


def count_parameters(module: Any) -> tuple[int, int]:
    """All parameters, and those that are trained: shared ones once, quantized ones as what they stand for."""
    counts = summarised(_check(module), None).counts
    return (0, 0) if counts is None else (counts.params, counts.trainable or 0)


def simple_summary(model: Any) -> str:
    """The three totals as text."""
    total, trainable = count_parameters(model)
    return (
        f"\nTotal params: {total:,}\nTrainable params: {trainable:,}\n"
        f"Non-trainable params: {total - trainable:,}\n"
    )


def collect_layer_info(model: Any, input_shape: Any = None, batch_size: int = 1) -> list[LayerInfo]:
    """Every module in the order of definition, the model itself first when it holds arrays."""
    return _layer_infos(summarised(_check(model), input_shape, batch_size=batch_size))


def format_layer_summary(layer_infos: Iterable[LayerInfo]) -> str:
    """The rows of layers as a table, without totals."""
    return render_layers(
        (f"{info.name} ({info.module_type})", info.num_params, info.trainable_params) for info in layer_infos
    )


def calculate_memory_usage(layer_infos: Iterable[LayerInfo], batch_size: int = 1) -> dict[str, float]:
    """What parameters and outputs take, in MB, for a batch of that size.

    Outputs are those that were observed; what was observed with another batch is scaled, where the batch
    comes first. Elements of a layer of which only the shape is known count as float32.
    """
    infos, batch = list(layer_infos), batch_of(batch_size)
    params = sum(info.param_bytes for info in infos) / MB
    activations = sum(_output_nbytes(info, batch) for info in infos) / MB
    return {"params_mb": params, "activations_mb": activations, "total_mb": params + activations}


def install() -> None:
    """Add `mlx.nn.summary` and the method `summary` of every `mlx.nn.Module`; again, it changes nothing."""
    nn = _nn("modelglass.mlx.install()")
    if not _before:
        for owner, ours in ((nn, summary), (nn.Module, _Method())):
            _before.append((owner, ours, vars(owner).get("summary", _ABSENT)))
            owner.summary = ours


def uninstall() -> None:
    """Put back what was there before `install()`; what somebody else has put there since then stays."""
    while _before:
        owner, ours, before = _before.pop()
        if vars(owner).get("summary", _ABSENT) is not ours:
            continue
        if before is _ABSENT:
            del owner.summary
        else:
            owner.summary = before


_ABSENT = object()
_before: list[tuple[Any, Any, Any]] = []  # what was changed, to what, and what was there


class _Method:
    """The method that modules get, unless they hold something of its name themselves.

    MLX keeps layers and arrays as items of a module, where a method of their name would hide them, and it
    deletes an attribute before it makes an item of that name.
    """

    def __get__(self, module: Any, owner: type) -> Any:
        if module is None:
            return _summary_of
        held = vars(module) if "summary" in vars(module) else module
        return held["summary"] if "summary" in held else MethodType(_summary_of, module)

    def __set__(self, module: Any, value: Any) -> None:
        vars(module)["summary"] = value

    def __delete__(self, module: Any) -> None:
        vars(module).pop("summary", None)


def _summary_of(self: Any, input_shape: Any = None, batch_size: int = 1, verbose: int = 1) -> ModelSummary:
    """The table of this module's layers as text; see `modelglass.mlx.summary`."""
    return summary(self, input_shape, batch_size, verbose=verbose)


def _nn(wanted_by: str) -> Any:
    with require_extra("mlx", wanted_by, extra="mlx"):
        from mlx import nn
    return nn


def _check(model: Any) -> Any:
    if not isinstance(model, _nn("modelglass.mlx").Module):
        raise UsageError(
            f"this is a {type(model).__module__}.{type(model).__qualname__}, not an mlx.nn.Module",
            hint="mg.summary takes models of every framework",
        )
    return model


def _one_dtype(dtypes: Any) -> Any:
    """The type of inputs, of a list of one."""
    several = list(dtypes) if isinstance(dtypes, (list, tuple)) else [dtypes]
    if len({str(dtype) for dtype in several}) > 1:
        raise UsageError(
            "inputs of different types cannot be made from shapes", hint="pass the inputs themselves"
        )
    return several[0] if several else None


def _layer_infos(report: Report) -> list[LayerInfo]:
    outputs, first = outputs_by_module(report.model), _first_calls(report)
    shapes = [value.shape for value in report.run.inputs if value.shape]
    batch = shapes[0][0] if shapes else 1
    return [
        _layer_info(module, report, first.get(module.path), outputs.get(module.path), batch)
        for module in report.model.modules
        if is_layer(module)
    ]


def _first_calls(report: Report) -> dict[str, Call]:
    return {call.module: call for call in reversed(report.model.calls) if call.completed}


def _layer_info(
    module: Module, report: Report, call: Call | None, output_nbytes: int | None, batch: int
) -> LayerInfo:
    assert report.counts is not None
    own = report.counts.by_module[module.path].own
    return LayerInfo(
        name=module.path or report.model.name,
        module_type=module.type,
        output_shape=None if call is None else _output_shape(call),
        num_params=own.params,
        trainable_params=own.trainable or 0,
        param_bytes=own.nbytes,
        output_bytes=None if call is None else output_nbytes,
        batch_size=batch,
    )


def _output_shape(call: Call) -> OutputShape:
    shapes = tuple(value.shape for value in call.outputs)
    return shapes[0] if len(shapes) == 1 and call.outputs[0].name == "" else shapes


def _output_nbytes(info: LayerInfo, batch: int) -> int:
    shapes = tuple(_shapes_in(info.output_shape))
    return outputs_with_batch(shapes, info.output_bytes, observed=info.batch_size, wanted=batch)


def _shapes_in(output: OutputShape) -> Iterator[Shape]:
    """The shapes of the arrays among a layer's outputs."""
    if output is None:
        return
    sizes = tuple(each for each in output if isinstance(each, int))
    if len(sizes) == len(output):
        yield sizes
    else:
        yield from (each for each in output if isinstance(each, tuple))
