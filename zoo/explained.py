"""What people found when they looked into what is not as it should be, each by name."""

from __future__ import annotations

# Failures whose reason is known, by architecture and check.
EXPLAINED: dict[tuple[str, str], str] = {}

# Where attention and experts written out are other work than the model's own, and why: counted as built.
AS_BUILT: dict[str, str] = {}
