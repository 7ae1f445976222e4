"""The user's code: `file.py::function` and `package.module:function`, loaded and called.

Only code the user names runs. Nothing is left on disk (no bytecode) or on the import path.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import RLock
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from modelglass.errors import MissingPackageError, TargetError, UsageError
from modelglass.files import suggest_path

FORMS = "file.py::function or package.module:function"

_FRAMEWORKS = ("torch", "mlx")  # each with an extra of its name, that installs it
_LONGEST_MESSAGE = 300  # characters


_DRIVE = re.compile(r"(?:[\\/]{2}[?.][\\/])?[A-Za-z]:(?=[\\/])")  # of Windows, also of long paths


class CodeName(NamedTuple):
    """A function that is named: in a file, or in a module that can be imported."""

    place: str
    name: str
    is_file: bool


def parse_code_name(text: str) -> CodeName | None:
    """What `file.py::function` or `package.module:function` names; None where the text has no such form.

    >>> parse_code_name(r"C:\\models\\net.py::build").name
    'build'
    >>> parse_code_name(r"C:\\models\\a.pt") is None
    True
    """
    drive = _DRIVE.match(text)
    if ":" not in text[drive.end() if drive else 0 :]:
        return None
    place, colons, name = text.rpartition("::")
    if not colons:
        place, _, name = text.rpartition(":")
    return CodeName(place, name, bool(colons))


FACTORIES = (FunctionType, BuiltinFunctionType, MethodType, type, partial, type(lru_cache(lambda: None)))


def is_factory(value: Any) -> bool:
    """Whether this is code that makes an object, rather than the object itself."""
    return isinstance(value, FACTORIES)


def call_factory(factory: Any) -> Any:
    """Call a function without arguments."""
    function = getattr(factory, "func", factory)  # of a partial
    return _call_or_keep(factory, getattr(function, "__qualname__", type(function).__name__))


@contextmanager
def only_installed(*paths: Path) -> Iterator[None]:
    """Nothing beside files, in folders that are given, or in the current folder can be imported.

    What is installed there stays. Several threads may be inside: what was closed opens with the last of them.
    """
    with _closing:
        _close({_identity(os.curdir), *(_identity(place) for path in paths for place in (path, path.parent))})
    try:
        yield
    finally:
        with _closing:
            _open()


_closing = RLock()
_closed: list[tuple[int, str]] = []  # what was taken off the import path, each with its place there
_inside: list[bool] = []  # whether bytecode was not written before, for each that is inside


def _close(folders: set[str]) -> None:
    _inside.append(sys.dont_write_bytecode)
    folders.discard("")  # places that are not there are not the same place
    if not any(_identity(each or os.curdir) in folders for each in sys.path):
        return
    sys.dont_write_bytecode = True
    folders -= set(map(_identity, folders_of_packages()))
    found = [index for index, each in enumerate(sys.path) if _identity(each or os.curdir) in folders]
    _closed.extend((index, sys.path.pop(index)) for index in reversed(found))


def _open() -> None:
    bytecode = _inside.pop()
    if _inside:
        return
    sys.dont_write_bytecode = bytecode
    while _closed:
        sys.path.insert(*_closed.pop())


def folders_of_packages() -> list[Path]:
    """Where Python and packages are installed."""
    import site
    import sysconfig

    paths = sysconfig.get_paths()
    own = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [Path(each) for each in (*own, *site.getsitepackages(), site.getusersitepackages())]


def _identity(path: str | os.PathLike[str]) -> str:
    """The same for every name of a folder, also where case does not matter, which `realpath` may keep."""
    try:
        found = os.stat(path)
        return f"{found.st_dev}:{found.st_ino}" if found.st_ino else os.path.realpath(path)
    except (OSError, ValueError):  # nothing is there, or the current folder is gone; not a name of a folder
        return ""


@contextmanager
def call_named(text: str) -> Iterator[Any]:
    """What the named function returns, or the named object itself where it is not a function or class.

    Imports next to it keep working inside the block; afterwards the process has forgotten them.
    """
    with load_named(text) as found:
        yield _call_or_keep(found, text)


@contextmanager
def load_named(text: str) -> Iterator[Any]:
    """The named object itself, not called; what it imports is there inside the block."""
    named = parse_code_name(text)
    if named is None or not named.place or not named.name:
        raise UsageError(f"{text!r} does not name a function", hint=f"write {FORMS}")
    place, name, from_file = named
    folder = Path(place).resolve().parent if from_file else Path.cwd()
    with importing_from(folder):
        module = _load_file(Path(place)) if from_file else _load_module(place)
        yield _member(module, name, place)


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Modules of that folder can be imported; no bytecode is written, and none of them stays."""
    path, bytecode, loaded = list(sys.path), sys.dont_write_bytecode, set(sys.modules)
    own: list[str] = []
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.path[:] = path
        sys.dont_write_bytecode = bytecode
        # The next target may have files of the same names.
        for name in set(sys.modules) - loaded:
            top = name.partition(".")[0]
            if top not in loaded and _is_in(sys.modules.get(top), folder):
                own.append(name)
        for name in own:
            del sys.modules[name]


