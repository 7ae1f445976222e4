"""Pictures and films, in the size that the configuration says."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import nn

from modelglass.configs.examples.facts import BATCH, LENGTH, Facts
from modelglass.configs.examples.values import floats, ones, whole

_USUAL = 224
_LINE = (48, 320)  # of text, as readers of lines take it
_REGIONS = 7
_PATCHES = (4, 6)  # of a picture that is given as patches, in height and width, before any are merged
_PLACED = (6, 12)  # of one whose patches have their places beside them; some are pooled by 3, some by 4
_STRIP = (8, 12)  # of one whose patches stand beside each other in one long picture; halved, then merged by 2
_CAMERAS = 2
_CLIP = 4  # pictures of a film whose number nothing tells


def size(facts: Facts) -> tuple[int, int]:
    """Height and width."""
    ratios = facts.value("scaled_images_ratios")
    if isinstance(ratios, (list, tuple)) and ratios:  # the smallest copy of a picture is still a patch
        side = round((facts.number("patch_size") or _USUAL) / min(ratios))
        return side, side
    if facts.takes("prompt_pixel_values"):  # a picture stands below another one
        height, width = _size_in(facts.config) or (_USUAL, _USUAL)
        return height // 2, width
    for place in (facts.config, facts.vision, *facts.all_configs, *facts.modules()):
        found = _size_in(place)
        if found is not None:
            return _in_windows(facts, found)
    return _USUAL, _USUAL


def _in_windows(facts: Facts, found: tuple[int, int]) -> tuple[int, int]:
    """A size of so many patches that windows share them without a rest."""
    windows = facts.number("num_windows", within=facts.vision)
    if windows is None:
        return found
    step = windows * (facts.number("patch_size", within=facts.vision) or 1)
    height, width = (-(-each // step) * step for each in found)
    return height, width


def _size_in(place: Any) -> tuple[int, int] | None:
    names = ("image_size", "img_size", "max_img_size", "input_size")
    found = next((each for name in names if (each := getattr(place, name, None)) is not None), None)
    if isinstance(found, dict):
        found = (found.get("height"), found.get("width"))
    if isinstance(found, int):
        return found, found
    if isinstance(found, (list, tuple)) and len(found) >= 2 and all(isinstance(each, int) for each in found):
        return found[-2], found[-1]
    return None


def finer_pictures(facts: Facts) -> torch.Tensor:
    """The same pictures for a part of the model that looks closer."""
    finer = getattr(facts.config, "high_res_vision_config", None)
    return floats((BATCH, channels(facts), *(_size_in(finer) or size(facts))), facts.dtype)


def channels(facts: Facts) -> int:
    return facts.number("num_channels", "in_channels", "in_chans", within=facts.vision, default=3) or 3


def pictures(facts: Facts, *, patches: bool) -> Iterator[torch.Tensor]:
    """A batch of pictures in the forms that models take them in."""
    picture = (channels(facts), *size(facts))
    if patches:
        yield from _loose_patches(facts)
        return
    if facts.is_robot:  # each camera of a robot gives one
        yield floats((BATCH, _CAMERAS, *picture), facts.dtype)
        return
    if facts.is_for("TEXT_RECOGNITION"):
        yield floats((BATCH, channels(facts), *_LINE), facts.dtype)
    frames = facts.number("num_frames", "frames_per_clip", "num_image_with_embedding", within=facts.vision)
    if frames:
        yield floats((BATCH, frames, *picture), facts.dtype)
    yield floats((BATCH, *picture), facts.dtype)
    for number in (1, 2, 3, 5):  # pictures, or pieces of one, of each sample
        yield floats((BATCH, number, *picture), facts.dtype)
    wide = patch_size(facts)
    if any(isinstance(each, nn.Linear) and each.in_features == wide for each in facts.modules()):
        yield floats((BATCH, prod(_PATCHES), wide), facts.dtype)  # cut into patches already


def _loose_patches(facts: Facts) -> Iterator[torch.Tensor]:
    """The patches of all pictures in a row, flat or as small pictures."""
    number = sum(map(prod, grid_of(facts)))
    wide = (each.in_features for each in facts.modules() if isinstance(each, nn.Linear))
    for numbers in dict.fromkeys((patch_size(facts), next(wide, patch_size(facts)))):
        yield floats((number, numbers), facts.dtype)
    side = facts.number("patch_size", within=facts.vision, default=14) or 14
    yield floats((number, channels(facts), side, side), facts.dtype)


def films(facts: Facts, *, patches: bool) -> Iterator[torch.Tensor]:
    picture = (channels(facts), *size(facts))
    if patches:
        yield from pictures(facts, patches=True)
        return
    frames = facts.number("num_frames", "frames_per_clip", within=facts.vision)
    for number in dict.fromkeys((frames or _CLIP, _CLIP, 8, 16)):
        yield floats((BATCH, number, *picture), facts.dtype)


def patch_size(facts: Facts) -> int:
    """The numbers in one patch."""
    side = facts.number("patch_size", "spatial_patch_size", within=facts.vision, default=14) or 14
    deep = facts.number("temporal_patch_size", within=facts.vision, default=1) or 1
    return channels(facts) * deep * side * side


def grid_of(facts: Facts) -> list[list[int]]:
    """How many patches each picture has in time, height and width: as many as merge without a rest."""
    merged = facts.number("spatial_merge_size", "merge_size", within=facts.vision, default=1) or 1
    height, width = (-(-each // merged) * merged for each in _PATCHES)
    return [[1, height, width]] * BATCH


def strips(facts: Facts) -> Iterator[torch.Tensor]:
    """The patches of all pictures beside each other, as one picture of the height of a patch."""
    side = facts.number("patch_size", within=facts.vision, default=14) or 14
    yield floats((1, channels(facts), side, BATCH * prod(_STRIP) * side), facts.dtype)


def strip_sizes(facts: Facts) -> torch.Tensor:
    return whole([list(_STRIP)] * BATCH, dtype=torch.int32)


def placed_patches(facts: Facts) -> Iterator[torch.Tensor]:
    """Patches of each picture, whose places are told beside them."""
    yield floats((BATCH, prod(_PLACED), patch_size(facts)), facts.dtype)


def positions(facts: Facts) -> torch.Tensor:
    height, width = _PLACED
    return whole([[[column, row] for row in range(height) for column in range(width)]] * BATCH)


def patch_mask(facts: Facts) -> torch.Tensor:
    """Which patches are there, or which cameras."""
    if facts.is_robot:
        return ones(BATCH, _CAMERAS, dtype=torch.bool)
    return ones(BATCH, prod(_PLACED))


def shapes(facts: Facts) -> torch.Tensor:
    return whole([list(_PLACED)] * BATCH)


def merges(facts: Facts) -> torch.Tensor:
    merged = facts.number("spatial_merge_size", "merge_size", within=facts.vision, default=1) or 1
    return whole([merged] * BATCH)


def seconds(facts: Facts) -> torch.Tensor:
    """How long each step of a film is."""
    return floats((BATCH,), torch.float32).fill_(1)


def hidden_patches(facts: Facts) -> torch.Tensor:
    """Which patches of a film or picture are to be found again: the first half of them."""
    side = facts.number("patch_size", within=facts.vision, default=16) or 16
    deep = facts.number("tubelet_size", within=facts.vision, default=1) or 1
    frames = facts.number("num_frames", within=facts.vision, default=deep) or deep
    number = frames // deep * prod(each // side for each in size(facts))
    return (torch.arange(number, device="cpu") < number // 2).repeat(BATCH, 1)


def regions(facts: Facts) -> torch.Tensor:
    """Features of regions that another model has found in a picture."""
    wide = facts.number("visual_feat_dim", "visual_embedding_dim", default=1) or 1
    return floats((BATCH, _REGIONS, wide), facts.dtype)


def regions_places(facts: Facts) -> torch.Tensor:
    return floats((BATCH, _REGIONS, facts.number("visual_pos_dim", default=4) or 4), facts.dtype)


def shown(facts: Facts) -> torch.Tensor:
    """Which picture each token may look at."""
    return ones(BATCH, LENGTH, 1)


def grid(facts: Facts) -> torch.Tensor:
    return whole(grid_of(facts))


def sizes(facts: Facts) -> torch.Tensor:
    return whole([list(size(facts))] * BATCH)


def pixel_mask(facts: Facts) -> torch.Tensor:
    return ones(BATCH, *size(facts))


MAKERS: dict[str, Any] = {
    "pixel_values": lambda facts: next(pictures(facts, patches=False)),
    "pixel_values_videos": lambda facts: next(films(facts, patches=False)),
    "image_grid_thw": grid,
    "video_grid_thw": grid,
    "grid_thw": grid,
    "image_sizes": sizes,
    "pixel_mask": pixel_mask,
    "merge_sizes": merges,
    "visual_feats": regions,
    "visual_pos": regions_places,
    "prompt_pixel_values": lambda facts: next(pictures(facts, patches=False)),
    "bool_masked_pos": hidden_patches,
    "prompt_masks": lambda facts: next(pictures(facts, patches=False)),
}
