"""Trials of inputs: what an MLX model shows of them before it runs, and one traced run with a guess."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_map

from modelglass.frameworks.mlx.inputs.shapes import is_embedding, make_inputs
from modelglass.frameworks.mlx.session import observe
from modelglass.frameworks.mlx.structure.modules import walk
from modelglass.frameworks.shared.request import Detail, Inputs, Request
from modelglass.frameworks.shared.specs import TensorSpec
from modelglass.frameworks.shared.trials import made_inputs, size_hints, trial_of
from modelglass.inputs import Call, Model, Tensor, Trial, Want
from modelglass.inputs.described import FLOAT
from modelglass.inputs.signature import parameters

ARRAYS = "mx"  # whose functions make arrays, in Python that is shown
_FIRST = 40  # parts of a model whose attributes are looked at
# Layers whose input ends with the last size of a weight, and its rank where the layer says it.
_WEIGHTED: Mapping[type[nn.Module], tuple[str, tuple[int, ...]]] = {
    nn.Linear: ("weight", ()),
    nn.LayerNorm: ("weight", ()),
    nn.RMSNorm: ("weight", ()),
    nn.BatchNorm: ("running_mean", ()),
    nn.GroupNorm: ("weight", ()),
    nn.RNN: ("Wxh", (3,)),
    nn.GRU: ("Wx", (3,)),
    nn.LSTM: ("Wx", (3,)),
    nn.Conv1d: ("weight", (3,)),
    nn.Conv2d: ("weight", (4,)),
    nn.Conv3d: ("weight", (5,)),
    nn.ConvTranspose1d: ("weight", (3,)),
    nn.ConvTranspose2d: ("weight", (4,)),
    nn.ConvTranspose3d: ("weight", (5,)),
}


def known_of(native: nn.Module) -> Model:
    """What a model shows of its inputs without a run."""
    layers = [(path, want) for path, module in walk(native) if (want := _want(module)) is not None]
    return Model(
        parameters=parameters(native.__call__),
        wants=layers,
        hints=dict(size_hints(_attributes(native))),
    )


def prepare() -> None:
    """Traced runs load nothing of their own."""


def can_be_copied() -> bool:
    """Whether a copy of the process can run trials: a GPU cannot be shared with one."""
    return not mx.metal.is_available() and not mx.cuda.is_available()


def prepare_copy(native: nn.Module) -> None:
    """In a copy of the process the thread that computes is missing.

    A stream of its own brings another, and weights that wait for the first one are replaced.
    """
    mx.set_default_stream(mx.new_stream(mx.default_device()))
    native.update(tree_map(_fresh, native.parameters()))


def _fresh(array: mx.array) -> mx.array:
    floating = mx.issubdtype(array.dtype, mx.floating)
    return (
        mx.random.normal(array.shape, key=mx.random.key(0)) if floating else mx.zeros(array.shape)
    ).astype(array.dtype)


def try_inputs(native: nn.Module, call: Call, *, in_copy: bool = False) -> Trial:
    """One traced run with a guess; what it raises is its result."""
    found = observe(native, Request(inputs=inputs_of(native, call, fake=True), detail=Detail.FLOW))
    layers = dict(walk(native))
    return trial_of(
        found.run, len(found.model.ops), lambda path: _want(layers[path]) if path in layers else None
    )


def inputs_of(native: nn.Module, call: Call, *, fake: bool) -> Inputs:
    """Arrays as described; MLX evaluates them when somebody asks for their values."""
    floating = float_name(native)

    def made(name: str, tensor: Tensor) -> Any:
        spec = TensorSpec(tensor.shape, floating if tensor.dtype == FLOAT else tensor.dtype, name)
        return make_inputs(native, (spec,)).kwargs[name]

    return made_inputs(call, made)


def float_name(native: nn.Module) -> str:
    """The element type of floating inputs: that of the weights."""
    held = (each for _, module in walk(native) for each in dict.values(module))
    types = (each.dtype for each in held if isinstance(each, mx.array))
    floats = (each for each in types if mx.issubdtype(each, mx.floating))
    return str(next(floats, mx.float32)).removeprefix("mlx.core.")


def _want(module: nn.Module) -> Want | None:
    """What a layer accepts; None of one that is not in the table."""
    if is_embedding(module):
        return Want(whole=True)
    if isinstance(module, nn.QuantizedLinear):
        return Want(sizes=((-1, module["scales"].shape[-1] * module.group_size),))
    if isinstance(module, nn.InstanceNorm):
        return Want(sizes=((-1, module.dims),))
    for cls, (name, ranks) in _WEIGHTED.items():
        if isinstance(module, cls) and name in module:
            groups = getattr(module, "groups", 1)
            return Want(ranks, ((-1, module[name].shape[-1] * groups),))
    return None


def _attributes(native: nn.Module) -> Iterator[tuple[str, Any]]:
    """Those of a model and its first parts."""
    for _, module in islice(walk(native), _FIRST):
        yield from {**vars(module), **module}.items()
