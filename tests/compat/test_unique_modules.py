"""The two documents about distinct modules and operators, key for key."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from torch import nn

import modelglass as mg
from models import SAMPLES, Apply, Tied, conv_stack, ids, llama

MODULE_KEYS = """
id class_name module_path parent input_shapes output_shapes input_dtypes output_dtypes parameters occurrences
""".split()
OP_KEYS = """
id op_name source_module_id source_module_class attributes tensor_types occurrences
""".split()
SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


def load_model() -> nn.Module:
    return conv_stack()


def get_inputs() -> torch.Tensor:
    return torch.randn(1, 3, 224, 224)


def extracted(load: Any, inputs: Any, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both documents, each the same as what was written."""
    paths = folder / "unique_modules.json", folder / "pytorch_ops.json"
    modules = mg.extract_unique_modules(load, inputs, paths[0])
    ops = mg.extract_pytorch_ops(paths[0], load, inputs, paths[1])
    assert [json.loads(path.read_text()) for path in paths] == [modules, ops]
    return modules, ops


def test_the_documents_own_example(tmp_path: Path) -> None:
    modules, ops = extracted(load_model, get_inputs, tmp_path)
    about = modules["metadata"]
    assert about["load_fn_location"] == "test_unique_modules.py:load_model"
    assert about["load_fn_name"] == "load_model"
    assert about["model_class"] == "Sequential"
    assert (about["total_modules"], about["unique_modules"]) == (7, 5)
    assert {key: modules["modules"][1][key] for key in MODULE_KEYS} == {
        "id": "mod_001",
        "class_name": "Conv2d",
        "module_path": "0",
        "parent": "(root)",
        "input_shapes": ["1x3x224x224"],
        "output_shapes": ["1x64x224x224"],
        "input_dtypes": ["float32"],
        "output_dtypes": ["float32"],
        "parameters": {
            "in_channels": 3,
            "out_channels": 64,
            "kernel_size": [3, 3],
            "stride": [1, 1],
            "padding": [1, 1],
            "dilation": [1, 1],
            "transposed": False,
            "output_padding": [0, 0],
            "groups": 1,
            "padding_mode": "zeros",
            "bias": True,
        },
        "occurrences": ["0"],
    }
    assert [module["occurrences"] for module in modules["modules"]] == [
        ["(root)"],
        ["0"],
        ["1", "4"],
        ["2", "5"],
        ["3"],
    ]
    about = ops["metadata"]
    assert about["source_modules_json"] == "unique_modules.json"
    assert (about["total_ops"], about["unique_ops"], about["total_macs"]) == (6, 4, 1_936_392_192)
    first = ops["ops"][0]
    assert list(first)[: len(OP_KEYS)] == OP_KEYS
    assert (first["id"], first["op_name"]) == ("op_000", "torch.conv2d")
    assert (first["source_module_id"], first["source_module_class"]) == ("mod_001", "Conv2d")
    assert first["attributes"] == {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    assert first["tensor_types"]["output"] == {"shape": "1x64x224x224", "dtype": "float32"}
    assert [each["shape"] for each in first["tensor_types"]["inputs"]] == ["1x3x224x224", "64x3x3x3", "64"]
    assert first["macs"] == 86_704_128
    assert ops["ops"][1]["occurrences"] == [
        {"source_module_id": "mod_002", "node_name": "batch_norm", "module_path": "1"},
        {"source_module_id": "mod_002", "node_name": "batch_norm_1", "module_path": "4"},
    ]


def runnable() -> list[str]:
    return [name for name in SAMPLES if name != "failing"]


@pytest.mark.parametrize("sample", runnable())
def test_the_tree_can_be_rebuilt(sample: str) -> None:
    """Parents and occurrences say where everything hangs, and what it is."""
    model, inputs = SAMPLES[sample]()
    document = mg.extract_unique_modules(lambda: model, lambda: inputs)
    built: dict[str, tuple[str, str | None]] = {}
    for module in document["modules"]:
        for path in module["occurrences"]:
            parent = None if path == "(root)" else path.rpartition(".")[0] or "(root)"
            built[path] = module["class_name"], parent
        assert module["module_path"] in module["occurrences"]
        assert module["parent"] == built[module["module_path"]][1]
    assert all(parent in built for _, parent in built.values() if parent is not None)
    named = dict(model.named_modules(remove_duplicate=False))
    assert {"" if path == "(root)" else path for path in built} == named.keys()
    for path, (class_name, _) in built.items():
        native = named["" if path == "(root)" else path]
        assert class_name == (getattr(native, "original_name", None) or type(native).__name__)
    about = document["metadata"]
    assert about["total_modules"] == len(list(model.modules()))
    assert about["total_modules"] + len(about["aliases"]) <= len(named)
    assert about["unique_modules"] == len(document["modules"])


@pytest.mark.parametrize("sample", runnable())
def test_every_operator_is_in_the_documents_once(sample: str, tmp_path: Path) -> None:
    model, inputs = SAMPLES[sample]()
    modules, ops = extracted(lambda: model, lambda: inputs, tmp_path)
    classes = {module["id"]: module["class_name"] for module in modules["modules"]}
    places = {module["id"]: module["occurrences"] for module in modules["modules"]}
    nodes = [node for op in ops["ops"] for node in op["occurrences"]]
    assert len(nodes) == ops["metadata"]["total_ops"] == len({node["node_name"] for node in nodes})
    for op in ops["ops"]:
        assert op["source_module_class"] == classes[op["source_module_id"]]
        assert op["source_module_id"] == op["occurrences"][0]["source_module_id"]
        assert all(node["module_path"] in places[node["source_module_id"]] for node in op["occurrences"])
    assert sum(op["total_macs"] for op in ops["ops"]) == ops["metadata"]["total_macs"]
    calls = sorted(call for module in modules["modules"] for call in module["calls"])
    assert calls == list(range(modules["metadata"]["total_calls"]))


@pytest.mark.parametrize("sample", runnable())
def test_modules_are_the_same_when_operators_are_observed_too(sample: str) -> None:
    """Functions that were called, which cost less to observe, tell calls apart as operators do."""
    model, inputs = SAMPLES[sample]()
    document = mg.extract_unique_modules(lambda: model, lambda: inputs)
    found = mg.unique(mg.inspect(model, inputs))
    assert [module["calls"] for module in document["modules"]] == [list(each.calls) for each in found.modules]


@pytest.mark.parametrize("sample", ["llama", "lstm", "convolutions", "branching"])
def test_nothing_varies_from_run_to_run_but_the_time(sample: str, tmp_path: Path) -> None:
    def both() -> tuple[dict[str, Any], ...]:
        model, inputs = SAMPLES[sample]()
        documents = extracted(lambda: model, lambda: inputs, tmp_path)
        for document in documents:
            assert document["metadata"].pop("timestamp")
        return documents

    assert both() == both()


@pytest.mark.parametrize("sample", runnable())
def test_documents_follow_their_schemas(sample: str, tmp_path: Path) -> None:
    model, inputs = SAMPLES[sample]()
    documents = extracted(lambda: model, lambda: inputs, tmp_path)
    for name, document in zip(("unique-modules", "pytorch-ops"), documents, strict=True):
        jsonschema.validate(document, json.loads((SCHEMAS / f"{name}-1.json").read_text()))


INPUTS: dict[str, tuple[Callable[[], Any], list[str], list[str]]] = {
    "tensor": (lambda: torch.ones(2, 3), ["0"], ["2x3"]),
    "tuple": (lambda: (torch.ones(2, 3), torch.ones(3)), ["0", "1"], ["2x3", "3"]),
    "list": (lambda: [torch.ones(2, 3), torch.ones(3)], ["0", "1"], ["2x3", "3"]),
    "dict": (lambda: {"x": torch.ones(2, 3), "y": torch.ones(3)}, ["x", "y"], ["2x3", "3"]),
    "keyword": (
        lambda: mg.Inputs((torch.ones(2, 3),), {"y": torch.ones(())}),
        ["0", "y"],
        ["2x3", "scalar"],
    ),
}


@pytest.mark.parametrize("form", INPUTS)
def test_inputs_in_every_form(form: str) -> None:
    make, names, shapes = INPUTS[form]
    document = mg.extract_unique_modules(lambda: Apply(lambda self, x, y=None: x), make)
    root = document["modules"][0]
    assert (root["input_names"], root["input_shapes"]) == (names, shapes)


def test_functions_may_be_named_or_partial(tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(
        "from torch import nn, ones\ndef make(): return nn.Linear(3, 3)\ndef x(): return ones(3)\n"
    )
    named = mg.extract_unique_modules(f"{source}::make", f"{source}::x")
    assert named["metadata"]["load_fn_location"] == "net.py:make"
    made = mg.extract_unique_modules(partial(nn.Linear, 3, 3), lambda: torch.ones(3))
    assert made["modules"] == named["modules"]


class Factory:
    def __call__(self) -> nn.Module:
        return nn.Linear(3, 3)


@lru_cache
def cached() -> nn.Module:
    return nn.Linear(3, 3)


@pytest.mark.parametrize(
    ("load", "location"), [(Factory(), ":Factory"), (cached, "test_unique_modules.py:cached")]
)
def test_functions_of_every_kind(load: Any, location: str) -> None:
    about = mg.extract_unique_modules(load, lambda: torch.ones(3))["metadata"]
    assert about["model_class"] == "Linear"
    assert about["load_fn_location"].endswith(location)


@pytest.mark.parametrize(
    ("load", "inputs"),
    [(nn.Linear(3, 3), lambda: torch.ones(3)), (load_model, None), (load_model, torch.ones(1))],
)
def test_what_is_no_function_is_told(load: Any, inputs: Any) -> None:
    with pytest.raises(mg.InspectError, match="not a function"):
        mg.extract_unique_modules(load, inputs)


def test_random_inputs_that_decide_what_runs_are_the_same_for_both(tmp_path: Path) -> None:
    def load() -> nn.Module:
        either = {"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}
        return Apply(lambda self, x: self.a(x) if x.sum() > 0 else self.b(x).relu(), **either)

    state = torch.get_rng_state()
    documents = [extracted(load, lambda: torch.randn(4, 4), tmp_path) for _ in range(6)]
    assert len({json.dumps(ops["ops"]) for _, ops in documents}) == 1
    assert torch.equal(torch.get_rng_state(), state)


def test_an_exported_program_is_a_model(tmp_path: Path) -> None:
    def load() -> Any:
        return torch.export.export(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), (torch.ones(2, 3),))

    modules, ops = extracted(load, lambda: torch.ones(2, 3), tmp_path)
    assert modules["modules"][0]["input_shapes"] == ["2x3"]
    assert [op["op_name"] for op in ops["ops"]] == ["torch.nn.functional.linear", "torch.relu"]


def test_tied_weights_and_aliases_are_told() -> None:
    tied = mg.extract_unique_modules(Tied, lambda: torch.zeros(1, 2, dtype=torch.long))
    assert tied["metadata"]["aliases"] == {}
    relu = nn.ReLU()
    document = mg.extract_unique_modules(lambda: nn.Sequential(relu, relu), lambda: torch.ones(2))
    assert document["metadata"]["aliases"] == {"1": "0"}
    assert document["metadata"]["total_modules"] == 2


def test_a_model_without_weights_needs_none() -> None:
    def load() -> nn.Module:
        with torch.device("meta"):
            return llama()

    document = mg.extract_unique_modules(load, lambda: {"input_ids": ids()})
    assert document["metadata"]["model_class"] == "LlamaForCausalLM"


def explode() -> Any:
    raise ValueError("no weights here")


TROUBLE: dict[str, tuple[Any, Any, str]] = {
    "load raises": (explode, get_inputs, "raised ValueError: no weights here"),
    "inputs raise": (load_model, explode, "raised ValueError: no weights here"),
    "inputs are None": (load_model, lambda: None, "returned None"),
    "no model": (lambda: 7, get_inputs, "not a supported model type"),
    "inputs do not fit": (load_model, lambda: torch.ones(1, 5, 8, 8), "0 raised RuntimeError"),
    "needs arguments": (lambda width: nn.Linear(width, 1), get_inputs, "without arguments"),
    "no such file": ("missing.py::load", get_inputs, "there is no file"),
}


@pytest.mark.parametrize("case", TROUBLE)
def test_trouble_is_told_and_leaves_no_file(case: str, tmp_path: Path) -> None:
    load, inputs, message = TROUBLE[case]
    with pytest.raises(mg.InspectError, match=message) as trouble:
        mg.extract_unique_modules(load, inputs, tmp_path / "unique_modules.json")
    assert trouble.value.exit_code == 3
    mg.extract_unique_modules(load_model, get_inputs, tmp_path / "modules.json")
    with pytest.raises(mg.InspectError, match=message):
        mg.extract_pytorch_ops(tmp_path / "modules.json", load, inputs, tmp_path / "pytorch_ops.json")
    assert [path.name for path in tmp_path.iterdir()] == ["modules.json"]


@pytest.mark.parametrize("content", [None, "", "[]", '{"modules": 3}', '{"modules": [{"id": "mod_000"}]}'])
def test_a_modules_file_that_is_none_is_told(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(mg.InspectError, match=r"holds no unique modules") as trouble:
        mg.extract_pytorch_ops(path, load_model, get_inputs)
    assert trouble.value.exit_code == 3


def test_a_modules_file_of_another_model_is_told(tmp_path: Path) -> None:
    path = tmp_path / "modules.json"
    mg.extract_unique_modules(lambda: nn.Sequential(nn.Linear(3, 3)), lambda: torch.ones(3), path)
    with pytest.raises(mg.InspectError, match="about another model"):
        mg.extract_pytorch_ops(path, load_model, get_inputs)
    with pytest.raises(mg.InspectError, match="about another model"):
        mg.extract_pytorch_ops(path, lambda: nn.Sequential(nn.Linear(3, 4)), lambda: torch.ones(3))
    with pytest.raises(mg.InspectError, match="or other inputs"):
        mg.extract_pytorch_ops(path, lambda: nn.Sequential(nn.Linear(3, 3)), lambda: torch.ones(2, 3))


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(72, 5)
    ).eval()


GOLDEN: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "cnn": (small_cnn, lambda: torch.zeros(2, 3, 7, 7)),
    "transformer-block": (
        lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).train(),
        lambda: torch.zeros(2, 5, 16),
    ),
    "recurrent": (
        lambda: Apply(lambda self, x: self.head(self.lstm(x)[0]), lstm=nn.LSTM(4, 6), head=nn.Linear(6, 2)),
        lambda: torch.zeros(3, 2, 4),
    ),
}


@pytest.mark.parametrize("case", GOLDEN)
def test_golden_documents(case: str, tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    load, inputs = GOLDEN[case]
    extracted(load, inputs, tmp_path)
    for path in tmp_path.iterdir():
        lines = path.read_text().splitlines(keepends=True)
        golden(f"unique/{case}-{path.name}", "".join(line for line in lines if '"timestamp"' not in line))
