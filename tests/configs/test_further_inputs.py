"""Inputs for models of series, and for models that give features of pictures in lists of their own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from transformers import (
    PreTrainedConfig,
    PreTrainedModel,
    TimeSeriesTransformerConfig,
    TimeSeriesTransformerModel as Series,
)

import modelglass as mg
from modelglass.api._inputs import automatic_inputs

SMALL = {"prediction_length": 6, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}


@pytest.mark.parametrize(
    ("known", "features"),
    [
        pytest.param({}, 0, id="nothing"),
        pytest.param({"num_time_features": 2}, 2, id="times"),
        pytest.param({"num_time_features": 2, "num_dynamic_real_features": 3}, 5, id="times-and-more"),
    ],
)
def test_a_series_comes_with_as_much_as_is_known_of_its_steps(known: dict[str, int], features: int) -> None:
    model = Series(TimeSeriesTransformerConfig(**SMALL, **known)).eval()
    given = automatic_inputs(model)
    assert given is not None
    assert given.kwargs["past_time_features"].shape == (2, 13, features)
    assert torch.isfinite(model(**given.kwargs).last_hidden_state).all()


class ListedConfig(PreTrainedConfig):
    model_type = "listed"
    vocab_size, hidden_size, image_token_id, image_size, patch_size = 40, 12, 39, 16, 8


class Listed(PreTrainedModel):
    """Gives the features of pictures by layer, each as a list, and before them its patches, with one more."""

    config_class = ListedConfig

    def __init__(self, config: ListedConfig) -> None:
        super().__init__(config)
        self.patches = nn.Conv2d(3, 6, config.patch_size, config.patch_size)
        self.project = nn.Linear(6, config.hidden_size)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)

    def get_image_features(self, pixel_values: torch.Tensor) -> dict[str, object]:
        patches = self.patches(pixel_values).flatten(2).transpose(1, 2)
        listed = list(self.project(patches))
        whole = torch.cat([patches.mean(1, keepdim=True), patches], dim=1)
        return {"patches": whole, "layers": [(0, listed), (1, listed)]}

    def forward(self, input_ids: torch.Tensor, pixel_values: torch.Tensor | None = None) -> torch.Tensor:
        made = self.embed(input_ids)
        if pixel_values is None:
            return made
        features = torch.cat(self.get_image_features(pixel_values)["layers"][0][1])
        places = input_ids == self.config.image_token_id
        return made.index_put((places,), features)


def test_features_in_a_list_of_pictures_get_a_place_each() -> None:
    model = Listed(ListedConfig()).eval()
    given = automatic_inputs(model)
    assert given is not None
    places = int((given.kwargs["input_ids"] == 39).sum())
    patches = math.prod(given.kwargs["pixel_values"].shape) // (3 * 8 * 8)
    assert places == patches > 0
    report = mg.inspect(model, given)
    assert report.run is not None
    assert report.run.failure is None
