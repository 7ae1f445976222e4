"""State outside dicts and attributes: iterators, buffers, arrays, queues, streams, generators, caches.

Where an earlier state can be kept at little cost, it is set again. Where it cannot, what can be seen of it is
compared afterwards, so that what moved can be named.
"""

from __future__ import annotations

import array
import ctypes
import functools
import gc
import io
import itertools
import mmap
import queue
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

from modelglass.frameworks.state.holders import name_of
from modelglass.report import Note

Record = Callable[..., None]
Substitute = Callable[[Any], Any]

LARGEST = 2**28  # bytes of an array or buffer that are kept; of a larger one a part is compared
_SEEN = 2**16  # bytes of that part, at the beginning and at the end

_BUILT_IN: tuple[Any, ...] = ([], (), "", b"", bytearray(), range(0), {}, {}.values(), {}.items(), set())
_BACKWARDS: tuple[Any, ...] = ([], (), {}, range(0))
ITERATORS = frozenset(
    {
        *(type(iter(each)) for each in _BUILT_IN),
        *(type(reversed(each)) for each in _BACKWARDS),
        *(enumerate, zip, map, filter, reversed, type(iter(range(2**80)))),
        *(value for value in vars(itertools).values() if isinstance(value, type)),
    }
)
_STREAMS = (io.StringIO, io.BytesIO)
GENERATORS = (GeneratorType, CoroutineType, AsyncGeneratorType)
_FLAGS = {threading.Event: "_flag", threading.Semaphore: "_value"}
_BUFFERS = (memoryview, mmap.mmap, ctypes.Array, ctypes.Structure, ctypes._SimpleCData)
_CACHE: Any = type(functools.lru_cache(lambda: None))
_KEPT = (
    *(random.Random, array.array, queue.Queue, queue.SimpleQueue, threading.local, io.IOBase),
    *(*_BUFFERS, *GENERATORS, *_FLAGS, _CACHE),
)


def keeps_state(value: Any) -> bool:
    """Whether a value has state that `keep_state` knows."""
    return isinstance(value, _KEPT) or _is_of_numpy(value)


def keep_state(value: Any, record: Record, witness: Witness, substitute: Substitute) -> None:
    """Have the state of a value set back in the end, or watched where that cannot be."""
    if isinstance(value, random.Random):
        if not isinstance(value, random.SystemRandom):
            record(value.setstate, value.getstate())
    elif _is_of_numpy(value):
        _keep_of_numpy(value, record, witness, substitute)
    elif isinstance(value, array.array):
        record(_restore_array, value, value[:])
    elif isinstance(value, queue.Queue):
        substitute(value.queue)
        record(setattr, value, "queue", value.queue)
        record(setattr, value, "unfinished_tasks", value.unfinished_tasks)
    elif isinstance(value, threading.local):
        substitute(vars(value))
    elif isinstance(value, tuple(_FLAGS)):
        name = next(name for kind, name in _FLAGS.items() if isinstance(value, kind))
        record(setattr, value, name, getattr(value, name))
    elif isinstance(value, _STREAMS) and not value.closed:
        record(_restore_stream, value, value.__getstate__())
        witness.watch(value, lambda: value.closed)
    elif isinstance(value, _BUFFERS):
        _keep_buffer(value, record, witness)
    elif isinstance(value, _CACHE):
        before = _referents_of(value)
        record(_restore_cache, value, before, {id(each) for each in before})
        substitute(value.__wrapped__)
        substitute(vars(value))
    else:
        witness.watch(value)


class Witness:
    """Watches what cannot be set back."""

    def __init__(self) -> None:
        self._watched: list[tuple[Any, Callable[[], Any], Any]] = []

    def watch(self, value: Any, look: Callable[[], Any] | None = None) -> None:
        """Compare afterwards what can be seen of a value."""
        look = look or functools.partial(_visible_state, value)
        self._watched.append((value, look, look()))

    def moved(self) -> list[Any]:
        """The values that are not as they were."""
        return [value for value, look, before in self._watched if not _is_same(look(), before)]


