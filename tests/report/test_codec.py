"""Reports travel as JSON and come back equal."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import given, strategies as st

import build
import modelglass as mg
from modelglass.analyses.cost import cost, priced
from modelglass.analyses.counts import count
from modelglass.errors import ReportFormatError
from modelglass.report import Report, Value
from modelglass.report.codec import dumps, loads, schema
from models import SAMPLES

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema" / "report-1.json"


@pytest.mark.parametrize("sample", SAMPLES)
def test_reports_read_back_equal_and_fit_the_schema(sample: str, tmp_path: Path) -> None:
    model, inputs = SAMPLES[sample]()
    report = mg.inspect(model, inputs=inputs, train=True, on_failure="report")
    mg.save(report, tmp_path / "report.json")
    assert mg.load(tmp_path / "report.json") == report
    jsonschema.validate(json.loads(dumps(report)), schema())


def test_the_published_schema_is_the_one_in_force() -> None:
    assert json.loads(PUBLISHED.read_text()) == schema()


def test_the_same_report_gives_the_same_text() -> None:
    model = torch.nn.Linear(3, 8)
    x = torch.zeros(2, 3)
    assert dumps(mg.inspect(model, inputs=x)) == dumps(mg.inspect(model, inputs=x))


names = st.text(max_size=12)
values = st.builds(
    Value,
    name=names,
    shape=st.none() | st.lists(st.integers(0, 2**40), max_size=4).map(tuple),
    dtype=st.none() | st.sampled_from(["float32", "int64", "complex64"]),
    text=st.none() | names,
)


@given(st.lists(values, max_size=4), st.lists(names, unique=True, max_size=4))
def test_any_text_and_any_size_survive(inputs: list[Value], tensor_names: list[str]) -> None:
    tensors = [build.tensor(name) for name in tensor_names]
    call = build.call(inputs=tuple(inputs), outputs=tuple(inputs))
    model = priced(build.model(*tensors, calls=(call,)))
    report = Report(model=model, counts=count(model), cost=cost(model))
    assert loads(dumps(report)) == report


WRONG = {
    "not JSON": ("{", "not JSON"),
    "a list": ("[]", "not a modelglass report"),
    "another document": ('{"format": "x"}', "not a modelglass report"),
    "another version": ('{"format": "modelglass-report", "version": 99}', "version 99"),
    "a strange mode": (
        '{"format": "modelglass-report", "version": 1, "model": {"name": "a", "source": "b"},'
        ' "run": {"mode": "z"}}',
        "'z' is none of",
    ),
    "a name that is a number": (
        '{"format": "modelglass-report", "version": 1, "model": {"name": 3, "source": "b"}}',
        "3 is no str",
    ),
    "too deep": ('{"a":' * 100_000, "not JSON"),
    "no model": ('{"format": "modelglass-report", "version": 1}', "cannot be read"),
    "strange field": (
        '{"format": "modelglass-report", "version": 1, "model": {"name": "a", "source": "b", "x": 1}}',
        "unknown fields",
    ),
    "wrong shape": (
        '{"format": "modelglass-report", "version": 1, "model": {"name": "a", "source": "b", "modules": 3}}',
        "cannot be read",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_report_is_told(case: str, tmp_path: Path) -> None:
    text, message = WRONG[case]
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(ReportFormatError, match=message):
        mg.load(path)


def test_a_report_shows_itself_in_one_line() -> None:
    report = mg.inspect(torch.nn.Linear(3, 8), inputs=torch.zeros(2, 3))
    assert repr(report) == "<Report of Linear (torch), 32 parameters, 48 MACs>"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(mg.InspectError, match="cannot write"):
        mg.save(mg.inspect(torch.nn.Linear(3, 8)), tmp_path / "no" / "report.json")


def test_a_missing_report_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReportFormatError, match="cannot be read"):
        mg.load(tmp_path / "none.json")


def test_what_is_no_report_is_not_saved(tmp_path: Path) -> None:
    report = mg.inspect(torch.nn.Linear(3, 8), torch.ones(1, 3))
    fit = mg.fit(torch.nn.Linear(3, 8), torch.ones(1, 3), device_nbytes=1 << 20, options=False)
    for made, hint in (
        (mg.flow(report), r'mg\.render\(flow, "json"\)'),
        (fit, r'mg\.render\(fit, "json"\)'),
        ("a text", r"save what mg\.inspect returns"),
    ):
        with pytest.raises(mg.InspectError, match=hint):
            mg.save(made, tmp_path / "r.json")  # type: ignore[arg-type]
    assert not (tmp_path / "r.json").exists()
