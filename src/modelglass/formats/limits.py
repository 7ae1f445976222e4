"""How much work a file may cause. Every limit can be set, and is named where it is met."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelglass.formats.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Most that is read, kept or unpacked; the names are those that error messages give.

    In a scan, what is `spent` counts for all members and parts of a file together; else for each.
    """

    pickle_opcodes: int = 50_000_000
    pickle_nodes: int = 5_000_000  # containers and objects kept
    inflated_nbytes: int = 256 << 20  # of compressed members
    inflated_ratio: int = 200  # once a member has given more than `inflated_free_nbytes`
    inflated_free_nbytes: int = 16 << 20
    zip_entries: int = 2_000_000
    zip_directory_nbytes: int = 256 << 20
    header_nbytes: int = 100_000_000  # of safetensors; the reference reader refuses longer ones, too
    json_nbytes: int = 64 << 20  # of JSON documents beside or inside a model
    json_depth: int = 64  # of YAML, too
    yaml_aliases: int = 1000
    yaml_nodes: int = 1_000_000  # as two parsers see them
    template_nchars: int = 1 << 20  # of all chat templates of a file
    tensors: int = 2_000_000
    dims: int = 64  # of one tensor
    kept_text: int = 64 << 10  # characters of one text that are kept
    seconds: int = 10  # of a scan of one file, in a process of its own
    memory_nbytes: int = 1 << 30  # of that process
    spent: Counter[str] | None = field(default=None, compare=False, repr=False)

    def of_one_file(self) -> Limits:
        """The same, with an account that everything which reads this file shares."""
        return replace(self, spent=Counter())

    def left(self, name: str) -> int:
        """How much there still is of what a limit counts."""
        most: int = getattr(self, name)
        return most if self.spent is None else max(0, most - self.spent[name])

    def spend(self, name: str, amount: int) -> None:
        """Note what was done, where that is counted for the file as a whole."""
        if self.spent is not None:
            self.spent[name] += amount

    def take(self, name: str, amount: int, source: Source, *, offset: int | None = None) -> None:
        """The same before it is done; more than is left is an error."""
        if amount > self.left(name):
            raise source.over(name, getattr(self, name), offset=offset)
        self.spend(name, amount)
