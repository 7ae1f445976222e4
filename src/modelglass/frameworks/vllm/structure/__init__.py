"""The modules of vLLM: what their tensors are of the whole model."""
