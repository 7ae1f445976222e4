"""Runs of many blocks from runs of few, beside the same runs written out by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from modelglass.analyses.memory.extrapolation import extrapolate
from modelglass.analyses.memory.timeline import memory
from modelglass.report import Category, Lifetimes, MemoryPhase, OptimizerStep, Step, Storage

WIDTH, HIDDEN = 64, 256  # bytes


@dataclass
class Script:
    """A run that is written down kernel by kernel."""

    first: int = 0
    steps: list[Step] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)

    def before(self, name: str, nbytes: int = WIDTH, category: Category = "parameters") -> None:
        self.storages.append(Storage(nbytes=nbytes, category=category, name=name))

    def step(self, op: str, module: str = "", phase: MemoryPhase = "forward") -> int:
        self.steps.append(Step(op=op, module=module, phase=phase))
        return self.first + len(self.steps) - 1

    def make(self, nbytes: int, category: Category = "temporaries", **more: Any) -> int:
        """Memory of the last step; its index."""
        born = self.first + len(self.steps) - 1
        self.storages.append(Storage(nbytes=nbytes, category=category, born=born, **more))
        return len(self.storages) - 1

    def end(self, index: int) -> None:
        """It is given back while the last step runs."""
        self.storages[index] = replace(self.storages[index], died=self.first + len(self.steps) - 1)


def training_step(count: int, path: str = "net.layers") -> Lifetimes:
    """Blocks of two kernels: each output lives until the next block's backward pass is done."""
    run = Script()
    run.before("embed")
    for at in range(count):
        run.before(f"{path}.{at}.up", HIDDEN)
        run.before(f"{path}.{at}.down", HIDDEN)
    run.before("0", 8, "inputs")
    outputs, inner = _forward(run, count, path)
    forward_steps = len(run.steps)
    _backward(run, count, path, outputs, inner)
    tails = {"plain": _plain(len(run.steps), count), "stateful": _stateful(run, count, path)}
    return Lifetimes(
        steps=tuple(run.steps), storages=tuple(run.storages), forward_steps=forward_steps, tails=tails
    )


def _forward(run: Script, count: int, path: str) -> tuple[list[int], list[int]]:
    run.step("embed", "embed")
    mask = run.make(4)
    outputs = [run.make(WIDTH, "activations", saved_by=f"{path}.0")]
    inner = []
    for at in range(count):
        run.step("up", f"{path}.{at}")
        inner.append(run.make(HIDDEN, "activations", saved_by=f"{path}.{at}"))
        scratch = run.make(16)
        run.step("down", f"{path}.{at}")
        run.end(scratch)
        saved_by = f"{path}.{at + 1}" if at + 1 < count else "head"
        outputs.append(run.make(WIDTH, "activations", saved_by=saved_by))
        run.step("trace")  # of no module, between blocks
    run.step("head", "head")
    run.end(mask)
    return outputs, inner


def _backward(run: Script, count: int, path: str, outputs: list[int], inner: list[int]) -> None:
    run.step("loss", phase="loss")
    gradient = run.make(WIDTH)
    for at in reversed(range(count)):
        run.step("down_backward", f"{path}.{at}", "backward")
        run.make(HIDDEN, "gradients", name=f"{path}.{at}.down")
        run.step("accumulate", phase="backward")
        run.end(outputs[at + 1])
        run.step("up_backward", f"{path}.{at}", "backward")
        run.make(HIDDEN, "gradients", name=f"{path}.{at}.up")
        run.end(gradient)
        gradient = run.make(WIDTH)
        run.end(inner[at])
    run.step("embed_backward", "embed", "backward")
    run.end(outputs[0])
    run.end(gradient)


def _plain(first: int, count: int) -> OptimizerStep:
    """A kernel for each parameter, which makes nothing: what belongs to which block does not show."""
    script = Script(first)
    for _ in range(1 + 2 * count):
        script.step("add_", phase="optimizer")
    return OptimizerStep(steps=tuple(script.steps), storages=())


def _stateful(run: Script, count: int, path: str) -> OptimizerStep:
    """All states first, then all updates, each of which gives a gradient back."""
    script = Script(len(run.steps))
    names = ["embed", *(f"{path}.{at}.{part}" for at in range(count) for part in ("up", "down"))]
    for name in names:
        script.before(name, 2, "optimizer_state")
    for name in names:
        script.step("zeros", phase="optimizer")
        script.make(WIDTH if name == "embed" else HIDDEN, "optimizer_state", name=name)
    gradients = {each.name: index for index, each in enumerate(run.storages) if each.category == "gradients"}
    freed = {}
    held = None
    for name in names:
        at = script.step("sqrt", phase="optimizer")
        if held is not None:  # until the name is bound again
            script.end(held)
        held = script.make(WIDTH if name == "embed" else HIDDEN)
        script.step("update", phase="optimizer")
        if name in gradients:
            freed[gradients[name]] = at + 1
    return OptimizerStep(steps=tuple(script.steps), storages=tuple(script.storages), freed=freed)


