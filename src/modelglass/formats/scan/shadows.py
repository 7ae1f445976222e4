"""Code in a folder that Python imports in the place of a module: a program that runs there takes it instead.

Whoever loads a file from its own folder imports what the file names, and Python looks into that folder first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from modelglass.formats.folders import MOST_FILES
from modelglass.report import Finding, Level, ScannedFile

# What Python takes for a module, by how its name ends; versions may stand before ".so" and ".pyd".
_CODE = (".py", ".pyc", ".so", ".pyd")
_PACKAGE = "__init__"
# Packages that programs with models import anyway, whatever a file names.
_USUAL = frozenset(
    (
        *("torch", "numpy", "transformers", "tokenizers", "safetensors", "huggingface_hub", "accelerate"),
        *("diffusers", "peft", "datasets", "sympy", "regex", "PIL", "yaml", "requests", "tqdm", "packaging"),
        *("filelock", "fsspec", "jinja2", "markupsafe", "networkx", "typing_extensions", "scipy", "pandas"),
        *("sklearn", "joblib", "onnx", "onnxruntime", "tensorflow", "keras", "h5py", "jax", "flax", "mlx"),
        *("vllm", "lightning", "pytorch_lightning", "torchvision", "torchaudio", "timm", "sentencepiece"),
        *(
            "gguf",
            "einops",
            "omegaconf",
            "hydra",
            "psutil",
            "setuptools",
            "matplotlib",
            "cloudpickle",
            "dill",
        ),
    )
)
_OFTEN_MEANT_OTHERWISE = frozenset(("test", "code", "site"))  # what people call their own scripts
_MODULES = frozenset(sys.stdlib_module_names) - _OFTEN_MEANT_OTHERWISE
_ALWAYS_THERE = frozenset(sys.builtin_module_names)  # part of Python itself, which no file can replace
_MOST_REFERENCES = 100_000


def shadows(folder: Path, scanned: Sequence[ScannedFile]) -> Iterator[Finding]:
    """A finding for each module in the folder that stands in the way of one which is imported."""
    folders = _Folders()
    found: dict[str, Finding] = {}
    for level, name, file in _references(scanned):
        for path in folders.providing(name, Path(file).parent, folder):
            if path not in found or (level == "high" and found[path].level != "high"):
                found[path] = _finding(path, level, name, file)
    for name, path in folders.importable(folder).items():
        if name in _MODULES | _USUAL and name not in _ALWAYS_THERE and not _is_bare(path):
            found.setdefault(path, _finding(path, "notice", name, None))
    yield from found.values()


def _finding(path: str, level: Level, name: str, file: str | None) -> Finding:
    module = name.partition(".")[0]
    taken = f"in this folder, Python takes it for the module {module[:100]!r}"
    why = "which other programs import" if file is None else f"which {os.path.basename(file)!r} names"
    return Finding(
        code="code.shadow",
        level=level,
        text=f"{taken}, {why}: loading from here would run it",
        file=path,
        details={"names": name[:200]},
    )


def _references(scanned: Sequence[ScannedFile]) -> Iterator[tuple[Level, str, str]]:
    """What files name: pickles, which loading imports, and configurations, which some programs do."""
    seen: set[tuple[str, str]] = set()
    for file in scanned:
        for use in file.globals:
            if (file.path, use.name) not in seen and len(seen) < _MOST_REFERENCES:
                seen.add((file.path, use.name))
                yield "high", use.name, file.path
        for finding in file.findings:
            names = finding.details.get("names")
            if finding.code.startswith("code.") and isinstance(names, str):
                yield "notice", names.rpartition("--")[2], file.path  # a repository may stand before it


def _is_bare(path: str) -> bool:
    """Whether it is a folder that does not say that it is a package: an installed one goes before it."""
    return os.path.isdir(path) and not any(
        os.path.lexists(os.path.join(path, _PACKAGE + suffix)) for suffix in _CODE
    )


class _Folders:
    """What can be imported from each folder, listed once."""

    def __init__(self) -> None:
        self._listed: dict[str, Mapping[str, str]] = {}

    def importable(self, folder: Path) -> Mapping[str, str]:
        """The modules of a folder and where they are; a package goes before a file, as in Python."""
        key = str(folder)
        if key not in self._listed:
            self._listed[key] = _importable(key)
        return self._listed[key]

    def providing(self, name: str, start: Path, root: Path) -> Iterator[str]:
        """What Python would take for a name, from the folder of the file that names it and those above it."""
        top, *rest = name.split(".")[:3]
        if not top.isidentifier() or top in _ALWAYS_THERE:
            return
        here = start
        while True:
            path = self.importable(here).get(top)
            if path is not None and (not _is_bare(path) or self._holds(path, top, rest)):
                yield path
            if here == root or root not in here.parents:
                return
            here = here.parent

    def _holds(self, path: str, top: str, rest: Sequence[str]) -> bool:
        """Whether a folder that is not a package has the module that is meant, which is not installed."""
        return top not in _MODULES | _USUAL and bool(rest) and rest[0] in self.importable(Path(path))


def _importable(folder: str) -> Mapping[str, str]:
    files: dict[str, str] = {}
    packages: dict[str, str] = {}
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST_FILES), entries, strict=False):
                name, dot, _ = entry.name.partition(".")
                if entry.name.endswith(_CODE) and name.isidentifier():
                    files.setdefault(name, entry.path)
                elif not dot and name.isidentifier() and entry.is_dir():
                    packages[name] = entry.path
    except OSError:
        return {}  # that it cannot be read is said where it is searched
    bare = {name: path for name, path in packages.items() if _is_bare(path)}
    return bare | files | {name: path for name, path in packages.items() if name not in bare}
