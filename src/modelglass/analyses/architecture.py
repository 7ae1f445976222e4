"""Facts about a language model from its Hugging Face configuration and the tensors beside it.

Where both give the width of keys and values, the tensors are believed: they are what is loaded.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from modelglass.report import Counts, Json, Model, Shape, Tensor, huggingface_keys as hf
from modelglass.report.architecture import Architecture
from modelglass.report.dtypes import bits_of

Config: TypeAlias = Mapping[str, Json]
Attention: TypeAlias = Literal["full", "window", "none"]  # what one layer keeps


def architecture(config: Config, model: Model, counts: Counts | None = None) -> Architecture:
    """The model's numbers, read from `config` (a `config.json`) and from the names and shapes of tensors."""
    text = _text_config(config)
    heads, hidden = _int(text, hf.HEADS), _int(text, hf.HIDDEN_SIZE)
    weights = _weights(model)
    total = sum(t.logical_numel or 0 for t in weights) if counts is None else counts.logical_params
    facts = Architecture(
        name=_first_text(config.get("architectures")) or _first_text(text.get("architectures")),
        model_type=_text(config.get("model_type")),
        layers=_int(text, hf.LAYERS) or _count_listed_layers(text),
        hidden_size=hidden,
        heads=heads,
        kv_heads=_kv_heads(text, heads),
        head_dim=_int(text, hf.HEAD_DIM) or (hidden // heads if hidden and heads else None),
        vocab_size=_int(text, hf.VOCABULARY),
        context_length=_int(text, hf.POSITIONS),
        torch_dtype=_dtype(config) or _dtype(text),
        experts=_same_int(text, hf.EXPERTS),
        experts_per_token=_same_int(text, hf.CHOSEN_EXPERTS),
        total_params=total,
        active_params=_active(text, weights, total),
        tied_output=_is_output_tied(config, text, model),
    )
    return _with_cache(facts, config, text, model)


def _text_config(config: Config) -> Config:
    """The settings of the language model, also when it is one part of several."""
    for _ in range(3):  # a thinker holds a text model
        inner = next((v for key in hf.TEXT_PARTS if isinstance(v := config.get(key), Mapping)), None)
        if inner is None:
            break
        config = {**{k: v for k, v in config.items() if k not in hf.TEXT_PARTS}, **inner}
    for key in ("attn_config", "ffn_config"):  # some keep the parts of a block apart
        inner = config.get(key)
        if isinstance(inner, Mapping):
            config = {**inner, **config}
    return config


def _int(config: Config, keys: tuple[str, ...]) -> int | None:
    values = (config.get(key) for key in keys)
    return next((v for v in values if type(v) is int and 0 < v < _LARGEST), None)


def _same_int(config: Config, keys: tuple[str, ...]) -> int | None:
    """The number, also when it is given once per layer and is always the same."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, (list, tuple)) and value and all(item == value[0] for item in value):
            value = value[0]
        if type(value) is int and 0 < value < _LARGEST:
            return value
    return None


def _count_listed_layers(config: Config) -> int | None:
    """The number of layers of a configuration that only lists them."""
    listed = (config.get(key) for key in (*hf.LAYER_KINDS, hf.LAYER_PATTERN))
    return next((len(v) for v in listed if isinstance(v, (list, tuple, str)) and v), None)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _first_text(value: Json) -> str | None:
    return _text(value[0]) if isinstance(value, (list, tuple)) and value else None


def _dtype(config: Config) -> str | None:
    value = next((text for key in hf.DTYPE if (text := _text(config.get(key)))), None)
    name = value.removeprefix("torch.") if value else None
    return name if name is not None and bits_of(name) is not None else None


def _kv_heads(config: Config, heads: int | None) -> int | None:
    if config.get("new_decoder_architecture") is not True and config.get("multi_query") is True:
        return 1
    if config.get("multi_query_attention") is False:
        return heads
    if "new_decoder_architecture" in config and config.get("new_decoder_architecture") is not True:
        return heads  # its number of key heads is then not used
    if any(config.get(key) is not None for key in hf.KV_HEADS):
        return _same_int(config, hf.KV_HEADS)  # None: its layers differ
    return heads


def _weights(model: Model) -> list[Tensor]:
    first: dict[str, Tensor] = {}
    for tensor in model.tensors:
        first.setdefault(tensor.storage, tensor)
    return [tensor for tensor in first.values() if tensor.kind != "buffer"]


def _shape(tensor: Tensor) -> Shape:
    return tensor.packing.logical_shape if tensor.packing is not None else tensor.shape or ()


# Experts


def _active(config: Config, weights: list[Tensor], total: int) -> int | None:
    """Parameters one token meets: all but the share of each bank of experts that it does not visit."""
    declared, chosen = _same_int(config, hf.EXPERTS), _same_int(config, hf.CHOSEN_EXPERTS)
    listed: dict[str, set[str]] = defaultdict(set)  # experts of a bank that are modules of their own
    sizes: dict[str, int] = defaultdict(int)
    stacked = 0
    for tensor in weights:
        numel = tensor.logical_numel or 0
        one = _one_of_experts(tensor.name)
        if one is not None:
            bank, index = one
            listed[bank].add(index)
            sizes[bank] += numel
        elif _is_stack(tensor, declared):
            stacked += numel
    if not stacked and not any(len(experts) > 1 for experts in listed.values()):
        return total
    if chosen is None or config.get("zero_expert_num"):
        return None
    banks = [(sizes[bank], len(experts)) for bank, experts in listed.items()]
    if declared is not None:
        banks.append((stacked, declared))
    return total - sum(size * (count - min(chosen, count)) // count for size, count in banks)


def _one_of_experts(name: str) -> tuple[str, str] | None:
    """The bank and the number of the expert that a tensor belongs to."""
    if "experts." not in name:
        return None
    parts = name.split(".")
    for place, part in enumerate(parts[:-2]):
        if _is_bank(part) and _number(index := parts[place + 1].removeprefix("expert_")) is not None:
            return ".".join(parts[: place + 1]), index
    return None


def _is_bank(part: str) -> bool:
    routed = part.endswith("experts") and not part.startswith("shared")
    return routed or part in ("switch_mlp", "switch_glu")


def _number(part: str) -> int | None:
    return int(part) if part.isascii() and part.isdecimal() and len(part) <= 6 else None


def _is_stack(tensor: Tensor, experts: int | None) -> bool:
    shape = _shape(tensor)
    if experts is None or experts < 2 or not shape or "shared" in tensor.name:
        return False
    if any(_is_bank(part) for part in tensor.name.split(".")[:-1]):
        return shape[0] % experts == 0
    return len(shape) >= 3 and shape[0] == experts


# Output weights


def _is_output_tied(config: Config, text: Config, model: Model) -> bool | None:
    """Whether the output weights are the embedding's own; None when that is unknown or contradictory."""
    said = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    heads = [t for t in model.tensors if t.name.endswith(_OUTPUTS)]
    inputs = [t for t in model.tensors if t.name.endswith(_EMBEDDINGS)]
    if heads:
        if {t.storage for t in heads} & {t.storage for t in inputs}:
            return True
        return False if said is False else None
    if not inputs or said is False:
        return None
    name = _first_text(config.get("architectures")) or ""
    # Where a configuration leaves it out, the library's default holds, which is to tie.
    return True if said is True or name.endswith(_WITH_OUTPUT) else None


# The attention cache


@dataclass(slots=True)
class _Widths:
    """Elements of keys and values of each layer, as the tensors show."""

    keys: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)

    def of(self, layer: int) -> int | None:
        keys = self.keys.get(layer)
        return None if keys is None else keys + self.values.get(layer, keys)


