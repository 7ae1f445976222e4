"""The cache that a run of a language model gave back, read from the shapes of its tensors.

Caches are known by what they have, not by their classes: transformers need not be installed, and nothing of
a cache is called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from modelglass.frameworks.torch.describe import dtype_name, shape_of
from modelglass.report.dtypes import nbytes_of
from modelglass.report.memory import KvCache

OBSERVED = "observed cache"


def find_cache(outputs: Any) -> KvCache | None:
    """What one sequence takes in the cache among `outputs`; None if there is no cache, or not a readable one.

    A cache made in advance for so many tokens counts as one that has them. Keys and values of an encoder's
    output do not grow with the text and are in `fixed_nbytes`, at the length they have here.
    """
    cache = _cache_in(outputs)
    tally = _Tally()
    try:
        _add_cache(cache, tally)
    except _StrangeCacheError:
        return None
    if not tally.has_any:
        return None
    return KvCache(
        nbytes_per_token=tally.growing.pop(None, 0),
        windows={window: each for window, each in tally.growing.items() if window is not None},
        fixed_nbytes=tally.fixed,
        method="exact" if tally.is_certain else "estimate",
        source=OBSERVED,
    )


def config_of(native: nn.Module) -> Mapping[str, Any] | None:
    """The model's configuration as a plain mapping, or None when it has none that can be written out."""
    written: Any = None
    with suppress(Exception):  # a model's own code may raise anything
        config: Any = native.config
        written = config if isinstance(config, Mapping) else config.to_dict()
    return written if isinstance(written, Mapping) else None


def cache_dtype(native: nn.Module) -> str | None:
    """The type that most weights compute in, which keys and values also have; None where no weight does."""
    numels: Counter[str] = Counter()
    for parameter in native.parameters():
        if not is_lazy(parameter) and parameter.dtype in _COMPUTED_IN:
            numels[dtype_name(parameter.dtype)] += parameter.numel()
    return max(numels, key=lambda name: numels[name]) if numels else None


_COMPUTED_IN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NAMES = ("past_key_values", "cache_params")  # under which models give their cache back
_TRAITS = frozenset({"layers", "self_attention_cache", "key_cache"})
_GROWING = frozenset({"keys", "values", "indexer_keys", "key_cache", "value_cache"})
_FIXED = frozenset({"conv_states", "recurrent_states", "ssm_states", "linear_cache", "rnn_state"})
_DEPTH = 4


class _StrangeCacheError(Exception):
    """It holds tensors of which nobody knows whether they grow."""


@dataclass(slots=True)
class _Tally:
    """Bytes of one sequence: for each token by the window in which they count, and at any length."""

    growing: Counter[int | None] = field(default_factory=Counter)
    fixed: int = 0
    tokens: int | None = None  # that layers without a window have kept
    has_any: bool = False
    is_certain: bool = True

    def add_growing(self, tensor: torch.Tensor, window: int | None) -> None:
        """Keys or values: sequences come first, tokens last but one."""
        shape = _shape(tensor)
        if len(shape) < 3 or 0 in shape:  # a layer that kept nothing
            return
        self.has_any = True
        self.growing[window] += _nbytes(tensor, prod(shape) // shape[0] // shape[-2])
        if window is None and shape[-2] != (self.tokens or shape[-2]):
            raise _StrangeCacheError("layers that keep every token keep different numbers of them")
        if window is None:
            self.tokens = shape[-2]

    def add_fixed(self, tensor: torch.Tensor) -> None:
        shape = _shape(tensor)
        if len(shape) > 1 and 0 not in shape:
            self.fixed += _nbytes(tensor, prod(shape) // shape[0])
            self.has_any = True


def _cache_in(outputs: Any) -> Any:
    named = outputs if isinstance(outputs, dict) else _members(outputs)
    for name in _NAMES:
        if named.get(name) is not None:
            return named[name]
    candidates = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return next((each for each in candidates if not _TRAITS.isdisjoint(_members(each))), None)


def _members(value: Any) -> dict[str, Any]:
    """What an object holds, without asking it: no code of its own runs."""
    own = getattr(value, "__dict__", None)
    return own if isinstance(own, dict) else {}


def _add_cache(cache: Any, tally: _Tally) -> None:
    members = _members(cache)
    if "self_attention_cache" in members:
        _add_layers(members["self_attention_cache"], tally)
        for tensor in _find_source_cache(members.get("cross_attention_cache")):
            tally.add_fixed(tensor)
    elif isinstance(cache, (tuple, list)):
        for layer in cache:
            _add_pair(layer, tally)
    else:
        _add_layers(cache, tally)


def _add_layers(cache: Any, tally: _Tally) -> None:
    members = _members(cache)
    layers = _as_list(members.get("layers"))
    lengths = (_members(layer).get("max_cache_len") for layer in layers)
    longest = max((length for length in lengths if type(length) is int), default=0)
    for layer in layers:
        _add_members(_members(layer), _window(layer, longest, tally), tally)
    _add_members({name: value for name, value in members.items() if name != "layers"}, None, tally)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else []


def _window(layer: Any, longest: int, tally: _Tally) -> int | None:
    """The tokens a layer looks back over; None: it keeps all."""
    window, length = _members(layer).get("sliding_window"), _members(layer).get("max_cache_len")
    if type(window) is int:
        return window
    if getattr(type(layer), "is_sliding", False) is not True or type(length) is not int:
        return None
    if length < longest:
        return length
    tally.is_certain = False  # made in advance for no more tokens than its window, or for exactly so many
    return None


def _add_members(members: dict[str, Any], window: int | None, tally: _Tally) -> None:
    for name, value in members.items():
        for tensor in _tensors_in(value):
            if name in _GROWING:
                tally.add_growing(tensor, window)
            elif name in _FIXED:
                tally.add_fixed(tensor)
            elif tensor.dim() > 1:  # less are counters and scales
                raise _StrangeCacheError(name)


def _add_pair(layer: Any, tally: _Tally) -> None:
    """A layer in the form of old: keys and values, then those of the encoder's output if there is one."""
    tensors = [tensor for tensor in _tensors_in(layer) if tensor.dim() > 1]
    if len(tensors) not in (2, 4) or any(tensor.dim() != 4 for tensor in tensors):
        raise _StrangeCacheError
    for tensor in tensors[:2]:
        tally.add_growing(tensor, None)
    for tensor in tensors[2:]:
        tally.add_fixed(tensor)


def _find_source_cache(cache: Any) -> Iterator[torch.Tensor]:
    for part in (cache, *_as_list(_members(cache).get("layers"))):
        members = _members(part)
        yield from (tensor for name in _GROWING for tensor in _tensors_in(members.get(name)))


def _tensors_in(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)) and depth < _DEPTH:
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part, depth + 1)


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    shape = shape_of(tensor)
    if shape is None:
        raise _StrangeCacheError
    return shape


def _nbytes(tensor: torch.Tensor, numel: int) -> int:
    nbytes = nbytes_of(dtype_name(tensor.dtype), numel)
    if nbytes is None:
        raise _StrangeCacheError
    return nbytes
