"""The classes and functions that a configuration names, found by their dotted names."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from modelglass.errors import TargetError
from modelglass.user_code import user_errors

# Modules whose package is called something else.
_PACKAGES = {
    "PIL": "Pillow",
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "PyYAML",
    "flash_attn": "flash-attn",
    "lightning_fabric": "lightning",
    "pytorch_lightning": "pytorch-lightning",
}
_MOST_LISTED = 8
# What models are given of the standard library. The rest opens files, runs programs and evaluates texts.
_BUILTINS = ("bool", "dict", "float", "frozenset", "int", "list", "range", "set", "slice", "str", "tuple")
_HARMLESS = frozenset(
    {
        *("argparse.Namespace", "collections.OrderedDict", "collections.defaultdict", "datetime.timedelta"),
        *("decimal.Decimal", "fractions.Fraction", "functools.partial", "pathlib.Path", "pathlib.PurePath"),
        *("random.Random", "types.SimpleNamespace"),
        *(f"builtins.{name}" for name in _BUILTINS),
    }
)


def located(name: str, node: str) -> Any:
    """What a dotted name such as `package.module.Class` stands for; `node` is the key that names it."""
    parts = name.split(".")
    if len(parts) < 2 or not all(parts):
        raise TargetError(
            f"{node} names {name!r}, which is not a dotted path to a class",
            hint="write package.module.Class",
        )
    _refuse_unless_harmless(parts[0], name, node)
    found = _imported(parts[0], name, node)
    with user_errors(f"importing {name!r}, which {node} names,"):  # a package may load its members when asked
        for index, part in enumerate(parts[1:], start=1):
            if not hasattr(found, part) and isinstance(found, ModuleType) and hasattr(found, "__path__"):
                _imported(".".join(parts[: index + 1]), name, node, parent=found)
            if not hasattr(found, part):
                raise _no_member(found, part, name, node)
            found = getattr(found, part)
            if callable(found) or isinstance(found, ModuleType):
                # A package has the modules that it imports for members: torch.os is os.
                _refuse_unless_harmless(_home(found), name, node)
    if not callable(found):
        raise TargetError(
            f"{node} names {name!r}, which cannot be called", hint="name a class, or a function"
        )
    return found


def _refuse_unless_harmless(module: str, name: str, node: str) -> None:
    """What the standard library has is called only where it can do no more than hold or compute a value."""
    if module.partition(".")[0] not in sys.stdlib_module_names or name in _HARMLESS:
        return
    if name.startswith("math.") and name.count(".") == 1 and "_" not in name:
        return
    raise TargetError(
        f"{node} names {name!r} of Python's standard library, which cannot be a target",
        hint="no model needs it; if yours does, build it in a function: --builder file.py::function",
    )


def _home(found: Any) -> str:
    """The module that something is, or comes from; an object of some class does what its class can."""
    if isinstance(found, ModuleType):
        return found.__name__
    home = getattr(found, "__module__", None)
    return home if isinstance(home, str) else type(found).__module__


def _imported(module: str, name: str, node: str, parent: ModuleType | None = None) -> Any:
    """The module; None when a package has no module of that name."""
    with user_errors(f"importing {module!r}, which {node} names,"):
        try:
            return import_module(module)
        except ModuleNotFoundError as cause:
            missing = cause.name or ""
            if missing == module and parent is not None:
                return None  # it may be no module, and is not there at all
            if missing == module or module.startswith(f"{missing}."):
                raise TargetError(
                    f"{node} names {name!r}, and there is no module {missing!r}", hint=_where(missing)
                ) from cause
            raise TargetError(
                f"{node} names {name!r}, and importing {module!r} needs the module {missing!r}, "
                "which is not installed",
                hint=f"pip install {_package(missing)}",
            ) from cause


def _package(module: str) -> str:
    top = module.partition(".")[0]
    return _PACKAGES.get(top, top.replace("_", "-"))


def _where(module: str) -> str:
    """What to do about a module that is not found."""
    top = module.partition(".")[0]
    folders = [Path(folder) for folder in sys.path[:2] if folder and Path(folder).is_dir()]
    names = {
        entry.stem
        for folder in folders
        for entry in folder.iterdir()
        if entry.suffix == ".py" or entry.is_dir()
    }
    close = get_close_matches(top, sorted(names), n=1, cutoff=0.7)
    guess = f"did you mean {close[0]}? " if close else ""
    return f"{guess}pip install {_package(top)}, or run from the folder that holds {top!r}"


def _no_member(found: Any, part: str, name: str, node: str) -> TargetError:
    owner = getattr(found, "__name__", type(found).__name__)
    names = [each for each in dir(found) if each[0] != "_" and callable(getattr(found, each, None))]
    close = get_close_matches(part, names, n=3, cutoff=0.5)
    if isinstance(found, ModuleType):
        own = [each for each in names if getattr(getattr(found, each), "__module__", None) == owner]
        listed = f"it has {', '.join((own or names)[:_MOST_LISTED])}" if names else "it defines nothing"
    else:
        listed = "check the name"
    return TargetError(
        f"{node} names {name!r}, and {owner!r} has no {part!r}",
        hint=f"did you mean {', '.join(close)}?" if close else listed,
    )
