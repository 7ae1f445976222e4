"""MLX models: what they consist of, read without evaluating anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from modelglass.analyses.counts import count
from modelglass.frameworks.mlx.structure import modules as structure
from modelglass.frameworks.mlx.structure.tree import walk_nodes
from modelglass.report import Counts, Model


def model_of(native: nn.Module) -> Model:
    return structure.read(native)[0]


def named_arrays(native: nn.Module) -> list[tuple[str, mx.array]]:
    return [(name, slot.array) for name, slot in structure.name_slots(walk_nodes(native))]


def counts_of(native: nn.Module) -> Counts:
    return count(model_of(native))


def note_codes(native: nn.Module) -> dict[str, tuple[str, ...]]:
    return {note.code: note.where for note in structure.read(native)[1]}


def distinct(tree: Any) -> int:
    """Elements of a tree of MLX's, each array once."""
    return sum({id(array): array.size for _, array in tree_flatten(tree)}.values())


def as_mlx_counts(native: nn.Module) -> tuple[int, int]:
    return distinct(native.parameters()), distinct(native.trainable_parameters())


def holder(**attributes: Any) -> nn.Module:
    """A module with these attributes."""
    native = nn.Module()
    for key, value in attributes.items():
        setattr(native, key, value)
    return native


def kinds(native: nn.Module) -> dict[str, str]:
    return {tensor.name: tensor.kind for tensor in model_of(native).tensors}


def paths(native: nn.Module) -> dict[str, str]:
    return {module.path: module.type for module in model_of(native).modules}


def config(native: nn.Module, path: str = "") -> dict[str, Any]:
    return next(dict(module.config) for module in model_of(native).modules if module.path == path)


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.linear1 = nn.Linear(3136, 128)
        self.linear2 = nn.Linear(128, 10)


def frozen_first() -> nn.Module:
    native = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 5))
    native.layers[0].freeze()
    return native


def biases_only() -> nn.Module:
    native = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 5))
    native.freeze()
    native.unfreeze(keys="bias")
    return native


def frozen_list() -> nn.Module:
    native = holder(layers=[nn.Linear(4, 4), nn.Linear(4, 4)], head=nn.Linear(4, 2))
    native._no_grad.add("layers")
    return native


def frozen_in_containers() -> nn.Module:
    native = holder(d={"w": mx.zeros((2, 3)), "b": mx.zeros((3,))}, steps=[mx.zeros((4,)), [mx.zeros((5,))]])
    native._no_grad.update({"d.w", "steps.1.0"})
    return native


def frozen_under_one_name() -> nn.Module:
    native = holder(one=nn.Linear(4, 4, bias=False), other=nn.Linear(4, 4, bias=False))
    native.other.weight = native.one.weight
    native.one.freeze()
    return native


def frozen_on_one_way() -> nn.Module:
    shared = nn.Linear(4, 4)
    native = holder(one=shared, other=shared)
    native._no_grad.add("one")
    return native


COUNTS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "one layer as root": (partial(nn.Linear, 10, 5), 55, 55),
    "two layers": (lambda: nn.Sequential(nn.Linear(784, 128), nn.relu, nn.Linear(128, 10)), 101_770, 101_770),
    "convolutions": (Convolutional, 422_218, 422_218),
    "first layer frozen": (frozen_first, 325, 105),
    "only biases trained": (biases_only, 325, 25),
    "running statistics": (partial(nn.BatchNorm, 16), 64, 32),
    "an LSTM": (partial(nn.LSTM, 10, 20), 2_480, 2_480),
    "a list frozen by its name": (frozen_list, 50, 10),
    "arrays frozen inside containers": (frozen_in_containers, 18, 7),
    "a weight frozen under one of its names": (frozen_under_one_name, 16, 16),
    "a module frozen on one of its ways": (frozen_on_one_way, 20, 20),
    "no parameters": (partial(nn.Dropout, 0.5), 0, 0),
    "a transformer": (partial(nn.TransformerEncoder, 2, 16, 2, 32), 4_352, 4_352),
}


