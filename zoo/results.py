"""What was found of each architecture, kept in a file as soon as it is known, with the code that found it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from zoo.repairs import REPAIRS

PACKAGES = ("modelglass", "torch", "timm", "transformers")
ROOT = Path(__file__).parents[1]
# What a row depends on, besides what is said of its own configuration.
CODE = (
    *("src/modelglass/**/*.py", "tests/support/fingerprint.py", "tests/support/sums.py"),
    *("zoo/architectures.py", "zoo/checks.py", "zoo/truth.py", "zoo/values.py"),
)
CONFIGURATIONS = "src/modelglass/configs/"  # which no model of timm has
FOR_ALL = ("examples/__init__.py", "examples/pictured.py")  # of these, what others are told by, too


@dataclass
class Results:
    """Rows by architecture, and the file that has them, after a line that says what they were found with."""

    path: Path
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, names: Sequence[str], *, fresh: bool) -> Results:
        """What the file has of these architectures; one that was found with other packages is begun anew."""
        found, known = cls(path), set(names)
        lines = [] if fresh or not path.exists() else [*map(_parsed, path.read_text().splitlines())]
        if lines and lines[0] == {"versions": versions()}:
            found.rows = {row["name"]: row for row in lines if row and row.get("name") in known}
        found._write()
        return found

    def _write(self) -> None:
        """The file anew, without lines that a run did not finish."""
        text = "".join(json.dumps(each) + "\n" for each in ({"versions": versions()}, *self.rows.values()))
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(text)
        beside.replace(self.path)

    def is_known(self, name: str, *, again: bool) -> bool:
        """Whether there is a row by the code as it is; `again`: or by any, of what had nothing wrong."""
        if again:
            return name in self.rows and not self.rows[name]["wrong"]
        return self.is_current(name)

    def is_current(self, name: str) -> bool:
        return name in self.rows and self.rows[name].get("code") == code_of(name)

    def keep(self, row: dict[str, Any]) -> None:
        """The last word on an architecture is the one that counts."""
        row["code"] = code_of(row["name"])
        self.rows[row["name"]] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def code_of(name: str) -> str:
    """What tells the code, and the configuration, that find a row from all others."""
    kind, _, type_ = name.partition(":")
    said = json.dumps(REPAIRS.get(type_, {}), sort_keys=True)
    return sha256(f"{_shared_code(kind == 'timm')} {said}".encode()).hexdigest()[:16]


@cache
def _shared_code(unconfigured: bool) -> str:
    """All files, or those that have to do with models without a configuration of transformers."""
    found = sha256()
    for path in sorted(path for pattern in CODE for path in ROOT.glob(pattern)):
        place = path.relative_to(ROOT).as_posix()
        if unconfigured and place.startswith(CONFIGURATIONS) and not place.endswith(FOR_ALL):
            continue
        found.update(f"{place}\n".encode() + path.read_bytes())
    return found.hexdigest()


def versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


def _parsed(line: str) -> Any:
    """A line of the file; None of one that a run did not finish."""
    try:
        return json.loads(line)
    except ValueError:
        return None
