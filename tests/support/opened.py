"""Models of configurations, open as commands open them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from modelglass.options import BuildOptions
from modelglass.targets import OpenModel, resolve


def build(path: Path, *, weightless: bool = True, **options: Any) -> AbstractContextManager[OpenModel]:
    """The model of a configuration."""
    return resolve(path, BuildOptions(**options)).to_run().open(weightless=weightless)
