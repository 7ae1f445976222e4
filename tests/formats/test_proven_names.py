"""Names that count as data are those that looking at the libraries gives, and none of them can do more."""

from __future__ import annotations

import importlib
import inspect
import types
from typing import Any

import pytest

import proven_names
from modelglass.formats.pickles.delegates import ATTRIBUTES, CONDITIONAL, DELEGATES, GIVES_BACK
from modelglass.formats.pickles.known import _CORE, _DATA
from modelglass.formats.pickles.proven import CALLED, ENUMS, MADE, NAMED
from modelglass.formats.pickles.weights_only import ALLOWED
from torchvision_beside_cpu import make_torchvision_importable

make_torchvision_importable()
EXACT = ("torch", "numpy")  # the others change with their versions, and are not pinned
OTHERS = [package for package in proven_names.installed() if package not in EXACT]
# What reaches the system, builds code, or looks things up: nothing that counts as data may be of these.
REACHING = {
    "builtins", "os", "posix", "nt", "sys", "subprocess", "importlib", "runpy", "io", "_io", "shutil",
    "socket", "pickle", "_pickle", "marshal", "code", "ctypes", "_ctypes", "operator", "_operator",
    "functools", "types", "inspect", "pkgutil", "pydoc", "multiprocessing", "threading", "tempfile",
    "webbrowser", "urllib",
}  # fmt: skip
TELLING = {"func", "function", "cls", "type", "new_type", "subtype", "baseclass", "base", "ctor", "factory"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", EXACT)
def test_the_table_is_the_generated_one(package: str) -> None:
    found, stored = proven_names.proven(package), proven_names.stored()
    for kind in proven_names.KINDS:
        assert proven_names.of_package(stored[kind], package) == found[kind], kind


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("package", OTHERS)
def test_what_another_version_has_of_the_table_is_proven_there(package: str) -> None:
    found, stored = proven_names.proven(package), proven_names.stored()
    for kind in proven_names.KINDS:
        names = proven_names.of_package(stored[kind], package)
        there = {path for path in names if proven_names._get(path) is not None}
        assert there <= found[kind], there - found[kind]


def test_the_file_is_what_the_generator_writes() -> None:
    assert proven_names.TABLE.read_text() == proven_names.text(proven_names.stored())


def resolved(path: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


@pytest.mark.filterwarnings("ignore")
def test_nothing_that_counts_as_data_is_a_module_or_reaches_further() -> None:
    checked = 0
    for path in _CORE | MADE | CALLED | ENUMS | NAMED:
        value = resolved(path)
        if value is None:
            continue
        checked += 1
        assert not isinstance(value, types.ModuleType), path
        home = getattr(value, "__module__", None) or path
        if callable(value) and path not in ("_codecs.encode", "builtins.set", "builtins.bytearray"):
            ours = home.partition(".")[0] == path.partition(".")[0] or path.startswith(
                ("builtins.", "numpy.")
            )
            assert ours or home.partition(".")[0] not in REACHING, (path, home)
    assert checked > 1500


@pytest.mark.filterwarnings("ignore")
def test_what_is_handed_something_to_call_is_known_to_call_it() -> None:
    for path in sorted(ALLOWED | CALLED | {each for each in _DATA if each.startswith("copyreg")}):
        value = resolved(path)
        if isinstance(value, types.FunctionType):
            names = set(inspect.signature(value).parameters)
            told = {name for name in names if name in TELLING or name.endswith(("_ctor", "_type", "factory"))}
            assert not told or path in DELEGATES, (path, told)


def test_lists_do_not_overlap() -> None:
    assert not CALLED & MADE
    assert not NAMED & (CALLED | MADE | ENUMS)
    assert not CONDITIONAL & (_CORE | CALLED | MADE | NAMED | _DATA | GIVES_BACK - CALLED)
    assert all(path.count(".") >= 2 for path in ATTRIBUTES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "path",
    [
        "torch.fx.graph_module.GraphModule", "torch.fx.graph.Graph", "torch.jit._script.ScriptModule",
        "numpy.memmap", "torch.ao.quantization.fx.utils.GraphModule", "torch.utils.data.DataLoader",
        "scipy.stats._distn_infrastructure.rv_continuous", "torch.serialization.load", "numpy.load",
        "torch.nn.modules.module.Any", "sklearn.utils._testing.os", "torch.from_file", "numpy.vectorize",
    ],
)  # fmt: skip
def test_these_never_get_into_the_table(path: str) -> None:
    assert path not in _CORE | MADE | CALLED | ENUMS | NAMED | _DATA
