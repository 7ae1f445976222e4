"""Inputs of other kinds: embeddings, series of numbers, what an agent saw and did."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from modelglass.configs.examples import audio, text, vision
from modelglass.configs.examples.facts import BATCH, DECODER_LENGTH, LENGTH, Facts
from modelglass.configs.examples.values import counted, floats, ones, zeros
from modelglass.report import huggingface_keys as hf


def width(facts: Facts) -> int:
    return facts.number(*hf.HIDDEN_SIZE, within=facts.text, default=1) or 1


def embeddings(facts: Facts) -> torch.Tensor:
    larger = facts.number("backbone_hidden_size")  # of a model whose embedding and last layer are both given
    wide = 2 * larger if larger and facts.takes("shared_kv_states") else width(facts)
    return floats((BATCH, LENGTH, wide), facts.dtype)


def shared_states(facts: Facts) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Keys and values of a larger model, by the kind of layer that looks at them."""
    made = {}
    heads = facts.number(hf.HEADS[0], within=facts.text, default=1) or 1
    for each in facts.modules():
        if all(hasattr(each, name) for name in ("layer_type", "head_dim", "num_key_value_groups")):
            form = (BATCH, heads // each.num_key_value_groups, LENGTH, each.head_dim)
            made[str(each.layer_type)] = floats(form, facts.dtype), floats(form, facts.dtype)
    return made


def encoded(facts: Facts) -> torch.Tensor:
    """What an encoder would have given."""
    wide = facts.number("encoder_hidden_size", "cross_attention_hidden_size", default=width(facts))
    return floats((BATCH, LENGTH, wide or 1), facts.dtype)


def inputs_of_encoder(facts: Facts) -> torch.Tensor:
    """Sound, where that is what the encoder of a pair takes; else what comes embedded."""
    name = str(getattr(getattr(facts.native, "encoder", None), "main_input_name", ""))
    made: torch.Tensor = audio.MAKERS.get(name, embeddings)(facts)
    return made


def contexts(facts: Facts) -> torch.Tensor:
    """What some layers of a larger model gave, one beside the other."""
    layers = facts.value("target_layer_ids")
    several = len(layers) if isinstance(layers, (list, tuple)) else 1
    return floats((BATCH, LENGTH, several * width(facts)), facts.dtype)


def unembedded(facts: Facts) -> torch.Tensor:
    """What the first layer takes: patches of pictures, or steps with so many channels or features."""
    if facts.takes("grid_thw"):
        return next(vision.pictures(facts, patches=True))
    first = next((each for each in facts.modules() if isinstance(each, (nn.Conv1d, nn.Linear))), None)
    if isinstance(first, nn.Conv1d):
        return floats((BATCH, first.in_channels, audio.SAMPLES), facts.dtype)
    return embeddings(facts) if first is None else floats((BATCH, LENGTH, first.in_features), facts.dtype)


def series(facts: Facts) -> torch.Tensor:
    """The past of several variables, or of one where the configuration knows of no more."""
    steps = facts.number("context_length", default=LENGTH) or LENGTH
    lags = facts.value("lags_sequence")
    longer = max(lags) if isinstance(lags, (list, tuple)) and lags else 0
    several = facts.number("num_input_channels")
    return floats((BATCH, steps + longer, several) if several else (BATCH, steps + longer), facts.dtype)


def known_of_series(facts: Facts) -> torch.Tensor:
    """What is known of each step of a series: its time, and more."""
    features = [facts.value(name) for name in ("num_time_features", "num_dynamic_real_features")]
    told = [each for each in features if isinstance(each, int)]
    return floats((BATCH, series(facts).shape[1], sum(told) if told else 1), facts.dtype)


def seen_of_series(facts: Facts) -> torch.Tensor:
    return ones(*series(facts).shape, dtype=torch.bool)


def _steps(name: str) -> Any:
    """One vector for each step of an episode, as wide as the configuration says."""
    return lambda facts: floats((BATCH, LENGTH, facts.number(name, default=1) or 1), facts.dtype)


def _acting_width(facts: Facts) -> int:
    return facts.number(hf.HIDDEN_SIZE[0], within=getattr(facts.config, "dit_config", None), default=1) or 1


def times(facts: Facts) -> torch.Tensor:
    return counted((BATCH, LENGTH), list(range(LENGTH)))


def questions(facts: Facts) -> torch.Tensor:
    """A text for a part of the model that has a vocabulary of its own."""
    part = getattr(facts.config, "qformer_config", None)
    size = facts.number(hf.VOCABULARY[0], within=part) or 2
    return counted((BATCH, LENGTH), text.plain_ids(facts, size))


def latents(facts: Facts) -> torch.Tensor:
    """Sound as an encoder has left it, with its channels before its steps."""
    return floats((BATCH, width(facts), LENGTH), facts.dtype)


def sounds_of_decoder(facts: Facts) -> torch.Tensor:
    """Steps of sound that are as wide as the first layer of the decoder takes them."""
    named = facts.native.named_modules()
    layers = (each for name, each in named if "decoder" in name.split(".") and isinstance(each, nn.Linear))
    first = next(layers, None)
    return floats((BATCH, DECODER_LENGTH, first.in_features if first else width(facts)), facts.dtype)


def languages(facts: Facts) -> torch.Tensor:
    """One for each text; one for all where texts are choices."""
    return zeros(1 if facts.has_choices else BATCH)


def tasks(facts: Facts) -> torch.Tensor:
    return zeros(BATCH, facts.number("task_seq_len", default=LENGTH) or LENGTH)


def described_patches(facts: Facts) -> torch.Tensor:
    """Patches that begin with where they are."""
    side = facts.number("patch_size", within=facts.vision, default=16) or 16
    made = floats((BATCH, LENGTH, 2 + vision.channels(facts) * side * side), facts.dtype)
    made[..., :2] = torch.arange(LENGTH)[:, None]
    return made


MAKERS: dict[str, Any] = {
    "inputs_embeds": embeddings,
    "shared_kv_states": shared_states,
    "action_embeds": lambda facts: floats((BATCH, LENGTH, _acting_width(facts)), facts.dtype),
    "classes_input_ids": text.input_ids,
    "classes_attention_mask": text.attention_mask,
    "classes_structure": lambda facts: ones(BATCH),
    "tasks_input_ids": text.input_ids,
    "tasks_attention_mask": text.attention_mask,
    "query_embeds": embeddings,
    "encoder_hidden_states": encoded,
    "inputs": inputs_of_encoder,
    "hidden_states": unembedded,
    "flattened_patches": described_patches,
    "past_values": series,
    "past_time_features": known_of_series,
    "past_observed_mask": seen_of_series,
    "state": lambda facts: floats((BATCH, facts.number("max_state_dim", default=1) or 1), facts.dtype),
    "states": _steps("state_dim"),
    "actions": _steps("act_dim"),
    "rewards": _steps("reward_dim"),
    "returns_to_go": _steps("return_dim"),
    "timesteps": times,
    "qformer_input_ids": questions,
    "task_inputs": tasks,
    "lang_ids": languages,
    "noise_embeds": embeddings,
    "context_hidden_states": contexts,
    "latents": latents,
    "decoder_input_values": sounds_of_decoder,
    "past_values_padding": lambda facts: zeros(*series(facts).shape[:2]),
    "freq": lambda facts: zeros(BATCH, 1),
}
_EPISODE = ("actions", "rewards", "returns_to_go", "timesteps")  # of states; without, actions are to be found
_WANTED = ("bbox", "lang_ids", "visual_feats", "visual_pos", "decoder_input_values", "shared_kv_states")


def wanted(facts: Facts) -> tuple[str, ...]:
    """What a model is given although a call could leave it out."""
    return (*_EPISODE, *_WANTED) if facts.takes("states") else _WANTED
