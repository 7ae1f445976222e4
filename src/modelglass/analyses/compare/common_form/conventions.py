"""What frameworks write differently: kinds of layers, layouts of weights, names of tensors.

Everything is brought into one form: that of torch, since most ports start there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.report import Json, Module, Shape

LIVE = frozenset({"torch", "mlx"})  # sources that know which tensors train and which share memory

# Where members of a Sequential are kept, when that is not in itself.
MEMBERS = {("mlx", "Sequential"): "layers"}

_OWN = {"torch": ("torch.nn.", "torch.ao.nn."), "mlx": ("mlx.nn.", "mlx.core.")}
_HELPERS = "torch.nn.utils."  # parametrizations: what makes a weight is not a layer
SEQUENTIAL = frozenset({"torch.nn.modules.container.Sequential", "mlx.nn.layers.containers.Sequential"})
IDLE = frozenset({"dropout", "identity"})  # kinds of layers that do nothing in inference
_KINDS = {
    "Linear": "linear",
    "NonDynamicallyQuantizableLinear": "linear",
    "LazyLinear": "linear",
    "QuantizedLinear": "linear",
    "QQLinear": "linear",
    "Conv1D": "transposed linear",  # of transformers: a weight of (inputs, outputs)
    "Bilinear": "bilinear",
    "Embedding": "embedding",
    "QuantizedEmbedding": "embedding",
    "EmbeddingBag": "embedding bag",
    "SyncBatchNorm": "batch norm",
    "LayerNorm": "layer norm",
    "RMSNorm": "RMS norm",
    "GroupNorm": "group norm",
    "LSTM": "LSTM",
    "LSTMCell": "LSTM",
    "GRU": "GRU",
    "GRUCell": "GRU",
    "RNN": "RNN",
    "RNNCell": "RNN",
    "TransformerEncoderLayer": "encoder layer",
    "TransformerDecoderLayer": "encoder layer",
    "MultiheadAttention": "attention",
    "MultiHeadAttention": "attention",
    "Hardtanh": "hardtanh",
    "HardTanh": "hardtanh",
    "HardShrink": "hardshrink",
    "Hardshrink": "hardshrink",
    "Identity": "identity",
    "Upsample": "upsample",
    "UpsamplingNearest2d": "upsample",
    "UpsamplingBilinear2d": "upsample",
}
_ACTIVATIONS = (
    *("ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "CELU", "SELU", "GELU", "SiLU", "Mish", "GLU"),
    *("Sigmoid", "LogSigmoid", "Tanh", "Softplus", "Softsign", "Softshrink", "Softmax", "LogSoftmax"),
    *("Softmin", "Hardswish"),
)
_KINDS |= {name: name for name in _ACTIVATIONS}
_KINDS |= {name.lower(): name for name in _ACTIVATIONS}  # functions among the steps of a Sequential
_KINDS |= {"leaky_relu": "LeakyReLU", "log_softmax": "LogSoftmax", "log_sigmoid": "LogSigmoid"}
_KINDS |= {"gelu_approx": "GELU", "gelu_fast_approx": "GELU", "hard_tanh": "hardtanh"}
_KINDS |= {"hard_shrink": "hardshrink"}
_CONVOLUTION = re.compile(r"Conv(Transpose)?([123])d")
_BATCH_NORM = re.compile(r"(?:Lazy)?(Batch|Instance)Norm(?:[123]d)?")
_DROPOUT = re.compile(r"(?:Feature)?(?:Alpha)?Dropout(?:[123]d)?")
# Where frameworks keep layers without weights, which are of a kind of their own each.
_WEIGHTLESS = re.compile(
    r"torch\.nn\.modules\.(activation|pooling|padding|upsampling|pixelshuffle|flatten|channelshuffle|fold)\."
    r"|mlx\.nn\.layers\.(activations|pooling|upsample)\."
)
_POOL = re.compile(r"(Adaptive)?(Max|Avg)Pool([123])d")

# Names of weights that say the same.
ROLES = {"weight_orig": "weight", "bias_orig": "bias", "weight_v": "weight"}
NORM_ROLES = {"gamma": "weight", "beta": "bias"}
ROLES |= {"qweight": "weight", "weight_packed": "weight"}
FOLDED = frozenset({"weight_g", "weight_mask", "bias_mask"})  # that a plain weight has taken in
STATISTICS = ("running_mean", "running_var")
COUNTER = "num_batches_tracked"
SIDES = frozenset({"scales", "biases", "qzeros", "g_idx", "global_scale"})  # of packed weights

# torch keeps two biases where MLX keeps their sum; of a GRU's, MLX keeps apart what is inside the reset gate.
_TORCH_RECURRENT = re.compile(r"(weight|bias)_(ih|hh|hr)(?:_l(\d+))?(_reverse)?")
_MLX_RECURRENT = {
    "Wx": "input weight",
    "Wxh": "input weight",
    "Wh": "hidden weight",
    "Whh": "hidden weight",
    "bias": "bias",
    "b": "bias",
    "bhn": "hidden bias",
}
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


def kind_of(module: Module, source: str) -> tuple[str | None, bool]:
    """What kind of layer a module is, and whether that is sure: anybody's class may be called so."""
    if module.qualified_type.startswith(_HELPERS) and module.type.startswith("_"):
        return None, False
    own = module.qualified_type.startswith(_OWN.get(source, ("\0",)))
    kind = _KINDS.get(module.type)
    if kind is None and (found := _CONVOLUTION.search(module.type)):
        kind = f"{'transposed ' if found[1] else ''}conv{found[2]}d"
    if kind is None and (found := _BATCH_NORM.fullmatch(module.type)):
        kind = f"{found[1].lower()} norm"
    if kind is None and (found := _POOL.fullmatch(module.type)):
        kind = f"{'adaptive ' if found[1] else ''}{found[2].lower()} pool {found[3]}d"
    if kind is None and _DROPOUT.fullmatch(module.type):
        kind = "dropout"
    if kind is None and _WEIGHTLESS.match(module.qualified_type):
        kind = module.type.lower().replace("_", "")
    if kind is None and "norm" in module.type.lower():
        kind = "RMS norm" if "rms" in module.type.lower() else "norm"
    return kind, own and kind is not None


