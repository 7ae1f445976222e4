"""Folders: which of the files in one are the model."""

from __future__ import annotations

import os
from pathlib import Path

from modelglass.errors import NotAModelError
from modelglass.formats import read_file
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile
from modelglass.formats.torch import distributed

# The likeliest first: files that models are published in are preferred to those that training leaves.
_INDEXES = (".safetensors.index.json", ".bin.index.json", ".index.json")
_WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".pt2", ".npz")
_TRAINING = (
    "training_args.bin",
    "optimizer.pt",
    "optimizer.bin",
    "scheduler.pt",
    "scaler.pt",
    "rng_state.pth",
)
MOST_FILES = 100_000


def read(folder: Path, reading: Reading) -> None:
    """Fill the reading from the model in a folder."""
    names = _names(folder)
    if distributed.METADATA in names:
        source = OpenFile(folder / distributed.METADATA)
        reading.opened.append(source)
        distributed.read(source, reading)
        source.check_unchanged()
        return
    source = OpenFile(folder / _chosen(folder, names))
    reading.opened.append(source)
    read_file(source, reading)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for _, entry in zip(range(MOST_FILES), entries, strict=False))
    except OSError as cause:
        raise NotAModelError(
            f"the folder cannot be read: {cause.strerror}", file=str(folder), code="cannot-open"
        ) from cause
    return names


def _chosen(folder: Path, names: list[str]) -> str:
    """The file that is the model; an index goes before its shards."""
    for suffix in _INDEXES:
        for name in names:
            if name.endswith(suffix):
                return name
    for suffix in _WEIGHTS:
        found = [name for name in names if name.endswith(suffix) and name not in _TRAINING]
        if len(found) == 1 or f"model{suffix}" in found:
            return f"model{suffix}" if f"model{suffix}" in found else found[0]
        if found:
            listed = ", ".join(repr(name) for name in found[:5])
            raise NotAModelError(
                f"{len(found)} files here may be the model, and no index says which: {listed}",
                file=str(folder),
                code="several-models",
                hint=f"pass one of them: {folder / found[0]}",
            )
    raise NotAModelError(
        "no model is in this folder",
        file=str(folder),
        code="not-a-model",
        hint="pass the file with the weights",
    )
