"""When each piece of memory was taken and given back during a run: all that memory figures follow from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from modelglass.report.model import Shape

VALUES_DECIDE = "what it takes depends on values"  # a reason why scratch that was measured is another one

MemoryPhase: TypeAlias = Literal["forward", "loss", "backward", "recompute", "optimizer"]
Category: TypeAlias = Literal[
    "parameters", "buffers", "inputs", "gradients", "optimizer_state", "activations", "temporaries"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One kernel that ran and may have taken memory: its name, the module and phase it belongs to.

    `scratch_nbytes` is what it took for itself while it ran, beyond its results; None: nobody measured it.
    """

    op: str
    module: str
    phase: MemoryPhase
    scratch_nbytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPiece:
    """A piece of memory: what it is held for, and the tensor in it.

    `name` is the parameter, buffer or input it holds, or whose gradient or optimizer state it is.
    """

    nbytes: int
    category: Category
    shape: Shape | None = None
    dtype: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage(MemoryPiece):
    """A piece of memory from the step that made it to the last step during which it lived.

    `born` is None when it was there before the first step, `died` when it is there after the last. `saved_by`
    is the module whose backward pass needs it; an input or a parameter can be needed as well.
    """

    born: int | None = None
    died: int | None = None
    saved_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """What one optimizer does after the backward pass; its storages count steps from the run's first one.

    `freed` are storages of the run itself that it gives back: their place in `Lifetimes.storages`, and the
    last step during which they live. `evaluates` says that the optimizer runs the model itself, as often as
    values tell it to.
    """

    steps: tuple[Step, ...]
    storages: tuple[Storage, ...]
    freed: Mapping[int, int] = field(default_factory=dict)
    evaluates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """The steps of a run in order, and every piece of memory that lived during it.

    `forward_steps` are those before the loss; without training, all. The optimizer's part is kept apart, so
    that one run answers for several optimizers. `missing` are kernels whose scratch could not be measured,
    each with the reason. `estimated` says that the framework may take memory at other moments than these:
    one that evaluates later works ahead of its kernels, as far as there is room.

    `later` are the training steps after the first, each kind once, where they are not the first one with the
    optimizer's state in place: the model keeps what a step made, or the optimizer does something else.
    `followed` are the steps that were taken, and `settled` says that every further one is like one of them.
    """

    steps: tuple[Step, ...]  # forward, loss and backward
    storages: tuple[Storage, ...]
    forward_steps: int
    tails: Mapping[str, OptimizerStep] = field(default_factory=dict)  # by the optimizer's name
    tells_saved: bool = True  # whether autograd reported what it saves for backward
    calibrated: bool = False
    estimated: bool = False
    missing: Mapping[str, str] = field(default_factory=dict)
    later: tuple[Lifetimes, ...] = ()
    other_gradients: tuple[str, ...] = ()  # kernels whose backward pass is another one while it is watched
    device: str | None = None  # whose kernels ran, "cpu" or "cuda"
    followed: int = 1
    settled: bool = True

    def with_optimizer(self, name: str) -> Lifetimes:
        """The whole step with that optimizer."""
        tail = self.tails[name]
        kept = list(self.storages)
        for index, step in tail.freed.items():
            kept[index] = replace(kept[index], died=step)
        return replace(
            self, steps=self.steps + tail.steps, storages=(*kept, *tail.storages), tails={name: tail}
        )

    def later_steps(self, name: str) -> tuple[Lifetimes, ...]:
        """Each kind of step after the first with that optimizer, from its beginning to its end."""
        if self.later:
            return tuple(each.with_optimizer(name) for each in self.later if name in each.tails)
        whole = self.with_optimizer(name)
        kept = (
            replace(each, born=None) if each.category == "optimizer_state" and each.died is None else each
            for each in whole.storages
        )
        return (replace(whole, storages=tuple(kept)),)
