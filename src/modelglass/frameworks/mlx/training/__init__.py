"""Training steps of MLX and their optimizers."""
