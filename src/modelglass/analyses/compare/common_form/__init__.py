"""Models as trees of parts, in one form for all frameworks."""
