"""The memory of a run counts parameters by shard, and gathered weights while they are there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    script = Path(__file__).with_name("sharded_steps.py")
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    read: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return read


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("run", ["fake", "real"])
def test_a_sharded_model_takes_what_torch_measures(found: dict[str, Any], run: str, train: bool) -> None:
    seen = found[f"{run} {train}"]
    assert seen["peaks"] == [seen["truth"]] * 2
    assert seen["nbytes"] == 33_152
    assert "float32 16,576; 1 of 2 shards" in seen["text"]
    assert "16.00 bits" not in seen["text"].replace("\n", " ")
    assert seen["notes"] == ["unknown-ops"]
    assert seen["runs"]
