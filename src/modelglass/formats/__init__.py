"""Checkpoints of every format we know, read as if a stranger had made them.

What a file begins with is believed before its suffix. Nothing in it is run, imported, or followed out of its
folder; what is read grows with the metadata that is there, never with what it claims.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from modelglass.errors import CorruptFileError, FileError, LimitError, NotAModelError
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source
from modelglass.formats.strangers import is_text, stranger

HEAD = 1024  # bytes that tell what a file is
_LEGACY = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # the number that old torch files begin with
_END_OF_ZIP = b"PK\x05\x06"


class Format(NamedTuple):
    """How to tell a format by a file's first bytes, and where its reader is."""

    name: str
    fits: Callable[[bytes, int], bool]
    module: str

    def read(self, source: OpenFile, reading: Reading) -> None:
        import_module(f"modelglass.formats.{self.module}").read(source, reading)


def _asking(module: str) -> Callable[[bytes, int], bool]:
    """A test that the format's own module makes."""
    return lambda head, nbytes: import_module(f"modelglass.formats.{module}").looks_like(head, nbytes)


def _magic(magic: bytes, at: int = 0) -> Callable[[bytes, int], bool]:
    return lambda head, nbytes: head[at : at + len(magic)] == magic


FORMATS = (  # the first that fits is taken
    Format("zip", _magic(b"PK\x03\x04"), "archives"),
    Format("zip", _magic(b"PK\x05\x06"), "archives"),
    Format("gguf", _magic(b"GGUF"), "gguf"),
    Format("npy", _magic(b"\x93NUMPY"), "npy"),
    Format("tar", _magic(b"ustar", 257), "torch.tar"),
    Format("torch-legacy", _magic(_LEGACY, 2), "torch.legacy"),
    Format("torch-legacy", _magic(_LEGACY, 11), "torch.legacy"),  # a frame comes first
    Format("safetensors", _asking("safetensors"), "safetensors"),
    Format("pickle", _magic(b"\x80"), "torch.raw"),
    Format("json", lambda head, nbytes: head.lstrip()[:1] in (b"{", b"["), "documents"),
    Format("onnx", _asking("onnx"), "onnx"),
)


def read(path: Path, reading: Reading) -> None:
    """Fill the reading from a file or a folder. What it opens stays open until the reading is closed."""
    if os.path.isdir(path):
        import_module("modelglass.formats.folders").read(path, reading)
        return
    source = OpenFile(path)
    reading.opened.append(source)
    read_file(source, reading)


def read_file(source: OpenFile, reading: Reading) -> None:
    """Fill the reading from an open file, by the format that its first bytes show."""
    head = source.up_to(0, HEAD)
    odd = stranger(head)
    if odd is not None and _asking("safetensors")(head, source.nbytes):
        odd = None  # the length that it begins with can have the bytes of anything
    format = format_of(head, source) if odd is None else None
    if format is None and head and _is_pickle(source, reading):
        format = PICKLE
    if format is None:
        raise _unknown(head, source, odd)
    if format.name != "zip" and _ends_as_zip(source):
        text = "the file begins as something else and ends as a zip archive: readers differ in what they see"
        _read_also(source, reading, "archives", text)
    if reading.thorough and format.module not in _PICKLED and _is_pickle(source, reading):
        text = "the file is also a pickle that calls something: readers differ in what they see"
        _read_also(source, reading, PICKLE.module, text)
    try:
        format.read(source, reading)
    finally:
        source.check_unchanged()


def format_of(head: bytes, source: OpenFile) -> Format | None:
    """The format of a file, by its first bytes; by its suffix only where these say nothing."""
    suffix = source.path.suffix.lower()
    found = next((each for each in FORMATS if each.fits(head, source.nbytes)), None)
    if found is not None and found.name == "json" and suffix not in (".json", ""):
        found = None  # lists, templates and logs begin with a bracket, too
    if found is None and suffix in (".yaml", ".yml", ".jinja"):
        return Format(suffix[1:], lambda head, nbytes: True, "documents")
    if found is None and suffix in _BY_SUFFIX and not is_text(head):  # broken from its first byte on
        return Format(suffix[1:], lambda head, nbytes: True, _BY_SUFFIX[suffix])
    return found


PICKLE = Format("pickle", lambda head, nbytes: True, "torch.raw")
_PICKLED = ("torch.raw", "torch.legacy")  # read as pickles anyway
_BY_SUFFIX = {".safetensors": "safetensors", ".gguf": "gguf", ".onnx": "onnx", ".npy": "npy"}


def _is_pickle(source: Source, reading: Reading) -> bool:
    return bool(import_module("modelglass.formats.pickles").also_a_pickle(source, reading.limits))


def _unknown(head: bytes, source: Source, odd: tuple[str, str, str] | None) -> NotAModelError:
    hint = "models are safetensors, torch, GGUF, ONNX or NumPy files"
    if odd is None and is_text(head):
        odd = "text", "this is text, not a model", hint
    code, text, hint = odd or ("not-a-model", "this is no format that modelglass knows", hint)
    return NotAModelError(text, file=source.file, code=code, hint=hint)


def _ends_as_zip(source: Source) -> bool:
    """Whether a zip archive ends where the file does, whatever it begins as."""
    tail = source.up_to(max(0, source.nbytes - 22), 22)
    return tail[:4] == _END_OF_ZIP and tail[20:] == b"\0\0"


def _read_also(source: OpenFile, reading: Reading, module: str, text: str) -> None:
    """A file that two readers take for different things: say so, and look at the other reading, too."""
    reading.found(source, "ambiguous", "invalid", text)
    other = Reading(limits=reading.limits, thorough=reading.thorough)
    try:
        import_module(f"modelglass.formats.{module}").read(source, other)
    except FileError as error:
        other.stopped(error)
    reading.absorb(other)


__all__ = ["FORMATS", "CorruptFileError", "LimitError", "Limits", "Reading", "read", "read_file"]
