"""A varied sample of real architectures, beside torch's own counter where that one is right.

torch's counter is right on the meta device with attention written out; it is asked on the same model that
modelglass inspects with fake tensors of a real device.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import modelglass as mg

VISION = [
    "resnet18",
    "convnext_atto",
    "efficientnet_b0",
    "mobilenetv3_small_050",
    "vit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224",
    "maxvit_pico_rw_256",
    "mixer_s32_224",
    "regnety_002",
    "xcit_nano_12_p16_224",
    "coat_lite_tiny",
    "pvt_v2_b0",
    "densenet121",
    "halonet26t",
    "edgenext_xx_small",
    "levit_128s",
]

LANGUAGE = [
    "bert",
    "bloom",
    "codegen",
    "cohere",
    "deepseek_v3",
    "electra",
    "falcon",
    "gemma2",
    "gpt_neox",
    "gptj",
    "granite",
    "llama",
    "mamba",
    "mistral",
    "olmo2",
    "opt",
    "phi3",
    "qwen2",
    "roberta",
    "stablelm",
    "starcoder2",
]


def meta(build: Any) -> nn.Module:
    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return build().eval()


def language_model(name: str) -> nn.Module:
    import transformers

    config = transformers.AutoConfig.for_model(name)
    if getattr(config, "layer_types", None) is None and hasattr(config, "num_hidden_layers"):
        config.num_hidden_layers = min(2, config.num_hidden_layers)
    model = transformers.AutoModelForCausalLM
    return meta(lambda: model.from_config(config, attn_implementation="eager"))


def torchs_own_count(model: nn.Module, inputs: dict[str, Any]) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**{name: tensor.to("meta") for name, tensor in inputs.items()})
    return counter.get_total_flops() // 2


def check(model: nn.Module, inputs: dict[str, Any]) -> None:
    report = mg.inspect(model, inputs=inputs)
    assert report.run.failure is None
    assert report.run.mode == "fake"
    assert report.counts.params == sum(p.numel() for p in model.parameters())
    assert report.cost.unknown_ops == {}
    assert report.cost.macs == torchs_own_count(model, inputs)


@pytest.mark.parametrize("name", VISION)
@pytest.mark.filterwarnings("ignore")
def test_vision(name: str) -> None:
    import timm

    model = meta(lambda: timm.create_model(name))
    check(model, {"x": torch.zeros(1, *model.default_cfg["input_size"])})


@pytest.mark.parametrize("name", LANGUAGE)
@pytest.mark.filterwarnings("ignore")
def test_language(name: str) -> None:
    check(language_model(name), {"input_ids": torch.arange(16)[None] % 2})


@pytest.mark.filterwarnings("ignore")
def test_attention_written_out_or_fused_costs_the_same() -> None:
    import transformers

    config = transformers.AutoConfig.for_model("llama", num_hidden_layers=2)
    build = transformers.AutoModelForCausalLM.from_config
    costs = {
        kind: mg.inspect(
            meta(lambda kind=kind: build(config, attn_implementation=kind)),
            inputs={"input_ids": torch.zeros(1, 32, dtype=torch.long)},
        ).cost.macs
        for kind in ("eager", "sdpa")
    }
    assert costs["eager"] == costs["sdpa"]
