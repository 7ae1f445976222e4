"""Models of every kind the adapter must take, with inputs. Each entry builds anew."""

from __future__ import annotations

import random
import warnings
from collections import UserDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from modelglass import Inputs

Sample = tuple[nn.Module, Any]


class Apply(nn.Module):
    """A module that only applies a function to its inputs."""

    def __init__(self, function: Callable[..., Any], **members: Any) -> None:
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


class Stateful(nn.Module):
    """A forward pass that changes everything it can reach."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("steps", torch.zeros(()))
        self.counter = 0
        self.seen: list[torch.Tensor] = []
        self.cache: dict[str, torch.Tensor] = {}
        self.generator = torch.Generator().manual_seed(7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counter += 1
        self.steps += 1
        self.seen.append(x)
        self.cache["last"] = x
        self.latest = x
        noise = torch.rand(4, generator=self.generator) + torch.rand(4)
        with torch.no_grad():
            self.layer.weight.mul_(1.5)
        torch.set_default_dtype(torch.float64)
        self.train(not self.training)
        return self.norm(self.layer(F.dropout(x))) + noise


class Slotted:
    __slots__ = ("count", "total")

    def __init__(self) -> None:
        self.total = torch.zeros(4)
        self.count = 0


def remembering_hook() -> Callable[..., None]:
    total, count = torch.zeros(4), 0

    def hook(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        nonlocal count
        count += 1
        total.add_(output.sum(0))

    return hook


class Hoarder(nn.Module):
    """Keeps state in every kind of place, and writes to all of them."""

    def __init__(self, *, by_value: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.layer.register_forward_hook(remembering_hook())
        self.recent = deque([torch.zeros(4)], maxlen=1)
        self.slotted = Slotted()
        self.space = SimpleNamespace(total=torch.zeros(4), seen=set())
        self.add = partial(torch.Tensor.add_, torch.zeros(4))
        self.names = UserDict()
        self.python_draws, self.numpy_draws = random.Random(0), numpy.random.default_rng(0)
        self.by_value = by_value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.by_value and x.sum().item() < -1e9:
            return x
        row = self.layer(x)[0].detach()
        self.recent[0].add_(row)
        self.recent.append(row)
        self.slotted.total.add_(row)
        self.slotted.count += 1
        self.space.total.add_(row)
        self.space.seen.add("row")
        self.space.more = row
        self.add(row)
        self.names["row"] = row
        torch.set_anomaly_enabled(True)
        torch.set_deterministic_debug_mode(1)
        return row * self.python_draws.random() * self.numpy_draws.random()


class Branching(nn.Module):
    """Control flow that depends on values: fake tensors cannot follow it."""

    def __init__(self) -> None:
        super().__init__()
        self.yes, self.no = nn.Linear(4, 8), nn.Linear(4, 2)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return self.yes(x) if x.sum().item() > -1e9 else self.no(x)


@dataclass
class Answer:
    logits: torch.Tensor
    note: str = "fine"
    count: int = 3
    missing: None = None


class Structured(nn.Module):
    """Every kind of output, one level down."""

    def __init__(self, output: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.inner = Apply(lambda self, x, *, scale=1.0: output(x * scale))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x, scale=2.0)
        return x


def conv_stack() -> nn.Module:
    """Convolution, batch norm and activation, twice."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    )


def convolutional() -> nn.Module:
    """A classifier of one layer of each usual kind: 5,450 parameters."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.AdaptiveAvgPool2d((1, 1)),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


class CellLoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(10, 20)

    def forward(self, x: torch.Tensor) -> Any:
        state = None
        for step in x:
            state = self.cell(step, state)
        return state


class Tied(nn.Module):
    def __init__(self, vocabulary: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16))
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.body, x, use_reentrant=self.reentrant)


class UNet(nn.Module):
    """Down and up again, with a skip connection at every level."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)])
        self.up = nn.ModuleList([nn.Conv2d(12, 4, 3, padding=1), nn.Conv2d(7, 3, 3, padding=1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for layer in self.down:
            skips.append(x)
            x = F.max_pool2d(layer(x).relu(), 2)
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2)
            x = layer(torch.cat([x, skips.pop()], 1))
        return x


def exported(*, dynamic: bool) -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 5)).eval()
    shapes = ({0: torch.export.Dim("batch", min=2)},) if dynamic else None
    return torch.export.export(model, (torch.randn(2, 3, 8, 8),), dynamic_shapes=shapes).module()