def _is_in(module: ModuleType | None, folder: Path) -> bool:
    """Whether a module or package lies in a folder itself: what is installed somewhere below it stays."""
    places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
    return any(place is not None and Path(place).parent == folder for place in places)


def _load_file(path: Path) -> ModuleType:
    if not os.path.isfile(path):
        raise TargetError(f"there is no file {str(path)!r}", hint=suggest_path(path))
    name = path.stem if path.stem not in sys.modules else f"modelglass_target_{path.stem}"
    spec = spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise TargetError(f"{str(path)!r} is not a Python file", hint="its name must end in .py")
    module = module_from_spec(spec)
    # Classes defined in the file look their module up by name (dataclasses, pickling).
    sys.modules[name] = module
    with user_errors(f"loading {str(path)!r}"):
        spec.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    with user_errors(f"importing {name!r}"):
        try:
            return import_module(name)
        except ModuleNotFoundError as cause:
            absent = cause.name is not None and f"{name}.".startswith(f"{cause.name}.")
            if absent and _missing_framework(cause) is None:
                raise TargetError(
                    f"there is no module {name!r}",
                    hint="run from the folder that holds it, install it, or name a file.py::function",
                ) from cause
            raise


def _member(module: ModuleType, name: str, place: str) -> Any:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        from difflib import get_close_matches

        names = [key for key, value in vars(module).items() if _is_own(value, module) and key[0] != "_"]
        close = get_close_matches(name, names, n=1, cutoff=0.5)
        guess = f"did you mean {close[0]}? " if close else ""
        listed = f"it has {', '.join(names[:8])}" if names else "it defines no function"
        raise TargetError(f"{place!r} has no {name!r}", hint=guess + listed)
    return found


def _is_own(value: Any, module: ModuleType) -> bool:
    return callable(value) and getattr(value, "__module__", None) == module.__name__


def _call_or_keep(found: Any, text: str) -> Any:
    """Call what is to be called; a model that is already built is taken as it is."""
    if not is_factory(found):
        return found
    from inspect import signature

    with user_errors(f"calling {text!r}"):
        try:
            signature(found).bind()
        except TypeError as cause:
            raise TargetError(
                f"{text!r} cannot be called without arguments: {cause}",
                hint="wrap it: def build(): return " + text.rpartition(":")[2] + "(...)",
            ) from cause
        except ValueError:  # a signature written in C
            pass
        return found()


@contextmanager
def user_errors(what: str, *, whole: bool = False) -> Iterator[None]:
    """What the user's code raises becomes a `TargetError` of one line: the first of its message, or all."""
    try:
        yield
    except (TargetError, MissingPackageError):
        raise
    except (Exception, SystemExit) as cause:
        framework = _missing_framework(cause)
        if framework is not None:
            raise MissingPackageError(framework, wanted_by=what, extra=framework) from cause
        lines = str(cause).strip().splitlines() or [""]
        text = " ".join(" ".join(lines).split())[:_LONGEST_MESSAGE] if whole else lines[0]
        raise TargetError(
            f"{what} raised {type(cause).__name__}: {text}",
            hint=f"it came from {_place_of(cause)}; --debug shows the whole traceback",
        ) from cause


def _missing_framework(cause: BaseException) -> str | None:
    """The framework that is not installed, if that is what an error is about."""
    name = (cause.name or "").partition(".")[0] if isinstance(cause, ModuleNotFoundError) else ""
    if name not in _FRAMEWORKS:
        return None
    try:
        import_module(name)
    except ModuleNotFoundError:
        return name
    return None


def _place_of(cause: BaseException) -> str:
    """The last line of code outside Python's import machinery and outside modelglass."""
    if isinstance(cause, SyntaxError) and cause.filename:
        return f"{Path(cause.filename).name}, line {cause.lineno}"
    from traceback import extract_tb

    frames = [
        (frame.filename, frame.lineno)
        for frame in extract_tb(cause.__traceback__)
        if not frame.filename.startswith("<frozen")
        and not Path(frame.filename).is_relative_to(Path(__file__).parent)
    ]
    return f"{Path(frames[-1][0]).name}, line {frames[-1][1]}" if frames else "its own code"
