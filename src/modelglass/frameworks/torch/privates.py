"""All that torch calls private and modelglass uses, each with what takes its place where torch lacks it.

No other file names a private part of torch's modules; `ATTRIBUTES` are those of torch's objects that others
may use. They are looked up once, when torch is first needed. What is missing costs a note.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from modelglass.errors import UnsupportedVersionError
from modelglass.report import Note

OLDEST = (2, 6)  # see docs/versions.md
NEWEST = (2, 15)
VERSION = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
_RANGE = ".".join(map(str, OLDEST)), ".".join(map(str, NEWEST))

if VERSION < OLDEST:
    raise UnsupportedVersionError(
        f"torch {torch.__version__} is older than what modelglass works with",
        hint=f"pip install 'torch>={_RANGE[0]}'",
    )

# Attributes of torch's objects that are read and written where they are needed. Those of modules and tensors
# have been the same since torch 1; where one is missing, the error names it.
ATTRIBUTES = {
    "_parameters": "nn.Module: named_parameters(recurse=False), which leaves out what is None",
    "_buffers": "nn.Module: named_buffers(recurse=False)",
    "_modules": "nn.Module: named_children()",
    "_apply": "nn.Module: what `to()` and its like call",
    "_call_impl": "nn.Module: what `module(...)` calls; hooks, which switch off fused paths",
    "_version": "Tensor: nothing; how often it was written to",
    "_cdata": "UntypedStorage: id() of the storage, while it lives",
    "_values": "Tensor, sparse: values() of a coalesced one",
    "_indices": "Tensor, sparse: indices() of a coalesced one",
    "_is_view": "Tensor: nothing; whether it looks at another one's memory",
    "_is_param": "FakeTensor: set, so that it passes for a Parameter",
    "_is_buffer": "FakeTensor: set, so that it passes for a Buffer",
    "_schema": "OpOverload: nothing; what an operator takes, gives and writes to",
    "_should_skip_dynamo": "TorchDispatchMode: defined, so that torch does not shield it from its compiler",
}


class Message(NamedTuple):
    """An error of torch's that only its text distinguishes from others of its class."""

    of: type[Exception]
    pattern: re.Pattern[str]

    def is_of(self, error: BaseException | None) -> bool:
        return isinstance(error, self.of) and self.pattern.search(str(error)) is not None


# All texts of torch's errors that decide something: torch has neither classes nor codes for them. Where
# a torch words one in another way, the run fails, or a fake run accepts what a real one refuses.
NEEDS_GRADIENTS = Message(Exception, re.compile("does not require grad"))  # a model that differentiates
NO_SAVING_HOOKS = Message(Exception, re.compile("saved tensor hooks"))  # torch.func refuses them
NO_RULE_FOR_MODE = Message(AssertionError, re.compile("not registered$"))  # a higher-order operator's
OVERLAP = Message(Exception, re.compile("^unsupported operation"))  # memory that a kernel refuses
_TYPES = r"(?i)type|implemented|float|half|double|\bint|integ|long|bool|byte|char|short|complex|signed"
ELEMENT_TYPE = Message(Exception, re.compile(_TYPES))  # errors about shapes name none

missing: dict[str, str] = {}  # by the name that this torch lacks: what that costs
everything: set[str] = set()  # that was found


def _find(name: str, instead: Any, cost: str) -> Any:
    """What torch has under a name, or else what takes its place."""
    return _find_all((name,), (instead,), cost)[0]


def _find_all(
    names: Sequence[str], instead: Sequence[Any], cost: str, *, since: tuple[int, int] = OLDEST
) -> Sequence[Any]:
    """What torch has under names that are of use only together, or else what takes their places.

    Those of a torch older than `since` lack them as docs/versions.md lists, which is not worth a note.
    """
    found = []
    for name in names:
        try:
            found.append(_part(name))
        except (AttributeError, ImportError):
            if since <= VERSION:
                missing[name] = cost
            return instead
    everything.update(names)
    return found


def _part(name: str) -> Any:
    holder, _, last = name.rpartition(".")
    try:
        return attrgetter(name.removeprefix("torch."))(torch)
    except AttributeError:  # it may be in a module that has to be imported first, or be one
        return getattr(import_module(holder), last, None) or import_module(name)


def _nothing(*_: Any) -> None:
    return None


# The fake run.

try:
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
except ImportError as cause:
    raise UnsupportedVersionError(
        f"torch {torch.__version__} has no TorchDispatchMode, without which nothing can be observed",
        hint=f"install a torch from {_RANGE[0]} to {_RANGE[1]}",
    ) from cause


