"""Inputs as people write them: in a sentence, as options of the command line, as Python to paste."""

from __future__ import annotations

import re
from collections.abc import Iterator

from modelglass.inputs.described import FLOAT, Call, Node, Plain, Several, Tensor, path_text

_UNQUOTED = re.compile(r"[\w.:+-]*")


def listed(call: Call, floating: str) -> Iterator[str]:
    """Each input in a few words. `floating` is the element type of floating inputs."""
    for path, each in call.tensors().items():
        yield f"{path_text(path)} {_size(each.shape)} {_dtype(each.dtype, floating)}"
    for name, node in call.arguments:
        if isinstance(node, Plain):
            yield f"{name} {node.value!r}"


def options(call: Call, floating: str) -> Iterator[str]:
    """Options of the command line; none for dictionaries and for what is passed as `*args`."""
    for name, node in call.arguments:
        text = None if name == call.spread else _option(node, floating)
        if text is not None:
            plain = _UNQUOTED.fullmatch(text)  # else shells would take brackets for patterns
            yield f"--input {name}={text}" if plain else f'--input "{name}={text}"'


def _option(node: Node, floating: str) -> str | None:
    """A value as the command line has it; None where it has none."""
    if isinstance(node, Tensor):
        dtype = _dtype(node.dtype, floating)
        return f"{_size(node.shape)}{'' if dtype == 'float32' else f':{dtype}'}"
    if isinstance(node, Several):
        items = [_option(each, floating) for each in node.items]
        if any(each is None for each in items):
            return None
        joined = ",".join(each for each in items if each is not None)
        return f"[{joined}]" if node.is_list else f"({joined})"
    value = node.value if isinstance(node, Plain) else ...
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:+}"
    return repr(value) if isinstance(value, (float, str)) else None


def python(call: Call, floating: str, arrays: str) -> str:
    """Code that makes the inputs with the arrays of a framework."""
    given = ", ".join(
        f"{name!r}: {_code(node, floating, arrays)}" for name, node in call.arguments if name != call.spread
    )
    if call.spread is None:
        return f"inputs = {{{given}}}"
    return f"inputs = {_code(dict(call.arguments)[call.spread], floating, arrays)}"


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _dtype(name: str, floating: str) -> str:
    return floating if name == FLOAT else name


def _code(node: Node, floating: str, arrays: str) -> str:
    if isinstance(node, Tensor):
        return f"{arrays}.zeros({node.shape}, dtype={arrays}.{_dtype(node.dtype, floating)})"
    if isinstance(node, Plain):
        return repr(node.value)
    if isinstance(node, Several):
        items = ", ".join(_code(each, floating, arrays) for each in node.items)
        return f"[{items}]" if node.is_list else f"({items},)"
    return "{" + ", ".join(f"{key!r}: {_code(each, floating, arrays)}" for key, each in node.items) + "}"
