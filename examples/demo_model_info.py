"""Four uses of `dump_model_info`: look at a model, compare two, see what is frozen, judge an init.

    python examples/demo_model_info.py

The pictures go to a temporary folder.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

from modelglass import ModelInfo, dump_model_info


class SmallTransformer(nn.Module):
    """Tokens in, a vector out; only its weights matter here."""

    def __init__(self, width: int, layers: int, vocabulary: int = 1000) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.encoder = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)


def heading(text: str) -> None:
    print(f"\n{'=' * 100}\n{text}\n{'=' * 100}")


def inspection(folder: Path) -> None:
    heading("1. What is in this model?")
    model = nn.Sequential(nn.Linear(256, 512), nn.LayerNorm(512), nn.GELU(), nn.Linear(512, 256))
    info = dump_model_info(model, save_path=str(folder / "inspection.png"))
    largest = max(info.layers, key=lambda layer: layer.num_params)
    print(f"The largest tensor is {largest.name} with {largest.num_params:,} parameters.")


def two_models(logger: logging.Logger) -> None:
    heading("2. Two models side by side, through a logger")
    small = dump_model_info(SmallTransformer(64, 1), logger=logger, plot_distributions=False)
    large = dump_model_info(SmallTransformer(128, 2), logger=logger, plot_distributions=False)
    print(f"\nSmall: {small.total_params:,} parameters, {small.total_memory_mb:.2f} MB")
    print(f"Large: {large.total_params:,} parameters, {large.total_memory_mb:.2f} MB")
    print(f"Ratio: {large.total_params / small.total_params:.2f}x")


def frozen_layers() -> None:
    heading("3. Which layers are frozen?")
    model = nn.Sequential(nn.Linear(128, 256), nn.Linear(256, 128), nn.Linear(128, 64))
    model[1].requires_grad_(False)
    info = dump_model_info(model, plot_distributions=False)
    print(f"Trainable: {info.trainable_params:,} ({info.trainable_params / info.total_params:.1%})")
    print(f"Frozen:    {info.non_trainable_params:,}")


def initialisation(folder: Path) -> None:
    heading("4. Weights before and after another initialisation")
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    before = dump_model_info(model, save_path=str(folder / "before.png"))
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    after = dump_model_info(model, save_path=str(folder / "after.png"))
    compare(before, after)


def compare(before: ModelInfo, after: ModelInfo) -> None:
    later = {layer.name: layer for layer in after.layers}
    print(f"{'tensor':<12} {'std before':>12} {'std after':>12}")
    for layer in before.layers:
        print(f"{layer.name:<12} {layer.std:>12.6f} {later[layer.name].std:>12.6f}")


def main() -> None:
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp(prefix="modelglass-demo-"))
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(name)s | %(message)s")
    inspection(folder)
    two_models(logging.getLogger("demo"))
    frozen_layers()
    initialisation(folder)
    print(f"\nPictures: {folder}")


if __name__ == "__main__":
    main()
