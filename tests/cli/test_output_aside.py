"""What a user's code writes never mixes with a result, however it is written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LOUD = """
import os, subprocess, sys
import torch
def build():
    print("from Python")
    os.write(1, b"from a library\\n")
    subprocess.run([sys.executable, "-c", "print('from a process')"], check=True)
    return torch.nn.Linear(2, 3)
"""


@pytest.mark.slow
def test_only_the_result_is_on_stdout(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    command = [sys.executable, "-m", "modelglass", "inspect", "loud.py::build", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["model"]["name"] == "Linear"
    assert all(f"from {where}" in done.stderr for where in ("Python", "a library", "a process"))
