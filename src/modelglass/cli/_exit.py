"""How a command ends: its exit code, and errors as people want to read them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from errno import EINVAL
from typing import Any

from modelglass.console import never_fail
from modelglass.errors import ForwardError, InspectError

STOPPED = 130  # as shells have it
MOST_NAMED = 200  # characters of a name
INCOMPLETE = 3  # what was asked for could not be found out
BROKEN = 3  # a bug of ours must not look like an answer (1) or wrong usage (2)


def exit_code(command: Callable[[], Any], *, debug: bool = False) -> Any:
    """The exit code of a command; what it raises is reported on stderr."""
    for stream in (sys.stdout, sys.stderr):
        never_fail(stream)  # a terminal without UTF-8 still gets its table
    try:
        return command()
    except InspectError as error:
        if debug:
            _traceback()
        if isinstance(error, ForwardError) and error.report is not None:
            _show_layers(error.report)
        _tell_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        write_stderr("stopped")
        return STOPPED
    except OSError as error:
        if _is_closed_pipe(error):
            # Whoever read the output has seen enough. Python must not complain again when it shuts down.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        # What a command reads is looked at in many places; a name that the system refuses is not a bug.
        if debug:
            _traceback()
        place = "" if error.filename is None else f"{str(error.filename)[:MOST_NAMED]!r}: "
        write_stderr(f"error: {place}{error.strerror or error}", "  hint: --debug shows where")
        return BROKEN
    except Exception:
        _traceback()
        write_stderr("error: this is a bug in modelglass; please report it with the lines above")
        return BROKEN


def _is_closed_pipe(error: OSError) -> bool:
    """Whether nobody reads the output any more; Windows calls that an invalid argument of no file."""
    on_windows = os.name == "nt" and error.errno == EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or on_windows


def end_of_run(report: Any, *, shown: bool) -> None:
    """End the command where the model raised; `shown`: its output has the reason already."""
    from modelglass import api

    try:
        api.require_complete(report)
    except ForwardError as error:
        if not shown:
            _tell_error(error)
        raise SystemExit(error.exit_code) from None


def tell_of_inputs(notes: Iterable[Any]) -> None:
    """Say that inputs were found, or not."""
    from modelglass import api

    told = [f"{each.severity}: {each.text}" for each in notes if each.code in api.OF_INPUTS]
    if told:
        write_stderr(*told)


def _show_layers(report: Any) -> None:
    """The layers up to the one that raised, where a command needs all of a run for its own output."""
    from modelglass import api

    write_stderr(*api.render(report, "text").splitlines(), "")


def _tell_error(error: InspectError) -> None:
    write_stderr(*f"error: {error.problem}".split("\n"), f"  hint: {error.hint}")


def _traceback() -> None:
    from traceback import format_exc

    write_stderr(*format_exc().splitlines())


def write_stderr(*lines: str) -> None:
    """Say something that is not the result. It may quote what a file holds, which nobody must obey."""
    from modelglass import api  # only now: the command has loaded it, or nothing has

    sys.stdout.flush()
    sys.stderr.write(f"{api.told(*lines)}\n")
