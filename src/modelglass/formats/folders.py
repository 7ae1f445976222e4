"""Folders: which of the files in one are the model."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from modelglass.errors import FileError, NotAModelError
from modelglass.formats.documents.reader import read_shard
from modelglass.formats.files import open_file, read_file
from modelglass.formats.files_beside import may_follow
from modelglass.formats.reading import Reading
from modelglass.formats.shards import numbering, read_numbered
from modelglass.formats.source import OpenFile
from modelglass.formats.torch import distributed

# The likeliest first: files that models are published in are preferred to those that training leaves.
_INDEXES = (".safetensors.index.json", ".bin.index.json", ".index.json")
WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".pt2", ".npz", ".npy", ".pkl")
_TRAINING = (
    "training_args.",
    "optimizer.",
    "optimizer_",
    "scheduler.",
    "scaler.",
    "rng_state",
    "random_states",
)
_STEMS = (
    "model",
    "pytorch_model",
    "diffusion_pytorch_model",
)  # what the file of a folder's one model is called
MOST_SEARCHED = 100  # folders in a folder that are looked into for a hint
MOST_FILES = 100_000


def read(folder: Path, reading: Reading) -> None:
    """Fill the reading from the model in a folder."""
    names = _names(folder)
    first, *others = [distributed.METADATA] if distributed.METADATA in names else _chosen(folder, names)
    if not others:
        read_found(folder / first, reading, within=folder)
        return
    read_numbered(_opened(folder / first, reading, folder), [first, *others], reading, read_shard)


def read_found(path: Path, reading: Reading, *, within: Path | None = None) -> None:
    """Fill the reading from a file; one that was found in a folder, not named, must not lead out of it."""
    source = _opened(path, reading, within)
    if distributed.is_metadata(path.name):
        distributed.read(source, reading)
        source.check_unchanged()
    elif not _is_piece(source, reading, within):
        read_file(source, reading)


def _is_piece(source: OpenFile, reading: Reading, within: Path | None) -> bool:
    """Whether a file is a piece of what a distributed checkpoint beside it describes; then that was read."""
    beside = source.path.with_name(distributed.METADATA)
    if source.path.suffix != ".distcp" or not os.path.isfile(beside):
        return False
    whole = reading.inner()
    with ExitStack() as stack:
        stack.callback(whole.close)
        try:
            described = _opened(beside, whole, within or source.path.parent)
            distributed.read(described, whole)
            described.check_unchanged()
            found = next((each for each in whole.opened if os.path.samefile(source.path, each.path)), None)
        except (FileError, OSError):
            return False
        if found is None:
            return False
        stack.pop_all()
    reading.opened.remove(source)  # it is among the others
    source.close()
    reading.format, reading.weights_only, reading.refusal = whole.format, whole.weights_only, whole.refusal
    reading.absorb(whole)
    return True


def _opened(path: Path, reading: Reading, within: Path | None) -> OpenFile:
    if within is not None and not may_follow(path, within):
        text = "this is a link out of the folder, and is not followed"
        raise NotAModelError(text, file=str(path), code="path.link", hint="pass the file itself")
    return open_file(path, reading)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for _, entry in zip(range(MOST_FILES), entries, strict=False))
    except OSError as cause:
        raise NotAModelError(
            f"the folder cannot be read: {cause.strerror}", file=str(folder), code="cannot-open"
        ) from cause
    return names


def _chosen(folder: Path, names: list[str]) -> list[str]:
    """The file that is the model, or the files; an index goes before its shards."""
    for suffix in (*_INDEXES, *WEIGHTS):
        found = [name for name in names if name.lower().endswith(suffix) and not name.startswith(_TRAINING)]
        usual = next((name for stem in _STEMS if (name := stem + suffix) in found), None)
        if usual is not None or len(found) == 1:
            return [usual or found[0]]
        if found:
            return _numbered(folder, found)
    raise NotAModelError(
        "no model is in this folder" if names else "this folder is empty",
        file=str(folder),
        code="not-a-model",
        hint=_below(folder, names) or "pass the file with the weights",
    )


def _numbered(folder: Path, found: list[str]) -> list[str]:
    """All of the files, when they are numbered as those of one model and none is missing."""
    ours = [[name for name in found if name.startswith(f"{stem}-")] for stem in _STEMS]
    numbered = next((known for names in (*ours, found) if (known := numbering(names))), ([], []))
    wanted, missing = numbered
    if wanted and not missing:
        return wanted
    listed = ", ".join(repr(name) for name in found[:5]) + (", …" if len(found) > 5 else "")
    # Copies that training leaves are called as the last one, with their number in front.
    likeliest = next((name for name in found if any(each.endswith(f"_{name}") for each in found)), found[0])
    hint = f"pass one of them: {folder / likeliest}"
    if missing:
        hint = f"{missing[0]!r} is missing, of {len(wanted):,} files; or {hint}"
    raise NotAModelError(
        f"{len(found)} files here may be the model, and no index specifies which: {listed}",
        file=str(folder),
        code="several-models",
        hint=hint,
    )


def _below(folder: Path, names: list[str]) -> str | None:
    """A hint when folders in this one have models, as those of pipelines do."""
    endings = (*_INDEXES, *WEIGHTS)
    found = []
    for name in names[:MOST_SEARCHED]:
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            try:
                with os.scandir(folder / name) as entries:
                    inside = any(entry.name.lower().endswith(endings) for entry in entries)
            except OSError:
                continue
            found += [name] if inside else []
    if not found:
        return None
    return f"models are in its folders {', '.join(repr(name) for name in found[:8])}: pass one of them"
