"""What every test may use: golden files, and packages that import."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from modelglass.formats.scan import isolated
from torchvision_beside_cpu import make_torchvision_importable

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MLX_DISABLE_COMPILE"] = "1"  # else MLX calls a C++ compiler for each new kernel

# Thousands of scans: copies of this process are quicker than new ones, and read files in Python alone.
isolated._THREADED = ()

GOLDEN = Path(__file__).parent / "tests" / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")
    parser.addoption("--built", metavar="DIR", help="the wheel and sdist to try, instead of a wheel made now")
    parser.addoption(
        "--interpreter", action="append", metavar="PYTHON", help="install the wheel for it; repeatable"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell starts what runs in its background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.pluginmanager.hasplugin("hypothesispytest"):  # not where real engines are tested
        from hypothesis import HealthCheck, settings

        # How long an example takes is the machine's business, not a claim.
        settings.register_profile("patient", suppress_health_check=[HealthCheck.too_slow], deadline=None)
        settings.load_profile("patient")


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


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Tests that begin with MLX are left out where there is none, as on Windows."""
    if HAS_MLX or collection_path.suffix != ".py":
        return None
    return True if IMPORTS_MLX.search(collection_path.read_text(encoding="utf-8")) else None


HAS_MLX = find_spec("mlx") is not None
IMPORTS_MLX = re.compile(r"^(?:from|import) \w*mlx", re.MULTILINE)
make_torchvision_importable()
# These need environments of their own: `make test-vllm` and `make browser` name them.
collect_ignore = ["tests/serving", "tests/browser"]
