"""What a language model keeps of each token while it generates, read from its Hugging Face configuration.

What attention keeps follows from the rules of `architecture`. Added here are decoders that have an encoder,
layers of different widths, and the states of recurrent layers, all as transformers keeps them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from modelglass.analyses.architecture import architecture
from modelglass.report import Model, huggingface_keys as hf
from modelglass.report.architecture import Architecture
from modelglass.report.dtypes import bits_of, nbytes_of
from modelglass.report.memory import KvCache

Config: TypeAlias = Mapping[str, Any]

FROM_CONFIG = "config"
WITHOUT_SOURCE = "config, of the decoder's own tokens"


def kv_cache(config: Config, dtype: str, *, source_tokens: int | None = None) -> KvCache | None:
    """The cache of one sequence in elements of `dtype`, or None when `config` does not determine it.

    A decoder also keeps keys and values of its encoder's output, once for each of the `source_tokens`. Where
    their number is not known, only the decoder's own tokens are counted, and `source` says so.

    >>> qwen = {"num_hidden_layers": 28, "num_key_value_heads": 4, "head_dim": 128}
    >>> kv_cache(qwen, "bfloat16").nbytes_per_token
    57344
    """
    text, has_source = _decoder(config)
    if not _keeps_a_cache(text) or bits_of(dtype) is None:
        return None
    growing = _growing(text, dtype)
    states = None if growing is None else _states(text, dtype)
    if growing is None or states is None:
        return None
    if source_tokens is None and _family(text) in _FIXED_SOURCE:
        source_tokens = _int(text, "max_source_positions")
    of_source = growing.total() * (source_tokens or 0) if has_source else 0
    return KvCache(
        nbytes_per_token=growing[None],
        windows={window: each for window, each in growing.items() if window is not None and each},
        fixed_nbytes=states + of_source,
        # The type of a recurrent state is not in the configuration; it is the one transformers uses.
        method="estimate" if states else "exact",
        source=WITHOUT_SOURCE if has_source and source_tokens is None else FROM_CONFIG,
    )


# The part of the configuration that generates


def _decoder(config: Config) -> tuple[Config, bool]:
    """The settings of the model that generates, in common names, and whether it also reads an encoder."""
    has_source = config.get("is_encoder_decoder") is True
    for _ in range(_DEPTH):
        inner = next((part for key in _PARTS if isinstance(part := config.get(key), Mapping)), None)
        if inner is None:
            break
        config = inner
    has_source = has_source or config.get("add_cross_attention") is True
    own: dict[str, Any] = {"is_encoder_decoder": False, "add_cross_attention": False}
    if has_source:
        own["is_decoder"] = True
    for name, others in _SPELLINGS.items():
        said = next((value for other in others if (value := config.get(other)) is not None), None)
        if said is not None:
            own[name] = said
    return {**config, **own, **_habits(config)}, has_source


def _habits(config: Config) -> Config:
    """Settings as they would be elsewhere, of families whose code reads them in its own way."""
    family = _family(config)
    if family == "qwen3_moe":
        return {"max_window_layers": 0}  # where there is a window, every layer has it
    if family == "falcon" and config.get("new_decoder_architecture") is True:
        return {"num_key_value_heads": config.get("num_attention_heads")}  # copied before they are kept
    if family == "longcat_flash" and (layers := _int(config, "num_layers")) is not None:
        return {"num_hidden_layers": 2 * layers}  # each attends twice
    return {}


def _keeps_a_cache(text: Config) -> bool:
    """False where the model is an encoder, or its layers differ in ways that are not known here."""
    if "transformers_version" in text and "use_cache" not in text:
        return False  # the library writes the setting for every model that can have a cache
    if _family(text) in _ENCODERS and text.get("is_decoder") is not True:
        return False
    return _family(text) not in _OWN_WIDTHS and not text.get("block_configs")


def _family(config: Config) -> str | None:
    family = config.get("model_type")
    return family if isinstance(family, str) else None


def _int(config: Config, *keys: str) -> int | None:
    values = (config.get(key) for key in keys)
    return next((value for value in values if type(value) is int and 0 < value < _LARGEST), None)


# Attention


def _growing(text: Config, dtype: str) -> Counter[int | None] | None:
    """Bytes per token by the window in which they count; under None, of layers without a window."""
    parts = _parts(text)
    growing: Counter[int | None] = Counter()
    for part in parts or ():
        facts = _facts(part, dtype)
        total, lasting = facts.kv_cache_nbytes_per_token, facts.kv_cache_nbytes_per_token_beyond_window
        if total is None or lasting is None:
            return None
        growing[None] += lasting
        growing[facts.sliding_window] += total - lasting
    return None if parts is None else growing


def _facts(text: Config, dtype: str) -> Architecture:
    return architecture({**text, "torch_dtype": dtype}, Model(name="", source="config"))


def _parts(text: Config) -> list[Config] | None:
    """Configurations in which all layers have one width: the whole one, or that of each layer by itself."""
    lists = {key: value for key in _BY_LAYER if isinstance(value := text.get(key), (list, tuple))}
    others = _settings_by_layer(text.get("per_layer_config"))
    if not lists and not others:
        return [text]
    layers, _ = _layers(text)
    kinds = text.get("layer_types")
    if layers > _MOST_LAYERS:
        return None
    if kinds is None and text.get("sliding_window") is None:
        kinds = ["full_attention"] * layers
    uneven = any(len(value) != layers or not all(map(_is_count, value)) for value in lists.values())
    if not isinstance(kinds, (list, tuple)) or len(kinds) != layers or uneven:
        return None
    return [
        {
            **text,
            **{_BY_LAYER[key]: value[layer] for key, value in lists.items()},
            **others.get(layer, {}),
            "num_hidden_layers": 1,
            "layer_types": [kinds[layer]],
            "num_kv_shared_layers": 0,
        }
        for layer in range(layers - (_int(text, "num_kv_shared_layers") or 0))
    ]


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < _LARGEST


def _settings_by_layer(said: Any) -> dict[int, Config]:
    """Settings that hold for some layers only, by the layer's number."""
    items = said.items() if isinstance(said, Mapping) else ()
    return {int(key): value for key, value in items if _is_index(key) and isinstance(value, Mapping)}