@pytest.mark.parametrize(("build", "params", "trainable"), COUNTS.values(), ids=COUNTS)
def test_counts_are_those_of_mlx_with_each_array_once(
    build: Callable[[], nn.Module], params: int, trainable: int
) -> None:
    native = build()
    counts = counts_of(native)
    assert (counts.params, counts.trainable) == (params, trainable) == as_mlx_counts(native)


def test_definition_order_and_containers_are_kept() -> None:
    native = holder(b=nn.Linear(2, 2), a=[nn.ReLU(), {"z": nn.Linear(2, 2), "y": nn.ReLU()}], c=nn.ReLU())
    assert paths(native) == {
        "": "Module",
        "b": "Linear",
        "a": "list",
        "a.0": "ReLU",
        "a.1": "dict",
        "a.1.z": "Linear",
        "a.1.y": "ReLU",
        "c": "ReLU",
    }
    root, _, first, *_ = model_of(native).modules
    assert root.children == ("b", "a", "c")
    assert (first.qualified_type, first.children) == ("builtins.list", ("a.0", "a.1"))
    assert [path for path, _ in structure.walk(native)] == ["", "b", "a.0", "a.1.z", "a.1.y", "c"]


def test_arrays_in_containers_belong_to_the_module_that_has_them() -> None:
    native = holder(inner=holder(d={"w": mx.zeros((2, 2)), "more": [mx.zeros((3,)), mx.zeros((4,))]}))
    inner = model_of(native).modules[1]
    assert inner.tensors == ("inner.d.w", "inner.d.more.0", "inner.d.more.1")
    assert [name for name, _ in named_arrays(native)] == list(inner.tensors)
    assert counts_of(native).params == 11


def test_one_weight_by_three_names_counts_once() -> None:
    native = holder(a=nn.Linear(4, 4, bias=False), b=nn.Linear(4, 4, bias=False), c=[mx.zeros((1,))])
    native.b.weight = native.a.weight
    native.c = [native.a.weight]
    counts = counts_of(native)
    assert counts.params == 16
    assert counts.tied == {"a.weight": "c.0", "b.weight": "c.0"}


def test_a_shared_module_is_listed_once_with_its_other_paths() -> None:
    shared = nn.Linear(8, 8)
    native = nn.Sequential(shared, nn.ReLU(), shared)
    module = next(m for m in model_of(native).modules if m.path == "layers.0")
    assert module.aliases == ("layers.2",)
    assert counts_of(native).params == 72


def test_cycles_end() -> None:
    native = holder(child=nn.Linear(2, 2))
    native.child.parent = native
    loop: list[Any] = [mx.zeros((3,))]
    loop.append(loop)
    native.loop = loop
    model = model_of(native)
    assert [module.path for module in model.modules] == ["", "child"]
    assert model.modules[0].aliases == ("child.parent",)
    assert count(model).params == 9


def test_a_private_module_is_in_the_tree_and_its_arrays_are_buffers() -> None:
    native = holder(_aux=nn.Linear(3, 3), head=nn.Linear(3, 2), _freqs=mx.zeros((5,)))
    assert paths(native) == {"": "Module", "_aux": "Linear", "head": "Linear"}
    assert {name: kind for name, kind in kinds(native).items() if kind == "buffer"} == {
        "_freqs": "buffer",
        "_aux.weight": "buffer",
        "_aux.bias": "buffer",
    }
    assert note_codes(native) == {"private-module": ("_aux",)}
    assert structure.find_non_persistent(native) == {"_freqs", "_aux.weight", "_aux.bias"}
    counts = counts_of(native)
    assert (counts.params, counts.trainable) == as_mlx_counts(native) == (8, 8)
    assert counts.buffers == 17


def test_what_is_in_a_tuple_is_listed_and_warned_of() -> None:
    native = holder(blocks=(nn.Linear(3, 3), nn.Linear(3, 3)), scales=(mx.zeros((4,)),), ok=nn.Linear(2, 2))
    assert paths(native)["blocks"] == "tuple"
    assert note_codes(native) == {"unregistered-module": ("blocks",), "unregistered-array": ("scales.0",)}
    counts = counts_of(native)
    assert (counts.params, counts.buffers) == (6, 28)
    assert counts.params == as_mlx_counts(native)[0]


