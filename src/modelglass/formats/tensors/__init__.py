"""Tensors of checkpoints: where their values are, which module and which kind they belong to."""
