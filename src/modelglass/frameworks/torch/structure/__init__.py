"""What a torch model is before it runs: modules, tensors, memory that they share, equal blocks."""
