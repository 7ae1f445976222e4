"""What a path leads to, by its name and the first bytes of a file."""

from __future__ import annotations

import os
import re
from pathlib import Path

from modelglass.errors import TargetError
from modelglass.files import suggest_path
from modelglass.user_code import parse_code_name

CONFIG = "config.json"  # the name of a model's configuration in its folder
PIPELINE = "model_index.json"  # in a folder whose folders are the parts of a pipeline
CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
PAGE_SUFFIXES = (".html", ".htm")
_WEIGHTS = (
    *(".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".pt2", ".npz", ".npy", ".pkl"),
    *(".index.json", ".metadata"),
)
_RECORDINGS = (".pickle", ".pkl")
_HEAD = 1 << 16  # bytes that distinguish an index or a saved noun from a configuration
_SAVED = {  # by the suffix, what each document of ours has near its beginning
    ".json": re.compile(rb'"format": ?"modelglass-'),
    **dict.fromkeys(PAGE_SUFFIXES, re.compile(rb'<meta name="modelglass-document"')),
}


def is_code_name(text: str) -> bool:
    """Whether the text has the form of a code target."""
    return parse_code_name(text) is not None and not os.path.lexists(text)  # a file may have such a name


def is_config_path(path: Path) -> bool:
    """Whether this is a configuration: a YAML or JSON file, or a folder with config.json and no weights."""
    if os.path.isdir(path):
        return config_in(path) is not None and not has_weights(path)
    if path.suffix.lower() not in CONFIG_SUFFIXES or path.name.lower().endswith(".index.json"):
        return False
    return path.suffix.lower() != ".json" or not (b'"weight_map"' in _head(path) or is_saved(path))


def is_saved(path: Path) -> bool:
    """Whether a file is a report, or the answer of another command, that modelglass saved."""
    mark = _SAVED.get(path.suffix.lower())
    return mark is not None and mark.search(_head(path)) is not None


def is_recording(path: Path) -> bool:
    """Whether a file is a recording of GPU memory, by its name and how it begins."""
    if path.suffix.lower() not in _RECORDINGS:
        return False
    from modelglass.formats.snapshots import is_snapshot

    return is_snapshot(_head(path))


def is_plain_file(path: Path) -> bool:
    """Whether a file is only read, by its name: not a configuration, which is built, nor a saved report."""
    return path.suffix.lower() not in (*CONFIG_SUFFIXES, *PAGE_SUFFIXES) and os.path.isfile(path)


def is_checkpoint_file(path: Path) -> bool:
    """Whether a file holds weights, by its first bytes, or lists the files that do."""
    if not os.path.isfile(path) or is_config_path(path):
        return False
    from modelglass.formats import table
    from modelglass.formats.source import OpenFile

    with OpenFile(path) as source:
        found = table.format_of(source.up_to(0, table.HEAD), source)
    is_index = path.name.lower().endswith(".index.json")
    return is_index or (found is not None and found.module != table.DOCUMENTS)


def config_in(folder: Path) -> Path | None:
    """The configuration of the model in a folder; None where there is none."""
    path = folder / CONFIG
    return path if os.path.isfile(path) else None


def is_pipeline(path: Path) -> bool:
    """Whether this is a folder of a pipeline, or the file in it that names its parts."""
    return os.path.isfile(path / PIPELINE) if os.path.isdir(path) else path.name == PIPELINE


def has_weights_and_config(folder: Path) -> bool:
    """Whether this is a folder of weights with the configuration of their model."""
    return os.path.isdir(folder) and config_in(folder) is not None and has_weights(folder)


def config_file(path: Path) -> Path | None:
    """The configuration at a path: the file itself, or the one in a folder."""
    return config_in(path) if os.path.isdir(path) else path


def has_weights(folder: Path) -> bool:
    """Whether files in a folder look like weights. `training_args.bin` has none."""
    try:
        names = [name.lower() for name in os.listdir(folder)]
    except OSError:
        return False  # nothing can be read there, whatever it is
    return any(name.endswith(_WEIGHTS) and not name.startswith("training_args.") for name in names)


def check_exists(path: Path) -> None:
    if not os.path.lexists(path):
        raise TargetError(f"there is no file {str(path)!r}", hint=suggest_path(path))


def _head(path: Path) -> bytes:
    """The first bytes of a file; none where it cannot be read, which its reader reports."""
    if not os.path.isfile(path):
        return b""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError:
        return b""
