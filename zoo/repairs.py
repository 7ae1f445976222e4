"""Default configurations that contradict themselves, with what makes each of them consistent.

A default is what a configuration class has where nobody says anything: no published model uses it, and some
cannot be built or called. Here is the least that has to be said; everything else stays as it is. Those that
look at values on the way need their weights to be called, and are made small enough for that.
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

_GLM5_NEXT = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "n_routed_experts": 16,
    "linear_num_heads": 8,
    "index_n_heads": 4,
}  # looks at values

_COHERE_COMPASS = {"full_attention": {"rope_type": "default", "rope_theta": 50000.0}}

_HUNYUAN_VL = {
    "head_dim": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 16, 16, 16]},
}

_PP_OCRV6_BLOCKS = [
    [[3, 128, 128, 1, True], [3, 128, 128, 1, False]],
    [[3, 128, 256, 2, False], [3, 256, 256, 1, True], [3, 256, 256, 1, False]],
    [[3, 256, 512, 2, False], *[[3, 512, 512, 1, squeezed] for squeezed in (True, False, True, False)]],
    [[3, 512, 896, 2, False], [3, 896, 896, 1, True], [3, 896, 896, 1, False]],
]  # the default is made for lines of text, and halves heights only
_PP_OCRV6_SMALL_BLOCKS = [
    [[3, 96, 96, 1, True]],
    [[3, 96, 96, 2, False], [3, 96, 96, 1, False]],
    [[3, 96, 192, 2, False], *[[3, 192, 192, 1, squeezed] for squeezed in (True, False, True, False)]],
    [[3, 192, 384, 2, False], [3, 384, 384, 1, True], [3, 384, 384, 1, False]],
]

_SIDES = {"long": 7, "mid": 5, "short": 3}
_PP_OCR_CONVOLUTIONS = {
    "reduce_channel": [1, 1, 0],
    "return_channel": [1, 1, 0],
    **{f"vertical_long_to_small_conv_{ratio}ratio": [[k, 1], 1, [k // 2, 0]] for ratio, k in _SIDES.items()},
    **{
        f"horizontal_small_to_long_conv_{ratio}ratio": [[1, k], 1, [0, k // 2]] for ratio, k in _SIDES.items()
    },
    **{f"symmetric_conv_long_{ratio}ratio": [k, 1, k // 2] for ratio, k in _SIDES.items()},
}

_QWEN4_EXP = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 128,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 4,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
}

_CODES = 64  # of pictures; published models have thousands, and write down the word of each in every run


def _words_of_chameleon() -> dict[str, int]:
    """Its words for pictures spell the number of a code in letters."""
    spelled = str.maketrans("0123456789", "ABCDEFGHIJ")
    words = {f"IMGIMG{str(code).translate(spelled)}Z": 4 + code for code in range(_CODES)}
    return {"<image>": 8711, **words}


def _words_of_emu3() -> dict[str, int]:
    words = {f"<|visual token {code:06d}|>": 151854 + code for code in range(_CODES)}
    return {"<image>": 151646, "<|extra_200|>": 151846, **words}


REPAIRS: dict[str, dict[str, Any]] = {
    "aria": {"vision_config": {"model_type": "idefics3_vision", "image_size": 980, "patch_size": 14}},
    "autoformer": {"prediction_length": 24},
    "aya_vision": {  # the default has 14 heads for a width of 1152, and an odd number of patches
        "vision_config": {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "patch_size": 14,
            "image_size": 364,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "vision_use_head": False,
        }
    },
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "blenderbot": {
        "use_cache": False
    },  # alone, its decoder takes a cache for as many layers as the encoder has
    "blip-2": {"image_token_index": 50265},
    "blt": {  # looks at values
        "use_cache": False,
        "encoder_hash_byte_group_vocab": 1002,
        "global_config": {"num_hidden_layers": 2},
    },
    "chameleon": {"vocabulary_map": _words_of_chameleon(), "vq_config": {"num_embeddings": _CODES}},
    "cohere_compass": {
        "text_config": {"rope_parameters": _COHERE_COMPASS},
        "vision_config": {"out_hidden_size": 8192},
    },
    "cohere_compass_text": {"rope_parameters": _COHERE_COMPASS},
    "dbrx": {  # looks at values
        "n_layers": 2,
        "attn_config": {"rope_theta": 500000.0, "clip_qkv": 8},
    },
    "deepseek_ocr2": {
        "text_config": {
            "vocab_size": 129280,
            "num_experts_per_tok": 6,
            "mlp_layer_types": ["dense"] + ["sparse"] * 31,
        },
        "vision_config": {"encoder_config": {"hidden_size": 896}},
    },
    "deepseek_v2": {"num_experts_per_tok": 6},
    "diffusion_gemma": {
        "text_config": {"num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}
    },
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "edgetam": {"vision_config": {"backbone_config": _REPVIT}},
    "edgetam_vision_model": {"backbone_config": _REPVIT},
    "emu3": {"vocabulary_map": _words_of_emu3(), "vq_config": {"codebook_size": _CODES}},
    "esm": {"vocab_size": 33, "pad_token_id": 1},
    "exaone4_5": {"vision_config": {"model_type": "exaone4_5_vision", "out_hidden_size": 4096}},
    "funnel": {"architectures": ["FunnelModel"]},  # one of two that it could be
    "gemma3": {"vision_config": {"model_type": "siglip_vision_model", "image_size": 896, "patch_size": 14}},
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}},
    "glm46v": {"text_config": {"model_type": "glm4v_text", "partial_rotary_factor": 0.5}},
    "glm4v": {"text_config": {"partial_rotary_factor": 0.5}},
    "glm4v_moe": {"text_config": {"head_dim": 128}},
    "glm4v_moe_text": {"head_dim": 128},
    "glm4v_text": {"partial_rotary_factor": 0.5},
    "glm5_next": {"text_config": _GLM5_NEXT, "vision_config": {"depth": 2, "out_hidden_size": 512}},
    "glm5_next_text": _GLM5_NEXT,
    "glm_image": {"text_config": {"partial_rotary_factor": 0.5}},
    "glm_image_text": {"partial_rotary_factor": 0.5},
    "glmga": {"text_config": {"model_type": "glm4v_text", "partial_rotary_factor": 0.5}},
    "granite4_vision": {
        "text_config": {"vocab_size": 100353},
        "image_token_index": 100352,
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "num_hidden_layers": 27,
            "num_attention_heads": 16,
            "image_size": 384,
            "patch_size": 16,
        },
        "vision_feature_select_strategy": "full",
        "image_grid_pinpoints": [[384, 384], [384, 768], [768, 384], [768, 768]],
        "downsample_rate": "4/8",
        "deepstack_layer_map": [[-19, 9], [-13, 6], [-7, 3], [-1, 0]],
    },
    "granitemoehybrid": {
        "layer_types": [
            "full_attention" if layer in (5, 15, 25) else "linear_attention" for layer in range(32)
        ]
    },
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl": {"text_config": _HUNYUAN_VL},
    "hunyuan_vl_text": _HUNYUAN_VL,
    "informer": {"prediction_length": 24},
    "instructblip": {"image_token_index": 50265},
    "instructblipvideo": {"video_token_index": 50265},
    "jetmoe": {"num_hidden_layers": 2, "intermediate_size": 1408},  # looks at values
    "lfm2_moe": {
        "num_hidden_layers": 24,
        "layer_types": [
            "full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)
        ],
    },
    "longcat_flash": {  # looks at values
        "num_layers": 2,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "ffn_hidden_size": 1024,
        "q_lora_rank": 192,
        "kv_lora_rank": 64,
        "expert_ffn_hidden_size": 128,
        "n_routed_experts": 32,
        "zero_expert_num": 16,
    },
    "lw_detr": {"projector_scale_factors": [1.0]},
    "ministral": {"head_dim": 128},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 8},
    "nllb-moe": {"num_experts": 8, "encoder_layers": 4, "decoder_layers": 4},  # looks at values
    "openai_privacy_filter": {"num_hidden_layers": 2, "num_local_experts": 32},  # looks at values
    "perception_lm": {
        "text_config": {"vocab_size": 128256},
        "vision_config": {
            "architecture": "vit_pe_core_large_patch14_336",
            "model_args": {
                "embed_dim": 1024,
                "depth": 23,
                "img_size": [448, 448],
                "global_pool": "",
                "use_post_transformer_norm": False,
                "init_values": 0.1,
                "ref_feat_shape": [32, 32],
            },
        },
    },
    "pp_doclayout_v2": {"class_thresholds": [0.5, 0.5], "class_order": [0, 1]},
    "pp_ocrv5_server_det": {
        "intraclass_block_config": _PP_OCR_CONVOLUTIONS,
        "scale_factor_list": [1, 2, 4, 8],
        "kernel_list": [3, 2, 2],
    },
    "pp_ocrv6_medium_det": {
        "backbone_config": {
            "model_type": "pp_lcnet_v4",
            "stem_channels": [3, 64, 128],
            "block_configs": _PP_OCRV6_BLOCKS,
            "out_features": [f"stage{number}" for number in range(1, 5)],
        },
        "intraclass_block_config": _PP_OCR_CONVOLUTIONS,
        "scale_factor_list": [1, 2, 4, 8],
    },
    "pp_ocrv6_small_det": {
        "backbone_config": {
            "model_type": "pp_lcnet_v4",
            "block_configs": _PP_OCRV6_SMALL_BLOCKS,
            "out_features": [f"stage{number}" for number in range(1, 5)],
        },
        "layer_list_out_channels": [96, 96, 192, 384],
    },
    "qwen3_omni_moe": {
        "talker_config": {
            "spatial_merge_size": 2,
            "text_config": {"shared_expert_intermediate_size": 768},
        }
    },
    "qwen3_omni_moe_thinker": {
        "text_config": {"vocab_size": 152064, "num_attention_heads": 32, "head_dim": 128},
        "vision_config": {"out_hidden_size": 2048},
        "audio_config": {"output_dim": 2048},
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "audio_end_token_id": 151648,
    },
    "qwen4_exp": {"text_config": _QWEN4_EXP, "vision_config": {"out_hidden_size": 2048}},
    "qwen4_exp_text": _QWEN4_EXP,
    "reformer": {"is_decoder": True},
    "step3p7": {  # looks at values
        "text_config": {
            "sliding_window": 512,
            "hidden_size": 512,
            "intermediate_size": 1024,
            "num_hidden_layers": 5,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "n_routed_experts": 16,
            "moe_intermediate_size": 128,
            "share_expert_dim": 128,
        },
        "vision_config": {"num_hidden_layers": 2},
        "image_token_id": 128001,
    },
    "t5gemma2_encoder": {
        "text_config": {"dropout_rate": 0.0},
        "vision_config": {"image_size": 896, "patch_size": 14},
    },
    "time_series_transformer": {"prediction_length": 24},
    "timm_backbone": {"backbone": "resnet50"},
    "uvdoc": {
        "backbone_config": {
            "model_type": "uvdoc_backbone",
            "out_features": [f"stage{number}" for number in range(1, 7)],
        }
    },
    "vitmatte": {  # the default is as wide as another backbone, and adds a list to a tuple
        "hidden_size": 768,
        "convstream_hidden_sizes": [48, 96, 192],
        "fusion_hidden_sizes": [256, 128, 64, 32],
    },
}

_DECODERS_OWN = "transformers lists a class for it that takes the configuration of its decoder alone"
OUT: dict[str, str] = {
    "base:dinat": "needs the package natten",
    "base:evolla": "transformers lists a class for it that `AutoModel` refuses",
    "base:higgs_audio_v2_tokenizer": "needs the package torchaudio",
    "base:layoutlmv2": "needs the package detectron2",
    "base:musicgen": _DECODERS_OWN,
    "base:musicgen_melody": _DECODERS_OWN,
    "base:voxtral_realtime_text": "transformers lists a class for it that it does not export",
    "causal:musicgen": _DECODERS_OWN,
    "causal:musicgen_melody": _DECODERS_OWN,
}  # that no configuration builds, each with the reason


def repaired(name: str) -> Any:
    """The default configuration of a type of model, consistent in itself."""
    import transformers

    return transformers.AutoConfig.for_model(name, **deepcopy(REPAIRS.get(name, {})))
