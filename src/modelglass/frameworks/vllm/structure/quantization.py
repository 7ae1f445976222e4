"""Quantized layers of vLLM: which of their tensors is the weight, and what it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from modelglass.frameworks.vllm.structure.stored_tensor import StoredTensor
from modelglass.report import Tensor

# The stored weight by name, the surest first; what begins with a projection's name is looked up without it.
_WEIGHTS = ("qweight", "weight_packed", "weight", "W_q", "packed_weight", "B")
_SIDES = ("scale", "zero", "zp", "idx", "perm", "shape", "absmax", "input", "workspace", "quant_map", "order")
_FAMILIES = (  # what a method's name begins with, and how its packed weights are called
    ("awq", "awq"),
    ("gptq", "gptq"),
    ("auto_awq", "awq"),
    ("auto_gptq", "gptq"),
    ("auto-round", "gptq"),
    ("inc", "gptq"),
    ("compressed", "pack"),
    ("moe_wna16", "pack"),
)


def quantizes(layer: nn.Module) -> bool:
    """Whether a layer's method of keeping its weights is other than the plain one."""
    method = getattr(layer, "quant_method", None)
    if method is None or isinstance(method, str):
        return False
    return not any(cls.__name__.startswith("Unquantized") for cls in type(method).__mro__)


def method_of(layer: nn.Module) -> str:
    """What the method of quantization is called: "awq_marlin", "fp8" ..."""
    config: Any = getattr(layer, "quant_config", None)
    if config is None:
        config = getattr(getattr(layer, "quant_method", None), "quant_config", None)
    name = config.get_name() if hasattr(config, "get_name") else None
    return name if isinstance(name, str) else type(layer.quant_method).__name__


def find_weight(
    layer: nn.Module, own: Mapping[str, Tensor], plain: StoredTensor, prefix: str = ""
) -> tuple[str, StoredTensor] | None:
    """The tensor that is the weight, and what it stands for; None: it is plain after all, or unknown.

    `own` are the layer's tensors by local name, without biases; those of one projection begin with `prefix`.
    """
    candidates = {name: tensor for name, tensor in own.items() if name.startswith(prefix)}
    name = _weight(candidates, prefix)
    if name is None:
        return None
    weight = candidates[name]
    sides = tuple(other for other in candidates if other != name)
    if weight.numel == plain.numel and _is_plain(weight.dtype):
        return None
    scheme = _scheme(method_of(layer), weight, plain.numel, [candidates[side] for side in sides])
    return name, replace(plain, scheme=scheme, sides=sides)


def find_hidden_scheme(layer: nn.Module) -> tuple[str, str] | None:
    """The scheme and type of a weight that no tensor of its layer shows, from the classes in charge."""
    for owner in (getattr(layer, "scheme", None), getattr(layer, "quant_method", None)):
        name = type(owner).__name__.lower()
        for part, scheme in (("int8", "int8"), ("fp8", "float8_e4m3fn")):
            if part in name:
                return scheme, scheme
    return None


def is_side(name: str) -> bool:
    """Whether a tensor of that name goes with a weight, or with the cache, and is not a weight itself."""
    return any(part in name for part in _SIDES)


def _weight(own: Mapping[str, Tensor], prefix: str) -> str | None:
    for known in _WEIGHTS:
        if prefix + known in own:
            return prefix + known
    others = {name: tensor for name, tensor in own.items() if not is_side(name)}
    return max(others, key=lambda name: others[name].nbytes or 0, default=None)


def _is_plain(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16", "float32", "float64")


def _scheme(method: str, weight: Tensor, numel: int, sides: list[Tensor]) -> str:
    """The name that the same weights have in a checkpoint file."""
    if weight.dtype.startswith("float8_") and weight.numel == numel:
        return weight.dtype
    nbytes = weight.nbytes or 0
    bits = round(8 * nbytes / numel) if numel else 0
    if weight.dtype == "int8" and weight.numel in (numel, 0):
        return "int8"
    if weight.dtype in ("uint8", "int8", "float4_e2m1fn_x2") and bits == 4:
        kinds = {side.dtype for side in sides}
        if "nvfp4" in method or "modelopt" in method or "float8_e4m3fn" in kinds:
            return "nvfp4"
        if "mxfp4" in method or "mx" in method or kinds & {"uint8", "float8_e8m0fnu"}:
            return "mxfp4"
    family = next((name for start, name in _FAMILIES if method.startswith(start)), method)
    return f"{family}-{bits}bit" if bits else family
