"""When forward raises, the report holds all up to there; what fake tensors cannot run, runs for real."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from models import Apply, Branching


def test_a_failure_names_the_layer_the_shapes_and_the_error() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(5, 2)))
    report = mg.inspect(model, inputs=torch.randn(2, 3), on_failure="report")
    failure = report.run.failure
    assert (failure.module, failure.module_type, failure.error) == ("2.0", "Linear", "RuntimeError")
    assert (
        failure.message.removeprefix("addmm: ") == "mat1 and mat2 shapes cannot be multiplied (2x4 and 5x2)"
    )
    assert failure.op == "torch.nn.functional.linear"
    assert [(v.name, v.shape) for v in failure.inputs] == [
        ("input", (2, 4)),
        ("weight", (2, 5)),
        ("bias", (2,)),
    ]
    assert [(c.module, c.completed) for c in report.model.calls] == [
        ("", False),
        ("0", True),
        ("1", True),
        ("2", False),
        ("2.0", False),
    ]
    assert report.cost.macs == 24
    assert report.counts.params == 28
    assert next(n for n in report.notes if n.code == "forward-failed").severity == "error"


def test_a_failure_on_meta_weights_is_reported_as_well() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)).to("meta")
    failure = mg.inspect(model, inputs=torch.randn(2, 3), on_failure="report").run.failure
    assert (failure.module, failure.error) == ("1", "RuntimeError")


def test_wrong_arguments_are_a_failure_of_the_root() -> None:
    failure = mg.inspect(nn.Linear(3, 4), inputs=(torch.randn(2, 3), 1, 2), on_failure="report").run.failure
    assert (failure.module, failure.error) == ("", "TypeError")


def test_an_error_the_model_catches_is_no_failure() -> None:
    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        try:
            return self.wide(x)
        except RuntimeError:
            return self.right(x)

    model = Apply(body, wide=nn.Linear(9, 9), right=nn.Linear(4, 4))
    report = mg.inspect(model, inputs=torch.randn(2, 4))
    assert report.run.failure is None
    assert report.cost.macs == 32
    assert [op.index for op in report.model.ops] == list(range(len(report.model.ops)))


def test_value_dependent_control_flow_runs_for_real_with_a_note() -> None:
    model = Branching()
    mean = model.norm.running_mean.clone()
    report = mg.inspect(model, inputs=torch.randn(3, 4))
    assert report.run.mode == "real"
    assert report.cost.macs == 3 * 4 * 8
    assert [note.code for note in report.notes] == ["real-run"]
    assert torch.equal(model.norm.running_mean, mean)


def test_numpy_inside_forward_runs_for_real() -> None:
    model = Apply(lambda self, x: self.fc(torch.from_numpy(x.numpy() + 1)), fc=nn.Linear(4, 4))
    report = mg.inspect(model, inputs=torch.randn(2, 4))
    assert (report.run.mode, report.run.failure, report.cost.macs) == ("real", None, 32)


def test_value_dependence_without_values_says_so() -> None:
    report = mg.inspect(Branching().to("meta"), inputs=torch.randn(3, 4), on_failure="report")
    assert report.run.mode == "fake"
    assert "DataDependent" in report.run.failure.error


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_a_real_run_without_values_is_refused(kind: str) -> None:
    model = nn.Linear(2, 2, device="meta" if kind == "meta" else None)
    if kind == "fake":
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            model = nn.Linear(2, 2)
        assert mg.inspect(model, inputs=torch.zeros(1, 2)).cost.macs == 4
    with pytest.raises(mg.InspectError, match="needs values"):
        mg.inspect(model, inputs=torch.zeros(1, 2), run="real")


def test_interruption_is_not_swallowed() -> None:
    def stop(self: nn.Module, x: torch.Tensor) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mg.inspect(Apply(stop), inputs=torch.zeros(1))
    assert torch.zeros(1).item() == 0


BLAMED = "return self.fc(x)  # the line that is to blame"


class Narrow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)  # the line that is to blame


@pytest.mark.parametrize("how", [{}, {"run": "real"}, {"train": True}], ids=str)
def test_a_failure_raises_with_the_report_and_the_line_of_the_models_code(how: dict[str, Any]) -> None:
    model = nn.Sequential(nn.Linear(3, 4), Narrow())
    with pytest.raises(
        mg.ForwardError, match=r"1\.fc raised RuntimeError: (addmm: )?mat1 and mat2"
    ) as raised:
        mg.inspect(model, torch.randn(2, 3), **how)
    error = raised.value
    assert Path(error.file).name == Path(__file__).name
    assert linecache.getline(__file__, error.line).strip() == BLAMED
    assert error.report.run.failure.source.text == BLAMED
    assert error.report.cost.macs == 24
    assert "input: 2x4 float32, weight: 2x5 float32" in error.hint


def test_where_only_the_frameworks_own_layers_run_no_line_is_blamed() -> None:
    with pytest.raises(mg.ForwardError) as raised:
        mg.inspect(nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2)), torch.randn(2, 3))
    assert (raised.value.file, raised.value.line) == (None, None)


@pytest.mark.slow
def test_code_without_a_source_is_blamed_by_name() -> None:
    space: dict[str, Any] = {"__name__": "made", "nn": nn}
    source = "class Made(nn.Module):\n    def forward(self, x):\n        return x.nosuch\n"
    exec(compile(source, "<a cell>", "exec"), space)
    with pytest.raises(mg.ForwardError, match="AttributeError") as raised:
        mg.inspect(space["Made"](), torch.randn(2, 3))
    assert (raised.value.file, raised.value.line) == ("<a cell>", 3)
    assert raised.value.report.run.failure.source.text == ""


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, x: mg.fit(model, x, device_nbytes=2**30),
        lambda model, x: mg.model_info(model, x),
        lambda model, x: mg.extract_unique_modules(lambda: model, lambda: x),
        lambda model, x: mg.flow(mg.inspect(model, x, on_failure="report")),
        lambda model, x: mg.compare_structure(model, nn.Linear(3, 4), inputs=x),
    ],
    ids=["fit", "model info", "unique modules", "flow", "compare"],
)
def test_whoever_needs_the_whole_run_raises_the_same(ask: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(mg.ForwardError, match=r"fc raised RuntimeError"):
        ask(Narrow(), torch.randn(2, 3))


def test_a_summary_shows_how_far_the_run_came() -> None:
    text = mg.summary(nn.Sequential(nn.Linear(3, 4), Narrow()), (3,))
    assert "1.fc (Linear) raised RuntimeError" in text
    assert text.report.run.failure.module == "1.fc"


def test_a_report_of_a_failure_reads_back_equal(tmp_path: Path) -> None:
    report = mg.inspect(Narrow(), torch.randn(2, 3), on_failure="report")
    mg.save(report, tmp_path / "report.json")
    assert mg.load(tmp_path / "report.json") == report


def test_what_to_do_on_failure_is_one_of_two() -> None:
    with pytest.raises(mg.InspectError, match="on_failure='ignore' is not known"):
        mg.inspect(Narrow(), torch.randn(2, 3), on_failure="ignore")


@pytest.mark.parametrize("train", [False, True])
def test_what_a_failed_run_did_not_reach_is_unknown(train: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(5, 4), nn.Linear(4, 4))
    report = mg.inspect(model, torch.ones(2, 4), train=train, on_failure="report")
    cost = report.cost
    assert cost is not None
    assert (cost.macs, cost.coverage, cost.complete, report.memory) == (32, None, False, None)
    by_path = {path: (each.total_macs, each.complete) for path, each in cost.by_module.items()}
    assert by_path == {"": (32, False), "0": (32, not train), "1": (0, False), "2": (None, False)}
    text = mg.render(report, "text")
    assert "≥ 32" in text
    assert "100 % of contractions" not in text
