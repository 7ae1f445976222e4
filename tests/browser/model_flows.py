"""Flows of real models, as `modelglass flow` draws them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch

import modelglass as mg
from example_models import example
from models import ids, mixtral, transformers_model
from torchvision_beside_cpu import make_torchvision_importable

_TINY = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}


def _unet() -> tuple[Any, Any]:
    return example("models").unet(), {"x": torch.zeros(1, 3, 64, 64)}


def _resnet50() -> tuple[Any, Any]:
    return example("models").resnet50(), torch.zeros(1, 3, 64, 64)


def _diffusion() -> tuple[Any, Any]:
    module = example("diffusion")
    return module.SensorDiT(5160, 16, 3, 8, 0.1, 6, 128, 4.0).eval(), module.batch()


def _bert() -> tuple[Any, Any]:
    mask = torch.ones(1, 16, dtype=torch.long)
    return transformers_model("Bert", "Model", **_TINY, vocab_size=90), {
        "input_ids": ids(),
        "attention_mask": mask,
    }


def _t5() -> tuple[Any, Any]:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 3, "num_heads": 4, "vocab_size": 90}
    model = transformers_model("T5", "ForConditionalGeneration", **sizes)
    return model, {"input_ids": ids(), "decoder_input_ids": ids(5)}


def _mixtral() -> tuple[Any, Any]:
    return mixtral(), {"input_ids": ids()}


def _clip() -> tuple[Any, Any]:
    text = {**_TINY, "vocab_size": 90, "eos_token_id": 6}
    vision = {**_TINY, "image_size": 32, "patch_size": 8}
    model = transformers_model("CLIP", "Model", text_config=text, vision_config=vision)
    return model, {"input_ids": ids(), "pixel_values": torch.zeros(1, 3, 32, 32)}


def _whisper() -> tuple[Any, Any]:
    sizes: dict[str, int] = {"d_model": 32, "vocab_size": 90}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 3, f"{side}_attention_heads": 4, f"{side}_ffn_dim": 64}
    lengths = {"max_source_positions": 50, "max_target_positions": 32}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    model = transformers_model("Whisper", "Model", **sizes, **lengths, **tokens)
    return model, {"input_features": torch.zeros(1, 80, 100), "decoder_input_ids": ids(5)}


@cache
def _flow(build: Callable[[], tuple[Any, Any]]) -> mg.Flow:
    make_torchvision_importable()
    return mg.flow(mg.inspect(*build(), symbols=True))


FLOWS: dict[str, Callable[[], mg.Flow]] = {
    f"model-{build.__name__.strip('_')}": partial(_flow, build)
    for build in (_unet, _resnet50, _diffusion, _bert, _t5, _mixtral, _clip, _whisper)
}
