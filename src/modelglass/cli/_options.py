"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from modelglass import api
from modelglass.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

width_option = click.option("--width", type=click.IntRange(40), help="Width of the text in columns.")

color_option = click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="auto: on a terminal, unless NO_COLOR is set.",
)

output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write here, not to stdout."
)


def format_option(formats: Iterable[str]) -> Callable[[Command], Command]:
    """What comes out: one of the formats, text unless said otherwise."""
    return click.option(
        "--format",
        "format_",
        type=click.Choice(list(formats)),
        default="text",
        show_default=True,
        help="What comes out.",
    )


def inputs_options(command: Command) -> Command:
    """What the model is called with: a function that makes it, or shapes."""
    by_code = click.option(
        "--inputs",
        metavar="CODE",
        help="Code that makes the inputs: file.py::function; auto: as the model's configuration says.",
    )
    by_shape = click.option(
        "--input",
        "specs",
        metavar="SPEC",
        multiple=True,
        help="An input by shape: 1x3x224x224, 2x16:int64, mask=2x16:bool. Repeatable.",
    )
    return by_code(by_shape(command))


trust_option = click.option(
    "--trust",
    is_flag=True,
    help="Run whatever a configuration names, also from its folder; else only model classes of installed "
    "packages are built.",
)


def config_options(command: Command) -> Command:
    """How a configuration becomes a model, where it does not say it itself."""
    by_code = click.option(
        "--builder",
        metavar="CODE",
        help="Code that builds the model from a configuration: file.py::function, called with all of it.",
    )
    by_key = click.option(
        "--model-key", metavar="KEY", help="Which part of a configuration is the model: a.b."
    )
    return by_code(by_key(trust_option(command)))


def given_inputs(inputs: str | None, specs: tuple[str, ...]) -> Any:
    """What the two options say together; None when neither is given."""
    if inputs and specs:
        raise UsageError("--inputs and --input exclude each other", hint="give one of them")
    return inputs or api.TensorSpec.parse_all(specs) or None


limit_option = click.option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    help="How much work a file may cause, such as tensors=100000; a wrong name lists all. Repeatable.",
)


def chosen_limits(given: tuple[str, ...]) -> dict[str, int] | None:
    """The limits that are given as NAME=VALUE, checked; None when there are none."""
    chosen = {}
    for each in given:
        name, _, text = each.partition("=")
        chosen[name] = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
    api.checked_limits(chosen)
    return chosen or None


DEFAULT_OPTIMIZER = "adamw"
NO_OPTIMIZER = "none"

optimizer_option = click.option(
    "--optimizer",
    metavar="NAME",
    help="With --train: adamw (the default), sgd, adam8bit (torch), file.py::factory, or none: no step.",
)


def chosen_optimizer(train: bool, name: str | None) -> str | None:
    """The optimizer that steps; None: there is none."""
    if name is not None and not train:
        raise UsageError("--optimizer is for a training step", hint="add --train")
    chosen = name or DEFAULT_OPTIMIZER
    return chosen if train and chosen != NO_OPTIMIZER else None
