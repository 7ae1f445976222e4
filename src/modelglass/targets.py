"""Code targets: `file.py::function` and `package.module:function`, loaded and called as the user wrote them.

Only code the user names runs. Nothing is left on disk (no bytecode) or on the import path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from modelglass.errors import TargetError, UsageError

FORMS = "file.py::function or package.module:function"


def is_code_target(text: str) -> bool:
    """Whether the text has the form of a code target."""
    return "::" in text or (":" in text and not Path(text).exists())


@contextmanager
def calling(text: str) -> Iterator[Any]:
    """What the named function returns; imports next to it keep working inside the block."""
    place, _, name = text.partition("::") if "::" in text else text.rpartition(":")
    if not place or not name:
        raise UsageError(f"{text!r} does not name a function", hint=f"write {FORMS}")
    from_file = "::" in text
    folder = str(Path(place).resolve().parent) if from_file else str(Path.cwd())
    with _importing_from(folder):
        module = _load_file(Path(place)) if from_file else _load_module(place)
        yield _call(_member(module, name, place), text)


@contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise TargetError(f"there is no file {str(path)!r}", hint=_nearby(path))
    name = f"modelglass_target_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{str(path)!r} is not a Python file", hint="its name must end in .py")
    module = module_from_spec(spec)
    # Classes defined in the file look their module up by name (dataclasses, pickling).
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as cause:
        del sys.modules[name]
        raise _failed(f"loading {str(path)!r}", cause) from cause
    return module


def _load_module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ModuleNotFoundError as cause:
        if cause.name is not None and (name == cause.name or name.startswith(f"{cause.name}.")):
            raise TargetError(
                f"there is no module {name!r}",
                hint="run from the folder that holds it, install it, or name a file.py::function",
            ) from cause
        raise _failed(f"importing {name!r}", cause) from cause
    except Exception as cause:
        raise _failed(f"importing {name!r}", cause) from cause


def _member(module: ModuleType, name: str, place: str) -> Callable[[], Any]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        names = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
        close = get_close_matches(name, names, n=3, cutoff=0.4) or names[:5]
        hint = f"it has {', '.join(close)}" if close else "it defines no function"
        raise TargetError(f"{place!r} has no {name!r}", hint=hint)
    if not callable(found):
        raise TargetError(
            f"{name!r} in {place!r} is a {type(found).__name__}, not a function",
            hint="wrap it: def build(): return " + name,
        )
    result: Callable[[], Any] = found
    return result


def _call(function: Callable[[], Any], text: str) -> Any:
    try:
        return function()
    except Exception as cause:
        raise _failed(f"calling {text!r}", cause) from cause


def _failed(what: str, cause: Exception) -> TargetError:
    lines = str(cause).strip().splitlines() or [""]
    where = _last_line_of_user_code(cause)
    return TargetError(
        f"{what} raised {type(cause).__name__}: {lines[0]}",
        hint=f"it came from {where}; --debug shows the whole traceback",
    )


def _last_line_of_user_code(cause: Exception) -> str:
    trace = cause.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "its own code"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


def _nearby(path: Path) -> str:
    parent = path.parent
    if not parent.is_dir():
        return f"the folder {str(parent)!r} does not exist either"
    names = [entry.name for entry in parent.iterdir()]
    close = get_close_matches(path.name, names, n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"check the path: {FORMS}"
