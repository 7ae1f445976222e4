"""Models as people use them, with inputs, on a device: what tools are timed on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def resnet50(device: str) -> tuple[Any, Any]:
    import torch

    with torch.device(device):
        return _examples().resnet50().eval(), torch.zeros(1, 3, 224, 224)


def vit(device: str) -> tuple[Any, Any]:
    import timm
    import torch

    with torch.device(device):
        return timm.create_model("vit_base_patch16_224").eval(), torch.zeros(1, 3, 224, 224)


def gpt2(device: str) -> tuple[Any, Any]:
    import torch
    import transformers

    with torch.device(device):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
        return model, torch.zeros(1, 128, dtype=torch.long)


def llama(device: str) -> tuple[Any, Any]:
    import torch
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49_152,
        tie_word_embeddings=True,
    )
    with torch.device(device):
        return transformers.LlamaForCausalLM(config).eval(), torch.zeros(1, 128, dtype=torch.long)


def language_model(_: str) -> tuple[Any, Any]:
    """It has weights nowhere."""
    import torch

    with torch.device("meta"):
        return _examples().language_model(80), torch.zeros(1, 4096, dtype=torch.long)


MODELS: dict[str, Callable[[str], tuple[Any, Any]]] = {
    "ResNet-50, 1x3x224x224": resnet50,
    "ViT-B/16 of timm, 1x3x224x224": vit,
    "GPT-2 of transformers, 128 tokens": gpt2,
    "a Llama of 135 M, 128 tokens": llama,
    "78 B on meta, 4096 tokens": language_model,
}


def _examples() -> Any:
    from example_models import example  # of the tests, where whoever builds a model has put the path to

    return example("models")
