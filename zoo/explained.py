"""Failures whose reason is known, by architecture: what an engineer found when looking into each."""

from __future__ import annotations

EXPLAINED: dict[str, str] = {}
