"""The names and shapes under which transformers stores the weights of a model, where they are not its own."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from modelglass.configs.process import offline_and_quiet

# What the internals of a library raise for a model that they were not written for.
_FAILURES = (RuntimeError, ValueError, KeyError, TypeError, AttributeError, IndexError, NotImplementedError)


class Stored(NamedTuple):
    """A tensor of a checkpoint. `name` is the model's own for it; None: it is a part, or made of several."""

    shape: tuple[int, ...]
    dtype: str
    name: str | None


def stored_form(native: Any) -> dict[str, Stored] | None:
    """The tensors of the checkpoint that the model's library would write, by name.

    None: it is no model of transformers, or is stored as it is. Nothing is computed.
    """
    loading = sys.modules.get("transformers.core_model_loading")
    modeling = sys.modules.get("transformers.modeling_utils")
    revert = getattr(loading, "revert_weight_conversion", None)  # there since transformers 5
    if revert is None or modeling is None or not isinstance(native, modeling.PreTrainedModel):
        return None
    state = {name: tensor.detach().to("meta") for name, tensor in native.state_dict().items()}
    try:
        with offline_and_quiet():
            found = revert(native, dict(state))
    except _FAILURES:
        return None
    if found.keys() == state.keys():
        return None
    names = {id(tensor): name for name, tensor in state.items()}
    return {
        name: Stored(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), names.get(id(tensor)))
        for name, tensor in found.items()
        if isinstance(tensor, torch.Tensor)
    }
