"""The same small network gives the same facts from each format, save those that a format cannot know."""

from __future__ import annotations

from pathlib import Path

import pytest

import modelglass as mg
from formats_of_small import FORMATS, arrays, network, state, write
from modelglass.report import Report

SORTED = {"safetensors", "safetensors shards", "torch-export"}  # whose order is not that of the model
TYPED = {"whole-module": "Small", "torchscript": "Small"}


@pytest.fixture(params=FORMATS, scope="module")
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp("formats")
    return request.param, write(request.param, folder)


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
