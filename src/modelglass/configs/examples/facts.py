"""What the configuration and the class of a model of transformers say about its inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from modelglass.report import huggingface_keys as hf

Shapes = list[tuple[str, tuple[int, ...]]]  # of what a module gives, by name
Probe = Callable[[Any, dict[str, Any]], Shapes | None]

BATCH, LENGTH, DECODER_LENGTH = 2, 16, 12  # small, and told apart wherever they show up

_TEXT = (*hf.TEXT_PARTS, "text", "decoder")
_VISION = ("vision_config", "vision", "image_encoder", "encoder", "backbone_config", "image_config")
_AUDIO = (
    *("audio_config", "audio_encoder", "audio_encoder_config", "speech_config"),
    *("encoder", "encoder_config"),
)


@dataclass(frozen=True)
class Facts:
    """A model with its configuration."""

    native: Any
    config: Any
    probe: Probe
    tried_with_choices: bool = False  # whatever the tables say

    @classmethod
    def of(cls, native: Any, probe: Probe) -> Facts | None:
        """The facts of a model of transformers; None of any other."""
        library = sys.modules.get("transformers")  # whoever made the model has loaded it
        packages = {base.__module__.partition(".")[0] for base in type(native).__mro__}
        if library is None or "transformers" not in packages:
            return None
        if not isinstance(native, library.PreTrainedModel):
            return None
        # A copy: some configurations have properties that build others, and change themselves when read.
        return cls(native, deepcopy(native.config), probe)

    @property
    def can_be_called(self) -> bool:
        """Whether the class says what a call does; some have only methods of other names."""
        return not _is_missing(type(self.native).forward)

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """What `forward` takes by name."""
        found = signature(self.native.forward).parameters
        open_ended = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
        return {name: each for name, each in found.items() if each.kind not in open_ended}

    @cached_property
    def required(self) -> list[str]:
        return [name for name, each in self.parameters.items() if each.default is Parameter.empty]

    @property
    def main(self) -> str:
        return str(self.native.main_input_name)

    def is_for(self, task: str) -> bool:
        """Whether transformers takes a model of this class for that task, as its own tables say."""
        return f"MODEL_FOR_{task}_MAPPING_NAMES" in self.tables

    @cached_property
    def tables(self) -> frozenset[str]:
        """The names of transformers' tables of models by task that have the class of this one."""
        auto = vars(import_module("transformers.models.auto.modeling_auto"))
        classes = {each.__name__ for each in type(self.native).__mro__}
        found = set()
        for name, table in auto.items():
            if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES"):
                listed = ((each,) if isinstance(each, str) else each for each in table.values())
                if any(not classes.isdisjoint(each) for each in listed):
                    found.add(name)
        return frozenset(found)

    def takes(self, *names: str) -> bool:
        return all(name in self.parameters for name in names)

    @property
    def has_choices(self) -> bool:
        """Whether texts come several at a time, of which one is chosen."""
        return self.tried_with_choices or self.is_for("MULTIPLE_CHOICE")

    @property
    def is_robot(self) -> bool:
        """Whether a model acts on what several cameras see."""
        return self.takes("action_embeds") or self.takes("state", "actions")

    @cached_property
    def text(self) -> Any:
        """The part of the configuration that is about text."""
        try:
            return self.config.get_text_config(decoder=True)
        except (AttributeError, ValueError, TypeError):
            return part(self.config, _TEXT) or self.config

    @cached_property
    def vision(self) -> Any:
        return part(self.config, _VISION) or self.config

    @cached_property
    def audio(self) -> Any:
        return part(self.config, _AUDIO) or self.config

    @cached_property
    def all_configs(self) -> list[Any]:
        """The configuration and every one inside of it."""
        return list(_nested(self.config))

    def number(self, *names: str, within: Any = None, default: int | None = None) -> int | None:
        """The first whole number under one of these names, in that part of the configuration first."""
        places = [self.config, *self.all_configs] if within is None else [within, self.config]
        for place in places:
            for name in names:
                value = getattr(place, name, None)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
        return default

    def value(self, *names: str, within: Any = None) -> Any:
        """The first value under one of these names, None when there is none."""
        for place in [within or self.config, *self.all_configs]:
            for name in names:
                found = getattr(place, name, None)
                if found is not None:
                    return found
        return None

    @cached_property
    def dtype(self) -> Any:
        from modelglass.configs.examples.values import float_dtype

        return float_dtype(self.native)

    def modules(self) -> Iterator[Any]:
        return iter(self.native.modules())


def _is_missing(forward: Any) -> bool:
    from torch import nn

    return forward is nn.Module.forward


def part(config: Any, names: tuple[str, ...]) -> Any:
    """The first configuration inside of another under one of these names."""
    for name in names:
        found = getattr(config, name, None)
        if hasattr(found, "model_type"):
            return found
    return None


def _nested(config: Any, depth: int = 0) -> Iterator[Any]:
    yield config
    if depth < 4:
        for value in list(vars(config).values()):
            if hasattr(value, "model_type") and hasattr(value, "to_dict"):
                yield from _nested(value, depth + 1)