@pytest.mark.parametrize(("few", "count"), [(3, 4), (3, 5), (3, 80), (5, 6), (5, 31)])
@pytest.mark.parametrize("path", ["net.layers", "", "a.0.b"])
def test_further_blocks_are_where_a_run_has_them(path: str, few: int, count: int) -> None:
    def run(blocks: int) -> Lifetimes:
        return training_step(blocks, path) if path else _bare(training_step(blocks, "layers"))

    found = extrapolate(run(few), run(few + 1), path, few, count)
    assert found == run(count)
    assert memory(found, optimizer="stateful") == memory(run(count), optimizer="stateful")


def _bare(run: Lifetimes) -> Lifetimes:
    """The same run of blocks that are the model's own children."""

    def name(text: str | None) -> str | None:
        return None if text is None else text.removeprefix("layers.")

    def storage(each: Storage) -> Storage:
        return replace(each, name=name(each.name), saved_by=name(each.saved_by))

    return replace(
        run,
        steps=tuple(replace(step, module=name(step.module) or "") for step in run.steps),
        storages=tuple(map(storage, run.storages)),
        tails={
            key: replace(tail, storages=tuple(map(storage, tail.storages))) for key, tail in run.tails.items()
        },
    )


def test_the_first_and_the_last_block_may_differ() -> None:
    def run(count: int) -> Lifetimes:
        script = Script()
        bias = None
        for at in range(count):
            if at == 0:
                script.step("bias", "layers.0")
                bias = script.make(4)
            script.step("work", f"layers.{at}")
            script.end(script.make(WIDTH))
            if at == count - 1:
                script.step("pool", f"layers.{at}")
                assert bias is not None
                script.end(bias)
        return Lifetimes(
            steps=tuple(script.steps), storages=tuple(script.storages), forward_steps=len(script.steps)
        )

    assert extrapolate(run(3), run(4), "layers", 3, 9) == run(9)


def changed(run: Lifetimes, change: Callable[[int, Storage], Storage]) -> Lifetimes:
    return replace(run, storages=tuple(change(index, each) for index, each in enumerate(run.storages)))


def _sized_by_count(count: int) -> Lifetimes:
    """Something is as large as the blocks are many."""
    return changed(
        training_step(count), lambda index, each: replace(each, nbytes=count) if each.nbytes == 4 else each
    )


def _every_other(count: int) -> Lifetimes:
    """Blocks of two kinds take turns."""
    odd = tuple(f"net.layers.{at}" for at in range(1, count, 2))
    return changed(
        training_step(count),
        lambda index, each: replace(each, nbytes=17) if (each.saved_by or "") in odd else each,
    )


def _held_by_the_third(count: int) -> Lifetimes:
    """What each block makes is held until the one after the next has run."""
    script = Script()
    made: list[int] = []
    for at in range(count):
        script.step("work", f"layers.{at}")
        if at >= 2:
            script.end(made[at - 2])
        made.append(script.make(WIDTH))
    return Lifetimes(
        steps=tuple(script.steps), storages=tuple(script.storages), forward_steps=len(script.steps)
    )


def _idle(count: int) -> Lifetimes:
    """Blocks that are there and do not run."""
    script = Script()
    for at in range(count):
        script.before(f"net.layers.{at}.weight")
    script.step("head", "head")
    return Lifetimes(steps=tuple(script.steps), storages=tuple(script.storages), forward_steps=1)


def _unordered(count: int) -> Lifetimes:
    run = training_step(count)
    return replace(run, storages=run.storages[::-1])


def _of_another_optimizer(count: int) -> Lifetimes:
    run = training_step(count)
    return replace(run, tails={f"optimizer {count}": run.tails["plain"]})


def _kept_by_the_short_run(count: int) -> Lifetimes:
    """One run gives something back that the other keeps."""
    keeps = count == 3
    return changed(
        training_step(count),
        lambda index, each: replace(each, died=None) if keeps and each.nbytes == 16 else each,
    )


@pytest.mark.parametrize(
    ("run", "path"),
    [
        (_sized_by_count, "net.layers"),
        (_every_other, "net.layers"),
        (_held_by_the_third, "layers"),
        (_idle, "net.layers"),
        (_unordered, "net.layers"),
        (_of_another_optimizer, "net.layers"),
        (_kept_by_the_short_run, "net.layers"),
        (training_step, "another.list"),
    ],
)
def test_a_run_that_is_not_regular_has_no_answer(run: Callable[[int], Lifetimes], path: str) -> None:
    assert extrapolate(run(3), run(4), path, 3, 12) is None


def test_fewer_blocks_than_were_run_are_no_question() -> None:
    assert extrapolate(training_step(3), training_step(4), "net.layers", 3, 3) is None
