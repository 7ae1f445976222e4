"""Inputs made for models of transformers: every model is called with them, with weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fingerprint import fingerprint
from modelglass.api import _inputs
from modelglass.api._inputs import automatic_inputs
from small_models import PICTURE, ROBOT, SMALL, TEXT, built, called

QFORMER = {**TEXT, "encoder_hidden_size": 32, "cross_attention_frequency": 1}
OPT = {
    "model_type": "opt",
    "vocab_size": 120,
    "hidden_size": 32,
    "word_embed_proj_dim": 32,
    "ffn_dim": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GEMMA = {**TEXT, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 16}

# type, configuration, the shapes of the inputs that are made
CASES: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "a-side-of-windows": (
        "rf_detr",
        {
            "num_queries": 10,
            "group_detr": 1,
            "d_model": 32,
            "decoder_layers": 1,
            "decoder_ffn_dim": 32,
            **dict.fromkeys(("decoder_self_attention_heads", "decoder_cross_attention_heads"), 4),
            "backbone_config": {
                "model_type": "rf_detr_dinov2",
                "out_features": ["stage1", "stage2"],
                "num_windows": 2,
                **SMALL,
                "image_size": 70,
                "patch_size": 14,
            },
        },
        {"pixel_values": (2, 3, 84, 84)},
    ),
    "a-strip-of-patches": (
        "minicpmv4_7_vision",
        {**PICTURE, "insert_layer_id": 0},
        {"pixel_values": (1, 3, 8, 2 * 8 * 12 * 8), "target_sizes": (2, 2)},
    ),
    "queries-in-the-text": (
        "blip-2",
        {
            "vision_config": PICTURE,
            "qformer_config": QFORMER,
            "text_config": OPT,
            "num_query_tokens": 5,
            "image_token_index": 100,
        },
        {
            "pixel_values": (2, 3, 32, 32),
            **dict.fromkeys(("input_ids", "attention_mask"), (2, 16 + 5)),
            "decoder_input_ids": (2, 12),
        },
    ),
    "boxes-as-parts-of-a-page": (
        "udop",
        {"vocab_size": 120, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        | {"image_size": 32, "patch_size": 16, "feed_forward_proj": "relu"},
        {
            **dict.fromkeys(("input_ids", "attention_mask"), (2, 16)),
            "bbox": (2, 16, 4),
            "decoder_input_ids": (2, 12),
            "pixel_values": (2, 3, 32, 32),
        },
    ),
    "one-at-a-time": (
        "tvp",
        {**TEXT, "max_img_size": 64, "num_frames": 2, "visual_prompt_size": 8}
        | {
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 8, 8, 32],
                "depths": [1, 1, 1, 1],
                "out_features": ["stage4"],
            }
        },
        {**dict.fromkeys(("input_ids", "attention_mask"), (1, 16)), "pixel_values": (1, 2, 3, 64, 64)},
    ),
    "places-by-a-mask": (
        "kosmos-2",
        {
            "text_config": {
                "vocab_size": 120,
                "embed_dim": 32,
                "layers": 2,
                "ffn_dim": 64,
                "attention_heads": 4,
            },
            "vision_config": PICTURE,
            "latent_query_num": 6,
        },
        {
            "pixel_values": (2, 3, 32, 32),
            **dict.fromkeys(("input_ids", "attention_mask", "image_embeds_position_mask"), (2, 16 + 6)),
        },
    ),
    "several-cameras": (
        "pi0",
        ROBOT,
        {
            "action_embeds": (2, 16, 32),
            **dict.fromkeys(("input_ids", "attention_mask"), (2, 16 + 2 * 16)),
            "pixel_values": (2, 2, 3, 32, 32),
            "pixel_attention_mask": (2, 2),
        },
    ),
    "finer-pictures": (
        "deepseek_vl_hybrid",
        {
            "text_config": {"model_type": "llama", **TEXT},
            "vision_config": {"model_type": "siglip_vision_model", **PICTURE},
            "high_res_vision_config": {"model_type": "sam_vision_model", **SMALL, "output_channels": 8}
            | {"image_size": 128, "patch_size": 16, "mlp_dim": 64, "global_attn_indexes": [1]},
            "image_token_id": 110,
        },
        {
            **dict.fromkeys(("input_ids", "attention_mask"), (2, 16 + 16)),
            "pixel_values": (2, 3, 32, 32),
            "high_res_pixel_values": (2, 3, 128, 128),
        },
    ),
    "patches-of-each-picture": (
        "fuyu",
        {
            "text_config": {"model_type": "persimmon", **TEXT},
            "patch_size": 6,
            "image_size": 36,
            "image_token_id": 110,
        },
        {
            **dict.fromkeys(("input_ids", "attention_mask"), (2, 16 + 24)),
            "pixel_values": (2, 24, 3 * 6 * 6),
        },
    ),
    "layers-of-a-larger-model": (
        "muse_glimmer_assistant",
        {**SMALL, "num_key_value_heads": 2, "head_dim": 8, "target_layer_ids": [1, 2, 3]},
        {"noise_embeds": (2, 16, 32), "context_hidden_states": (2, 16, 96)},
    ),
    "samples-and-features": (
        "xcodec2",
        {**SMALL, "num_key_value_heads": 4, "head_dim": 8, "encoder_hidden_size": 2}
        | {"quantization_dim": 64, "quantization_levels": [4, 4]}
        | {
            "semantic_model_config": {
                "model_type": "wav2vec2-bert",
                **SMALL,
                "feature_projection_input_dim": 20,
            }
        },
        {"input_values": (2, 1, 19_200), "input_features": (2, 60, 20)},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_model_can_be_called_with(case: tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]) -> None:
    type, config, shapes = case
    given = called(built(type, config))
    assert {name: tuple(value.shape) for name, value in given.items()} == shapes


def test_a_class_without_a_call_has_no_inputs() -> None:
    with torch.device("meta"):
        model = built("glm_image_vqmodel", {})
    assert automatic_inputs(model) is None


def test_keys_and_values_of_a_larger_model_by_the_kind_of_layer() -> None:
    layers = {"layer_types": ["sliding_attention", "full_attention"]}
    config = {"text_config": {**GEMMA, **layers}, "backbone_hidden_size": 24}
    given = called(built("gemma4_unified_assistant", config, causal=True))
    assert given["inputs_embeds"].shape == (2, 16, 48)
    shapes = {kind: tuple(keys.shape) for kind, (keys, _) in given["shared_kv_states"].items()}
    assert shapes == {"sliding_attention": (2, 2, 16, 8), "full_attention": (2, 2, 16, 16)}


def test_where_values_decide_inputs_are_good_only_if_weights_can_be_had(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = {**TEXT, "num_key_value_heads": 2, "kv_channels": 8, "num_local_experts": 2}
    config.pop("num_attention_heads")
    with torch.device("meta"):
        model = built("jetmoe", config)
    given = automatic_inputs(model)
    assert given is not None
    assert _inputs._output_shapes(model, given.kwargs) == []
    monkeypatch.setattr(_inputs, "REAL_NBYTES", 0)
    assert _inputs._output_shapes(model, given.kwargs) is None


def test_a_configuration_that_changes_when_it_is_read_stays_as_it_was() -> None:
    """Some have properties that build configurations of others from parts of their own."""
    import transformers

    read = []

    class Telling(transformers.LlamaConfig):
        def get_text_config(self, *_: Any, **__: Any) -> Any:
            read.append(self)
            self.told = True
            return self

    small = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = transformers.LlamaModel(Telling(**small, vocab_size=100))
    before = fingerprint(model)
    read.clear()
    assert automatic_inputs(model) is not None
    assert read, "nothing was read, and nothing is shown"
    assert fingerprint(model) == before
