"""Every step of training: optimizers that change their arithmetic, models that keep something, kernels that
are other ones when nobody watches. The truth is what torch's profiler says of real steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import memory_truth as truth
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import modelglass as mg
from modelglass.frameworks.torch.memory import calibration
from modelglass.frameworks.torch.privates import VERSION
from models import Apply


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32)).train()


def real_steps(model: nn.Module, x: torch.Tensor, make: Callable[[Any], Any], count: int) -> list[int]:
    """The peak of each of several real steps."""
    optimizer = make(list(model.parameters()))
    peaks = []

    def step() -> Any:
        output = model(x)
        loss = output.sum()
        loss.backward()
        optimizer.step()
        return output, loss

    for _ in range(count):
        state = torch.utils._pytree.tree_leaves([*optimizer.state.values(), getattr(optimizer, "kept", None)])
        tensors = [*model.parameters(), *model.buffers(), x, *state]
        held = [each.untyped_storage() for each in tensors if isinstance(each, torch.Tensor)]
        peaks.append(truth.measured_peak(step, {each.data_ptr(): each.nbytes() for each in held}))
        optimizer.zero_grad(set_to_none=True)
    return peaks


class EveryFourth(torch.optim.SGD):
    """Averages its weights in each fourth step."""

    times = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.times += 1
        if self.times % 4 == 0:
            with torch.no_grad():
                copies = [param * 0.5 for group in self.param_groups for param in group["params"]]
            del copies


class Keeping(torch.optim.SGD):
    """Keeps the weights of its last steps."""

    def __init__(self, params: Any, *, most: int | None) -> None:
        super().__init__(params)
        self.most = most
        self.kept: list[list[torch.Tensor]] = []

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.kept.append([param.clone() for group in self.param_groups for param in group["params"]])
        if self.most is not None and len(self.kept) > self.most:
            del self.kept[0]


OPTIMIZERS: list[tuple[str, Callable[[Any], Any]]] = [
    ("Adam, foreach", lambda params: torch.optim.Adam(params, foreach=True)),
    ("AdamW, foreach", lambda params: torch.optim.AdamW(params, foreach=True)),
    ("AdamW, fused", lambda params: torch.optim.AdamW(params, fused=True)),
    ("NAdam, foreach", lambda params: torch.optim.NAdam(params, foreach=True)),
    ("Adamax, foreach", lambda params: torch.optim.Adamax(params, foreach=True)),
    ("RMSprop, foreach", lambda params: torch.optim.RMSprop(params, foreach=True)),
    ("RAdam", torch.optim.RAdam),
    ("RAdam, foreach", lambda params: torch.optim.RAdam(params, foreach=True)),
    ("ASGD that averages from its third step", lambda params: torch.optim.ASGD(params, t0=1)),
    ("Adafactor", torch.optim.Adafactor),
    ("Adafactor, foreach", lambda params: torch.optim.Adafactor(params, foreach=True)),
    ("one of the user's own", EveryFourth),
    ("one that keeps three copies of the weights", partial(Keeping, most=3)),
]


@pytest.mark.parametrize("make", [make for _, make in OPTIMIZERS], ids=[name for name, _ in OPTIMIZERS])
def test_steps_are_what_torch_measures(make: Callable[[Any], Any]) -> None:
    first, *later = real_steps(mlp(), torch.ones(16, 64), make, 8)
    memory = mg.inspect(mlp(), torch.ones(16, 64), train=True, optimizer=make, calibrate=True).memory
    assert memory is not None
    assert (memory.first_peak_nbytes, memory.later_peak_nbytes) == (first, max(later))
    assert memory.peak_nbytes == max(first, *later)
    assert sum(memory.by_category.values()) == max(moment.nbytes for moment in memory.timeline)


@pytest.mark.parametrize("most", [20, None])
def test_what_grows_beyond_the_steps_that_are_followed_is_an_estimate(most: int | None) -> None:
    memory = mg.inspect(mlp(), torch.ones(16, 64), train=True, optimizer=partial(Keeping, most=most)).memory
    assert memory is not None
    assert memory.method == "estimate"
    assert memory.excludes[-3] == "what steps after number 16 take"


RATE, BETA = torch.tensor(0.1), torch.tensor(0.9)


def with_numbers_of_the_caller(params: Any) -> torch.optim.Optimizer:
    by_size = [[each for each in params if (each.dim() > 1) is large] for large in (True, False)]
    groups = [{"params": by_size[0], "lr": RATE}, {"params": by_size[1], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(BETA, BETA))


def test_numbers_that_the_caller_made_are_there_from_the_beginning() -> None:
    """A number that two groups share counts once."""
    x = torch.ones(16, 64)
    own = mg.inspect(mlp(), x, train=True, optimizer=lambda params: torch.optim.AdamW(params, lr=0.1)).memory
    callers = mg.inspect(mlp(), x, train=True, optimizer=with_numbers_of_the_caller).memory
    assert own is not None
    assert callers is not None
    assert callers.by_category["optimizer_state"] == own.by_category["optimizer_state"] + 4 + 4


def test_an_optimizer_that_evaluates_the_model_itself_runs_for_real() -> None:
    report = mg.inspect(mlp(), torch.ones(16, 64), train=True, optimizer="lbfgs")
    assert report.run.mode == "real"
    assert report.memory is not None
    assert report.memory.optimizer == "lbfgs"
    assert report.memory.method == "estimate", "how often it evaluates depends on values"
    assert "further evaluations of the model" in report.memory.excludes[0]


def test_without_values_its_step_is_unknown() -> None:
    report = mg.inspect(mlp().to("meta"), torch.empty(16, 64, device="meta"), train=True, optimizer="lbfgs")
    assert report.memory is None
    assert "optimizer-failed" in [note.code for note in report.notes]


class Average(nn.Module):
    """Keeps a running average that its first pass makes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.register_buffer("mean", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layer(x)
        new = y.detach()
        self.mean = new.clone() if self.mean is None else self.mean * 0.9 + new * 0.1
        return y


def test_what_a_model_keeps_is_there_in_the_next_step() -> None:
    x = torch.ones(512, 64)
    first, *later = real_steps(Average(), x, torch.optim.SGD, 3)
    memory = mg.inspect(Average(), x, train=True, optimizer="sgd", calibrate=True).memory
    assert memory is not None
    assert (memory.first_peak_nbytes, memory.later_peak_nbytes) == (first, max(later))
    assert memory.in_first_step is False


def peak_of(model: nn.Module, *args: torch.Tensor, train: bool) -> int:
    def run() -> Any:
        if not train:
            with torch.no_grad():
                return model(*args)
        output = model(*args)
        loss = output.sum()
        loss.backward()
        return output, loss

    held = [each.untyped_storage() for each in (*model.parameters(), *args)]
    return truth.measured_peak(run, {each.data_ptr(): each.nbytes() for each in held})


def given_back(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.layer(x)
    room = torch.empty(512, 64)
    room.copy_(y.detach())
    room.untyped_storage().resize_(0)
    return y * 2  # type: ignore[no-any-return]


def exchanged(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.layer.weight.data = self.layer.weight.data.clone()
    return self.layer(x)  # type: ignore[no-any-return]


def weighted(run: Callable[..., Any], *shape: int) -> nn.Module:
    """A layer of one weight, and a function of it."""
    layer = nn.Linear(shape[-1], shape[0], bias=False)
    return Apply(lambda self, *args: run(self.layer.weight, *args), layer=layer)


def packed(self: Any, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    sequences = pack_padded_sequence(x, lengths, enforce_sorted=False)
    return self.layer(sequences)[0].data  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("build", "args", "train"),
    [
        pytest.param(
            lambda: weighted(lambda w: torch.linalg.matrix_norm(w, "nuc"), 64, 32), (), False, id="nuclear"
        ),
        pytest.param(lambda: weighted(torch.linalg.svdvals, 64, 32), (), False, id="singular values"),
        pytest.param(
            lambda: weighted(lambda w: torch.linalg.eigvalsh(w @ w.T), 32, 32), (), False, id="eigenvalues"
        ),
        pytest.param(
            lambda: weighted(lambda w, mask: w[mask], 64, 128),
            (torch.arange(64 * 128).reshape(64, 128) % 3 == 0,),
            True,
            id="mask",
        ),
        pytest.param(lambda: nn.MaxPool1d(2), (torch.ones(4, 8, 128),), False, id="pooling"),
        pytest.param(
            lambda: Apply(given_back, layer=nn.Linear(64, 64)), (torch.ones(512, 64),), True, id="resized"
        ),
        pytest.param(lambda: weighted(torch.trace, 64, 64), (), True, id="trace"),
        pytest.param(lambda: weighted(lambda w: w * w, 64, 128), (), True, id="a factor that comes twice"),
        pytest.param(lambda: weighted(lambda w: torch.fmax(w, w), 64, 128), (), True, id="twice in fmax"),
        pytest.param(
            lambda: weighted(lambda w: torch.cat([w, w * 2]), 64, 128), (), True, id="a number let go of"
        ),
        pytest.param(
            lambda: weighted(lambda w: torch.combinations(w[0]), 64, 128), (), True, id="combinations"
        ),
        pytest.param(lambda: weighted(lambda w: w.clamp(0.0, 0.1), 64, 128), (), True, id="clamp"),
        pytest.param(
            lambda: weighted(lambda w, low: w.clamp(min=low), 64, 128),
            (torch.zeros(64, 128),),
            True,
            id="clamp from below",
        ),
        pytest.param(
            lambda: weighted(lambda w, rows: w.scatter(0, rows, 2.0).mul(3), 64, 128),
            (torch.arange(20 * 128).reshape(20, 128) % 64,),
            True,
            id="a gradient that is not its formula's own",
        ),
        pytest.param(
            lambda: weighted(lambda w, mask: w.masked_select(mask).mul(3), 64, 128),
            (torch.arange(64 * 128).reshape(64, 128) % 3 == 0,),
            True,
            id="masked_select",
        ),
        pytest.param(
            lambda: weighted(lambda w, mask: torch.ones(64, 128).masked_scatter(mask, w), 64, 128),
            (torch.arange(64 * 128).reshape(64, 128) % 3 == 0,),
            True,
            id="masked_scatter",
        ),
        pytest.param(
            lambda: weighted(lambda w, mask: torch.where(mask, w, w * 2).mul(3), 64, 128),
            (torch.arange(64 * 128).reshape(64, 128) % 3 == 0,),
            True,
            id="a number that is kept",
        ),
        pytest.param(
            lambda: weighted(
                lambda w, y: F.binary_cross_entropy_with_logits(w, y, pos_weight=torch.ones(128)), 64, 128
            ),
            (torch.ones(64, 128),),
            True,
            id="cross entropy with weights",
        ),
        pytest.param(
            lambda: Apply(lambda self, x: torch.vmap(self.layer)(x), layer=nn.Linear(64, 64)),
            (torch.ones(512, 64),),
            False,
            id="mapped over a batch",
        ),
        pytest.param(
            lambda: nn.Embedding(1000, 64, sparse=True), (torch.arange(500) % 100,), True, id="sparse"
        ),
        pytest.param(
            lambda: Apply(packed, layer=nn.LSTM(16, 32)),
            (torch.ones(9, 4, 16), torch.tensor([9, 4, 2, 7])),
            True,
            id="packed sequences",
        ),
        pytest.param(
            lambda: weighted(lambda w, n: w[(n - 2).nonzero()[:, 0]], 32, 16),
            (torch.arange(32) % 5,),
            True,
            id="places of numbers",
        ),
    ],
)
def test_kernels_take_what_they_take_unwatched(
    build: Callable[[], nn.Module], args: tuple[torch.Tensor, ...], train: bool
) -> None:
    memory = mg.inspect(build(), mg.Inputs(args=args), train=train, calibrate=True).memory
    assert memory is not None
    if VERSION < (2, 15) or memory.method != "estimate":  # 2.15 has formulas that are not understood yet
        assert memory.peak_nbytes == peak_of(build(), *args, train=train)


@pytest.mark.parametrize("run", ["fake", "real"])
@pytest.mark.parametrize("train", [False, True])
def test_memory_that_data_was_exchanged_for_takes_its_place(train: bool, run: Any) -> None:
    """By hand: torch's profiler does not see the end of memory that is older than itself."""
    x = torch.ones(512, 64)
    plain, other = (
        mg.inspect(model, x, train=train, run=run).memory
        for model in (nn.Linear(64, 64), Apply(exchanged, layer=nn.Linear(64, 64)))
    )
    assert plain is not None
    assert other is not None
    assert other.peak_nbytes == plain.peak_nbytes
    assert other.by_category == plain.by_category
    assert other.timeline[0].nbytes == other.base_nbytes + 4 * 64 * 64, "both are there while it is copied"


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda w: w.prod(-1), id="prod"),
        pytest.param(lambda w: w.cumprod(-1), id="cumprod"),
        pytest.param(lambda w: w.clamp(torch.tensor(0.1), torch.tensor(0.2)), id="clamped by tensors"),
        pytest.param(lambda w: torch.addcmul(w, w, w), id="addcmul"),
        pytest.param(lambda w: torch.linalg.det(w[:, :16]), id="determinant"),
        pytest.param(lambda w: w.max() * w, id="max"),
        pytest.param(lambda w: w.nanmedian() * w, id="nanmedian"),
        pytest.param(lambda w: w.sgn() * w, id="sgn"),
        pytest.param(lambda w: torch.linalg.householder_product(w.T, w[0, :16]), id="reflections"),
        pytest.param(lambda w: w.masked_fill(w > 0, w.sum()), id="filled with a tensor"),
    ],
)
def test_a_gradient_that_is_another_one_when_watched_makes_an_estimate(run: Callable[..., Any]) -> None:
    report = mg.inspect(weighted(run, 16, 32), mg.Inputs(), train=True)
    assert report.memory is not None
    assert report.memory.method == "estimate"
    assert "gradient-differs" in [note.code for note in report.notes]
    unwatched = mg.inspect(weighted(run, 16, 32), mg.Inputs())
    assert unwatched.memory is not None
    assert unwatched.memory.method == "exact"


