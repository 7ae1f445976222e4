"""What constants are called by which data are scaled: "label_offset" beside "label_scale"."""

from __future__ import annotations

CENTRES = frozenset({"offset", "offsets", "mean", "means", "shift", "shifts", "min"})
SPREADS = frozenset({"scale", "scales", "std", "stds", "var", "max"})
