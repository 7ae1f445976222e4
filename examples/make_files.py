"""Write the checkpoints that the documents look at, into examples/files/.

python examples/make_files.py
modelglass examples/files/training.pt
modelglass examples/files/mixtral
modelglass scan examples/files/suspicious.pt
"""

from __future__ import annotations

import argparse
import json
import struct
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

import torch
from torch import nn

FOLDER = Path(__file__).parent / "files"
STAMP = (2024, 1, 1, 0, 0, 0)


def training() -> None:
    """A checkpoint as a training loop leaves it: model, optimizer, scheduler, progress, settings."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.001)
    net(torch.randn(8, 16)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    content = {
        "model_state_dict": {f"module.{name}": tensor for name, tensor in net.state_dict().items()},
        "optimizer_state_dict": optimizer.state_dict(),
        "scheduler_state_dict": scheduler.state_dict(),
        "epoch": 12,
        "best_loss": 0.0625,
        "args": argparse.Namespace(lr=0.001, batch_size=8, dataset="toy"),
        "input_mean": torch.tensor([0.5, 0.25, 0.125]),
    }
    torch.save(content, FOLDER / "training.pt")


def mixtral() -> None:
    """A folder as models are published: a configuration, and weights in safetensors. All weights are zero."""
    config = {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 4096,
        "torch_dtype": "bfloat16",
    }
    folder = FOLDER / "mixtral"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in _mixtral_tensors():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + 2 * prod(shape)]}
        at += 2 * prod(shape)
    text = json.dumps(header, separators=(",", ":")).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))


def _mixtral_tensors() -> Iterator[tuple[str, list[int]]]:
    yield "model.embed_tokens.weight", [1000, 64]
    for layer in range(2):
        at = f"model.layers.{layer}"
        for name, rows in (("q_proj", 64), ("k_proj", 32), ("v_proj", 32)):
            yield f"{at}.self_attn.{name}.weight", [rows, 64]
        yield f"{at}.self_attn.o_proj.weight", [64, 64]
        yield f"{at}.block_sparse_moe.gate.weight", [4, 64]
        for expert in range(4):
            inside = f"{at}.block_sparse_moe.experts.{expert}"
            yield f"{inside}.w1.weight", [128, 64]
            yield f"{inside}.w2.weight", [64, 128]
            yield f"{inside}.w3.weight", [128, 64]
        yield f"{at}.input_layernorm.weight", [64]
        yield f"{at}.post_attention_layernorm.weight", [64]
    yield "model.norm.weight", [64]
    yield "lm_head.weight", [1000, 64]


def suspicious() -> None:
    """A file that would greet whoever loads it with pickle, through a shell."""
    call = b"\x80\x02cos\nsystem\nX\x0a\x00\x00\x00echo hello\x85R."
    with zipfile.ZipFile(FOLDER / "suspicious.pt", "w") as archive:
        for name, data in (("data.pkl", call), ("byteorder", b"little"), ("version", b"3\n")):
            archive.writestr(zipfile.ZipInfo(f"suspicious/{name}", STAMP), data)


def make() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    training()
    mixtral()
    suspicious()


if __name__ == "__main__":
    make()
