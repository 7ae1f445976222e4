"""Memory of MLX runs: worked out against MLX's own counters, and measured with no trace left."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest
from mlx.utils import tree_flatten

import modelglass as mg
from modelglass.analyses.memory.timeline import memory
from modelglass.errors import InspectError
from modelglass.frameworks.mlx.graph.graph import Graph, trace
from modelglass.frameworks.mlx.graph.order import evaluation_order
from modelglass.frameworks.mlx.memory.lifetimes import Evaluation, Role, find_lifetimes
from modelglass.frameworks.mlx.session import observe, sizes
from modelglass.frameworks.shared.request import Inputs, Request
from modelglass.report import Lifetimes, Memory, WhatIf

FLOAT = 4  # bytes
ROOM = 100_000  # bytes that are too many to be taken over by anything smaller


class Perceptron(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = [nn.Linear(width, width) for _ in range(depth)]

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.layers:
            x = nn.relu(layer(x))
        return x


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm(8)
        self.pool = nn.MaxPool2d(2, 2)
        self.second = nn.Conv2d(8, 16, 3, padding=1)
        self.head = nn.Linear(16 * 4 * 4, 10)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.pool(nn.relu(self.norm(self.first(x))))
        x = self.pool(nn.relu(self.second(x)))
        return self.head(x.reshape(x.shape[0], -1))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = [nn.Conv2d(8, 8, 3, padding=1) for _ in range(6)]

    def __call__(self, x: mx.array) -> mx.array:
        for conv in self.convs:
            x = x + nn.relu(conv(x))
        return x.mean((1, 2))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(2, 64, 4, 128)

    def __call__(self, x: mx.array) -> mx.array:
        return self.encoder(x, None)


def language_model(kind: str, **more: Any) -> nn.Module:
    settings: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "intermediate_size": 160,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "vocab_size": 300,
        "rope_theta": 1e4,
        "tie_word_embeddings": False,
    }
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    return module.Model(module.ModelArgs.from_dict(settings | more))


def quantized(model: nn.Module) -> nn.Module:
    nn.quantize(model, group_size=32, bits=4)
    return model


def halved(model: nn.Module) -> nn.Module:
    model.set_dtype(mx.float16)
    return model


IDS = mx.zeros((2, 24), mx.int32)
MODELS: dict[str, tuple[Callable[[], nn.Module], mx.array]] = {
    "perceptron": (lambda: Perceptron(64, 4), mx.zeros((64, 64))),
    "deep perceptron": (lambda: Perceptron(32, 40), mx.zeros((64, 32))),
    "pictures": (Pictures, mx.zeros((4, 16, 16, 3))),
    "residual": (Residual, mx.zeros((2, 16, 16, 8))),
    "rnn": (lambda: nn.RNN(16, 32), mx.zeros((2, 12, 16))),
    "lstm": (lambda: nn.LSTM(16, 32), mx.zeros((2, 12, 16))),
    "gru": (lambda: nn.GRU(16, 32), mx.zeros((2, 12, 16))),
    "encoder": (Encoder, mx.zeros((2, 24, 64))),
    "llama": (lambda: language_model("llama"), IDS),
    "llama in 4 bits": (lambda: quantized(language_model("llama")), IDS),
    "llama in float16": (lambda: halved(language_model("llama")), IDS),
    "qwen2": (lambda: language_model("qwen2"), IDS),
    "gemma": (lambda: language_model("gemma", head_dim=16), IDS),
    "mixtral": (lambda: language_model("mixtral", num_local_experts=4, num_experts_per_tok=2), IDS),
}


UNTOLD = ("mixtral", "training")  # sums over experts have gradients that MLX cannot export


def looked_at(model: nn.Module, x: mx.array, **request: Any) -> Memory:
    observation = observe(model, Request(inputs=Inputs(args=(x,)), **request))
    assert observation.lifetimes is not None, observation.notes
    return memory(observation.lifetimes, optimizer=observation.optimizer)


def first_peak(memory: Any) -> int:
    """The peak of a pass, or of the first step: a real run takes no other."""
    return memory.peak_nbytes if memory.first_peak_nbytes is None else int(memory.first_peak_nbytes)


@contextmanager
def little_memory() -> Iterator[None]:
    """MLX believes that all memory is taken, so it waits for kernels instead of preparing more of them."""
    limit = mx.set_memory_limit(0)
    try:
        yield
    finally:
        mx.set_memory_limit(limit)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step"),
    [(name, step) for name in MODELS for step in ("forward", "training") if (name, step) != UNTOLD],
)
def test_worked_out_is_at_most_what_mlx_takes_and_near_it_with_little_memory(name: str, step: str) -> None:
    build, x = MODELS[name]
    model = build()
    asked: dict[str, Any] = {} if step == "forward" else {"train": True, "optimizer": "adamw"}
    estimate = looked_at(model, x, **asked)
    with little_memory():
        tight = min(first_peak(looked_at(model, x, mode="real", **asked)) for _ in range(2))
    free = looked_at(model, x, mode="real", **asked)
    assert (estimate.method, free.method) == ("estimate", "measured")
    assert first_peak(estimate) <= tight
    assert first_peak(estimate) >= 0.5 * tight
    assert first_peak(estimate) <= first_peak(free)
    assert estimate.base_nbytes == free.base_nbytes


def test_a_step_whose_shapes_mlx_does_not_tell_has_no_memory_and_says_so() -> None:
    build, x = MODELS[UNTOLD[0]]
    found = observe(build(), Request(inputs=Inputs(args=(x,)), train=True, optimizer="adamw"))
    assert found.lifetimes is None
    assert "shapes-unknown" in {note.code for note in found.notes}


def worked_out(function: Callable[..., Any], *given: mx.array) -> tuple[Lifetimes, Graph]:
    def returned(arrays: Any) -> list[mx.array]:
        made = function(*arrays)
        return [made] if isinstance(made, mx.array) else list(made)

    graph = trace(returned, given)
    roles = {number: Role("inputs", str(number)) for number in graph.inputs}
    found = find_lifetimes(
        graph, Evaluation(roles, graph.outputs), lambda place: (graph.nodes[place].primitive, "", "forward")
    )
    assert found is not None
    return found, graph


def taken(function: Callable[..., Any], *given: mx.array) -> int:
    """Bytes beyond what was given at the peak, by our account."""
    found, _ = worked_out(function, *given)
    return memory(found).peak_nbytes - sum(array.nbytes for array in given)


def taken_by_mlx(function: Callable[..., Any], *given: mx.array) -> int:
    mx.clear_cache()  # a piece of memory that is used again may be larger than need be
    mx.eval(given)
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    made = function(*given)
    mx.eval(made)
    mx.synchronize()
    return max(mx.get_peak_memory() - before, 0)


LONG = mx.zeros((ROOM,))
SQUARE = mx.zeros((160, 160))
CUBE = mx.zeros((4, 40, 160))
PICTURE = mx.zeros((2, 20, 24, 4))
KERNEL = mx.zeros((6, 3, 3, 4))


@pytest.mark.parametrize(
    ("function", "given"),
    [
        pytest.param(mx.exp, (LONG,), id="an input of the user's is not written over"),
        pytest.param(lambda x: mx.sin(mx.exp(x)), (LONG,), id="a result nobody else needs is"),
        pytest.param(
            lambda x: mx.add(y := mx.exp(x), mx.sin(y)), (LONG,), id="one that is needed again is not"
        ),
        pytest.param(lambda x: mx.exp(x).reshape(4, -1), (LONG,), id="a reshape of rows is a view"),
        pytest.param(lambda x: x.T.reshape(-1), (SQUARE,), id="a reshape of columns is a copy"),
        pytest.param(lambda x: mx.exp(x.T), (SQUARE,), id="columns stay columns"),
        pytest.param(lambda x: mx.exp(x)[:, ::2] + 1, (SQUARE,), id="a slice keeps the whole"),
        pytest.param(lambda x: mx.exp(x[:1]) + x, (SQUARE,), id="a row for all is spread in place"),
        pytest.param(lambda x: mx.exp(mx.broadcast_to(x[:, :1], x.shape)), (SQUARE,), id="spread values"),
        pytest.param(lambda x: x @ x, (SQUARE,), id="a product"),
        pytest.param(lambda x: x @ x.T, (SQUARE,), id="a product of columns copies nothing"),
        pytest.param(
            lambda x: x.transpose(1, 0, 2) @ x.transpose(1, 2, 0), (CUBE,), id="one of neither copies both"
        ),
        pytest.param(
            lambda x: (x > 0).astype(mx.float32), (LONG,), id="types of another size take their own"
        ),
        pytest.param(
            lambda x: mx.where(x > 0, mx.exp(x), 0.0), (LONG,), id="a choice is written over one part"
        ),
        pytest.param(mx.conv2d, (PICTURE, KERNEL), id="a convolution unfolds its windows"),
        pytest.param(lambda x, w: mx.conv2d(x, w, padding=1, stride=2), (PICTURE, KERNEL), id="padded, too"),
        pytest.param(
            lambda x, w: mx.conv2d(x, w, dilation=2), (PICTURE, KERNEL), id="a dilated one takes nothing"
        ),
        pytest.param(lambda x: mx.split(x, 4), (LONG,), id="parts are views"),
        pytest.param(
            lambda x: mx.softmax(mx.exp(x), axis=-1), (SQUARE,), id="a softmax is written over its input"
        ),
    ],
)
def test_one_expression_takes_what_mlx_says(
    function: Callable[..., Any], given: tuple[mx.array, ...]
) -> None:
    measured = min(taken_by_mlx(function, *given) for _ in range(3))
    scalars = 64  # numbers in an expression are arrays, too, made before or during it
    assert abs(taken(function, *given) - measured) <= scalars


def test_the_order_is_that_of_layers_reversed() -> None:
    found, graph = worked_out(lambda x: mx.add(mx.exp(mx.sin(x)), mx.sqrt(x)), LONG)
    order = [graph.nodes[place].primitive for place in evaluation_order(graph.nodes, graph.outputs)]
    assert order == ["Sin", "Sqrt", "Exp", "Add"]
    assert [step.op for step in found.steps] == order


def test_wide_layers_are_followed_one_branch_after_the_other() -> None:
    """Thirty branches of two kernels: all first kernels at once would take thirty times the memory."""
    found, _ = worked_out(lambda x: [mx.sum(mx.exp(x * k)) for k in range(30)], LONG)
    assert memory(found).peak_nbytes < 25 * LONG.nbytes


def test_what_no_output_needs_is_not_evaluated() -> None:
    _, graph = worked_out(lambda x: [mx.exp(x), mx.sin(x)], LONG)
    assert len(evaluation_order(graph.nodes, graph.outputs[:1])) == 1


def test_a_real_run_leaves_no_trace() -> None:
    model = Pictures()
    x = mx.random.normal((2, 16, 16, 3))
    mx.eval(model.parameters(), x)
    arrays = [(name, id(array)) for name, array in tree_flatten(model.parameters())]
    statistics = model.norm.running_mean.tolist()
    key = mx.random.state[0].tolist()
    mx.synchronize()
    before = mx.get_active_memory(), mx.get_cache_memory()
    limit = mx.set_cache_limit(10**6)
    for asked in ({}, {"train": True}, {"train": True, "optimizer": "adam"}):
        looked_at(model, x, mode="real", **asked)
    assert mx.set_cache_limit(limit) == 10**6
    assert [(name, id(array)) for name, array in tree_flatten(model.parameters())] == arrays
    assert model.norm.running_mean.tolist() == statistics
    assert mx.random.state[0].tolist() == key
    mx.synchronize()
    assert mx.get_active_memory() - before[0] < 1000  # numbers that MLX keeps
    assert mx.get_cache_memory() <= before[1]


def test_the_peak_counter_is_reset_only_when_it_would_hide_the_run() -> None:
    model, x = Perceptron(64, 3), mx.zeros((64, 64))
    mx.eval(model.parameters(), x)
    mx.reset_peak_memory()
    request = Request(inputs=Inputs(args=(x,)), mode="real")
    first = observe(model, request)
    assert "peak-counter-reset" not in [note.code for note in first.notes]
    mx.eval(mx.zeros((10**6,)))
    again = observe(model, request)
    assert "peak-counter-reset" in [note.code for note in again.notes]
    assert mx.get_peak_memory() < 4 * 10**6


def test_lazy_weights_are_evaluated_before_the_run_is_measured() -> None:
    """Random initialisation takes several times the memory of a weight."""
    found = looked_at(nn.Linear(256, 256), mx.zeros((1, 256)), mode="real")
    assert found.by_category["temporaries"] < 256 * 256 * FLOAT


def test_categories_add_up_and_weights_are_named() -> None:
    model = nn.Linear(16, 4)
    found = looked_at(model, mx.zeros((2, 16)))
    assert found.by_category == {
        "parameters": (16 * 4 + 4) * FLOAT,
        "inputs": 2 * 16 * FLOAT,
        "temporaries": 2 * 4 * FLOAT,
    }
    assert {each.name for each in found.largest} >= {"weight", "bias"}


def test_outputs_hidden_in_an_object_are_evaluated() -> None:
    class Answer:
        def __init__(self, hidden: mx.array) -> None:
            self.hidden = hidden

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(32, 64)

        def __call__(self, x: mx.array) -> Answer:
            return Answer(self.layer(x))

    x = mx.zeros((8, 32))
    assert looked_at(Wrapped(), x).by_category["temporaries"] == 8 * 64 * FLOAT
    assert looked_at(Wrapped(), x, mode="real").by_category["temporaries"] == 8 * 64 * FLOAT


def test_an_error_of_the_evaluation_itself_is_the_answer() -> None:
    class Inverse(nn.Module):
        def __call__(self, x: mx.array) -> mx.array:
            return mx.linalg.inv(x, stream=mx.cpu)

    found = observe(Inverse(), Request(inputs=Inputs(args=(mx.zeros((3, 3)),)), mode="real"))
    assert found.lifetimes is None
    assert found.run.failure is not None
    assert "inverse" in found.run.failure.message.lower()


def test_batch_size_and_sequence_length_are_read_and_changed() -> None:
    model = language_model("llama")
    request = Request(inputs=Inputs(args=(IDS,)))
    assert sizes(model, request) == (2, 24)
    larger = looked_at(model, IDS, what_if=WhatIf(batch_size=6, seq_len=48))
    assert larger.peak_nbytes == looked_at(model, mx.zeros((6, 48), mx.int32)).peak_nbytes


def test_weights_of_another_type_are_those_of_a_model_that_has_them() -> None:
    cast = looked_at(Perceptron(64, 4), mx.zeros((8, 64)), what_if=WhatIf(weights="bfloat16"))
    own = Perceptron(64, 4)
    own.set_dtype(mx.bfloat16)
    assert cast.peak_nbytes == looked_at(own, mx.zeros((8, 64), mx.bfloat16)).peak_nbytes


@pytest.mark.parametrize(
    ("what_if", "says"),
    [
        (WhatIf(autocast="bfloat16"), "no autocast"),
        (WhatIf(recompute=("layers.*",)), "checkpoint"),
        (WhatIf(master_weights=True), "no float32 copies"),
    ],
    ids=["autocast", "checkpoint", "master weights"],
)
def test_changes_that_mlx_does_not_have_are_refused(what_if: WhatIf, says: str) -> None:
    with pytest.raises(InspectError, match=says):
        looked_at(Perceptron(8, 2), mx.zeros((2, 8)), train=True, what_if=what_if)


def test_fit_finds_the_largest_batch() -> None:
    model = Perceptron(64, 2)
    found = mg.fit(model, mx.zeros((1, 64)), device_nbytes=200_000, options=False)
    assert found.method == "estimate"
    assert found.largest_batch is not None
    largest = looked_at(model, mx.zeros((found.largest_batch, 64))).peak_nbytes
    more = looked_at(model, mx.zeros((found.largest_batch + 1, 64))).peak_nbytes
    assert largest <= 200_000 < more


def test_fit_offers_the_options_that_there_are() -> None:
    found = mg.fit(Perceptron(64, 2), mx.zeros((8, 64)), device_nbytes=100_000, train=True)
    peaks = {option.what_if.weights: option.peak_nbytes for option in found.options if option.what_if.weights}
    assert not found.fits
    assert (peaks["bfloat16"] or 0) < found.peak_nbytes
    assert any("autocast" in (option.problem or "") for option in found.options)
