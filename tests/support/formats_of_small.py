"""One small network, written in each format that files of models come in."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import onnx
import onnx.numpy_helper
import torch
from safetensors.torch import save_file
from torch import nn


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.body = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.body(self.embed(tokens))


def network() -> Small:
    torch.manual_seed(0)
    return Small().eval()


def state() -> dict[str, torch.Tensor]:
    return network().state_dict()


def arrays() -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {name: tensor.numpy() for name, tensor in state().items()}


def torch_zip(folder: Path) -> Path:
    torch.save(state(), folder / "m.pt")
    return folder / "m.pt"


def torch_legacy(folder: Path) -> Path:
    torch.save(state(), folder / "m.pt", _use_new_zipfile_serialization=False)
    return folder / "m.pt"


def whole_module(folder: Path) -> Path:
    torch.save(network(), folder / "m.pt")
    return folder / "m.pt"


def safetensors(folder: Path) -> Path:
    save_file(state(), folder / "m.safetensors")
    return folder / "m.safetensors"


def shards(folder: Path) -> Path:
    names = list(state())
    where = {}
    for number, part in enumerate((names[:4], names[4:]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: state()[name] for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    total = sum(tensor.nbytes for tensor in state().values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def npz(folder: Path) -> Path:
    np.savez(folder / "m.npz", **arrays())  # type: ignore[arg-type]
    return folder / "m.npz"


def gguf_file(folder: Path) -> Path:
    writer = gguf.GGUFWriter(folder / "m.gguf", "small")
    for name, array in arrays().items():
        writer.add_tensor(name, array if array.ndim else array.reshape(1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "m.gguf"


def onnx_file(folder: Path) -> Path:
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in arrays().items()]
    graph = onnx.helper.make_graph([], "small", [], [], weights)
    onnx.save(onnx.helper.make_model(graph), folder / "m.onnx")
    return folder / "m.onnx"


def exported(folder: Path) -> Path:
    program = torch.export.export(network(), (torch.zeros(5, dtype=torch.int64),))
    torch.export.save(program, folder / "m.pt2")
    return folder / "m.pt2"


def scripted(folder: Path) -> Path:
    torch.jit.save(torch.jit.script(network()), folder / "m.pt")
    return folder / "m.pt"


def distributed(folder: Path) -> Path:
    import torch.distributed.checkpoint as dcp

    dcp.save(state(), checkpoint_id=folder / "d")
    return folder / "d"


FORMATS: dict[str, Callable[[Path], Path]] = {
    "torch": torch_zip,
    "torch-legacy": torch_legacy,
    "whole-module": whole_module,
    "safetensors": safetensors,
    "safetensors shards": shards,
    "npz": npz,
    "gguf": gguf_file,
    "onnx": onnx_file,
    "torch-export": exported,
    "torchscript": scripted,
    "torch-distributed": distributed,
}


def write(name: str, folder: Path) -> Path:
    """The network in that format."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FORMATS[name](folder)
