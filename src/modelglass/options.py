"""What a call asks for, beside its target: how a model is built, how it runs, what is read of a file.

Each checks itself. Whether an option applies to a kind of target is that kind's to say (`targets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from modelglass.errors import UsageError

if TYPE_CHECKING:
    from modelglass.report import RunMode, Serving, WhatIf

Progress: TypeAlias = Callable[[str], None]
OnFailure: TypeAlias = Literal["raise", "report"]

# Package name = file name in `frameworks`. vLLM's modules are also torch's, so it is asked first.
FRAMEWORKS = ("vllm", "torch", "mlx")
SERVING = "vllm"  # the framework that builds a configuration as a rank of an engine would hold it
AUTOMATIC = "auto"  # for inputs: made from the model's own configuration
_MODES = ("fake", "real", "none")


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How a target becomes a model."""

    builder: Any = None  # a function of a configuration, or code that names it
    model_key: str | None = None  # the path of the model inside its configuration: "a.b"
    trust: bool = False  # a configuration may run whatever it names
    framework: str | None = None
    serving: Serving | None = None

    def __post_init__(self) -> None:
        if self.framework is not None and self.framework not in FRAMEWORKS:
            raise UsageError(
                f"framework={self.framework!r} is not known", hint="frameworks are " + ", ".join(FRAMEWORKS)
            )
        if self.serving is not None:
            _check_type("serving", self.serving, "Serving", "tensor_parallel=8")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a model is run with, and what is observed of it. Without inputs or a shape nothing runs."""

    inputs: Any = None
    input_shape: Sequence[Any] | None = None
    batch_size: int = 1
    dtype: Any = None
    device: Any = None
    mode: RunMode = "fake"
    train: bool = False
    optimizer: Any = None  # a name, a function of the parameters, or code that names it
    loss: Callable[[Any], Any] | None = None
    calibrate: bool = False
    what_if: WhatIf | None = None
    symbols: bool = False

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise UsageError(f"run={self.mode!r} is not known", hint='use "fake", "real" or "none"')
        if self.what_if is not None:
            _check_type("what_if", self.what_if, "WhatIf", "batch_size=8")
        if self.chosen_optimizer is not None and not self.train:
            raise UsageError("optimizer needs train=True", hint="add train=True, or leave optimizer out")

    @property
    def chosen_optimizer(self) -> Any:
        """The optimizer that steps, which a what-if can replace."""
        changed = None if self.what_if is None else self.what_if.optimizer
        return changed or self.optimizer

    @property
    def needs_run(self) -> bool:
        """Whether something is asked for that only a run can give."""
        return self.inputs is not None or self.input_shape is not None or self.train


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What is read of weights."""

    stats: bool | str = False  # a pattern chooses tensors by name
    limits: Mapping[str, int] | None = None  # how much work a file may cause


def given_options(*options: BuildOptions | RunOptions | ReadOptions) -> dict[str, Any]:
    """The options that differ from their defaults, by the names that users give them by."""
    return {
        "run" if field.name == "mode" else field.name: value
        for each in options
        for field in fields(each)
        if not _is_default(value := getattr(each, field.name), field.default)
    }


def is_automatic(inputs: Any) -> bool:
    """Whether inputs are to be made from the model's own configuration."""
    return isinstance(inputs, str) and inputs == AUTOMATIC


def check_on_failure(on_failure: OnFailure) -> None:
    """Refuse what is not a policy for models that raise."""
    if on_failure not in get_args(OnFailure):
        raise UsageError(f"on_failure={on_failure!r} is not known", hint='use "raise" or "report"')


def _is_default(value: Any, default: Any) -> bool:
    # Tensors and arrays have comparisons of their own, so only plain values are compared.
    return value is default or (type(value) in (str, int, bool) and value == default)


def _check_type(name: str, value: Any, type_name: str, example: str) -> None:
    from modelglass import report

    if not isinstance(value, getattr(report, type_name)):
        raise UsageError(f"{name} must be a mg.{type_name}", hint=f"write mg.{type_name}({example})")
