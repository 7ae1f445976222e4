"""Vocabularies of SentencePiece: one protobuf message of pieces with scores, and settings. None is code."""

from __future__ import annotations

from modelglass.formats.documents.reader import DocumentError
from modelglass.formats.protobuf import LENGTH, Wire
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source

_PIECES = 1
_FIELDS = (_PIECES, 2, 3, 4, 5)  # and settings of the trainer, of two normalisers, and texts to test it with
_EXTENSIONS = 200  # from this number on, fields are for others
_SHORT = 128  # bytes of a message whose length takes one byte
_SCORE = 0x15  # the tag of what follows a piece's text


def looks_like(head: bytes, nbytes: int) -> bool:
    """Whether bytes begin with a piece: its length, its text, its score."""
    if len(head) < 4 or head[0] != 0x0A or head[2] != 0x0A or head[1] >= _SHORT:
        return False
    end = 4 + head[3]
    return end + 5 <= 2 + head[1] <= nbytes and head[end : end + 1] == bytes((_SCORE,))


def read(source: Source, reading: Reading) -> None:
    """Nothing to fill in: that the whole file is such a vocabulary is all there is to see."""
    reading.format = "sentencepiece"
    for number, wire, _, begin in Wire(source, reading.limits).fields(0, source.nbytes):
        if (number not in _FIELDS or wire != LENGTH) and number < _EXTENSIONS:
            text = f"a vocabulary has no field {number} of this kind"
            raise source.corrupt(text, code="protobuf.field-number", offset=begin)
    raise DocumentError(
        "this is the vocabulary of a tokenizer, without weights",
        file=source.file,
        code="no-weights",
        hint="pass the folder that it is in, or the file with the weights",
    )
