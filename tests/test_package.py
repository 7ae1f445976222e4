"""The wheel as users install it: into an environment that has nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
FILES = ROOT / "examples" / "files"
if not FILES.exists():  # `make test` has written them
    subprocess.run([sys.executable, str(ROOT / "examples" / "make_files.py")], check=True)
CODE = {
    "of_torch.py": "import torch\ndef build(): return torch.nn.Linear(3, 4)\n",
    "of_mlx.py": "from mlx import nn\ndef build(): return nn.Linear(3, 4)\n",
}
LACKING = {
    "a function of torch": ("of_torch.py::build --input 1x3", 'pip install "modelglass[torch]"'),
    "a class of torch": ("torch.nn:Transformer", 'pip install "modelglass[torch]"'),
    "a function of MLX": ("of_mlx.py::build --input 1x3", 'pip install "modelglass[mlx]"'),
    "a configuration of Hugging Face": (f"{ROOT}/examples/bert", 'pip install "modelglass[torch,config]"'),
    "its flow": (f"flow {ROOT}/examples/bert", 'pip install "modelglass[torch,config]"'),
    "its comparison": (
        f"compare {ROOT}/examples/bert {ROOT}/examples/bert",
        'pip install "modelglass[torch,config]"',
    ),
    "a configuration that names a class": (
        f"{ROOT}/examples/diffusion.yaml",
        'pip install "modelglass[torch]"',
    ),
    "statistics": (f"stats {FILES}/training.pt", 'pip install "modelglass[stats]"'),
    "a served model": (f"{ROOT}/examples/llama-70b --framework vllm", "pip install vllm"),
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([str(folder / "bin/pip"), "install", "--quiet", *pinned, str(wheel)], check=True)
    return folder / "bin"


def run(bare: Path, folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    command = [str(bare / "modelglass"), *line.split()]
    bare_environment = {"PATH": str(bare), "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=bare_environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_has_types_addresses_and_the_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert "modelglass/py.typed" in archive.namelist()
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    addresses = dict(each.split(", ") for each in metadata.get_all("Project-URL"))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= addresses.keys()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_payload(decode=True) == (ROOT / "README.md").read_bytes()


def test_a_file_is_listed_and_scanned(bare: Path, tmp_path: Path) -> None:
    listed = run(bare, tmp_path, f"{FILES}/training.pt")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "training.pt" in listed.stdout
    scanned = run(bare, tmp_path, f"scan {FILES}/suspicious.pt")
    assert scanned.returncode == 1
    assert "os.system" in scanned.stdout


@pytest.mark.parametrize("what", LACKING)
def test_what_is_missing_is_named_at_once(what: str, bare: Path, tmp_path: Path) -> None:
    line, hint = LACKING[what]
    for name, code in CODE.items():
        (tmp_path / name).write_text(code)
    done = run(bare, tmp_path, line)
    assert done.returncode == 3
    assert f"hint: {hint}" in done.stderr
    assert "Traceback" not in done.stderr
