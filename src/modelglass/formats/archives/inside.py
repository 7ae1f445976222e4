"""What lies inside of an archive: looked into whatever it is called, because some loader may load it."""

from __future__ import annotations

from collections.abc import Callable

from modelglass.errors import FileError, NotAModelError
from modelglass.formats import npy, pickles
from modelglass.formats.archives import compressed, models as archives, tars, zip as zips
from modelglass.formats.documents import code_in_text as sidecars, strict_json
from modelglass.formats.reading import Reading
from modelglass.formats.scan.native import native_code
from modelglass.formats.source import Source
from modelglass.formats.torch import tar
from modelglass.report import Level

_Read = Callable[[Source, Reading], None]

MOST_DEPTH = 4  # of archives inside archives
_HEAD = 1024
_STARTS = tuple(bytes((0x80, protocol)) for protocol in range(1, 6))
_PICKLES = (".pkl", ".pickle", ".joblib", ".p", ".pk", ".dill", ".debug_pkl")


def look_into(
    member: Source, reading: Reading, *, pickled: bool = False, raw: bool = False, native: Level = "notice"
) -> bool:
    """Search a member for what may run; see `Search`."""
    inner, is_loaded = reading.inner(), False
    try:
        is_loaded = _look(member, inner, pickled, native)
    except NotAModelError:
        pass  # it was searched, and need not be a model
    except FileError as error:
        inner.stopped(error)
    if not raw or any(finding.level == "high" for finding in inner.findings):
        reading.absorb(inner)
    return is_loaded


def _look(member: Source, reading: Reading, pickled: bool, native: Level) -> bool:
    head, name = member.up_to(0, _HEAD), (member.member or "").lower()
    kind = native_code(head)
    if kind is not None:
        reading.found(member, "code.native", native, f"carries compiled code: {kind}", offset=0)
    container = _container(member, head)
    if container is not None:
        _open(member, reading, container, expected=pickled)
    elif head.startswith(npy.MAGIC):
        npy.read(member, reading)
    elif name.endswith(".json"):
        _document(member, reading)
    is_pickle = container is None and (pickled or name.endswith(_PICKLES) or head.startswith(_STARTS))
    if is_pickle or pickles.also_a_pickle(member, reading.limits):
        pickles.scan_stream(member, reading)
        return True
    return container is not None or head.startswith(npy.MAGIC)


def _container(member: Source, head: bytes) -> _Read | None:
    """The reader of what has members of its own; None for anything else."""
    if head.startswith(b"PK\x03\x04") or zips.has_end(member):
        return archives.read
    if tars.looks_like(head, member.nbytes):
        return tar.read
    return compressed.read if compressed.looks_like(head, member.nbytes) else None


def _open(member: Source, reading: Reading, read: _Read, *, expected: bool) -> None:
    text = "it is an archive inside of the archive"
    if reading.depth >= MOST_DEPTH:
        reading.found(
            member, "zip.nested", "limit", f"{text}, too deep inside to be opened", depth=reading.depth
        )
        return
    if not expected:
        reading.found(member, "zip.nested", "info", text, offset=0)
    inner = reading.inner(deeper=True)
    try:
        read(member, inner)
    finally:
        reading.absorb(inner)


def _document(member: Source, reading: Reading) -> None:
    content = strict_json.document(member, reading.limits, lenient=True)
    sidecars.code_references(member, reading, content)
