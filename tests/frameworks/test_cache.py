"""Caches that runs gave back, beside the memory they really hold."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from modelglass.analyses.kv_cache import kv_cache
from modelglass.frameworks.torch.memory.cache import OBSERVED, cache_dtype, config_of, find_cache
from modelglass.report.memory import KvCache

SEQUENCES, WINDOW = 2, 4
SMALL = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
GPT = {"n_layer": 3, "n_head": 4, "n_embd": 64, "vocab_size": 100}
HALF_WINDOWED = {**SMALL, "head_dim": 16, "sliding_window": WINDOW}
LATENT = {
    **SMALL,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 1,
    "topk_group": 1,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "bamba": {
        **SMALL,
        "attn_layer_indices": [1, 3],
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
        "mamba_chunk_size": 4,
    },
    "bloom": {"hidden_size": 64, "n_layer": 3, "n_head": 4, "vocab_size": 100},
    "deepseek_v3": LATENT,
    "falcon": {**SMALL, "multi_query": True, "new_decoder_architecture": False},
    "gemma2": HALF_WINDOWED,
    "gpt2": GPT,
    "gpt_neox": {key: value for key, value in SMALL.items() if key != "num_key_value_heads"},
    "jamba": {**SMALL, "num_experts": 1, "attn_layer_period": 2, "attn_layer_offset": 1},
    "llama": SMALL,
    "mamba2": {
        "vocab_size": 100,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_heads": 8,
        "head_dim": 16,
        "state_size": 16,
        "chunk_size": 4,
    },
    "mistral": {**SMALL, "sliding_window": WINDOW},
    "mixtral": {**SMALL, "num_local_experts": 4},
    "qwen3": {**SMALL, "head_dim": 24},
}
# The configuration alone does not tell, or is not asked.
UNTOLD: dict[str, dict[str, Any]] = {
    "deepseek_v32": {**LATENT, "index_head_dim": 16, "index_n_heads": 2, "index_topk": 4},
    "minimax": {
        **SMALL,
        "head_dim": 16,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "layer_types": ["linear_attention", "full_attention"] * 2,
    },
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other take far longer than such small models do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def native_model(name: str, settings: dict[str, Any], loader: str = "AutoModelForCausalLM") -> nn.Module:
    import transformers

    config = transformers.AutoConfig.for_model(name, **settings)
    native: nn.Module = getattr(transformers, loader).from_config(config, dtype=torch.bfloat16)
    return native.eval()


def outputs_of(native: nn.Module, tokens: int, **more: Any) -> Any:
    """What the model gives back for the last of so many tokens."""
    ids = torch.full((SEQUENCES, tokens), 7)
    with torch.no_grad():
        before = native(input_ids=ids[:, :-1], use_cache=True, **more)
        name = "cache_params" if hasattr(before, "cache_params") else "past_key_values"
        return native(input_ids=ids[:, -1:], use_cache=True, **{name: before[name]})


def held(value: Any, seen: dict[int, int]) -> dict[int, int]:
    """The memory of every tensor of a cache, by where it lies: a view counts as all that it keeps alive."""
    if isinstance(value, torch.Tensor):
        if value.dim() > 1:
            seen[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
    else:
        parts = value.values() if type(value) is dict else value if isinstance(value, (list, tuple)) else ()
        for part in parts or getattr(value, "__dict__", {}).values():
            held(part, seen)
    return seen


def real_nbytes(outputs: Any) -> int:
    cache = outputs.cache_params if hasattr(outputs, "cache_params") else outputs.past_key_values
    return sum(held(cache, {}).values())


@pytest.mark.parametrize("name", [*FAMILIES, *UNTOLD])
@pytest.mark.filterwarnings("ignore")
def test_the_observed_cache_is_as_large_as_the_real_one(name: str) -> None:
    native = native_model(name, FAMILIES.get(name) or UNTOLD[name])
    outputs = outputs_of(native, 3)
    cache = find_cache(outputs)
    assert cache is not None
    assert (cache.method, cache.source) == ("exact", OBSERVED)
    assert cache.nbytes(3, SEQUENCES) == real_nbytes(outputs)
    assert cache.nbytes(9, SEQUENCES) == real_nbytes(outputs_of(native, 9))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_fake_tensors_and_the_configuration_tell_the_same(name: str) -> None:
    real = find_cache(outputs_of(native_model(name, FAMILIES[name]), 6))
    with FakeTensorMode(allow_non_fake_inputs=True):
        native = native_model(name, FAMILIES[name])
        fake = find_cache(outputs_of(native, 3))
    assert fake == real
    config = config_of(native)
    assert config is not None
    told = kv_cache(config, cache_dtype(native) or "")
    assert told is not None
    assert real is not None
    for figure in ("nbytes_per_token", "windows", "fixed_nbytes"):
        assert getattr(told, figure) == getattr(real, figure)


@pytest.mark.filterwarnings("ignore")
def test_the_configuration_does_not_tell_of_every_cache() -> None:
    for name, settings in UNTOLD.items():
        assert kv_cache(native_model(name, settings).config.to_dict(), "bfloat16") is None


@pytest.mark.filterwarnings("ignore")
def test_what_is_kept_of_the_source_does_not_grow() -> None:
    settings = {"d_model": 64, "d_kv": 24, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    native = native_model("t5", settings, "AutoModelForSeq2SeqLM")
    ids = torch.full((SEQUENCES, 5), 7)
    with torch.no_grad():
        outputs = native(input_ids=ids, decoder_input_ids=ids[:, :3], use_cache=True)
    cache = find_cache(outputs)
    assert cache is not None
    assert cache.nbytes_per_token == 2 * 2 * 4 * 24 * 2
    assert cache.fixed_nbytes == 5 * cache.nbytes_per_token
    assert cache.nbytes(3, SEQUENCES) == real_nbytes(outputs)
    assert cache == KvCache(
        nbytes_per_token=cache.nbytes_per_token,
        windows={},
        fixed_nbytes=cache.fixed_nbytes,
        method="exact",
        source=OBSERVED,
    )
    told = kv_cache(native.config.to_dict(), "bfloat16", source_tokens=5)
    assert told is not None
    assert (told.nbytes_per_token, told.fixed_nbytes) == (cache.nbytes_per_token, cache.fixed_nbytes)


@pytest.mark.filterwarnings("ignore")
def test_a_cache_made_in_advance_counts_as_full() -> None:
    from transformers import StaticCache

    native = native_model("gemma2", HALF_WINDOWED)
    cache = StaticCache(config=native.config, max_cache_len=10)
    observed = find_cache(outputs_of(native, 6, past_key_values=cache))
    assert observed is not None
    assert observed.windows == {WINDOW: observed.nbytes_per_token}
    assert observed.nbytes(10, SEQUENCES) == sum(held(cache, {}).values())
    assert observed.method == "exact"


@pytest.mark.parametrize(("length", "kept"), [(3, 3), (10, WINDOW)])
@pytest.mark.filterwarnings("ignore")
def test_a_window_that_may_be_longer_than_the_cache_is_an_estimate(length: int, kept: int) -> None:
    from transformers import StaticCache

    native = native_model("mistral", FAMILIES["mistral"])
    cache = StaticCache(config=native.config, max_cache_len=length)
    observed = find_cache(outputs_of(native, 3, past_key_values=cache))
    assert observed is not None
    assert observed.method == "estimate"
    assert observed.nbytes(kept, SEQUENCES) == sum(held(cache, {}).values())


def pair(tokens: int = 5, heads: int = 3, sequences: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (sequences, heads, tokens)
    return torch.zeros(*shape, 8, dtype=torch.float16), torch.zeros(*shape, 4, dtype=torch.float16)


@pytest.mark.parametrize("keep", [dict, OrderedDict, lambda **parts: SimpleNamespace(**parts)])
def test_caches_of_old_were_tuples(keep: Any) -> None:
    cache = find_cache(keep(logits=torch.zeros(2, 5, 9), past_key_values=(pair(), pair())))
    assert cache is not None
    assert cache.nbytes_per_token == 2 * 3 * (8 + 4) * 2
    assert cache.fixed_nbytes == 0
    beside_an_encoder = find_cache(keep(past_key_values=[(*pair(), *pair(7))]))
    assert beside_an_encoder is not None
    assert beside_an_encoder.nbytes_per_token == 3 * (8 + 4) * 2
    assert beside_an_encoder.fixed_nbytes == 7 * 3 * (8 + 4) * 2


def test_caches_of_old_were_lists_of_keys_and_lists_of_values() -> None:
    keys, values = zip(pair(), pair(), strict=True)
    states = [torch.zeros(2, 6, 4), torch.zeros(2, 0)]
    cache = SimpleNamespace(key_cache=list(keys), value_cache=list(values), ssm_states=states, seen=5)
    observed = find_cache((torch.zeros(2, 5, 9), cache))
    assert observed is not None
    assert observed.nbytes_per_token == 2 * 3 * (8 + 4) * 2
    assert observed.fixed_nbytes == 6 * 4 * 4
    source = SimpleNamespace(key_cache=[pair(7)[0]], value_cache=[pair(7)[1]])
    own = SimpleNamespace(key_cache=[pair()[0]], value_cache=[pair()[1]])
    both = find_cache(SimpleNamespace(self_attention_cache=own, cross_attention_cache=source))
    assert both is not None
    assert both.fixed_nbytes == 7 * both.nbytes_per_token == 7 * 3 * (8 + 4) * 2


def layer(**members: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"keys": pair()[0], "values": pair()[1], **members})


def cache_of(*layers: Any, **members: Any) -> SimpleNamespace:
    return SimpleNamespace(layers=list(layers), **members)


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        7,
        "text",
        torch.zeros(2, 3),
        (torch.zeros(2, 3), torch.zeros(2, 3)),
        {"layers": [torch.zeros(2, 3)], "keys": torch.zeros(2, 3, 4)},
        {"past_key_values": None},
        {"past_key_values": ()},
        {"past_key_values": (torch.zeros(2, 3, 4, 5),)},
        {"past_key_values": ((torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)),)},
        {"past_key_values": "text"},
        ((pair(), pair()),),  # nobody says that these are keys and values
        nn.Linear(2, 2),
        cache_of(),
        cache_of({"keys": pair()[0]}),
        cache_of(SimpleNamespace(keys=None, values=None)),
        cache_of(SimpleNamespace(keys={}.keys, values={}.values)),
        cache_of(layer(), layer(compressed=torch.zeros(2, 3, 4))),
        cache_of(layer(), extra=[torch.zeros(2, 3)]),
        cache_of(layer(), layer(keys=pair(6)[0])),
    ],
    ids=lambda outputs: type(outputs).__name__,
)
def test_what_is_no_cache_or_a_strange_one_is_unknown(outputs: Any) -> None:
    assert find_cache(cache_of(layer(), layer())) is not None
    assert find_cache(outputs) is None


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_keys_without_one_shape_are_unknown() -> None:
    ragged = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)])
    assert find_cache(cache_of(layer(keys=ragged))) is None


@pytest.mark.filterwarnings("ignore")
def test_a_cache_of_quantized_parts_is_unknown() -> None:
    from transformers import QuantizedCache

    native = native_model("llama", SMALL)
    cache = QuantizedCache("fp8", native.config)
    assert find_cache(outputs_of(native, 4, past_key_values=cache)) is None


def test_outputs_are_looked_at_without_running_their_code() -> None:
    class Proud:
        @property
        def past_key_values(self) -> Any:
            raise AssertionError("nobody asked")

        layers = past_key_values

    assert find_cache(Proud()) is None
    assert find_cache((Proud(), cache_of(layer()))) is not None
    assert find_cache(namedtuple("Named", ["logits", "cache"])(1, cache_of(layer()))) is not None


class WithConfig(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config


class Failing:
    def to_dict(self) -> Any:
        raise SyntaxError("of the user's own")


@pytest.mark.parametrize("config", [Failing(), None, 3, SimpleNamespace(to_dict=lambda: [1]), object()])
def test_a_configuration_that_cannot_be_written_out_is_none(config: Any) -> None:
    assert config_of(WithConfig(config)) is None
    assert config_of(nn.Linear(2, 2)) is None


def test_a_configuration_is_a_mapping_or_writes_itself_out() -> None:
    assert config_of(WithConfig({"a": 1})) == {"a": 1}
    assert config_of(WithConfig(SimpleNamespace(to_dict=lambda: {"a": 1}))) == {"a": 1}


def test_keys_and_values_have_the_type_of_most_weights() -> None:
    native = nn.Sequential(
        nn.Linear(8, 8).bfloat16(), nn.LayerNorm(8), nn.Linear(64, 64).to(torch.float8_e5m2)
    )
    assert cache_dtype(native) == "bfloat16"
    assert cache_dtype(nn.Sequential(nn.LazyLinear(3), nn.ReLU())) is None
