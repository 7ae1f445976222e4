"""vLLM's own classes of a configuration, built on meta: no weights, no engine, no other processes.

Only for a process that is thrown away afterwards: what it exchanges in torch and vLLM stays exchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from modelglass.frameworks.torch.privates import functions_with_device
from modelglass.frameworks.vllm.meta import kernels, missing_packages, world
from modelglass.report import Note, Report, Serving

T = TypeVar("T")

# What is read back while a model is built: which experts a rank holds.
_READ_BACK = (("vllm.model_executor.layers.fused_moe.expert_map_manager", "determine_expert_map"),)
_SMALL = 1 << 16  # elements
# Methods that quantize while weights are loaded, by the method that a quantized checkpoint names.
_AS_STORED: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8_per_tensor": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "fp8_per_block": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
}
# Settings of ours by their names in vLLM; one that is not given stays as vLLM has it.
_SETTINGS = {
    "quantization": "quantization",
    "dtype": "dtype",
    "kv_cache_dtype": "kv_cache_dtype",
    "block_size": "block_size",
    "max_model_len": "max_model_len",
    "utilization": "gpu_memory_utilization",
}


class Builder:
    """Builds ranks of the model in a folder, in this process alone."""

    def __init__(self, folder: str, serving: Serving) -> None:
        self._folder = folder
        self._serving = serving
        self._answered = False  # a kernel reports that it can be used here, and cannot
        self._smallest = 0  # elements of a tensor on meta; smaller ones have values
        self._more = _find_load_quantization(folder, serving.quantization)  # settings of the engine
        # What to do about a model that cannot be built, each once, and what its trouble looks like.
        self._remedies: list[tuple[str, Callable[[], None]]] = [
            ("inspected|import|module", missing_packages.replace_missing_packages),
            ("meta", self._with_values),
            ("prefix-caching", self._without_prefixes),
            ("", self._with_own_kernels),
            ("", kernels.accept_all_kernels),
        ]
        _prepare()

    def build(self, rank: int, size: int, look: Callable[[nn.Module, Any], T]) -> T:
        """What is seen when looking at the modules of one rank and its engine's configuration."""
        try:
            return self._build(rank, size, look)
        except Exception as first:
            problem = telling = first
            while (found := self._remedy(problem)) is not None:
                looks, remedy = found
                remedy()
                try:
                    return self._build(rank, size, look)
                except Exception as other:
                    problem = other
                    telling = (
                        other if looks else telling
                    )  # errors caused by accepted kernels are not the reason
            raise telling from None

    def add_notes(self, report: Report) -> Report:
        """The report with what is odd about how it was built."""
        notes = []
        if "hf_overrides" in self._more:
            text = (
                "vLLM quantizes these weights while it loads them; they are listed as quantized checkpoints"
            )
            notes.append(Note(code="quantized-on-load", text=f"{text} have them"))
        if self._answered:
            text = "vLLM has no kernels for this model on this machine, and built it as for a device that has"
            notes.append(
                Note(code="kernels-missing", text=f"{text} them; kernels may pad weights in their way")
            )
        return replace(report, notes=(*report.notes, *notes))

    def _remedy(self, problem: Exception) -> tuple[str, Callable[[], None]] | None:
        """The next remedy for such trouble; None if there is no other."""
        text = f"{type(problem).__name__}: {problem}".lower()
        for index, (looks, _) in enumerate(self._remedies):
            if re.search(looks, text):
                return self._remedies.pop(index)
        return None

    def _with_values(self) -> None:
        self._smallest = _SMALL

    def _without_prefixes(self) -> None:
        self._more["enable_prefix_caching"] = False

    def _answer(self) -> None:
        self._answered = True

    def _with_own_kernels(self) -> None:
        self._answer()
        kernels.accept_own_kernels()

    def _build(self, rank: int, size: int, look: Callable[[nn.Module, Any], T]) -> T:
        from vllm.config import set_current_vllm_config

        config = self._configuration(size)
        if config.quant_config is not None:
            more_to_try = any(not looks for looks, _ in self._remedies)
            kernels.quantize_all(config.quant_config, self._answer, last=not more_to_try)
        with set_current_vllm_config(config), world.rank_of(rank, size):
            return look(_native(config, self._smallest), config)

    def _configuration(self, size: int) -> Any:
        """How an engine of that many ranks would be set up."""
        from vllm.engine.arg_utils import EngineArgs
        from vllm.usage.usage_lib import UsageContext

        given = {theirs: getattr(self._serving, ours) for ours, theirs in _SETTINGS.items()}
        return EngineArgs(
            model=self._folder,
            load_format="dummy",
            enforce_eager=True,
            skip_tokenizer_init=True,
            allow_deprecated_quantization=True,
            tensor_parallel_size=size,
            enable_expert_parallel=self._serving.expert_parallel,
            distributed_executor_backend="mp" if size > 1 else None,  # which needs no such devices here
            **{**{name: value for name, value in given.items() if value is not None}, **self._more},
        ).create_engine_config(UsageContext.LLM_CLASS)


