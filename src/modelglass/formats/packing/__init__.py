"""Quantized weights in files: how they are packed, and the numbers that they stand for."""
