"""Inputs of MLX models, and values for the primitives of a reproducer."""
