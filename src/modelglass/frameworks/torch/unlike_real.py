"""Where an observed run is not what a real one is, so that a figure of it is an estimate.

torch asks in some formulas whether a tensor is an ordinary one, or what its values are, and takes a slower
way where nobody can tell. No mode can make it believe otherwise. These kernels are known, and named.
"""

from __future__ import annotations

from typing import Any

from modelglass.frameworks.torch.calibration import Question, knows_values
from modelglass.frameworks.torch.naming import kernel_name, overload_name
from modelglass.frameworks.torch.privates import OpOverload

# Their backward pass looks at values, or writes to what it has, unless it is watched. Some overloads do.
_OTHER_GRADIENTS = frozenset(
    {"aten.prod", "aten.cumprod", "aten.addcmul", "aten._linalg_det", "aten.clamp.Tensor"}
)
# They take memory for themselves by what the values are.
_BY_VALUES = frozenset({"aten.linalg_matrix_exp"})


def has_another_gradient(func: Any) -> bool:
    """Whether the backward pass of a kernel runs other kernels when it is not watched."""
    if not isinstance(func, OpOverload):
        return False
    return not _OTHER_GRADIENTS.isdisjoint((kernel_name(func), overload_name(func)))


def depends_on_values(func: Any, question: Question | None) -> bool:
    """Whether what a kernel takes for itself was measured on values that decide it, and are not its own."""
    return kernel_name(func) in _BY_VALUES or not knows_values(func, question)
