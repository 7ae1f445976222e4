"""Calls of MLX modules, and which of them each operator ran in."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar, get_args

import mlx.core as mx
import pytest
from mlx import nn

import modelglass as mg
from modelglass.report import Phase, RunMode

X = mx.zeros((2, 4))


def owned(report: mg.Report, module: str) -> Counter[str]:
    return Counter(op.name for op in report.model.ops if op.module == module)


def calls(report: mg.Report) -> list[tuple[str, tuple[Any, ...]]]:
    return [(call.module, tuple(value.shape for value in call.outputs)) for call in report.model.calls]


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def __call__(self, x: mx.array, *, scale: float = 2.0) -> mx.array:
        kept = mx.sin(x)  # made before the calls, used after them
        y = self.first(mx.cos(x))
        return kept + scale * self.second(y)


def test_an_operator_belongs_to_the_innermost_call_in_which_it_came_to_be() -> None:
    report = mg.inspect(Residual(), X)
    assert calls(report) == [("", ((2, 4),)), ("first", ((2, 4),)), ("second", ((2, 4),))]
    linear = {"mx.transpose": 1, "mx.broadcast_to": 1, "mx.addmm": 1}
    assert owned(report, "first") == owned(report, "second") == linear
    root = owned(report, "")
    assert (root["mx.sin"], root["mx.cos"], root["mx.multiply"], root["mx.add"]) == (1, 1, 1, 1)
    for op in report.model.ops:
        assert report.model.calls[op.call or 0].module == op.module


def test_inputs_and_outputs_are_named_by_the_way_to_them() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def __call__(self, x: mx.array) -> dict[str, Any]:
            hidden, (left, right) = self.inner(x, pair=[x, 3], mask=None)
            return {"logits": hidden, "aux": (left, right, "text")}

    class Inner(nn.Module):
        def __call__(self, x: mx.array, *, pair: Any, mask: Any) -> Any:
            return x + 1, (x[:1], pair[0] * pair[1])

    report = mg.inspect(Many(), X)
    inner = report.model.calls[1]
    assert [(v.name, v.shape, v.text) for v in inner.inputs] == [
        ("0", (2, 4), None),
        ("pair.0", (2, 4), None),
        ("pair.1", None, "3"),
        ("mask", None, "None"),
    ]
    assert [(v.name, v.shape) for v in inner.outputs] == [("0", (2, 4)), ("1.0", (1, 4)), ("1.1", (2, 4))]
    assert [(v.name, v.shape) for v in report.run.outputs] == [
        ("logits", (2, 4)),
        ("aux.0", (1, 4)),
        ("aux.1", (2, 4)),
        ("aux.2", None),
    ]


def test_a_module_that_is_called_twice_works_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shared = nn.Linear(4, 4)
            self.other = self.shared

        def __call__(self, x: mx.array) -> mx.array:
            return self.shared(x) + self.other(x)  # of the very same input

    report = mg.inspect(Twice(), X)
    assert [call.module for call in report.model.calls] == ["", "shared", "shared"]
    assert report.cost is not None
    assert report.cost.macs == 2 * 2 * 4 * 4
    assert owned(report, "shared")["mx.addmm"] == 2


def test_functions_among_the_steps_of_a_sequential_are_seen_when_called() -> None:
    model = nn.Sequential(nn.Linear(4, 3), mx.tanh, nn.gelu, lambda x: x.sum(axis=-1))
    steps = list(model.layers)
    report = mg.inspect(model, X)
    assert calls(report) == [
        ("", ((2,),)),
        ("layers.0", ((2, 3),)),
        ("layers.1", ((2, 3),)),
        ("layers.2", ((2, 3),)),
        ("layers.3", ((2,),)),
    ]
    types = {module.path: module.type for module in report.model.modules}
    assert [types[f"layers.{i}"] for i in range(4)] == ["Linear", "tanh", "gelu", "<lambda>"]
    assert owned(report, "layers.1") == {"mx.tanh": 1}
    assert all(now is before for now, before in zip(model.layers, steps, strict=True))


def test_weights_are_named_where_operators_read_them() -> None:
    report = mg.inspect(nn.Linear(4, 3), X)
    read = {value.tensor for op in report.model.ops for value in op.inputs}
    assert read == {None, "weight", "bias"}


def test_what_no_output_needs_is_not_counted_and_told() -> None:
    class Auxiliary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main = nn.Linear(4, 4)
            self.aux = nn.Linear(4, 400)

        def __call__(self, x: mx.array) -> mx.array:
            self.aux(x)
            return self.main(x)

    report = mg.inspect(Auxiliary(), X)
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 4
    assert owned(report, "aux") == {}
    assert [call.module for call in report.model.calls] == ["", "aux", "main"]
    (note,) = [note for note in report.notes if note.code == "unneeded-work"]
    assert note.where == ("aux",)


def test_an_output_in_an_object_nobody_can_look_into_hides_no_work() -> None:
    class Box:
        def __init__(self, value: mx.array) -> None:
            self.value = value

    class Boxed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def __call__(self, x: mx.array) -> Box:
            return Box(self.linear(x))

    report = mg.inspect(Boxed(), X)
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 4


def test_a_model_that_looks_at_values_runs_on_its_own_arrays() -> None:
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def __call__(self, x: mx.array) -> mx.array:
            return self.linear(x) if x.sum().item() > 1 else x

    report = mg.inspect(Chooses(), mx.ones((2, 4)))
    assert [call.module for call in report.model.calls] == ["", "linear"]
    assert report.run.mode == "real"
    assert report.cost is None
    assert "real-run" in {note.code for note in report.notes}


def test_a_call_that_raises_is_the_last_and_everything_before_it_is_there() -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 8)
            self.second = nn.Linear(5, 8)
            self.third = nn.Linear(8, 8)

        def __call__(self, x: mx.array) -> mx.array:
            return self.third(self.second(self.first(x)))

    model = Breaks()
    report = mg.inspect(model, X, on_failure="report")
    failure = report.run.failure
    assert failure is not None
    assert (failure.module, failure.module_type, failure.error) == ("second", "Linear", "ValueError")
    assert [value.shape for value in failure.inputs] == [(2, 8)]
    assert [(call.module, call.completed) for call in report.model.calls] == [
        ("", False),
        ("first", True),
        ("second", False),
    ]
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 8
    assert type(model) is Breaks
    assert type(model.first) is nn.Linear


@pytest.mark.parametrize("dims", [1, 2, 3], ids=["1d", "2d", "3d"])
def test_channels_first_is_met_with_a_hint(dims: int) -> None:
    conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims](3, 8, 3)
    report = mg.inspect(conv, mx.zeros((1, 3, *[16] * dims)), on_failure="report")
    assert report.run.failure is not None
    assert f"(1,3{',16' * dims})" in report.run.failure.message
    assert "channels-last" in {note.code for note in report.notes}
    good = mg.inspect(conv, mx.zeros((1, *[16] * dims, 3)))
    assert good.run.failure is None


class Registered(nn.Module):
    heard: ClassVar[list[str]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        Registered.heard.append(cls.__name__)

    def __call__(self, x: mx.array) -> mx.array:
        return x + 1


class Child(Registered):
    def __call__(self, x: mx.array) -> mx.array:
        return super().__call__(x) * 2


def test_nobodys_subclass_hook_hears_of_it_and_no_subclass_is_left() -> None:
    Registered.heard.clear()
    report = mg.inspect(nn.Sequential(Child(), Registered()), X)
    assert [call.module for call in report.model.calls] == ["", "layers.0", "layers.1"]
    assert Registered.heard == []
    assert Registered.__subclasses__() == [Child]
    assert Child.__subclasses__() == []


def test_a_model_that_cannot_be_called_says_so() -> None:
    class Bare(nn.Module):
        pass

    report = mg.inspect(Bare(), X, on_failure="report")
    assert report.run.failure is not None
    assert "not callable" in report.run.failure.message


class Unwritable(nn.Module):
    """With a checkpointed part and a contiguous copy, neither of which MLX can export."""

    def __init__(self, unwritable: bool) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.inner = nn.Linear(8, 8)
        self.last = nn.Linear(8, 2)
        self._unwritable = unwritable

    def __call__(self, x: mx.array) -> tuple[mx.array, dict[str, mx.array]]:
        part = mx.checkpoint(self._part) if self._unwritable else self._part
        hidden = part(self.first(x))
        kept = mx.contiguous(hidden) if self._unwritable else hidden
        return self.last(kept), {"hidden": hidden}

    def _part(self, x: mx.array) -> mx.array:
        return mx.tanh(self.inner(x))


def test_what_mlx_cannot_write_down_hides_no_work_of_other_calls() -> None:
    plain, told = mg.inspect(Unwritable(False), X), mg.inspect(Unwritable(True), X)
    assert plain.cost is not None
    assert told.cost is not None
    assert told.cost.macs == plain.cost.macs == 2 * (4 * 8 + 8 * 8 + 8 * 2)
    assert told.cost.complete
    assert calls(told) == calls(plain)
    assert {op.module for op in told.model.ops if op.macs} == {"first", "inner", "last"}
    assert "shapes-unknown" in {note.code for note in told.notes}
    assert [node.label for node in mg.flow(told).nodes] == [node.label for node in mg.flow(plain).nodes]


def test_the_product_of_a_layer_that_quantizes_its_input_is_counted() -> None:
    layer = nn.QQLinear(32, 64, mode="nvfp4")
    plain = mg.inspect(layer, mx.zeros((2, 32)))
    assert plain.cost is not None
    assert plain.cost.macs == 2 * 32 * 64


def test_an_error_that_was_caught_takes_no_blame_for_a_later_one() -> None:
    class Catches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wrong = nn.Linear(5, 4)

        def __call__(self, x: mx.array) -> mx.array:
            for _ in range(3):
                with suppress(ValueError):
                    self.wrong(x)
            raise ValueError("the model's own")

    failure = mg.inspect(Catches(), X, on_failure="report").run.failure
    assert failure is not None
    assert (failure.module, failure.message) == ("", "the model's own")


def test_a_model_that_wraps_the_want_of_values_runs_on_its_own_arrays() -> None:
    class Wraps(nn.Module):
        def __call__(self, x: mx.array) -> mx.array:
            try:
                return x * float(x.sum())
            except ValueError as error:
                raise RuntimeError("no number") from error

    report = mg.inspect(Wraps(), mx.ones((2, 4)))
    assert report.run.failure is None
    assert report.run.mode == "real"


def test_a_checkpointed_block_is_called_again_for_its_gradient() -> None:
    class Saves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 8), nn.Tanh())
            self.last = nn.Linear(8, 4)

        def __call__(self, x: mx.array) -> mx.array:
            return self.last(nn.utils.checkpoint(self.block)(x))

    report = mg.inspect(Saves(), X, train=True)
    called = {phase: [c.module for c in report.model.calls if c.phase == phase] for phase in get_args(Phase)}
    block = ["block", "block.layers.0", "block.layers.1"]
    assert called == {"forward": ["", *block, "last"], "backward": [], "recompute": block}
    recomputed = {(op.module, op.name) for op in report.model.ops if op.phase == "recompute"}
    assert ("block.layers.0", "mx.addmm") in recomputed
    assert "unneeded-work" not in {note.code for note in report.notes}


def test_more_token_ids_than_a_size_may_count() -> None:
    report = mg.inspect(nn.Embedding(10, 4), input_shape=(2**20, 2**4), batch_size=2**9)
    assert report.run.failure is None
    assert report.run.outputs[0].shape == (2**9, 2**20, 2**4, 4)


def test_arrays_whose_names_read_alike_are_two() -> None:
    class Alike(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = {"b.c": mx.zeros(2), "b": {"c": mx.zeros(3)}}

    report = mg.inspect(Alike())
    assert report.counts is not None
    assert report.counts.params == 5
    assert [tensor.name for tensor in report.model.tensors] == ["a.b.c", "a.b.c'"]


@pytest.mark.slow
def test_functions_that_mlx_compiles_are_seen_through_in_a_process_that_compiles() -> None:
    code = (
        "import mlx.core as mx, modelglass as mg; from mlx import nn;"
        "report = mg.inspect(nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.SiLU()), mx.zeros((2, 4)));"
        "print(report.cost.macs, sorted({op.name for op in report.model.ops if op.module == 'layers.1'}))"
    )
    settings = {key: value for key, value in os.environ.items() if key != "MLX_DISABLE_COMPILE"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=settings, check=True
    )
    assert done.stdout.startswith("32 ")
    assert "mx.erf" in done.stdout


def with_layers(call: Callable[..., Any], **layers: Any) -> nn.Module:
    """A model with these layers that does that."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers.items():
                setattr(self, name, layer)

        __call__ = call

    return Model()


