"""How a command ends: its exit code, and errors as people want to read them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from modelglass.errors import InspectError

STOPPED = 130  # as shells have it
BROKEN = 3  # a bug of ours must not look like an answer (1) or wrong usage (2)


def exit_code(command: Callable[[], Any], *, debug: bool = False) -> Any:
    """The code that a command answers with; what it raises is told on stderr."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 still gets its table
    try:
        return command()
    except InspectError as error:
        if debug:
            _traceback()
        _tell(f"error: {_harmless(str(error))}")
        return error.exit_code
    except KeyboardInterrupt:
        _tell("stopped")
        return STOPPED
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python must not complain again when it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception:
        _traceback()
        _tell("error: this is a bug in modelglass; please report it with the lines above")
        return BROKEN


def _traceback() -> None:
    from traceback import print_exc

    print_exc()


def _harmless(message: str) -> str:
    """A message may quote what a file holds, which a terminal must not obey."""
    from modelglass import api  # only now: the command has loaded it, or nothing has

    return "\n".join(map(api.printable, message.split("\n")))


def _tell(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{text}\n")
