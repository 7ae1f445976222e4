"""What was found of each architecture, kept in a file as soon as it is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("modelglass", "torch", "timm", "transformers")


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
        return name in self.rows and not (again and self.rows[name]["wrong"])

    def keep(self, row: dict[str, Any]) -> None:
        """The last word on an architecture is the one that counts."""
        self.rows[row["name"]] = row
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def versions() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


def _parsed(line: str) -> Any:
    """A line of the file; None of one that a run did not finish."""
    try:
        return json.loads(line)
    except ValueError:
        return None
