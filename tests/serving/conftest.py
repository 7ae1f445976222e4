"""Small models for real engines, and processes of their own to run engines in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
LONGEST = 300  # seconds that any process may take
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TOKENIZERS_PARALLELISM": "false",
}
# Read by vLLM when it is imported, here and in every process that is started from here.
os.environ.update(QUIET)


@dataclass(frozen=True)
class Tiny:
    """A saved model, and how many parameters transformers counts in it."""

    folder: Path
    params: int


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tiny]:
    """Models by name, each written once."""
    from tiny import save

    @cache
    def made(name: str) -> Tiny:
        folder = tmp_path_factory.mktemp(name)
        return Tiny(folder, save(name, folder))

    return made


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Run a script of this folder in a process of its own; what it writes to the file named last is JSON."""

    def run(name: str, *arguments: str, env: Mapping[str, str] | None = None) -> Any:
        result = tmp_path_factory.mktemp("result") / "result.json"
        command = [sys.executable, str(HERE / name), *arguments, str(result)]
        done = subprocess.run(
            command,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        assert done.returncode == 0, f"{name} {' '.join(arguments)} failed:\n{done.stderr[-4000:]}"
        return json.loads(result.read_text())

    return run
