"""What every test may use: golden files, and a torchvision that imports beside a CPU torch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text is what the golden file says."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no golden file {name}: run pytest --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check


def _declare_missing_torchvision_operators() -> None:
    """A torchvision built for CUDA cannot load its kernels here; models need only their declarations."""
    import torch

    global _library
    _library = torch.library.Library("torchvision", "DEF")
    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms"):
        _library.define(name + signature)


try:
    import torchvision  # noqa: F401
except RuntimeError:
    _declare_missing_torchvision_operators()
except ImportError:
    pass