def quantized(model: nn.Module, *types: type[nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, set(types))


def scripted(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(model)


def old_weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(layer)


class Converting(nn.Module):
    """Converts a layer of its own in every pass, as routers of experts do."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate, self.norm, self.dtype = nn.Linear(16, 4), nn.BatchNorm1d(16), dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.gate = self.gate.to(self.dtype)
        return self.gate(self.norm(x).to(self.dtype)).softmax(-1)


def pruned() -> nn.Module:
    layer = nn.Linear(16, 32)
    prune.l1_unstructured(layer, "weight", 0.5)
    return layer


def transformers_model(name: str, suffix: str = "ForCausalLM", **config: Any) -> nn.Module:
    import transformers

    made = getattr(transformers, f"{name}Config")(**config)
    return getattr(transformers, name + suffix)(made).eval()


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
}


def gpt2(**more: Any) -> nn.Module:
    return transformers_model(
        "GPT2",
        "LMHeadModel",
        n_layer=2,
        n_embd=64,
        n_head=4,
        vocab_size=1000,
        n_positions=128,
        bos_token_id=0,
        eos_token_id=1,
        **more,
    )


def llama(**more: Any) -> nn.Module:
    return transformers_model("Llama", **SMALL, tie_word_embeddings=True, **more)


def mixtral(**more: Any) -> nn.Module:
    return transformers_model("Mixtral", **SMALL, num_local_experts=4, num_experts_per_tok=2, **more)


def ids(length: int = 16) -> torch.Tensor:
    return torch.arange(length)[None] % 7


SAMPLES: dict[str, Callable[[], Sample]] = {
    "linear": lambda: (nn.Linear(3, 8), torch.randn(5, 10, 3)),
    "convolutions": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding="same"),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(8, 4, 2),
        ),
        torch.randn(2, 3, 8, 8),
    ),
    "attention": lambda: (
        nn.MultiheadAttention(64, 4, batch_first=True),
        Inputs((x := torch.randn(2, 10, 64), x, x), {"need_weights": False}),
    ),
    "fused encoder": lambda: (
        nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0).eval(),
        torch.randn(2, 10, 64),
    ),
    "lstm": lambda: (nn.LSTM(10, 20, 2, bidirectional=True, batch_first=True), torch.randn(2, 5, 10)),
    "packed lstm": lambda: (
        nn.LSTM(10, 20),
        nn.utils.rnn.pack_padded_sequence(torch.randn(7, 3, 10), torch.tensor([7, 3, 1])),
    ),
    "cell loop": lambda: (CellLoop(), torch.randn(5, 2, 10)),
    "weight norm": lambda: (parametrizations.weight_norm(nn.Conv2d(8, 16, 3)), torch.randn(2, 8, 10, 10)),
    "old weight norm": lambda: (old_weight_norm(nn.Conv2d(8, 16, 3)), torch.randn(2, 8, 10, 10)),
    "spectral norm": lambda: (parametrizations.spectral_norm(nn.Linear(8, 6)), torch.randn(2, 8)),
    "pruned": lambda: (pruned(), torch.randn(8, 16)),
    "converted to what it is": lambda: (Converting(torch.float32), torch.randn(8, 16)),
    "converted to another type": lambda: (Converting(torch.bfloat16), torch.randn(8, 16)),
    "tied": lambda: (Tied(), torch.zeros(2, 10, dtype=torch.long)),
    "lazy": lambda: (nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d()), torch.randn(4, 16)),
    "stateful": lambda: (Stateful(), torch.randn(3, 4)),
    "hoarder": lambda: (Hoarder(by_value=False), torch.randn(3, 4)),
    "hoarder by value": lambda: (Hoarder(by_value=True), torch.randn(3, 4)),
    "branching": lambda: (Branching(), torch.randn(3, 4)),
    "checkpointed": lambda: (Checkpointed(reentrant=False), torch.randn(8, 16)),
    "quantized": lambda: (quantized(nn.Sequential(nn.Linear(16, 32)), nn.Linear), torch.randn(4, 16)),
    "scripted": lambda: (scripted(nn.Sequential(nn.Linear(16, 32), nn.ReLU())), torch.randn(4, 16)),
    "compiled": lambda: (torch.compile(nn.Sequential(nn.Linear(16, 32), nn.ReLU())), torch.randn(4, 16)),
    "exported": lambda: (exported(dynamic=False), torch.randn(2, 3, 8, 8)),
    "exported with dynamic shapes": lambda: (exported(dynamic=True), torch.randn(5, 3, 8, 8)),
    "u-net": lambda: (UNet(), torch.randn(1, 3, 16, 16)),
    "meta": lambda: (nn.Linear(4096, 4096, device="meta"), torch.randn(2, 4096)),
    "failing": lambda: (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(5, 2)),
        torch.randn(2, 3),
    ),
    "gpt2": lambda: (gpt2(), ids()),
    "llama": lambda: (llama(), {"input_ids": ids()}),
    "mixtral": lambda: (mixtral(), {"input_ids": ids()}),
}
