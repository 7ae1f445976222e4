"""Two models side by side, part by part, whatever framework each was written in."""

from modelglass.analyses.compare.compare import compare

__all__ = ["compare"]
