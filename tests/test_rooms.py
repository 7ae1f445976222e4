"""Rooms import only what they may, and importing modelglass imports next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

SOURCE = Path(__file__).parents[1] / "src" / "modelglass"

# room: the rooms of ours, and the packages of others, that it may import
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "_lazy": (set(), set()),
    "_version": (set(), set()),
    "errors": (set(), set()),
    "printing": ({"api"}, set()),
    "report": ({"printing", "_lazy", "_version", "errors", "report"}, set()),
    "quantized": ({"report", "quantized"}, {"numpy"}),
    "formats": ({"errors", "forking", "report", "quantized", "formats"}, {"numpy", "jinja2", "yaml", "PIL"}),
    "gc_pause": ({"undo"}, set()),
    "console": (set(), set()),
    "forking": (set(), set()),
    "undo": (set(), set()),
    "interrupts": ({"undo"}, set()),
    "frameworks": (
        {
            "gc_pause",
            "errors",
            "inputs",
            "interrupts",
            "options",
            "report",
            "quantized",
            "frameworks",
            "undo",
        },
        {"torch", "mlx", "vllm", "numpy"},
    ),
    "analyses": ({"errors", "report", "analyses"}, {"numpy", "numba"}),
    "page": ({"errors", "report", "page"}, set()),
    "renderers": ({"_version", "errors", "report", "page", "renderers"}, {"matplotlib"}),
    "files": ({"errors"}, set()),
    "options": ({"errors", "report"}, set()),
    "user_code": ({"errors", "files"}, set()),
    "targets": (
        {
            "analyses",
            "checkpoints",
            "gc_pause",
            "configs",
            "errors",
            "files",
            "formats",
            "frameworks",
            "options",
            "report",
            "targets",
            "user_code",
        },
        set(),
    ),
    "configs": (
        {"errors", "files", "formats", "configs", "report", "user_code"},
        {"yaml", "omegaconf", "transformers", "torch"},
    ),
    "checkpoints": ({"gc_pause", "errors", "report", "formats", "analyses", "user_code"}, set()),
    "symbols": ({"errors", "report", "analyses", "symbols"}, set()),
    "inputs": ({"forking", "inputs"}, set()),
    "api": (
        {
            "_lazy",
            "gc_pause",
            "errors",
            "report",
            "formats",
            "frameworks",
            "analyses",
            "page",
            "renderers",
            "checkpoints",
            "configs",
            "symbols",
            "inputs",
            "console",
            "files",
            "options",
            "targets",
            "user_code",
            "api",
        },
        set(),
    ),
    "compat": (
        {
            "analyses",
            "api",
            "checkpoints",
            "compat",
            "configs",
            "console",
            "errors",
            "files",
            "formats",
            "frameworks",
            "options",
            "report",
            "page",
            "renderers",
            "targets",
        },
        {"mlx"},
    ),
    "mlx": ({"compat"}, set()),
    "cli": ({"api", "console", "compat", "errors", "files", "cli", "__init__"}, {"click"}),
    "__init__": ({"_lazy", "_version", "api", "compat", "errors", "report", "frameworks", "analyses"}, set()),
    "__main__": ({"cli"}, set()),
}


def imports_of(path: Path) -> set[str]:
    """Every module a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "modelglass":
                found |= {f"modelglass.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "attach"):
            found |= set(_names_of_ours(node))
    return found


def _names_of_ours(call: ast.Call) -> Iterator[str]:
    """The modules of ours that a call names in texts; of a text with fields, what is before the first."""
    for node in ast.walk(call):
        if isinstance(node, ast.Constant) and str(node.value).startswith("modelglass."):
            yield str(node.value).removesuffix(".")


FILES = sorted(SOURCE.rglob("*.py"))


def test_every_import_of_ours_names_a_file() -> None:
    """Also those inside of functions, and those in texts that are complete names."""
    for path in FILES:
        for name in imports_of(path):
            package, _, rest = name.partition(".")
            if package == "modelglass" and "." in rest:  # else it may be a public name
                place = SOURCE / rest.replace(".", "/")
                assert place.is_dir() or place.with_suffix(".py").exists(), f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_import_directions(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    ours, others = ALLOWED[room]
    for name in imports_of(path):
        package, _, rest = name.partition(".")
        if package == "modelglass":
            target = rest.partition(".")[0]
            target = (
                target if (SOURCE / target).is_dir() or (SOURCE / f"{target}.py").exists() else "__init__"
            )
            assert target in ours, f"{room} imports {name}"
        else:
            assert package in sys.stdlib_module_names or package in others, f"{room} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_the_command_line_and_show_print(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    nodes = list(ast.walk(ast.parse(path.read_text())))
    printing = [n for n in nodes if isinstance(n, ast.Name) and n.id == "print"]
    own = [n for n in nodes if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "sys"]
    streams = [n for n in own if n.attr in ("stdout", "stderr")]  # not those of another process
    assert room in ("cli", "compat") or not printing  # such a function prints what its document says
    assert room in ("cli", "api") or not streams


def fresh(code: str, *args: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_loads_no_framework_and_no_numpy() -> None:
    code = "import sys, modelglass; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(fresh(code).split())
    assert loaded.isdisjoint({"torch", "numpy", "mlx", "vllm", "matplotlib", "transformers", "click", "rich"})


def test_listing_a_file_loads_nothing_that_is_about_runs(tmp_path: Path) -> None:
    path = tmp_path / "small.safetensors"
    save_file({"layer.weight": np.zeros((4, 4), np.float32)}, path)
    code = (
        "import sys, modelglass as mg; mg.render(mg.inspect(sys.argv[1]), 'text'); "
        "print(*(name.removeprefix('modelglass.') for name in sys.modules))"
    )
    loaded = set(fresh(code, str(path)).split())
    assert "renderers.pages.text" in loaded
    assert loaded.isdisjoint({"analyses.cost.formulas", "api._compare", "api._unique", "api._fit"})
    assert loaded.isdisjoint({f"report.{noun}" for noun in ("comparison", "fit", "flow", "memory")})


def test_every_public_name_is_there() -> None:
    import modelglass

    for name in modelglass.__all__:
        assert getattr(modelglass, name) is not None
        assert name in dir(modelglass)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = modelglass.nothing


def test_importing_costs_less_than_a_tenth_of_a_second() -> None:
    """Processor time, best of several, over that of bare Python: a busy machine does not matter."""

    def cost(code: str) -> float:
        return min(
            float(fresh(f"import time; t = time.process_time(); {code}; print(time.process_time() - t)"))
            for _ in range(5)
        )

    began = time.monotonic()
    assert cost("import modelglass") - cost("pass") < 0.1
    assert time.monotonic() - began < 60
