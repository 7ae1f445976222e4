"""Cost adds up operators; a hole shows."""

from __future__ import annotations

import build
from modelglass.analyses.cost.cost import cost, with_macs

PRODUCT = build.kernel("aten.mm", build.value("self", 2, 3), build.value("mat2", 3, 5), output=(2, 5))
MYSTERY = build.kernel("mylib.mystery", build.value("x", 2))


def test_phases_and_modules_add_up() -> None:
    modules = (build.module("", children=("a",)), build.module("a"))
    ops = (
        build.op("x", PRODUCT, module="a"),
        build.op("y", PRODUCT, PRODUCT, module="a", phase="backward"),
        build.op("z", PRODUCT, phase="recompute"),
    )
    result = cost(with_macs(build.model(modules=modules, ops=ops)))
    assert (result.forward_macs, result.backward_macs, result.recompute_macs) == (30, 60, 30)
    assert (result.macs, result.flops) == (120, 240)
    assert result.by_module["a"].own_macs == 90
    assert result.by_module[""].total_macs == 120


def test_an_unknown_kernel_makes_its_operator_unknown() -> None:
    model = with_macs(build.model(ops=(build.op("x", PRODUCT, MYSTERY), build.op("y", PRODUCT))))
    assert [op.macs for op in model.ops] == [None, 30]
    result = cost(model)
    assert (result.macs, result.unknown_ops) == (30, {"mylib::mystery": 1})
    assert round(result.coverage, 3) == 0.667
    assert not result.complete


def test_an_opaque_operator_is_priced_by_its_own_formula() -> None:
    op = build.op(
        "torch.quantized_lstm",
        overload="aten.quantized_lstm.input",
        attributes={"num_layers": 2, "bidirectional": True},
        inputs=(build.value("input", 5, 2, 10), build.value("hx.0", 4, 2, 20)),
    )
    assert with_macs(build.model(ops=(op,))).ops[0].macs == 144_000
