"""What in a file of Python code could be a target. The file is read, not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def factories_in(path: Path) -> list[str]:
    """The functions, classes and variables in a file that could be a model, by reading it alone.

    What needs arguments cannot be called, and is left out.
    """
    try:
        body = ast.parse(path.read_text(encoding="utf-8", errors="replace")).body
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # loading it says what is wrong
    names = [name for node in body for name in _names_of(node)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def _names_of(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef) and not _count_required(node.args):
        yield node.name
    elif isinstance(node, ast.ClassDef):
        inits = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        if node.bases and not any(_count_required(each.args) > 1 for each in inits):
            yield node.name
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _count_required(args: ast.arguments) -> int:
    """How many arguments a call must give."""
    keywords = sum(default is None for default in args.kw_defaults)
    return len(args.posonlyargs) + len(args.args) - len(args.defaults) + keywords