def _with_cache(facts: Architecture, config: Config, text: Config, model: Model) -> Architecture:
    reason = _why_unknown(facts, config, text)
    kinds = None if reason else _kinds(text, facts)
    if isinstance(kinds, str) or kinds is None:
        return replace(facts, kv_cache_reason=reason or kinds)
    dtype = facts.torch_dtype or _main_dtype(model)
    bits = None if dtype is None else bits_of(dtype)
    if bits is None:
        return replace(
            facts, kv_cache_reason="neither the configuration nor the tensors give the type of elements"
        )
    latent = _latent(text)
    widths = _Widths() if latent is not None else _widths(model)
    plain = 2 * facts.kv_heads * facts.head_dim if facts.kv_heads and facts.head_dim else None
    if (value_dim := _int(text, ("v_head_dim",))) and facts.kv_heads and facts.head_dim:
        plain = facts.kv_heads * (facts.head_dim + value_dim)
    elements: Counter[Attention] = Counter()
    for layer, kind in enumerate(kinds):
        width = 0 if kind == "none" else latent or widths.of(layer) or plain
        if width is None:
            return replace(facts, kv_cache_reason="the number of key heads or their size is not given")
        elements[kind] += width
    windowed = kinds.count("window")
    return replace(
        facts,
        attention_layers=windowed + kinds.count("full"),
        windowed_layers=windowed,
        sliding_window=_window(text) if windowed else None,
        kv_cache_dtype=dtype,
        kv_cache_nbytes_per_token=(elements["full"] + elements["window"]) * bits // 8,
        kv_cache_nbytes_per_token_beyond_window=elements["full"] * bits // 8,
        kv_cache_compressed=latent is not None,
    )


