"""Where the browser's tests find what they need, and leave what they drew."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
PICTURES = _HERE / "pictures"  # to look at


def library(path: str) -> Path:
    """A script that npm installed."""
    found = _HERE / "node_modules" / path
    assert found.exists(), "these tests need libraries: npm install --prefix tests/browser --no-package-lock"
    return found