class _NoFakeTensor(torch.Tensor):
    """What stands for fake tensors in a torch without them: no tensor is one."""


class _NoFakeTensorMode(TorchDispatchMode):
    """What stands for the mode that makes them."""


_FAKE_NAMES = (
    "FakeTensor",
    "FakeTensorMode",
    "in_kernel_invocation_manager",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UnsupportedOperatorException",
)
if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException as DataDependentOutputException,
        DynamicOutputShapeException as DynamicOutputShapeException,
        FakeTensor as FakeTensor,
        FakeTensorMode as FakeTensorMode,
        UnsupportedOperatorException as UnsupportedOperatorException,
        in_kernel_invocation_manager as in_kernel_invocation_manager,
    )
else:
    (
        FakeTensor,
        FakeTensorMode,
        in_kernel_invocation_manager,
        DataDependentOutputException,
        DynamicOutputShapeException,
        UnsupportedOperatorException,
    ) = _find_all(
        [f"torch._subclasses.fake_tensor.{name}" for name in _FAKE_NAMES],
        (
            _NoFakeTensor,
            _NoFakeTensorMode,
            nullcontext,
            *(type(name, (RuntimeError,), {}) for name in _FAKE_NAMES[3:]),
        ),
        "every model runs for real, on copies of its tensors",
    )
has_fake_tensors = not issubclass(FakeTensor, _NoFakeTensor)


# Operators.

OpOverload: Any = type(torch.ops.aten.add.Tensor)
HigherOrderOperator: Any = _find(
    "torch._ops.HigherOrderOperator",
    type("HigherOrderOperator", (), {}),
    "operators that take functions have the names of their classes",
)
has_kernel: Callable[[str, str], bool] = _find(
    "torch._C._dispatch_has_kernel_for_dispatch_key",
    lambda name, key: True,
    "in inference mode, operators made of others count as one kernel",
)


def can_decompose(func: Any) -> bool:
    """Whether an operator is made of others."""
    try:
        return bool(getattr(func, "_can_decompose", lambda: False)())
    except RuntimeError:  # torch 2.6 asks for operators that only TorchScript has
        return False


# What is seen at the operator level is what a mode on the PreDispatch key sees, which torch takes only from a
# subclass of a mode of its own; without it, torch's public functions are seen instead.
enable_python_dispatcher, PreDispatchBase, PRE_DISPATCH, disable_python_dispatcher = _find_all(
    (
        "torch._dispatch.python.enable_python_dispatcher",
        "torch._subclasses.schema_check_mode.SchemaCheckMode",
        "torch._C.DispatchKey.PreDispatch",
        "torch._C._DisablePythonDispatcher",
    ),
    (nullcontext, None, None, nullcontext),
    "operators are seen as the public functions that were called",
)
# What C++ asks before each dispatch to a class; newer ones have it.
find_dispatch_rule: Callable[..., Any] | None = getattr(
    getattr(getattr(torch, "_library", None), "simple_registry", None), "find_torch_dispatch_rule", None
)


def _is_wrapper(tensor: object) -> bool:
    kind = type(tensor)
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


is_traceable_wrapper_subclass: Callable[[object], bool] = _find(
    "torch.utils._python_dispatch.is_traceable_wrapper_subclass", _is_wrapper, "nothing"
)
DisableTorchFunctionSubclass: Callable[[], AbstractContextManager[Any]] = _find(
    "torch._C.DisableTorchFunctionSubclass",
    nullcontext,
    "parameters whose class replaces torch's functions may describe themselves",
)
is_transforming, is_transformed, transformed = _find_all(
    (
        "torch._C._are_functorch_transforms_active",
        "torch._C._functorch.is_functorch_wrapped_tensor",
        "torch._C._functorch.get_unwrapped",
    ),
    (lambda: False, lambda tensor: False, _nothing),
    "the flow through function transforms (vmap, grad) is not seen",
)


# Autograd.

# The number that the next node gets, and the node that is at work.
next_node_number, current_node = _find_all(
    ("torch._C._autograd._get_sequence_nr", "torch._C._current_autograd_node"),
    (lambda: 0, _nothing),
    "what runs in a backward pass belongs to no module, and includes the gradient of our own loss",
)
is_profiling: Callable[[], bool] = _find(
    "torch._C._autograd._profiler_enabled",
    lambda: False,
    "calibrating kernels ends a profiler that is running",
)
top_saving_hooks, pop_saving_hooks = _find_all(
    (
        "torch._C._autograd._top_saved_tensors_default_hooks",
        "torch._C._autograd._pop_saved_tensors_default_hooks",
    ),
    (_nothing, _nothing),
    "an interruption may leave hooks on what autograd saves",
    since=(2, 9),
)


