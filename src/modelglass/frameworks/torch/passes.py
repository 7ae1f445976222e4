"""One forward pass, or one training step: forward, loss, backward and optimizer, as a user's loop has them.

The output and the loss are held until the step ends, as the variables of a training loop hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from modelglass.errors import UsageError
from modelglass.frameworks.request import Request
from modelglass.frameworks.torch import structure
from modelglass.frameworks.torch.describe import tensors_in
from modelglass.frameworks.torch.inputs import device_of, dtype_named
from modelglass.frameworks.torch.ledger import Ledger
from modelglass.frameworks.torch.optimizers import Factory, MasterWeights, factory, state_of
from modelglass.frameworks.torch.process import replace_here
from modelglass.frameworks.torch.recorder import Recorder
from modelglass.undo import UndoLog

ROUNDS = 2  # of gradient accumulation that are run: every later one is like the second


class Pass:
    """A pass or step of one model, told to a recorder and a ledger."""

    def __init__(self, model: nn.Module, request: Request, recorder: Recorder, ledger: Ledger) -> None:
        self._model = model
        self._request = request
        self._recorder = recorder
        self._ledger = ledger
        self.trained = True  # False: nothing in the model trains
        self.optimizer_problems: list[str] = []

    def take(self, args: tuple[Any, ...], kwargs: dict[str, Any], on_output: Callable[[Any], None]) -> None:
        """Call the model and show its output; go backward and take the optimizers' steps when asked."""
        call = partial(self._model, *args, **kwargs)
        with self._ledger.saving() if self._request.train else nullcontext():
            with self._autocast():
                output = call()
                with self._recorder.paused(), self._ledger.paused():
                    on_output(output)
                self._ledger.forward_ended()
                loss = self._loss(output)
            self._backward(loss)
            for _ in range(1, min(self._request.what_if.accumulate, ROUNDS)):
                with self._recorder.paused():  # the same again is no more of the model's work
                    with self._autocast():
                        output = call()
                        loss = self._loss(output)
                    self._backward(loss)
        self._ledger.declare("gradients", _gradients(self._model))
        self._ledger.run_ended()
        if self._request.train and self.trained:
            self._optimize()

    def _loss(self, output: Any) -> torch.Tensor | None:
        """What is minimised: what the user says, the model's own loss, or the sum of every output."""
        if not self._request.train:
            return None
        with self._recorder.ours(), self._ledger.phase("loss"):
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

    def _optimize(self) -> None:
        """Take a step with each optimizer, all from the same point."""
        given = self._request.optimizer
        if given is None:
            return
        on_copies = self._request.what_if.master_weights
        others = () if on_copies else self._request.other_optimizers  # a step on copies takes the gradients
        wanted = dict(map(factory, (*others, given)))
        named = {name: param for name, param in self._model.named_parameters() if param.requires_grad}
        for name, make in wanted.items():
            if on_copies:
                make = partial(MasterWeights, make=make)
            try:
                with self._recorder.paused(), self._ledger.tail(name):
                    optimizer = self._step(make, named)  # held until the tail ends
                    self._ledger.declare("optimizer_state", state_of(optimizer, named))
            except (Exception, SystemExit) as error:  # an optimizer of the user's own may raise anything
                self.optimizer_problems.append(f"{name} cannot take a step: {type(error).__name__}: {error}")

    def _step(self, make: Factory, named: Mapping[str, nn.Parameter]) -> Any:
        with self._ledger.before():
            optimizer = make(list(named.values()))
        if isinstance(optimizer, MasterWeights):
            optimizer.take_gradients()
            names = list(named)
            grads = ((names[index], gradient) for index, gradient in optimizer.gradients())
            self._ledger.declare("gradients", grads)
        optimizer.step()
        return optimizer

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = self._request.what_if.autocast
        if dtype is None:
            return nullcontext()
        return torch.autocast(device_of(self._model).type, dtype=dtype_named(dtype))


def checkpoint_modules(model: nn.Module, patterns: tuple[str, ...]) -> None:
    """Have modules run again in backward instead of saving; whoever borrowed the model undoes it."""
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


def show_random_states(log: UndoLog, ledger: Ledger) -> None:
    """Have the ledger told of states of the random generator, which no kernel makes.

    Activation checkpointing keeps one for each part that it will run again.
    """

    def seen(read: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        def get_rng_state() -> torch.Tensor:
            state = read()
            ledger.appeared(state)
            return state

        return get_rng_state

    replace_here(log, torch, "get_rng_state", seen)
