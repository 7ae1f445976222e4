"""Runs the command line on bad files, in a process of its own, and tells what it did.

Reads one request a line, `{"commands": [[argument, ...], ...], "out": folder}`, and answers each with one
line: a list with an entry per command. What the first printed is left in `out` as `0.out` and `0.err`.

An audit hook writes down what Python itself reports: code that is run, modules that are imported, processes,
sockets, and files that are opened. `python runner.py MODULE:FUNCTION` calls another function than our `main`.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from typing import Any

# The parsers of templates and YAML import much when they are first needed, none of it for a file's sake.
import jinja2  # noqa: F401
import yaml  # noqa: F401

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FORBIDDEN = (
    "pickle.find_class",
    "os.system",
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "subprocess.Popen",
    "pty.spawn",
    "socket.",
    "urllib.Request",
    "ctypes.",
    "mmap.",  # a file that shrinks while it is mapped kills the process
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "os.utime",
    "os.setxattr",
    "shutil.",
    "tempfile.",
    "sqlite3.",
)
# Importing one of our own modules runs its code, too; what is imported is written down instead.
CODE = ("exec", "compile", "marshal.loads", "code.__new__", "function.__new__")


class Watch:
    """What happened while it was on."""

    def __init__(self) -> None:
        self.on = False
        self.clear()

    def clear(self) -> None:
        self.forbidden: list[str] = []
        self.imports: list[str] = []
        self.opened: list[str] = []

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "import":
            self.imports.append(str(args[0]))
        elif event.startswith(FORBIDDEN):
            self._found(event, args)
        elif event in CODE:
            if not _importing():
                self._found(event, args)
        elif event == "open":
            path, _mode, flags = args
            if isinstance(flags, int) and flags & WRITING:
                self._found("open for writing", args)
            elif not _importing():
                self.opened.append(_reached(path, flags))

    def _found(self, event: str, args: tuple[Any, ...]) -> None:
        self.forbidden.append(f"{event} {str(args)[:200]}")


def _reached(path: object, flags: object) -> str:
    """The file that is opened in the end, behind links that are followed."""
    if not isinstance(path, str | bytes | os.PathLike):
        return str(path)  # a descriptor
    if isinstance(flags, int) and flags & os.O_NOFOLLOW:
        return os.fsdecode(path)
    return os.path.realpath(os.fsdecode(path))


def _importing() -> bool:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


class Peak:
    """The most memory that the process held, since the last reset where the system can do that."""

    def reset(self) -> None:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def nbytes(self) -> int:
        # Not ru_maxrss: a new process starts with that of the one that started it.
        try:
            lines = Path("/proc/self/status").read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(main: Callable[[list[str]], None], args: list[str], printed: Path, watch: Watch) -> dict[str, object]:
    """Run one command; its output goes to the files `printed`.out and .err."""
    peak = Peak()
    watch.clear()
    with (
        open(f"{printed}.out", "w", encoding="utf-8", newline="") as out,
        open(f"{printed}.err", "w", encoding="utf-8", errors="backslashreplace", newline="") as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        peak.reset()
        start = time.process_time()
        watch.on = True
        code, trouble = _called(main, args)
        watch.on = False
        seconds = time.process_time() - start
    return {
        "args": args,
        "exit_code": code,
        "trouble": trouble,
        "seconds": seconds,
        "peak_nbytes": peak.nbytes(),
        "forbidden": watch.forbidden,
        "imports": watch.imports,
        "opened": watch.opened,
    }


def _called(main: Callable[[list[str]], None], args: list[str]) -> tuple[object, str | None]:
    try:
        main(args)
    except SystemExit as stop:
        return stop.code or 0, None
    except BaseException as trouble:  # noqa: BLE001 - it must reach the test, whatever it is
        return None, f"{type(trouble).__name__}: {trouble}"
    return 0, None


def serve(main: Callable[[list[str]], None]) -> None:
    watch = Watch()
    sys.addaudithook(watch.hook)
    answers = sys.stdout
    for line in sys.stdin:
        request = json.loads(line)
        out = Path(request["out"])
        results = [run(main, args, out / str(at), watch) for at, args in enumerate(request["commands"])]
        answers.write(json.dumps(results) + "\n")
        answers.flush()


if __name__ == "__main__":
    # Python puts this folder first, and its modules must not be found under their short names.
    sys.path[0] = str(Path(__file__).parents[1])
    module, _, function = (sys.argv[1] if len(sys.argv) > 1 else "modelglass.cli.main:main").partition(":")
    serve(getattr(importlib.import_module(module), function))
