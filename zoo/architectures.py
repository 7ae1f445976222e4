"""The architectures of timm and transformers: their names, and how each is built without weights."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from zoo.repairs import repaired

from torchvision_beside_cpu import make_torchvision_importable

os.environ["HF_HUB_OFFLINE"] = "1"
make_torchvision_importable()


def every() -> Iterator[str]:
    """All names: `timm:resnet18`, and `base:bert`, `causal:llama` or `other:zoedepth` of transformers.

    Those of transformers are the types that `AutoModel` and `AutoModelForCausalLM` list, and those that only
    others of its auto classes do.
    """
    import timm
    from transformers.models.auto import modeling_auto as auto

    yield from (f"timm:{name}" for name in timm.list_models())
    yield from (f"base:{name}" for name in auto.MODEL_MAPPING_NAMES)
    yield from (f"causal:{name}" for name in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    yield from (f"other:{name}" for name in _classes_of_others())


def build(architecture: str, *, written_out: bool = False, device: str = "meta") -> Any:
    """The model in eval mode, with its weights on that device: on meta it has none.

    `written_out`: attention as matrix products and a softmax, and experts as batched products, which is what
    a counter of operators understands.
    """
    import torch

    kind, _, name = architecture.partition(":")
    make = _timm if kind == "timm" else _transformers(kind)
    torch.manual_seed(0)  # what runs may depend on weights: they are the same each time
    with quietly(), torch.device(device):
        return make(name, written_out).eval()


def _timm(name: str, written_out: bool) -> Any:
    import timm
    from timm.layers import config

    before = config.use_fused_attn()
    timm.layers.set_fused_attn(not written_out)
    try:
        return timm.create_model(name)
    finally:
        timm.layers.set_fused_attn(bool(before))


def _transformers(kind: str) -> Callable[[str, bool], Any]:
    import transformers

    def make(name: str, written_out: bool) -> Any:
        # Experts as batched products: "eager" ones ask for values, to leave out those that nobody visits.
        ways = {"attn_implementation": "eager", "experts_implementation": "batched_mm"} if written_out else {}
        if kind == "other":
            return getattr(transformers, _classes_of_others()[name])._from_config(repaired(name), **ways)
        auto = transformers.AutoModel if kind == "base" else transformers.AutoModelForCausalLM
        return auto.from_config(repaired(name), **ways)

    return make


@cache
def _classes_of_others() -> dict[str, str]:
    """The types that have neither a base model nor a causal one, each with the first class listed for it."""
    from transformers.models.auto import configuration_auto, modeling_auto as auto

    found: dict[str, str] = {}
    for variable, table in vars(auto).items():
        if variable.startswith("MODEL_") and variable.endswith("_MAPPING_NAMES"):
            for name, classes in table.items():
                found.setdefault(name, classes if isinstance(classes, str) else classes[0])
    known = {*auto.MODEL_MAPPING_NAMES, *auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    types = found.keys() & configuration_auto.CONFIG_MAPPING_NAMES.keys()  # some tables name a class instead
    return {name: found[name] for name in sorted(types - known)}


@contextmanager
def quietly() -> Iterator[None]:
    """What libraries say about a model that nobody trained is of no interest."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