def _find_load_quantization(folder: str, method: str | None) -> dict[str, Any]:
    """What makes vLLM lay weights out as it keeps them after it quantized them while loading.

    Until then it has them unquantized, and nothing is loaded here. Empty: they are stored quantized.
    """
    stored = _AS_STORED.get(method or "")
    config = json.loads(Path(folder, "config.json").read_bytes())
    if stored is None or any(
        "quantization_config" in part for part in (config, *config.values()) if isinstance(part, dict)
    ):
        return {}
    return {"quantization": stored["quant_method"], "hf_overrides": {"quantization_config": stored}}


def _prepare() -> None:
    from vllm.model_executor.models import registry
    from vllm.triton_utils import triton

    world.without_others()
    # vLLM looks at a model's class in a process apart, lest it change this one.
    registry._run_in_subprocess = lambda function: function()
    if not hasattr(triton, "set_allocator"):  # where triton is missing, vLLM's stand-in lacks it
        triton.set_allocator = lambda allocator: None
    for module_name, name in _READ_BACK:
        module = import_module(module_name)
        setattr(module, name, _run_on_cpu(getattr(module, name)))
    _trace_once()


def _trace_once() -> None:
    """Where vLLM traces modules of transformers, to fuse them, let it not trace what it tries on the way.

    Some modules make it go deeper and deeper, as good as without end.
    """
    from vllm.model_executor.models import transformers

    tracer = getattr(getattr(transformers, "fx_utils", None), "_AllLeafTracer", None)
    infer = getattr(tracer, "_infer_meta", None)
    if tracer is None or infer is None:  # another version's
        return
    trying: list[None] = []

    def once(self: Any, *args: Any) -> Any:
        if trying:
            raise RecursionError("this is being tried already")
        trying.append(None)
        try:
            return infer(self, *args)
        finally:
            trying.pop()

    tracer._infer_meta = once


def _run_on_cpu(function: Callable[..., T]) -> Callable[..., T]:
    """The function, whose tensors have values although a model around it is built on meta."""

    @wraps(function)
    def on_cpu(*args: Any, **kwargs: Any) -> T:
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return on_cpu


def _native(config: Any, smallest: int) -> nn.Module:
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    place = _DeviceMode(smallest) if smallest else torch.device("meta")
    with place, set_default_torch_dtype(config.model_config.dtype):
        native: nn.Module = initialize_model(vllm_config=config)
    return native


class _DeviceMode(TorchFunctionMode):
    """Where tensors are made: large ones on meta, small ones with values, since some are read back."""

    def __init__(self, smallest: int) -> None:
        super().__init__()
        self._smallest = smallest
        self._makers = functions_with_device()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in self._makers or kwargs.get("device") is not None:
            return func(*args, **kwargs)
        made = func(*args, **{**kwargs, "device": "meta"}) if func is not torch.tensor else None
        if made is not None and made.numel() >= self._smallest:
            return made
        return func(*args, **{**kwargs, "device": "cpu"})
