"""PyTorch modules: structure, calls, operators, observed without a trace."""

from modelglass.frameworks.torch.process import seeded
from modelglass.frameworks.torch.reproduce import reproducer
from modelglass.frameworks.torch.session import accepts, folded, observe, sizes, values

__all__ = ["accepts", "folded", "observe", "reproducer", "seeded", "sizes", "values"]