def test_a_model_that_looks_at_classes_goes_its_own_way() -> None:
    def call(self: Any, x: mx.array) -> mx.array:
        return self.a(x) if type(self.a) is nn.Linear else self.b(x)

    report = mg.inspect(with_layers(call, a=nn.Linear(4, 8), b=nn.Linear(4, 2)), X)
    assert report.run.outputs[0].shape == (2, 8)
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 8
    assert "unwatched" in {note.code for note in report.notes}

    def checks(self: Any, x: mx.array) -> mx.array:
        assert type(self.a) is nn.Linear
        return self.a(x)

    checked = mg.inspect(with_layers(checks, a=nn.Linear(4, 8)), X)
    assert checked.run.failure is None
    assert checked.cost is not None
    assert checked.cost.macs == 2 * 4 * 8


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy], ids=["shallow", "deep"])
def test_a_layer_that_the_model_copies_is_of_the_users_class_and_works(duplicate: Callable[..., Any]) -> None:
    def call(self: Any, x: mx.array) -> mx.array:
        made = duplicate(self.a)
        assert type(made) is nn.Linear
        return made(x)

    report = mg.inspect(with_layers(call, a=nn.Linear(4, 8)), X)
    assert report.run.failure is None
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 8


def test_work_whose_result_stays_in_the_model_or_a_cache_is_counted_where_it_ran() -> None:
    class Cache:
        def __init__(self) -> None:
            self.state = mx.zeros((4, 4))

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = mx.zeros((4, 4))

        def __call__(self, x: mx.array, cache: Cache) -> mx.array:
            cache.state = cache.state @ self.weight
            return x

    def call(self: Any, x: mx.array, cache: Cache) -> mx.array:
        self.seen = self.a(x)
        return self.inner(x, cache) + 1

    model, cache = with_layers(call, a=nn.Linear(4, 8), inner=Inner()), Cache()
    before = cache.state
    report = mg.inspect(model, (X, cache))
    assert report.cost is not None
    own = {path: each.own_macs for path, each in report.cost.by_module.items()}
    assert own == {"": 0, "a": 2 * 4 * 8, "inner": 4 * 4 * 4}
    assert "unneeded-work" not in {note.code for note in report.notes}
    assert cache.state is before
    assert "seen" not in model


