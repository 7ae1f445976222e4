"""One forward pass, or one training step: forward, loss, backward and optimizer, as a user's loop has them.

The output and the loss are held until the step ends, as the variables of a training loop hold them.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from modelglass.errors import UsageError
from modelglass.frameworks.shared.request import Request
from modelglass.frameworks.torch.describe import tensors_in
from modelglass.frameworks.torch.inputs.shapes import device_of, find_dtype
from modelglass.frameworks.torch.memory.tracker import MemoryTracker, named_tensors
from modelglass.frameworks.torch.observing.recorder import NEEDS_VALUES, Recorder
from modelglass.frameworks.torch.process import replace_here
from modelglass.frameworks.torch.structure import modules as structure
from modelglass.frameworks.torch.training.guesses import GUESSES, guessing
from modelglass.frameworks.torch.training.optimizers import (
    Factory,
    MasterWeights,
    given_to,
    make_factory,
    state_of,
)
from modelglass.frameworks.torch.training.rehearsal import STEPS, last_new_step
from modelglass.undo import UndoLog, raise_interruption

ROUNDS = 2  # of gradient accumulation that are run: every later one is like the second


class Pass:
    """A pass or step of one model, reported to a recorder and a memory tracker."""

    def __init__(
        self, model: nn.Module, request: Request, recorder: Recorder, tracker: MemoryTracker
    ) -> None:
        self._model = model
        self._request = request
        self._recorder = recorder
        self._tracker = tracker
        self._optimizers: dict[str, _Stepping] = {}
        self.trained = True  # False: nothing in the model trains
        self.optimizer_problems: dict[str, str] = {}  # by the optimizer's name

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any], on_output: Callable[[Any], None]) -> None:
        """Call the model and show its output; go backward and take the optimizers' steps when asked."""
        call = partial(self._model, *args, **kwargs)
        held = self._run(call, on_output)
        if self._request.train and self.trained and self._request.optimizer is not None:
            last = self._first_steps(call, held)
            del held
            self._later_steps(call, last)

    def _run(self, call: Callable[[], Any], on_output: Callable[[Any], None] | None = None) -> list[Any]:
        """Forward and backward; what a training loop has in its variables afterwards."""
        with ExitStack() as stack:
            if self._request.train:
                stack.enter_context(self._tracker.saving())
            if on_output is None:
                stack.enter_context(self._recorder.paused())  # the same again is no more of the model's work
            with self._autocast():
                output = call()
                if on_output is not None:
                    with self._recorder.paused(), self._tracker.paused():
                        on_output(output)
                self._tracker.end_forward()
                loss = self._loss(output)
            self._backward(loss)
            for _ in range(1, min(self._request.what_if.accumulate, ROUNDS)):
                with self._recorder.paused():
                    with self._autocast():
                        output = call()
                        loss = self._loss(output)
                    self._backward(loss)
        self._tracker.declare("gradients", _gradients(self._model))
        self._tracker.declare("parameters", named_tensors(self._model, "_parameters"))  # of exchanged data
        self._tracker.declare("buffers", named_tensors(self._model, "_buffers"))
        self._tracker.end_run()
        return [output, loss]

    def _loss(self, output: Any) -> torch.Tensor | None:
        """What is minimised: the user's loss, the model's own loss, or the sum of every output."""
        if not self._request.train:
            return None
        with self._recorder.ours(), self._tracker.phase("loss"):
            loss = _natural_loss(output) if self._request.loss is None else _own(self._request.loss, output)
            if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
                self.trained = False
                return None
            accumulate = self._request.what_if.accumulate
            return loss / accumulate if accumulate > 1 else loss

    def _backward(self, loss: torch.Tensor | None) -> None:
        if loss is not None:
            with self._recorder.backward():
                loss.backward()

    def _first_steps(self, call: Callable[[], Any], held: list[Any]) -> int | None:
        """Take a step with each optimizer, all from the same point; the last step that may be another one.

        None: nobody knows which that is.
        """
        on_copies = self._request.what_if.master_weights
        others = () if on_copies else self._request.other_optimizers  # a step on copies takes the gradients
        wanted = dict(map(make_factory, (*others, self._request.optimizer)))
        named = {name: param for name, param in self._model.named_parameters() if param.requires_grad}
        last: int | None = 1
        for name, make in wanted.items():
            try:
                with self._recorder.paused():
                    stepping, new = self._first_step(name, make, named, call, held)
            except (Exception, SystemExit) as error:  # an optimizer of the user's own may raise anything
                raise_interruption(error)
                text = f"{name} cannot take a step: {type(error).__name__}: {error}"
                self.optimizer_problems[name] = text
                continue
            self._optimizers[name] = stepping
            last = None if last is None or new is None else max(last, new)
        return last

    def _first_step(
        self,
        name: str,
        make: Factory,
        named: Mapping[str, nn.Parameter],
        call: Callable[[], Any],
        held: list[Any],
    ) -> tuple[_Stepping, int | None]:
        """The optimizer after its first step, and the last step that may be another one."""
        make = partial(MasterWeights, make=make) if self._request.what_if.master_weights else make
        try:
            stepping = self._try_first_step(name, make, named, call, held, None)
        except NEEDS_VALUES:
            found = []
            for number in GUESSES:
                with suppress(ArithmeticError):  # no number for this optimizer
                    stepping = self._try_first_step(name, make, named, call, held, number)
                    found.append(self._tracker.tail_profile(name))
            if len(found) < 2 or any(each != found[0] for each in found):
                self._tracker.forget_tail(name)
                raise
        if stepping.wants_closure:
            return stepping, None
        try:
            with self._tracker.paused(), guessing(stepping.guess):
                return stepping, last_new_step(make, named)
        except Exception as error:  # it does not work on a few of the parameters alone
            raise_interruption(error)
            return stepping, None

    def _try_first_step(
        self,
        name: str,
        make: Factory,
        named: Mapping[str, nn.Parameter],
        call: Callable[[], Any],
        held: list[Any],
        guess: float | None,
    ) -> _Stepping:
        with guessing(guess), self._tracker.tail(name):
            with self._tracker.before():
                optimizer = make(list(named.values()))
                self._tracker.add_base("optimizer_state", given_to(optimizer))
            stepping = _Stepping(optimizer, named, guess)
            self._step(stepping, call, held)  # held until the tail ends
        return stepping

    def _step(self, stepping: _Stepping, call: Callable[[], Any], held: list[Any]) -> None:
        optimizer, named = stepping.optimizer, stepping.named
        if isinstance(optimizer, MasterWeights):
            optimizer.take_gradients()
            names = list(named)
            grads = ((names[index], gradient) for index, gradient in optimizer.gradients())
            self._tracker.declare("gradients", grads)
        if stepping.wants_closure:
            held.clear()  # those of a closure are its own
            self._tracker.evaluates()
            optimizer.step(partial(self._evaluate, call))
        else:
            optimizer.step()
        self._tracker.declare("optimizer_state", state_of(optimizer, named))

    def _evaluate(self, call: Callable[[], Any]) -> torch.Tensor | None:
        """What an optimizer calls that looks at the model more than once in a step."""
        self._model.zero_grad()
        with self._tracker.unphased(), self._recorder.paused():
            with self._autocast():
                loss = self._loss(call())
            self._backward(loss)
        self._tracker.declare("gradients", _gradients(self._model))
        return loss

    def _later_steps(self, call: Callable[[], Any], last: int | None) -> None:
        """Take more steps where they are not the first one with what the optimizer made in it."""
        if not self._optimizers:
            return
        self._model.zero_grad()
        settles = last is not None and not self._keeps()
        number = 1
        while not settles or number < (last or 0):
            if number == STEPS:
                self._tracker.settles = settles
                return
            number += 1
            self._tracker.next_step()
            held = self._run(call)
            for name, stepping in self._optimizers.items():
                with self._recorder.paused(), guessing(stepping.guess), self._tracker.tail(name):
                    self._step(stepping, call, held)
            del held
            self._model.zero_grad()
            settles = settles or self._tracker.is_stable()
        self._tracker.settles = last != STEPS

    def _keeps(self) -> bool:
        """Whether the model holds something that its pass made."""
        if self._tracker.keeps():
            gc.collect()  # what only refers to itself may be gone at any moment
        return self._tracker.keeps()

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = self._request.what_if.autocast
        if dtype is None:
            return nullcontext()
        return torch.autocast(device_of(self._model).type, dtype=find_dtype(dtype))


