"""A torchvision built for CUDA beside a CPU torch: it cannot load its kernels and then refuses to import.

Models need only the declarations of those kernels, so these are made first. Without torchvision there is
nothing to do, and where it imports by itself nothing is done.
"""

from __future__ import annotations

import torch

_kept: list[torch.library.Library] = []  # a library that is collected takes its operators along


def make_torchvision_importable() -> None:
    """Let `import torchvision` succeed, and with it timm and transformers."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        _declare_operators()
    except ImportError:
        pass


def _declare_operators() -> None:
    library = torch.library.Library("torchvision", "DEF")
    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms"):
        library.define(name + signature)
    _kept.append(library)
