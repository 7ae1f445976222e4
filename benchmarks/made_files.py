"""Files of any size, written without much memory, and mostly without room on the disk."""

from __future__ import annotations

import os
import struct
from pathlib import Path

ALIGNMENT = 32  # of GGUF
F32, Q4_K = 0, 12  # numbers of GGUF's types
Q4_K_NUMEL, Q4_K_NBYTES = 256, 144


def state_dict_file(path: Path, layers: int) -> None:
    """The weights and biases of so many small layers, as `torch.save` writes them."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
    torch.save(model.state_dict(), path)


def safetensors_file(path: Path, count: int, numel: int, dtype: str = "F32") -> int:
    """So many tensors of one size, all zero and taking no room on the disk; where the first one starts."""
    size = numel * {"F32": 4, "BF16": 2}[dtype]
    entries = (
        f'"layers.{index}.weight":{{"dtype":"{dtype}","shape":[{numel}],'
        f'"data_offsets":[{index * size},{(index + 1) * size}]}}'
        for index in range(count)
    )
    header = f"{{{','.join(entries)}}}".encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + count * size)
    return 8 + len(header)


def gguf_file(path: Path, count: int, numel: int, kind: int = F32) -> int:
    """The same as GGUF."""
    size = numel * 4 if kind == F32 else numel // Q4_K_NUMEL * Q4_K_NBYTES
    stride = size + -size % ALIGNMENT
    parts = [b"GGUF", struct.pack("<IQQ", 3, count, 1)]
    parts += [_gguf_text("general.architecture"), struct.pack("<I", 8), _gguf_text("llama")]
    parts += [
        _gguf_text(f"blk.{index}.weight") + struct.pack("<IQIQ", 1, numel, kind, index * stride)
        for index in range(count)
    ]
    header = b"".join(parts)
    header += bytes(-len(header) % ALIGNMENT)
    path.write_bytes(header)
    os.truncate(path, len(header) + count * stride)
    return len(header)


def _gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def bfloat16_file(path: Path, nbytes: int, tensors: int = 8) -> None:
    """Normally distributed weights, as trained ones nearly are."""
    import numpy as np

    numel = nbytes // 2 // tensors
    start = safetensors_file(path, tensors, numel, "BF16")
    generator = np.random.default_rng(0)
    with path.open("r+b") as file:
        file.seek(start)
        for _ in range(tensors):
            values = generator.standard_normal(numel, dtype=np.float32) * np.float32(0.02)
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def q4_k_file(path: Path, nbytes: int, tensors: int = 8) -> None:
    """Random blocks, their scales as small as those of real weights."""
    import numpy as np

    count = nbytes // tensors // (Q4_K_NBYTES * 2) * 2  # an even number of blocks needs no padding
    start = gguf_file(path, tensors, count * Q4_K_NUMEL, Q4_K)
    generator = np.random.default_rng(0)
    with path.open("r+b") as file:
        file.seek(start)
        for _ in range(tensors):
            blocks = generator.integers(0, 256, (count, Q4_K_NBYTES), dtype=np.uint8)
            scales = generator.uniform(0.0005, 0.002, (count, 2)).astype(np.float16)
            blocks[:, :4] = scales.view(np.uint8)
            file.write(blocks.tobytes())
