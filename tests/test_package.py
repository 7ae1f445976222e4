"""The wheel as users install it: into an environment that has nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from modelglass._version import __version__

pytestmark = pytest.mark.slow
PYTHONS = ("3.11", "3.12", "3.13")
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
    "memory that fits": (f"fit {ROOT}/examples/bert --memory 8GB", 'pip install "modelglass[torch,config]"'),
    "its document": (f"info {ROOT}/examples/bert", 'pip install "modelglass[torch,config]"'),
    "a picture": (f"stats {FILES}/training.pt --plot a.png", 'pip install "modelglass[plots]"'),
    "statistics": (f"stats {FILES}/training.pt", 'pip install "modelglass[stats]"'),
    "a served model": (f"{ROOT}/examples/llama-70b --framework vllm", "pip install vllm"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every case for each interpreter; `make dist` names all that there are."""
    if "interpreter" in metafunc.fixturenames:
        named = metafunc.config.getoption("--interpreter") or [sys.executable]
        metafunc.parametrize("interpreter", named, scope="session", ids=[Path(each).name for each in named])


@pytest.fixture(scope="session")
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = request.config.getoption("--built")
    if built is not None:
        (found,) = Path(built).glob("*.whl")
        return found
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(command, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def sdist(request: pytest.FixtureRequest) -> Path:
    built = request.config.getoption("--built")
    if built is None:
        pytest.skip("make dist builds it")
    (found,) = Path(built).glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def bare(interpreter: str, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that has the wheel and what it requires."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([interpreter, "-m", "venv", str(folder)], check=True)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    install = [str(programs / "python"), "-m", "pip", "install", "--quiet", *pinned, str(wheel)]
    subprocess.run(install, check=True)
    return programs


def run(
    bare: Path, folder: Path, line: str, *, program: str = "modelglass"
) -> subprocess.CompletedProcess[str]:
    command = [str(bare / program), *line.split()]
    bare_environment = {"PATH": str(bare), "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=bare_environment, capture_output=True, text=True, check=False
    )


def check_metadata(metadata: Message) -> None:
    addresses = dict(each.split(", ") for each in metadata.get_all("Project-URL", ()))
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= addresses.keys()
    assert all(address.startswith("https://") for address in addresses.values())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    classifiers = metadata.get_all("Classifier", ())
    assert {f"Programming Language :: Python :: {version}" for version in PYTHONS} <= set(classifiers)
    text = metadata.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert text == (ROOT / "README.md").read_bytes()
    assert all(link.startswith(("https://", "#")) for link in re.findall(r"\]\(([^)]+)\)", text.decode()))


def test_the_wheel_has_types_addresses_and_the_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (name,) = (each for each in names if each.endswith("/METADATA"))
        check_metadata(message_from_bytes(archive.read(name)))
    assert "modelglass/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {"modelglass", f"modelglass-{__version__}.dist-info"}
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources


def test_the_source_archive_has_what_the_wheel_is_made_of_and_nothing_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        info = archive.extractfile(f"modelglass-{__version__}/PKG-INFO")
        assert info is not None
        check_metadata(message_from_bytes(info.read()))
    assert "src/modelglass/py.typed" in names
    top = {"src", "docs", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    assert {name.partition("/")[0] for name in names} == top


def test_the_version_is_written_once_and_the_changes_have_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" not in project
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## (\S+), (unreleased|\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    assert len(heads) == changes.count("\n## ")
    assert __version__.partition(".dev")[0] in dict(heads)
    assert [when == "unreleased" for _, when in heads] == [True] + [False] * (len(heads) - 1)


def test_the_workflow_runs_every_version_that_is_promised() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    listed = ", ".join(f'"{version}"' for version in PYTHONS)
    assert f"python: [{listed}]" in text


def test_publishing_needs_no_password() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "id-token: write" in text
    assert "secrets." not in text


def test_it_runs_as_a_tool(bare: Path, tmp_path: Path) -> None:
    """From a folder of links to programs alone, as tools that install tools make it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("modelglass", "model-inspector", "tt-model-analysis"):
        (tools / name).symlink_to(bare / name)
        assert run(tools, tmp_path, "--help", program=name).returncode == 0
    assert run(tools, tmp_path, "--version").stdout == f"modelglass, version {__version__}\n"
    assert run(tools, tmp_path, f"{FILES}/training.pt").returncode == 0


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
