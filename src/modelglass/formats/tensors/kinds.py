"""Parameters and buffers told apart by what they are called: few files say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from modelglass.report.scaling import CENTRES, SPREADS

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
        "cos_cached",
        "slope_rate",
        "query_decay",
        "key_decay",
        "diagonal_decay",
        "e_score_correction_bias",
        "sin_cached",
    }
)
_NOT_TRAINED = frozenset({"int64", "int32", "int16", "bool"})
# Words in the names of constants, which are more often buffers than parameters.
_CONSTANT = frozenset(
    (
        *(
            "offset",
            "offsets",
            "scales",
            "mean",
            "means",
            "std",
            "stds",
            "var",
            "min",
            "max",
            "stats",
            "count",
        ),
        *("mask", "affine", "constant", "constants", "buffer", "ema", "table", "cached", "freqs"),
    )
)
_PARAMETER = ("weight", "bias")


def classify_tensors(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[str]]:
    """The tensors, those that are hardly trained marked as buffers; and the names of these."""
    guessed: list[str] = []
    result: list[Tensor] = []
    scaling = _scaling(tensors)
    for tensor in tensors:
        if _is_buffer(tensor) or tensor.name in scaling:
            guessed.append(tensor.name)
            tensor = replace(tensor, kind="buffer")
        result.append(tensor)
    return result, guessed


def find_doubtful(tensors: Sequence[Tensor]) -> list[str]:
    """The names of those that count as parameters, and may well be buffers."""
    found: list[str] = []
    plain: set[tuple[str, int]] = set()  # names and ranks that leave no doubt: a model has few, often
    for tensor in tensors:
        if tensor.kind == "parameter" and tensor.trainable is None:
            like = tensor.name.rpartition(".")[2], len(tensor.shape or ())
            if like in plain and tensor.dtype not in _NOT_TRAINED:
                continue
            if may_be_buffer(tensor):
                found.append(tensor.name)
            elif tensor.packing is None:
                plain.add(like)
    return found


def is_buffer(tensor: Tensor) -> bool:
    """Whether its name or type says that it is not trained."""
    return tensor.dtype in _NOT_TRAINED or tensor.name.rpartition(".")[2] in BUFFERS


def is_named_as_parameter(tensor: Tensor) -> bool:
    """Whether it is called a weight or a bias, and has the shape of one: some masks are called so, too."""
    last = tensor.name.rpartition(".")[2]
    return any(word in last for word in _PARAMETER) and not (last == "bias" and len(tensor.shape or ()) > 2)


def may_be_buffer(tensor: Tensor) -> bool:
    """Whether it is likelier a buffer than a parameter, although nothing says it for sure."""
    if tensor.packing is not None or is_named_as_parameter(tensor):
        return False
    words = tensor.name.rpartition(".")[2].lower().split("_")
    return is_buffer(tensor) or words == ["bias"] or not _CONSTANT.isdisjoint(words)


def _is_buffer(tensor: Tensor) -> bool:
    if tensor.kind != "parameter" or tensor.trainable is not None or tensor.packing is not None:
        return False
    return is_buffer(tensor)


def _scaling(tensors: Sequence[Tensor]) -> frozenset[str]:
    """Pairs of vectors that scale data, such as "label_offset" and "label_scale": layers learn no such ones.

    Bare names are those of layers: "scale" beside "offset" is learned.
    """
    stems: dict[str, dict[str, Tensor]] = {}
    for tensor in tensors:
        stem, _, word = tensor.name.rpartition("_")
        if word in CENTRES or word in SPREADS:
            plain = tensor.kind == "parameter" and tensor.trainable is None and tensor.packing is None
            if plain and len(tensor.shape or ()) == 1 and stem.rpartition(".")[2]:
                stems.setdefault(stem, {})[word] = tensor
    return frozenset(
        tensor.name
        for pair in stems.values()
        if len(pair) == 2 and len({tensor.shape for tensor in pair.values()}) == 1
        if not pair.keys().isdisjoint(CENTRES) and not pair.keys().isdisjoint(SPREADS)
        for tensor in pair.values()
    )
