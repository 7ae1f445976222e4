"""Where an observed run is not what a real one is, so that a figure of it is an estimate.

torch asks in some formulas whether a tensor is an ordinary one, or what its values are, and takes a slower
way where that cannot be determined. No mode can change that. These kernels are known, and named.
"""

from __future__ import annotations

from typing import Any

import torch

from modelglass.frameworks.torch.memory.calibration import Question, knows_values
from modelglass.frameworks.torch.observing.recorder import Place
from modelglass.frameworks.torch.privates import VERSION, OpOverload
from modelglass.frameworks.torch.structure.naming import kernel_name, overload_name

# Their backward pass looks at values, or writes to what it has, unless it is watched. Some overloads do.
_OTHER_GRADIENTS = frozenset(
    {
        "aten.prod",
        "aten.cumprod",
        "aten.addcmul",
        "aten._linalg_det",
        "aten.clamp.Tensor",
        "aten.max.default",
        "aten.min.default",
        "aten.median.default",
        "aten.nanmedian.default",
        "aten.sgn",
        "aten.masked_fill.Tensor",
        "aten._ctc_loss.Tensor",
        "aten.linalg_householder_product",
        "aten.ormqr",
    }
)
# torch 2.15 has other formulas for these, whose memory was not understood.
_SINCE_2_15 = frozenset({"aten.fmax", "aten.fmin"})
if VERSION >= (2, 15):
    _OTHER_GRADIENTS |= _SINCE_2_15
_EIG, _EIGVALS = torch.ops.aten.linalg_eig.default, torch.ops.aten.linalg_eigvals.default
# They take memory for themselves by what the values are.
_BY_VALUES = frozenset({"aten.linalg_matrix_exp", "aten.isin", "aten.nonzero_static"})


def may_differ(func: Any) -> bool:
    """Whether a kernel or its backward pass may run other kernels when it is not watched."""
    if not isinstance(func, OpOverload):
        return False
    return func is _EIG or not _OTHER_GRADIENTS.isdisjoint((kernel_name(func), overload_name(func)))


def differs(func: Any, place: Place, trains: bool) -> bool:
    """Whether one that may differ does so here: eigenvectors that only gradients need, and any gradient."""
    return not trains and place.operator is _EIGVALS if func is _EIG else trains


def depends_on_values(func: Any, question: Question | None) -> bool:
    """Whether what a kernel takes for itself was measured on values that decide it, and are not its own."""
    return kernel_name(func) in _BY_VALUES or not knows_values(func, question)
