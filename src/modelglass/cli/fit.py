"""`modelglass fit TARGET --device-memory 24GiB`: does it fit, and what would make it fit?"""

from __future__ import annotations

import click

from modelglass import api
from modelglass.cli._command import Command, option
from modelglass.cli._files import (
    context_option,
    experts_option,
    is_of_files,
    refuse_for_runs,
    show_footprint,
)
from modelglass.cli._options import device_memory_option, sort_option, top_option
from modelglass.cli._progress import working
from modelglass.cli._target import GivenTarget, target_options
from modelglass.cli._view import View, view_options
from modelglass.cli._what_if import GivenRun, run_options

DOES_NOT_FIT = 1

EPILOG = """\b
Examples:
  modelglass fit model.py::build --input 1x3x224x224 --device-memory 512MiB
  modelglass fit config.json --device-memory 24GiB --train
  modelglass fit model.py::build --inputs model.py::batch --device-memory 24GiB --train
  modelglass fit model.py::build --inputs model.py::batch --device-memory 80GB --train --optimizer sgd
  modelglass fit config.json --device-memory 24GiB --train --sharding fsdp3 --devices 8
  modelglass fit model.gguf --device-memory 8GiB --context 8k
  modelglass fit model.gguf --device-memory 8GiB --context 8k --experts-on-host
  modelglass fit model.py::build --input 2x16:int64 --device-memory 24GiB --format json -o fit.json

\b
Exit codes:
  0  it fits
  1  it does not fit
  2  wrong usage
  3  the model could not be built or run
"""


@click.command(name="fit", cls=Command, epilog=EPILOG)
@target_options
@device_memory_option(required=True)
@run_options
@context_option
@experts_option
@option("--no-options", is_flag=True, help="Do not search for changes that would make it fit.")
@sort_option(("peak_nbytes", "left_nbytes"), unsorted="the least peak first")
@top_option
@view_options(api.RENDERERS["fit"])
def fit(
    given: GivenTarget,
    device_memory: int,
    run: GivenRun,
    contexts: tuple[int, ...],
    experts_on_host: bool,
    no_options: bool,
    sort: str | None,
    top: int | None,
    view: View,
) -> None:
    """Show whether a model fits into a device.

    Also finds the largest batch and sequence that fit, and changes that would make it fit. TARGET is a
    configuration (config.json, model.yaml), or file.py::function or package.module:function that returns a
    model. Sizes are searched for by runs on fake tensors, which do not allocate the memory.

    Of a file or folder of weights nothing runs: the answer is what its weights take as they are stored, with
    a KV cache for each --context. Of a GGUF file as many layers as have room are on the device, and the rest
    on the host.
    """
    if is_of_files(given, run):
        placed = show_footprint(
            given,
            view,
            contexts=contexts,
            experts_on_host=experts_on_host,
            top=top,
            device_memory=device_memory,
        )
        raise SystemExit(0 if placed.fits else DOES_NOT_FIT)
    refuse_for_runs(context=contexts, experts_on_host=experts_on_host)
    asked = given.build | run.options
    with working() as progress:
        found = api.fit(
            *given.arguments,
            device_memory=device_memory,
            **asked,
            options=not no_options,
            progress=progress,
        )
    options = view.options({"sort": sort, "top": top})
    view.emit(api.RENDERERS["fit"][view.format_](found, **options))
    view.tell_of_inputs(found.notes)
    if not found.fits:
        raise SystemExit(DOES_NOT_FIT)
