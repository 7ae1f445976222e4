"""The same small network gives the same facts from each format, save those that a format cannot know."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import onnx
import onnx.numpy_helper
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import modelglass as mg
from modelglass.report import Report


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
SORTED = {"safetensors", "safetensors shards", "torch-export"}  # whose order is not that of the model
TYPED = {"whole-module": "Small", "torchscript": "Small"}


@pytest.fixture(params=FORMATS, scope="module")
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("formats")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return request.param, FORMATS[request.param](folder)


@pytest.fixture(scope="module")
def report(saved: tuple[str, Path]) -> Report:
    return mg.inspect(saved[1], stats=True)


def test_the_format_has_its_name(saved: tuple[str, Path], report: Report) -> None:
    assert report.model.source == ("torch" if saved[0] == "whole-module" else saved[0])


def test_names_shapes_and_types(saved: tuple[str, Path], report: Report) -> None:
    found = [(tensor.name, tensor.shape, tensor.dtype) for tensor in report.model.tensors]
    expected = [
        (name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in state().items()
    ]
    if saved[0] == "gguf":  # it has no scalars
        expected = [(name, shape or (1,), dtype) for name, shape, dtype in expected]
    if saved[0] in SORTED:
        found, expected = sorted(found), sorted(expected)
    assert found == expected


def test_parameters_and_buffers(saved: tuple[str, Path], report: Report) -> None:
    counts = report.counts
    assert counts is not None
    native = network()
    assert counts.params == sum(p.numel() for p in native.parameters())
    assert counts.buffers == sum(b.numel() for b in native.buffers())
    assert counts.nbytes == sum(tensor.nbytes for tensor in state().values())
    kinds = {tensor.name: tensor.kind for tensor in report.model.tensors}
    parameters = dict(native.named_parameters())
    assert kinds == {name: "parameter" if name in parameters else "buffer" for name in kinds}


def test_the_tree(saved: tuple[str, Path], report: Report) -> None:
    found = {module.path: set(module.tensors) for module in report.model.modules}
    assert found == {
        path: {
            f"{path}.{name}" if path else name
            for held in (module._parameters, module._buffers)
            for name in held
        }
        for path, module in network().named_modules()
    }
    assert report.model.modules[0].type == TYPED.get(saved[0], "")


def test_values(saved: tuple[str, Path], report: Report) -> None:
    assert report.stats is not None
    if saved[0] == "torch-distributed":
        pytest.skip("the pieces of distributed checkpoints are not read")
    for name, array in arrays().items():
        stats = report.stats[name]
        assert stats is not None, name
        assert (stats.min, stats.max, stats.count) == (array.min(), array.max(), array.size)


def test_round_trip(report: Report, tmp_path: Path) -> None:
    mg.save(report, tmp_path / "r.json")
    assert mg.load(tmp_path / "r.json") == report


@pytest.mark.parametrize("width", [40, 80, 200])
def test_every_line_fits(report: Report, width: int) -> None:
    text = mg.render(report, width=width)
    tables = text.partition("\ninfo [")[0]  # paths in notes are not broken
    assert max(len(line) for line in tables.splitlines()) <= width
    assert "\n\n\n" not in text
