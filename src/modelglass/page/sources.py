"""Words that differ by where a model comes from: its framework, or the format of its file."""

from __future__ import annotations

_RUNS = {
    "fake": "fake tensors, nothing computed",
    "real": "real, on copies of every tensor",
    "none": "structure only (no inputs given)",
}
_OTHER_RUNS = {
    "mlx": {"fake": "lazy arrays, nothing evaluated", "real": "real, on the model's own arrays"},
    "vllm": {"real": "real, by the engine itself", "none": "structure only"},
}
_TYPES_ARE_IN = {"mlx": "mlx.core", "vllm": "torch"}
_ENGINES = {"vllm": "vLLM"}


def run_text(source: str, mode: str) -> str:
    """What a run was made on."""
    return _OTHER_RUNS.get(source, {}).get(mode, _RUNS[mode])


def engine_name(source: str) -> str:
    """What serves the model, as its makers write it."""
    return _ENGINES.get(source, source)


def dtype_text(source: str, name: str) -> str:
    """An element type as its framework writes it.

    >>> dtype_text("torch", "float32")
    'torch.float32'
    """
    return f"{_TYPES_ARE_IN.get(source, source)}.{name}"
