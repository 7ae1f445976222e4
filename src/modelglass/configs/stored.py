"""The names and shapes under which transformers stores the weights of a model, where they are not its own."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from modelglass.configs.process import offline_and_quiet

# What the internals of a library raise for a model that they were not written for.
_FAILURES = (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError, NotImplementedError)
_MOST_TOLD = 200  # characters of a message


class Stored(NamedTuple):
    """A tensor of a checkpoint. `name` is the model's own for it; None: it is a part, or made of several."""

    shape: tuple[int, ...]
    dtype: str
    name: str | None


def stored_form(native: Any) -> tuple[dict[str, Stored] | None, str | None]:
    """The tensors of the checkpoint that the model's library would write, by name; or why nobody knows them.

    Neither: it is not a model of transformers, or is stored as it is. Nothing is computed.
    """
    loading = sys.modules.get("transformers.core_model_loading")
    modeling = sys.modules.get("transformers.modeling_utils")
    revert = getattr(loading, "revert_weight_conversion", None)  # there since transformers 5
    if revert is None or modeling is None or not isinstance(native, modeling.PreTrainedModel):
        return None, None
    state = {name: tensor.detach().to("meta") for name, tensor in native.state_dict().items()}
    try:
        with offline_and_quiet():
            found = revert(native, dict(state))
    except _FAILURES as trouble:
        lines = str(trouble).strip().splitlines() or [""]
        return None, f"{type(trouble).__name__}: {lines[0][:_MOST_TOLD]}"
    if found.keys() == state.keys():
        return None, None
    names = {id(tensor): name for name, tensor in state.items()}
    form = {
        name: Stored(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), names.get(id(tensor)))
        for name, tensor in found.items()
        if isinstance(tensor, torch.Tensor)
    }
    return form, None
