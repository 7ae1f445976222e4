"""Vocabularies of SentencePiece are known for what they are, and nothing else is taken for one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import modelglass as mg
from modelglass.errors import NotAModelError


def piece(text: bytes, score: float = 0.0) -> bytes:
    body = b"\x0a" + bytes([len(text)]) + text + b"\x15" + struct.pack("<f", score) + b"\x18\x02"
    return b"\x0a" + bytes([len(body)]) + body


VOCABULARY = piece(b"<unk>") + piece("\u2581a".encode(), -1.5) + b"\x12\x02\x18\x01\x1a\x00"


def saved(data: bytes, folder: Path) -> Path:
    path = folder / "tokenizer.model"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("data", [VOCABULARY, piece(b"[first]") + VOCABULARY, VOCABULARY + b"\xc2\x0c\x01x"])
def test_a_vocabulary_gives_no_alarm(data: bytes, tmp_path: Path) -> None:
    scan = mg.scan(saved(data, tmp_path))
    assert [file.format for file in scan.files] == ["sentencepiece"]
    assert scan.findings == ()
    with pytest.raises(NotAModelError, match="vocabulary"):
        mg.inspect(tmp_path / "tokenizer.model")


@pytest.mark.parametrize("more", [b"\x32\x01x", b"\x0a\x7f", b"\x08\x01", b"cos\nsystem\n(S'x'\ntR."])
def test_what_is_no_vocabulary_to_its_end_is_not_clean(more: bytes, tmp_path: Path) -> None:
    assert mg.scan(saved(VOCABULARY + more, tmp_path)).exit_code() == 3
