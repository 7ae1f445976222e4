"""The table of file formats, and how a file is read: by the format that its first bytes show."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, cast

from modelglass.errors import FileError, NotAModelError
from modelglass.formats.known_non_models import identify_non_model, is_text
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source

DOCUMENTS = "documents"
HEAD = 1024  # bytes that tell what a file is
_LEGACY = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"  # the number that old torch files begin with


class Format(NamedTuple):
    """How to tell a format by a file's first bytes, and where its reader is."""

    name: str
    fits: Callable[[bytes, int], bool]
    module: str  # of `formats`; that of documents is given by whoever may read one


ReadFile = Callable[[OpenFile, Reading], None]


def _asking(module: str) -> Callable[[bytes, int], bool]:
    """A test that the format's own module makes."""
    return lambda head, nbytes: import_module(f"modelglass.formats.{module}").looks_like(head, nbytes)


def _magic(magic: bytes, at: int = 0) -> Callable[[bytes, int], bool]:
    return lambda head, nbytes: head[at : at + len(magic)] == magic


def _may_be_tar(head: bytes) -> bool:
    """Whether a checksum is where a tar has one; most files are told apart by that."""
    return head[148:149] != b"" and head[148:149] in b" 01234567\x80"


def _is_compressed(head: bytes) -> bool:
    return head[:1] != b"" and head[:1] in b"\x1fB\xfd]Zx" and _asking("archives.compressed")(head, 0)


FORMATS = (  # the first that fits is taken
    Format("zip", _magic(b"PK\x03\x04"), "archives.models"),
    Format("zip", _magic(b"PK\x05\x06"), "archives.models"),
    Format("gguf", _magic(b"GGUF"), "gguf.reader"),
    Format("npy", _magic(b"\x93NUMPY"), "npy"),
    Format(
        "tar", lambda head, nbytes: _may_be_tar(head) and _asking("archives.tars")(head, nbytes), "torch.tar"
    ),
    Format("torch-legacy", _magic(_LEGACY, 2), "torch.legacy"),
    Format("torch-legacy", _magic(_LEGACY, 11), "torch.legacy"),  # a frame comes first
    Format("safetensors", _asking("safetensors"), "safetensors"),
    Format("compressed", lambda head, nbytes: _is_compressed(head), "archives.compressed"),
    Format("pickle", _magic(b"\x80"), "torch.raw"),
    Format("json", lambda head, nbytes: head.lstrip()[:1] in (b"{", b"["), DOCUMENTS),
    Format("sentencepiece", _asking("sentencepiece"), "sentencepiece"),
    Format("onnx", _asking("onnx.reader"), "onnx.reader"),
)


def read(source: OpenFile, reading: Reading, read_document: ReadFile) -> None:
    """Fill the reading from an open file, by the format that its first bytes show.

    `read_document` reads JSON, YAML and the like: an index of shards names other files, which are read here.
    """
    head = source.up_to(0, HEAD)
    odd = identify_non_model(head)
    if odd is not None and _asking("safetensors")(head, source.nbytes):
        odd = None  # the length that it begins with can have the bytes of anything
    format = format_of(head, source) if odd is None else None
    if format is None and head and _is_pickle(source, reading):
        format = PICKLE
    if format is None and head and _has_zip(source):
        format = ZIP
    if format is None:
        raise _unknown(head, source, odd)
    if format.module != ZIP.module and _has_zip(source, glance=not reading.thorough):
        text = "the file begins as something else and ends as a zip archive: readers differ in what they see"
        _read_also(source, reading, ZIP.module, text)
    if reading.thorough and format.module not in _PICKLED and _is_pickle(source, reading):
        text = "the file is also a pickle that calls something: readers differ in what they see"
        _read_also(source, reading, PICKLE.module, text)
    if reading.thorough and format.name != "compressed" and _is_compressed(head):
        reading.look_into(source, raw=True)
    try:
        _reader(format, read_document)(source, reading)
    finally:
        source.check_unchanged()


def _reader(format: Format, read_document: ReadFile) -> ReadFile:
    if format.module == DOCUMENTS:
        return read_document
    return cast("ReadFile", import_module(f"modelglass.formats.{format.module}").read)


def format_of(head: bytes, source: OpenFile) -> Format | None:
    """The format of a file, by its first bytes; by its suffix only where these say nothing."""
    suffix = source.path.suffix.lower()
    found = next((each for each in FORMATS if each.fits(head, source.nbytes)), None)
    if found is not None and found.name == "json" and suffix not in (".json", ""):
        found = None  # lists, templates and logs also begin with a bracket
    if found is None and suffix in _DOCUMENTS:
        return Format(suffix[1:], lambda head, nbytes: True, DOCUMENTS)
    if found is None and suffix in _BY_SUFFIX and not is_text(head):  # broken from its first byte on
        return Format(suffix[1:], lambda head, nbytes: True, _BY_SUFFIX[suffix])
    return found


PICKLE = Format("pickle", lambda head, nbytes: True, "torch.raw")
ZIP = FORMATS[0]
_PICKLED = ("torch.raw", "torch.legacy")  # read as pickles anyway
_DOCUMENTS = (".json", ".yaml", ".yml", ".jinja", ".jinja2", ".j2", ".py")
_BY_SUFFIX = {".safetensors": "safetensors", ".gguf": "gguf.reader", ".onnx": "onnx.reader", ".npy": "npy"}


def _is_pickle(source: Source, reading: Reading) -> bool:
    return bool(import_module("modelglass.formats.pickles").also_a_pickle(source, reading.limits))


def _unknown(head: bytes, source: Source, odd: tuple[str, str, str] | None) -> NotAModelError:
    hint = "models are safetensors, torch, GGUF, ONNX or NumPy files"
    if odd is None and is_text(head):
        odd = "text", "this is text, not a model", hint
    code, text, hint = odd or ("not-a-model", "this is not a format that modelglass knows", hint)
    return NotAModelError(text, file=source.file, code=code, hint=hint)


def _has_zip(source: Source, *, glance: bool = False) -> bool:
    """Whether some reader finds a zip archive at the end of the file, whatever it begins as."""
    return bool(import_module("modelglass.formats.archives.zip").has_end(source, glance=glance))


def _read_also(source: OpenFile, reading: Reading, module: str, text: str) -> None:
    """Report a file that two readers take for different things, and read it the other way as well."""
    reading.found(source, "ambiguous", "invalid", text)
    other = reading.inner()
    try:
        import_module(f"modelglass.formats.{module}").read(source, other)
    except FileError as error:
        other.stopped(error)
    reading.absorb(other)
