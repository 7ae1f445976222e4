"""Reports travel as JSON and come back equal."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import given, strategies as st

import build
import modelglass as mg
from modelglass.analyses.cost.cost import cost, with_macs
from modelglass.analyses.counts import count
from modelglass.compat.schemas import published
from modelglass.errors import ReportFormatError
from modelglass.report import Finding, GlobalUse, Report, Scan, ScannedFile, Value
from modelglass.report.codec import Document, dumps, loads, schemas
from models import SAMPLES

SCHEMA = schemas()["report-1.json"]
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES)
def test_reports_read_back_equal_and_fit_the_schema(sample: str, tmp_path: Path) -> None:
    model, inputs = SAMPLES[sample]()
    report = mg.inspect(model, inputs=inputs, train=True, on_failure="report")
    mg.save(report, tmp_path / "report.json")
    assert mg.load(tmp_path / "report.json") == report
    jsonschema.validate(json.loads(dumps(report)), SCHEMA)


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


@pytest.mark.slow
@given(st.lists(values, max_size=4), st.lists(names, unique=True, max_size=4))
def test_any_text_and_any_size_survive(inputs: list[Value], tensor_names: list[str]) -> None:
    tensors = [build.tensor(name) for name in tensor_names]
    call = build.call(inputs=tuple(inputs), outputs=tuple(inputs))
    model = with_macs(build.model(*tensors, calls=(call,)))
    report = Report(model=model, counts=count(model), cost=cost(model))
    assert loads(dumps(report)) == report


WRONG = {
    "not JSON": ("{", "not JSON"),
    "a list": ("[]", "not a modelglass document"),
    "another document": ('{"format": "x"}', "not a modelglass document"),
    "another version": ('{"format": "modelglass-report", "version": 99}', "version 99"),
    "a strange mode": (
        '{"format": "modelglass-report", "version": 1, "model": {"name": "a", "source": "b"},'
        ' "run": {"mode": "z"}}',
        "'z' is not one of",
    ),
    "a name that is a number": (
        '{"format": "modelglass-report", "version": 1, "model": {"name": 3, "source": "b"}}',
        "3 is not of type str",
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


def test_what_is_not_a_document_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(mg.InspectError, match=r"save what mg\.inspect"):
        mg.save("a text", tmp_path / "r.json")  # type: ignore[arg-type]
    assert not (tmp_path / "r.json").exists()


def _documents() -> dict[str, Document]:
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5)), torch.ones(2, 3)
    report = mg.inspect(model, x, symbols=True)
    use = GlobalUse(name="os.system", kind="call", file="a.pt", offset=3, arguments="('true',)")
    odd = Finding(
        code="a.b",
        level="high",
        text="odd",
        file="a.pt",
        details={"nan": math.nan, "long": 1 << 20_000, "t": (1,)},
    )
    file = ScannedFile(path="a.pt", format="torch", nbytes=9, read_nbytes=9, globals=(use,), findings=(odd,))
    return {
        "report": report,
        "comparison": mg.compare(model, torch.nn.Linear(3, 8)),
        "diff": mg.diff(model, torch.nn.Sequential(torch.nn.Linear(3, 8))),
        "flow": mg.flow(report),
        "fit": mg.fit(model, x, device_nbytes=1 << 30, train=True),
        "scan": Scan(files=(file,)),
        "unique": mg.unique(report),
    }


DOCUMENTS = _documents()


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_noun_is_read_back_equal_and_fits_its_schema(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.json"
    mg.save(DOCUMENTS[kind], path)
    document = json.loads(path.read_text())
    assert mg.load(path, type(DOCUMENTS[kind])) == DOCUMENTS[kind]
    assert loads(dumps(DOCUMENTS[kind])) == DOCUMENTS[kind]
    assert document["modelglass"] == mg.__version__
    jsonschema.validate(document, schemas()[f"{kind}-1.json"])


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_what_another_modelglass_wrote_may_have_fields_that_are_not_known(kind: str) -> None:
    document = json.loads(dumps(DOCUMENTS[kind])) | {"modelglass": "99.0", "novelty": [1]}
    assert loads(json.dumps(document)) == DOCUMENTS[kind]
    with pytest.raises(ReportFormatError, match="version 2"):
        loads(json.dumps(document | {"version": 2}))


def test_recomputation_reads_back_under_the_name_that_it_had_first() -> None:
    model, x = torch.nn.Linear(3, 8), torch.ones(2, 3)
    report = mg.inspect(model, x, train=True, what_if=mg.WhatIf(recompute=("*",)))
    document = json.loads(dumps(report))
    document["memory"]["what_if"]["checkpoint"] = document["memory"]["what_if"].pop("recompute")
    assert loads(json.dumps(document)) == report
    document["memory"]["what_if"]["removed"] = 1
    with pytest.raises(ReportFormatError, match="unknown fields"):
        loads(json.dumps(document))


@pytest.mark.parametrize("name", published())
def test_the_published_schema_is_what_the_code_makes(name: str) -> None:
    assert json.loads((DOCS / "schema" / name).read_text()) == published()[name]


@pytest.mark.parametrize("kind", sorted(DOCUMENTS.keys() - {"report"}))
def test_a_saved_answer_is_not_a_model(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.json"
    mg.save(DOCUMENTS[kind], path)
    with pytest.raises(mg.InspectError, match=f"holds a {kind.capitalize()}, not a model"):
        mg.inspect(path)
