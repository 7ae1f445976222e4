"""Running engines of vLLM, their workers and their caches."""
