"""How PyTorch's caching allocator is set, as `PYTORCH_CUDA_ALLOC_CONF` says it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from modelglass.errors import UsageError

MIB: Final = 2**20
_MOST_POWER: Final = 16  # classes of sizes for which divisions can be set: from 1 MiB to 64 GiB
_SETTING = re.compile(r"\s*([a-z_0-9]+)\s*:\s*(\[[^\]]*\]|[^,\[\]]*)\s*(?:,|$)", re.IGNORECASE)
# Known settings that do not change which memory is taken where capacity is not exceeded.
_WITHOUT_EFFECT = frozenset(
    "backend garbage_collection_threshold release_lock_on_cudamalloc pinned_use_cuda_host_register "
    "pinned_num_register_threads pinned_use_background_threads graph_capture_record_stream_reuse "
    "throw_on_cudamalloc_oom".split()
)


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of the allocator that change which memory it takes."""

    max_split_nbytes: int | None = None  # larger blocks are never split
    expandable_segments: bool = False
    divisions: tuple[int, ...] = ()  # of the step between powers of two, by the power, from 1 MiB on
    large_segment_nbytes: int = 20 * MIB
    ignored: tuple[str, ...] = field(default=(), compare=False)  # settings that are not simulated

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """The settings that a value of `PYTORCH_CUDA_ALLOC_CONF` makes.

        >>> AllocatorSettings.parse("max_split_size_mb:128,expandable_segments:True").max_split_nbytes
        134217728
        """
        rest = text.strip()
        known: dict[str, object] = {}
        ignored = []
        while rest:
            match = _SETTING.match(rest)
            if match is None:
                raise UsageError(
                    f"{rest!r} is not a setting of the allocator",
                    hint="write them as max_split_size_mb:128,expandable_segments:True",
                )
            name, value = match[1].lower(), match[2].strip()
            if name in _PARSERS:
                target, parse = _PARSERS[name]
                known[target] = _parsed(parse, name, value)
            elif name in _WITHOUT_EFFECT:
                ignored.append(name)
            else:
                raise UsageError(
                    f"the allocator does not have a setting {name!r}",
                    hint="it has " + ", ".join(sorted({*_PARSERS, *_WITHOUT_EFFECT})),
                )
            rest = rest[match.end() :]
        return cls(**known, ignored=tuple(ignored))  # type: ignore[arg-type]


def _parsed(parse: object, name: str, value: str) -> object:
    try:
        return parse(value)  # type: ignore[operator]
    except (ValueError, KeyError) as cause:
        raise UsageError(
            f"{value!r} is not a value of {name}", hint="PyTorch's notes on CUDA describe what it takes"
        ) from cause


def _parse_mebibytes(text: str) -> int:
    count = int(text)
    if count <= 0:
        raise ValueError(text)
    return count * MIB


def _parse_flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _parse_divisions(text: str) -> tuple[int, ...]:
    """One number for all sizes, or pairs such as `[256:1,512:2,>:4]`, from that many MiB on."""
    if not text.startswith("["):
        return (_power_of_two(text),) * _MOST_POWER
    divisions = [0] * _MOST_POWER
    last = 0
    for number, pair in enumerate(text.strip("[]").split(",")):
        bound, _, value = pair.partition(":")
        if bound.strip() == ">":
            divisions[last + 1 :] = [_power_of_two(value)] * (_MOST_POWER - last - 1)
            continue
        last = min(_power_of_two(bound).bit_length() - 1, _MOST_POWER - 1)
        if number == 0:
            divisions[:last] = [_power_of_two(value)] * last
        divisions[last] = _power_of_two(value)
    return tuple(divisions)


def _power_of_two(text: str) -> int:
    count = int(text)
    if count < 1 or count & (count - 1):
        raise ValueError(text)
    return count


_PARSERS = {
    "max_split_size_mb": ("max_split_nbytes", _parse_mebibytes),
    "expandable_segments": ("expandable_segments", _parse_flag),
    "roundup_power2_divisions": ("divisions", _parse_divisions),
    "large_segment_size_mb": ("large_segment_nbytes", _parse_mebibytes),
}
