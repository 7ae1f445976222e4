"""A fake run fails exactly where torch refuses the element types that meet in a kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modelglass as mg
from modelglass.frameworks.torch.fake import accepted_types
from models import SMALL, Apply, ids, transformers_model

TYPES = ("float16", "float32", "float64", "float8_e4m3fn", "int64", "uint16", "bool", "complex64")


def valueless(model: nn.Module) -> nn.Module:
    """The model with a tensor on meta that it does not use: no real run can correct the fake one."""
    model.register_buffer("_unused", torch.empty(1, device="meta"), persistent=False)
    return model.eval()


def torch_error(model: nn.Module, *inputs: torch.Tensor) -> tuple[str, str] | None:
    """What torch itself raises: the type of error and its message."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model(*(each.clone() for each in inputs))
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        return type(error).__name__, str(error)
    return None


def reported_error(model: nn.Module, *inputs: torch.Tensor) -> tuple[str, str] | None:
    """What the report of a fake run says of the same call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = mg.inspect(model, inputs, on_failure="report")
    failure = report.run.failure
    assert report.run.mode == "fake"
    return None if failure is None else (failure.error, failure.message)


def kind_of(error: tuple[str, str] | None) -> str | None:
    """Some checks are torch's own for fake tensors, in other words."""
    return None if error is None else error[0]


def values(name: str, *shape: int) -> torch.Tensor:
    return torch.ones(shape).to(getattr(torch, name))


def assign(self: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[torch.tensor([0, 1])] = y[:2]
    return x


POINTWISE: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    name: lambda self, x, name=name: getattr(torch, name)(x)  # type: ignore[misc]
    for name in (
        *("abs", "ceil", "cos", "erf", "exp", "floor", "isnan", "log", "neg", "reciprocal", "relu", "round"),
        *(
            "rsqrt",
            "sigmoid",
            "sign",
            "sqrt",
            "square",
            "tanh",
            "trunc",
            "bitwise_not",
            "logical_not",
            "angle",
        ),
        *("frac", "sgn", "sinc", "lgamma", "digamma"),
    )
}
REDUCTIONS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "sum": lambda self, x: x.sum(-1),
    "mean": lambda self, x: x.mean(-1),
    "prod": lambda self, x: x.prod(-1),
    "var": lambda self, x: x.var(-1),
    "max": lambda self, x: x.max(-1),
    "argmax": lambda self, x: x.argmax(-1),
    "amin": lambda self, x: x.amin(-1),
    "logsumexp": lambda self, x: x.logsumexp(-1),
    "cumsum": lambda self, x: x.cumsum(-1),
    "cumprod": lambda self, x: x.cumprod(-1),
    "sort": lambda self, x: x.sort(-1),
    "topk": lambda self, x: x.topk(2),
    "norm": lambda self, x: x.norm(),
    "median": lambda self, x: x.median(-1),
    "softmax": lambda self, x: x.softmax(-1),
    "log_softmax": lambda self, x: x.log_softmax(-1),
    "softmin": lambda self, x: F.softmin(x, -1),
}
ACTIVATIONS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    name: lambda self, x, name=name: getattr(F, name)(x)  # type: ignore[misc]
    for name in (
        *("gelu", "silu", "elu", "selu", "celu", "mish", "softplus", "hardswish", "hardtanh", "leaky_relu"),
        *("glu", "logsigmoid", "relu6"),
    )
}
LINEAR: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "svd": lambda self, x: torch.linalg.svd(x),
    "qr": lambda self, x: torch.linalg.qr(x),
    "eigvalsh": lambda self, x: torch.linalg.eigvalsh(x @ x.mT),
    "pinv": lambda self, x: torch.linalg.pinv(x),
    "inv_ex": lambda self, x: torch.linalg.inv_ex(x @ x.mT),
    "cdist": lambda self, x: torch.cdist(x, x),
    "matmul": lambda self, x: x @ x.mT,
    "einsum": lambda self, x: torch.einsum("ij,kj->ik", x, x),
    "tril": lambda self, x: x.tril(),
    "fft": lambda self, x: torch.fft.fft(x),
    "cosine": lambda self, x: F.cosine_similarity(x, x),
    "normalize": lambda self, x: F.normalize(x),
    "interpolate": lambda self, x: F.interpolate(x[None, None], (8, 8), mode="bilinear"),
    "resample": lambda self, x: F.interpolate(x[None, None], (9, 8), mode="bilinear", antialias=True),
    "pool": lambda self, x: F.max_pool2d(x[None], 2),
    "average": lambda self, x: F.avg_pool2d(x[None], 2),
    "adaptive": lambda self, x: F.adaptive_avg_pool2d(x[None], 2),
    "pad": lambda self, x: F.pad(x[None], (1, 1), mode="reflect"),
    "unfold": lambda self, x: F.unfold(x[None, None], 2),
    "attention": lambda self, x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "half of it": lambda self, x: x[..., 0] / 2,
    "in place": lambda self, x: x.clone().mul_(0.5),
    "filled": lambda self, x: x.clone().fill_(2).clamp(0, 1),
    "where": lambda self, x: torch.where(x > 0, x, 0),
    "unlike": lambda self, x: x.clone().copy_(torch.ones(4, 4)).add_(torch.ones(4, 4)),
}
ONE = POINTWISE | REDUCTIONS | ACTIVATIONS | LINEAR


