"""Small models of transformers, and what is made for them to be called with."""

from __future__ import annotations

import warnings
from typing import Any

import torch
import transformers

from modelglass.api._inputs import automatic_inputs

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
TEXT = {**SMALL, "vocab_size": 120}
PICTURE = {**SMALL, "image_size": 32, "patch_size": 8}
ROBOT = {
    "vlm_config": {
        "model_type": "paligemma",
        "text_config": {"model_type": "gemma", **TEXT, "num_key_value_heads": 1, "head_dim": 8},
        "vision_config": {"model_type": "siglip_vision_model", **PICTURE, "vision_use_head": False},
        "projection_dim": 32,
        "image_token_id": 110,
    },
    "dit_config": {"model_type": "gemma", **TEXT, "num_key_value_heads": 1, "head_dim": 8},
}


def built(type: str, config: dict[str, Any], *, causal: bool = False) -> Any:
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return auto.from_config(transformers.AutoConfig.for_model(type, **config)).eval()


def built_as(name: str, config: dict[str, Any]) -> Any:
    """A model of the class of that name."""
    made = getattr(transformers, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made._from_config(made.config_class(**config)).eval()


def called(model: Any) -> dict[str, Any]:
    """The inputs that are made for a model, which was called with them."""
    given = automatic_inputs(model)
    assert given is not None
    with torch.no_grad():
        model(**given.kwargs)
    return dict(given.kwargs)
