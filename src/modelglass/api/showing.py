"""Reports as text, pictures and files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from modelglass.api._flow import flow
from modelglass.api._models import require_extra
from modelglass.collector import without_gc
from modelglass.errors import UsageError
from modelglass.files import write_whole
from modelglass.renderers._escape import unspoken
from modelglass.report import Report

if TYPE_CHECKING:
    from modelglass.report import Comparison, Fit, Flow, Scan

Loaded = TypeVar("Loaded")


def _deferred(module: str, name: str) -> Callable[..., str]:
    """A renderer that is imported when it is first called: a listing of a file must start at once."""

    @without_gc()
    def render(*args: Any, **options: Any) -> str:
        renderer: Callable[..., str] = getattr(import_module(f"modelglass.renderers.{module}"), name)
        return unspoken(renderer(*args, **options))

    return render


RENDERERS = {name: _deferred(name, "render") for name in ("text", "json", "markdown")}
STATS_RENDERERS = {
    "text": _deferred("weights", "render"),
    "json": _deferred("json", "render"),
    "markdown": _deferred("weights", "render_markdown"),
}
UNIQUE_RENDERERS = {
    "text": _deferred("unique", "render"),
    "json": _deferred("unique", "render_json"),
    "csv": _deferred("unique", "render_csv"),
    "markdown": _deferred("unique", "render_markdown"),
}
MEMORY_RENDERERS = {
    "text": _deferred("memory", "render"),
    "json": _deferred("json", "render"),
    "markdown": _deferred("memory", "render_markdown"),
    "csv": _deferred("memory", "render_csv"),
}
FLOW_RENDERERS = {
    name: _deferred(f"flow.{name}", "render") for name in ("text", "mermaid", "dot", "svg", "json")
}
DRAWINGS = ("mermaid", "dot", "svg")  # of a report, what its flow can be drawn as
FIT_RENDERERS = {
    "text": _deferred("fit", "render"),
    "json": _deferred("fit", "render_json"),
    "markdown": _deferred("fit", "render_markdown"),
}
COMPARISON_RENDERERS = {
    "text": _deferred("comparison", "render"),
    "json": _deferred("comparison", "render_json"),
    "markdown": _deferred("comparison", "render_markdown"),
}
SCAN_RENDERERS = {
    "text": _deferred("scan", "render"),
    "json": _deferred("scan", "render_json"),
    "markdown": _deferred("scan", "render_markdown"),
    "csv": _deferred("scan", "render_csv"),
    "sarif": _deferred("sarif", "render"),
}


def render(report: Report | Flow | Scan | Fit | Comparison, format: str = "text", **options: Any) -> str:
    """The report as "text", "json" or "markdown", or its "memory" as text; a scan as "csv" and "sarif", too.

    How data flows through a model that ran is drawn as "mermaid", "dot" or "svg"; `depth` says how deep.

    >>> import torch
    >>> print(render(inspect(torch.nn.Linear(3, 8)), "text", width=60).splitlines()[2])
    (root)  Linear      32  100.0 %
    """
    renderers = {**_renderers_of(report)}
    if isinstance(report, Report) and report.memory is not None:
        renderers["memory"] = MEMORY_RENDERERS["text"]
    if isinstance(report, Report):
        renderers |= {name: partial(_drawn, FLOW_RENDERERS[name]) for name in DRAWINGS}
    renderer = renderers.get(format)
    if renderer is None:
        raise UsageError(f"there is no format {format!r}", hint="formats are " + ", ".join(renderers))
    return renderer(report, **options)


def _drawn(renderer: Callable[..., str], report: Report, *, depth: int | None = None, **options: Any) -> str:
    return renderer(flow(report, depth=depth), **options)


def _renderers_of(result: Any) -> Mapping[str, Callable[..., str]]:
    if isinstance(result, Report):
        return RENDERERS  # a listing of a file does without the nouns that it has no use for
    from modelglass.report import Comparison, Fit, Flow, Scan

    if isinstance(result, Comparison):
        return COMPARISON_RENDERERS
    if isinstance(result, Flow):
        return FLOW_RENDERERS
    if isinstance(result, Fit):
        return FIT_RENDERERS
    if isinstance(result, Scan):
        return SCAN_RENDERERS
    raise UsageError(
        f"this is a {type(result).__name__}, not a report",
        hint="render what mg.inspect, mg.flow, mg.fit, mg.scan or mg.compare_structure returns",
    )


def show(report: Report | Flow | Scan | Fit | Comparison, **options: Any) -> None:
    """Print the report as text, coloured and as wide as the terminal."""
    terminal = sys.stdout.isatty()
    defaults = {"width": _terminal_width() if terminal else 100, "color": terminal}
    sys.stdout.write(render(report, "text", **{**defaults, **options}))


def _terminal_width() -> int:
    return max(40, os.get_terminal_size(sys.stdout.fileno()).columns)


def plot(report: Report, path: str | os.PathLike[str]) -> None:
    """Draw the weights' distributions from a report with statistics: SVG or PDF by the suffix, else PNG."""
    plotter(path)(report)


def plot_memory(report: Report, path: str | os.PathLike[str]) -> None:
    """Draw what a run holds in memory, kernel by kernel: SVG or PDF by the suffix, else PNG."""
    timeline_plotter(path)(report)


def timeline_plotter(path: str | os.PathLike[str]) -> Callable[[Report], None]:
    """How to draw memory over a run to that file; what stands in the way is found now."""
    with require_extra("matplotlib", "drawing", extra="plots"):
        from modelglass.renderers import timeline
    return _plotter(timeline, path)


def plotter(path: str | os.PathLike[str]) -> Callable[[Report], None]:
    """How to draw a report to that file; what stands in the way is found now, not after weights are read."""
    with require_extra("matplotlib", "drawing", extra="plots"):
        from modelglass.renderers import plots
    return _plotter(plots, path)


def _plotter(renderer: ModuleType, path: str | os.PathLike[str]) -> Callable[[Report], None]:
    target = Path(path)
    format = renderer.known_format(target.suffix.removeprefix(".").lower() or "png")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {str(target)!r}: there is no such folder", hint="choose another file")
    return lambda report: write_whole(target, renderer.render(report, format=format))


def save(report: Report | Comparison, path: str | os.PathLike[str]) -> None:
    """Write the report or comparison as JSON; the file is complete or not there."""
    from modelglass.report import Comparison
    from modelglass.report.codec import dumps

    if not isinstance(report, (Report, Comparison)):
        raise _not_saved(report)
    with without_gc():
        text = unspoken(dumps(report))
    write_whole(Path(path), text)


def _not_saved(result: Any) -> UsageError:
    """What to do with something that is no report."""
    from modelglass.report import Fit, Flow, Scan

    kind = type(result).__name__
    rendered = isinstance(result, (Fit, Flow, Scan))
    hint = f'mg.render({kind.lower()}, "json") gives its JSON' if rendered else "save what mg.inspect returns"
    return UsageError(f"this is a {kind}, not a report", hint=hint)


@overload
def load(path: str | os.PathLike[str]) -> Report: ...
@overload
def load(path: str | os.PathLike[str], kind: type[Loaded]) -> Loaded: ...
def load(path: str | os.PathLike[str], kind: type[Any] | None = None) -> Any:
    """Read a report or comparison that `save` wrote, equal to the one saved; `kind` says which it must be."""
    from modelglass.targets import saved

    return saved.load(Path(path), kind)
