"""Files that are not models, and what to call them."""

from __future__ import annotations

_LFS = b"version https://git-lfs.github.com/spec/"

# What a file begins with, what it is called, and what to do about it.
_MAGIC = (
    (b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive, which is not opened", "unpack it first, somewhere safe from it"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it first"),
    (b"PYTORCH1", "a preview of torch's archive format that is no longer read", "save it again"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, which modelglass does not read", "save the weights as safetensors"),
    (b"\x7fELF", "a program", "get the model's own file"),
    (b"MZ", "a Windows program", "get the model's own file"),
    (b"TFL3", "a TensorFlow Lite model, which modelglass does not read", "convert it to ONNX"),
)

_LOG = b"brain.Event:"  # in the first record of what TensorBoard shows
_DOCUMENTS = (b"%PDF", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF")
# What ordinary folders hold beside a model, by the code that they get here.
ORDINARY = frozenset({"empty", "lfs-pointer", "html", "document", "text", "log"})
# What was looked into to its end, and only is not a model itself.
SEARCHED = frozenset({"archive"})


def identify_non_model(head: bytes) -> tuple[str, str, str] | None:
    """The code, description and hint of a well-known file that is not a model; None for any other."""
    if not head:
        return "empty", "the file is empty", "get the file again, from its source"
    if head.startswith(_LFS):
        return "lfs-pointer", "this is a Git LFS pointer, not the model itself", "run: git lfs pull"
    if head[4:8] == b"TFL3":
        return "not-a-model", "this is a TensorFlow Lite model", "convert it to ONNX"
    if _LOG in head[:64] and int.from_bytes(head[:8], "little") < len(head):
        return "log", "this is a log of a training, not a model", "pass the weights beside it"
    if head.startswith(_DOCUMENTS):
        return "document", "this is a document or a picture, not a model", "get the model's own file"
    for magic, name, hint in _MAGIC:
        if head.startswith(magic):
            return "not-a-model", f"this is {name}", hint
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:200].lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        hint = "the download gave a page instead of the file: check the address, and whether to log in"
        return "html", "this is an HTML page, not a model", hint
    if start.startswith((b"<?xml", b"<error")):
        return (
            "not-a-model",
            "this is an XML document, perhaps an error of a file server",
            "get the file again",
        )
    return None


def is_text(head: bytes) -> bool:
    """Whether bytes look like text that somebody wrote."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # more than a character that the end has cut
            return False
        text = head[: error.start].decode("utf-8")
    return all(char.isprintable() or char in "\t\r\n" for char in text)
