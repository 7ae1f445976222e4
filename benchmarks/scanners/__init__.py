"""Scanners side by side: what they say of files that libraries wrote, and of files that are meant to harm."""
