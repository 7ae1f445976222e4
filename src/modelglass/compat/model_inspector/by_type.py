"""Which types of modules hold the parameters. Of files without code, types follow from names and shapes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from modelglass.compat.model_inspector.inspection import TypeCount

if TYPE_CHECKING:
    from modelglass.report import Counts, Model, Module, Shape, Tensor

WHOLE = 1000  # the shares of all rows together

_Known = tuple[str | None, bool]  # a type, and whether it is guessed
_Own = Mapping[str, "Tensor"]  # a module's own tensors by their last names

_CONVOLUTIONS = {3: "Conv1d", 4: "Conv2d", 5: "Conv3d"}
_RECURRENT = {1: "RNN", 3: "GRU", 4: "LSTM"}  # by how many gates share a matrix
# The weight of a layer, under the names that frameworks and packers have for it.
_WEIGHTS = ("weight", "weight_v", "original1", "weight_orig", "kernel", "qweight")
_EMBEDDING = re.compile(r"embed|embd|(?:^|[._])(?:wte|wpe|emb|shared|relative_attention_bias)(?:$|[._])")
_NORMS = (
    ("RMSNorm", re.compile("rms")),
    ("GroupNorm", re.compile("group_?norm|(?:^|[._])gn[0-9]*$")),
    ("LayerNorm", re.compile("layer_?norm|(?:^|[._])ln(?:_|[0-9]*$)")),
)


def by_type(model: Model, counts: Counts) -> tuple[TypeCount, ...]:
    """Each type with the parameters that its modules own, the most first; they add up to the total."""
    params: Counter[_Known] = Counter()
    holders: Counter[_Known] = Counter()
    tensors = {tensor.name: tensor for tensor in model.tensors}
    for module in model.modules:
        own = counts.by_module[module.path].own.params
        if own:
            known = _type_of(module, {name.rpartition(".")[2]: tensors[name] for name in module.tensors})
            params[known] += own
            holders[known] += 1
    ranked = sorted(params, key=lambda known: (-params[known], known[0] or "", known[1]))
    shares = _shares([params[known] for known in ranked])
    return tuple(
        TypeCount(
            type=known[0],
            params=params[known],
            permille=share,
            modules=holders[known],
            guessed=known[1],
        )
        for known, share in zip(ranked, shares, strict=True)
    )


def nbytes_by_dtype(model: Model, counts: Counts) -> dict[str, int]:
    """The bytes of parameters by their element type, each memory once, the most first."""
    found: Counter[str] = Counter()
    for tensor in model.tensors:
        if tensor.kind != "buffer" and tensor.name not in counts.tied:
            found[tensor.dtype] += tensor.nbytes or 0
    return dict(found.most_common())


def _shares(parts: Sequence[int]) -> list[int]:
    """Whole thousandths that add up: what rounding down leaves over goes to the largest remainders."""
    whole = sum(parts)
    if not whole:
        return [0] * len(parts)
    shares = [WHOLE * part // whole for part in parts]
    rest = [WHOLE * part % whole for part in parts]
    for index in sorted(range(len(parts)), key=lambda index: -rest[index])[: WHOLE - sum(shares)]:
        shares[index] += 1
    return shares


def _type_of(module: Module, own: _Own) -> _Known:
    if module.type:
        return module.type, False
    found = _by_names(own) or _by_weight(module.path.lower(), own)
    return found, found is not None


def _by_names(own: _Own) -> str | None:
    """Types whose tensors have names that nothing else has."""
    if "running_mean" in own or "running_var" in own:
        return "BatchNorm"
    if not own.keys().isdisjoint(("in_proj_weight", "in_proj_bias", "q_proj_weight")):
        return "MultiheadAttention"
    for name, suffix in (("weight_hh_l0", ""), ("weight_hh", "Cell")):
        if name in own:
            rows, width = (*_shape(own[name]), 0, 0)[:2]
            gates = _RECURRENT.get(rows // width) if width and not rows % width else None
            gates = "LSTM" if "weight_hr_l0" in own else gates
            return None if gates is None else gates + suffix
    return "Embedding" if "embedding" in own and len(_shape(own["embedding"])) == 2 else None


def _by_weight(path: str, own: _Own) -> str | None:
    """The type of a layer with one weight, by its dimensions and by what the layer is called."""
    weight = next((own[name] for name in _WEIGHTS if name in own), None)
    if weight is None:
        return "Norm" if "scale" in own and len(_shape(own["scale"])) == 1 and len(own) <= 2 else None
    rank = len(_shape(weight))
    place = path.rpartition(".")[2]
    if rank == 1:
        return _norm(place, weight)
    if rank == 2:
        return "Embedding" if _EMBEDDING.search(place) and "bias" not in own else "Linear"
    if rank == 3 and "exp" in place:
        return "Experts"  # a matrix for each of them
    return _CONVOLUTIONS.get(rank)


def _norm(place: str, weight: Tensor) -> str | None:
    """A weight of one dimension scales channels, which is what normalisations have."""
    if "act" in place or "relu" in place or weight.logical_numel == 1:
        return None
    return next((type for type, pattern in _NORMS if pattern.search(place)), "Norm")


def _shape(tensor: Tensor) -> Shape:
    shape = tensor.shape if tensor.packing is None else tensor.packing.logical_shape
    return shape or ()
