"""MLX modules: structure, calls, primitives, observed without evaluating anything and without a trace."""

from modelglass.frameworks.mlx.process import seeded, untouched_process
from modelglass.frameworks.mlx.reproduce import reproducer
from modelglass.frameworks.mlx.session import (
    accepts,
    folded,
    in_training,
    observe,
    sizes,
    unsaved,
    values,
    varied,
)

__all__ = [
    "accepts",
    "folded",
    "in_training",
    "observe",
    "reproducer",
    "seeded",
    "sizes",
    "unsaved",
    "untouched_process",
    "values",
    "varied",
]