def node_number(node: Any) -> int:
    """The number of a node of autograd, in order of creation; -1: this torch has none."""
    number = getattr(node, "_sequence_nr", None)
    return -1 if number is None else int(number())


# What torch keeps for the thread that runs.

_LEFT = "an interruption may leave modes of a run behind"
_count_dispatch, _dispatch_at, _pop_dispatch, _push_dispatch, _set_dispatch = _find_all(
    (
        "torch._C._len_torch_dispatch_stack",
        "torch._C._get_dispatch_stack_at",
        "torch._C._pop_torch_dispatch_stack",
        "torch._C._push_on_torch_dispatch_stack",
        "torch._C._set_dispatch_mode",
    ),
    (lambda: 0, _nothing, _nothing, _nothing, _nothing),
    _LEFT,
)
_count_function, _function_at, pop_function_mode, push_function_mode = _find_all(
    (
        "torch._C._len_torch_function_stack",
        "torch._C._get_function_stack_at",
        "torch._C._pop_torch_function_stack",
        "torch._C._push_on_torch_function_stack",
    ),
    (lambda: 0, _nothing, _nothing, _nothing),
    _LEFT,
)


def dispatch_modes() -> list[Any]:
    """The modes that see kernels, the innermost last."""
    return [_dispatch_at(index) for index in range(_count_dispatch())]


def pop_dispatch_mode() -> None:
    """Switch off the innermost of them."""
    _pop_dispatch(None)


def push_dispatch_mode(mode: Any) -> None:
    """Switch one on as the innermost."""
    (_push_dispatch if getattr(mode, "_mode_key", None) is None else _set_dispatch)(mode)


def function_modes() -> list[Any]:
    """The modes that see functions, the innermost last."""
    return [_function_at(index) for index in range(_count_function())]


@contextmanager
def _without_modes() -> Iterator[None]:
    """What torch's own function of that purpose does, but for its modes that have a key."""
    kernels, functions = dispatch_modes(), function_modes()
    for _ in kernels:
        pop_dispatch_mode()
    for _ in functions:
        pop_function_mode()
    try:
        yield
    finally:
        for mode in functions:
            push_function_mode(mode)
        for mode in kernels:
            push_dispatch_mode(mode)


disable_modes: Callable[[], AbstractContextManager[Any]] = _find(
    "torch.utils._python_dispatch._disable_current_modes",
    _without_modes,
    "operators are seen as the public functions that were called",
)
if disable_modes is _without_modes:
    PreDispatchBase = None

_KEYS_LEFT = "an interruption may leave keys of the dispatcher switched on or off"
_TLS = "torch._C._dispatch_tls_"
# Each as how to read all, how to read one, and how to set one.
switches: Sequence[Sequence[Any]] = _find_all(
    [
        f"{_TLS}{name}"
        for name in (
            "local_include_set",
            "is_dispatch_key_included",
            "set_dispatch_key_included",
            "local_exclude_set",
            "is_dispatch_key_excluded",
            "set_dispatch_key_excluded",
        )
    ],
    (),
    _KEYS_LEFT,
)
switches = [switches[at : at + 3] for at in range(0, len(switches), 3)]
_DispatchKey, _last_key = _find_all(
    ("torch._C.DispatchKey", "torch._C.DispatchKey.PythonDispatcher"), (None, None), _KEYS_LEFT
)
# All that belong to no backend, some of which have no name.
dispatch_keys: Sequence[Any] = (
    () if _DispatchKey is None else tuple(map(_DispatchKey, range(1, _last_key.value + 1)))
)
# Further settings, each as how to read it and how to set it.
thread_settings: Sequence[Sequence[Any]] = [
    _find_all((f"torch._C.{read}", f"torch._C.{write}"), (_nothing, _nothing), _KEYS_LEFT)
    for read, write in (
        ("_only_lift_cpu_tensors", "_set_only_lift_cpu_tensors"),
        ("_meta_in_tls_dispatch_include", "_set_meta_in_tls_dispatch_include"),
    )
]
_dispatch: Any = sys.modules[TorchDispatchMode.__module__]
_FLAGS = tuple(name for name in vars(_dispatch) if name.startswith("_is_in_"))
_shows_flag: Callable[[bool], Any] = getattr(
    _dispatch, "set_is_in_mode_without_ignore_compile_internals", _nothing
)


