"""Two models side by side: a port beside its original, a checkpoint beside the model that would load it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from modelglass.api._inspect import read_report, report_on_model, require_complete
from modelglass.api._models import BuiltModel, with_model
from modelglass.errors import ForwardError, InputsError, UsageError
from modelglass.gc_pause import paused_gc
from modelglass.options import SERVING, BuildOptions, ReadOptions, RunOptions
from modelglass.targets import Readable, Target, resolve

if TYPE_CHECKING:
    from modelglass.options import Progress
    from modelglass.report import Comparison, Report, Serving


def compare(
    a: Any,
    b: Any = None,
    *,
    inputs: Any = None,
    inputs_a: Any = None,
    inputs_b: Any = None,
    framework_a: str | None = None,
    framework_b: str | None = None,
    serving: Serving | None = None,
    trust: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Which parts of two models are each other's counterparts, and where they differ.

    Each is a module of any framework, an engine, code that builds one ("file.py::function"), a configuration,
    a checkpoint, a saved report or a report. Frameworks' own ways are understood: layouts of convolutions,
    biases that are kept as their sum, statistics that are buffers here and parameters there, weights that are
    joined, stacked or packed. With inputs, both run, and what their modules give is compared, too; `inputs_a`
    and `inputs_b` are for models that take them in different shapes.

    `framework_a` and `framework_b` say what a configuration is built with: "vllm" builds it as an engine
    would, and `serving` says for how many ranks; the tensors of one rank are compared as those of the whole
    model. Without `b`, the configuration is compared with itself, built with two frameworks. `trust=True`
    runs whatever a configuration names.

    >>> import torch
    >>> a = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> b = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2, bias=False))
    >>> found = compare(a, b)
    >>> found.same, [(pair.a, pair.deviations[0].code) for pair in found.differing]
    (False, [('2', 'bias')])
    """
    from modelglass.analyses.compare import compare as compare_models

    again = b is None
    if again and framework_a == framework_b:
        raise UsageError(
            "compare needs two models",
            hint='give a second model, or framework_b="vllm" (--framework-b vllm) for the same '
            "configuration as vLLM builds it",
        )
    if serving is not None and SERVING not in (framework_a, framework_b):
        raise UsageError(
            'serving options apply only to a configuration built with framework="vllm"',
            hint='specify which one: framework_a="vllm" or framework_b="vllm"',
        )
    sides = []
    for name, target, own, framework in (
        ("a", a, inputs_a, framework_a),
        ("b", a if again else b, inputs_b, framework_b),
    ):
        asked = BuildOptions(
            framework=framework, serving=serving if framework == SERVING else None, trust=trust
        )
        run = RunOptions(inputs=inputs if own is None else own)
        sides.append(
            _Side(name, _resolve(target, asked, run), run, framework, own is None and inputs is not None)
        )
    for side in sides:
        if isinstance(side.target, Readable):
            side.target.check_installed()
    (one, unsaved_a), (other, unsaved_b) = (_read_or_run(side, progress) for side in sides)
    with paused_gc():
        return compare_models(
            one.model,
            other.model,
            unsaved_a=unsaved_a,
            unsaved_b=unsaved_b,
            checkpoint_a=one.checkpoint,
            checkpoint_b=other.checkpoint,
            engine_a=one.engine,
            engine_b=other.engine,
        )


class _Side(NamedTuple):
    """One of the two, and how it is looked at."""

    name: str
    target: Target
    run: RunOptions
    framework: str | None
    shares_inputs: bool  # with the other one


def _resolve(target: Any, build: BuildOptions, run: RunOptions) -> Target:
    """One of the two; only a configuration has use for trust."""
    found = resolve(target, build, check=False)
    if isinstance(found, Readable) and run.needs_run:
        raise UsageError(
            f"{found} is compared as it is and cannot be called with inputs",
            hint="leave inputs out; to compare runs, give its config.json, or code that builds the model "
            "(file.py::function)",
        )
    found.check(replace(build, trust=False), run)
    return found


def _read_or_run(side: _Side, progress: Progress | None) -> tuple[Report, frozenset[str] | None]:
    """What is known of one of the two, with the buffers that its checkpoints do not have, if known."""
    options = ReadOptions()
    if isinstance(side.target, Readable):
        return read_report(side.target, options, progress), None

    def look(built: BuiltModel) -> tuple[Report, frozenset[str] | None]:
        report = report_on_model(built, side.run, options, progress)
        unsaved = built.adapter.non_persistent_names(built.native) if report.engine is None else None
        return require_complete(report), unsaved

    runnable = side.target.to_run()
    with _naming(side):
        return with_model(
            runnable, side.run, look, own_inputs=False, framework=side.framework, progress=progress
        )


@contextmanager
def _naming(side: _Side) -> Iterator[None]:
    """Say which of the two could not be run, and that each may have inputs of its own."""
    try:
        yield
    except (ForwardError, InputsError) as cause:
        own = "each may have inputs of its own: inputs_a and inputs_b, --input-a and --input-b"
        hint = f"{cause.hint}; {own}" if side.shares_inputs else cause.hint
        problem = f"of the two, {side.name} failed: {cause.problem}"
        if isinstance(cause, ForwardError):
            raise ForwardError(problem, hint=hint, report=cause.report) from cause
        raise InputsError(problem, hint=hint) from cause


compare_structure = compare  # the name it had before 0.2
