"""What `benchmarks/run.py` measures: sections of the results, and pages that scripts write by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Section:
    """A part of the results: who measures it, who makes lines of a page from it, and who pictures.

    They are named as `module:function`, not imported: pages are made where the tools that are measured are
    not installed.
    """

    measure: str
    page: str
    pictures: str | None = None  # texts of pictures by the file's name


def named(name: str) -> Callable[..., Any]:
    """The function that a section names."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


@dataclass(frozen=True)
class Script:
    """A benchmark that writes a page of its own, with `-o PAGE`."""

    file: str
    page: str
    quick: tuple[str, ...] = ("--quick",)


SECTIONS = {
    "accuracy": Section("peers.accuracy:accuracy", "peers.accuracy:accuracy_page"),
    "traces": Section("peers.traces:traces", "peers.traces:traces_page"),
    "speed": Section("inspect_speed:speed", "inspect_speed:speed_page"),
    "files": Section("files_speed:files", "files_ratios:files_page"),
    "growth": Section("growth:growth", "growth:growth_page", "growth:growth_pictures"),
}
SCRIPTS = {
    "stats": Script("stats_speed.py", "benchmarks-stats.md"),
    "unique": Script("unique_speed.py", "benchmarks-unique.md"),
    "memory": Script("memory_truth.py", "benchmarks-memory.md", quick=("--only", "distilbert")),
    "memory-speed": Script("memory_speed.py", "benchmarks-memory-speed.md"),
    "mlx": Script("mlx_speed.py", "benchmarks-mlx.md"),
}
# What is measured beside modelglass, or measures.
PACKAGES = (
    "torch",
    "torchinfo",
    "fvcore",
    "ptflops",
    "calflops",
    "torchview",
    "torchlens",
    "accelerate",
    "picklescan",
    "safetensors",
    "gguf",
    "transformers",
    "timm",
    "numpy",
    "numba",
)
