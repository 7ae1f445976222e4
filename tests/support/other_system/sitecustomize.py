"""Python without what only Unix has, for every process that finds this file on its path.

The standard library has made its own choice by then: this is about what modelglass looks up.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile  # noqa: F401
from types import SimpleNamespace
from typing import Any

_CALLS = (
    "fork forkpty pread preadv pwrite pwritev killpg getuid geteuid getgid getegid sysconf confstr "
    "setsid getpgid mkfifo mknod posix_fadvise sched_getaffinity nice statvfs fchdir fchmod "
    "getloadavg set_blocking"
)
_FLAGS = "O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_SYNC O_DSYNC O_NOCTTY O_PATH O_NOATIME"
_SIGNALS = (
    "SIGKILL SIGALRM SIGVTALRM SIGHUP SIGUSR1 SIGUSR2 SIGPIPE SIGXCPU SIGXFSZ SIGCHLD SIGSTOP SIGTSTP "
    "SIGQUIT setitimer getitimer alarm ITIMER_REAL pause sigwait siginterrupt pthread_kill pthread_sigmask"
)
MODULES = "resource pwd grp fcntl termios tty pty syslog readline"
_opened, _stat, _readlink = os.open, os.stat, os.readlink


def _open(path: Any, flags: int, mode: int = 0o777) -> int:
    """No steps from an open folder, and no folder that can be opened."""
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)
    return _opened(path, flags, mode)


def _stat_by_path(path: Any, *, follow_symlinks: bool = True) -> os.stat_result:
    return _stat(path, follow_symlinks=follow_symlinks)


def _readlink_by_path(path: Any) -> Any:
    return _readlink(path)


def take_away() -> None:
    subprocess.signal = SimpleNamespace(**vars(signal))  # it has its own way to end a process on each system
    for module, names in ((os, f"{_CALLS} {_FLAGS}"), (signal, _SIGNALS), (select, "poll epoll")):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES.split():
        sys.modules[name] = None  # type: ignore[assignment]  # importing it fails
    os.open, os.stat, os.readlink = _open, _stat_by_path, _readlink_by_path  # type: ignore[assignment]
    os.supports_dir_fd.clear()
    os.supports_fd.clear()


take_away()
