"""Pictures, films and sound beside text: as they are, and with places in a text that has them inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from math import prod
from typing import Any

from torch import nn

from modelglass.configs.examples import audio, vision
from modelglass.configs.examples.facts import Facts

_PLACES = ("_thw", "_position_ids")  # without which patches are nowhere
MOST_PLACES = 20_000  # of one sample; more would be no text at all


@dataclass(frozen=True)
class Modality:
    """One kind of input beside text, and the names that transformers has for what belongs to it."""

    name: str
    values: tuple[str, ...]  # of arguments
    method: str  # that makes features of it
    places: tuple[str, ...]  # of ids that stand for a feature in a text
    token_type: int
    forms: Callable[..., Iterator[Any]]
    further: dict[str, Any]


def _pictures(facts: Facts, names: set[str]) -> Iterator[Any]:
    if names & {"pixel_position_ids", "image_position_ids", "spatial_shapes"}:
        return vision.placed_patches(facts)
    return vision.pictures(facts, patches=bool(names & {"image_grid_thw", "grid_thw"}))


def _films(facts: Facts, names: set[str]) -> Iterator[Any]:
    return vision.films(facts, patches=bool(names & {"video_grid_thw", "grid_thw"}))


def _features(facts: Facts, names: set[str]) -> Iterator[Any]:
    return audio.features(facts)


def _samples(facts: Facts, names: set[str]) -> Iterator[Any]:
    return audio.samples(facts)


IMAGE = Modality(
    "image",
    ("pixel_values",),
    "get_image_features",
    ("image_token_id", "image_token_index", "img_context_token_id", "im_token_id"),
    1,
    _pictures,
    {
        "image_grid_thw": vision.grid,
        "grid_thw": vision.grid,
        "image_sizes": vision.sizes,
        "merge_sizes": vision.merges,
        "image_attention_mask": vision.shown,
        "pixel_position_ids": vision.positions,
        "image_position_ids": vision.positions,
        "pixel_attention_mask": vision.patch_mask,
        "spatial_shapes": vision.shapes,
    },
)
VIDEO = Modality(
    "video",
    ("pixel_values_videos",),
    "get_video_features",
    ("video_token_id", "video_token_index"),
    2,
    _films,
    {"video_grid_thw": vision.grid, "image_sizes_videos": vision.sizes},
)
FEATURES = Modality(
    "features of sound",
    ("input_features", "audio_input_features", "audio_mel"),
    "get_audio_features",
    ("audio_token_id", "audio_token_index"),
    3,
    _features,
    {
        "input_features_mask": audio.frames_mask,
        "feature_attention_mask": audio.frames_mask,
        "audio_mel_mask": audio.padding_mask,
    },
)
SAMPLES = Modality(
    "sound",
    ("input_values", "audio_values"),
    "get_audio_features",
    ("audio_token_id", "audio_token_index"),
    3,
    _samples,
    {},
)
ALL = (IMAGE, VIDEO, FEATURES, SAMPLES)


def present(facts: Facts) -> list[Modality]:
    """Those that a model takes."""
    return [each for each in ALL if any(facts.takes(name) for name in each.values)]


def place_id(facts: Facts, modality: Modality) -> int | None:
    """The id that stands for a feature in a text; None where a text has no place for them."""
    return next((found for name in modality.places if (found := facts.number(name)) is not None), None)


def forms(facts: Facts, modality: Modality) -> Iterator[dict[str, Any]]:
    """The arguments of a modality, in the forms that there are, first without what may be left out."""
    name = next(name for name in modality.values if facts.takes(name))
    further = {each: make for each, make in modality.further.items() if facts.takes(each)}
    needed = {
        each: make for each, make in further.items() if each.endswith(_PLACES) or each in facts.required
    }
    for values in modality.forms(facts, {*facts.parameters}):
        for chosen in (needed, further) if needed != further else (needed,):
            yield {name: values, **{each: make(facts) for each, make in chosen.items()}}


def placed(facts: Facts, modality: Modality) -> tuple[dict[str, Any], int] | None:
    """The arguments of a modality and how many places they take in all; None where that cannot be found."""
    if not hasattr(facts.native, modality.method):
        return None
    for given in forms(facts, modality):
        number = _places(facts, modality, given)
        if number is not None and number <= MOST_PLACES:
            return given, number
    return None


class _Features(nn.Module):
    """A model that makes features and nothing else."""

    def __init__(self, native: nn.Module, method: str) -> None:
        super().__init__()
        self.native, self.method = native, method

    def forward(self, **given: Any) -> Any:
        return getattr(self.native, self.method)(**given)


def _places(facts: Facts, modality: Modality, given: dict[str, Any]) -> int | None:
    parameters = signature(getattr(facts.native, modality.method)).parameters
    known = {name: value for name, value in given.items() if name in parameters}
    shapes = facts.probe(_Features(facts.native, modality.method), known)
    if not shapes:
        return None
    pooled = [shape for name, shape in shapes if name.startswith("pooler_output")]
    chosen = pooled or [shapes[0][1]]
    return sum(prod(shape[:-1]) for shape in chosen)
