"""How much work a file may cause. Every limit can be set, and is named where it is met."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Most that is read, kept or unpacked; the names are those that error messages give."""

    pickle_opcodes: int = 50_000_000
    pickle_nodes: int = 5_000_000  # containers and objects kept
    inflated_nbytes: int = 256 << 20  # of one compressed member
    inflated_ratio: int = 200  # once a member has given more than `inflated_free_nbytes`
    inflated_free_nbytes: int = 16 << 20
    zip_entries: int = 2_000_000
    zip_directory_nbytes: int = 256 << 20
    header_nbytes: int = 100_000_000  # of safetensors; the reference reader refuses longer ones, too
    json_nbytes: int = 64 << 20  # of a JSON document beside or inside a model
    json_depth: int = 64
    yaml_aliases: int = 1000
    tensors: int = 2_000_000
    dims: int = 64  # of one tensor
    kept_text: int = 64 << 10  # characters of one text that are kept