@pytest.mark.parametrize("name", ONE)
def test_operators_refuse_types_as_torch_does(name: str) -> None:
    model = valueless(Apply(ONE[name]))
    for kind in TYPES:
        x = values(kind, 4, 4)
        # An input on meta has no values, so nothing but types can decide.
        assert kind_of(reported_error(model, x.to("meta"))) == kind_of(torch_error(model, x)), kind


TWO: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "matmul": (lambda self, x, y: x @ y, (2, 4), (4, 3)),
    "bmm": (lambda self, x, y: torch.bmm(x, y), (2, 3, 4), (2, 4, 3)),
    "addmm": (lambda self, x, y: torch.addmm(x[0], x, y), (4, 4), (4, 4)),
    "baddbmm": (lambda self, x, y: torch.baddbmm(x, x, y), (2, 4, 4), (2, 4, 4)),
    "linear": (lambda self, x, y: F.linear(x, y), (2, 4), (3, 4)),
    "bilinear": (lambda self, x, y: F.bilinear(x, x, y), (2, 4), (3, 4, 4)),
    "conv1d": (lambda self, x, y: F.conv1d(x, y), (2, 4, 8), (4, 4, 3)),
    "conv2d": (lambda self, x, y: F.conv2d(x, y), (2, 4, 8, 8), (4, 4, 3, 3)),
    "conv3d": (lambda self, x, y: F.conv3d(x, y), (1, 2, 4, 4, 4), (2, 2, 3, 3, 3)),
    "transposed": (lambda self, x, y: F.conv_transpose2d(x, y), (2, 4, 8, 8), (4, 4, 3, 3)),
    "grouped": (lambda self, x, y: F.conv2d(x, y, groups=32), (2, 64, 40, 40), (64, 2, 3, 3)),
    "layer norm": (lambda self, x, y: F.layer_norm(x, (4,), y), (2, 4), (4,)),
    "group norm": (lambda self, x, y: F.group_norm(x, 2, y), (2, 4, 5), (4,)),
    "large group norm": (lambda self, x, y: F.group_norm(x, 32, y), (1, 64, 48, 48), (64,)),
    "batch norm": (lambda self, x, y: F.batch_norm(x, y, y, y, y), (2, 4, 5), (4,)),
    "rms norm": (lambda self, x, y: F.rms_norm(x, (4,), y), (2, 4), (4,)),
    "prelu": (lambda self, x, y: F.prelu(x, y), (2, 4), (1,)),
    "cat": (lambda self, x, y: torch.cat([x, y]), (2, 4), (2, 4)),
    "stack": (lambda self, x, y: torch.stack([x, y]), (2, 4), (2, 4)),
    "add": (lambda self, x, y: x + y, (2, 4), (2, 4)),
    "floor": (lambda self, x, y: x // y, (2, 4), (2, 4)),
    "in place": (lambda self, x, y: x.clone().add_(y), (2, 4), (2, 4)),
    "lerp": (lambda self, x, y: torch.lerp(x, y, 0.5), (2, 4), (2, 4)),
    "dot": (lambda self, x, y: torch.dot(x, y), (4,), (4,)),
    "outer": (lambda self, x, y: torch.outer(x, y), (4,), (4,)),
    "einsum": (lambda self, x, y: torch.einsum("bi,ij->bj", x, y), (2, 4), (4, 3)),
    "attention": (lambda self, x, y: F.scaled_dot_product_attention(x, y, y), (1, 2, 3, 8), (1, 2, 3, 8)),
    "mse": (lambda self, x, y: F.mse_loss(x, y), (2, 4), (2, 4)),
    "huber": (lambda self, x, y: F.huber_loss(x, y), (2, 4), (2, 4)),
    "entropy": (lambda self, x, y: F.binary_cross_entropy_with_logits(x, y), (2, 4), (2, 4)),
    "labels": (lambda self, x, y: F.cross_entropy(x, y), (2, 4), (2,)),
    "cdist": (lambda self, x, y: torch.cdist(x, y), (2, 4), (3, 4)),
    "assign": (assign, (3, 4), (3, 4)),
    "index_copy": (lambda self, x, y: x.index_copy(0, torch.tensor([0]), y), (3, 4), (1, 4)),
    "index_add": (lambda self, x, y: x.index_add(0, torch.tensor([0]), y), (3, 4), (1, 4)),
    "scatter": (lambda self, x, y: x.scatter(0, torch.zeros(1, 4).long(), y), (3, 4), (1, 4)),
    "gather": (lambda self, x, y: x.gather(0, y), (3, 4), (1, 4)),
    "embedding": (lambda self, x, y: F.embedding(y, x), (3, 4), (2, 4)),
    "masked_fill": (lambda self, x, y: x.masked_fill(y, 0), (3, 4), (3, 4)),
    "where": (lambda self, x, y: torch.where(y, x, x), (3, 4), (3, 4)),
    "grid_sample": (
        lambda self, x, y: F.grid_sample(x, y, align_corners=False),
        (1, 2, 4, 4),
        (1, 3, 3, 2),
    ),
    "foreach": (lambda self, x, y: torch._foreach_mul([x, x], [y, y]), (2, 4), (2, 4)),
    "solve": (lambda self, x, y: torch.linalg.solve_ex(x, y), (4, 4), (4, 4)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO)
def test_operators_of_two_tensors_refuse_types_as_torch_does(name: str) -> None:
    function, first, second = TWO[name]
    model = valueless(Apply(function))
    for kind in TYPES:
        for pair in (("float32", kind), (kind, "float32"), (kind, kind)):
            x, y = values(pair[0], *first), values(pair[1], *second)
            reported = reported_error(model, x.to("meta"), y.to("meta"))
            assert kind_of(reported) == kind_of(torch_error(model, x, y)), pair


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 4), (2, 4)),
    "conv": (lambda: nn.Conv2d(4, 4, 3), (2, 4, 8, 8)),
    "depthwise": (lambda: nn.Conv2d(64, 64, 3, groups=64), (1, 64, 32, 32)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 4, 3), (2, 4, 8, 8)),
    "layer norm": (lambda: nn.LayerNorm(4), (2, 4)),
    "batch norm": (lambda: nn.BatchNorm1d(4), (2, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3)),
    "lstm": (lambda: nn.LSTM(8, 8, batch_first=True), (2, 3, 8)),
    "gru": (lambda: nn.GRU(8, 8), (3, 2, 8)),
    "encoder": (lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), (3, 20, 64)),
    "decoder": (lambda: Doubled(nn.TransformerDecoderLayer(16, 2, 32)), (3, 2, 16)),
    "attention": (lambda: Doubled(nn.MultiheadAttention(8, 2), 3), (3, 2, 8)),
}


