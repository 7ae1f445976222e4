"""What torch calls private stands in one file, and a torch without one of these names is still observed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import modelglass as mg
from modelglass.frameworks.torch import privates

SOURCE = Path(mg.__file__).parent
USERS = [
    path
    for folder in ("frameworks/torch", "frameworks/vllm", "configs")
    for path in sorted((SOURCE / folder).rglob("*.py"))
    if path.name != "privates.py"
]
# Private attributes of what belongs to others: vLLM, transformers, OmegaConf, Python.
OF_OTHERS = {
    "vllm": {"_run_in_subprocess", "_infer_meta", "_enum", "_node_count"},
    "transformers": {"_from_config", "_attn_implementation", "_supports_sdpa"},
    "omegaconf": {"_resolvers"},
    "python": {"_replace", "_fields", "_getframe", "_exit"},
}


def private_imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == "torch" and any(part.startswith("_") and part[:2] != "__" for part in rest):
                yield name


def private_attributes(tree: ast.AST) -> Iterator[str]:
    """Those of other objects than our own, operators by name left out: `torch.ops.aten._x` is public."""
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "cls")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            holder = ast.unparse(node.value)
            if holder not in ("self", "cls", "_aten", "torch.ops.aten") and node.attr not in own:
                yield node.attr


@pytest.mark.parametrize("path", USERS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_private_names_of_torch_stand_in_one_file(path: Path) -> None:
    tree = ast.parse(path.read_text())
    operators = ("torch.ops.aten._",)  # an operator's name is what it is
    assert [name for name in private_imports(tree) if not name.startswith(operators)] == []
    assert set(private_attributes(tree)) <= set(privates.ATTRIBUTES).union(*OF_OTHERS.values())


def test_this_torch_has_all_of_them() -> None:
    assert privates.missing == {}


# A process per name would take minutes: one that has loaded torch makes a copy of itself for each.
WITHOUT = """
import os, sys, traceback
import torch, torch._dispatch.python, torch._subclasses.schema_check_mode, torch.utils._device
from torch._subclasses.fake_tensor import FakeTensorMode
import modelglass as mg, modelglass.api._inspect, modelglass.analyses.analyse
FakeTensorMode()  # loads much of torch
names = sys.argv[1].split()

def report_of():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    return mg.inspect(model, torch.zeros(3, 8), train=True)

for name in names:
    if os.fork():
        os.wait()
        continue
    holder, _, last = name.rpartition(".")
    try:
        held = sys.modules.get(holder) or eval(holder)
        value = getattr(held, last)
        delattr(held, last)
        loaded = sys.modules.pop(name, None)
        if loaded is not None:
            sys.modules[name] = None
        try:
            import modelglass.frameworks.torch.session
        finally:
            setattr(held, last, value)
            if loaded is not None:
                sys.modules[name] = loaded
        report = report_of()
        lost = [place for note in report.notes if note.code == "torch-internals" for place in note.where]
        print(name, report.cost.macs, *lost, flush=True)
    except BaseException:
        traceback.print_exc()
    os._exit(0)
"""


def test_a_torch_that_lacks_one_of_them_costs_a_note() -> None:
    names = sorted(privates.everything)
    done = subprocess.run([sys.executable, "-c", WITHOUT, " ".join(names)], capture_output=True, text=True)
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert set(lines) == set(names), done.stderr
    for name, (macs, *lost) in lines.items():
        assert int(macs) == 672, name
        assert name in lost


@pytest.mark.parametrize(
    ("version", "codes"), [((2, 6), []), (privates.NEWEST, []), ((2, 99), ["untried-torch"])]
)
def test_a_newer_torch_is_a_note(
    version: tuple[int, int], codes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(privates, "VERSION", version)
    notes = mg.inspect(torch.nn.Linear(2, 2)).notes
    assert [note.code for note in notes if note.code.endswith("-torch")] == codes


def test_an_older_torch_is_an_error() -> None:
    code = (
        "import torch; torch.__version__ = '2.5.1'; import modelglass as mg\n"
        "try: mg.inspect(torch.nn.Linear(2, 2))\n"
        "except mg.InspectError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch 2.5.1 is older" in done.stdout
    assert "torch>=2.6" in done.stdout
