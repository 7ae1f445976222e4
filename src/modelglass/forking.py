"""Whether this process can be copied, which some systems have no way to do."""

from __future__ import annotations

import os
import sys


def can_fork() -> bool:
    """Libraries of macOS may end a copy of a process that used them, so there it is not tried."""
    return hasattr(os, "fork") and sys.platform != "darwin"