def _is_index(key: Any) -> bool:
    text = str(key)[:_DIGITS]
    return text == str(key) and text.isdecimal()


def _layers(text: Config) -> tuple[int, int | None]:
    """How many layers there are, and how many of them attend, which does not depend on their widths."""
    plain = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 1}
    facts = _facts({**text, **plain}, "float32")
    return facts.layers or 0, facts.attention_layers


# States of constant size


def _states(text: Config, dtype: str) -> int | None:
    """Bytes of all recurrent states, or None where there are some whose size is not known."""
    count = _recurrent_layers(text)
    if not count:
        return count
    each = next((nbytes for state in _STATES if (nbytes := state(text, dtype)) is not None), None)
    return None if each is None else count * each


def _recurrent_layers(text: Config) -> int | None:
    layers, attending = _layers(text)
    if _family(text) in _IN_EVERY_LAYER:
        return layers
    listed = map(text.get, hf.LAYER_KINDS)
    words = next((kinds for kinds in listed if isinstance(kinds, (list, tuple)) and kinds), None)
    if words is not None:
        return sum(str(words[layer % len(words)]) in _RECURRENT for layer in range(layers))
    pattern = text.get(hf.LAYER_PATTERN)
    if isinstance(pattern, str):
        return pattern[:layers].count("M")
    return None if attending is None else layers - attending