def is_convolution(kind: str | None) -> bool:
    return kind is not None and "conv" in kind


def is_norm(kind: str | None) -> bool:
    return kind is not None and kind.endswith("norm")


def torch_shape(shape: Shape, *, kind: str | None, source: str, config: Mapping[str, Json]) -> Shape:
    """The shape of a weight as (outputs, inputs, *kernel), whatever its framework's layout is."""
    if kind == "transposed linear" and len(shape) == 2:
        return shape[::-1]
    if not is_convolution(kind) or len(shape) < 3:
        return shape
    if source == "mlx":
        return channels_first(shape)
    if source == "torch" and kind is not None and kind.startswith("transposed"):
        groups = config.get("groups", 1)
        if type(groups) is int and groups and not shape[0] % groups:
            return (shape[1] * groups, shape[0] // groups, *shape[2:])
    return shape


def channels_first(shape: Shape) -> Shape:
    """(first, *between, last) as (first, last, *between)."""
    return (shape[0], shape[-1], *shape[1:-1])


def channels_last(shape: Shape) -> Shape:
    """(first, second, *rest) as (first, *rest, second)."""
    return (shape[0], *shape[2:], shape[1])


def recurrent_role(name: str, source: str, kind: str | None) -> tuple[str, int] | None:
    """The role of a recurrent layer's tensor, and which of the layers in one module it belongs to."""
    if source != "mlx" and (found := _TORCH_RECURRENT.fullmatch(name)):
        what, which, layer, reverse = found.groups()
        part = {"ih": "input", "hh": "hidden", "hr": "output"}[which]
        return f"{part} {what}", 2 * int(layer or 0) + (reverse is not None)
    if kind in RECURRENT or name in ("Wx", "Wxh"):
        role = _MLX_RECURRENT.get(name)
        return None if role is None else (role, 0)
    return None


_SAME = {  # by a word, those that mean the same
    "q": "query queries wq",
    "k": "key keys wk",
    "v": "value values wv",
    "o": "out output dense wo",
    "gate": "w1",
    "down": "w2",
    "up": "w3",
    "norm": "ln layernorm",
    "embed": "embedding embeddings embeds wte",
    "linear": "fc lin",
    "attention": "attn",
    "": "self proj projection layer block",
}
_SYNONYMS = {word: meaning for meaning, words in _SAME.items() for word in words.split()}
_WORDS = re.compile(r"[A-Z]?[a-z]+|\d+|[A-Z]+(?![a-z])")


def canonical_name(token: str) -> tuple[str, ...]:
    """What a name says, without the words that people choose as they like."""
    whole = _SYNONYMS.get(token.lower())
    if whole is not None:
        return (whole,)
    words = (_SYNONYMS.get(word.lower(), word.lower()) for word in _WORDS.findall(token))
    return tuple(word for word in words if word)
