"""A varied sample of real architectures passes every check that `make zoo` makes of all of them."""

from __future__ import annotations

import pytest
import torch
from zoo.architectures import build, every
from zoo.checks import looked_at
from zoo.judging import judged

import modelglass as mg

SAMPLE = [
    *("timm:bat_resnext26ts", "timm:botnet26t_256", "timm:cait_xxs24_224", "timm:coat_lite_tiny"),
    *("timm:convnext_atto", "timm:davit_tiny", "timm:densenet121", "timm:dla34", "timm:edgenext_xx_small"),
    *("timm:efficientnet_b0", "timm:fastvit_t8", "timm:gcvit_xxtiny", "timm:halonet26t"),
    *("timm:hiera_tiny_224", "timm:lambda_resnet26t", "timm:levit_128s", "timm:mambaout_femto"),
    *("timm:maxvit_pico_rw_256", "timm:mixer_s32_224", "timm:mobilenetv3_small_050", "timm:pvt_v2_b0"),
    *("timm:regnety_002", "timm:repvit_m0_9", "timm:resnet18", "timm:sequencer2d_s"),
    *("timm:swin_tiny_patch4_window7_224", "timm:vit_tiny_patch16_224", "timm:volo_d1_224"),
    *("timm:xcit_nano_12_p16_224", "base:albert", "base:audio-spectrogram-transformer", "base:big_bird"),
    *("base:clip", "base:deberta-v2", "base:detr", "base:encodec", "base:funnel", "base:longformer"),
    *("base:mobilevit", "base:perceiver", "base:sam", "base:segformer", "base:t5", "base:timesformer"),
    *("base:wav2vec2", "base:whisper", "causal:bloom", "causal:codegen", "causal:falcon", "causal:gemma2"),
    *("causal:gpt2", "causal:gpt_oss", "causal:gpt_neo", "causal:llama", "causal:mamba", "causal:mixtral"),
    *("causal:opt", "causal:olmoe", "causal:xglm", "causal:rwkv", "causal:starcoder2"),
    *("other:depth_anything", "other:speech-encoder-decoder", "other:superpoint", "other:upernet"),
]


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.filterwarnings("ignore")
def test_an_architecture_passes_every_check(name: str) -> None:
    (row,) = judged([looked_at(name)])
    assert row["wrong"] == {}
    assert "as_built" not in row
    assert row["macs"] == row["truth"] > 0


def test_the_zoo_has_two_thousand_architectures_once_each() -> None:
    names = list(every())
    assert len(names) == len(set(names)) > 2000
    assert set(SAMPLE) <= set(names)


@pytest.mark.filterwarnings("ignore")
def test_attention_written_out_or_fused_costs_the_same() -> None:
    inputs = {"input_ids": torch.zeros(1, 32, dtype=torch.long)}
    costs = [
        mg.inspect(build("causal:gpt2", written_out=written_out), inputs).cost
        for written_out in (False, True)
    ]
    assert costs[0].macs == costs[1].macs > 0
