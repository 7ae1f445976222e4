"""`model-inspector`: summary, flow and memory of a model, from a configuration or a checkpoint."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import click

from modelglass.cli._exit import write_stderr
from modelglass.cli._options import (
    NO_OPTIMIZER,
    budget_option,
    inputs_options,
    output_option,
    parse_or_find,
    trust_option,
    width_option,
)
from modelglass.cli._output import emit, width_of
from modelglass.cli._progress import working
from modelglass.cli.main import run
from modelglass.compat import model_inspector as inspector

NAME = "model-inspector"
FINDINGS, FAILED = 1, 3

EPILOG = """\b
Examples:
  model-inspector --config config.yaml
  model-inspector --config config.yaml --inputs model.py::batch
  model-inspector --config config.json --batch-size 8 --lang ko
  model-inspector --checkpoint best.pt
  model-inspector --checkpoint best.pt --builder model.py::build --inputs model.py::batch
  model-inspector --config config.yaml --checkpoint best.pt --verbose > model.txt

Exit codes: 0 done; 1 done, and the checkpoint lacks tensors or has others; 2 wrong usage; 3 something could
not be read, built or run, or a checkpoint's shapes are not the model's.
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A configuration: config.json or its folder, YAML or JSON with a model in it.",
)
@click.option(
    "--checkpoint", type=click.Path(path_type=Path), metavar="FILE", help="A file or folder of weights."
)
@click.option("--verbose", is_flag=True, help="Show every module, and lists in full.")
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    metavar="N",
    help=f"For memory; {inspector.BATCH_SIZE} by default.",
)
@click.option(
    "--lang", type=click.Choice(inspector.LANGUAGES), help="Of headings; by default from the locale."
)
@inputs_options
@budget_option
@click.option("--builder", metavar="CODE", help="Code that builds the model: file.py::function.")
@click.option("--model-key", metavar="A.B", help="Where in the configuration the model is.")
@trust_option
@click.option(
    "--optimizer",
    metavar="NAME",
    default=inspector.OPTIMIZER,
    show_default=True,
    help="Optimizer whose state is included: sgd, adam8bit, file.py::factory, or none.",
)
@click.option("--no-stats", is_flag=True, help="Do not read the checkpoint's weights.")
@width_option
@output_option
def model_inspector(
    config: Path | None,
    checkpoint: Path | None,
    verbose: bool,
    batch_size: int | None,
    lang: str | None,
    inputs: str | None,
    specs: tuple[str, ...],
    budget: float,
    builder: str | None,
    model_key: str | None,
    trust: bool,
    optimizer: str,
    no_stats: bool,
    width: int | None,
    output: Path | None,
) -> None:
    """Show what a model is, how data flows through it, and what training it takes in memory.

    With --config the model is built, without weights where that can be. With --checkpoint its file is read,
    and nothing in it is run. With both, the weights of the checkpoint are compared to those of the model.
    """
    if config is None and checkpoint is None:
        raise click.UsageError("give --config FILE, --checkpoint FILE, or both")
    is_run = inputs or specs or config is not None or builder is not None
    given = parse_or_find(inputs, specs, budget) if is_run else None
    with working(NAME) as progress:
        question = inspector.Question(
            config=config,
            checkpoint=checkpoint,
            builder=builder,
            model_key=model_key,
            trust=trust,
            inputs=given,
            batch_size=batch_size,
            optimizer=None if optimizer == NO_OPTIMIZER else optimizer,
            stats=not no_stats,
            progress=progress,
        )
        found = inspector.inspect_model(question)
    text = inspector.render(
        found, language=lang or _language(), width=width_of(width, output), verbose=verbose
    )
    _write_utf8()
    emit(text, output)
    _end(found)


def _end(found: Any) -> None:
    """Tell what failed, and leave with the code for it."""
    for failure in found.failures:
        write_stderr(*f"error: {failure}".split("\n"))
    if found.failures:
        raise SystemExit(FAILED)
    if found.matching is not None and not found.matching.complete:
        raise SystemExit(FINDINGS)


def _language() -> str:
    """Korean where the locale is."""
    said = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "ko" if re.match(r"ko(?:[_.@]|$)", next(filter(None, said), "")) else "en"


def _write_utf8() -> None:
    """A file that the output is redirected to is UTF-8 whatever the locale; a terminal is as it is."""
    stream: Any = sys.stdout
    if not stream.isatty() and hasattr(stream, "reconfigure") and not os.environ.get("PYTHONIOENCODING"):
        stream.reconfigure(encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code."""
    run(model_inspector, NAME, arguments)
