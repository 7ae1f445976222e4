"""Limits that a process sets itself before it reads what nobody trusts."""

from __future__ import annotations

from pathlib import Path

_PAGES = Path("/proc/self/statm")  # of Linux; elsewhere addresses are not memory


def confine(memory_nbytes: int) -> None:
    """No more memory than that, no file written, no core left behind."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limits
        return
    limits = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if _PAGES.exists():
        now = int(_PAGES.read_text().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = now + memory_nbytes
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


def unbounded() -> tuple[str, ...]:
    """What this system does not bound so."""
    try:
        import resource  # noqa: F401
    except ModuleNotFoundError:
        return ("memory", "writing")
    return () if _PAGES.exists() else ("memory",)
