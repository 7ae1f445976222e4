"""Inputs as the command line describes them: values, structures, files, code, and types that fit."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mlx import nn as mlx_nn
from safetensors.torch import save_file
from torch import nn

import modelglass as mg
from command_line import run
from modelglass.api import parse_specs
from modelglass.api._given import resolved
from modelglass.errors import InspectError, UsageError
from modelglass.frameworks import adapter_for
from modelglass.frameworks.shared.specs import (
    CodeSpec,
    FileSpec,
    SeveralSpec,
    TensorSpec,
    ValueSpec,
    parse_spec,
)
from modelglass.frameworks.torch.inputs.shapes import make_inputs
from modelglass.inputs import call_of
from modelglass.inputs.written import options
from models import Apply

Capture = pytest.CaptureFixture[str]
ECHO = lambda: Apply(lambda self, *args, **kwargs: (args, kwargs))
SPECS = {
    "1x3x224x224": TensorSpec((1, 3, 224, 224)),
    "2×16:int64": TensorSpec((2, 16), "int64"),
    "x=scalar:bf16": TensorSpec((), "bfloat16", "x"),
    "n=5": TensorSpec((5,), None, "n"),
    "n=+5": ValueSpec(5, "n"),
    "n=-5": ValueSpec(-5, "n"),
    "scale=0.5": ValueSpec(0.5, "scale"),
    "scale=1e-3": ValueSpec(1e-3, "scale"),
    "flag=true": ValueSpec(True, "flag"),
    "flag=False": ValueSpec(False, "flag"),
    "mask=none": ValueSpec(None, "mask"),
    "mode=bilinear": ValueSpec("bilinear", "mode"),
    "mode='1x3'": ValueSpec("1x3", "mode"),
    '"a=b"': ValueSpec("a=b"),
    "f=[1x2,1x3:int64]": SeveralSpec((TensorSpec((1, 2)), TensorSpec((1, 3), "int64")), True, "f"),
    "(1x2, 0.5)": SeveralSpec((TensorSpec((1, 2)), ValueSpec(0.5)), False),
    "f=[(1x2,2),'a,b']": SeveralSpec(
        (SeveralSpec((TensorSpec((1, 2)), TensorSpec((2,))), False), ValueSpec("a,b")), True, "f"
    ),
    "f=[]": SeveralSpec((), True, "f"),
    r"x=C:\photos\A.PNG": FileSpec(r"C:\photos\A.PNG", "x"),
    "a=b/c.npy": FileSpec("b/c.npy", "a"),
    r"x=@C:\net.py::make": CodeSpec(r"C:\net.py::make", "x"),
    "@package.module:make": CodeSpec("package.module:make"),
}


@pytest.mark.parametrize("text", SPECS)
def test_descriptions(text: str) -> None:
    assert parse_spec(text) == SPECS[text]


@pytest.mark.parametrize(
    "text",
    ["", "2x3y", "2x3:", "x=", "x=2x16:", "@", "x=[1x2", "x=(1x2]", "bilinear", "x='a", "1x-3", "[2x]"],
)
def test_what_describes_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="does not describe an input"):
        parse_spec(text)


def inputs_of(model: nn.Module, *texts: str, **options: Any) -> dict[str, Any]:
    """By the name of each input, its shape and type, or its value."""
    report = mg.inspect(model, inputs=parse_specs(texts), **options)
    assert report.run.failure is None
    return {each.name: each.text or (each.shape, each.dtype) for each in report.run.inputs}


def made(model: nn.Module, *texts: str) -> mg.Inputs:
    """What the model is called with."""
    adapter = adapter_for(model)
    assert adapter is not None
    with ExitStack() as stack:
        specs = resolved(parse_specs(texts), model, adapter, stack)
    return make_inputs(model, specs, None, fake=False)


def test_values_and_structures_reach_the_model() -> None:
    texts = ("1x2", "scale=0.5", "flag=true", "mode=sum", "feats=[1x4,(2x2,none)]", "steps=+3")
    inputs = made(ECHO(), *texts)
    given = dict(inputs.kwargs)
    feats = given.pop("feats")
    assert [tuple(each.shape) for each in inputs.args] == [(1, 2)]
    assert given == {"scale": 0.5, "flag": True, "mode": "sum", "steps": 3}
    assert type(feats) is list
    assert type(feats[1]) is tuple
    assert (tuple(feats[0].shape), tuple(feats[1][0].shape), feats[1][1]) == ((1, 4), (2, 2), None)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 4)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, steps: int = 2) -> torch.Tensor:
        found = self.embed(ids).masked_fill(mask[..., None], 0.0)
        for _ in range(steps):
            found = found + 1
        return found


CODE = "import torch\nfrom torch import nn\n" + "\n".join(
    (
        "class Masked(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.embed = nn.Embedding(9, 4)",
        "    def forward(self, ids, mask, steps=2):",
        "        found = self.embed(ids).masked_fill(mask[..., None], 0.0)",
        "        for _ in range(steps): found = found + 1",
        "        return found",
        "def mask(): return torch.zeros(2, 7, dtype=torch.bool)",
    )
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_mask_without_a_type_takes_the_one_that_the_model_needs(folder: Path, capsys: Capture) -> None:
    code, out, _ = run("net.py::Masked", "--input", "ids=2x7", "--input", "mask=2x7", capsys=capsys)
    assert code == 0
    assert "ids: 2x7 int64, mask: 2x7 bool" in out
    assert "found by trying: mask is bool" in " ".join(out.split())


def test_where_no_type_helps_the_run_shows_what_is_wrong(folder: Path, capsys: Capture) -> None:
    code, out, err = run("net.py::Masked", "--input", "ids=2x7", "--input", "mask=2x9", capsys=capsys)
    assert code == 3
    assert "9" in out + err
    assert "types-found" not in out


def test_a_whole_number_is_a_number_where_the_model_takes_one(folder: Path, capsys: Capture) -> None:
    given = ("--input", "ids=2x7", "--input", "mask=2x7:bool", "--input", "steps=3")
    code, out, _ = run("net.py::Masked", *given, capsys=capsys)
    assert (code, "steps: 3" in out) == (0, True)


def test_code_makes_one_input_and_the_rest_is_found(folder: Path, capsys: Capture) -> None:
    code, out, _ = run("net.py::Masked", "--input", "mask=@net.py::mask", capsys=capsys)
    assert code == 0
    assert "mask: 2x7 bool" in out
    assert "inputs found by trying" in " ".join(out.split())


BATCH = {"ids": torch.arange(14).reshape(2, 7) % 9, "mask": torch.zeros(2, 7, dtype=torch.bool)}


@pytest.mark.parametrize("name", ["batch.pt", "batch.safetensors", "batch.npz"])
def test_a_file_gives_every_input_by_its_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name.endswith(".pt"):
        torch.save(BATCH, path)
    elif name.endswith(".npz"):
        np.savez(path, **{key: value.numpy() for key, value in BATCH.items()})  # type: ignore[arg-type]
    else:
        save_file(BATCH, path)
    model = Masked()
    assert inputs_of(model, str(path)) == {"ids": ((2, 7), "int64"), "mask": ((2, 7), "bool")}
    assert inputs_of(model, f"ids={path}", "mask=2x7:bool")["ids"] == ((2, 7), "int64")
    with pytest.raises(UsageError, match="none is called 'other'"):
        inputs_of(model, f"other={path}")
    with pytest.raises(UsageError, match="'ids' is given twice"):
        inputs_of(model, str(path), "ids=2x7")


@pytest.mark.parametrize(
    "dtype",
    [getattr(torch, name) for name in "float32 bfloat16 float16 float64 int64 bool uint8 complex64".split()],
    ids=str,
)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_values_of_files_are_those_of_torch(dtype: torch.dtype, suffix: str, tmp_path: Path) -> None:
    wanted = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(dtype)
    path = tmp_path / f"x{suffix}"
    torch.save(wanted, path) if suffix == ".pt" else save_file({"x": wanted}, path)
    (found,) = made(ECHO(), str(path)).args
    assert found.dtype == dtype
    assert torch.equal(found, wanted)


def test_a_list_in_a_file_is_given_in_its_order(tmp_path: Path) -> None:
    torch.save([torch.zeros(1, 3), torch.zeros(2)], tmp_path / "list.pt")
    assert inputs_of(ECHO(), str(tmp_path / "list.pt")) == {
        "0": ((1, 3), "float32"),
        "1": ((2,), "float32"),
    }


def test_nothing_in_a_file_is_run(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    path.write_bytes(b"\x80\x02cos\nsystem\nX\x0c\x00\x00\x00touch ranhereq\x00\x85R.")
    with pytest.raises(InspectError):
        inputs_of(ECHO(), str(path))
    assert not Path("ranhere").exists()


def test_a_picture_is_numbers_from_0_to_1_in_the_type_of_the_weights(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)
    image.fromarray(pixels).save(tmp_path / "photo.png")
    (found,) = made(nn.Conv2d(3, 2, 2).bfloat16(), str(tmp_path / "photo.png")).args
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, (torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255).bfloat16())


def test_a_picture_for_mlx_has_its_channels_last(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(tmp_path / "photo.png")
    report = mg.inspect(mlx_nn.Conv2d(3, 2, 2), inputs=parse_specs([str(tmp_path / "photo.png")]))
    assert report.run.inputs[0].shape == (1, 4, 5, 3)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32", "bool"])
def test_files_are_read_for_mlx(name: str, tmp_path: Path) -> None:
    save_file({"x": torch.ones(1, 3).to(getattr(torch, name))}, tmp_path / "x.safetensors")
    report = mg.inspect(mlx_nn.Identity(), inputs=parse_specs([str(tmp_path / "x.safetensors")]))
    assert (report.run.inputs[0].shape, report.run.inputs[0].dtype) == ((1, 3), name)


def test_a_picture_that_is_none_says_so(tmp_path: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"no")
    with pytest.raises(InspectError, match="not a picture"):
        inputs_of(ECHO(), str(tmp_path / "photo.png"))


def test_without_pillow_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    with pytest.raises(InspectError, match="pip install pillow"):
        inputs_of(ECHO(), str(tmp_path / "photo.png"))


def test_what_is_found_is_written_so_that_it_can_be_given() -> None:
    inputs = mg.Inputs(
        kwargs={
            "x": torch.zeros(1, 3),
            "feats": [torch.zeros(1, 2), (torch.zeros(2, dtype=torch.int64),)],
            "scale": 0.5,
            "steps": 3,
            "mode": "a b",
            "flag": True,
            "mask": None,
        }
    )
    call = call_of((), inputs.kwargs, [])
    lines = list(options(call, "float32"))
    assert lines[:2] == ["--input x=1x3", '--input "feats=[1x2,(2:int64)]"']
    given = made(ECHO(), *(shlex.split(line)[1] for line in lines)).kwargs
    assert list(options(call_of((), given, []), "float32")) == lines
