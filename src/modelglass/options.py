"""What a call asks for, beside its target: how a model is built, how it runs, what is read of a file.

Each checks itself. Each kind of target decides which options apply to it (`targets`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

from modelglass.errors import UsageError

if TYPE_CHECKING:
    from modelglass.report import RunMode, Serving, WhatIf

Progress: TypeAlias = Callable[[str], None]
OnFailure: TypeAlias = Literal["raise", "report"]

# Package name = file name in `frameworks`. vLLM's modules are also torch's, so it is asked first.
FRAMEWORKS = ("vllm", "torch", "mlx")
SERVING = "vllm"  # the framework that builds a configuration as a rank of an engine would hold it
AUTOMATIC = "auto"  # for inputs: made as the model's own configuration says, or found by trying
SEARCH_SECONDS = 5.0  # that a search for inputs may take
_MODES = ("fake", "real", "none")


@dataclass(frozen=True, kw_only=True)
class Automatic:
    """Inputs that are made as the model's own configuration says, or found by trying.

    `given` are descriptions of those that are fixed. `needed`: without inputs there is nothing to show.
    """

    given: tuple[Any, ...] = ()
    seconds: float = SEARCH_SECONDS
    needed: bool = True


ASKS = (str, Automatic)  # types that may ask for inputs to be made or found


@dataclass(frozen=True, kw_only=True)
class Options:
    """Some options of a call. `given` are those that differ from their defaults, by the names of users."""

    given: Mapping[str, Any] = field(init=False, repr=False, compare=False)
    checks: ClassVar[Mapping[str, Callable[[Any], None]]] = {}  # of options that are given

    def __post_init__(self) -> None:
        given = {}
        for option in fields(self):
            if option.init:
                value = getattr(self, option.name)
                # Tensors and arrays have comparisons of their own, so only plain values are compared.
                plain = type(value) in (str, int, bool)
                chosen = not (value is option.default or (plain and value == option.default))
                if chosen and not (isinstance(value, ASKS) and is_left_open(value)):
                    given["run" if option.name == "mode" else option.name] = value
        object.__setattr__(self, "given", given)
        for name, check in self.checks.items():
            if name in given:
                check(self)


@dataclass(frozen=True, kw_only=True)
class BuildOptions(Options):
    """How a target becomes a model."""

    builder: Any = None  # a function of a configuration, or code that names it
    model_key: str | None = None  # the path of the model inside its configuration: "a.b"
    trust: bool = False  # a configuration may run whatever it names
    framework: str | None = None
    serving: Serving | None = None

    def _check_framework(self) -> None:
        if self.framework not in FRAMEWORKS:
            raise UsageError(
                f"framework={self.framework!r} is not known", hint="frameworks are " + ", ".join(FRAMEWORKS)
            )

    def _check_serving(self) -> None:
        _check_type("serving", self.serving, "Serving", "tensor_parallel=8")

    checks: ClassVar = {"framework": _check_framework, "serving": _check_serving}


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
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

    def _check_mode(self) -> None:
        if self.mode not in _MODES:
            raise UsageError(f"run={self.mode!r} is not known", hint='use "fake", "real" or "none"')

    def _check_what_if(self) -> None:
        _check_type("what_if", self.what_if, "WhatIf", "batch_size=8")
        self._check_optimizer()

    def _check_optimizer(self) -> None:
        if self.chosen_optimizer is not None and not self.train:
            raise UsageError("optimizer needs train=True", hint="add train=True, or leave optimizer out")

    checks: ClassVar = {"run": _check_mode, "what_if": _check_what_if, "optimizer": _check_optimizer}

    @property
    def chosen_optimizer(self) -> Any:
        """The optimizer that steps, which a what-if can replace."""
        changed = None if self.what_if is None else self.what_if.optimizer
        return changed or self.optimizer

    @property
    def needs_run(self) -> bool:
        """Whether something is asked for that only a run can give."""
        given = self.inputs is not None and not is_optional(self.inputs)
        return given or self.input_shape is not None or self.train


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Options):
    """What is read of weights."""

    stats: bool | str = False  # a pattern chooses tensors by name
    limits: Mapping[str, int] | None = None  # how much work a file may cause


def as_automatic(inputs: Any) -> Automatic | None:
    """What is asked for where inputs are to be made or found; None where they are given."""
    if isinstance(inputs, Automatic):
        return inputs
    return Automatic() if isinstance(inputs, str) and inputs == AUTOMATIC else None


def as_needed(inputs: Any) -> Any:
    """The same where nothing can be shown without inputs."""
    if inputs is None:
        return Automatic()
    return replace(inputs, needed=True) if isinstance(inputs, Automatic) else inputs


def is_left_open(inputs: Any) -> bool:
    """Whether the user says nothing of inputs that are to be made or found."""
    wanted = as_automatic(inputs)
    return wanted is not None and not wanted.given


def is_optional(inputs: Any) -> bool:
    """Whether a model is looked at also where no inputs are found for it."""
    return isinstance(inputs, Automatic) and not inputs.needed


def check_on_failure(on_failure: OnFailure) -> None:
    """Refuse what is not a policy for models that raise."""
    if on_failure not in get_args(OnFailure):
        raise UsageError(f"on_failure={on_failure!r} is not known", hint='use "raise" or "report"')


def _check_type(name: str, value: Any, type_name: str, example: str) -> None:
    from modelglass import report

    if not isinstance(value, getattr(report, type_name)):
        raise UsageError(f"{name} must be a mg.{type_name}", hint=f"write mg.{type_name}({example})")
