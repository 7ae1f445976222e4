"""Questions for the exact class of a tensor, which is another one in a fake run.

`type(x)` is answered with the class that a real tensor has: code that the model reaches finds another `type`
among its global variables. Nothing can stand in for `x.__class__`, so code that compares it is looked for.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.state.reach import names_in
from modelglass.frameworks.torch.privates import FakeTensor

_OF_FAKE_TENSORS = frozenset({"FakeTensor", "is_fake", "fake_mode", "FakeTensorMode"})
_COMPARISONS = ("COMPARE_OP", "IS_OP", "CONTAINS_OP")
_NEAR = 8  # instructions from a class to what it is compared with


class _MetaType(type):
    """What makes `type` below behave as Python's own."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not Type:
            return super().__call__(*args, **kwargs)
        found = builtins.type(*args, **kwargs)
        if found is FakeTensor:
            return nn.Parameter if isinstance(args[0], nn.Parameter) else torch.Tensor
        return Type if found is builtins.type else found

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.type) if cls is Type else super().__instancecheck__(value)

    def __subclasscheck__(cls, other: Any) -> bool:
        return issubclass(other, builtins.type) if cls is Type else super().__subclasscheck__(other)

    def __getitem__(cls, item: Any) -> Any:
        return builtins.type[item]


class Type(type, metaclass=_MetaType):
    """`type`, by which a fake tensor is an ordinary one."""


Type.__name__ = Type.__qualname__ = "type"


class ClassChecks:
    """Remembers code of the model that looks for classes in a way that cannot be answered."""

    def __init__(self) -> None:
        self.found: str | None = None

    def look_at(self, function: FunctionType) -> None:
        """Look through a function that the model can reach."""
        code = function.__code__
        if self.found is None and _checks(code):
            self.found = f"{code.co_qualname}() looks at the class of a tensor"


@lru_cache(maxsize=20_000)
def _checks(code: CodeType) -> bool:
    """Whether code asks whether tensors are fake, or compares `x.__class__`, other than one of `self`."""
    names = names_in(code)
    if not _OF_FAKE_TENSORS.isdisjoint(names):
        return True
    is_protocol = code.co_name.startswith("__") and code.co_name != "__call__"
    return "__class__" in names and not is_protocol and any(map(_compares_class, _all_code(code)))


def _all_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_code(constant)


def _compares_class(code: CodeType) -> bool:
    instructions = list(dis.get_instructions(code))
    for at, (before, asked) in enumerate(pairwise(instructions), 2):
        if asked.opname != "LOAD_ATTR" or asked.argval != "__class__" or _is_self(before):
            continue
        after = instructions[at : at + _NEAR]
        if after[0].opname.startswith(("STORE", "RETURN")) or any(x.opname in _COMPARISONS for x in after):
            return True
    return False


def _is_self(loaded: dis.Instruction) -> bool:
    names = loaded.argval if isinstance(loaded.argval, tuple) else (loaded.argval,)
    return names[-1] in ("self", "cls")
