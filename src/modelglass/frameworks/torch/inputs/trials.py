"""Trials of inputs: what a torch model shows of them before it runs, and one fake run with a guess."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import islice
from math import prod
from typing import Any

import torch
from torch import nn

from modelglass.frameworks.shared.request import Detail, Inputs, Request
from modelglass.frameworks.shared.specs import TensorSpec
from modelglass.frameworks.shared.trials import made_inputs, size_hints, trial_of
from modelglass.frameworks.torch.inputs.shapes import make_inputs
from modelglass.frameworks.torch.session import observe, run_fake
from modelglass.frameworks.torch.structure import modules as structure
from modelglass.inputs import Call, Model, Tensor, Trial, Want
from modelglass.inputs.described import FLOAT
from modelglass.inputs.search import POSITIONS
from modelglass.inputs.signature import parameters

ARRAYS = "torch"  # whose functions make tensors, in Python that is shown
SMALL = 1 << 22  # elements of a model and its inputs that may run for real, where values decide
_CONVOLUTIONS = (
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_NORMS = (
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)
# What layers accept: the ranks of their input, the attribute that is a size of it, and of which dimension.
_LAYERS: Mapping[type[nn.Module], tuple[tuple[int, ...], str, int]] = {
    **dict.fromkeys(_CONVOLUTIONS, ((), "in_channels", 1)),
    **dict.fromkeys(_NORMS, ((), "num_features", 1)),
    nn.GroupNorm: ((), "num_channels", 1),
    nn.Linear: ((), "in_features", -1),
    nn.LayerNorm: ((), "normalized_shape", -1),
    nn.RMSNorm: ((), "normalized_shape", -1),
    nn.RNNBase: ((3,), "input_size", -1),
    nn.RNNCellBase: ((2,), "input_size", -1),
    nn.MultiheadAttention: ((3,), "embed_dim", -1),
    nn.TransformerEncoderLayer: ((3,), "self_attn.embed_dim", -1),
}
_RANKS = {"1d": 3, "2d": 4, "3d": 5}  # by the end of a layer's name
_FIRST = 40  # parts of a model whose attributes are looked at


def known_of(native: nn.Module) -> Model:
    """What a model shows of its inputs without a run."""
    layers = [(path, want) for path, module in structure.walk(native) if (want := _want(module)) is not None]
    lists = [len(each) for each in native.modules() if isinstance(each, nn.ModuleList)]
    return Model(
        parameters=parameters(native.forward),
        wants=layers,
        hints={**dict(size_hints(_attributes(native))), **_positions(native)},
        parts=lists[0] if lists and lists[0] < 9 else 0,
    )


@cache
def prepare() -> None:
    """Load what fake runs need, which every copy of the process would load again."""
    request = Request(inputs=Inputs(args=(torch.empty(1, 1, device="meta"),)), detail=Detail.FLOW)
    run_fake(nn.Linear(1, 1, device="meta"), request, in_copy=False)


def can_be_copied() -> bool:
    """Whether a copy of the process can run trials: a GPU that is in use cannot be shared with one."""
    return not torch.cuda.is_initialized()


def prepare_copy(native: nn.Module) -> None:
    """In a copy of the process: the threads that kernels share their work with stayed behind, and they would
    wait for them for ever."""
    torch.set_num_threads(1)


def try_inputs(native: nn.Module, call: Call, *, in_copy: bool = False) -> Trial:
    """One fake run; a real one where values decide and the model is small. What it raises is its result."""
    request = Request(inputs=inputs_of(native, call, fake=True), detail=Detail.FLOW)
    depth, run, wants_values = run_fake(native, request, in_copy=in_copy)
    if run.failure is not None and wants_values and _is_small(native, call):
        real = observe(native, replace(request, inputs=inputs_of(native, call, fake=False), mode="real"))
        depth, run = len(real.model.ops), real.run
    layers = dict(structure.walk(native))
    return trial_of(run, depth, lambda path: _want(layers[path]) if path in layers else None)


def _is_small(native: nn.Module, call: Call) -> bool:
    """Whether a model has values, and a run with them costs next to nothing."""
    held = [*native.parameters(), *native.buffers()]
    given = sum(prod(each.shape) for each in call.tensors().values())
    return not any(each.is_meta for each in held) and given + sum(each.numel() for each in held) < SMALL


def inputs_of(native: nn.Module, call: Call, *, fake: bool, device: str | None = None) -> Inputs:
    """Tensors as a description says, without memory where that can be."""
    floating = float_name(native)

    def made(name: str, tensor: Tensor) -> Any:
        spec = TensorSpec(tensor.shape, floating if tensor.dtype == FLOAT else tensor.dtype, name)
        return make_inputs(native, (spec,), device, fake=fake).kwargs[name]

    return made_inputs(call, made)


def float_name(native: nn.Module) -> str:
    """The element type of floating inputs: that of the weights."""
    found = (
        each.dtype
        for each in native.parameters()
        if each.dtype in (torch.float16, torch.bfloat16, torch.float64)
    )
    return str(next(found, torch.float32)).removeprefix("torch.")


def _want(module: nn.Module) -> Want | None:
    """What a layer accepts; None of one that is not in the table."""
    if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return Want(whole=True)
    for cls, (ranks, name, dim) in _LAYERS.items():
        if isinstance(module, cls):
            size: Any = module
            for part in name.split("."):
                size = getattr(size, part)
            sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
            names = (each.__name__ for each in type(module).__mro__)
            rank = next((_RANKS[name[-2:]] for name in names if name[-2:] in _RANKS), None)
            if not ranks and rank is not None:
                ranks = (rank, 2) if type(module).__name__ == "BatchNorm1d" else (rank,)
            places = range(dim - len(sizes) + 1, dim + 1) if dim < 0 else (dim,)
            return Want(ranks, tuple((at, int(each)) for at, each in zip(places, sizes, strict=True)))
    return None


def _attributes(native: nn.Module) -> Iterator[tuple[str, Any]]:
    """Those of a model and its first parts."""
    for _, module in islice(structure.walk(native), _FIRST):
        yield from vars(module).items()


def _positions(native: nn.Module) -> dict[str, int]:
    """How many positions a model has learned, where a table of its own that has a batch of one says so."""
    for name, tensor in native.named_parameters():
        if "pos" in name.rpartition(".")[2] and tensor.dim() == 3 and tensor.shape[0] == 1:
            return {POSITIONS: tensor.shape[1]}
    return {}
