"""Fake tensors: substitutes without data that behave as the user's tensors do."""
