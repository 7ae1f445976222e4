"""Weights whose stored elements are not the weights: how many there really are, and what they take.

Each layout is read by its documented shape rules, from the tensors themselves where possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.torch.privates import is_traceable_wrapper_subclass
from modelglass.frameworks.torch.structure.regions import Region
from modelglass.report import Packing

EXPANDED = "expanded"  # the scheme of a tensor of which elements lie in the same place
Own = Mapping[str, torch.Tensor]  # a module's own tensors by local name


def find_packing(name: str, tensor: torch.Tensor, own: Own) -> Packing | None:
    """How `tensor`, called `name` among its module's `own` tensors, is packed; None when it is plain."""
    for layout in _LAYOUTS:
        packing = layout(name, tensor, own)
        if packing is not None:
            return packing
    return None


def find_hidden_weights(native: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights that torch keeps inside opaque packed objects, where `parameters()` does not see them."""
    if "_all_weight_values" in native._modules:  # dynamically quantized RNNs
        module: Any = native
        yield from module.get_weight().items()
        yield from module.get_bias().items()
    elif isinstance(native, torch.jit.ScriptModule):
        yield from _frozen_weights(native)
    else:
        for key, value in vars(native).items():
            if isinstance(value, torch.ScriptObject) and hasattr(value, "unpack"):
                suffix = key.removeprefix("_packed").removeprefix("_params").removeprefix("_weight")
                for kind, tensor in unpack(value):
                    yield kind + suffix, tensor


def _frozen_weights(native: torch.jit.ScriptModule) -> Iterator[tuple[str, torch.Tensor]]:
    """What `torch.jit.freeze` made constants of the code."""
    graph: Any = getattr(native, "graph", None)
    if hasattr(native, "training") or graph is None:
        return
    for node in graph.findAllNodes("prim::Constant"):
        if node.hasAttribute("value") and node.kindOf("value") == "t":
            yield node.output().debugName().removeprefix("self."), node.t("value")


def unpack(packed: Any) -> list[tuple[str, torch.Tensor]]:
    """The "weight" and, where there is one, the "bias" inside a packed object."""
    content = packed.unpack()
    parts = content if isinstance(content, tuple) else (content,)
    named = zip(("weight", "bias"), parts, strict=False)
    return [(kind, part) for kind, part in named if isinstance(part, torch.Tensor)]


def _stored_nbytes(tensor: torch.Tensor) -> int:
    """Bytes a tensor takes, those inside a wrapper included."""
    if not is_traceable_wrapper_subclass(tensor):
        return tensor.numel() * tensor.element_size()
    return sum(map(_stored_nbytes, find_wrapped_parts(tensor)))


def find_wrapped_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors inside a wrapper; some list meshes and empty places among them."""
    inner, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
    parts = (getattr(tensor, name, None) for name in inner)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _read_wrapped(name: str, tensor: torch.Tensor, own: Own) -> Packing | None:
    """Tensor subclasses that show the logical shape and keep packed parts inside."""
    if not is_traceable_wrapper_subclass(tensor) or tensor.is_nested:
        return None
    scheme = type(tensor).__name__
    shards = _shards(tensor)
    return Packing(
        scheme=scheme, logical_shape=tuple(tensor.shape), nbytes=_stored_nbytes(tensor), shards=shards
    )


def _shards(tensor: torch.Tensor) -> int | None:
    """In how many parts a mesh of devices shares a tensor; None: a device has all of it."""
    mesh, placements = getattr(tensor, "device_mesh", None), getattr(tensor, "placements", ())
    divided = [at for at, placement in enumerate(placements) if placement.is_shard()]
    return prod(mesh.size(at) for at in divided) if mesh is not None and divided else None


def _bitsandbytes(name: str, tensor: torch.Tensor, own: Own) -> Packing | None:
    """4-bit parameters: two weights a byte, the logical shape in `quant_state`."""
    state: Any = getattr(tensor, "quant_state", None)
    if state is None or tensor.dtype is not torch.uint8:
        return None
    scheme = f"bitsandbytes-{getattr(state, 'quant_type', '4bit')}"
    nbytes = _stored_nbytes(tensor) + _stored_nbytes(state.absmax)
    return Packing(scheme=scheme, logical_shape=tuple(state.shape), nbytes=nbytes)


def _gptq_or_awq(name: str, tensor: torch.Tensor, own: Own) -> Packing | None:
    """int32 words: GPTQ packs the input dimension, AWQ the output dimension.

    `qzeros` is packed along the outputs in both, and `scales` is not packed: their ratio is the bit width.
    """
    if name != "qweight" or not {"qzeros", "scales"} <= own.keys():
        return None
    if not tensor.dim() == own["qzeros"].dim() == own["scales"].dim() == 2:
        return None
    words, outputs = own["qzeros"].shape[-1], own["scales"].shape[-1]
    bits = 32 * words // outputs if outputs else 0
    if not bits:
        return None
    rows, columns = tensor.shape
    packs_inputs = columns == outputs
    inputs = rows * 32 // bits if packs_inputs else rows
    side = sum(_stored_nbytes(own[key]) for key in ("qzeros", "scales", "g_idx") if key in own)
    return Packing(
        scheme=f"{'gptq' if packs_inputs else 'awq'}-{bits}bit",
        logical_shape=(outputs, inputs),
        nbytes=_stored_nbytes(tensor),
        side_nbytes=side,
    )


def _mxfp4(name: str, tensor: torch.Tensor, own: Own) -> Packing | None:
    """Blocks of 32 four-bit values in 16 bytes, with one scale byte a block beside them."""
    scales = own.get(name.removesuffix("_blocks") + "_scales")
    if not name.endswith("_blocks") or scales is None or tensor.dtype is not torch.uint8 or tensor.dim() < 2:
        return None
    *outer, blocks, width = tensor.shape
    return Packing(
        scheme="mxfp4",
        logical_shape=(*outer, blocks * width * 2),
        nbytes=_stored_nbytes(tensor),
        side_nbytes=_stored_nbytes(scales),
    )


def _read_expanded(name: str, tensor: torch.Tensor, own: Own) -> Packing | None:
    """One element in many places, of a buffer as of a weight."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_contiguous():
        return None
    region = Region.of(tensor)
    nbytes = region.nbytes
    if nbytes >= tensor.numel() * tensor.itemsize:
        return None
    return Packing(scheme=EXPANDED, logical_shape=tuple(tensor.shape), nbytes=nbytes)


_LAYOUTS = (_read_wrapped, _bitsandbytes, _gptq_or_awq, _mxfp4, _read_expanded)
