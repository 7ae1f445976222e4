"""PyTorch modules: structure, calls, operators, observed without a trace."""

from modelglass.frameworks.torch.session import accepts, observe, values

__all__ = ["accepts", "observe", "values"]
