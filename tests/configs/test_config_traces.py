"""Loading a configuration creates nothing and changes nothing."""

from __future__ import annotations

import json
import logging
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from fingerprint import fingerprint
from opened import build

MODULE = """
import logging, os, random, sys
import helper
import torch
from torch import nn

class Rude(nn.Module):
    def __init__(self, width, fails=False):
        super().__init__()
        self.layer = nn.Linear(width, width)
        os.environ["RUDE"] = "1"
        os.chdir("/")
        sys.path.append("/rude")
        logging.basicConfig(level=logging.DEBUG, force=True)
        logging.disable(logging.CRITICAL)
        torch.manual_seed(3)
        random.random()
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        if fails:
            raise RuntimeError("after all that")

    def forward(self, x):
        return self.layer(x)
"""


MODEL = nn.Linear(1, 1)


def state(folder: Path) -> dict[str, Any]:
    root = logging.getLogger()
    return {
        **fingerprint(MODEL),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "logging": (root.level, list(root.handlers), root.manager.disable),
        "levels": [logging.getLogger(name).level for name in ("transformers", "timm")],
        "files": {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()},
        "modules": sorted(name for name in sys.modules if name in ("rude", "helper")),
        "random": random.getstate(),
        "offline": getattr(sys.modules.get("huggingface_hub.constants"), "HF_HUB_OFFLINE", None),
        "torchvision": sys.modules.get("torchvision"),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rude.py").write_text(MODULE)
    (tmp_path / "helper.py").write_text("x = 1\n")
    return tmp_path


@pytest.mark.parametrize("fails", [False, True], ids=["works", "fails"])
@pytest.mark.parametrize("weightless", [True, False], ids=["meta", "real"])
def test_whatever_a_constructor_does_to_the_process_is_undone(
    folder: Path, fails: bool, weightless: bool
) -> None:
    path = folder / "config.yaml"
    path.write_text(f"model: {{_target_: rude.Rude, width: 4, fails: {str(fails).lower()}}}\n")
    before = state(folder)
    if fails:
        with (
            pytest.raises(mg.InspectError, match="raised RuntimeError: after all that"),
            build(path, trust=True),
        ):
            pass
    else:
        with build(path, trust=True, weightless=weightless) as found:
            assert type(found.native).__name__ == "Rude"
            assert "helper" in sys.modules
    assert state(folder) == before


def test_packages_that_are_installed_below_the_folder_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = folder / "env" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "installed_thing.py").write_text("x = 1\n")
    (folder / "mine.py").write_text("import installed_thing\nfrom torch.nn import Linear\n")
    monkeypatch.syspath_prepend(str(installed))
    (folder / "config.yaml").write_text("model: {_target_: mine.Linear, in_features: 2, out_features: 2}\n")
    with build(folder / "config.yaml", trust=True):
        assert "mine" in sys.modules
    assert "mine" not in sys.modules
    assert sys.modules.pop("installed_thing").x == 1


def test_a_module_of_the_same_name_is_not_taken_for_the_files(folder: Path) -> None:
    import fingerprint as loaded

    (folder / "fingerprint.py").write_text("from torch.nn import ReLU as Mine\n")
    (folder / "config.yaml").write_text("model: {_target_: fingerprint.Mine}\n")
    with build(folder / "config.yaml", trust=True) as found:
        assert isinstance(found.native, nn.ReLU)
    assert sys.modules["fingerprint"] is loaded


def test_a_builder_leaves_no_trace(folder: Path) -> None:
    (folder / "b.py").write_text(
        "from rude import Rude\ndef fn(config):\n    return Rude(config.pop('width'))\n"
    )
    (folder / "config.yaml").write_text("width: 4\n")
    mg.inspect(MODEL, torch.ones(1, 1))  # the first run of all loads more of torch
    before = state(folder)
    assert mg.inspect(folder / "config.yaml", torch.ones(1, 4), builder=f"{folder}/b.py::fn").counts
    assert state(folder) == before


def test_a_configuration_of_transformers_leaves_no_trace(tmp_path: Path) -> None:
    import transformers  # noqa: F401  (what importing it does is not looked at here)

    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 99, **small}))
    mg.inspect(tmp_path)  # imports what it needs, once
    before = state(tmp_path)
    report = mg.inspect(tmp_path)
    assert report.run.failure is None
    assert state(tmp_path) == before