class Doubled(nn.Module):
    """Gives a module its input several times."""

    def __init__(self, inner: nn.Module, times: int = 2) -> None:
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(*[x] * self.times)


@pytest.mark.parametrize("weights", ["float32", "float16", "float64"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_refuse_types_with_the_error_of_torch(name: str, weights: str) -> None:
    make, shape = LAYERS[name]
    model = valueless(make().to(getattr(torch, weights)))
    for kind in TYPES:
        x = values(kind, *shape)
        assert reported_error(model, x) == torch_error(model, x), kind


def test_a_half_head_fails_at_the_head() -> None:
    model = transformers_model("Llama", "ForCausalLM", **SMALL).eval()
    model.lm_head.half()
    report = mg.inspect(model, {"input_ids": ids()}, on_failure="report")
    failure = report.run.failure
    assert failure is not None
    assert (failure.module, failure.op) == ("lm_head", "torch.nn.functional.linear")
    assert "same dtype" in failure.message


def test_the_default_type_of_inputs_made_elsewhere_decides() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> Any:
            return self.layer(x + torch.ones(4, dtype=torch.get_default_dtype()))

    model = valueless(Mixed())
    assert mg.inspect(model, torch.zeros(2, 4)).run.failure is None
    torch.set_default_dtype(torch.float64)
    try:
        failure = mg.inspect(model, torch.zeros(2, 4), on_failure="report").run.failure
    finally:
        torch.set_default_dtype(torch.float32)
    assert failure is not None
    assert "same dtype" in failure.message


def test_an_error_that_the_model_catches_is_not_a_failure() -> None:
    def forward(self: Any, x: torch.Tensor) -> Any:
        try:
            return torch.linalg.svdvals(x)
        except NotImplementedError:
            return torch.linalg.svdvals(x.float())

    report = mg.inspect(valueless(Apply(forward)), torch.ones(3, 3).half(), on_failure="report")
    assert report.run.failure is None
    assert [value.dtype for value in report.run.outputs] == ["float32"]


def test_a_what_if_of_other_weights_is_refused_where_torch_refuses_it() -> None:
    model = valueless(Apply(lambda self, x: torch.linalg.svdvals(x), layer=nn.Linear(3, 3)))
    assert mg.inspect(model, torch.ones(3, 3)).run.failure is None
    report = mg.inspect(model, torch.ones(3, 3), what_if=mg.WhatIf(weights="bfloat16"), on_failure="report")
    assert report.run.failure is not None
    assert "not implemented for 'BFloat16'" in report.run.failure.message


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_autocast_makes_types_equal(dtype: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    report = mg.inspect(
        valueless(model), torch.zeros(2, 4), what_if=mg.WhatIf(autocast=dtype), on_failure="report"
    )
    assert report.run.failure is None


def test_the_backward_pass_and_the_optimizer_are_asked_as_well() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.GELU())
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        report = mg.inspect(
            model.to(kind),
            torch.zeros(2, 4, dtype=kind),
            run="fake",
            train=True,
            optimizer="adamw",
            on_failure="report",
        )
        assert report.run.mode == "fake"
        assert not {"forward-failed", "optimizer-failed"} & {note.code for note in report.notes}


def test_a_refusal_without_a_real_run_names_the_device_that_was_asked() -> None:
    report = mg.inspect(
        valueless(Apply(lambda self, x: x.softmax(-1))),
        torch.ones(3).to("meta", torch.int64),
        on_failure="report",
    )
    assert [note.code for note in report.notes] == ["forward-failed", "asked-of-cpu"]


def test_a_question_is_asked_once_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted_types._answers.clear()
    asked: list[Any] = []
    original = accepted_types._run_real_kernel

    def ask(func: Any, *rest: Any) -> Any:
        asked.append(func)
        return original(func, *rest)

    monkeypatch.setattr(accepted_types, "_run_real_kernel", ask)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(5, 5), nn.Dropout()) for _ in range(3))).train()
    state = torch.get_rng_state()
    for _ in range(2):
        mg.inspect(model, torch.zeros(2, 5), train=True)
    assert len(asked) == len(set(accepted_types._answers))
    assert asked.count(torch.ops.aten.addmm.default) == 1
    assert torch.equal(torch.get_rng_state(), state)