def test_under_vmap_nothing_is_called_unneeded() -> None:
    def call(self: Any, x: mx.array) -> mx.array:
        return mx.vmap(self.a)(x)

    report = mg.inspect(with_layers(call, a=nn.Linear(4, 8)), X)
    assert report.cost is not None
    assert report.cost.macs == 2 * 4 * 8
    assert "unneeded-work" not in {note.code for note in report.notes}


@pytest.mark.parametrize("run", ["fake", "real"])
def test_objects_that_a_model_writes_into_keep_their_values(run: RunMode) -> None:
    def call(self: Any, x: mx.array) -> mx.array:
        x[:, 0] = 5.0
        self.w[0] = 3.0
        self.w += 1
        if float(self.w.sum()) > 0:  # which no stand-in can tell
            return x @ self.w
        return x

    model, x = with_layers(call, w=mx.ones((4, 4))), mx.ones((2, 4))
    report = mg.inspect(model, x, run=run)
    assert report.run.failure is None
    assert model.w.tolist() == [[1.0] * 4] * 4
    assert x.tolist() == [[1.0] * 4] * 2


def test_an_input_that_is_written_into_stays_the_input() -> None:
    def call(self: Any, x: mx.array) -> mx.array:
        x[:, 0] = 5.0
        return self.a(x)

    report = mg.inspect(with_layers(call, a=nn.Linear(4, 8)), X)
    assert report.memory is not None
    assert report.memory.by_category["inputs"] == X.nbytes
    assert mg.flow(report).nodes[0].label == "x"
    written = [op for op in report.model.ops if op.name in ("mx.slice_update", "mx.array.at")]
    assert all(op.module == "" for op in written)


def test_an_asynchronous_evaluation_is_a_want_of_values() -> None:
    def call(self: Any, x: mx.array) -> mx.array:
        y = self.a(x)
        mx.async_eval(y)
        return y

    report = mg.inspect(with_layers(call, a=nn.Linear(4, 8)), X)
    assert report.run.failure is None
    assert report.run.mode == "real"
