"""Settings of layers that a port must have as well, under one name each and in one form."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from modelglass.analyses.compare.common_form import conventions
from modelglass.analyses.compare.common_form.conventions import RECURRENT, canonical_name
from modelglass.report import huggingface_keys as hf

if TYPE_CHECKING:
    from modelglass.analyses.compare.common_form.parts import Part

_EPSILON = ("eps", "variance_epsilon", "epsilon", "norm_eps")
_SPATIAL = {name: (name,) for name in ("stride", "padding", "dilation", "output_padding")}
_DIM = {"dim": ("dim", "axis")}
# By kind: what it is compared as, under the names that it has.
_SETTINGS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "conv": {**_SPATIAL, "groups": ("groups",), "padding_mode": ("padding_mode",)},
    "pool": {
        **_SPATIAL,
        **{name: (name,) for name in ("kernel_size", "ceil_mode", "count_include_pad", "output_size")},
    },
    "norm": {"eps": _EPSILON, "momentum": ("momentum",), "num_groups": ("num_groups",)},
    "encoder layer": {"norm_first": ("norm_first",), "activation": ("activation",)},
    "RNN": {"nonlinearity": ("nonlinearity",)},
    "upsample": {name: (name,) for name in ("scale_factor", "mode", "align_corners")},
    "LeakyReLU": {"negative_slope": ("negative_slope",)},
    "ELU": {"alpha": ("alpha",)},
    "CELU": {"alpha": ("alpha",)},
    "GELU": {"approximate": ("approximate", "approx")},
    "Softplus": {"beta": ("beta",)},
    "Softshrink": {"lambd": ("lambd",)},
    "hardshrink": {"lambd": ("lambd",)},
    "hardtanh": {"min_val": ("min_val",), "max_val": ("max_val",)},
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softmin", "GLU"), _DIM),
}
# What layers of MLX always do.
_ALWAYS: Mapping[str, Mapping[str, Any]] = {
    "conv": {"padding_mode": "zeros", "groups": 1, "output_padding": 0},
    "pool": {"ceil_mode": False, "count_include_pad": True, "dilation": 1},
    "Softplus": {"beta": 1.0},
    "hardtanh": {"min_val": -1.0, "max_val": 1.0},
    **{kind: {"dim": -1} for kind in ("Softmax", "LogSoftmax", "Softmin")},
}
# MLX's "precise" is the approximation by tanh, "fast" the one by a sigmoid.
_SAME_WORDS = {
    ("GELU", "precise"): "tanh",
    ("GELU", "fast"): "sigmoid",
    ("upsample", "bilinear"): "linear",
    ("upsample", "trilinear"): "linear",
    ("upsample", "bicubic"): "cubic",
}
_FUNCTIONS = {"gelu": "none", "gelu_approx": "tanh", "gelu_fast_approx": "sigmoid"}
# torch's RMSNorm without eps takes that of the type it computes in.
_OF_TYPE = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}
_FLOAT32 = 2.0**-23

_HEADS = {
    "num_heads": hf.HEADS_OF_MODULES,
    "num_kv_heads": hf.KV_HEADS_OF_MODULES,
    "head_dim": hf.HEAD_DIM_OF_MODULES,
}
# What an engine's layers call them, whatever a rank has of them.
_ALL_HEADS = {"num_heads": ("total_num_heads",), "num_kv_heads": ("total_num_kv_heads",)}
_OF_HEADS = frozenset(key for keys in _HEADS.values() for key in keys)
# What tells where a module stands, how it is kept or is trained, and what other settings or shapes tell, too.
_ASIDE = re.compile(
    r"(layer_?|block_?)?(idx|index|id|number|num)|name|layer_name|prefix|name_or_path|inplace|device|dtype"
    r"|training|gradient_checkpointing|activation_relu_or_gelu|bits|group_size|quant_config|quant_method"
    r"|drop_prob|drop_path"
)


class Setting(NamedTuple):
    """A setting that is not the same in both."""

    name: str
    a: Any
    b: Any


def common_settings(part: Part, source: str) -> dict[str, Any]:
    """The settings that layers of a kind have in every framework."""
    family = family_of(part.kind)
    wanted = _SETTINGS.get(family, {})
    found = {}
    for name, keys in wanted.items():
        value = next((part.config[key] for key in keys if part.config.get(key) is not None), None)
        if value is not None:
            found[name] = plain_value(_word(family, value))
    if part.type.islower():  # a function among the steps of a Sequential
        return {"approximate": _FUNCTIONS[part.type]} if part.type in _FUNCTIONS else {}
    if source == "mlx" and part.sure:
        found = {**_ALWAYS.get(family, {}), **found}
    return _with_defaults(part, source, found)


def family_of(kind: str | None) -> str:
    """What kinds are called that have the same settings."""
    family = (
        "conv" if conventions.is_convolution(kind) else "norm" if conventions.is_norm(kind) else kind or ""
    )
    return "pool" if " pool" in family else family


def _word(family: str, value: Any) -> Any:
    return _SAME_WORDS.get((family, value), value) if isinstance(value, str) else value


def _with_defaults(part: Part, source: str, found: dict[str, Any]) -> dict[str, Any]:
    """Settings with what they leave to the layer: the padding that "same" is, the eps that None is."""
    if isinstance(found.get("padding"), str):
        found["padding"] = _padding(part, found)
    if not found.get("padding"):
        found.pop("count_include_pad", None)  # there is nothing to count
    if part.kind == "upsample":
        found.setdefault("align_corners", False)
        if found.get("mode") == "nearest":
            del found["align_corners"]
    if part.kind == "RMS norm" and part.sure and source == "torch" and "eps" not in found:
        weight = part.slots.get("weight")
        found["eps"] = _OF_TYPE.get(weight.tensor.dtype if weight is not None else "", _FLOAT32)
    return found


def _padding(part: Part, found: Mapping[str, Any]) -> Any:
    """What a padding that is a word adds, from the kernel and its dilation."""
    weight = part.slots.get("weight")
    kernel = weight.shape[2:] if weight is not None and weight.shape is not None else ()
    if found["padding"] not in ("same", "valid") or not kernel:
        return found["padding"]
    dilation = found.get("dilation", 1)
    factors = dilation if isinstance(dilation, tuple) else (dilation,) * len(kernel)
    totals = [size - 1 if found["padding"] == "same" else 0 for size in kernel]
    added = [total * factor for total, factor in zip(totals, factors, strict=True)]
    return plain_value([each // 2 if each % 2 == 0 else (each // 2, each - each // 2) for each in added])


def plain_value(value: Any) -> Any:
    """A number for numbers that are all the same: 1 for (1, 1), 0 for ((0, 0), (0, 0))."""
    if not isinstance(value, (list, tuple)):
        return value
    inner = [plain_value(each) for each in value]
    return inner[0] if inner and all(each == inner[0] for each in inner) else tuple(inner)


def unequal_settings(
    one: Mapping[str, Any], other: Mapping[str, Any], *, akin: bool = True
) -> Iterator[Setting]:
    """The settings that both have and that are not the same; `akin`: one framework counts dimensions."""
    for name in (name for name in one if name in other):
        a, b = one[name], other[name]
        if a == b or isinstance(a, str) != isinstance(b, str):
            continue
        if akin or name != "dim" or 0 in (a, b):  # which one is the last, only a run tells
            yield Setting(name, a, b)


def of_heads(a: Part, b: Part, *, divided: tuple[bool, bool] = (False, False)) -> Iterator[Setting]:
    """How many heads two attentions of any class have, or else of what size: the first that differs.

    `divided`: each rank has a share of them, and tells of that as if it were all.
    """
    yield from list(unequal_settings(_heads(a, divided[0]), _heads(b, divided[1])))[:1]


def _heads(part: Part, divided: bool) -> dict[str, int]:
    """Numbers of heads, where a part tells them, or the size of a head and what the heads give together."""
    below = [each for each in part.children.values() if not each.is_leaf and _OF_HEADS & each.config.keys()]
    tellers = [part] if _OF_HEADS & part.config.keys() else below
    if len(tellers) != 1:
        return {}  # of several, nothing says which one is the other's counterpart
    teller = tellers[0]
    found = {}
    for name, own in _HEADS.items():
        whole = _ALL_HEADS.get(name, ())
        keys = (whole or own) if divided else (*whole, *own)
        value = next((teller.config[key] for key in keys if type(teller.config.get(key)) is int), None)
        if value:
            found[name] = value
    size = found.get("head_dim")
    if size and "v_head_dim" not in teller.config:
        for name, wanted, at in (("num_heads", "o", 1), ("num_kv_heads", "k", 0)):
            width = _width(teller, wanted, at)
            if name not in found and width and not width % size:
                found[name] = width // size
    return {name: found[name] for name in _HEADS if name in found}


def _width(part: Part, wanted: str, at: int) -> int | None:
    """How many numbers go into, or come out of, a projection."""
    for child in part.children.values():
        weight = child.slots.get("weight")
        if canonical_name(child.token) == (wanted,) and weight is not None and len(weight.shape or ()) == 2:
            return None if weight.shape is None else weight.shape[at]
    return None


def of_one_class(a: Part, b: Part) -> Iterator[Setting]:
    """Arguments of two modules of one class that differ and that nothing else compares."""
    if any(slot.tensor.packing is not None for slot in (*a.slots.values(), *b.slots.values())):
        return  # how they are packed is reported with their weights
    told: Collection[str] = {
        key for keys in _SETTINGS.get(family_of(a.kind), {}).values() for key in keys
    } | _OF_HEADS
    if a.kind in RECURRENT:
        told = {*told, "mode"}
    one, other = ({key: plain_value(value) for key, value in part.config.items()} for part in (a, b))
    for name in (name for name in one if name in other and name not in told and not _ASIDE.fullmatch(name)):
        if one[name] != other[name] and not isinstance(one[name], dict):
            yield Setting(name, one[name], other[name])
