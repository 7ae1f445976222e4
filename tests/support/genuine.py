"""What people save with torch, of every kind: readers must take all of it without a complaint."""

from __future__ import annotations

import argparse
import collections
import datetime
import pathlib
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.complex32, torch.uint16,
    torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]  # fmt: skip
if hasattr(torch, "float8_e8m0fnu"):  # since torch 2.7
    DTYPES.append(torch.float8_e8m0fnu)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def every_dtype() -> dict[str, torch.Tensor]:
    return {str(dtype): torch.zeros(2, 3, dtype=torch.uint8).view(torch.uint8).to(torch.float32).to(dtype)
            if dtype.is_floating_point and dtype.itemsize == 1
            else torch.zeros(2, 3, dtype=dtype) for dtype in DTYPES}  # fmt: skip


def tied() -> dict[str, torch.Tensor]:
    weight = torch.randn(5, 4)
    return {"embed.weight": weight, "head.weight": weight}


def views() -> dict[str, torch.Tensor]:
    whole = torch.randn(6, 4)
    return {"whole": whole, "row": whole[2], "columns": whole[:, 1:3], "transposed": whole.t()}


def apart() -> dict[str, torch.Tensor]:
    flat = torch.randn(24)
    return {"first": flat[:12].view(3, 4), "second": flat[12:].view(4, 3)}


def trained(optimizer: Callable[..., torch.optim.Optimizer]) -> dict[str, Any]:
    net = network()
    made = optimizer(net.parameters(), lr=0.1)
    net(torch.randn(5, 4)).sum().backward()
    made.step()
    scheduler = torch.optim.lr_scheduler.StepLR(made, 3)
    return {
        "model": net.state_dict(),
        "optimizer": made.state_dict(),
        "scheduler": scheduler.state_dict(),
        "epoch": 3,
        "best_loss": 0.25,
    }


def lightning() -> dict[str, Any]:
    content = trained(torch.optim.AdamW)
    return {
        "epoch": 3,
        "global_step": 120,
        "pytorch-lightning_version": "2.2.0",
        "state_dict": collections.OrderedDict((f"net.{k}", v) for k, v in content["model"].items()),
        "loops": {"fit_loop": {"state_dict": {}}},
        "callbacks": {"ModelCheckpoint{'monitor': None}": {"best_model_score": torch.tensor(0.5)}},
        "optimizer_states": [content["optimizer"]],
        "lr_schedulers": [content["scheduler"]],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 0.1, "layers": [4, 3, 2]},
    }


def sparse() -> dict[str, torch.Tensor]:
    dense = torch.eye(4)
    return {"coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc()}


def quantized() -> dict[str, torch.Tensor]:
    values = torch.randn(4, 3)
    scales, zeros = torch.rand(4) + 0.1, torch.zeros(4, dtype=torch.int64)
    return {
        "tensor": torch.quantize_per_tensor(values, 0.1, 0, torch.qint8),
        "channel": torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8),
        "unsigned": torch.quantize_per_tensor(values, 0.1, 10, torch.quint8),
        "wide": torch.quantize_per_tensor(values, 0.1, 0, torch.qint32),
    }


def plain_data() -> dict[str, Any]:
    return {
        "state_dict": network().state_dict(),
        "namespace": argparse.Namespace(lr=0.1, name="x", inner=argparse.Namespace(a=1)),
        "path": pathlib.PurePosixPath("runs/1"),
        "when": datetime.datetime(2024, 5, 6, 7, 8),
        "id": uuid.UUID(int=5),
        "counter": collections.Counter("aab"),
        "default": collections.defaultdict(int, a=1),
        "queue": collections.deque([1, 2]),
        "scalar": np.float64(1.5),
        "integer": np.int64(3),
        "array": np.arange(6.0).reshape(2, 3),
        "set": {1, 2},
        "bytes": b"abc",
        "complex": 1j,
        "large": 1 << 100,
        "text": "é\U0001f600",
        "device": torch.device("cpu"),
        "size": torch.Size([1, 2]),
        "dtype": torch.float16,
    }


def parameters() -> dict[str, Any]:
    frozen = nn.Parameter(torch.randn(3), requires_grad=False)
    return {"weight": nn.Parameter(torch.randn(2, 3)), "frozen": frozen, "buffer": nn.Buffer(torch.ones(2))}


def odd_shapes() -> dict[str, torch.Tensor]:
    return {
        "scalar": torch.tensor(1.0),
        "empty": torch.zeros(0, 3),
        "deep": torch.zeros(1, 2, 1, 2, 1),
        "expanded": torch.zeros(1).expand(5, 3),
        "stepped": torch.arange(20.0)[::3],
        "permuted": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "meta": torch.zeros(3, 2, device="meta"),
        "conjugate": torch.zeros(2, dtype=torch.complex64).conj().resolve_conj(),
    }


def wrapped(prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": tensor for name, tensor in network().state_dict().items()}


CONTENTS: dict[str, Callable[[], Any]] = {
    "state-dict": lambda: network().state_dict(),
    "every-dtype": every_dtype,
    "tied": tied,
    "views": views,
    "apart": apart,
    "adam": lambda: trained(torch.optim.Adam),
    "sgd": lambda: trained(lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)),
    "rmsprop": lambda: trained(torch.optim.RMSprop),
    "adagrad": lambda: trained(torch.optim.Adagrad),
    "optimizer-alone": lambda: trained(torch.optim.Adam)["optimizer"],
    "lightning": lightning,
    "sparse": sparse,
    "quantized": quantized,
    "plain-data": plain_data,
    "parameters": parameters,
    "odd-shapes": odd_shapes,
    "module": network,
    "embedding-bag": lambda: nn.EmbeddingBag(10, 3),
    "transformer": lambda: nn.TransformerEncoderLayer(8, 2, 16).state_dict(),
    "lstm": lambda: nn.LSTM(3, 4, 2).state_dict(),
    "parallel": lambda: wrapped("module."),
    "compiled": lambda: wrapped("_orig_mod."),
    "compiled-parallel": lambda: {"model_state_dict": wrapped("_orig_mod.module."), "step": 4},
    "nested-dicts": lambda: {"encoder": network().state_dict(), "decoder": {"a": {"b": torch.ones(2)}}},
    "list": lambda: [torch.ones(2), torch.ones(3)],
    "tensor": lambda: torch.randn(3, 4),
    "empty": dict,
    "many": lambda: {f"layers.{i}.{n}": torch.zeros(i % 7 + 1, 2) for i in range(300) for n in ("w", "b")},
}


def nested() -> dict[str, torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"nested": torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])}
