"""What runs take in memory, against what torch's own profiler says real runs take."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from models import SMALL, Apply, ids, timm_model, transformers_model
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import modelglass as mg
from modelglass.report import Memory

Step = Callable[[], Any]


def real_peak(step: Step) -> int:
    """The most that was allocated at once while a step ran, by torch's profiler."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        kept = step()
    assert profile.profiler is not None and profile.profiler.kineto_results is not None
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    del kept
    return peak


def nbytes(tensors: Iterator[torch.Tensor] | list[torch.Tensor]) -> int:
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def base_of(model: nn.Module, inputs: dict[str, torch.Tensor]) -> int:
    return nbytes([*model.parameters(), *model.buffers(), *inputs.values()])


def forward(model: nn.Module, inputs: dict[str, torch.Tensor]) -> int:
    def step() -> Any:
        with torch.no_grad():
            return model(**inputs)

    return base_of(model, inputs) + real_peak(step)


def loss_of(output: Any) -> torch.Tensor:
    return output.loss if hasattr(output, "loss") else output.sum()


def training(model: nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[int, int]:
    """The peaks of a first and of a second step with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> Any:
        output = model(**inputs)
        loss = loss_of(output)
        loss.backward()
        optimizer.step()
        return output, loss

    first = base_of(model, inputs) + real_peak(step)
    optimizer.zero_grad()
    state = nbytes([value for each in optimizer.state.values() for value in each.values()])
    return first, base_of(model, inputs) + state + real_peak(step)


def predicted(model: nn.Module, inputs: dict[str, torch.Tensor], **options: Any) -> Memory:
    report = mg.inspect(model, inputs, **options)
    assert report.run.mode == "fake", report.notes
    assert report.memory is not None
    return report.memory


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]  # type: ignore[no-any-return]


class Lora(nn.Module):
    """A frozen layer with a small trained one beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(64, 64).requires_grad_(False)
        self.down, self.up = nn.Linear(64, 4, bias=False), nn.Linear(4, 64, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + 0.5 * self.up(self.down(x))  # type: ignore[no-any-return]


class Blocks(nn.Module):
    """Blocks that run again in backward."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        block = lambda: nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 64), nn.Dropout(0.1))
        self.first, self.blocks = nn.Linear(64, 64), nn.ModuleList(block() for _ in range(4))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Autocast(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.body(x).float()  # type: ignore[no-any-return]


def labelled(**more: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(), "labels": ids(), **more}


def rows(*shape: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(*shape)}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Any]]]] = {
    "llama": (lambda: transformers_model("Llama", **SMALL), labelled),
    "llama with a mask of ones": (
        lambda: transformers_model("Llama", **SMALL),
        lambda: labelled(attention_mask=torch.ones_like(ids())),
    ),
    "llama with a mask that hides": (
        lambda: transformers_model("Llama", **SMALL),
        lambda: labelled(attention_mask=(torch.arange(ids().numel()) > 2).long().reshape(ids().shape)),
    ),
    "bert": (
        lambda: transformers_model("Bert", "ForMaskedLM", **SMALL),
        lambda: labelled(attention_mask=torch.ones_like(ids())),
    ),
    "gpt2": (
        lambda: transformers_model("GPT2", "LMHeadModel", n_layer=2, n_embd=32, n_head=2, vocab_size=100),
        labelled,
    ),
    "lora": (Lora, lambda: rows(16, 64)),
    "autocast": (Autocast, lambda: rows(16, 64)),
    "dropout and numbers": (
        lambda: Apply(lambda self, x: self.drop(self.l(x) * 0.5 / 3 + 1), l=nn.Linear(8, 8), drop=nn.Dropout(0.2)),
        lambda: {"x": torch.randn(4, 8)},
    ),
    "checkpointed": (lambda: Blocks(False), lambda: rows(32, 64)),
    "checkpointed, reentrant": (lambda: Blocks(True), lambda: rows(32, 64)),
    "convolutions": (
        lambda: Apply(
            lambda self, x: self.b(self.n(self.a(x)).relu_()),
            a=nn.Conv2d(3, 8, 3), n=nn.BatchNorm2d(8), b=nn.Conv2d(8, 4, 3, groups=4),
        ),
        lambda: rows(2, 3, 24, 24),
    ),
    "lstm": (Lstm, lambda: rows(2, 6, 16)),
    "encoder layer": (
        lambda: Apply(lambda self, x: self.e(x), e=nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)),
        lambda: rows(2, 6, 32),
    ),
    "expanded arguments": (
        lambda: Apply(lambda self, x: (self.l(x) * x[:, :1].expand(-1, 8)).sum(0), l=nn.Linear(8, 8)),
        lambda: {"x": torch.randn(16, 8)},
    ),
}  # fmt: skip
# Their kernels take nothing for themselves, or do so away from the peak.
EXACT_WITHOUT_CALIBRATION = (
    "llama", "llama with a mask of ones", "llama with a mask that hides", "bert", "gpt2", "lora", "dropout and numbers",
)  # fmt: skip
