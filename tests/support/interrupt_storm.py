"""Interrupts inspections at random moments: a script, since it may end the process that runs it."""

from __future__ import annotations

import math
import random
import signal
import sys
import time
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

import modelglass as mg
from fingerprint import fingerprint

WAYS: dict[str, dict[str, Any]] = {
    "fake": {},
    "train": {"train": True, "optimizer": "adamw"},
    "real": {"run": "real"},
    "real train": {"run": "real", "train": True},
}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] * 2


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.held: list[Any] = [torch.ones(2), {"key": torch.zeros(1)}]
        self.calls = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        self.held[1]["last"] = x
        y = self.norm(self.linear(x)).relu()[None]
        return Doubled.apply(self.attention(y, y, y)[0])


class Storm:
    """Ctrl-C at a random moment of a function, and up to two more right after it."""

    def __init__(self, seed: int, code: CodeType) -> None:
        self._random = random.Random(seed)
        self._code = code
        self._more = 0
        signal.signal(signal.SIGALRM, self._strike)

    def begin(self, within: float) -> None:
        self._more = self._random.randrange(3)
        self._arm(within)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _arm(self, within: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, 1e-6 + self._random.random() * within)

    def _strike(self, _: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        if frame is None:  # it came late, and would end the script
            return
        if self._more:
            self._more -= 1
            self._arm(self._random.choice((1e-5, 1e-4, 1e-3)))
        raise KeyboardInterrupt


def around() -> Any:
    keys = repr(torch._C._dispatch_tls_local_include_set()), repr(torch._C._dispatch_tls_local_exclude_set())
    functions = torch.get_rng_state, torch.manual_seed, torch.UntypedStorage.resize_, nn.Module._apply
    return keys, functions, torch._C._len_torch_function_stack(), signal.getsignal(signal.SIGINT)


def main(way: str, times: int, seed: int) -> str | None:
    """What was damaged, if anything."""
    model, x = Small(), torch.randn(5, 3)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def run() -> mg.Report:
        return mg.inspect(model, x, **WAYS[way])

    run()
    expected = run()
    shortest = math.inf  # what a run takes depends on what else the machine does
    before = fingerprint(model, x), around()
    storm, raised = Storm(seed, run.__code__), 0
    for _ in range(times):
        began = time.perf_counter()
        storm.begin(min(shortest, 1))
        try:
            run()
        except KeyboardInterrupt:
            raised += 1
        else:
            shortest = min(shortest, time.perf_counter() - began)
        storm.end()
        if (fingerprint(model, x), around()) != before:
            return f"{way}: damaged after an interruption, seed {seed}"
    if raised < times / 4:
        return f"{way}: only {raised} of {times} interruptions arrived"
    return None if run() == expected else f"{way}: another report after interruptions, seed {seed}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
