"""Everything about a model and the process that an inspection must not change."""

from __future__ import annotations

import gc
import random
import sys
import warnings
from collections import deque
from functools import partial
from types import FunctionType
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.parameter import is_lazy


def fingerprint(model: nn.Module, *others: Any) -> dict[str, Any]:
    """Equal before and after exactly when nothing was changed."""
    return {
        "modules": [_module(path, module) for path, module in model.named_modules()],
        "state_dict": list(model.state_dict()),
        "others": [_value(other, 0) for other in others],
        "process": _process(),
        "torch": _functions(),
    }


def _module(path: str, module: nn.Module) -> tuple[Any, ...]:
    return (
        path,
        id(module),
        type(module),
        getattr(module, "training", None),
        [(key, id(value), _value(value, 0)) for key, value in vars(module).items()],
        [(key, _tensor(value)) for key, value in module._parameters.items()],
        [(key, _tensor(value)) for key, value in module._buffers.items()],
    )


def _tensor(tensor: torch.Tensor | None) -> Any:
    if tensor is None:
        return None
    if is_lazy(tensor):
        return ("uninitialised", id(tensor))
    grad = None if not tensor.is_leaf else tensor.grad
    return (
        id(tensor),
        type(tensor),
        tuple(tensor.shape),
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
        None if tensor.is_inference() else tensor._version,
        None if tensor.is_meta else tensor.untyped_storage().data_ptr(),
        None if tensor.is_meta or tensor.layout is not torch.strided else _bits(tensor),
        None if grad is None else (id(grad), _bits(grad)),
        sorted(vars(tensor)),
    )


def _bits(tensor: torch.Tensor) -> Any:
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, nn.Module):
        return ("module", id(value))
    if depth > 5:
        return id(value)
    if isinstance(value, dict):
        return (type(value), [(key, id(item), _value(item, depth + 1)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [(id(item), _value(item, depth + 1)) for item in value])
    if isinstance(value, torch.Generator):
        return value.get_state().tolist()
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, numpy.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, (deque, set)):
        return (type(value), [(id(item), _value(item, depth + 1)) for item in value])
    if isinstance(value, FunctionType):
        return [_value(cell.cell_contents, depth + 1) for cell in value.__closure__ or ()]
    if isinstance(value, partial):
        return _value((value.func, value.args, value.keywords), depth + 1)
    if hasattr(type(value), "__slots__") and not hasattr(value, "__dict__"):
        names = [name for name in type(value).__slots__ if hasattr(value, name)]
        return [(name, _value(getattr(value, name), depth + 1)) for name in names]
    if type(value).__module__ in ("builtins", "torch"):
        return repr(value)
    if hasattr(value, "__dict__") and not callable(value):
        return (type(value), _value(vars(value), depth + 1))
    return id(value)


def _process() -> dict[str, Any]:
    return {
        "torch rng": torch.get_rng_state().tolist(),
        "python rng": random.getstate(),
        "numpy rng": [
            part.tolist() if hasattr(part, "tolist") else part for part in numpy.random.get_state()
        ],
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "anomaly": torch.is_anomaly_enabled(),
        "debug mode": torch.get_deterministic_debug_mode(),
        "gc": gc.isenabled(),
        "filters": len(warnings.filters),
        "path": list(sys.path),
        "modes": len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()),
        "hooks": [
            len(getattr(torch.nn.modules.module, name))
            for name in ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
        ],
    }


def _functions() -> list[int]:
    holders = (torch, torch.nn.functional, torch.Tensor, nn.Module, nn.Linear, nn.Conv2d)
    return [
        hash(tuple((name, id(value)) for name, value in sorted(vars(holder).items()) if callable(value)))
        for holder in holders
    ]
