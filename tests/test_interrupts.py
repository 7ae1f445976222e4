"""An interruption at any line of giving back leaves the model, torch and the process as they were."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Collection
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


@pytest.mark.parametrize("way", WAYS)
def test_an_interruption_does_no_damage(way: str) -> None:
    model, x = Small(), torch.randn(5, 3)
    _try(GIVING_BACK, lambda: mg.inspect(model, x, **WAYS[way]), lambda: (fingerprint(model, x), _around()))


def test_an_interruption_of_mlx_does_no_damage() -> None:
    mlx, of_mlx = pytest.importorskip("mlx.core"), pytest.importorskip("mlx.nn")
    from fingerprint_mlx import fingerprint as fingerprint_mlx

    model, x = of_mlx.Sequential(of_mlx.Linear(3, 4), of_mlx.BatchNorm(4)), mlx.ones((5, 3))
    _try((), lambda: mg.inspect(model, x), lambda: fingerprint_mlx(model, x))


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
