"""Pictures, films and sound beside text: as they are, and with places in a text that has them inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from math import prod
from typing import Any

from torch import nn

from modelglass.configs.examples import audio, vision
from modelglass.configs.examples.facts import BATCH, Facts
from modelglass.configs.examples.further import width

_NEEDED = (
    *("_thw", "_position_ids", "target_sizes", "target_sizes_videos", "_per_grid"),
    *("high_res_pixel_values",),
)
_SEVERAL_PICTURES = 5  # dimensions of pictures of which each sample has several
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
    if "target_sizes" in names:
        return vision.strips(facts)
    if names & {"pixel_position_ids", "image_position_ids", "spatial_shapes"}:
        return vision.placed_patches(facts)
    return vision.pictures(facts, patches=bool(names & {"image_grid_thw", "grid_thw"}))


def _films(facts: Facts, names: set[str]) -> Iterator[Any]:
    if "target_sizes_videos" in names:
        return vision.strips(facts)
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
        "target_sizes": vision.strip_sizes,
        "high_res_pixel_values": vision.finer_pictures,
    },
)
VIDEO = Modality(
    "video",
    ("pixel_values_videos",),
    "get_video_features",
    ("video_token_id", "video_token_index"),
    2,
    _films,
    {
        "video_grid_thw": vision.grid,
        "image_sizes_videos": vision.sizes,
        "target_sizes_videos": vision.strip_sizes,
        "video_second_per_grid": vision.seconds,
    },
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
    needed = {each: make for each, make in further.items() if _is_needed(facts, each)}
    for values in modality.forms(facts, {*facts.parameters}):
        for chosen in (needed, further) if needed != further else (needed,):
            yield {name: values, **{each: make(facts) for each, make in chosen.items()}}


def _is_needed(facts: Facts, name: str) -> bool:
    """Whether pictures and films are nothing without an argument; robots tell which cameras they have."""
    return name.endswith(_NEEDED) or name in facts.required or facts.is_robot


def placed(facts: Facts, modality: Modality) -> tuple[dict[str, Any], int] | None:
    """The arguments of a modality and how many places they take in all; None where that cannot be found."""
    maker = _maker(facts.native, modality.method)
    if maker is None:
        queries = facts.number("num_query_tokens", "latent_query_num")
        return (next(forms(facts, modality)), BATCH * queries) if queries else None
    for given in forms(facts, modality):
        seen = given if maker is facts.native else {name: _one_by_one(value) for name, value in given.items()}
        number = _places(facts, maker, modality, seen)
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


def _maker(native: nn.Module, method: str) -> nn.Module | None:
    """What makes features: the model, or the nearest part of it that is a model of its own."""
    near = [native, *native.children()]
    within = (each for part in near[1:] for each in part.children())
    return next((each for each in (*near, *within) if hasattr(each, method)), None)


def _one_by_one(value: Any) -> Any:
    """Pictures of all samples together, for a part of a model that knows of no samples."""
    return value.flatten(0, 1) if value.dim() == _SEVERAL_PICTURES else value


def _places(facts: Facts, maker: nn.Module, modality: Modality, given: dict[str, Any]) -> int | None:
    parameters = signature(getattr(maker, modality.method)).parameters
    known = {name: value for name, value in given.items() if name in parameters}
    shapes = facts.probe(_Features(maker, modality.method), known)
    if not shapes:
        return None
    pooled = [shape for name, shape in shapes if name.startswith("pooler_output")]
    chosen = pooled or _taken_by_text(shapes, width(facts))
    queries = facts.number("num_query_tokens")  # that stand for all features of a picture
    if queries and not any(queries in shape[:-1] for shape in chosen):
        return BATCH * queries
    return sum(prod(shape[:-1]) for shape in chosen)


def _taken_by_text(shapes: list[tuple[str, tuple[int, ...]]], wide: int) -> list[tuple[int, ...]]:
    """The first output; or where it is not as wide as a text, those of the first list that are."""
    fitting = [(name.rpartition(".")[0], shape) for name, shape in shapes if shape[-1:] == (wide,)]
    if shapes[0][1][-1:] == (wide,) or not fitting:
        return [shapes[0][1]]
    beside = fitting[0][0]
    return [shape for name, shape in fitting if name == beside] if beside else [fitting[0][1]]
