"""Options for a configuration that vLLM builds: how an engine would be set up."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from modelglass import api
from modelglass.cli._command import option, options, options_as
from modelglass.cli._options import device_memory_option
from modelglass.errors import UsageError

_GROUP = "vLLM options"

framework_option = option(
    "--framework",
    metavar="NAME",
    help="Framework of the model: torch, mlx or vllm (builds a configuration as an engine would).",
)

rank_options = options(  # which weights there are, and which of them a rank holds
    option("--tensor-parallel", type=int, metavar="N", group=_GROUP, help="Number of tensor-parallel ranks."),
    option("--rank", type=int, metavar="R", group=_GROUP, help="Rank to show (0-based)."),
    option("--expert-parallel", is_flag=True, group=_GROUP, help="Use expert parallelism."),
    option(
        "--quantization",
        metavar="NAME",
        group=_GROUP,
        help="Quantization method, if the configuration has none.",
    ),
    option(
        "--model-dtype",
        aliases=("--dtype",),
        metavar="NAME",
        group=_GROUP,
        help="Dtype that vLLM gives the weights.",
    ),
)

_SERVING = (
    framework_option,
    rank_options,
    option("--kv-cache-dtype", metavar="NAME", group=_GROUP, help="Dtype of the KV cache."),
    option("--block-size", type=int, metavar="N", group=_GROUP, help="Tokens in a block of the KV cache."),
    option("--max-model-len", type=int, metavar="N", group=_GROUP, help="Tokens of the longest sequence."),
    device_memory_option(group=_GROUP),
    option(
        "--utilization",
        type=float,
        metavar="SHARE",
        group=_GROUP,
        help="Fraction of device memory vLLM may use (default 0.9).",
    ),
)


@dataclass(frozen=True, kw_only=True)
class GivenEngine:
    """A framework, and how vLLM would be set up, as given on the command line."""

    framework: str | None
    tensor_parallel: int | None
    rank: int | None
    expert_parallel: bool
    quantization: str | None
    model_dtype: str | None
    kv_cache_dtype: str | None
    block_size: int | None
    max_model_len: int | None
    device_memory: int | None
    utilization: float | None

    @property
    def options(self) -> dict[str, Any]:
        """The framework and the setup, for functions of the API."""
        given = asdict(self)
        return {"framework": given.pop("framework"), "serving": parse_serving(self.framework, given)}


serving_options = options_as("engine", GivenEngine, *_SERVING)


def parse_serving(framework: str | None, given: dict[str, Any], *, option: str = "--framework") -> Any:
    """How the engine would be set up; None where no option about it is given."""
    asked = {name: value for name, value in given.items() if value is not None and value is not False}
    if not asked:
        return None
    if framework != "vllm":
        name = next(iter(asked)).replace("_", "-")
        raise UsageError(
            f"--{name} applies only to a configuration that vLLM builds",
            hint=f"add {option} vllm, or leave it out",
        )
    if "utilization" in asked and "device_memory" not in asked:
        raise UsageError(
            "--utilization is a fraction of a device's memory", hint="add --device-memory, such as 80GiB"
        )
    if "model_dtype" in asked:
        asked["dtype"] = asked.pop("model_dtype")
    return api.Serving(**asked)
