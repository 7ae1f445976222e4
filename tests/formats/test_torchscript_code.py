"""What the code of a TorchScript archive does when it is loaded is found; ordinary archives stay quiet."""

from __future__ import annotations

import pickle
import time
import warnings
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch import nn

import modelglass as mg
from genuine import network

CLASS = """class Net(Module):
  __parameters__ = []
  training : bool
  def forward(self: __torch__.Net, x: Tensor) -> Tensor:
    return {forward}
  def {method}(self: __torch__.Net, state: Tuple[Tensor, bool]) -> NoneType:
    self.training = (state)[1]
    {body}
    return None
  def helper(self: __torch__.Net, x: Tensor) -> NoneType:
    return {helper}
"""


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with ZipFile(path, "w") as written:
        for name, data in {**members, "version": b"3\n", "constants.pkl": b"\x80\x02)."}.items():
            written.writestr(f"net/{name}", data)
    return path


def found(folder: Path, code: str, *, member: str = "code/__torch__.py") -> dict[str, str]:
    """The levels of what is found in an archive with that code, by their codes."""
    data = b"\x80\x02c__torch__\nNet\n)\x81}b."
    path = archive(folder / "net.pt", {"data.pkl": data, member: code.encode()})
    return {finding.code: finding.level for finding in mg.scan(path).findings}


def net(*, forward: str = "x", method: str = "__setstate__", body: str = "pass", helper: str = "None") -> str:
    return CLASS.format(forward=forward, method=method, body=body, helper=helper)


@pytest.mark.parametrize(
    "call",
    [
        'torch.save(x, "f")', 'ops.aten.save(x, "f")', 'torch . save(x, "f")', 'torch.\\\n save(x, "f")',
        'torch.autograd.save(x, "f")', 'torch.from_file("f", True, 4)', "ops.mine.run(x)", "^Evil(1)(x)",
        'getattr(torch, "sa\\x76e")(x, "f")', 'getattr( ops.aten, "save")(x)', "ops.prim.rpc_sync(x)",
        "ops.c10d.send(x)", 'x = """a"b"""; torch.save(x, "f")', "x = '\\''; torch.save(x, 'f')",
    ],
)  # fmt: skip
def test_code_that_reaches_further_at_load_is_high(call: str, tmp_path: Path) -> None:
    assert found(tmp_path, net(body=call))["code.setstate"] == "high"
    assert found(tmp_path, net(body="_0 = (self).helper(x)", helper=call))["code.setstate"] == "high"
    assert "code.setstate" not in found(tmp_path, net(forward=call, method="other"))


def test_code_that_reaches_further_when_it_runs_is_a_notice(tmp_path: Path) -> None:
    assert found(tmp_path, net(forward='torch.save(x, "f")', method="other"))["code.effects"] == "notice"


def test_code_of_ones_own_at_load_is_a_notice_and_torchs_is_not(tmp_path: Path) -> None:
    packed = net(body="self.w = ops.quantized.linear_prepack((state)[0], None)")
    assert found(tmp_path, packed)["code.setstate"] == "notice"
    assert "code.setstate" not in found(tmp_path, packed, member="code/__torch__/torch/ao/nn/quantized/x.py")


@pytest.mark.parametrize("text", ['"torch.save"', "# torch.save(x)", "self.save(x)", '"""torch.save(x)"""'])
def test_words_in_texts_and_comments_are_none_of_the_code(text: str, tmp_path: Path) -> None:
    assert found(tmp_path, net(body=text))["code.setstate"] == "notice"


def test_bytecode_for_phones_is_read_too(tmp_path: Path) -> None:
    code = pickle.dumps((7, ("__torch__.Net.__setstate__", (("operators", (("aten::save", ""),)),))), 2)
    path = archive(tmp_path / "net.pt", {"data.pkl": b"\x80\x02N.", "bytecode.pkl": code})
    assert ("code.setstate", "high") in {(finding.code, finding.level) for finding in mg.scan(path).findings}


@pytest.mark.parametrize("text", ['"\\' * 500_000, '"""\\"' * 300_000, "a . " * 400_000, ") . " * 400_000])
def test_odd_code_takes_no_time(text: str, tmp_path: Path) -> None:
    start = time.process_time()
    found(tmp_path, text)
    assert time.process_time() - start < 5


class Saving(nn.Module):
    """Its method would write a file when it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w

    @torch.jit.export
    def __getstate__(self) -> tuple[torch.Tensor, bool]:
        return (self.w, self.training)

    @torch.jit.export
    def __setstate__(self, state: tuple[torch.Tensor, bool]) -> None:
        self.w = state[0]
        torch.save(self.w, "marker")


@pytest.mark.filterwarnings("ignore")
def test_real_archives(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(Saving()), tmp_path / "saving.pt")
        quantized = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear})
        lstm = torch.ao.quantization.quantize_dynamic(nn.LSTM(4, 3), {nn.LSTM})
        for name, model in (("plain", network()), ("quantized", quantized), ("lstm", lstm)):
            torch.jit.save(torch.jit.script(model), tmp_path / f"{name}.pt")
            assert mg.scan(tmp_path / f"{name}.pt").exit_code() == 0, name
    scan = mg.scan(tmp_path / "saving.pt")
    assert scan.exit_code("high") == 1
    assert not (tmp_path / "marker").exists()