def copy_iterator(value: Any, exchange: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Any:
    """Another iterator at the same point, or None where Python has no way to make one.

    `exchange` gives a tuple with substitutes in it, copies of inner iterators among them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of later versions of Python, for itertools
        try:
            make, given, *state = value.__reduce__()
            copied = make(*exchange(given))
            if state and state[0] is not None:
                inner = state[0]
                copied.__setstate__(exchange(inner) if isinstance(inner, tuple) else inner)
        except TypeError:
            return None
        return copied


def _is_of_numpy(value: Any) -> bool:
    if type(value).__module__.partition(".")[0] != "numpy" and "numpy" not in sys.modules:
        return False
    numpy = sys.modules.get("numpy")
    kinds = () if numpy is None else (numpy.ndarray, numpy.random.Generator, numpy.random.RandomState)
    return isinstance(value, kinds) or (numpy is not None and isinstance(value, numpy.random.BitGenerator))


def _keep_of_numpy(value: Any, record: Record, witness: Witness, substitute: Substitute) -> None:
    numpy = sys.modules["numpy"]
    if isinstance(value, numpy.ndarray):
        if not value.flags.writeable:
            return
        if value.nbytes > LARGEST:
            witness.watch(value, functools.partial(_edges_of, value))
            return
        if value.dtype.hasobject:
            for item in value.flat:
                substitute(item)
        record(_restore_ndarray, value, value.shape, value.dtype, numpy.array(value, copy=True))
    elif isinstance(value, numpy.random.RandomState):
        record(value.set_state, value.get_state())
    else:
        bits = getattr(value, "bit_generator", value)
        record(setattr, bits, "state", bits.state)


def _restore_ndarray(value: Any, shape: tuple[int, ...], dtype: Any, before: Any) -> None:
    if value.shape != shape:
        value.shape = shape
    if value.dtype != dtype:
        value.dtype = dtype
    value[...] = before


def _edges_of(value: Any) -> bytes:
    flat = value.reshape(-1)
    some = max(1, _SEEN // value.itemsize)
    return bytes(flat[:some].tobytes() + flat[-some:].tobytes())


def _restore_stream(value: Any, before: Any) -> None:
    if not value.closed:  # else the witness notes it
        value.__setstate__(before)


def _restore_array(value: Any, before: Any) -> None:
    value[:] = before


def _keep_buffer(value: Any, record: Record, witness: Witness) -> None:
    try:
        view = memoryview(value)
    except (TypeError, ValueError):  # it is closed, or holds what is not bytes
        return
    if view.readonly or not view.c_contiguous:
        return
    if view.nbytes > LARGEST:
        witness.watch(value, lambda: bytes(memoryview(value).cast("B")[:_SEEN]))
        return
    before = bytes(view)
    view.release()
    record(_restore_buffer, value, before)


def _restore_buffer(value: Any, before: bytes) -> None:
    with memoryview(value) as view, view.cast("B") as plain:
        if plain != before:
            plain[:] = before


def _referents_of(cache: Any) -> list[Any]:
    """What a cache of `functools` refers to, with what a plain dict inside it does."""
    found = gc.get_referents(cache)
    inner = [each for each in found if type(each) is dict and each is not vars(cache)]
    return [*found, *(value for each in inner for value in (*each.keys(), *each.values()))]


def _restore_cache(cache: Any, before: list[Any], ids: set[int]) -> None:
    """A cache that learned something in the run forgets; one can only be emptied as a whole."""
    if any(id(each) not in ids for each in _referents_of(cache)):
        cache.cache_clear()


def _visible_state(value: Any) -> tuple[Any, ...]:
    """What can be seen of an object whose state cannot be kept."""
    if isinstance(value, queue.SimpleQueue):
        return (value.qsize(),)
    if isinstance(value, io.IOBase):
        try:
            return (value.closed, value.tell())
        except (OSError, ValueError):
            return (value.closed,)
    if isinstance(value, itertools.count):
        return (repr(value),)
    frame = getattr(value, "gi_frame", None) or getattr(value, "cr_frame", None)
    inner = gc.get_referents(value)
    states = (
        _visible_state(each) for each in inner if type(each) in ITERATORS or isinstance(each, GENERATORS)
    )
    hint = getattr(value, "__length_hint__", lambda: None)()
    return (None if frame is None else frame.f_lasti, hint, *inner, *states)


def _is_same(now: Any, before: Any) -> bool:
    """Equal numbers and texts, identical objects."""
    if isinstance(now, tuple) and isinstance(before, tuple):
        return len(now) == len(before) and all(map(_is_same, now, before))
    plain = (int, float, str, bytes, bool, type(None))
    return now is before or (isinstance(now, plain) and type(now) is type(before) and now == before)


def note_moved(witness: Witness) -> Iterator[Note]:
    """What the run moved and nobody can set back, by the places that hold it."""
    moved = witness.moved()
    if moved:
        places = sorted({name_of(value) for value in moved})
        kinds = ", ".join(sorted({type(value).__name__ for value in moved}))
        yield Note(
            code="state-moved",
            severity="warning",
            text=f"the run moved state that cannot be set back ({kinds}): it is not as it was before",
            where=tuple(places),
        )
