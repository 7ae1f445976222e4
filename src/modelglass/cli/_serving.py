"""Options that say how an engine would serve a model, and what they mean together."""

from __future__ import annotations

from typing import Any

import click

from modelglass import api
from modelglass.cli._options import Command
from modelglass.cli.fit import parsed_size
from modelglass.errors import UsageError

_NAMES = {  # as functions have them: as the command line has them
    "tensor_parallel": "--tensor-parallel",
    "rank": "--rank",
    "expert_parallel": "--expert-parallel",
    "quantization": "--quantization",
    "model_dtype": "--dtype",
    "kv_cache_dtype": "--kv-cache-dtype",
    "block_size": "--block-size",
    "max_model_len": "--max-model-len",
    "memory": "--memory",
    "utilization": "--utilization",
}

_FRAMEWORK = click.option(
    "--framework",
    metavar="NAME",
    help="What the model is of: torch, mlx, or vllm, which builds a configuration as an engine would.",
)
_RANKS = (  # which weights there are, and which of them a rank holds
    click.option("--tensor-parallel", type=int, metavar="N", help="vllm: so many ranks share each layer."),
    click.option("--rank", type=int, metavar="R", help="vllm: the rank that is shown, from 0."),
    click.option("--expert-parallel", is_flag=True, help="vllm: each rank has whole experts."),
    click.option(
        "--quantization", metavar="NAME", help="vllm: how weights are quantized, if the config does not say."
    ),
    click.option("--dtype", "model_dtype", metavar="NAME", help="vllm: element type of the weights."),
)
_CACHE = (
    click.option("--kv-cache-dtype", metavar="NAME", help="vllm: element type of the cache."),
    click.option("--block-size", type=int, metavar="N", help="vllm: tokens of a block of the cache."),
    click.option("--max-model-len", type=int, metavar="N", help="vllm: tokens of the longest sequence."),
    click.option(
        "--memory", metavar="SIZE", help="vllm: what a device has, such as 80GiB: how many tokens fit?"
    ),
    click.option(
        "--utilization", type=float, metavar="SHARE", help="vllm: the share of --memory that it may use: 0.9."
    ),
)


def serving_options(command: Command) -> Command:
    """The framework, and how an engine of it would be set up."""
    for option in reversed((_FRAMEWORK, *_RANKS, *_CACHE)):
        command = option(command)
    return command


def rank_options(command: Command) -> Command:
    """What decides which weights a rank of an engine holds."""
    for option in reversed(_RANKS):
        command = option(command)
    return command


def chosen_serving(framework: str | None, given: dict[str, Any], *, option: str = "--framework") -> Any:
    """How the engine would be set up; None where nothing is said about it."""
    asked = {name: value for name, value in given.items() if value is not None and value is not False}
    if not asked:
        return None
    if framework != "vllm":
        raise UsageError(
            f"{_NAMES[next(iter(asked))]} says how an engine would serve a model",
            hint=f"add {option} vllm, or leave it out",
        )
    if "utilization" in asked and "memory" not in asked:
        raise UsageError("--utilization is a share of a device's memory", hint="add --memory, such as 80GiB")
    memory = asked.pop("memory", None)
    if memory is not None:
        asked["device_nbytes"] = parsed_size(memory)
    if "model_dtype" in asked:
        asked["dtype"] = asked.pop("model_dtype")
    return api.Serving(**asked)
