"""Code for a processor, told by what it begins with and by what it is called."""

from __future__ import annotations

# What programs, libraries and code for graphics processors begin with.
_MAGIC = (
    (b"\x7fELF", "a program or library for Linux, or code for a GPU"),
    (b"\xcf\xfa\xed\xfe", "a program or library for macOS"),
    (b"\xce\xfa\xed\xfe", "a program or library for macOS"),
    (b"\xfe\xed\xfa\xcf", "a program or library for macOS"),
    (b"\xfe\xed\xfa\xce", "a program or library for macOS"),
    (b"\xca\xfe\xba\xbe", "a program or library for macOS, or for Java"),
    (b"\x50\xed\x55\xba", "code for a GPU"),
    (b"!<arch>\n", "a library of compiled code"),
    (b"dex\n0", "a program for Android"),
    (b"\0asm", "a program in WebAssembly"),
    (b"BC\xc0\xde", "compiled code of LLVM"),
)
_MZ, _PE_AT = b"MZ", 0x3C  # where a program for Windows tells where its header is
SUFFIXES = (".so", ".dll", ".dylib", ".pyd", ".o", ".a", ".exe", ".cubin", ".fatbin", ".hsaco", ".ptx")
SOURCES = (".cpp", ".cc", ".c", ".cu", ".h", ".py", ".sh", ".s", ".asm", ".ll")


def native_code(head: bytes) -> str | None:
    """What the compiled code is that begins with these bytes; None for anything else."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head.startswith(_MZ) and len(head) >= _PE_AT + 4:
        at = int.from_bytes(head[_PE_AT : _PE_AT + 4], "little")
        if at + 4 > len(head) or head[at : at + 4] == b"PE\0\0":
            return "a program or library for Windows"
    return None
