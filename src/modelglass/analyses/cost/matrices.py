"""The weights that products are made with, which few bits can hold and devices can share.

Linear, convolutional and recurrent layers and experts are known by their settings. Others are found when
the model runs: an operator multiplies and sums it with something that is not itself a weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from modelglass.report.execution import Op
from modelglass.report.model import Model, Module, Shape

Kind: TypeAlias = Literal["linear", "experts", "convolution", "recurrent", "embedding"]

_EMBEDDING = "num_embeddings"
_OUTPUTS = ("out_features", "output_dims", "out_channels")
_RECURRENT = ("weight_ih", "weight_hh", "weight_hr", "Wx", "Wh")
_ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


@dataclass(frozen=True)
class Matrix:
    """A weight of at least 2 dimensions, and how many features come out of it.

    An embedding is one as well: nothing is multiplied with it, but devices share it as they do the others.
    """

    kind: Kind
    features: int


def matrices(model: Model) -> dict[str, Matrix]:
    """By name; of weights without a layer that is known, those that the run of the model shows."""
    shapes = _shapes(model)
    found = dict(_of_layers(model, shapes))
    for op in model.ops:
        for name, features in _multiplied_weights(op, shapes):
            found.setdefault(name, Matrix("experts" if len(shapes[name]) > 2 else "linear", features))
    return found


def has_unknown(model: Model) -> bool:
    """Whether there are weights of 2 dimensions or more of which only a run shows what is done with them."""
    known = matrices(model).keys() if not model.ops else ()
    return not model.ops and any(
        sum(size > 1 for size in shape) > 1 for name, shape in _shapes(model).items() if name not in known
    )


def output_layers(found: Mapping[str, Matrix]) -> frozenset[str]:
    """Those of language models: linear ones with a row for each of an embedding's."""
    rows = {each.features for each in found.values() if each.kind == "embedding"}
    return frozenset(name for name, each in found.items() if each.kind == "linear" and each.features in rows)


def _shapes(model: Model) -> dict[str, Shape]:
    """Of the weights that have 2 dimensions or more."""
    return {
        each.name: each.shape
        for each in model.tensors
        if each.kind != "buffer" and each.shape is not None and len(each.shape) > 1
    }


def _of_layers(model: Model, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, Matrix]]:
    """Those known by the settings of layers."""
    for module in model.modules:
        for name in module.tensors:
            shape = shapes.get(name)
            matrix = None if shape is None else _of_layer(module, name.rpartition(".")[2], shape)
            if matrix is not None:
                yield name, matrix


def _of_layer(module: Module, name: str, shape: Shape) -> Matrix | None:
    config = module.config
    if name in _ATTENTION:  # which attention holds without layers for them
        return Matrix("linear", shape[0])
    if "hidden_size" in config and name.startswith(_RECURRENT):
        return Matrix("recurrent", shape[0])
    if len(shape) > 2 and shape[0] in _experts(module):
        return Matrix("experts", prod(shape[:-1]))
    if name != "weight":
        return None
    if _EMBEDDING in config:
        return Matrix("embedding", shape[0])
    if module.type == "Conv1D" and type(config.get("nf")) is int:  # GPT-2's linear layer, transposed
        return Matrix("linear", config["nf"])
    features = next((config[key] for key in _OUTPUTS if type(config.get(key)) is int), None)
    if features is None:
        return None
    return Matrix("convolution" if "kernel_size" in config else "linear", features)


def _experts(module: Module) -> frozenset[int]:
    """The number of experts in a module's settings."""
    return frozenset(
        value for key, value in module.config.items() if "expert" in key.lower() and type(value) is int
    )


def _multiplied_weights(op: Op, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, int]]:
    """The weight that an operator multiplies with something else, and its output features."""
    if not op.macs or op.phase != "forward" or not op.outputs:
        return
    wide = [value for value in op.inputs if value.shape is not None and len(value.shape) > 1]
    weights = [value.tensor for value in wide if value.tensor in shapes]
    if len(weights) != 1 or len(wide) != 2 or weights[0] is None:
        return  # of two weights neither is one that inputs are multiplied with
    numel, made = prod(shapes[weights[0]]), op.outputs[0].numel or 0
    summed = op.macs // made if made else 0
    yield weights[0], numel // summed if summed and numel % summed == 0 else numel
