"""vLLM's classes without weights, in a process that is thrown away: here, and only here, vLLM is patched."""
