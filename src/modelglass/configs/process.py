"""The process around the building of a model: what it must find again afterwards."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from pathlib import Path

from modelglass.user_code import importing_from


@contextmanager
def importing(path: Path) -> Iterator[None]:
    """Modules beside a file and in the current folder can be imported; none of them stays."""
    folder = path.resolve().parent
    with importing_from(Path.cwd()), importing_from(folder), _out_of_the_way(folder):
        yield


@contextmanager
def _out_of_the_way(folder: Path) -> Iterator[None]:
    """Files of the folder are found although somebody has loaded others of the same names."""
    files = {entry.stem for entry in folder.glob("*.py")} - sys.stdlib_module_names
    others = {
        name: sys.modules.pop(name) for name in files & sys.modules.keys() if _is_elsewhere(name, folder)
    }
    try:
        yield
    finally:
        sys.modules.update(others)


def _is_elsewhere(name: str, folder: Path) -> bool:
    """Whether a module that is loaded is a single file of another folder."""
    module = sys.modules[name]
    file = getattr(module, "__file__", None)
    return file is not None and not hasattr(module, "__path__") and Path(file).parent != folder


@contextmanager
def untouched() -> Iterator[None]:
    """The environment, the current folder and what is logged are the same afterwards."""
    environment, folder = dict(os.environ), os.getcwd()
    root = logging.getLogger()
    level, handlers, disabled = root.level, list(root.handlers), root.manager.disable
    try:
        yield
    finally:
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        if os.getcwd() != folder:
            os.chdir(folder)
        root.setLevel(level)
        root.handlers[:] = handlers
        logging.disable(disabled)


@contextmanager
def offline_and_quiet() -> Iterator[None]:
    """No library of Hugging Face asks the hub or the user for anything, or logs what nobody asked about."""
    with ExitStack() as stack:
        stack.callback(setattr, sys, "stdin", sys.stdin)
        sys.stdin = StringIO()  # whoever asks for leave to run code gets no answer
        constants = sys.modules.get("huggingface_hub.constants")
        if constants is not None:
            stack.callback(setattr, constants, "HF_HUB_OFFLINE", constants.HF_HUB_OFFLINE)
            constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
        remote = sys.modules.get("transformers.dynamic_module_utils")
        if remote is not None:
            stack.callback(setattr, remote, "TIME_OUT_REMOTE_CODE", remote.TIME_OUT_REMOTE_CODE)
            remote.TIME_OUT_REMOTE_CODE = 0  # type: ignore[attr-defined]  # nobody is asked for leave to run code
        for name in ("transformers", "timm"):
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        yield