def test_a_module_set_past_mlx_is_listed_and_warned_of() -> None:
    native = holder(ok=nn.Linear(2, 2))
    object.__setattr__(native, "teacher", nn.Linear(4, 4))
    assert paths(native)["teacher"] == "Linear"
    assert note_codes(native) == {"unregistered-module": ("teacher",)}
    assert counts_of(native).params == as_mlx_counts(native)[0] == 6


def test_what_a_private_name_only_repeats_is_known_by_its_public_path() -> None:
    layer = nn.Linear(3, 3)
    native = holder(_first=layer, _all=(layer,), layers=[layer])
    module = next(m for m in model_of(native).modules if m.type == "Linear")
    assert (module.path, set(module.aliases)) == ("layers.0", {"_first", "_all.0"})
    assert note_codes(native) == {}
    assert counts_of(native).params == 12


def test_functions_in_a_sequential_are_modules_without_tensors() -> None:
    native = nn.Sequential(
        nn.Linear(2, 2), mx.tanh, nn.gelu, lambda x: x, partial(mx.softmax, axis=-1), nn.gelu
    )
    assert list(paths(native).values())[2:] == ["Linear", "tanh", "gelu", "<lambda>", "softmax", "gelu"]
    found = list(structure.find_functions(walk_nodes(native)))
    assert [path for path, *_ in found] == [f"layers.{at}" for at in range(1, 6)]
    for _, steps, at, function in found:
        assert steps[at] is function
    module = next(m for m in model_of(native).modules if m.path == "layers.2")
    assert module.qualified_type == "mlx.nn.layers.activations.gelu"


def test_a_list_that_is_no_list_of_steps_has_no_functions() -> None:
    native = holder(sizes=[1, 2], choices=["relu", nn.relu], kinds=[nn.Linear, nn.ReLU])
    assert list(paths(native)) == [""]


def test_keys_with_dots_and_keys_that_read_alike_have_paths_of_their_own() -> None:
    native = holder(d={"a.b": nn.Linear(2, 2), "a/b": nn.Linear(3, 3), 0: nn.ReLU(), "0": nn.ReLU()})
    model = model_of(native)
    assert [module.path for module in model.modules] == ["", "d", "d.a/b", "d.a/b'", "d.0", "d.0'"]
    assert model.tensors[0].name == "d.a.b.weight"  # as MLX saves it
    assert count(model).params == 18


CONFIGS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "Linear": (partial(nn.Linear, 10, 5), {"input_dims": 10, "output_dims": 5, "bias": True}),
    "Linear without bias": (
        partial(nn.Linear, 10, 5, bias=False),
        {"input_dims": 10, "output_dims": 5, "bias": False},
    ),
    "Bilinear": (
        partial(nn.Bilinear, 3, 4, 5),
        {"input1_dims": 3, "input2_dims": 4, "output_dims": 5, "bias": True},
    ),
    "Embedding": (partial(nn.Embedding, 10, 4), {"num_embeddings": 10, "dims": 4}),
    "Conv2d": (
        lambda: nn.Conv2d(4, 8, (3, 5), stride=2, groups=2),
        {
            "in_channels": 4,
            "out_channels": 8,
            "kernel_size": [3, 5],
            "stride": [2, 2],
            "padding": [0, 0],
            "dilation": 1,
            "groups": 2,
            "bias": True,
        },
    ),
    "Dropout": (partial(nn.Dropout, 0.1), {"p": 0.1}),
    "LayerNorm": (partial(nn.LayerNorm, 6, bias=False), {"dims": 6, "eps": 1e-5, "affine": True}),
    "GroupNorm": (
        partial(nn.GroupNorm, 2, 6),
        {"num_groups": 2, "dims": 6, "eps": 1e-5, "affine": True, "pytorch_compatible": False},
    ),
    "MaxPool2d": (
        partial(nn.MaxPool2d, 2),
        {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0]},
    ),
    "RNN": (
        partial(nn.RNN, 3, 4),
        {"input_dims": 3, "hidden_size": 4, "nonlinearity": "tanh", "bias": True},
    ),
    "MultiHeadAttention": (partial(nn.MultiHeadAttention, 8, 2), {"num_heads": 2}),
}


