"""The memory of a run of torch: what takes it, and what is only estimated."""