def test_vectors_that_only_an_observed_run_works_out_make_an_estimate() -> None:
    memory = mg.inspect(weighted(torch.linalg.eigvals, 16, 16), mg.Inputs()).memory
    assert memory is not None
    assert memory.method == "estimate"


@pytest.mark.parametrize("known", [True, False])
def test_scratch_is_of_the_results_that_were_seen(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up lengths make other results than real ones; what was measured on them is not the run's."""
    if not known:
        monkeypatch.setattr(calibration, "_values_of", lambda tensor: None)
    lengths = torch.tensor([9, 4, 2, 7])
    memory = mg.inspect(
        Apply(packed, layer=nn.GRU(16, 32)), mg.Inputs((torch.ones(9, 4, 16), lengths)), calibrate=True
    ).memory
    assert memory is not None
    assert memory.method == ("measured" if known else "estimate")
    assert any("_pack_padded_sequence" in each for each in memory.excludes) is not known


def largest_of_bags(w: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(torch.arange(40) % 7, w, torch.arange(0, 40, 5), mode="max")


@pytest.mark.parametrize(
    ("run", "kernel"),
    [
        (torch.linalg.matrix_exp, "matrix_exp"),
        (largest_of_bags, "embedding_bag_backward"),
        (lambda w: w * torch.isin(w.detach(), w.detach()), "isin"),
    ],
)
def test_scratch_that_values_decide_is_not_called_measured(run: Callable[..., Any], kernel: str) -> None:
    memory = mg.inspect(weighted(run, 32, 32), mg.Inputs(), train=True, calibrate=True).memory
    assert memory is not None
    assert memory.method == "estimate"
    assert any(kernel in each for each in memory.excludes)


@pytest.mark.parametrize("run", [torch.nn.functional.relu, lambda w: w[torch.arange(9)]])
def test_scratch_that_values_do_not_decide_is_measured(run: Callable[..., Any]) -> None:
    memory = mg.inspect(weighted(run, 32, 32), mg.Inputs(), train=True, calibrate=True).memory
    assert memory is not None
    assert memory.method == "measured"


def test_figures_name_device_batch_and_sequence() -> None:
    memory = mg.inspect(nn.Embedding(10, 8), torch.zeros(3, 7, dtype=torch.long)).memory
    assert memory is not None
    assert (memory.device, memory.batch_size, memory.seq_len) == ("cpu", 3, 7)
