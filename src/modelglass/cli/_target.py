"""What a command is about: a target, how it is built, and what it is called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from modelglass import api
from modelglass.cli._command import option, options, options_as
from modelglass.cli._options import budget_option, inputs_options, no_run_option, parse_or_find, trust_option
from modelglass.cli._types import TargetName

target_argument = click.argument("target", type=TargetName())

config_options = options(
    option(
        "--builder",
        metavar="CODE",
        type=TargetName(),
        help="Function that builds the model; it receives the whole configuration.",
    ),
    option(
        "--model-key",
        metavar="KEY",
        help="Path of the model inside the configuration, for example train.model.",
    ),
    trust_option,
)


@dataclass(frozen=True, kw_only=True)
class GivenTarget:
    """A target as it is given on the command line."""

    target: str
    inputs: str | None = None
    specs: tuple[str, ...] = ()
    budget: float = api.SEARCH_SECONDS
    no_run: bool = False
    builder: str | None
    model_key: str | None
    trust: bool

    @property
    def arguments(self) -> tuple[str, Any]:
        """The target and its inputs, given or to be found, for functions of the API."""
        return self.target, parse_or_find(self.inputs, self.specs, self.budget)

    @property
    def build(self) -> dict[str, Any]:
        """How it is built, for functions of the API."""
        return {"builder": self.builder, "model_key": self.model_key, "trust": self.trust}


target_options = options_as(
    "given", GivenTarget, target_argument, inputs_options, budget_option, config_options
)
structure_options = options_as(
    "given", GivenTarget, target_argument, inputs_options, budget_option, no_run_option, config_options
)
weights_options = options_as("given", GivenTarget, target_argument, config_options)
