"""Changes that may make a step fit: one by one, together, and over several devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import combinations
from math import log2
from typing import TYPE_CHECKING

from modelglass.analyses.memory.what_if import QUANTIZED
from modelglass.report.fit import Option, Sharding, WhatIf
from modelglass.report.model import Model

if TYPE_CHECKING:
    from modelglass.analyses.fit.planner import Planner

MOST_DEVICES = 2**10
SAVES = 0.01  # of the memory, an option at the least
DEVICES_A_HALF = 8  # that an option may take for each time that it halves the memory
COMBINATIONS = 3  # that fit, of those looked for
TRIED = 8  # combinations, fitting or not

_COMPANIONS = {"devices", "accumulate"}  # of another change, and none by themselves


class Options:
    """The changes that may make a step fit, each worked out."""

    def __init__(self, planner: Planner, device_nbytes: int, base: WhatIf, given_nbytes: int) -> None:
        self._planner, self._base = planner, base
        self._device_nbytes, self._given_nbytes = device_nbytes, given_nbytes

    def all(self) -> list[Option]:
        """Every one that saves something, and those that cannot run; what leaves most comes first."""
        singles = [self._option(change) for change in self._singles()]
        sharded = [self._least(self._base, kind) for kind in self._kinds()]
        found = [*singles, *filter(None, sharded), *self._combine(singles)]
        return sorted(filter(self._is_useful, found), key=self._rank)

    def _is_useful(self, option: Option) -> bool:
        return option.peak_nbytes is None or option.peak_nbytes <= self._given_nbytes * (1 - SAVES)

    def _is_worth_it(self, option: Option) -> bool:
        """Whether the devices are few for what they save: some for each half, or twice the least."""
        times = self._given_nbytes / max(option.peak_nbytes or self._given_nbytes, 1)
        devices = option.what_if.devices
        return times > 1 and devices <= max(DEVICES_A_HALF * log2(times), 2 * (times - 1))

    def _rank(self, option: Option) -> tuple[bool, int, int]:
        changes = len(changed_fields(option.what_if, self._base).keys() - _COMPANIONS)
        return option.peak_nbytes is None, option.peak_nbytes or 0, changes

    def _option(self, what_if: WhatIf) -> Option:
        figure = self._planner.figure(what_if)
        return Option(
            what_if=what_if,
            peak_nbytes=figure.nbytes,
            method=figure.method,
            fits=None if figure.nbytes is None else figure.fits(self._device_nbytes),
            problem=figure.problem,
            coverage=figure.coverage,
        )

    def _singles(self) -> Iterator[WhatIf]:
        """One change each, as far as it makes sense for this model."""
        base, planner = self._base, self._planner
        half = base.weights is None and _has_float32(planner.model)
        for name in planner.optimizers(base):
            yield replace(base, optimizer=name)
        if half:
            yield replace(base, weights="bfloat16")
        if planner.trains:
            yield from self._for_training(half=half)
        elif base.weights is None and planner.units.linear:
            yield from (replace(base, weights=weights) for weights in QUANTIZED)

    def _for_training(self, *, half: bool) -> Iterator[WhatIf]:
        base, planner = self._base, self._planner
        batch = planner.size("batch_size", base)
        if half and planner.optimizer is not None:
            yield replace(base, weights="bfloat16", master_weights=True)
        if half and base.autocast is None:
            yield replace(base, autocast="bfloat16")
        if planner.units.patterns and not base.recompute:
            yield replace(base, recompute=planner.units.patterns)
        if batch is not None and batch > 1:
            yield replace(base, batch_size=1, accumulate=base.accumulate * batch)

    def _kinds(self) -> tuple[Sharding, ...]:
        if self._base.sharding is not None:
            return ()
        kinds: tuple[Sharding, ...] = ("fsdp2", "fsdp3") if self._planner.trains else ("fsdp3",)
        return (*kinds, "tensor") if self._planner.units.matrices else kinds

    def _least(self, what_if: WhatIf, kind: Sharding) -> Option | None:
        """Over as few devices as fit, by powers of two; over those that come closest when none does.

        Shards are whole rows, so that from some number of devices on each more takes more; and there are no
        more parts of a layer than it has rows or heads. None: what many devices save is not worth them.
        """
        best, last = None, self._given_nbytes
        for count in range(1, MOST_DEVICES.bit_length()):
            option = self._option(replace(what_if, sharding=kind, devices=2**count))
            if option.peak_nbytes is None or option.peak_nbytes >= last:
                break
            last = option.peak_nbytes
            best = option if self._is_worth_it(option) else best
            if option.fits:
                break
        return best

    def _combine(self, singles: Iterable[Option]) -> Iterator[Option]:
        """Changes that save something and are not enough alone, together: pairs, else threes, else all."""
        useful = [
            option
            for option in singles
            if option.fits is False and (option.peak_nbytes or 0) < self._given_nbytes
        ]
        useful.sort(key=lambda option: option.peak_nbytes or 0)
        tried = 0
        for count in (2, 3):
            fitting = 0
            for what_if in self._unions(useful, count):
                if tried == TRIED or fitting == COMBINATIONS:
                    break
                tried += 1
                option = self._option(what_if)
                if option.fits:
                    fitting += 1
                    yield option
            if fitting:
                return
        if not any(option.fits for option in singles):
            yield from self._everything(useful)

    def _unions(self, useful: list[Option], count: int) -> Iterator[WhatIf]:
        """So many changes at once, those that save most first."""
        groups = sorted(
            combinations(useful, count), key=lambda group: sum(option.peak_nbytes or 0 for option in group)
        )
        seen = {option.what_if for option in useful}
        for group in groups:
            union = _union([option.what_if for option in group], self._base)
            if union is not None and union not in seen:
                seen.add(union)
                yield union

    def _everything(self, useful: list[Option]) -> Iterator[Option]:
        """All that goes together, and over as few devices as fit when that is not enough."""
        whole = self._base
        for option in useful:
            whole = _union([whole, option.what_if], self._base) or whole
        option = self._option(whole)
        if option.fits:
            yield option
        elif self._base.sharding is None and whole != self._base:
            yield from filter(None, [self._least(whole, "fsdp3")])


def _union(changes: list[WhatIf], base: WhatIf) -> WhatIf | None:
    """All the changes in one; None when two of them contradict each other."""
    together: dict[str, object] = {}
    for each in changes:
        chosen = changed_fields(each, base)
        if "weights" in chosen:
            chosen["master_weights"] = each.master_weights  # with copies or without is a choice of its own
        for name, value in chosen.items():
            if together.setdefault(name, value) != value:
                return None
    if "weights" in together and "autocast" in together:
        return None  # two ways to the same end
    return replace(base, **together)  # type: ignore[arg-type]


def changed_fields(what_if: WhatIf, base: WhatIf) -> dict[str, object]:
    return {
        field.name: getattr(what_if, field.name)
        for field in fields(WhatIf)
        if getattr(what_if, field.name) != getattr(base, field.name)
    }


def _has_float32(model: Model) -> bool:
    return any(
        tensor.kind == "parameter" and tensor.dtype in ("float32", "float64") for tensor in model.tensors
    )
