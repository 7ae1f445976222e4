"""Parameters and buffers told apart by what they are called: few files say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.report import Tensor

# Names that torch itself gives to what is not trained. Files do not say it.
BUFFERS = frozenset(
    {
        "running_mean",
        "running_var",
        "num_batches_tracked",
        "inv_freq",
        "original_inv_freq",
        "position_ids",
        "token_type_ids",
        "relative_position_index",
        "relative_coords_table",
        "masked_bias",
        "rotary_emb.cos_cached",
        "rotary_emb.sin_cached",
    }
)
_NOT_TRAINED = frozenset({"int64", "int32", "int16", "bool"})


def told_apart(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[str]]:
    """The tensors, those that are hardly trained marked as buffers; and the names of these."""
    guessed: list[str] = []
    result: list[Tensor] = []
    for tensor in tensors:
        if _is_buffer(tensor):
            guessed.append(tensor.name)
            tensor = replace(tensor, kind="buffer")
        result.append(tensor)
    return result, guessed


def _is_buffer(tensor: Tensor) -> bool:
    if tensor.kind != "parameter" or tensor.trainable is not None or tensor.packing is not None:
        return False
    return tensor.dtype in _NOT_TRAINED or tensor.name.rpartition(".")[2] in BUFFERS
