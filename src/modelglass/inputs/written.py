"""Inputs as people write them: in a sentence, as options of the command line, as Python to paste."""

from __future__ import annotations

from collections.abc import Iterator

from modelglass.inputs.described import FLOAT, Call, Node, Plain, Several, Tensor, path_text


def listed(call: Call, floating: str) -> Iterator[str]:
    """Each input in a few words. `floating` is the element type of floating inputs."""
    for path, each in call.tensors().items():
        yield f"{path_text(path)} {_size(each.shape)} {_dtype(each.dtype, floating)}"
    for name, node in call.arguments:
        if isinstance(node, Plain):
            yield f"{name} {node.value!r}"


def options(call: Call, floating: str) -> Iterator[str]:
    """Options of the command line; none for what is inside of a structure."""
    for name, node in call.arguments:
        if isinstance(node, Tensor):
            dtype = _dtype(node.dtype, floating)
            yield f"--input {name}={_size(node.shape)}{'' if dtype == 'float32' else f':{dtype}'}"


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
