"""Whether an optimizer does in later steps what it does in the first, found on a few parameters.

Some change their arithmetic as they go: RAdam in its sixth step, others every so many. To take many steps
with all parameters would cost as many times as much; one parameter of each kind shows the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.torch.describe import unobserved
from modelglass.frameworks.torch.memory.tracker import MemoryTracker
from modelglass.frameworks.torch.observing.levels import watching_kernels
from modelglass.frameworks.torch.observing.recorder import Place
from modelglass.frameworks.torch.training.optimizers import Factory, MasterWeights
from modelglass.report import Storage

STEPS = 16  # that are looked at
FEW = 2  # elements in a dimension
_NAME = "rehearsal"


def last_new_step(make: Factory, named: Mapping[str, nn.Parameter]) -> int | None:
    """The number of the last step that holds other memory than all before it; None if unknown.

    The first step counts as if the optimizer's state had been there from its beginning. The last step that
    is looked at is an answer too: nobody knows what comes after it.
    """
    with unobserved():
        return _last_new_step(make, _few(named.values()))


def _last_new_step(make: Factory, few: list[nn.Parameter]) -> int | None:
    gradients = [param.grad for param in few]
    tracker = MemoryTracker(lambda: Place("", "optimizer"))
    tracker.add_base("parameters", ((str(at), param) for at, param in enumerate(few)))
    tracker.add_base("inputs", ((str(at), each) for at, each in enumerate(gradients) if each is not None))
    profiles: list[tuple[int, ...]] = []
    last = 1
    with watching_kernels(partial(tracker.on_kernel, run=lambda func, args, kwargs: func(*args, **kwargs))):
        optimizer: Any = None
        for number in range(1, STEPS + 1):
            for param, gradient in zip(few, gradients, strict=True):
                param.grad = gradient
            with tracker.tail(_NAME):
                if number == 1:
                    with tracker.before():
                        optimizer = make(few)
                    if not _works_on(optimizer, few):
                        return None
                if isinstance(optimizer, MasterWeights):
                    optimizer.take_gradients()
                optimizer.step()
            profile = _profile(*tracker.tail_parts(_NAME), first=number == 1)
            if profile not in profiles:
                profiles.append(profile)
                last = number
            tracker.next_step()
    return last


def _few(params: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    """One parameter of each kind, in small."""
    chosen = {(param.dtype, param.dim(), param.grad is None): param for param in params}
    return [_copy(param) for param in chosen.values()]


def _copy(param: nn.Parameter) -> nn.Parameter:
    """A real parameter of the same kind with few elements, so that its steps cost next to nothing."""
    shape = [min(size, FEW) for size in param.shape]
    copy = nn.Parameter(torch.full(shape, 0.5, dtype=param.dtype, device="cpu"))
    copy.grad = None if param.grad is None else torch.full_like(copy, 0.25)
    return copy


def _works_on(optimizer: Any, params: Sequence[nn.Parameter]) -> bool:
    """Whether these are its parameters, rather than those of a model that it knows from elsewhere."""
    groups = getattr(optimizer, "param_groups", ())
    given = {id(param) for param in params}
    return bool(groups) and all(id(each) in given for group in groups for each in group["params"])


def _profile(storages: Iterable[Storage], count: int, *, first: bool) -> tuple[int, ...]:
    """What was held before the step and at each moment where that changed."""
    changes = [0] * (count + 2)
    for each in storages:
        was_there = each.born is None or (first and each.died is None)
        changes[0 if was_there else each.born or 0] += each.nbytes
        if each.died is not None:
            changes[each.died + 1] -= each.nbytes
    held, profile = 0, []
    for change in changes:
        held += change
        profile.append(held)
    return tuple(nbytes for nbytes, _ in groupby(profile))
