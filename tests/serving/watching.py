"""What must not change when somebody looks: of a process, and of a worker and its model."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


def of_process() -> dict[str, str]:
    """States of a process, each as a digest."""
    loggers = [logging.getLogger(name) for name in sorted(logging.root.manager.loggerDict)]
    found = {
        "random": random.getstate(),
        "numpy": [str(part) for part in np.random.get_state()],
        "torch": torch.get_rng_state().tolist(),
        "environment": sorted(os.environ.items()),
        "modules": sorted(name for name in sys.modules if not name.startswith("modelglass")),
        "loggers": [
            (each.name, each.level, each.disabled, len(each.handlers)) for each in loggers if _is_theirs(each)
        ],
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "running": sorted(thread.name for thread in threading.enumerate()),
        "modes": [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), str(torch.get_default_dtype())],
        "device": str(torch.get_default_device()),
        "directory": os.getcwd(),
    }
    return {name: _digest(value) for name, value in found.items()}


def _is_theirs(logger: logging.Logger) -> bool:
    return not logger.name.startswith("modelglass")


def of_worker(worker: Any) -> dict[str, str]:
    """What a worker and its model hold, each as a digest."""
    runner, native = worker.model_runner, worker.get_model()
    found = {
        "worker": sorted(vars(worker)),
        "class": sorted(name for cls in type(worker).__mro__ for name in vars(cls)),
        "runner": sorted(vars(runner)),
        "modules": [list(_of_module(*each)) for each in native.named_modules(remove_duplicate=False)],
        "tensors": [list(_of_tensor(*each)) for each in native.state_dict(keep_vars=True).items()],
        "caches": [list(_of_tensor("", cache)) for cache in runner.kv_caches],
    }
    return {name: _digest(value) for name, value in found.items()}


def _of_module(path: str, module: torch.nn.Module) -> Iterator[Any]:
    yield from (path, type(module).__qualname__, id(module), module.training, sorted(vars(module)))
    yield [len(value) for name, value in sorted(vars(module).items()) if name.endswith("hooks")]


def _of_tensor(name: str, tensor: torch.Tensor) -> Iterator[Any]:
    yield from (name, type(tensor).__qualname__, tuple(tensor.shape), str(tensor.dtype), tensor.data_ptr())
    yield from (tensor._version if not tensor.is_inference() else 0, tensor.requires_grad)
    yield from (
        hashlib.sha1(
            tensor.detach().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
        ).hexdigest(),
        sorted(vars(tensor)),
    )


def _digest(value: Any) -> str:
    return hashlib.sha1(pickle.dumps(value)).hexdigest()


class Watcher:
    """Methods for workers, by which tests look into their processes."""

    def states(self) -> dict[str, str]:
        return {**of_process(), **{f"worker.{name}": value for name, value in of_worker(self).items()}}

    def sleep_for_long(self) -> str:
        time.sleep(4)
        return "too late"
