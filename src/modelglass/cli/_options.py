"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

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