class _Stepping:
    """An optimizer that takes steps with the model's parameters."""

    def __init__(self, optimizer: Any, named: Mapping[str, nn.Parameter], guess: float | None) -> None:
        self.optimizer = optimizer
        self.named = named
        self.guess = guess  # for numbers that it reads; None: it reads none that is not known

    @property
    def wants_closure(self) -> bool:
        """Whether it evaluates the model itself, as often as it likes."""
        step = self.optimizer.step
        try:
            parameters = inspect.signature(step).parameters
        except (TypeError, ValueError):
            return False
        return "closure" in parameters and parameters["closure"].default is inspect.Parameter.empty


def checkpoint_modules(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Have modules run again in backward instead of saving; the substitution of tensors undoes it."""
    chosen: dict[str, nn.Module] = {}
    for path, module in structure.walk(model):  # parents before children
        inside = any(path.startswith(f"{outer}.") for outer in chosen)  # runs again with what it is in
        if not inside and any(fnmatchcase(path, pattern) for pattern in patterns):
            chosen[path] = module
    if patterns and not chosen:
        raise UsageError(
            f"no module is named like {', '.join(patterns)}",
            hint='give patterns of module paths, such as "model.layers.*"',
        )
    for module in chosen.values():
        vars(module)["forward"] = partial(checkpoint, module.forward, use_reentrant=False)
    config = getattr(model, "config", None)
    if chosen and getattr(config, "use_cache", False):
        vars(config)["use_cache"] = False  # a cache would grow again when the blocks run again


def _own(loss: Callable[[Any], Any], output: Any) -> Any:
    """What the user's own loss gives; an error in it is not the model's."""
    try:
        return loss(output)
    except Exception as error:
        raise RuntimeError(f"the function given as loss= raised {type(error).__name__}: {error}") from error


def _natural_loss(output: Any) -> torch.Tensor | None:
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor):
        return own.sum() if own.dim() else own
    total = None
    for tensor in tensors_in(output):
        if tensor.requires_grad:
            part = (tensor.real if tensor.is_complex() else tensor).sum()
            total = part if total is None else total + part
    return total


def _gradients(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, param in model.named_parameters():
        if param.grad is not None:
            yield name, param.grad


def track_random_states(log: UndoLog, tracker: MemoryTracker) -> None:
    """Track states of the random generator, which no kernel makes.

    Activation checkpointing keeps one for each part that it will run again.
    """

    def seen(read: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        def get_rng_state() -> torch.Tensor:
            state = read()
            tracker.add_tensor(state)
            return state

        return get_rng_state

    replace_here(log, torch, "get_rng_state", seen)


def track_resizing(log: UndoLog, tracker: MemoryTracker) -> None:
    """Track storages that change their size without a kernel, as sharded weights do."""

    def seen(change: Callable[..., Any]) -> Callable[..., Any]:
        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = change(storage, size)
            tracker.resize_storage(storage)
            return result

        return resize

    replace_here(log, torch.UntypedStorage, "resize_", seen)
