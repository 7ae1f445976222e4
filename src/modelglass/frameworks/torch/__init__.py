"""PyTorch modules: structure, calls, operators, observed without a trace."""
