"""What in a file of Python code could be a target, or make its inputs. The file is read, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["model", "unknown", "inputs"]

_MODULES = ("Module", "Model", "Sequential")  # what the names of bases and results of models end with
_MODEL_VERBS = frozenset({"build", "make", "create", "load"})
_MODEL_WORDS = frozenset({"model", "models", "net", "network"})
_INPUT_WORDS = frozenset({"input", "inputs", "batch", "batches", "sample", "samples", "example", "examples"})
_INPUT_TYPES = frozenset({"Tensor", "array", "ndarray", "Inputs", "tuple", "dict"})


def factories_in(path: Path) -> list[str]:
    """What in a file could be a model; functions, classes and variables that look like one come first."""
    roles = roles_in(path)
    return [name for role in ("model", "unknown") for name in roles if roles[name] == role]


def roles_in(path: Path) -> dict[str, Role]:
    """By name, what the functions, classes and variables in a file look like, by reading it alone.

    What needs arguments cannot be called, and is left out.
    """
    try:
        body = ast.parse(path.read_text(encoding="utf-8", errors="replace")).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}  # loading it reports what is wrong
    models = _model_classes(body)
    found = {name: role for node in body for name, role in _names_of(node, models)}
    return {name: role for name, role in found.items() if not name.startswith("_")}


def _model_classes(body: list[ast.stmt]) -> set[str]:
    """The classes of a file that derive from a module, also by way of each other."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef) and any(_is_model(_last_name(base), found) for base in node.bases):
            found.add(node.name)
    return found


def _names_of(node: ast.stmt, models: set[str]) -> Iterator[tuple[str, Role]]:
    if isinstance(node, ast.FunctionDef) and not _count_required(node.args):
        yield node.name, _role(node.name, _last_name(node.returns), models)
    elif isinstance(node, ast.ClassDef):
        inits = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        if node.bases and not any(_count_required(each.args) > 1 for each in inits):
            yield node.name, "model" if node.name in models else "unknown"
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        made_by = _last_name(node.value.func)
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, _role(target.id, made_by, models)


def _role(name: str, type_name: str, models: set[str]) -> Role:
    """What a function or variable looks like, by its type where that is known, else by its name."""
    words = set(name.lower().split("_"))
    if _is_model(type_name, models):
        return "model"
    if type_name in _INPUT_TYPES or words & _INPUT_WORDS:
        return "inputs"
    return "model" if words & (_MODEL_VERBS | _MODEL_WORDS) else "unknown"


def _is_model(type_name: str, models: set[str]) -> bool:
    return type_name in models or type_name.endswith(_MODULES)


def _last_name(node: ast.expr | None) -> str:
    """The last part of a dotted name, also of a quoted or subscripted one; empty for anything else."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value.partition("[")[0].rpartition(".")[2]
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _count_required(args: ast.arguments) -> int:
    """How many arguments a call must give."""
    keywords = sum(default is None for default in args.kw_defaults)
    return len(args.posonlyargs) + len(args.args) - len(args.defaults) + keywords
