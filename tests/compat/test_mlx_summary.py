"""`modelglass.mlx`: the documented table and names with right numbers, added to MLX only when asked for."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

import modelglass as mg
import modelglass.mlx as mm
from modelglass.errors import UsageError


class Cnn(nn.Module):
    """The document's example, so that it can run: channels last, and flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2d = nn.Conv2d(3, 64, kernel_size=3)
        self.relu = nn.ReLU()
        self.maxpool2d = nn.MaxPool2d(2, 2)
        self.linear = nn.Linear(64 * 13 * 13, 10)

    def __call__(self, x: mx.array) -> mx.array:
        return self.linear(self.maxpool2d(self.relu(self.conv2d(x))).flatten(1))


def documented() -> nn.Module:
    """The document's example as it is, which takes no input at all."""
    return nn.Sequential(
        nn.Conv2d(3, 64, kernel_size=3), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Linear(64 * 14 * 14, 10)
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


@pytest.fixture
def installed() -> Iterator[None]:
    mm.install()
    yield
    mm.uninstall()


def test_the_documented_table(installed: None, golden: Callable[[str, str], None]) -> None:
    golden("summary/mlx_cnn.txt", nn.summary(Cnn(), input_shape=(28, 28, 3)) + "\n")


def test_its_figures_are_those_of_arithmetic() -> None:
    text = mm.summary(Cnn(), (28, 28, 3))
    outputs = 4 * (2 * 26 * 26 * 64 + 13 * 13 * 64 + 10)
    params = 4 * (3 * 3 * 3 * 64 + 64 + 64 * 169 * 10 + 10)
    assert f"Forward/backward pass size (MB): {outputs / 2**20:.2f}" in text
    assert f"Params size (MB): {params / 2**20:.2f}" in text
    assert f"Estimated Total Size (MB): {(outputs + params) / 2**20:.2f}" in text
    half = mm.summary(Cnn(), mx.zeros((4, 28, 28, 3), mx.float16))
    assert "Input shape: (4, 28, 28, 3)" in half
    assert mm.summary(Cnn(), (28, 28, 3), batch_size=4) == mm.summary(Cnn(), mx.zeros((4, 28, 28, 3)))


def test_outputs_count_by_their_real_type() -> None:
    model = Cnn()
    model.set_dtype(mx.float16)
    (full, half) = (
        mm.calculate_memory_usage(mm.collect_layer_info(each, (28, 28, 3))) for each in (Cnn(), model)
    )
    assert half["activations_mb"] == full["activations_mb"] / 2
    assert half["params_mb"] == full["params_mb"] / 2
    assert half["total_mb"] == half["params_mb"] + half["activations_mb"]


def test_every_array_and_shape(installed: None, golden: Callable[[str, str], None]) -> None:
    model = mlp()
    model.layers[0].freeze()
    golden("summary/mlx_weights.txt", model.summary((10,), batch_size=8, verbose=2) + "\n")


def test_channels_first_gives_the_table_and_says_what_is_wrong(golden: Callable[[str, str], None]) -> None:
    golden("summary/mlx_failed.txt", mm.summary(documented(), input_shape=(3, 28, 28)) + "\n")


def test_a_layer_that_does_not_fit_is_named_with_what_it_met() -> None:
    text = mm.summary(documented(), input_shape=(28, 28, 3))
    assert "Total params: 127,242" in text
    assert "Forward/backward pass size (MB): unknown" in text
    assert "layers.3 (Linear) raised ValueError" in text
    assert "it was called with 1x13x13x64 float32" in text


def test_a_single_layer_shows_its_arrays() -> None:
    text = mm.summary(nn.Linear(10, 5))
    for words in ("Total params: 55", "weight (5, 10)", "bias (5,)", "Linear"):
        assert words in text
    assert "Input shape" not in text


def test_quiet_gives_the_totals_only() -> None:
    text = mm.summary(mlp(), verbose=0)
    assert "Linear" not in text
    assert "Total params: 325" in text


@pytest.mark.parametrize(
    ("sizes", "total"), [((784, 128, 10), 101_770), ((784, 128, 64, 10), 109_386)], ids=["two", "three"]
)
def test_counts_of_plain_networks(sizes: tuple[int, ...], total: int) -> None:
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    assert mm.count_parameters(nn.Sequential(*layers)) == (total, total)


def test_frozen_is_asked_of_the_owner() -> None:
    model = mlp()
    model.layers[0].freeze()
    assert mm.count_parameters(model) == (325, 105)
    model.freeze()
    model.unfreeze(keys="bias")
    assert mm.count_parameters(model) == (325, 25)
    assert mm.count_parameters(nn.BatchNorm(16)) == (64, 32)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
def test_quantized_layers_count_as_what_they_stand_for(bits: int) -> None:
    layer = nn.Linear(512, 512).to_quantized(group_size=64, bits=bits)
    assert mm.count_parameters(layer) == (262_656, 512)
    (info,) = mm.collect_layer_info(layer)
    assert info.param_bytes == sum(array.nbytes for _, array in tree_flatten(layer.parameters()))
    text = mm.summary(layer)
    assert f"weight (512, 512) mlx-{bits}bit" in text
    assert f"Params size (MB): {info.param_bytes / 2**20:.2f}" in text


class Tangled(nn.Module):
    """Arrays on the root, in a list and in a dict; a shared layer; a tuple that hides one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = mx.ones((3,))
        self.tables = {"a": [mx.ones((4,)), mx.ones((2, 2))]}
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.again = self.first
        self.hidden = (nn.Linear(2, 2),)

    def __call__(self, x: mx.array) -> tuple[mx.array, dict[str, Any]]:
        return self.second(self.again(self.first(x))), {"x": x, "n": 3}


def test_rows_add_up_and_come_in_the_order_of_definition() -> None:
    infos = mm.collect_layer_info(Tangled())
    assert [info.name for info in infos] == ["Tangled", "first", "second", "hidden.0"]
    assert [info.num_params for info in infos] == [3 + 8, 16, 0, 0]
    assert mm.count_parameters(Tangled()) == (27, 27)
    assert "note: modules held in a tuple" in mm.summary(Tangled())


def test_several_outputs_and_several_calls() -> None:
    summary = mm.ModelSummary(Tangled(), (4,), batch_size=2)
    infos = summary.layer_infos
    assert infos["Tangled"].output_shape == ((2, 4), (2, 4), None)
    assert infos["first"].output_shape == (2, 4)
    assert infos["first"].output_bytes == 2 * 4 * 2 * 4  # two calls
    assert infos["Tangled"].output_bytes == 0  # what it returns, layers returned before
    assert summary.report.run.outputs[2].text == "3"


def test_a_batch_is_not_multiplied_twice() -> None:
    infos = mm.collect_layer_info(mlp(), (10,), batch_size=8)
    at_eight = 8 * 4 * (20 + 20 + 5) / 2**20
    assert mm.calculate_memory_usage(infos, batch_size=8)["activations_mb"] == at_eight
    assert mm.calculate_memory_usage(infos)["activations_mb"] == at_eight / 8
    assert mm.calculate_memory_usage(mm.collect_layer_info(mlp()))["activations_mb"] == 0
    by_hand = [mm.LayerInfo("a", "Linear", (1, 10), 0, 0, 40), mm.LayerInfo("b", "Two", ((1, 5), None))]
    assert mm.calculate_memory_usage(by_hand, 3)["activations_mb"] == 3 * 4 * 15 / 2**20


def test_the_smaller_texts() -> None:
    assert mm.simple_summary(mlp()).split("\n")[1:4] == [
        "Total params: 325",
        "Trainable params: 325",
        "Non-trainable params: 0",
    ]
    lines = mm.format_layer_summary(mm.collect_layer_info(mlp())).splitlines()
    assert lines[1] == "Layer (type)".ljust(40) + "Param #".ljust(15) + "Trainable"
    assert lines[3] == "layers.0 (Linear)".ljust(40) + "220".ljust(15) + "220"
    assert len(lines) == 7
    assert "\\x1b[31m" in mm.format_layer_summary([mm.LayerInfo("\x1b[31m", "Linear")])


def test_models_without_parameters_or_layers() -> None:
    assert "Total params: 0" in mm.summary(nn.ReLU(), (3,))
    assert "Total params: 0" in mm.summary(nn.Sequential())
    assert [info.num_params for info in mm.collect_layer_info(nn.Sequential())] == [0]


def test_types_of_inputs_can_be_said() -> None:
    text = mm.summary(nn.Sequential(nn.Linear(4, 4)), (4,), batch_size=-1, dtypes=[mx.bfloat16])
    assert text.report.run.inputs[0].dtype == "bfloat16"
    assert text.report.run.inputs[0].shape == (1, 4)
    with pytest.raises(UsageError, match="different types"):
        mm.summary(mlp(), [(10,), (10,)], dtypes=[mx.float32, mx.int32])


def test_minus_one_is_a_batch_that_does_not_matter_everywhere() -> None:
    assert mm.summary(mlp(), (10,), -1) == mm.summary(mlp(), (10,), 1)
    assert mg.summary(mlp(), (10,), -1) == mg.summary(mlp(), (10,), 1)
    infos = mm.collect_layer_info(mlp(), (10,), batch_size=-1)
    assert infos == mm.collect_layer_info(mlp(), (10,))
    assert mm.calculate_memory_usage(infos, -1) == mm.calculate_memory_usage(infos)


@pytest.mark.parametrize("batch", [0, -2, 1.5, "x", None], ids=str)
def test_what_is_no_batch_is_refused(batch: Any) -> None:
    for ask in (mm.summary, mg.summary, mm.collect_layer_info):
        with pytest.raises(UsageError, match="must be a positive integer"):
            ask(mlp(), (10,), batch)
    with pytest.raises(UsageError, match="must be a positive integer"):
        mm.calculate_memory_usage([], batch)


@pytest.mark.parametrize("verbose", ["a", None, 1.5], ids=str)
def test_what_is_no_verbosity_is_refused(verbose: Any) -> None:
    for ask in (mm.summary, mg.summary):
        with pytest.raises(UsageError, match="must be an integer") as raised:
            ask(mlp(), (10,), verbose=verbose)
        assert "every layer" in raised.value.hint


def test_a_number_is_a_shape_of_one_dimension() -> None:
    assert mm.summary(mlp(), 10) == mm.summary(mlp(), (10,))
    assert mg.summary(mlp(), 10, batch_size=3) == mg.summary(mlp(), (10,), batch_size=3)
    assert mm.collect_layer_info(mlp(), 10)[0].output_shape == (1, 20)


COPIES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{f"pickle {n}": lambda text, n=n: pickle.loads(pickle.dumps(text, n)) for n in (0, 2, 5)},
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_of_a_summary_have_all_that_it_has(copied: Callable[[Any], Any]) -> None:
    made = mm.summary(mlp(), (10,), batch_size=4)
    again = copied(made)
    assert type(again) is mm.ModelSummary
    assert (again, again.layer_infos, again.report) == (made, made.layer_infos, made.report)
    for text in (mg.summary(mlp(), (10,)), mg.summary(mlp())):
        assert type(copied(text)) is type(text)
        assert (copied(text), copied(text).report) == (text, text.report)


def test_layers_are_those_that_the_table_has_rows_for() -> None:
    model = nn.Sequential(nn.Linear(4, 4), abs, lambda x: x, nn.Sequential(nn.Linear(4, 2)))
    text = mm.summary(model, (4,))
    rows = [line.split()[0] for line in text.splitlines() if line.startswith("layers.")]
    assert rows == list(text.layer_infos)
    assert rows[:3] == ["layers.0", "layers.1", "layers.2"]


def test_other_models_are_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError, match=r"not an mlx\.nn\.Module") as raised:
        mm.summary("model.safetensors")
    assert "mg.summary" in raised.value.hint


def test_mg_summary_is_the_same_table_for_every_framework() -> None:
    text = mg.summary(Cnn(), (28, 28, 3))
    assert "Output Shape" in text
    assert "Mult-adds" in text
    assert "conv2d (Conv2d)" in text
    assert "(list)" not in mg.summary(mlp())


def test_nothing_is_evaluated() -> None:
    mx.clear_cache()
    before = mx.get_active_memory()
    model = nn.Sequential(nn.Linear(50_000, 50_000), nn.Linear(50_000, 10))
    assert "Total params: 2,500,550,010" in mm.summary(model, (50_000,))
    assert mx.get_active_memory() - before < 1 << 20


def test_nothing_is_patched_before_install() -> None:
    assert not hasattr(nn, "summary")
    assert not hasattr(nn.Module, "summary")


def test_install_and_uninstall_can_be_repeated() -> None:
    names, members = set(vars(nn)), set(vars(nn.Module))
    mm.uninstall()
    mm.install()
    mm.install()
    assert nn.summary(mlp()) == mlp().summary() == nn.Module.summary(mlp()) == mm.summary(mlp())
    mm.uninstall()
    mm.uninstall()
    assert (set(vars(nn)), set(vars(nn.Module))) == (names, members)


def test_what_was_there_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    own, method = object(), lambda self: "own"
    monkeypatch.setattr(nn, "summary", own, raising=False)
    monkeypatch.setattr(nn.Module, "summary", method, raising=False)
    mm.install()
    assert "Total params: 325" in mlp().summary()
    mm.uninstall()
    assert nn.summary is own
    assert vars(nn.Module)["summary"] is method


def test_what_others_put_there_since_then_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    mm.install()
    theirs = object()
    monkeypatch.setattr(nn, "summary", theirs)
    mm.uninstall()
    assert nn.summary is theirs
    assert not hasattr(nn.Module, "summary")
    monkeypatch.undo()
    del nn.summary


def test_layers_and_attributes_called_summary_keep_working(installed: None) -> None:
    class Classifier(nn.Module):
        def __init__(self, held: Any) -> None:
            super().__init__()
            self.summary = held

    layer = Classifier(nn.Linear(2, 2))
    assert isinstance(layer.summary, nn.Linear)
    assert mm.count_parameters(layer) == (6, 6)
    assert Classifier("text").summary == "text"
    layer.summary = nn.Linear(3, 3)
    assert mm.count_parameters(layer) == (12, 12)
    del layer.summary
    assert "Total params: 0" in layer.summary()


BLOCKED = {
    "as when it is not installed": """
import importlib.abc, sys
class Blocking(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "mlx":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocking())
""",
    "by hand": "import sys; sys.modules['mlx'] = None",
}


def fresh(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )


@pytest.mark.parametrize("block", BLOCKED.values(), ids=BLOCKED)
def test_without_mlx_one_sentence_says_what_to_install(block: str) -> None:
    code = """
import modelglass as mg
from modelglass.errors import MissingPackageError
for ask in (mg.mlx.install, lambda: mg.mlx.summary(None)):
    try:
        ask()
    except MissingPackageError as error:
        print(error.problem, "|", error.hint)
"""
    first, second = fresh(block + code).stdout.splitlines()
    wanted = "needs the package 'mlx', which is not installed | pip install \"modelglass[mlx]\""
    assert (first, second) == (f"modelglass.mlx.install() {wanted}", f"modelglass.mlx {wanted}")


@pytest.mark.parametrize("block", BLOCKED.values(), ids=BLOCKED)
def test_a_target_without_mlx_says_the_same(tmp_path: Path, block: str) -> None:
    path = tmp_path / "model.py"
    path.write_text("import mlx.nn as nn\ndef build():\n    return nn.Linear(2, 2)\n")
    code = f"""
from modelglass.cli.main import main
try:
    main([{str(path)!r} + "::build"])
except SystemExit as stop:
    print(stop.code)
"""
    found = fresh(block + code)
    assert found.stdout == "3\n"
    assert "needs the package 'mlx', which is not installed" in found.stderr
    assert 'pip install "modelglass[mlx]"' in found.stderr
    assert "Traceback" not in found.stderr


def test_importing_it_imports_no_mlx() -> None:
    code = "import sys, modelglass.mlx; print(sorted({'mlx', 'torch', 'numpy'} & set(sys.modules)))"
    assert fresh(code).stdout == "[]\n"
