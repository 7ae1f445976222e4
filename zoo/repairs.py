"""Default configurations that contradict themselves, with what makes each of them consistent.

A default is what a configuration class has where nobody says anything: no published model uses it, and some
cannot be built or called. Here is the least that has to be said; everything else stays as it is.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

_REPVIT = {
    "model_type": "timm_wrapper",
    "architecture": "repvit_m1",
    "num_classes": 1000,
    "model_args": {"in_chans": 3, "features_only": True, "out_indices": [0, 1, 2, 3]},
}  # the default means it, and misspells `architecture`

REPAIRS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "blip-2": {"image_token_index": 50265},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "edgetam": {"vision_config": {"backbone_config": _REPVIT}},
    "edgetam_vision_model": {"backbone_config": _REPVIT},
    "glm46v": {"text_config": {"model_type": "glm4v_text", "partial_rotary_factor": 0.5}},
    "glm4v": {"text_config": {"partial_rotary_factor": 0.5}},
    "glm4v_moe": {"text_config": {"head_dim": 128}},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"partial_rotary_factor": 0.5},
    "glm_image_text": {"partial_rotary_factor": 0.5},
    "glmga": {"text_config": {"model_type": "glm4v_text", "partial_rotary_factor": 0.5}},
    "granitemoehybrid": {
        "layer_types": ["full_attention" if layer in (5, 15, 25) else "linear_attention" for layer in range(32)]
    },
    "instructblip": {"image_token_index": 50265},
    "instructblipvideo": {"video_token_index": 50265},
    "lw_detr": {"projector_scale_factors": [1.0]},
    "qwen3_omni_moe_thinker": {
        "text_config": {"vocab_size": 152064, "num_attention_heads": 32, "head_dim": 128},
        "vision_config": {"out_hidden_size": 2048},
        "audio_config": {"output_dim": 2048},
        "vision_start_token_id": 151652,
    },
    "uvdoc": {
        "backbone_config": {
            "model_type": "uvdoc_backbone",
            "out_features": [f"stage{number}" for number in range(1, 7)],
        }
    },
}


def repaired(name: str) -> Any:
    """The default configuration of a type of model, consistent in itself."""
    import transformers

    return transformers.AutoConfig.for_model(name, **deepcopy(REPAIRS.get(name, {})))
