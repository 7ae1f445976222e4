"""Reading a tensor by other ways than torch's kernels: as an array, a list or a text, or by its address.

Fake tensors answer such a question with an error of their own, with 0 or with whatever lies there. A model
that catches the error, or believes the answer, would go another way than with real tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch
from torch import nn

from modelglass.frameworks.torch.describe import unobserved
from modelglass.frameworks.torch.privates import FakeTensor
from modelglass.frameworks.torch.process import replace_here
from modelglass.undo import UndoLog

_OF_VALUES = ("numpy", "__array__", "tolist", "__dlpack__")
_AS_TEXT = ("__repr__", "__format__")
_OF_PLACE = ("data_ptr", "storage", "share_memory_", "__reduce_ex__")
_OF_STORAGES = ("tolist", "__getitem__", "__iter__")


class NeedsValuesError(RuntimeError):
    """Only a real tensor can answer the question."""


class ValueReads:
    """Answers such questions where values are known, and remembers that one was asked where they are not."""

    def __init__(self, mode: object, value_of: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        self._mode = weakref.ref(mode)  # which holds this, and is gone when the run is
        self._value_of = value_of
        self.unanswered: NeedsValuesError | None = None
        self.guessed: str | None = None  # an answer that may be another one in a real run

    def notice(self, log: UndoLog) -> None:
        """Have fake tensors of the mode bring their questions here until the end."""
        for name in (*_OF_VALUES, *_AS_TEXT, *_OF_PLACE):
            log.replace(FakeTensor, name, self._method(name, getattr(FakeTensor, name)))
        for name in _OF_STORAGES:
            replace_here(log, torch.UntypedStorage, name, partial(self._refusing, name))
        replace_here(log, torch.UntypedStorage, "data_ptr", self._address)

    def _method(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(tensor: FakeTensor, *args: Any, **kwargs: Any) -> Any:
            if tensor.fake_mode is not self._mode():  # somebody else's
                return original(tensor, *args, **kwargs)
            ask = getattr(torch.Tensor, name)
            return self._answer(name, tensor, lambda it: ask(it, *args, **kwargs))

        return read

    def _refusing(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def read(storage: torch.UntypedStorage, *args: Any) -> Any:
            return self._refuse(name) if storage.device.type == "meta" else original(storage, *args)

        return read

    def _address(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def data_ptr(storage: torch.UntypedStorage) -> Any:
            if storage.device.type == "meta":
                self.guessed = "the model looks at the address of a tensor"
            return original(storage)

        return data_ptr

    def _answer(self, name: str, tensor: FakeTensor, ask: Callable[..., Any]) -> Any:
        values = None if name in _OF_PLACE else self._value_of(tensor)
        is_text = name in _AS_TEXT
        if is_text and (values is None or tensor.requires_grad or isinstance(tensor, nn.Parameter)):
            self.guessed = "the model reads a tensor as text"
            return ask(tensor)
        if values is None:
            self._refuse(name)
        with unobserved():
            return ask(values)

    def _refuse(self, name: str) -> NoReturn:
        self.unanswered = NeedsValuesError(f"{name}() needs a tensor that is in memory")
        raise self.unanswered
