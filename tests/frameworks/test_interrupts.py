"""An interruption at any line of giving back leaves the model, torch and the process as they were."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from fingerprint import fingerprint
from interrupting import count_lines, interrupt

WAYS: dict[str, dict[str, Any]] = {
    "fake": {},
    "train": {"train": True, "optimizer": "sgd"},
    "real": {"run": "real"},
    "real train": {"run": "real", "train": True},
}
GIVING_BACK = ("undo.py", "thread_state.py", "process.py", "python_state.py", "session.py", "contextlib.py")
FEW = 40  # interrupts of each way that a run of the tests has time for


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.held: list[Any] = [torch.ones(2), {"key": torch.zeros(1)}]
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.held[1]["last"] = x
        return self.norm(self.linear(x)).relu()


def _around() -> Any:
    functions = (nn.Module._apply, torch.tensor, torch.get_rng_state, torch.manual_seed)
    keys = repr(torch._C._dispatch_tls_local_include_set()), repr(torch._C._dispatch_tls_local_exclude_set())
    return functions, keys, torch._C._len_torch_function_stack(), gc.isenabled()


def _try(files: Collection[str], function: Callable[[], Any], look: Callable[[], Any]) -> None:
    function()
    count_lines(function, files)
    lines = count_lines(function, files)
    before = look()
    for at in range(1, lines + 1, max(1, lines // FEW)):
        interrupt(function, at, files)
        assert look() == before, f"line {at} of {lines}"
    function()


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_an_interruption_does_no_damage(way: str) -> None:
    model, x = Small(), torch.randn(5, 3)
    _try(GIVING_BACK, lambda: mg.inspect(model, x, **WAYS[way]), lambda: (fingerprint(model, x), _around()))


@pytest.mark.slow
def test_an_interruption_of_mlx_does_no_damage() -> None:
    mlx, of_mlx = pytest.importorskip("mlx.core"), pytest.importorskip("mlx.nn")
    from fingerprint_mlx import fingerprint as fingerprint_mlx

    model, x = of_mlx.Sequential(of_mlx.Linear(3, 4), of_mlx.BatchNorm(4)), mlx.ones((5, 3))
    _try((), lambda: mg.inspect(model, x), lambda: fingerprint_mlx(model, x))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that sends signals")
@pytest.mark.parametrize("way", ["fake", "train"])
def test_interruptions_at_random_moments_do_no_damage(way: str) -> None:
    """In a process of its own: torch ends the process for an exception where it awaits an answer."""
    storm = Path(__file__).parents[1] / "support" / "interrupt_storm.py"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(storm), way, "80", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


class Interrupting(nn.Module):
    """A model that is interrupted at a moment of its choice."""

    def __init__(self, at: Callable[[], Any]) -> None:
        super().__init__()
        self.linear, self.at = nn.Linear(3, 4), at

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.at()
        return self.linear(x)


def _interrupt_us() -> None:
    signal.raise_signal(signal.SIGINT)


class _Dying:
    def __del__(self) -> None:
        _interrupt_us()


def _let_die() -> None:
    _Dying()


@pytest.mark.parametrize("at", [_interrupt_us, _let_die])
def test_an_interruption_of_the_model_is_raised_also_from_a_finalizer(at: Callable[[], Any]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        mg.inspect(Interrupting(at), torch.randn(5, 3))
    assert signal.getsignal(signal.SIGINT) is before


def test_a_handler_of_the_users_runs_once_and_may_return() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        report = mg.inspect(Interrupting(_interrupt_us), torch.randn(5, 3))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]
    assert report.run.failure is None


def test_an_interruption_waits_while_a_run_is_undone() -> None:
    from modelglass.interrupts import hold_signals
    from modelglass.undo import run_and_undo

    done: list[int] = []

    def body(log: Any) -> None:
        hold_signals(log)
        log.record(done.append, 1)
        log.record(lambda: (_interrupt_us(), done.append(2)))

    with pytest.raises(KeyboardInterrupt):
        run_and_undo(body)
    assert done == [2, 1]


def test_an_undo_that_is_interrupted_again_and_again_is_repeated() -> None:
    from modelglass.undo import run_and_undo

    done: list[int] = []

    def impatient() -> None:
        done.append(0)
        if len(done) < 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_and_undo(lambda log: log.record(impatient))
    assert done == [0] * 6


def test_an_error_in_memory_while_giving_back_is_raised_in_the_end() -> None:
    from modelglass.undo import run_and_undo

    done: list[int] = []

    def fail_once() -> None:
        done.append(0)
        if len(done) == 2:
            raise MemoryError

    def body(log: Any) -> None:
        log.record(done.append, 1)
        log.record(fail_once)
        log.record(done.append, 2)

    with pytest.raises(MemoryError):
        run_and_undo(body)
    assert done == [2, 0, 0, 1]


def test_another_thread_may_build_and_convert_models_meanwhile() -> None:
    wrong: list[Any] = []
    stop = threading.Event()
    begun = threading.Event()

    def build() -> None:
        while not stop.is_set():
            model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(torch.float64).half()
            table = torch.tensor([1, 2])
            kinds = {type(each) for each in model.parameters()} | {type(torch.get_rng_state())}
            if kinds != {nn.Parameter, torch.Tensor} or type(table) is not torch.Tensor:
                wrong.append(kinds)
            begun.set()

    worker = threading.Thread(target=build)
    worker.start()
    begun.wait()
    try:
        for _ in range(10):
            mg.inspect(Small(), torch.randn(5, 3), train=True)
    finally:
        stop.set()
        worker.join()
    assert wrong == []
