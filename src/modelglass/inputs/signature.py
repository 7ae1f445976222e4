"""What the signature and the source of a forward pass show of its inputs."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_LISTS = ("list", "List", "Sequence", "Iterable")
_WALKED = ("zip", "enumerate", "len", "reversed", "list", "cat", "concat", "stack")  # functions of a list
_COUNTING = ("int", "range")  # functions of a number
_NUMBERS = {"int": 1, "float": 1.0, "bool": False, "str": None}


@dataclass
class Parameter:
    """One parameter. `keys`, `count` and `rank` are what the code takes from it; 0: it does not show it.

    `keys` are paths: ("a", "b") of `x["a"]["b"]`. `layers` are attributes that are called with it first.
    """

    name: str
    required: bool
    annotation: str = ""
    spread: bool = False
    default: Any = None
    keys: list[tuple[str, ...]] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    count: int = 0
    rank: int = 0
    is_walked: bool = False

    @property
    def number(self) -> Any:
        """A number of the annotated type; None where a tensor is meant."""
        return _NUMBERS.get(self.annotation)

    @property
    def may_be_tensor(self) -> bool:
        return not self.annotation or "Tensor" in self.annotation or "array" in self.annotation

    @property
    def is_list(self) -> bool:
        return any(self.annotation.split("[")[0].endswith(name) for name in _LISTS)


def parameters(forward: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a forward pass in their order; none where it has no signature."""
    try:
        found = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return []
    made = {each.name: _parameter(each) for each in found}
    _read_source(forward, made)
    others = [made.pop(each.name) for each in found if each.kind is inspect.Parameter.VAR_KEYWORD]
    keys = dict.fromkeys(path[0] for other in others for path in other.keys)
    return [*made.values(), *(Parameter(name=key, required=True) for key in keys if key not in made)]


def _parameter(given: inspect.Parameter) -> Parameter:
    spread = given.kind is inspect.Parameter.VAR_POSITIONAL
    empty = inspect.Parameter.empty
    note = "" if given.annotation is empty else given.annotation
    text = (
        note
        if isinstance(note, str)
        else getattr(note, "__name__", str(note))
        if isinstance(note, type)
        else str(note)
    )
    return Parameter(
        name=given.name,
        required=spread or given.default is empty,
        annotation=text.replace("torch.", "").replace("typing.", ""),
        spread=spread,
        default=None if given.default is empty else given.default,
    )


def _read_source(forward: Callable[..., Any], named: dict[str, Parameter]) -> None:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(forward))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return  # no source, or none that stands alone
    for node in ast.walk(tree):
        for name, key, value in _uses(node):
            parameter = named.get(name)
            if parameter is None:
                continue
            if key == "key" and value not in parameter.keys:
                parameter.keys.append(value)
            elif key == "layer":
                parameter.layers.append(value)
            elif key == "number":
                parameter.annotation = parameter.annotation or value
            elif key == "count":
                parameter.count = max(parameter.count, value)
            elif key == "rank":
                parameter.rank = parameter.rank or value
            elif key == "walked":
                parameter.is_walked = True


def _uses(node: ast.AST) -> Iterator[tuple[str, str, Any]]:
    """Names of variables, and what a piece of code takes from them."""
    if isinstance(node, ast.Subscript):
        name, keys = _keys(node)
        if keys:
            yield name, "key", keys
    elif isinstance(node, ast.Call):
        yield from _uses_of_call(node)
    elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Name):
        yield node.iter.id, "walked", True
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        count = len(node.targets[0].elts)
        if any(isinstance(each, ast.Starred) for each in node.targets[0].elts):
            return
        if isinstance(node.value, ast.Name):
            yield node.value.id, "count", count
        elif (shaped := _shaped(node.value)) is not None:
            yield shaped, "rank", count


def _uses_of_call(node: ast.Call) -> Iterator[tuple[str, str, Any]]:
    function, given = node.func, node.args
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    holder = function.value if isinstance(function, ast.Attribute) else None
    if name == "get" and isinstance(holder, ast.Name):
        keys = (each.value for each in given[:1] if isinstance(each, ast.Constant))
        yield from ((holder.id, "key", (key,)) for key in keys if isinstance(key, str))
    if holder is not None and isinstance(holder, ast.Name) and given and isinstance(given[0], ast.Name):
        yield given[0].id, "layer", name
    if holder is None and name in _COUNTING and len(given) == 1 and isinstance(given[0], ast.Name):
        yield given[0].id, "number", "int"
    if name in _WALKED:
        yield from ((each.id, "walked", True) for each in given if isinstance(each, ast.Name))


def _keys(node: ast.expr) -> tuple[str, tuple[str, ...]]:
    """Of `x["a"]["b"]`, the name and the path."""
    path: list[str] = []
    while isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            return "", ()
        path.insert(0, key)
        node = node.value
    return (node.id, tuple(path)) if isinstance(node, ast.Name) else ("", ())


def _shaped(node: ast.expr) -> str | None:
    """Of `x.shape` and `x.size()`, the name."""
    if isinstance(node, ast.Call) and not node.args:
        node = node.func
    if (
        isinstance(node, ast.Attribute)
        and node.attr in ("shape", "size")
        and isinstance(node.value, ast.Name)
    ):
        return node.value.id
    return None
