"""Inputs of torch models, and values for the operators of a reproducer."""
