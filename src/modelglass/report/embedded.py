"""A document inside of a page: compressed, in letters that no browser takes for anything else."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode

from modelglass.errors import ReportFormatError

MARK = '<meta name="modelglass-document"'  # near the beginning of each page that holds one
MOST = 1 << 29  # bytes of a document: a page of a few kilobytes can claim to hold more than any machine does
_ID = "modelglass-document"
_OPEN, _CLOSE = '<script type="application/octet-stream" id="{id}">', "</script>"
_GZIP = 31  # the window of zlib with a header of gzip, which browsers read
_HINT = "pass a page that modelglass wrote, or the JSON of mg.save"


def packed(text: str) -> str:
    """The text compressed, as letters; the same for the same text."""
    compressor = zlib.compressobj(wbits=_GZIP)
    return b64encode(compressor.compress(text.encode()) + compressor.flush()).decode("ascii")


def embed(text: str) -> str:
    """The element that holds a document."""
    return held(text, _ID)


def held(text: str, id: str) -> str:
    """An element that holds a text, which browsers neither run nor show."""
    return f"{_OPEN.format(id=id)}{packed(text)}{_CLOSE}"


def extract(page: str, *, most: int = MOST) -> str:
    """The document that a page holds, unless it is longer than `most` bytes."""
    _, found, rest = page.rpartition(_OPEN.format(id=_ID))
    data, closed, _ = rest.partition(_CLOSE)
    if not found or not closed:
        raise ReportFormatError("this page holds no modelglass document", hint=_HINT)
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        content = unpacker.decompress(b64decode(data, validate=True), most + 1)
        text = content.decode()
    except (ValueError, zlib.error) as cause:
        raise ReportFormatError(f"the document in this page cannot be read: {cause}", hint=_HINT) from cause
    if len(content) > most:
        raise ReportFormatError(f"the document in this page is longer than {most:,} bytes", hint=_HINT)
    if not unpacker.eof:
        raise ReportFormatError("the document in this page is cut off", hint=_HINT)
    return text
