"""What an MLX model is before it runs: modules, arrays, settings."""
