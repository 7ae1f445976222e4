"""Sound: as samples, and as features of frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from modelglass.configs.examples.facts import BATCH, LENGTH, Facts
from modelglass.configs.examples.values import floats, ones, zeros
from modelglass.report import huggingface_keys as hf

SAMPLES = 19_200  # of which every usual stride is a divisor
_FRAMES = 400
_BANDS = (
    *("num_mel_bins", "n_mels", "mel_bins", "num_mel", "input_feat_per_channel", "feature_size"),
    *("feature_projection_input_dim", "num_chroma", "input_feat_size", "input_dim", "num_features"),
    "input_size",
)
_USUAL = (80, 128)


def bands(facts: Facts) -> list[int]:
    """How many features a frame may have, the likeliest first."""
    said = (facts.number(name) for name in _BANDS)
    wide = (each.in_features for each in facts.modules() if isinstance(each, nn.Linear))
    first = next(wide, None)  # what takes the features as they are
    return list(dict.fromkeys(number for number in (*said, *_USUAL, first) if number is not None))


def features(facts: Facts) -> Iterator[torch.Tensor]:
    """Features of frames: bands first where a convolution over time comes first."""
    frames = _frames(facts)
    for number in bands(facts):
        first = next((each for each in facts.modules() if _is_first(each, number)), None)
        forms = [(BATCH, number, frames), (BATCH, frames, number)]
        for form in forms if isinstance(first, nn.Conv1d) else reversed(forms):
            yield floats(form, facts.dtype)
        yield floats((BATCH, 1, frames, number), facts.dtype)  # as a picture of one channel


def _is_first(module: Any, number: int) -> bool:
    """Whether a layer may be the one that takes the bands."""
    if isinstance(module, nn.Conv1d):
        return module.in_channels == number
    return isinstance(module, nn.Linear) and module.in_features == number


def _frames(facts: Facts) -> int:
    """As many as the model has positions for, where it must be all of them; or as go with another input."""
    hop, each = facts.number("encoder_hop_length", "hop_length"), facts.number("audio_length_per_tok")
    if hop and facts.takes("input_values", "input_features"):
        return SAMPLES // hop
    if each and facts.takes("input_ids"):
        return LENGTH * each
    positions = facts.number("max_source_positions", within=facts.audio)
    strides = [each.stride[0] for each in facts.modules() if isinstance(each, nn.Conv1d)]
    if positions is None or not strides or positions > 2 * _FRAMES * 4:
        return _FRAMES
    return positions * max(strides[:2])


def samples(facts: Facts) -> Iterator[torch.Tensor]:
    """Sound as it is, or as a spectrogram where the configuration knows of one."""
    number, frames = facts.number(*_BANDS, within=facts.audio), facts.number("max_length", within=facts.audio)
    if number and frames:
        yield floats((BATCH, frames, number), facts.dtype)
    yield floats((BATCH, SAMPLES), facts.dtype)
    yield floats((BATCH, facts.number("audio_channels", default=1) or 1, SAMPLES), facts.dtype)
    yield floats((BATCH, _FRAMES, number or 80), facts.dtype)
    yield floats(
        (BATCH, LENGTH, facts.number(hf.HIDDEN_SIZE[0], default=1) or 1), facts.dtype
    )  # encoded already


def frames_mask(facts: Facts) -> torch.Tensor:
    return ones(BATCH, _frames(facts))


def padding_mask(facts: Facts) -> torch.Tensor:
    return zeros(BATCH, _frames(facts), dtype=torch.bool)


MAKERS: dict[str, Any] = {
    "input_features": lambda facts: next(features(facts)),
    "input_values": lambda facts: next(samples(facts)),
    "input_features_mask": frames_mask,
    "feature_attention_mask": frames_mask,
    "audio_mel": lambda facts: next(features(facts)),
    "audio_mel_mask": padding_mask,
}
