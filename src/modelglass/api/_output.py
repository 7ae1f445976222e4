"""Reports as text, pictures and files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from modelglass.api._flow import flow
from modelglass.api._models import require_extra
from modelglass.console import encodable
from modelglass.errors import UsageError
from modelglass.files import write_whole
from modelglass.gc_pause import paused_gc
from modelglass.renderers._escape import unspoken
from modelglass.report import Report

if TYPE_CHECKING:
    from modelglass.report import Comparison, Diff, Fit, Flow, Footprint, Scan
    from modelglass.report.codec import Document

Loaded = TypeVar("Loaded")


# By the command, and what `memory` makes of a recording.
NOUNS = (
    "inspect",
    "flow",
    "memory",
    "fit",
    "footprint",
    "compare",
    "diff",
    "stats",
    "scan",
    "unique",
    "snapshot",
)
_PAGES = {"text": "pages", "markdown": "pages", "csv": "tables"}  # what is made first, to be written so
_OTHERS = {"flow": ("mermaid", "dot", "svg"), "scan": ("sarif",)}
_NAMES = {"Report": "inspect", "Comparison": "compare", "MemorySnapshot": "snapshot"}  # others: their own
DRAWINGS = _OTHERS["flow"]  # of a report, what its flow can be drawn as


def _renderer(noun: str, format: str) -> Callable[..., str]:
    """A renderer that is imported when it is first called: a listing of a file must start at once."""

    @paused_gc()
    def render(*nouns: Any, **options: Any) -> str:
        if format == "json":
            text = _function("records" if noun == "unique" else "json", "render")(*nouns, **options)
        elif format == "html":
            text = _page(noun, nouns, options)
        elif format not in _PAGES:
            text = _function(f"flow.{format}" if format in DRAWINGS else format, "render")(*nouns, **options)
        else:
            if noun in ("inspect", "memory"):
                nouns = (_with_blocks(*nouns),)
            look = {name: options.pop(name) for name in ("width", "color") if name in options}
            if (noun, format) == ("inspect", "text"):
                options["width"] = look.get("width", 100)
            make = getattr(import_module(f"modelglass.page.{_PAGES[format]}"), noun)
            text = _function(f"pages.{format}", "render")(make(*nouns, **options), **look)
        return unspoken(text)

    return render


def _page(noun: str, nouns: Sequence[Any], options: Mapping[str, Any]) -> str:
    """One file for browsers, with what `--format json` gives inside."""
    if noun == "inspect":
        from modelglass.api._page import page

        return page(*nouns, **options)
    from modelglass.page import pages
    from modelglass.renderers.pages import html

    whole = {name: value for name, value in options.items() if name == "redact"}
    document = RENDERERS[noun]["json"](*nouns, **whole)
    if noun == "memory":
        nouns = (_with_blocks(*nouns),)
    return html.render(getattr(pages, noun)(*nouns, **options), document)


def _with_blocks(report: Report) -> Report:
    """The report with its equal blocks, which older ones do not name."""
    from modelglass.analyses.equal_blocks import with_blocks

    return with_blocks(report)


def _function(module: str, name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(f"modelglass.renderers.{module}"), name)
    return found


# How each noun is written in each format.
RENDERERS = {
    noun: {
        format: _renderer(noun, format)
        for format in ("text", "json", "markdown", "csv", "html", *_OTHERS.get(noun, ()))
    }
    for noun in NOUNS
}


def render(
    report: Report | Flow | Scan | Fit | Footprint | Comparison | Diff, format: str = "text", **options: Any
) -> str:
    """The report as "text", "json", "markdown", "csv" or "html", or its "memory" as text.

    A scan can be written as "sarif", too.
    How data flows through a model that ran is drawn as "mermaid", "dot" or "svg"; `depth` says how deep.

    >>> import torch
    >>> from modelglass.api import inspect
    >>> print(render(inspect(torch.nn.Linear(3, 8)), "text", width=60).splitlines()[2])
    (root)  Linear      32  100.0 %
    """
    renderers = {**_renderers_of(report)}
    if isinstance(report, Report) and report.memory is not None:
        renderers["memory"] = RENDERERS["memory"]["text"]
    if isinstance(report, Report):
        renderers |= {name: partial(_draw, RENDERERS["flow"][name]) for name in DRAWINGS}
    renderer = renderers.get(format)
    if renderer is None:
        raise UsageError(f"there is no format {format!r}", hint="formats are " + ", ".join(renderers))
    return renderer(report, **options)


def cell(noun: Any) -> str:
    """The noun as a piece of HTML for the cell of a notebook."""
    from modelglass.page import pages
    from modelglass.renderers.pages import cell as renderer

    name = _name_of(noun)
    shown = _with_blocks(noun) if name == "inspect" else noun
    return unspoken(renderer.render(getattr(pages, name)(shown)))


def _draw(renderer: Callable[..., str], report: Report, *, depth: int | None = None, **options: Any) -> str:
    return renderer(flow(report, depth=depth), **options)


def _renderers_of(noun: Any) -> Mapping[str, Callable[..., str]]:
    return RENDERERS[_name_of(noun)]


def _name_of(noun: Any) -> str:
    """The name of a noun in `RENDERERS`."""
    kind = type(noun).__name__  # a listing of a file does without the nouns that it has no use for
    name = _NAMES.get(kind, kind.lower())
    if name not in RENDERERS or not type(noun).__module__.startswith("modelglass.report."):
        raise UsageError(
            f"this is a {kind}, not a report",
            hint="render what mg.inspect, mg.flow, mg.fit, mg.scan, mg.compare or mg.diff returns",
        )
    return name


def show(report: Report | Flow | Scan | Fit | Footprint | Comparison | Diff, **options: Any) -> None:
    """Print the report as text, coloured and as wide as the terminal; in a notebook, show its page.

    Options are those of the text, and have it printed also in a notebook.
    """
    display = None if options else _notebook_display()
    if display is not None:
        display(report)
        return
    terminal = sys.stdout.isatty()
    defaults = {"width": _terminal_width() if terminal else 100, "color": terminal}
    sys.stdout.write(encodable(render(report, "text", **{**defaults, **options}), sys.stdout))


def _notebook_display() -> Callable[[Any], Any] | None:
    """What shows an object in the notebook that this runs in; None outside of one."""
    ipython: Any = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return None
    display: Callable[[Any], Any] = ipython.display.display
    return display


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


def save(noun: Document, path: str | os.PathLike[str]) -> None:
    """Write a report, or whatever a command gives, as JSON; the file is complete or not there."""
    from modelglass.report.codec import format_of

    if format_of(noun) is None:
        raise UsageError(
            f"this is a {type(noun).__name__}, not a report",
            hint="save what mg.inspect, mg.flow, mg.fit, mg.scan, mg.unique, mg.compare or mg.diff returns",
        )
    write_whole(Path(path), RENDERERS["inspect"]["json"](noun))


@overload
def load(path: str | os.PathLike[str]) -> Report: ...
@overload
def load(path: str | os.PathLike[str], kind: type[Loaded]) -> Loaded: ...
def load(path: str | os.PathLike[str], kind: type[Any] | None = None) -> Any:
    """Read what `save` or `--format json` wrote, equal to what was written; `kind` says which it must be."""
    from modelglass.targets import saved

    return saved.load(Path(path), kind)
