"""Notes about a training step, for any framework."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from modelglass.frameworks.shared.request import Request
from modelglass.report import Note


def training_notes(
    request: Request, *, trained: bool, problems: Iterable[str], in_training: bool
) -> Iterator[Note]:
    """`problems` are those of optimizers; `in_training`: whether the model is in training mode."""
    if request.train and not trained:
        yield Note(
            code="nothing-trains",
            severity="warning",
            text=("no output depends" if request.loss is None else "the result of loss= does not depend")
            + " on a trainable parameter, so there was no backward pass",
        )
    for problem in problems:
        yield Note(code="optimizer-failed", severity="warning", text=problem)
    if request.train and not in_training:
        yield Note(
            code="train-in-eval-mode",
            text="backward was observed with the model in eval mode, as it was given; "
            "call model.train() first to see a training step",
        )
