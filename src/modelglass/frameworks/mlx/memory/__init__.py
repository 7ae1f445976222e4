"""The memory of a run of MLX, worked out from its graph or measured."""