@pytest.mark.parametrize(("build", "expected"), CONFIGS.values(), ids=CONFIGS)
def test_settings_are_in_the_words_of_the_constructor(
    build: Callable[[], nn.Module], expected: dict[str, Any]
) -> None:
    assert config(build()) == expected


class Experts(nn.Module):
    """Sizes that only properties tell, as mixtures of experts in MLX have them."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.weight = mx.zeros((experts, width, width))
        self.dtype = mx.bfloat16
        self.ranges = [1, 2]
        self.table = {"a": (1, 2.5)}

    @property
    def experts(self) -> int:
        return self.weight.shape[0]

    @property
    def width(self) -> int:
        raise RuntimeError("nobody knows")

    def _extra_repr(self) -> str:
        return f"scale={self.weight}, weird=<object at 0x7f>, depth=(1, 2)"


def test_settings_come_from_attributes_properties_and_descriptions_without_evaluation() -> None:
    native = Experts(1 << 15, 8)  # 32 GiB if it were computed
    before = mx.get_active_memory()
    said = config(native)
    assert mx.get_active_memory() - before < 1 << 20
    assert said["experts"] == 8
    assert said["dtype"] == "bfloat16"
    assert said["ranges"] == [1, 2]
    assert said["table"] == {"a": [1, 2.5]}
    assert said["depth"] == [1, 2]
    assert "width" not in said
    assert "weird" not in said


class Broken(nn.Module):
    def _extra_repr(self) -> str:
        raise ValueError("no description")


def test_a_layer_that_cannot_describe_itself_is_read() -> None:
    assert config(Broken()) == {}


def test_training_flags_are_told_and_put_back() -> None:
    native = holder(a=nn.Linear(2, 2), _b=nn.Dropout(), c=(nn.Dropout(),))
    native.train(False)
    native.a.train()
    told = {module.path: module.training for module in model_of(native).modules}
    assert told == {"": False, "a": True, "_b": False, "c": None, "c.0": True}
    native.c[0].train(False)
    with structure.in_training(native):
        assert native.training
        assert native._b.training
        assert not native.c[0].training  # train() does not reach it either
    assert not native.training
    assert native.a.training
    assert not native._b.training


def test_training_mode_does_not_unpack_quantized_weights() -> None:
    native = nn.QQLinear(64, 64)
    native.train(False)
    weight = native.weight
    with structure.in_training(native):
        assert native.training
        assert native.weight is weight
    assert not native.training


def test_a_module_that_never_called_its_base_is_read() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            self.weight = mx.zeros((3,))

    native = Bare()
    model = model_of(native)
    assert model.modules[0].training is None
    assert count(model).params == 3
    with structure.in_training(native):
        pass
    assert "_training" not in vars(native)


def test_seventy_billion_parameters_are_read_at_once_and_cost_no_memory() -> None:
    native = nn.TransformerEncoder(80, 8192, 64, 28672)
    before = mx.get_active_memory()
    began = time.process_time()
    counts = counts_of(native)
    assert time.process_time() - began < 1
    assert mx.get_active_memory() - before < 1 << 20
    assert counts.params == 80 * (4 * 8192**2 + 2 * 8192 * 28672 + 8192 + 28672 + 4 * 8192) + 2 * 8192


def test_reading_changes_nothing() -> None:
    native = holder(a=nn.Linear(2, 2), b=[nn.BatchNorm(2)], _c=nn.Dropout(), d=(mx.zeros((2,)),))
    native.a.freeze()
    before = [(path, type(m), dict(m), dict(vars(m)), set(m._no_grad)) for path, m in structure.walk(native)]
    arrays = [id(array) for _, array in named_arrays(native)]
    state = [id(array) for array in mx.random.state]
    model_of(native)
    after = [(path, type(m), dict(m), dict(vars(m)), set(m._no_grad)) for path, m in structure.walk(native)]
    assert [row[:2] for row in before] == [row[:2] for row in after]
    for (*_, items, attributes, frozen), (*_, items_now, attributes_now, frozen_now) in zip(
        before, after, strict=True
    ):
        assert list(items) == list(items_now)
        assert all(items[key] is items_now[key] for key in items)
        assert attributes == attributes_now
        assert frozen == frozen_now
    assert arrays == [id(array) for _, array in named_arrays(native)]
    assert state == [id(array) for array in mx.random.state]