# Pairs of encoders, one for texts and one for pictures or sounds.
_PAIRS = frozenset(
    {
        *("align", "altclip", "chinese_clip", "clap", "clip", "clipseg", "clvp", "groupvit"),
        *("owlv2", "owlvit", "siglip", "siglip2", "xclip"),
    }
)


def _why_unknown(facts: Architecture, config: Config, text: Config) -> str | None:
    kind = _text(text.get("model_type")) or facts.model_type
    if config.get("is_encoder_decoder") is True or text.get("is_encoder_decoder") is True:
        return "the decoder also keeps keys and values of the encoder's output, whose length is another"
    if text.get("cross_attention_layers") or text.get("add_cross_attention") is True:
        return "some layers keep keys and values of another input, whose length is another"
    if (kind in _ENCODERS or facts.model_type in _PAIRS) and text.get("is_decoder") is not True:
        return "an encoder keeps no keys and values"
    if text.get("use_cla") is True:
        return "layers share their keys and values in a way that is not known here"
    if _int(text, ("index_head_dim",)) is not None:
        return "an index beside the keys takes room that depends on the engine"
    if facts.layers is None or facts.layers > _MOST_LAYERS:
        return "the number of layers is not given"
    return None


def _main_dtype(model: Model) -> str | None:
    """The type most weights that are numbers of 16 bits or more have."""
    numels: Counter[str] = Counter()
    for tensor in _weights(model):
        if tensor.dtype in ("float16", "bfloat16", "float32", "float64"):
            numels[tensor.dtype] += tensor.numel or 0
    return max(numels, key=lambda dtype: numels[dtype]) if numels else None


def _latent(config: Config) -> int | None:
    """Elements of the one vector that multi-head latent attention keeps per layer and token."""
    rank, rope = _int(config, ("kv_lora_rank",)), _int(config, ("qk_rope_head_dim",))
    return None if rank is None else rank + (rope or 0)


def _widths(model: Model) -> _Widths:
    """Outputs of the key and value projections of the language model, by layer."""
    widths, towers = _Widths(), set()
    for tensor in model.tensors:
        if not tensor.name.endswith(_PROJECTIONS) or _OTHER_TOWERS.search(tensor.name) is not None:
            continue
        parts, shape = tensor.name.split("."), _shape(tensor)
        places = (at for at in range(1, len(parts) - 2) if parts[at - 1] in ("layers", "h", "blocks"))
        place = next((at for at in places if _number(parts[at]) is not None), None)
        if place is None or len(shape) != 2:
            continue
        towers.add(tuple(parts[:place]))
        into = widths.keys if parts[-2] == "k_proj" else widths.values
        into[int(parts[place])] = shape[0]
    return widths if len(towers) == 1 else _Widths()


# What each layer keeps


def _kinds(config: Config, facts: Architecture) -> list[Attention] | str:
    """What each layer keeps, or the reason why it is unknown."""
    layers = facts.layers or 0
    kinds: list[Attention] | str | None = None
    if (_text(config.get("model_type")) or facts.model_type) in _RECURRENT:
        return ["none"] * layers
    for read in _KIND_READERS:
        kinds = read(config, layers)
        if kinds is not None:
            break
    if isinstance(kinds, str):
        return kinds
    kinds = kinds or ["full"] * layers
    if "window" in kinds and _window(config) is None:
        kinds = ["full" if kind == "window" else kind for kind in kinds]
    shared = config.get("num_kv_shared_layers")
    if type(shared) is int and 0 < shared < layers:
        kinds[layers - shared :] = ["none"] * shared
    return kinds


def _window(config: Config) -> int | None:
    return _int(config, hf.SLIDING_WINDOW)


def _kinds_from_list(config: Config, layers: int) -> list[Attention] | str | None:
    """One word per layer, or a few words that repeat."""
    for key in hf.LAYER_KINDS:
        words = config.get(key)
        if not isinstance(words, (list, tuple)) or not words:
            continue
        kinds: list[Attention] = []
        for layer in range(layers):
            word = words[layer % len(words)]
            kind = _WORDS.get(word) if isinstance(word, str) else None
            if kind is None:
                return f"layer {layer} is of the kind {str(word)[:80]!r}, which is not known here"
            # Such configurations give a window without saying which layers have it: those with attention.
            window = kind == "full" and "attention_window_size" in config
            kinds.append("window" if window else kind)
        return kinds
    return None


def _kinds_from_pattern(config: Config, layers: int) -> list[Attention] | str | None:
    """One letter per layer: * is attention; M, - and E are not."""
    pattern = config.get(hf.LAYER_PATTERN)
    if not isinstance(pattern, str):
        return None
    if len(pattern) < layers or set(pattern) - set("*M-E"):
        return "the pattern of layers cannot be read"
    return ["full" if letter == "*" else "none" for letter in pattern[:layers]]


