"""Options that several commands have. Each has one name, one meaning and one type in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import Decorated, option, options
from modelglass.cli._output import emit
from modelglass.cli._types import NewFile, Size, TargetName
from modelglass.errors import UsageError

width_option = option("--width", type=click.IntRange(40), help="Width of the text in columns.")

color_option = option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Whether text is coloured; auto: on a terminal, unless NO_COLOR is set.",
)

output_option = option("-o", "--output", type=NewFile(), metavar="FILE", help="Write to FILE, not to stdout.")

depth_option = option("--depth", type=click.IntRange(0), metavar="N", help="Levels of nesting to show.")

all_option = option("--all", "all_", is_flag=True, help="Show everything side by side, not only differences.")

top_option = option("--top", type=click.IntRange(1), metavar="N", help="Show only the first N rows.")

plot_option = option("--plot", type=NewFile(), metavar="FILE", help="Draw a picture: .png, .svg or .pdf.")


def format_option(formats: Iterable[str], default: str | None = "text") -> Callable[[Decorated], Decorated]:
    """The output format. Without a default it follows from the suffix of -o."""
    return option(
        "--format",
        "format_",
        type=click.Choice(list(formats)),
        default=default,
        show_default=default is not None or "by the suffix of -o, otherwise text",
        help="Output format.",
    )


def sort_option(
    figures: Sequence[str], default: str | None = None, *, unsorted: str = "the model's order"
) -> Callable[[Decorated], Decorated]:
    """The order of rows; without a default, `unsorted` describes the order without the option."""
    return option(
        "--sort",
        type=click.Choice(list(figures)),
        default=default,
        show_default=default is not None or unsorted,
        help="Sort rows by this figure, largest first.",
    )


def columns_option(names: Iterable[str]) -> Callable[[Decorated], Decorated]:
    """The columns of a table."""
    return option("--columns", metavar="NAMES", help=f"Columns to show, comma-separated: {', '.join(names)}.")


inputs_options = options(
    option(
        "--inputs",
        metavar="CODE",
        type=TargetName(),
        help="Function that returns the inputs (file.py::function), or auto (the default): by configuration "
        "or trying.",
    ),
    option(
        "--input",
        "specs",
        metavar="SPEC",
        multiple=True,
        help="An input: its shape (1x3x224x224, 2x16:int64, mask=2x16:bool), a value (scale=0.5, flag=true, "
        "mode=sum), several ([1x8,1x4]), a file (photo.png, x=values.npy), code (x=@file.py::function). "
        "Repeatable. Others are found by trying.",
    ),
)

budget_option = option(
    "--input-budget",
    "budget",
    type=click.FloatRange(min=0, min_open=True),
    default=api.SEARCH_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Time for finding inputs.",
)

no_run_option = option("--no-run", is_flag=True, help="Read the structure only; do not look for inputs.")

trust_option = option(
    "--trust",
    is_flag=True,
    help="Run any code that a configuration names. Otherwise only model classes of installed packages are "
    "built.",
)

run_option = option(
    "--run",
    type=click.Choice(["fake", "real", "none"]),
    default="fake",
    show_default=True,
    help="fake: compute nothing; real: compute on copies; none: read the structure only.",
)

stats_option = option("--stats", is_flag=True, help="Read every weight and show statistics.")

train_option = option("--train", is_flag=True, help="Run a training step, not only a forward pass.")

calibrate_option = option(
    "--calibrate", is_flag=True, help="Run each kernel once to measure its own scratch memory."
)


def parse_or_find(inputs: str | None, specs: tuple[str, ...], budget: float) -> Any:
    """What the two options give, completed by what is found."""
    given = parse_inputs(inputs, specs)
    if given is None:
        return api.Automatic(seconds=budget, needed=False)
    if given == api.AUTOMATIC:
        return api.Automatic(seconds=budget)
    return api.Automatic(given=given, seconds=budget) if specs else given


def parse_inputs(inputs: str | None, specs: tuple[str, ...], suffix: str = "") -> Any:
    """What the two options give together; None when neither is given."""
    if inputs and specs:
        raise UsageError(f"--inputs{suffix} and --input{suffix} cannot be combined", hint="give one of them")
    return inputs or api.parse_specs(specs) or None


LIST_LIMITS = "help"


def _list_limits(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    if LIST_LIMITS in given and not ctx.resilient_parsing:
        longest = max(map(len, api.LIMITS))
        emit("".join(f"{name:<{longest}}  {value:>13,}\n" for name, value in api.LIMITS.items()), None)
        ctx.exit()
    return given


limit_option = option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_list_limits,
    is_eager=True,
    help="Resource limit, for example tensors=100000. Repeatable. `--limit help` lists them.",
)


def parse_limits(given: tuple[str, ...]) -> dict[str, int] | None:
    """The limits that are given as NAME=VALUE, checked; None when there are none."""
    chosen = {}
    for each in given:
        name, _, text = each.partition("=")
        chosen[name] = int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
    api.check_limits(chosen)
    return chosen or None


DEFAULT_OPTIMIZER = "adamw"
NO_OPTIMIZER = "none"

optimizer_option = option(
    "--optimizer",
    metavar="NAME",
    help="Optimizer of the training step: adamw (default), sgd, adam8bit, file.py::factory, or none.",
)


def parse_optimizer(train: bool, name: str | None) -> str | None:
    """The optimizer that steps; None: there is none."""
    if name is not None and not train:
        raise UsageError("--optimizer needs a training step", hint="add --train")
    chosen = name or DEFAULT_OPTIMIZER
    return chosen if train and chosen != NO_OPTIMIZER else None


def device_memory_option(
    *, required: bool = False, group: str | None = None
) -> Callable[[Decorated], Decorated]:
    """The memory of a device."""
    return option(
        "--device-memory",
        aliases=("--memory",),
        type=Size(),
        metavar="SIZE",
        required=required,
        group=group,
        help="Memory of one device: 24GiB (powers of 1024), 24GB (powers of 1000), 512MiB, or bytes.",
    )
