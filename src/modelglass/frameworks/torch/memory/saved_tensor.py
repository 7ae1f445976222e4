"""What autograd saves for the backward pass, while hooks look on: torch checks nothing then, so this does."""

from __future__ import annotations

import torch


class SavedTensor:
    """A tensor that autograd saves; it must be the same when it is needed."""

    __slots__ = ("_origin", "_tensor", "_version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._version = tensor._version
        self._origin = _origin(tensor)
        if tensor.grad_fn is not None:  # what its own node kept would keep the node, and so itself
            with torch.no_grad():
                tensor = tensor.detach()  # which counts its versions with the original
        self._tensor = tensor

    def unpack(self) -> torch.Tensor:
        """The tensor; what torch raises when it has been written to since."""
        tensor, version = self._tensor, self._tensor._version
        if version != self._version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: [{tensor.type()} {list(tensor.shape)}]{self._origin} is at version {version}; "
                f"expected version {self._version} instead. Hint: enable anomaly detection to find the "
                "operation that failed to compute its gradient, with "
                "torch.autograd.set_detect_anomaly(True, check_nan=False)."
            )
        return tensor


def _origin(tensor: torch.Tensor) -> str:
    node = tensor.grad_fn
    if node is None:
        return ""
    return f", which is output {tensor.output_nr} of {node.name().partition('Backward')[0]},"
