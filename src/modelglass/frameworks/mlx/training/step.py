"""One training step inside a trace: loss, gradients and optimizers' steps, of which nothing is evaluated.

As in a training loop, the loss and all gradients are held until the step ends; the model's output is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from modelglass.errors import UsageError
from modelglass.frameworks.mlx.training.optimizers import Factory, reset_state
from modelglass.frameworks.shared.describe import instances_in
from modelglass.frameworks.shared.foreign import foreign_errors
from modelglass.frameworks.shared.request import Request

Named = dict[str, mx.array]


@dataclass(frozen=True)
class StepResult:
    """What one optimizer's step made, by name: parameters, and state by the parameter it is of."""

    parameters: Named
    state: Sequence[tuple[str, mx.array]]


@dataclass
class TrainingStep:
    """A training step that was traced. `loss` is None when nothing in the model trains."""

    output: Any = None
    loss: mx.array | None = None
    gradients: Named = field(default_factory=dict)
    statistics: Named = field(default_factory=dict)  # arrays that the model itself replaced as it ran
    taken: dict[str, StepResult] = field(default_factory=dict)  # by the optimizer's name
    problems: list[str] = field(default_factory=list)

    def arrays(self) -> Iterator[mx.array]:
        """All that a traced function must return, always in the same order."""
        if self.loss is not None:
            yield self.loss
        yield from self.gradients.values()
        yield from self.statistics.values()
        for step in self.taken.values():
            yield from step.parameters.values()
            yield from (array for _, array in step.state)


def take_step(
    native: nn.Module,
    forward: Callable[[], Any],
    loss: Callable[[Any], Any] | None,
    factories: Mapping[str, Factory],
    on_substitutes: Callable[[Sequence[tuple[mx.array, mx.array]]], None] = lambda pairs: None,
) -> TrainingStep:
    """A step of a model whose arrays are a trace's substitutes; `forward` calls it, once.

    Gradients are taken by substitutes of the substitutes, which the model holds while `forward` runs:
    `on_substitutes` is shown each array with its own before. An error of the model's, or of the user's loss,
    passes through. The model is left with the arrays it had.
    """
    step = TrainingStep()
    parameters = find_trainable(native)
    before = _name_parameters(native)

    def run(given: Named) -> mx.array:
        on_substitutes([(parameters[name], given[name]) for name in parameters])
        _put_arrays(native, parameters, given)
        step.output = forward()
        step.statistics = _find_replaced(_name_parameters(native), {**before, **given})
        return _loss(step.output, loss)

    try:
        if parameters:
            # A dict that is given is filled with the substitutes, so it is one of our own.
            step.loss, step.gradients = mx.value_and_grad(run)(dict(parameters))
        else:
            run({})
    except _NothingTrainsError:
        step.loss, step.gradients = None, {}
    finally:
        nn.Module.update(native, tree_unflatten(list(before.items())), strict=False)
    if step.loss is not None:
        for name, make in factories.items():
            _step_optimizer(step, name, make, parameters)
    return step


def find_trainable(native: nn.Module) -> Named:
    """The arrays that train, each once, by its first name."""
    found: dict[int, tuple[str, mx.array]] = {}
    for name, array in name_arrays(native.trainable_parameters()):
        if mx.issubdtype(array.dtype, mx.inexact):
            found.setdefault(id(array), (name, array))
    return dict(found.values())


def name_arrays(tree: Any) -> Iterator[tuple[str, mx.array]]:
    """The arrays of one of MLX's trees, by their dotted paths."""
    flat: Any = tree_flatten(tree)
    return ((name, array) for name, array in flat if isinstance(array, mx.array))


def check_request(request: Request) -> None:
    """Refuse the changes of a run that MLX has no counterpart of."""
    what_if = request.what_if
    if what_if.weights is not None and request.mode == "real":
        raise UsageError(
            "a real run takes the weights as they are",
            hint="leave weights= away, or leave the run a fake one",
        )
    if what_if.autocast is not None:
        raise UsageError(
            "MLX has no autocast: every operator computes in the type of its arrays",
            hint=f"give the weights that type: weights={what_if.autocast!r}",
        )
    if what_if.recompute:
        raise UsageError(
            "recompute= cannot be worked out for MLX",
            hint="wrap the blocks in mlx.nn.utils.checkpoint and measure a real run",
        )
    if what_if.master_weights:
        raise UsageError(
            "MLX's optimizers keep no float32 copies of the weights", hint="leave master_weights away"
        )


class _NothingTrainsError(Exception):
    """There is nothing to minimise."""


def _name_parameters(native: nn.Module) -> Named:
    return dict(name_arrays(native.parameters()))


def _find_replaced(after: Named, before: Named) -> Named:
    """The arrays that the model has put in the place of others itself."""
    known = set(map(id, before.values()))
    return {name: array for name, array in after.items() if name in before and id(array) not in known}


def _put_arrays(native: nn.Module, parameters: Named, given: Named) -> None:
    """Put arrays where the model holds these, under every name that it holds them by."""
    new = {id(array): given[name] for name, array in parameters.items()}
    places = [(name, new[id(array)]) for name, array in _name_parameters(native).items() if id(array) in new]
    nn.Module.update(native, tree_unflatten(places), strict=False)


def _loss(output: Any, loss: Callable[[Any], Any] | None) -> mx.array:
    """What is minimised: the user's loss, the model's own loss, or the sum of every output."""
    if loss is not None:
        try:
            own = loss(output)
        except Exception as error:
            raise RuntimeError(
                f"the function given as loss= raised {type(error).__name__}: {error}"
            ) from error
    else:
        own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, mx.array):
        return own.sum() if own.ndim else own
    if loss is not None:
        raise _NothingTrainsError
    parts = [array.sum() for array in instances_in(output, mx.array) if _can_train(array)]
    if not parts:
        raise _NothingTrainsError
    return sum(parts[1:], parts[0])


def _can_train(array: mx.array) -> bool:
    return mx.issubdtype(array.dtype, mx.floating)


def _step_optimizer(step: TrainingStep, name: str, make: Factory, parameters: Named) -> None:
    """The step of one optimizer, from the same point as every other's."""
    with foreign_errors() as found:  # an optimizer of the user's own may raise anything
        optimizer = make()
        reset_state(optimizer)
        given = tree_unflatten(list(parameters.items()))
        optimizer.init(given)
        made = optimizer.apply_gradients(tree_unflatten(list(step.gradients.items())), given)
        state = list(_state(optimizer.state, parameters))
        step.taken[name] = StepResult(dict(name_arrays(made)), state)
    if isinstance(found.error, UsageError):
        raise found.error
    if found.error is not None:
        step.problems.append(f"{name} cannot take a step: {found.text}")


def _state(state: Any, parameters: Named) -> Iterator[tuple[str, mx.array]]:
    """Every array that an optimizer keeps from step to step, by the parameter's name."""
    for path, array in name_arrays(state):
        name = path
        while name and name not in parameters:
            name = name.rpartition(".")[0]
        yield name, array
