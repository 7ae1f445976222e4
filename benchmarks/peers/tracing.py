"""What a tool leaves changed about a model, its inputs and the process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch._dynamo  # replaces functions of torch when it is imported, which no tool should be blamed for
from errors_said import said
from torch import nn

from fingerprint import fingerprint
from peers.asking import by_name
from peers.builders import Given, given, wrong_width
from peers.tools import TOOLS, run
from peers.traces import BARE, LOOKING, RAISING

Row = dict[str, Any]
TENSOR = (
    "identity",
    "type",
    "shape",
    "dtype",
    "device",
    "requires_grad",
    "version",
    "storage",
    "values",
    "gradient",
    "attributes",
)
PROCESS = {
    "torch rng": "torch's random state",
    "python rng": "Python's random state",
    "numpy rng": "NumPy's random state",
    "filters": "warning filters",
    "path": "sys.path",
    "hooks": "global hooks of torch",
}


class Subject(NamedTuple):
    """A model in the state in which a tool gets it."""

    model: nn.Module
    given: Given


def plain() -> Subject:
    return Subject(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), given(torch.randn(3, 4)))


def with_gradients() -> Subject:
    subject = plain()
    subject.model(*subject.given.args).sum().backward()
    return subject


def mixed_modes() -> Subject:
    """Training, with a norm that is kept in eval mode, as in fine-tuning."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    model[1].eval()
    return Subject(model, given(torch.randn(2, 3, 8, 8)))


def batch_norm() -> Subject:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return Subject(model, given(torch.randn(2, 3, 8, 8)))


def dropout() -> Subject:
    return Subject(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2)), given(torch.randn(3, 4)))


def raising() -> Subject:
    return Subject(wrong_width(), given(torch.randn(2, 3)))


MODELS: dict[str, Callable[[], Subject]] = {
    "plain": plain,
    "gradients": with_gradients,
    "mixed modes": mixed_modes,
    "batch norm": batch_norm,
    "dropout": dropout,
    RAISING: raising,
}
WORDS = {
    "plain": "`Sequential(Linear, ReLU, Linear)`",
    "gradients": "the same, with gradients from a step before",
    "mixed modes": "training, but for a batch norm in eval mode",
    "batch norm": "a batch norm in training mode",
    "dropout": "dropout in training mode, which draws random numbers",
    RAISING: "the third layer raises",
}


def trace(tool: str, name: str, folder: Path) -> Row:
    """What is not as it was after the tool was used on that model.

    It is used on another one first: what torch imports or sets up once, when first needed, is not its doing.
    """
    torch.manual_seed(0)
    originals = functions()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _used(tool, plain())
        subject = MODELS[name]()
        before = fingerprint(subject.model, *subject.given.args)
        error = _used(tool, subject)
        after = fingerprint(subject.model, *subject.given.args)
    replaced = sorted(key for key, value in functions().items() if originals.get(key, value) is not value)
    changed = list(dict.fromkeys(changes(before, after)))
    if replaced:
        changed.append(f"functions of torch replaced: {len(replaced)}, such as `{replaced[0]}`")
    return {"changed": changed, **({"error": error} if error else {})}


def functions() -> dict[str, Any]:
    """What torch's own names stand for."""
    return {
        f"{holder.__name__}.{name}": value
        for holder in (torch, nn.functional, torch.Tensor, nn.Module, nn.Linear, nn.Conv2d)
        for name, value in vars(holder).items()
        if callable(value)
    }


def _setup(tool: str) -> str:
    return "None" if tool == BARE else TOOLS[tool].setup


def _call(tool: str) -> str:
    if tool == BARE:
        return "model(*args, **kwargs)"
    calls = TOOLS[tool].calls
    return next(calls[question] for question in LOOKING if question in calls)


def _used(tool: str, subject: Subject) -> str:
    """Use the tool, and say what it raised."""
    model, (args, kwargs) = subject
    names = {"model": model, "args": args, "kwargs": kwargs, "named": by_name(model, subject.given)}
    try:
        run(_setup(tool), names)
        run(_call(tool), names)
    except Exception as error:  # noqa: BLE001 (a model that raises is one of the cases)
        return said(error)
    return ""


def changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """What differs between two fingerprints, in words."""
    for old, new in zip_longest(before["modules"], after["modules"]):
        if old is None or new is None:
            yield "number of modules"
            return
        yield from _of_module(old, new)
    if before["state_dict"] != after["state_dict"]:
        yield "keys of state_dict"
    if before["others"] != after["others"]:
        yield "the inputs"
    for key, value in before["process"].items():
        if value != after["process"][key]:
            yield PROCESS.get(key, key)


def _of_module(old: tuple[Any, ...], new: tuple[Any, ...]) -> Iterator[str]:
    if old[2] != new[2]:
        yield "classes of modules"
    if old[3] != new[3]:
        yield "train or eval mode"
    yield from _of_attributes({key: rest for key, *rest in old[4]}, {key: rest for key, *rest in new[4]})
    yield from _of_tensors("parameters", old[5], new[5])
    yield from _of_tensors("buffers", old[6], new[6])


def _of_attributes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """What a module keeps beside its tensors and its mode."""
    for what, keys in (("added", new.keys() - old.keys()), ("removed", old.keys() - new.keys())):
        if keys:
            yield f"attributes {what}: {', '.join(f'`{key}`' for key in sorted(keys))}"
    for key in sorted(old.keys() & new.keys()):
        if key in ("training", "_parameters", "_buffers") or old[key] == new[key]:
            continue
        yield "hooks left behind" if "hooks" in key else f"attribute `{key}`"


def _of_tensors(what: str, old: list[Any], new: list[Any]) -> Iterator[str]:
    if [key for key, _ in old] != [key for key, _ in new]:
        yield f"names of {what}"
        return
    for (_, one), (_, other) in zip(old, new, strict=True):
        if one == other:
            continue
        differing = [name for name, a, b in zip(TENSOR, one, other, strict=False) if a != b]
        with suppress(ValueError):  # a version goes up with the values, and says nothing more
            if "values" in differing:
                differing.remove("version")
        yield f"{what}: {', '.join(differing)}"
