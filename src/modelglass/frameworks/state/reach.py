"""What code can reach besides the objects it is called on: global variables, classes, defaults.

Found by names: a function reaches the global variables that its code names, a class the attributes and
methods that any code reached so far names. Installed packages and Python itself are left alone, as is what
code looks up by a name that it puts together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partialmethod
from types import CodeType, FunctionType, ModuleType
from typing import Any

_FRAMEWORKS = frozenset({"torch", "numpy", "mlx", "modelglass", "vllm", "builtins", "triton", "sympy"})
_LEFT_ALONE = _FRAMEWORKS | (sys.stdlib_module_names - {"__main__"})
_MISSING = object()
_KEPT_NAMES = 20_000  # pieces of code whose names are remembered
_installed: dict[str, bool] = {}
_names: dict[int, tuple[CodeType, frozenset[str]]] = {}
_CONSTANT = frozenset({int, float, bool, str, bytes, type(None), tuple, frozenset, type, ModuleType})


class Reach:
    """Follows names from code to what it can reach, and has all of that kept."""

    def __init__(
        self,
        package: str,
        record: Callable[..., None],
        substitute: Callable[[Any], Any],
        *,
        builtins: Mapping[str, Any],
        look_at: Callable[[FunctionType], None],
    ) -> None:
        self._package = package
        self._record = record
        self._substitute = substitute
        self._builtins = builtins
        self._look_at = look_at
        self._seen: set[Any] = set()
        self._names: set[str] = set()
        self._waiting: dict[str, list[FunctionType]] = {}  # methods that no code has named yet

    def enter_class(self, cls: type) -> None:
        """Keep the attributes of a class and of its bases, and follow the methods that are named."""
        for base in cls.__mro__:
            if id(base) in self._seen or self._is_left_alone(base.__module__):
                continue
            self._seen.add(id(base))
            attributes = {name: value for name, value in vars(base).items() if not _is_dunder(name)}
            self._record(_restore_class_attributes, base, attributes)
            for name, value in vars(base).items():
                functions = list(_functions_of(value))
                if _is_dunder(name) or name in self._names or name == "forward":
                    for function in functions:
                        self._substitute(function)
                else:
                    self._waiting.setdefault(name, []).extend(functions)
                if not functions and name in attributes:
                    self._keep(attributes, name, value, base)

    def enter_function(self, function: FunctionType) -> None:
        """Keep what a function keeps for itself, and the global variables that it names."""
        if id(function) in self._seen or self._is_left_alone(function.__globals__.get("__name__")):
            return
        self._seen.add(id(function))
        defaults = function.__defaults__
        self._record(_restore_defaults, function, defaults, function.__kwdefaults__)
        self._substitute(function.__kwdefaults__)
        self._substitute(vars(function))
        new = self._substitute(defaults) if defaults else defaults
        if new is not defaults:
            function.__defaults__ = new
        names = names_in(function.__code__)
        self._keep_names(function.__globals__, names)
        for name, value in self._builtins.items():
            if name in names:
                function.__globals__.setdefault(name, value)
        self._look_at(function)
        for name in names - self._names:
            self._names.add(name)
            for method in self._waiting.pop(name, ()):
                self._substitute(method)

    def _keep_names(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        """Keep those global variables of a module, and what follows from them."""
        found: dict[str, Any] = {}
        for name in names:
            value = namespace.get(name, _MISSING)
            found[name] = value
            if value is _MISSING:  # it may be imported inside the function
                value = sys.modules.get(name)
            kind = type(value)
            if kind is ModuleType:
                if not self._is_left_alone(vars(value).get("__name__")) and vars(value) is not namespace:
                    key = (id(value), id(names))
                    if key not in self._seen:
                        self._seen.add(key)
                        self._keep_names(vars(value), names)
            elif isinstance(value, type):
                self.enter_class(value)
            elif kind not in _CONSTANT:
                self._keep(namespace, name, value)
        self._record(_restore_names, namespace, found)

    def _keep(self, holder: dict[str, Any], name: str, value: Any, cls: type | None = None) -> None:
        """Keep what is inside a value; a copy takes the place of one that could not be set back."""
        new = self._substitute(value)
        if new is value:
            return
        if cls is None:
            holder[name] = new
        else:
            type.__setattr__(cls, name, new)

    def _is_left_alone(self, module: Any) -> bool:
        package = str(module).partition(".")[0]
        return package == self._package or package in _LEFT_ALONE or _is_installed(package)


def _is_installed(package: str) -> bool:
    """Whether a package is a library, of which a model reaches thousands of functions."""
    known = _installed.get(package)
    if known is None:
        home = str(getattr(sys.modules.get(package), "__file__", None) or "")
        known = _installed[package] = any(f"{name}-packages" in home for name in ("site", "dist"))
    return known


def names_in(code: CodeType) -> frozenset[str]:
    """The names that code and the functions inside it use, and texts in it that could be names."""
    known = _names.get(id(code))
    if known is not None:
        return known[1]
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= names_in(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            found.add(constant)
    if len(_names) >= _KEPT_NAMES:
        _names.clear()
    _names[id(code)] = code, frozenset(found)
    return _names[id(code)][1]


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """The functions behind an attribute of a class."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, (staticmethod, classmethod)):
        yield from _functions_of(value.__func__)
    elif isinstance(value, property):
        for each in (value.fget, value.fset, value.fdel):
            yield from _functions_of(each)
    elif isinstance(value, (cached_property, partialmethod)):
        yield from _functions_of(value.func)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _restore_names(namespace: dict[str, Any], before: Mapping[str, Any]) -> None:
    for name, value in before.items():
        if namespace.get(name, _MISSING) is not value:
            if value is _MISSING:
                namespace.pop(name, None)
            else:
                namespace[name] = value


def _restore_class_attributes(cls: type, before: Mapping[str, Any]) -> None:
    now = vars(cls)
    for name in [name for name in now if name not in before and not _is_dunder(name)]:
        type.__delattr__(cls, name)
    for name, value in before.items():
        if now.get(name, _MISSING) is not value:
            type.__setattr__(cls, name, value)


def _restore_defaults(function: Any, defaults: Any, keyword_defaults: Any) -> None:
    if function.__defaults__ is not defaults:
        function.__defaults__ = defaults
    if function.__kwdefaults__ is not keyword_defaults:
        function.__kwdefaults__ = keyword_defaults
