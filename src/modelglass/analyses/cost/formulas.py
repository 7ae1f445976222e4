"""Multiply-accumulates of one kernel, as pure functions of the shapes it met.

Convention: contractions only (products that are summed over an index): matrix products, convolutions,
attention scores and their application, recurrent gates. Bias, normalisation, softmax and element-wise work
count zero; zeros that padding adds count like any other element. Kernels are named as `namespace.name`.

Names that do arithmetic and are in none of the tables are unknown: better a hole than a guess.
"""

from __future__ import annotations

from modelglass.analyses.cost.aten_formulas import ATEN_FORMULAS
from modelglass.analyses.cost.contractions import Formula, MissingShapeError
from modelglass.analyses.cost.free_kernels import is_free, is_other
from modelglass.analyses.cost.mlx_formulas import MLX_FORMULAS
from modelglass.errors import FormulaError
from modelglass.report import Kernel
from modelglass.report.dtypes import is_complex

FORMULAS: dict[str, Formula] = {**ATEN_FORMULAS, **MLX_FORMULAS}

COMPLEX_FACTOR = 4  # one complex product is four real ones


def macs_of(kernel: Kernel) -> int | None:
    """The kernel's multiply-accumulates; 0 when it contracts nothing; None when no formula covers it."""
    own = _registered.get(kernel.name)
    if own is not None:
        return _users_answer(own, kernel)
    formula = FORMULAS.get(_in_place_aside(kernel.name))
    if formula is None:
        return 0 if is_free(kernel.name) or is_other(kernel.name) else None
    try:
        macs = formula(kernel)
    except MissingShapeError:
        return None
    if macs and any(is_complex(value.dtype) for value in kernel.inputs):
        return COMPLEX_FACTOR * macs
    return macs


def _users_answer(formula: Formula, kernel: Kernel) -> int | None:
    try:
        macs = formula(kernel)
    except Exception as cause:
        raise FormulaError(kernel.name, f"raised {type(cause).__name__}: {cause}") from cause
    if macs is not None and (type(macs) is not int or macs < 0):
        raise FormulaError(kernel.name, f"returned {macs!r}")
    return macs


def _in_place_aside(name: str) -> str:
    """`aten.addmm_` does what `aten.addmm` does."""
    return name.removesuffix("_")


def register_formula(name: str, formula: Formula | None) -> None:
    """Say what an operator costs: `formula` takes the `Kernel` and returns its multiply-accumulates.

    It wins over a built-in one of the same name; None takes it away again.

    >>> register_formula("mylib::attention", lambda kernel: kernel.outputs[0].numel * 64)
    >>> register_formula("mylib::attention", None)
    """
    key = name.replace("::", ".")
    if formula is None:
        _registered.pop(key, None)
    else:
        _registered[key] = formula


def has_formula(name: str) -> bool:
    """Whether the kernel is a contraction with a formula."""
    return name in _registered or _in_place_aside(name) in FORMULAS


def costs_nothing(name: str) -> bool:
    """Whether the kernel contracts nothing, and nobody has registered a formula that says otherwise."""
    return is_free(name) and name not in _registered


_registered: dict[str, Formula] = {}
