"""PyTorch modules: structure, calls, operators, observed without a trace."""

from modelglass.frameworks.torch.process import seeded, untouched_process
from modelglass.frameworks.torch.reproduce import reproducer
from modelglass.frameworks.torch.session import (
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
