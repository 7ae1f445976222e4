"""What a configuration describes of a model, beside the tensors it belongs to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A model in numbers: its shape, its parameters, and what its attention cache takes.

    None: given by neither the configuration nor the tensors. The cache is that of one sequence, in the
    type the model computes in, as an engine keeps it: `kv_heads` heads and not their copies, and where
    attention reads a compressed latent vector, only that (`kv_cache_compressed`).
    """

    name: str | None = None  # the class that the configuration names
    model_type: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    context_length: int | None = None
    torch_dtype: str | None = None
    experts: int | None = None  # of one layer, those that are routed to
    experts_per_token: int | None = None
    total_params: int | None = None
    active_params: int | None = None  # that one token meets
    tied_output: bool | None = None  # True: the output weights are the embedding's, absent by design
    attention_layers: int | None = None  # that keep a cache, those with a window included
    windowed_layers: int | None = None  # of these, those that look back only `sliding_window` tokens
    sliding_window: int | None = None
    kv_cache_dtype: str | None = None
    kv_cache_nbytes_per_token: int | None = None  # while every layer's cache grows
    kv_cache_nbytes_per_token_beyond_window: int | None = None  # when windows are full
    kv_cache_compressed: bool = False
    kv_cache_reason: str | None = None  # why the cache's size is unknown

    def kv_cache_nbytes(self, tokens: int) -> int | None:
        """What the cache takes after that many tokens, or None when it is unknown.

        >>> mistral = Architecture(
        ...     sliding_window=4096,
        ...     kv_cache_nbytes_per_token=131072,
        ...     kv_cache_nbytes_per_token_beyond_window=0,
        ... )
        >>> mistral.kv_cache_nbytes(5000) == 131072 * 4096
        True
        """
        growing, lasting = self.kv_cache_nbytes_per_token, self.kv_cache_nbytes_per_token_beyond_window
        if growing is None or lasting is None:
            return None
        within = tokens if self.sliding_window is None else min(tokens, self.sliding_window)
        return growing * within + lasting * (tokens - within)