def _scan_state(text: Config, dtype: str) -> int | None:
    """The state of a selective scan (Mamba), and the last inputs of the convolution before it.

    The second version has groups of matrices that pass through the convolution as well.
    """
    state = _int(text, "mamba_d_state", "ssm_state_size", "state_size")
    kernel = _int(text, "mamba_d_conv", "conv_kernel")
    groups = _int(text, "mamba_n_groups", "mamba_ngroups", "n_groups")
    heads = _int(text, "mamba_n_heads", "mamba_num_heads")
    head_dim = _int(text, "mamba_d_head", "mamba_head_dim")
    width, times = _int(text, *hf.HIDDEN_SIZE), _int(text, "mamba_expand", "expand")
    inner = heads * head_dim if heads and head_dim else width * times if width and times else None
    if state is None or kernel is None or inner is None:
        return None
    convolved = inner + 2 * groups * state if groups else inner
    kept_in = text.get("mamba_ssm_cache_dtype")
    kept_in = kept_in if isinstance(kept_in, str) and bits_of(kept_in) else "float32"
    return _sum(nbytes_of(dtype, convolved * kernel), nbytes_of(kept_in, inner * state))


def _linear_attention_state(text: Config, dtype: str) -> int | None:
    """The matrix of each head of linear attention, and the last inputs of the convolution before it."""
    keys = _int(text, "linear_num_key_heads", "linear_num_heads")
    values = _int(text, "linear_num_value_heads", "linear_num_heads")
    key_dim = _int(text, "linear_key_head_dim", "linear_head_dim")
    value_dim = _int(text, "linear_value_head_dim", "linear_head_dim")
    kernel = _int(text, "linear_conv_kernel_dim")
    if keys is None or values is None or key_dim is None or value_dim is None or kernel is None:
        return None
    convolved = (2 * keys * key_dim + values * value_dim) * kernel
    return _sum(nbytes_of(dtype, convolved), nbytes_of("float32", values * key_dim * value_dim))


def _convolution_state(text: Config, dtype: str) -> int | None:
    """The last inputs of a convolution that stands alone."""
    kernel, width = _int(text, "conv_L_cache"), _int(text, *hf.HIDDEN_SIZE)
    return None if kernel is None or width is None else nbytes_of(dtype, kernel * width)


def _sum(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


_LARGEST = 1 << 48
_MOST_LAYERS = 10_000  # that are looked at one by one
_DIGITS = 6  # of a layer's number
_DEPTH = 3  # a thinker holds a text model
_PARTS = ("decoder", "generator", *hf.TEXT_PARTS)
_SPELLINGS = {  # of decoders beside an encoder, and of a few families
    hf.LAYERS[0]: hf.LAYERS_OF_DECODER,
    hf.HEADS[0]: hf.HEADS_OF_DECODER,
    hf.KV_HEADS[0]: hf.KV_HEADS_OF_DECODER,
}
_BY_LAYER = {  # settings that may be lists, with the name of the setting of one layer
    "num_key_value_heads": "num_key_value_heads",
    "num_key_value_heads_per_layer": "num_key_value_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
}
_RECURRENT = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent", "hybrid"})
_IN_EVERY_LAYER = frozenset({"falcon_h1"})  # beside attention
_STATES: tuple[Callable[[Config, str], int | None], ...] = (
    _scan_state,
    _linear_attention_state,
    _convolution_state,
)
_FIXED_SOURCE = frozenset({"whisper"})  # sound is padded to a constant length
_OWN_WIDTHS = frozenset({"mimo_v2_flash"})  # its code gives layers with a window twice the heads
# Encoders whose configurations have `use_cache`, because they can be made decoders.
_ENCODERS = frozenset(
    {
        *("bert-generation", "big_bird", "bridgetower", "data2vec-text", "ernie", "eurobert"),
        *("jina_embeddings_v3", "layoutlm", "markuplm", "megatron-bert", "rembert"),
        *(
            "roberta-prelayernorm",
            "roc_bert",
            "roformer",
            "ultrabert",
            "ultravbert",
            "xlm-roberta-xl",
            "xmod",
        ),
    }
)
