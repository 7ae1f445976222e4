"""PyTorch modules: structure, calls, operators, observed without a trace."""

from modelglass.frameworks.torch.session import accepts, observe

__all__ = ["accepts", "observe"]
