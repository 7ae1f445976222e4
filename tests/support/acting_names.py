"""Which classes of libraries act when a pickle only makes and fills them: found in their sources.

`python tests/support/acting_names.py` rewrites `formats/pickles/acting.py` for the libraries that are
installed, and keeps what it says of others.
Nothing is imported. A class acts when a method that unpickling runs of it
leads, by its own methods and the functions of its module, to one that evaluates, imports, unpickles, opens or
deletes: what it is told to is in the state, which the file writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

TABLE = Path(__file__).parents[2] / "src" / "modelglass" / "formats" / "pickles" / "acting.py"
PACKAGES = (
    "accelerate", "datasets", "filelock", "fsspec", "huggingface_hub", "joblib", "lightning", "numpy",
    "omegaconf", "pandas", "peft", "scipy", "sklearn", "timm", "torch", "torchvision", "transformers",
)  # fmt: skip
# What unpickling may run of an object that it makes without arguments, sets the state of, and drops.
RUN = (
    "__setstate__", "__setattr__", "__setitem__", "__getattr__", "__getattribute__", "append", "extend",
    "add", "__del__", "__missing__", "__hash__", "__eq__",
)  # fmt: skip
ACTS = frozenset(
    (
        *("eval", "exec", "__import__", "import_module", "exec_module", "load_library", "run_path"),
        *("run_module", "loads", "CDLL", "system", "Popen", "check_output", "check_call", "urlopen"),
        *("rmtree", "unlink", "rmdir", "removedirs", "makedirs", "mkdir", "rename", "symlink"),
    )
)
OPENS = frozenset(("", "io", "os", "gzip", "bz2", "lzma", "tarfile", "zipfile"))  # whose `open` takes paths
HARMLESS = frozenset(("json", "orjson"))  # whose `loads` makes data
_HAS_ONE = re.compile(rf"^\s+def (?:{'|'.join(RUN)})\(", re.MULTILINE)
_LEFT_OUT = frozenset(("tests", "testing", "_vendor", "_testing"))


def acting(package: str) -> set[str]:
    """The names of the classes of one package that act, also by what they inherit where that is."""
    found: set[str] = set()
    bases: dict[str, set[str]] = {}
    for path in _sources(package):
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
        functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        for cls in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
            if _acts(cls, functions):
                found.add(cls.name)
            bases.setdefault(cls.name, set()).update(filter(None, map(_last, cls.bases)))
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def _sources(package: str) -> Iterator[Path]:
    """The files of a package that have a class with such a method."""
    spec = find_spec(package)
    for place in () if spec is None else spec.submodule_search_locations or ():
        for path in sorted(Path(place).rglob("*.py")):
            if not _LEFT_OUT & set(path.relative_to(place).parts) and _HAS_ONE.search(
                path.read_text(encoding="utf-8", errors="replace")
            ):
                yield path


def _acts(cls: ast.ClassDef, functions: dict[str, ast.FunctionDef]) -> bool:
    methods = {each.name: each for each in cls.body if isinstance(each, ast.FunctionDef)}
    waiting = [methods[name] for name in RUN if name in methods]
    seen: set[ast.FunctionDef] = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        for call in (each.func for each in ast.walk(function) if isinstance(each, ast.Call)):
            owner, name = _owner(call), _last(call)
            if (name in ACTS and owner not in HARMLESS) or (name == "open" and owner in OPENS):
                return True
            known = methods if owner in ("self", "cls") else {} if owner else functions
            waiting += [known[name]] if name in known else []
    return False


def _last(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _owner(node: ast.AST) -> str:
    """What stands before the last dot: "" for nothing, the word, or the expression."""
    return ast.unparse(node.value) if isinstance(node, ast.Attribute) else ""


def stored() -> dict[str, set[str]]:
    from modelglass.formats.pickles.acting import ACTING

    found: dict[str, set[str]] = {}
    for path in ACTING:
        package, _, name = path.partition(".")
        found.setdefault(package, set()).add(name)
    return found


def text(names: dict[str, set[str]]) -> str:
    """The table, as it is in the file."""
    lines = [f"{package} {' '.join(each)}" for package in sorted(names) for each in _rows(names[package])]
    return _HEAD + "\n".join(lines) + _FOOT


def _rows(names: set[str]) -> Iterator[list[str]]:
    row: list[str] = []
    for name in sorted(names):
        if row and sum(map(len, row)) + len(row) + len(name) > 80:
            yield row
            row = []
        row.append(name)
    yield row


_HEAD = '''"""Classes of well-known libraries that act when a pickle only makes and fills them, by package.

Written by `tests/support/acting_names.py`, which says how; do not edit. A class may have any of its package's
modules before its name.
"""

from __future__ import annotations

_TABLE = """
'''
_FOOT = '''
"""
ACTING = frozenset(
    f"{package}.{name}" for package, *names in map(str.split, _TABLE.strip().splitlines()) for name in names
)
'''


def main() -> None:
    known = stored() if TABLE.exists() else {}
    found = {package: acting(package) for package in PACKAGES if find_spec(package) is not None}
    names = {package: names for package, names in (known | found).items() if names}
    TABLE.write_text(text(names))


if __name__ == "__main__":
    main()
