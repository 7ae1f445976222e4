"""`modelglass memory TARGET`: how much memory does a pass or a training step take, and where?"""

from __future__ import annotations

from pathlib import Path

import click

from modelglass import api
from modelglass.cli._command import Command
from modelglass.cli._exit import INCOMPLETE, end_of_run, write_stderr
from modelglass.cli._files import (
    context_option,
    experts_option,
    is_of_files,
    refuse_for_runs,
    show_footprint,
)
from modelglass.cli._options import plot_option, sort_option, top_option
from modelglass.cli._progress import working
from modelglass.cli._target import GivenTarget, target_options
from modelglass.cli._view import View, view_options
from modelglass.cli._what_if import GivenRun, run_options

EPILOG = """\b
Examples:
  modelglass memory model.py::build --input 1x3x224x224
  modelglass memory config.json --train --batch-size 8
  modelglass memory model.py::build --inputs model.py::batch --train
  modelglass memory model.py::build --input 2x16:int64 --train --optimizer sgd --batch-size 64
  modelglass memory model.py::build --inputs model.py::batch --train --weights bfloat16 --master-weights
  modelglass memory model.py::build --inputs model.py::batch --train --recompute "model.layers.*"
  modelglass memory model.py::build --inputs model.py::batch --train --sharding fsdp3 --devices 8
  modelglass memory model.py::build --inputs model.py::batch --context 4096 --context 131072
  modelglass memory model.gguf --context 8k --context 32k
  modelglass memory model.py::build --input 1x3x224x224 --train --calibrate --plot timeline.png
  modelglass memory snapshot.pickle
"""


@click.command(name="memory", cls=Command, epilog=EPILOG)
@target_options
@run_options
@context_option
@experts_option
@sort_option(("nbytes",), unsorted="largest first; kernels of CSV as they ran")
@top_option
@plot_option
@view_options(api.RENDERERS["memory"])
def memory(
    given: GivenTarget,
    run: GivenRun,
    contexts: tuple[int, ...],
    experts_on_host: bool,
    sort: str | None,
    top: int | None,
    plot: Path | None,
    view: View,
) -> None:
    """Show the peak memory of a run.

    The run is a forward pass or, with --train, a training step. TARGET is a configuration (config.json,
    model.yaml), a saved report, or file.py::function or package.module:function that returns a model. Tensors
    are fake, and each is followed from the kernel that makes it until it is freed: the memory itself is not
    allocated, except with --calibrate, which runs one kernel at a time. --plot draws the timeline.

    Of a file or folder of weights nothing runs: weights count as they are stored, with a KV cache for each
    --context. Of a recording that torch.cuda.memory._dump_snapshot wrote, it shows what was held at the peak,
    and which code made it.
    """
    if plot is None and is_of_files(given, run):
        show_footprint(given, view, contexts=contexts, experts_on_host=experts_on_host, top=top)
        return
    refuse_for_runs(experts_on_host=experts_on_host)
    asked = given.build | run.options
    draw = None if plot is None else api.timeline_plotter(plot)
    with working() as progress:
        report = api.inspect_memory(
            *given.arguments,
            **asked,
            on_failure="report",
            progress=progress,
        )
        if draw is not None and not isinstance(report, api.MemorySnapshot) and report.memory is not None:
            progress("drawing")
            draw(report)
    if isinstance(report, api.MemorySnapshot):
        options = view.options({"sort": sort, "top": top})
        view.emit(api.RENDERERS["snapshot"][view.format_](report, **options))
        return
    options = view.options({"sort": sort, "top": top}, pages={"contexts": contexts})
    if report.run.failure is None or view.format_ != "csv":  # a table of what never happened would be empty
        view.emit(api.RENDERERS["memory"][view.format_](report, **options))
    view.tell_of_inputs(report.notes)
    if report.run.failure is None and report.memory is None:  # in JSON, which has a place for that
        write_stderr(*(f"{note.severity}: {note.text}" for note in report.notes if note.severity != "info"))
        raise SystemExit(INCOMPLETE)
    end_of_run(report, shown=view.shows_failure)