def _kinds_from_indices(config: Config, layers: int) -> list[Attention] | None:
    """The numbers of the layers that have attention."""
    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), (list, tuple)):
        places = {n - 1 for n in linear["full_attn_layers"] if type(n) is int}  # these count from one
        return ["full" if layer in places else "none" for layer in range(layers)]
    kinds = config.get("attn_type_list")
    if isinstance(kinds, (list, tuple)) and len(kinds) >= layers:
        return ["full" if kind == 1 else "none" for kind in kinds[:layers]]
    for key in ("attn_layer_indices", "full_attn_idxs"):
        indices = config.get(key)
        if isinstance(indices, (list, tuple)):
            places = {n for n in indices if type(n) is int}
            return ["full" if layer in places else "none" for layer in range(layers)]
    return None


def _kinds_from_period(config: Config, layers: int) -> list[Attention] | None:
    """Attention in every n-th layer, something else in between."""
    period, offset = _int(config, ("attn_layer_period",)), config.get("attn_layer_offset", 0)
    if period is not None and type(offset) is int:
        return ["full" if layer % period == offset else "none" for layer in range(layers)]
    interval = _int(config, ("full_attention_interval",))
    if interval is not None:
        return ["full" if (layer + 1) % interval == 0 else "none" for layer in range(layers)]
    return None


def _kinds_from_windows(config: Config, layers: int) -> list[Attention] | None:
    """Which layers look back only so far, by the rules of each family."""
    if _window(config) is None or config.get("use_sliding_window") is False:
        return None
    family = str(config.get("model_type"))
    pattern = config.get("sliding_window_pattern", config.get("_sliding_window_pattern"))
    if isinstance(pattern, str) and pattern:
        return ["full" if pattern[n % len(pattern)] == "G" else "window" for n in range(layers)]
    if type(pattern) is not int or pattern < 1:
        pattern = _int(config, ("no_rope_layer_interval",)) if "llama4" in family else None
        pattern = pattern or _PERIODS.get(family.replace("-", "_"))
    if pattern is not None:
        return ["window" if (n + 1) % pattern else "full" for n in range(layers)]
    plain = config.get("max_window_layers")
    if config.get("use_sliding_window") is True and type(plain) is int:
        return ["full" if n < plain else "window" for n in range(layers)]
    if "sliding_window" not in config:
        return None  # a chunk or window of another family, of which nothing says where it holds
    return ["window"] * layers


_LARGEST = 1 << 48
_MOST_LAYERS = 100_000
_OUTPUTS = ("lm_head.weight", "lm_head.qweight", "lm_head.weight_packed", "embed_out.weight", "output.weight")
_EMBEDDINGS = (
    *(
        "embed_tokens.weight",
        "wte.weight",
        "embed_in.weight",
        "word_embeddings.weight",
        "tok_embeddings.weight",
    ),
    *("embeddings.weight", "embedding.weight", "embedding.word_embeddings.weight"),
)
_WITH_OUTPUT = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_PROJECTIONS = tuple(f".{which}_proj.{kind}" for which in "kv" for kind in ("weight", "qweight"))
_OTHER_TOWERS = re.compile(r"vision|visual|audio|speech|encoder|image|projector|mtp", re.IGNORECASE)
_PERIODS = {  # every n-th layer sees everything, where older configurations do not say it
    "gemma2": 2,
    "gpt_oss": 2,
    "gemma3": 6,
    "gemma3_text": 6,
    "cohere2": 4,
    "llama4": 4,
    "llama4_text": 4,
}
_WORDS: dict[str, Attention] = {
    "full_attention": "full",
    "attention": "full",
    "hybrid": "full",  # attention beside a state of constant size
    "sliding_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "none",
    "mamba": "none",
    "mamba2": "none",
    "conv": "none",
    "recurrent": "none",
    "mlp": "none",
    "moe": "none",
}
_KIND_READERS: tuple[Callable[[Config, int], list[Attention] | str | None], ...] = (
    _kinds_from_list,
    _kinds_from_pattern,
    _kinds_from_indices,
    _kinds_from_period,
    _kinds_from_windows,
)
# Their state does not grow with the text.
_RECURRENT = frozenset({"mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm"})
_ENCODERS = frozenset(
    {
        *(
            "bert",
            "roberta",
            "xlm-roberta",
            "distilbert",
            "electra",
            "deberta",
            "deberta-v2",
            "albert",
            "mpnet",
        ),
        *(
            "modernbert",
            "camembert",
            "vit",
            "clip",
            "siglip",
            "dinov2",
            "wav2vec2",
            "hubert",
            "esm",
            "nomic_bert",
        ),
    }
)
