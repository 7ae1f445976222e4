"""Kernels that this machine has not, answered for: weights are laid out, and nothing will ever run.

vLLM chooses a kernel for quantized weights while it builds a layer, and refuses where the machine has none.
Only for a process that is thrown away afterwards: what is exchanged here stays exchanged.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from types import ModuleType
from typing import Any

_LINEAR = "vllm.model_executor.kernels.linear"
_TABLES = "_POSSIBLE_"  # begins the names of its tables: kernels to try, by platform
_EXPERTS = "vllm.model_executor.layers.fused_moe.oracle"
_LISTS = "backend_to_kernel_cls"  # ends the names of its functions that list the kernels of a backend
_CHECKS = (("vllm.model_executor.layers.quantization.utils.marlin_utils", "_check_marlin_supported"),)
_CAPABILITY = (10, 0)  # of a device that can do what there is


def accept_own_kernels() -> None:
    """From now on, each kernel of this platform reports that it can be used, whatever it needs."""
    _accept_kernels(_is_own)
    _accept_attention()
    _accept_experts()


def accept_all_kernels() -> None:
    """From now on, each kernel reports that it can be used here, whichever platform it is for."""
    _accept_platform()
    for name, check in _CHECKS:
        module = _import_or_none(name)
        if hasattr(module, check):
            setattr(module, check, _accept)
    _accept_kernels(lambda kernel: True)


def quantize_all(quantization: Any, tell: Callable[[], None], *, last: bool) -> None:
    """Let layers be quantized that are left plain on a CPU alone; `tell` is called where one was.

    What stands in the way of it is raised, unless this is the last time that it is tried.
    """
    choose = quantization.get_quant_method

    def chosen(layer: Any, prefix: str) -> Any:
        method = choose(layer, prefix)
        if not _is_plain(method):
            return method
        try:
            with _no_cpu():
                other = choose(layer, prefix)
        except Exception:
            if not last:
                raise
            return method
        if other is None or _is_plain(other):
            return method
        tell()
        return other

    quantization.get_quant_method = chosen


def _is_plain(method: Any) -> bool:
    return type(method).__name__.startswith("Unquantized")


@contextmanager
def _no_cpu() -> Iterator[None]:
    """While vLLM takes this for another device than a CPU."""
    from vllm.platforms import current_platform

    platform = type(current_platform)
    own = vars(platform).get("is_cpu")
    setattr(platform, "is_cpu", lambda self: False)
    try:
        yield
    finally:
        if own is None:
            delattr(platform, "is_cpu")
        else:
            setattr(platform, "is_cpu", own)


def _accept_kernels(asked: Callable[[type], bool]) -> None:
    for table in _tables():
        _fill(table, asked)
    for module in _choosers():
        for name in [name for name in vars(module) if name.endswith(_LISTS)]:
            setattr(module, name, _accept_listed(getattr(module, name), asked))


def _accept_attention() -> None:
    """Where this platform has no attention over chosen tokens, the one over all of them stands in."""
    from vllm.platforms import current_platform

    platform = type(current_platform)
    choose = platform.get_attn_backend_cls

    def chosen(cls: type, *args: Any, **kwargs: Any) -> Any:
        try:
            return choose(*args, **kwargs)
        except NotImplementedError:
            return choose(
                *map(_without_sparsity, args),
                **{key: _without_sparsity(value) for key, value in kwargs.items()},
            )

    setattr(platform, "get_attn_backend_cls", classmethod(chosen))


def _accept_experts() -> None:
    """Let layers of experts be set up that only other platforms run; it is the last thing they check."""
    module = _import_or_none("vllm.model_executor.layers.fused_moe.config")
    config = getattr(module, "FusedMoEConfig", None)
    check = getattr(config, "__post_init__", None)
    if config is None or check is None:
        return

    def checked(self: Any) -> None:
        with suppress(NotImplementedError):
            check(self)

    setattr(config, "__post_init__", checked)


def _without_sparsity(value: Any) -> Any:
    """The selection of an attention kernel, over all tokens."""
    return value._replace(use_sparse=False) if hasattr(value, "use_sparse") else value


def _is_own(kernel: type) -> bool:
    from vllm.platforms import current_platform

    return str(current_platform.device_type) in f"{kernel.__module__}.{kernel.__name__}".lower()


def _accept(*args: Any, **kwargs: Any) -> tuple[bool, None]:
    return True, None


def _accept_platform() -> None:
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    if current_platform.get_device_capability() is None:
        able = classmethod(lambda cls, *args, **kwargs: DeviceCapability(*_CAPABILITY))
        setattr(type(current_platform), "get_device_capability", able)


def _import_or_none(name: str) -> ModuleType | None:
    """The module, None where this vLLM has none or it needs what is missing."""
    try:
        return import_module(name)
    except ImportError:
        return None


def _tables() -> list[dict[Any, list[type]]]:
    named = vars(_import_or_none(_LINEAR) or object).items()
    return [value for name, value in named if name.startswith(_TABLES) and isinstance(value, dict)]


def _fill(table: dict[Any, list[type]], asked: Callable[[type], bool]) -> None:
    """Let this platform choose among the kernels of all, its own first."""
    from vllm.platforms import current_platform

    own = current_platform._enum
    others = (kernel for kernels in table.values() for kernel in kernels)
    table[own] = list(dict.fromkeys([*table.get(own, ()), *others]))
    for kernel in filter(asked, table[own]):
        _make_usable(kernel)


def _make_usable(kernel: type) -> None:
    """Let the kernel be used anywhere, and be made though what it needs is missing."""
    original: Callable[..., None] = getattr(kernel, "__init__")

    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(self, *args, **kwargs)
        except Exception:
            vars(self).update(kwargs)  # its settings are all that building asks it for

    answers = {"is_supported": staticmethod(_accept), "can_implement": staticmethod(_accept)}
    lowest = {"get_min_capability": staticmethod(lambda: 0)}
    for name, answer in {**answers, **lowest, "__init__": make}.items():
        setattr(kernel, name, answer)


def _choosers() -> list[ModuleType]:
    """The modules that choose kernels for experts, those that can be imported here."""
    package = _import_or_none(_EXPERTS)
    names = [] if package is None else [each.name for each in pkgutil.iter_modules(package.__path__)]
    modules = [_import_or_none(f"{_EXPERTS}.{name}") for name in names]
    return [module for module in modules if module is not None]


def _accept_listed(listing: Callable[..., Any], asked: Callable[[type], bool]) -> Callable[..., Any]:
    """The same kernels, that can be used anywhere; none of a backend that cannot be imported."""

    def willing(*args: Any, **kwargs: Any) -> Any:
        try:
            kernels = listing(*args, **kwargs)
        except ImportError:
            return []
        for kernel in kernels if isinstance(kernels, (list, tuple)) else [kernels]:
            if asked(kernel):
                kernel.is_supported_config = staticmethod(_accept)
        return kernels

    return willing
