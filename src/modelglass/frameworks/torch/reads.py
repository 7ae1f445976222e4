"""Reading a tensor's memory by other ways than torch's kernels: as an array, as a list, by its address.

Fake tensors answer such a question with an error of their own, with 0 or with whatever lies there. A model
that catches the error, or believes the answer, would go another way than with real tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from modelglass.frameworks.torch.describe import unobserved
from modelglass.frameworks.torch.privates import FakeTensor
from modelglass.undo import UndoLog

_OF_VALUES = ("numpy", "__array__", "tolist", "__dlpack__")
_OF_PLACE = ("data_ptr", "storage", "share_memory_")


class NeedsValuesError(RuntimeError):
    """What is asked of a tensor only a real one can tell."""


class ValueReads:
    """Answers such questions where values are known, and remembers that one was asked where they are not."""

    def __init__(self, mode: object, value_of: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        self._mode = weakref.ref(mode)  # which holds this, and is gone when the run is
        self._value_of = value_of
        self.unanswered: NeedsValuesError | None = None

    def notice(self, log: UndoLog) -> None:
        """Have fake tensors of the mode bring their questions here until the end."""
        for name in (*_OF_VALUES, *_OF_PLACE):
            log.replace(FakeTensor, name, self._method(name, getattr(FakeTensor, name)))

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: FakeTensor, *args: Any, **kwargs: Any) -> Any:
            if tensor.fake_mode is not self._mode():  # somebody else's
                return original(tensor, *args, **kwargs)
            return self._answer(name, tensor, partial(getattr(torch.Tensor, name), *args, **kwargs))

        return read

    def _answer(self, name: str, tensor: FakeTensor, ask: Callable[..., Any]) -> Any:
        values = self._value_of(tensor) if name in _OF_VALUES else None
        if values is None:
            self.unanswered = NeedsValuesError(f"{name}() needs a tensor that is in memory")
            raise self.unanswered
        with unobserved():
            return ask(values)
