"""Models and inputs of the known cases. Arguments have names, for the tools that want them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint_sequential

from models import gpt2

r = torch.randn


class Given(NamedTuple):
    """What a model is called with."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 (nobody writes to it)


def given(*args: Any, **kwargs: Any) -> Given:
    return Given(args, kwargs)


class WeightAndChild(nn.Module):
    """Owns a weight, has a child, multiplies itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(r(32, 16))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x @ self.weight.t())


class ConvHeadLinear(nn.Module):
    """Neither a convolution nor a linear layer, whatever its name says."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(r(32, 16))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class UnusedResult(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(16, 32)

    def forward(self, x: Tensor) -> Tensor:
        self.b(x)
        return self.a(x)


class ScaledDotProduct(nn.Module):
    def forward(self, q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q)


class EinsumOfThree(nn.Module):
    def forward(self, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.einsum("bij,bjk,kl->bil", a, b, c)


class Product(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b)


class GroupedProduct(nn.Module):
    def forward(self, x: Tensor, weights: Tensor, offsets: Tensor) -> Tensor:
        return torch._grouped_mm(x, weights, offs=offsets)


class Repeated(nn.Module):
    """One layer, applied many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer, self.times = nn.Linear(16, 16), times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.layer(x)
        return x


class ExplicitAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).chunk(3, -1)
        return (query @ key.transpose(-2, -1) / 8).softmax(-1) @ value


class InSegments(nn.Module):
    """Eight blocks in four segments, of which only what enters them is kept."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(8)))
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint_sequential(self.blocks, 4, x, use_reentrant=self.reentrant)


class TwoOutputs(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": x, "aux": x.sum()}


def fused(model: nn.Module) -> nn.Module:
    """As torch wants it to run a layer as one kernel: in eval mode, with nothing that trains."""
    return model.eval().requires_grad_(False)


def attention() -> nn.Module:
    return nn.MultiheadAttention(64, 4, batch_first=True)


def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)


def self_attention(**options: Any) -> Given:
    x = r(2, 10, 64)
    return Given((x, x, x), options)


def two_layers(*frozen: int) -> nn.Module:
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    for index in frozen:
        model[index].requires_grad_(False)
    return model


def wrong_width() -> nn.Module:
    """Its third layer cannot take what the second gives."""
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(5, 2))


def resnet18() -> nn.Module:
    import torchvision

    return torchvision.models.resnet18()


def with_lora() -> nn.Module:
    import peft

    config = peft.LoraConfig(r=4, target_modules=["c_attn"], fan_in_fan_out=True)
    return peft.get_peft_model(gpt2(), config)


def group_product() -> Given:
    return given(r(6, 16).bfloat16(), r(2, 16, 32).bfloat16(), torch.tensor([2, 6], dtype=torch.int32))


def billion() -> nn.Module:
    """A billion parameters that take no memory."""
    return nn.Linear(31_250, 32_000, bias=False, device="meta")


def qwen() -> nn.Module:
    """The sizes of Qwen2.5-7B that its cache depends on, without weights."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    sizes = {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28}
    with torch.device("meta"):
        config = Qwen2Config(**sizes, num_key_value_heads=4)
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


# Files: each builder gets an empty folder, and gives the path that a tool is asked about.


def mlx_in_four_bits(folder: Path) -> Path:
    """A linear layer of 4096 by 4096 as MLX stores it: eight weights in a word, a scale and a bias for 64."""
    from safetensors.torch import save_file

    words = torch.zeros(4096, 512, dtype=torch.uint32)
    sides = {f"layer.{name}": torch.zeros(4096, 64, dtype=torch.float16) for name in ("scales", "biases")}
    save_file({"layer.weight": words, **sides}, folder / "model.safetensors", {"format": "mlx"})
    (folder / "config.json").write_text('{"quantization": {"bits": 4, "group_size": 64}}')
    return folder


def tied_without_head(folder: Path) -> Path:
    """What transformers saves of a model whose head is its embedding: there is no tensor of the head."""
    from models import llama

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        llama().save_pretrained(folder)
    return folder


def one_nan(folder: Path) -> Path:
    """Two shards, and in the second a NaN at the 1,234th weight."""
    import json

    from safetensors.torch import save_file

    shards = {"a.weight": "model-1-of-2.safetensors", "b.weight": "model-2-of-2.safetensors"}
    for name, shard in shards.items():
        weights = torch.ones(64, 64)
        if name == "b.weight":
            weights.view(-1)[1234] = float("nan")
        save_file({name: weights}, folder / shard)
    index = {"metadata": {"total_size": 2 * 4 * 64 * 64}, "weight_map": shards}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def weights_alone(folder: Path) -> Path:
    """What `torch.save` makes of weights, and nothing else."""
    torch.save(nn.Linear(4, 4).state_dict(), folder / "model.pt")
    return folder / "model.pt"


def weights_and_optimizer(folder: Path) -> Path:
    """A checkpoint as a training loop writes it."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    torch.save(saved, folder / "model.pt")
    return folder / "model.pt"


def hostile_file(id: str) -> Callable[[Path], Path]:
    """A bad file of the collection that scans are tested with."""
    return partial(_hostile, id)


def _hostile(id: str, folder: Path) -> Path:
    from hostile.cases import CASES

    return next(case for case in CASES if case.id == id).build(folder)