def test_a_made_up_call_that_fails_for_other_reasons_refuses_nothing() -> None:
    """Ones are not positive definite, in any type."""
    matrix = torch.ones(9, 9)
    assert (
        accepted_types._run_real_kernel(
            torch.ops.aten.linalg_cholesky_ex.default, (matrix,), {"check_errors": True}
        )
        is None
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda dtype: torch.arange(5, dtype=dtype),
        lambda dtype: torch.linspace(0, 1, 5, dtype=dtype),
        lambda dtype: torch.rand(3, dtype=dtype),
        lambda dtype: torch.randn(3, 3, dtype=dtype),
        lambda dtype: torch.eye(3, dtype=dtype),
        lambda dtype: torch.zeros(3, dtype=dtype),
        lambda dtype: torch.full((3,), -1, dtype=dtype),
    ],
)
def test_what_is_made_from_nothing_is_asked_about(make: Callable[..., Any]) -> None:
    for name in TYPES:
        model = valueless(Apply(lambda self, x, name=name: make(getattr(torch, name))))
        x = torch.zeros(1)
        assert kind_of(reported_error(model, x)) == kind_of(torch_error(model, x)), name


@pytest.mark.parametrize(
    "operator", [torch.linalg.cholesky, torch.linalg.inv, lambda x: torch.cholesky_inverse(x)]
)
def test_kernels_that_take_only_some_matrices_are_asked_with_one(operator: Callable[..., Any]) -> None:
    for name in ("float16", "bfloat16", "float32", "uint16"):
        model, x = valueless(Apply(lambda self, x: operator(x))), torch.eye(5).to(getattr(torch, name))
        assert kind_of(reported_error(model, x.to("meta"))) == kind_of(torch_error(model, x)), name


@pytest.mark.parametrize(
    "operator",
    [
        lambda x: F.max_pool1d(x, 2),
        lambda x: x @ x[:1],
        lambda x: F.interpolate(x, scale_factor=2),
    ],
)
def test_operators_made_of_other_kernels_when_nobody_watches_are_asked(operator: Callable[..., Any]) -> None:
    for name in TYPES:
        model, x = valueless(Apply(lambda self, x: operator(x))), values(name, 4, 4, 4)
        assert kind_of(reported_error(model, x.to("meta"))) == kind_of(torch_error(model, x)), name


def test_a_kernel_with_another_one_for_few_elements_is_asked_again() -> None:
    for count in (100, 5):
        x = torch.ones(count).to(torch.uint16)
        model = valueless(Apply(lambda self, x: torch.isin(x, x)))
        assert kind_of(reported_error(model, x)) == kind_of(torch_error(model, x))


def test_a_state_of_the_random_generator_is_memory_when_nothing_else_runs() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.state = torch.get_rng_state()
        return x

    assert mg.inspect(Apply(forward), torch.ones(3)).run.failure is None
