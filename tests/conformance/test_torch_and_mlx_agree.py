"""The same networks in torch and in MLX give the same facts, save those in `DIFFERENCES`.

A network is a function of a framework's own words, so that both are written once, side by side. Images have
their channels first in torch and last in MLX: shapes are compared with channels last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as mlx_nn
import pytest
import torch
import torch.nn.functional as F
from torch import nn as torch_nn

import modelglass as mg
from modelglass.report import Report, Shape


class Torch:
    """What the networks need of torch."""

    name, nn, Module = "torch", torch_nn, torch_nn.Module
    ReLU, MaxPool, Conv, ConvTranspose, BatchNorm = (
        torch_nn.ReLU,
        torch_nn.MaxPool2d,
        torch_nn.Conv2d,
        torch_nn.ConvTranspose2d,
        torch_nn.BatchNorm2d,
    )
    relu, tanh = staticmethod(torch.relu), staticmethod(torch.tanh)

    @staticmethod
    def layers(*modules: Any) -> Any:
        return torch_nn.ModuleList(modules)

    @staticmethod
    def lstm(inputs: int, outputs: int) -> Any:
        return torch_nn.LSTM(inputs, outputs, batch_first=True)

    @staticmethod
    def floats(*shape: int) -> Any:
        return torch.zeros(shape)

    @staticmethod
    def image(batch: int, height: int, width: int, channels: int) -> Any:
        return torch.zeros(batch, channels, height, width)

    @staticmethod
    def ids(*shape: int) -> Any:
        return torch.zeros(shape, dtype=torch.int32)

    @staticmethod
    def freeze(module: Any) -> None:
        module.requires_grad_(False)

    @staticmethod
    def attention(queries: Any, keys: Any, values: Any, scale: float) -> Any:
        return F.scaled_dot_product_attention(queries, keys, values, scale=scale)

    @staticmethod
    def heads(x: Any, count: int) -> Any:
        return x.reshape(*x.shape[:2], count, -1).transpose(1, 2)

    @staticmethod
    def unheaded(x: Any) -> Any:
        return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Mlx:
    """The same words in MLX."""

    name, nn, Module = "mlx", mlx_nn, mlx_nn.Module
    ReLU, MaxPool, Conv, ConvTranspose, BatchNorm = (
        mlx_nn.ReLU,
        mlx_nn.MaxPool2d,
        mlx_nn.Conv2d,
        mlx_nn.ConvTranspose2d,
        mlx_nn.BatchNorm,
    )
    relu, tanh = staticmethod(mlx_nn.relu), staticmethod(mx.tanh)

    @staticmethod
    def layers(*modules: Any) -> Any:
        return list(modules)

    @staticmethod
    def lstm(inputs: int, outputs: int) -> Any:
        return mlx_nn.LSTM(inputs, outputs)

    @staticmethod
    def floats(*shape: int) -> Any:
        return mx.zeros(shape)

    @staticmethod
    def image(batch: int, height: int, width: int, channels: int) -> Any:
        return mx.zeros((batch, height, width, channels))

    @staticmethod
    def ids(*shape: int) -> Any:
        return mx.zeros(shape, dtype=mx.int32)

    @staticmethod
    def freeze(module: Any) -> None:
        module.freeze()

    @staticmethod
    def attention(queries: Any, keys: Any, values: Any, scale: float) -> Any:
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale)

    @staticmethod
    def heads(x: Any, count: int) -> Any:
        return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)

    @staticmethod
    def unheaded(x: Any) -> Any:
        return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


Words = type[Torch] | type[Mlx]
Network = tuple[Any, Any]  # a model and its inputs


def module(words: Words, forward: Callable[..., Any], name: str = "Net", **parts: Any) -> Any:
    """A module of a class of its own, with these attributes, that is called so."""
    run = "forward" if words is Torch else "__call__"
    made = type(name, (words.Module,), {run: forward})()
    for key, part in parts.items():
        setattr(made, key, part)
    return made


def perceptron(words: Words) -> Network:
    def forward(self: Any, x: Any) -> Any:
        return self.last(self.act(self.first(x)))

    linear = words.nn.Linear
    return module(words, forward, first=linear(10, 20), act=words.ReLU(), last=linear(20, 5)), words.floats(
        8, 10
    )


def convolutional(words: Words) -> Network:
    def forward(self: Any, x: Any) -> Any:
        x = self.pool(words.relu(self.norm(self.conv(x))))
        return self.head(x.reshape(x.shape[0], -1))

    parts = {
        "conv": words.Conv(3, 16, 3, padding=1),
        "norm": words.BatchNorm(16),
        "pool": words.MaxPool(2, 2),
    }
    model = module(words, forward, **parts, head=words.nn.Linear(16 * 8 * 8, 10))
    return model, words.image(2, 16, 16, 3)


def transformer(words: Words) -> Network:
    """Token ids, two blocks of attention with a part that feeds forward, and a head."""

    def attend(self: Any, x: Any) -> Any:
        parts = (words.heads(project(x), 4) for project in (self.q, self.k, self.v))
        return self.o(words.unheaded(words.attention(*parts, scale=0.25)))

    def block(self: Any, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.down(words.relu(self.up(self.after(x))))

    def forward(self: Any, ids: Any) -> Any:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def one() -> Any:
        linear, norm = words.nn.Linear, words.nn.LayerNorm
        inner = module(words, attend, "Attention", **{key: linear(64, 64, bias=False) for key in "qkvo"})
        parts = {"attention": inner, "up": linear(64, 128), "down": linear(128, 64)}
        return module(words, block, "Block", before=norm(64), after=norm(64), **parts)

    parts = {"embed": words.nn.Embedding(100, 64), "head": words.nn.Linear(64, 100)}
    return module(words, forward, layers=words.layers(one(), one()), **parts), words.ids(2, 7)


def recurrent(words: Words) -> Network:
    def forward(self: Any, x: Any) -> Any:
        return self.head(self.lstm(x)[0])

    return module(words, forward, lstm=words.lstm(10, 20), head=words.nn.Linear(20, 3)), words.floats(
        2, 7, 10
    )


def transposed(words: Words) -> Network:
    def forward(self: Any, x: Any) -> Any:
        return self.up(x)

    return module(words, forward, up=words.ConvTranspose(8, 4, 3, stride=2)), words.image(2, 5, 5, 8)


def grouped(words: Words) -> Network:
    def forward(self: Any, x: Any) -> Any:
        return self.pointwise(self.depthwise(x))

    depthwise = words.Conv(8, 8, 3, padding=2, dilation=2, groups=8, bias=False)
    return module(words, forward, depthwise=depthwise, pointwise=words.Conv(8, 12, 1)), words.image(
        2, 9, 9, 8
    )


def tied(words: Words) -> Network:
    def forward(self: Any, ids: Any) -> Any:
        return self.head(self.embed(ids))

    model = module(
        words, forward, embed=words.nn.Embedding(100, 16), head=words.nn.Linear(16, 100, bias=False)
    )
    model.head.weight = model.embed.weight
    return model, words.ids(2, 5)


def frozen(words: Words) -> Network:
    model, inputs = perceptron(words)
    words.freeze(model.first)
    return model, inputs


def shared(words: Words) -> Network:
    """One module by two names, called three times, with other sizes the last time."""

    def forward(self: Any, x: Any) -> Any:
        return self.again(self.one(self.one(x))[:2])

    one = words.nn.Linear(6, 6)
    return module(words, forward, one=one, again=one), words.floats(4, 6)


def several(words: Words) -> Network:
    """Tuples and dicts come out, and go in by keyword."""

    def pair(self: Any, x: Any, *, scale: Any) -> Any:
        return self.left(x) * scale, {"right": self.right(x), "same": x}

    def forward(self: Any, x: Any, *, scale: Any) -> Any:
        left, rest = self.pair(x, scale=scale)
        return {"sum": left + rest["right"], "rest": [rest["same"], left]}

    linear = words.nn.Linear
    inner = module(words, pair, "Pair", left=linear(6, 4), right=linear(6, 4))
    inputs = mg.Inputs(args=(words.floats(3, 6),), kwargs={"scale": words.floats(4)})
    return module(words, forward, pair=inner), inputs


def with_an_idle_part(words: Words) -> Network:
    model, inputs = perceptron(words)
    model.idle = words.nn.Linear(7, 7)
    return model, inputs


def with_unneeded_work(words: Words) -> Network:
    def forward(self: Any, x: Any) -> Any:
        self.probe(x)
        return self.first(x)

    return module(words, forward, first=words.nn.Linear(10, 5), probe=words.nn.Linear(10, 50)), words.floats(
        8, 10
    )


def failing(words: Words) -> Network:
    """The second layer does not fit the first."""

    def forward(self: Any, x: Any) -> Any:
        return self.last(self.first(x))

    return module(words, forward, first=words.nn.Linear(10, 20), last=words.nn.Linear(21, 5)), words.floats(
        8, 10
    )


NETWORKS = {
    network.__name__: network
    for network in (
        perceptron,
        convolutional,
        transformer,
        recurrent,
        transposed,
        grouped,
        tied,
        frozen,
        shared,
        several,
        with_an_idle_part,
        with_unneeded_work,
        failing,
    )
}

# Classes that are called otherwise in MLX; lists are not modules there, and shown all the same.
TYPES = {"BatchNorm2d": "BatchNorm", "ModuleList": "list"}

# What the frameworks themselves count differently: network, fact, what torch has, what MLX has, and why.
Difference = tuple[str, str, Any, Any, str]
DIFFERENCES: tuple[Difference, ...] = (
    ("convolutional", "norm parameters", (32, 32), (64, 32), "running statistics are frozen parameters"),
    ("convolutional", "params", 10_730, 10_762, "running statistics are frozen parameters"),
    ("convolutional", "frozen", 0, 32, "running statistics are frozen parameters"),
    ("convolutional", "buffers", 33, 0, "MLX has no buffers, and counts no batches"),
    ("recurrent", "lstm parameters", (2_560, 2_560), (2_480, 2_480), "MLX has one bias, torch has two"),
    ("recurrent", "params", 2_623, 2_543, "MLX has one bias, torch has two"),
    ("recurrent", "trainable", 2_623, 2_543, "MLX has one bias, torch has two"),
    (
        "recurrent",
        "lstm outputs",
        [((2, 7, 20), (1, 2, 20), (1, 2, 20))],
        [((2, 7, 20), (2, 7, 20))],
        "MLX gives all hidden and cell states, torch the last cell state",
    ),
    (
        "recurrent",
        "macs",
        2 * 7 * (4 * 20 * (10 + 20) + 20 * 3),
        2 * 7 * (4 * 20 * (10 + 20) + 20 * 3) - 2 * 4 * 20 * 20,
        "there is no state before the first step, which MLX leaves out and torch multiplies as zeros",
    ),
    (
        "recurrent",
        "lstm macs",
        2 * 7 * 4 * 20 * (10 + 20),
        2 * 7 * 4 * 20 * (10 + 20) - 2 * 4 * 20 * 20,
        "there is no state before the first step, which MLX leaves out and torch multiplies as zeros",
    ),
    (
        "with_unneeded_work",
        "macs",
        8 * 10 * 5 + 8 * 10 * 50,
        8 * 10 * 5,
        "what no output needs is never evaluated in MLX",
    ),
    (
        "with_unneeded_work",
        "probe macs",
        8 * 10 * 50,
        0,
        "what no output needs is never evaluated in MLX",
    ),
    ("with_unneeded_work", "notes", [], ["unneeded-work"], "what no output needs is never evaluated in MLX"),
    ("failing", "error", "RuntimeError", "ValueError", "each has its own errors"),
)


def facts(words: Words, network: Callable[[Words], Network]) -> dict[str, Any]:
    """What a report says, by short names of facts."""
    model, inputs = network(words)
    report = mg.inspect(model, inputs=inputs, on_failure="report")
    counts = report.counts
    failure = report.run.failure
    found: dict[str, Any] = {
        "tree": [(each.path, TYPES.get(each.type, each.type), each.aliases) for each in report.model.modules],
        "params": counts.params,
        "trainable": counts.trainable,
        "frozen": counts.frozen,
        "buffers": counts.buffers,
        "tied": dict(counts.tied),
        "macs": report.cost.macs,
        "coverage": report.cost.coverage,
        "notes": [note.code for note in report.notes],
        "inputs": _named(report.run.inputs),
        "outputs": _named(report.run.outputs),
        "error": failure and failure.error,
        "failed in": failure and (failure.module, failure.module_type),
    }
    called = Counter(call.module for call in report.model.calls)
    for each in report.model.modules:
        name = each.path or "root"
        own = counts.by_module[each.path].own
        found[f"{name} parameters"] = own.params, own.trainable
        found[f"{name} calls"] = called[each.path]
        found[f"{name} outputs"] = _outputs(report, each.path)
        if each.path:
            found[f"{name} macs"] = report.cost.by_module[each.path].total_macs
    return found


def _named(values: Any) -> list[tuple[str, Shape]]:
    return [(value.name, _channels_last(value.shape)) for value in values]


def _outputs(report: Report, path: str) -> list[tuple[Any, ...]]:
    """The shapes that each call gave."""
    calls = [call for call in report.model.calls if call.module == path]
    return [tuple(_channels_last(value.shape) for value in call.outputs) for call in calls]


def _channels_last(shape: Shape) -> Shape:
    """An image's shape as MLX has it: here no image is wider than high, so the odd one are the channels."""
    if len(shape) == 4 and shape[2] == shape[3] != shape[1]:
        return (shape[0], shape[2], shape[3], shape[1])
    return shape


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_network_gives_the_same_facts(name: str) -> None:
    in_torch, in_mlx = facts(Torch, NETWORKS[name]), facts(Mlx, NETWORKS[name])
    different = {key: (in_torch[key], in_mlx[key]) for key in in_torch if in_torch[key] != in_mlx[key]}
    assert in_torch.keys() == in_mlx.keys()
    assert different == {key: (ours, theirs) for case, key, ours, theirs, _ in DIFFERENCES if case == name}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["perceptron", "convolutional", "transformer", "recurrent", "transposed", "grouped", "tied", "shared"],
)
def test_the_same_network_is_drawn_alike(name: str) -> None:
    """Modules, that is: what operators there are and what they are called is each framework's own."""
    in_torch, in_mlx = (drawn(words, NETWORKS[name]) for words in (Torch, Mlx))
    assert in_mlx == in_torch


def drawn(words: Words, network: Callable[[Words], Network]) -> list[tuple[Any, ...]]:
    """The modules and ends of a flow, whose sizes that can change have names, and these names."""
    model, inputs = network(words)
    flow = mg.flow(mg.inspect(model, inputs=inputs, symbols=True))
    return [
        *((symbol.name, symbol.size, symbol.tried) for symbol in flow.symbols),
        *(
            (node.kind, node.label, node.stage, node.count, [sorted(dims) for dims in node.dims])
            for node in flow.nodes
            if node.kind != "operators"
        ),
    ]
