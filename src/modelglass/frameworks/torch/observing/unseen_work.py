"""Work that no operator of torch shows: in numpy, in the model's own threads, in unread generators."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from modelglass.frameworks.state.builtin_objects import GENERATORS, ITERATORS
from modelglass.frameworks.torch.observing.recorder import Recorder
from modelglass.frameworks.torch.process import replace_here
from modelglass.report import Note
from modelglass.undo import UndoLog

_THREADS = "the model started threads of its own: what they compute is not counted"
_ARRAYS = "the model reads values as arrays of numpy: what it computes with them there is not counted"
_UNREAD = "the model returned a generator or iterator, which is not read: what it computes is not counted"


class UnseenWork:
    """Notices where work leaves what is watched."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, None]] = {}  # text -> modules

    def notice(self, log: UndoLog, recorder: Recorder) -> None:
        """Have threads and arrays noticed until the end, for this thread."""

        def noticing(text: str, is_work: Callable[..., bool]) -> Callable[[Any], Any]:
            def make(original: Any) -> Any:
                def called(*args: Any, **kwargs: Any) -> Any:
                    if is_work(args[0]):
                        self._found.setdefault(text, {}).setdefault(recorder.place().module)
                    return original(*args, **kwargs)

                return called

            return make

        replace_here(log, threading.Thread, "start", noticing(_THREADS, lambda thread: True))
        replace_here(log, torch.Tensor, "numpy", noticing(_ARRAYS, _may_compute))

    def look_through_output(self, output: Any) -> None:
        """Look for what a model returned unread."""
        if any(map(_is_unread, _inside(output))):
            self._found.setdefault(_UNREAD, {}).setdefault("")

    def notes(self) -> Iterator[Note]:
        """What was noticed."""
        for text, modules in self._found.items():
            yield Note(code="not-counted", severity="warning", text=text, where=tuple(modules))


def _may_compute(tensor: torch.Tensor) -> bool:
    """Whether products may be made of a tensor's values; single numbers and counts are looked at."""
    return tensor.numel() > 1 and (tensor.is_floating_point() or tensor.is_complex())


def _is_unread(value: Any) -> bool:
    return isinstance(value, GENERATORS) or type(value) in ITERATORS


def _inside(output: Any, depth: int = 4) -> Iterator[Any]:
    yield output
    items = output.values() if isinstance(output, Mapping) else output
    if depth and isinstance(output, (Mapping, list, tuple)):
        for item in items:
            yield from _inside(item, depth - 1)