def mode_flags() -> dict[str, bool]:
    """What torch remembers of the modes that it is in."""
    return {name: getattr(_dispatch, name) for name in _FLAGS}


def set_mode_flags(before: dict[str, bool]) -> None:
    """Have it remember that again."""
    for name, value in before.items():
        setattr(_dispatch, name, value)
    _shows_flag(before.get("_is_in_any_mode_without_ignore_compile_internals", False))


_pre_dispatch: Callable[[], Any] = _find("torch._ops.mode_stack_state_for_pre_dispatch", object, _LEFT)


def find_pre_dispatch_modes() -> tuple[Any, str]:
    """The module, if there is one, and the name of its function that gives the modes of all threads."""
    home = None if _pre_dispatch is object else sys.modules["torch._ops"]
    return home, "mode_stack_state_for_pre_dispatch"


def pre_dispatch_modes() -> tuple[Any, dict[str, Any]]:
    """What holds the modes of the level at which operators are seen, and all of its attributes."""
    state = _pre_dispatch()
    return state, dict(getattr(state, "__dict__", {}))


def _no_change(optimized: bool) -> AbstractContextManager[None]:
    return nullcontext()


# Whether TorchScript watches the first passes, to run later ones in another way.
optimized_execution: Callable[[bool], AbstractContextManager[None]] = _find(
    "torch.jit.optimized_execution", _no_change, "equal inspections of TorchScript may differ in training"
)


def hooks_of_all_modules() -> Iterator[dict[int, Any]]:
    """Those that `torch.nn.modules.module.register_module_forward_hook` and its like add."""
    for name, value in vars(torch.nn.modules.module).items():
        if name.startswith("_global_") and isinstance(value, dict):
            yield value


_context_of_device, _device_module = _find_all(
    ("torch._GLOBAL_DEVICE_CONTEXT", "torch.utils._device"),
    (None, None),
    "an interruption may leave another default device",
)


def default_device() -> tuple[Any, Any]:
    """The context that `torch.set_default_device` installed, or None, and the device in use."""
    context = getattr(_context_of_device, "device_context", None)
    return context, getattr(_device_module, "CURRENT_DEVICE", None)


def is_meta_by_default() -> bool:
    """Whether tensors of no named device are made on meta.

    torch's own function does not know of `with torch.device("meta")` before 2.8.
    """
    kind = getattr(_device_module, "DeviceContext", ())
    inner = [mode.device for mode in function_modes() if isinstance(mode, kind)]
    return torch.device((inner or [torch.get_default_device()])[-1]).type == "meta"


def set_default_device(context: Any, device: Any) -> None:
    """Have them be these again."""
    if _context_of_device is None:
        return
    if default_device()[0] is not context:
        _context_of_device.device_context = context
    _device_module.CURRENT_DEVICE = device


def stance_of_compiler() -> tuple[Callable[[Any], Any], Any] | None:
    """How to set what `torch.compile` does at present, and that; None while nothing is compiled."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None or not hasattr(frames, "_set_stance") or not hasattr(frames, "_stance"):
        return None
    return frames._set_stance, frames._stance


# What vLLM's models are built with, in a process that is thrown away.


def functions_with_device() -> frozenset[Any]:
    """The functions that make tensors on a device."""
    try:
        from torch.utils._device import _device_constructors
    except ImportError:
        return frozenset(
            {torch.empty, torch.full, torch.ones, torch.rand, torch.randn, torch.tensor, torch.zeros}
        )
    return frozenset(_device_constructors())


def fake_store() -> Any:
    """A store for torch's own group of processes without the other processes, which is known from then on.

    Without it, which is an error, vLLM's models are not built.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    return FakeStore()


def version_notes() -> Iterator[Note]:
    """What the installed torch changes in a report, as against those that modelglass was tried with."""
    if VERSION > NEWEST:
        yield Note(
            code="untried-torch",
            text=f"modelglass was tried with torch {_RANGE[0]} to {_RANGE[1]}; this is {torch.__version__}",
        )
    if missing:
        costs = "; ".join(dict.fromkeys(missing.values()))
        yield Note(
            code="torch-internals",
            text=f"torch {torch.__version__} lacks internals that modelglass uses: {costs}",
            where=tuple(missing),
        )
