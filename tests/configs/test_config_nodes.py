"""Models that a configuration names, as Hydra and Lightning write them."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import modelglass as mg
from command_line import run
from modelglass import api
from modelglass.api import _models
from opened import build

MODULE = """
import functools
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, hidden, depth=1, activation=None, settings=None, init=None):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(depth))
        self.activation = activation or nn.ReLU()
        self.settings = settings
        self.init = init
        self.register_buffer("scale", torch.tensor([1.0, 2.0]))

    def forward(self, x):
        for layer in self.layers:
            x = self.activation(layer(x))
        return x

class Lit(Net):
    def __init__(self, **given):
        super().__init__(**given)
        self.example_input_array = torch.ones(3, self.layers[0].in_features)

class Wants(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = int(torch.rand(1).item() * 0) + 4
        self.layer = nn.Linear(self.width, 2)

class Decides(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) if self.layer(x).sum() < 1e9 else x

class Breaks(nn.Module):
    def __init__(self):
        raise RuntimeError("not today")

class Data:
    def __init__(self, path):
        pass

def make(hidden):
    return Net(hidden)

NUMBER = 3
"""
HYDRA = "model:\n  _target_: netz.Net\n  hidden: 8\n"
Capture = pytest.CaptureFixture[str]
# Whoever writes the file writes the code beside it, too; what is built of a stranger's is tested elsewhere.
inspect = partial(mg.inspect, trust=True)
trusted = partial(build, trust=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "netz.py").write_text(MODULE)
    return tmp_path


def written(folder: Path, text: str, name: str = "config.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def model_of(folder: Path, text: str, **options: Any) -> Any:
    with trusted(written(folder, text), **options) as found:
        return found.native


def test_hydra_node(folder: Path) -> None:
    report = inspect(written(folder, HYDRA), torch.ones(2, 8))
    assert report.model.name == "Net"
    assert report.counts is not None
    assert report.counts.params == 72
    assert report.cost is not None
    assert report.cost.macs == 128


def test_lightning_node_with_nodes_inside(folder: Path) -> None:
    text = """
    trainer: {max_epochs: 3, logger: {class_path: netz.Data, init_args: {path: x}}}
    model:
      class_path: netz.Net
      init_args:
        hidden: 4
        settings: {a: {b: 1}}
        activation: {class_path: torch.nn.LeakyReLU, init_args: {negative_slope: 0.3}}
      dict_kwargs: {depth: 2}
    """
    model = model_of(folder, text)
    assert (len(model.layers), model.activation.negative_slope, model.settings) == (2, 0.3, {"a": {"b": 1}})
    assert type(model.settings) is dict


def test_nodes_anywhere_partial_positional_and_in_lists(folder: Path) -> None:
    text = """
    experiment:
      parts:
        - _target_: netz.Net
          _args_: [4, 2]
          _convert_: all
          activation: {_target_: torch.nn.Sequential, _args_: [{_target_: torch.nn.ReLU}]}
          init: {_target_: torch.nn.init.normal_, _partial_: true, std: 0.1}
    """
    model = model_of(folder, text)
    assert len(model.layers) == 2
    assert isinstance(model.activation[0], torch.nn.ReLU)
    assert model.init.keywords == {"std": 0.1}


def test_sections_have_attributes_as_under_hydra(folder: Path) -> None:
    model = model_of(folder, "model: {_target_: netz.Net, hidden: 4, settings: {a: {b: 1}}}")
    assert model.settings.a.b == 1
    assert model.settings["a"]["b"] == 1


def test_sections_have_attributes_without_omegaconf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omegaconf", None)
    model = model_of(folder, "model: {_target_: netz.Net, hidden: 4, settings: {a: {b: 1}}}")
    assert model.settings.a.b == 1
    assert not hasattr(model.settings, "c")


def test_nodes_inside_are_left_when_the_file_says_so(folder: Path) -> None:
    text = "model: {_target_: netz.Net, _recursive_: false, hidden: 4, settings: {_target_: torch.nn.ReLU}}"
    assert model_of(folder, text).settings["_target_"] == "torch.nn.ReLU"


def test_a_function_may_make_the_model(folder: Path) -> None:
    assert len(model_of(folder, "net: {_target_: netz.make, hidden: 4}").layers) == 1


def test_json_has_nodes_too(folder: Path) -> None:
    path = written(folder, json.dumps({"model": {"_target_": "netz.Net", "hidden": 4}}), "some.json")
    with trusted(path) as found:
        assert type(found.native).__name__ == "Net"


# Which node it is


def test_the_node_called_model_wins(folder: Path) -> None:
    text = """
    a: {_target_: torch.nn.ReLU}
    model: {_target_: netz.Net, hidden: 4}
    x: {model: {_target_: torch.nn.GELU}}
    """
    assert type(model_of(folder, text)).__name__ == "Net"


def test_a_class_of_models_wins_over_others(folder: Path) -> None:
    text = """
    data: {_target_: netz.Data, path: x}
    loss: {_target_: torch.nn.CrossEntropyLoss}
    missing: {_target_: nowhere.Callback}
    net: {_target_: netz.Net, hidden: 4}
    """
    assert type(model_of(folder, text)).__name__ == "Net"


def test_the_key_chooses_a_node_or_where_to_look(folder: Path) -> None:
    text = (
        "a: {_target_: torch.nn.ReLU}\nb: {c: [{_target_: netz.Net, hidden: 4}, {_target_: torch.nn.GELU}]}"
    )
    assert type(model_of(folder, text, model_key="a")).__name__ == "ReLU"
    assert type(model_of(folder, text, model_key="b.c.1")).__name__ == "GELU"


# Weights, constants, inputs


def test_no_weights_are_made_and_constants_keep_their_values(folder: Path) -> None:
    model = model_of(folder, "model: {_target_: netz.Net, hidden: 100000, depth: 4}")  # 149 GiB
    assert all(parameter.is_meta for parameter in model.parameters())
    assert model.scale.tolist() == [1.0, 2.0]


def test_a_model_that_looks_at_values_is_built_for_real(folder: Path) -> None:
    path = written(folder, "model: {_target_: netz.Wants}")
    with trusted(path) as found:
        assert found.native.layer.weight.device.type == "cpu"
    assert "built-with-weights" in {note.code for note in inspect(path).notes}
    assert "built-with-weights" not in {note.code for note in inspect(written(folder, HYDRA)).notes}


def test_a_constructor_that_fails_is_not_run_with_weights(folder: Path) -> None:
    """It would allocate 37 GiB before it fails again."""
    (folder / "late.py").write_text(
        "from torch import nn\n"
        "class Late(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(100_000, 100_000)\n"
        "        raise ValueError('too late')\n"
    )
    with pytest.raises(mg.InspectError, match="building model, a Late, raised ValueError: too late"):
        model_of(folder, "model: {_target_: late.Late}")


def test_a_real_run_has_real_weights(folder: Path) -> None:
    report = inspect(written(folder, HYDRA), torch.ones(2, 8), run="real")
    assert (report.run.mode, report.run.failure) == ("real", None)


def test_a_run_that_values_decide_gets_them(folder: Path) -> None:
    path = written(folder, "model: {_target_: netz.Decides}")
    report = inspect(path, torch.ones(2, 4))
    assert (report.run.mode, report.run.failure) == ("real", None)
    assert {"real-run", "built-with-weights"} <= {note.code for note in report.notes}
    found = mg.fit(path, torch.ones(2, 4), device_nbytes=1 << 20, options=False, trust=True)
    assert found.fits
    assert "built-with-weights" in {note.code for note in found.notes}
    calls = api.inspect_calls(path, torch.ones(2, 4), trust=True)
    assert calls.run.failure is None
    assert "built-with-weights" in {note.code for note in calls.notes}


def test_a_large_model_is_not_built_with_weights_for_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_models, "REAL_NBYTES", 79)  # the model has 80
    path = written(folder, "model: {_target_: netz.Decides}")
    report = inspect(path, torch.ones(2, 4), on_failure="report")
    assert report.run.failure is not None
    assert report.run.failure.error == "DataDependentOutputException"


@pytest.mark.parametrize(
    ("raised", "times"),
    [
        ("ValueError('not today')", 1),
        ("NotImplementedError('later')", 1),
        ("RuntimeError('on meta')", 3),
    ],
    ids=["other", "not-implemented", "values"],
)
def test_a_builder_runs_again_only_for_want_of_values(raised: str, times: int, folder: Path) -> None:
    calls = []

    def builder(config: Any) -> torch.nn.Module:
        calls.append(config)
        raise eval(raised)

    with pytest.raises(mg.InspectError, match="the builder"):
        inspect(written(folder, HYDRA), builder=builder)
    assert len(calls) == times


def test_a_models_own_example_is_its_input(folder: Path) -> None:
    report = inspect(written(folder, "model: {_target_: netz.Lit, hidden: 5}"))
    assert report.run.inputs[0].shape == (3, 5)
    assert inspect(written(folder, "model: {_target_: netz.Lit, hidden: 5}"), run="none").run.mode == "none"


def test_builder(folder: Path) -> None:
    path = written(folder, "size: {hidden: 6}\nother: 1\n")
    code = "from netz import Net\nimport torch\ndef fn(config):\n    "
    code += "return Net(**config['size']), torch.ones(1, 6)\n"
    (folder / "b.py").write_text(
        code + "def part(config):\n    return Net(**config)\ndef none(config):\n    pass\n"
    )
    report = inspect(path, builder=f"{folder}/b.py::fn")
    assert report.run.inputs[0].shape == (1, 6)
    part = inspect(path, builder=f"{folder}/b.py::part", model_key="size")
    assert part.counts is not None
    assert part.counts.params == 42
    assert (
        inspect(path, builder=lambda config: torch.nn.Linear(config["size"]["hidden"], 1)).model.name
        == "Linear"
    )
    with pytest.raises(mg.InspectError, match="the builder 'none' returned nothing"):
        inspect(path, builder=f"{folder}/b.py::none")
    with pytest.raises(mg.InspectError, match="the builder 'nothing' does not name a function"):
        inspect(path, builder="nothing")


def test_a_builder_makes_a_model_of_what_a_checkpoint_says(folder: Path) -> None:
    state = {"state_dict": torch.nn.Linear(4, 2).state_dict(), "hyper_parameters": {"width": 4}}
    torch.save(state, folder / "model.ckpt")
    report = inspect(
        folder / "model.ckpt", builder=lambda said: torch.nn.Linear(said["width"], 2), input_shape=(4,)
    )
    assert report.run.outputs[0].shape == (1, 2)
    assert "built-from-config" in {note.code for note in report.notes}


# References between values


def test_references_are_resolved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("omegaconf")
    monkeypatch.setenv("NET_DEPTH", "3")
    text = """
    size: 4
    name: Net
    unrelated: ${nowhere:x}
    model: {_target_: "netz.${name}", hidden: "${size}", depth: "${oc.decode:${oc.env:NET_DEPTH}}"}
    """
    model = model_of(folder, text)
    assert (len(model.layers), model.layers[0].in_features) == (3, 4)


def test_a_builder_gets_references_resolved_where_that_is_possible(folder: Path) -> None:
    pytest.importorskip("omegaconf")
    seen: list[Any] = []
    path = written(folder, "a: 3\nb: ${a}\n")
    inspect(path, builder=lambda config: seen.append(config) or torch.nn.ReLU(), run="none")
    path = written(folder, "a: 3\nb: ${a}\nc: ${hydra:runtime.cwd}\n")
    inspect(path, builder=lambda config: seen.append(config) or torch.nn.ReLU(), run="none")
    assert seen[0] == {"a": 3, "b": 3}
    assert seen[-1]["b"] == "${a}"


def test_references_need_omegaconf(folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omegaconf", None)
    path = written(folder, "size: 4\nmodel: {_target_: netz.Net, hidden: '${size}'}\n")
    code, out, err = run("inspect", "--trust", path, capsys=capsys)
    assert (code, out) == (3, "")
    assert err == (
        "error: model.hidden refers to another value, '${size}', which needs the package 'omegaconf', which "
        "is not installed\n  hint: pip install omegaconf, or write the value out\n"
    )


# Errors, as the command line tells them

ERRORS = {
    "no-node": ("a: 1\n", "no part of it names a model", "--builder file.py::function"),
    "two": (
        "a: {_target_: torch.nn.ReLU}\nb: {_target_: torch.nn.GELU}\n",
        "2 parts of it could be the model: a, b",
        "choose one: --model-key a",
    ),
    "no-module": (
        "model: {_target_: nets.Net}\n",
        "model names 'nets.Net', and there is no module 'nets'",
        "did you mean netz? pip install nets, or run from the folder that holds 'nets'",
    ),
    "no-class": (
        "model: {_target_: netz.Nett}\n",
        "model names 'netz.Nett', and 'netz' has no 'Nett'",
        "did you mean Net?",
    ),
    "no-method": ("model: {_target_: netz.Net.load}\n", "and 'Net' has no 'load'", "did you mean "),
    "no-call": ("model: {_target_: netz.NUMBER}\n", "which cannot be called", "name a class"),
    "no-dot": (
        "model: {_target_: Net}\n",
        "which is not a dotted path to a class",
        "write package.module.Class",
    ),
    "argument": (
        "model: {_target_: netz.Net, hiden: 4}\n",
        "model: Net cannot be called with these arguments: ",
        "did you mean hidden instead of hiden? it takes hidden, depth, activation, settings, init",
    ),
    "inside": (
        "model: {class_path: netz.Net, init_args: {hidden: 4, activation: {class_path: netz.Data}}}\n",
        "model.init_args.activation: Data cannot be called with these arguments: ",
        "it takes path",
    ),
    "raises": (
        "model: {_target_: netz.Breaks}\n",
        "building model, a Breaks, raised RuntimeError: not today",
        "it came from netz.py, line ",
    ),
    "missing": (
        "model:\n  _target_: netz.Net\n  hidden: ???\n",
        "model.hidden is ???, a value that must be given",
        "write the value into the file",
    ),
    "standard": (
        "model: {_target_: os.system, command: 'touch made'}\n",
        "model names 'os.system' of Python's standard library, which cannot be a target",
        "--builder file.py::function",
    ),
    "standard-by-way-of": (
        "model: {_target_: netz.Net, hidden: {_target_: torch.os.system, command: 'touch made'}}\n",
        "model.hidden names 'torch.os.system' of Python's standard library",
        "--builder file.py::function",
    ),
    "standard-inside": (
        "model: {_target_: math.__loader__.__class__}\n",
        "model names 'math.__loader__.__class__' of Python's standard library",
        "--builder file.py::function",
    ),
    "args": ("model: {_target_: netz.Net, _args_: 7}\n", "model._args_ is not a list", "list the"),
    "init-args": ("model: {class_path: netz.Net, init_args: 7}\n", "model.init_args has no names", "write"),
    "kwargs": (
        "model: {class_path: netz.Net, dict_kwargs: [1]}\n",
        "model.dict_kwargs has no names",
        "write name: value",
    ),
    "no-model": (
        "model: {_target_: netz.Data, path: x}\n",
        "a netz.Data, which is not a supported model",
        "torch.nn.Module",
    ),
    "tag": (
        "model: !!python/object/apply:os.system ['touch made']\n",
        "line 1: the tag '!!python/object/apply:os.system' asks for an object",
        "name a class with _target_ or class_path instead",
    ),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=list(ERRORS))
def test_errors(
    folder: Path, case: tuple[str, str, str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    text, problem, hint = case
    code, out, err = run("inspect", "--trust", written(folder, text), "--input", "1x4", capsys=capsys)
    assert (code, out) == (3, "")
    told, _, advice = err.partition("\n  hint: ")
    assert problem in told
    assert hint in advice
    assert "Traceback" not in err
    assert not (folder / "made").exists()


def test_what_a_module_needs_is_named(folder: Path, capsys: Capture) -> None:
    (folder / "needy.py").write_text("import cv2_not_there\nclass Net: pass\n")
    code, _, err = run("inspect", "--trust", written(folder, "model: {_target_: needy.Net}"), capsys=capsys)
    assert code == 3
    assert "importing 'needy' needs the module 'cv2_not_there', which is not installed" in err
    assert "hint: pip install cv2-not-there" in err


def test_a_wrong_key_has_near_ones(folder: Path, capsys: Capture) -> None:
    path = written(folder, "train: {model: {_target_: netz.Net, hidden: 4}, other: 1}\n")
    code, _, err = run("inspect", "--trust", path, "--model-key", "train.modle", capsys=capsys)
    assert code == 3
    assert "there is no 'train.modle'" in err
    assert "hint: did you mean train.model? train has model, other" in err


def test_a_file_that_is_not_there(folder: Path, capsys: Capture) -> None:
    written(folder, HYDRA, "diffusion.yaml")
    code, _, err = run("memory", "--trust", str(folder / "difusion.yaml"), capsys=capsys)
    assert code == 3
    assert "there is no file" in err
    assert "did you mean diffusion.yaml?" in err


def test_commands_that_run_say_that_they_found_the_inputs(folder: Path, capsys: Capture) -> None:
    path = written(folder, HYDRA)
    for command in (("memory", path), ("fit", path, "--memory", "1GiB")):
        code, out, _ = run(*command, "--trust", capsys=capsys)
        assert code in (0, 1)
        assert "inputs found by trying" in out
    assert run("inspect", "--trust", path, capsys=capsys)[0] == 0


def test_statistics_need_weights(folder: Path, capsys: Capture) -> None:
    code, out, err = run("stats", "--trust", written(folder, HYDRA), capsys=capsys)
    assert (code, out) == (3, "")
    assert "stats does not apply to" in err
    (folder / "b.py").write_text("from netz import Net\ndef fn(config):\n    return Net(4)\n")
    assert (
        run("stats", "--trust", written(folder, HYDRA), "--builder", f"{folder}/b.py::fn", capsys=capsys)[0]
        == 0
    )


def test_every_command_takes_a_configuration(folder: Path, capsys: Capture) -> None:
    path = written(folder, "model: {_target_: netz.Lit, hidden: 5}")
    commands = (
        ("inspect",),
        ("memory", "--train"),
        ("fit", "--memory", "1GiB"),
        ("unique", "--ops"),
        ("info",),
    )
    for command, *options in commands:
        code, out, err = run(command, path, "--trust", *options, capsys=capsys)
        assert (code, err) == (0, ""), command
        assert out
    assert run(path, "--trust", capsys=capsys)[0] == 0


def test_a_builder_is_for_configurations(folder: Path, capsys: Capture) -> None:
    code, _, err = run(
        "inspect", "--trust", f"{folder}/netz.py::make", "--builder", "b.py::fn", capsys=capsys
    )
    assert code == 2
    assert "does not apply to" in err


@pytest.mark.parametrize("command", ["inspect", "stats", "unique"])
def test_a_model_key_is_for_configurations(command: str, folder: Path, capsys: Capture) -> None:
    torch.save(torch.nn.Linear(4, 2).state_dict(), folder / "ok.pt")
    code, out, err = run(command, str(folder / "ok.pt"), "--model-key", "a.b", capsys=capsys)
    assert (code, out) == (2, "")
    assert "does not apply to" in err


def test_a_key_says_which_part_of_a_checkpoints_words_a_builder_gets(folder: Path) -> None:
    state = {"state_dict": torch.nn.Linear(4, 2).state_dict(), "hyper_parameters": {"net": {"width": 4}}}
    torch.save(state, folder / "model.ckpt")
    given = []

    def builder(config: Any) -> torch.nn.Module:
        given.append(config)
        return torch.nn.Linear(config["width"], 2)

    inspect(folder / "model.ckpt", torch.ones(1, 4), builder=builder, model_key="net")
    assert given == [{"width": 4}]
    with pytest.raises(mg.InspectError, match="there is no 'nett'") as raised:
        inspect(folder / "model.ckpt", torch.ones(1, 4), builder=builder, model_key="nett")
    assert "did you mean net?" in raised.value.hint
