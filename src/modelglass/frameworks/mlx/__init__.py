"""MLX modules: structure, calls, primitives, observed without evaluating anything and without a trace."""
