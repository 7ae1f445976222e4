"""Code targets: found, loaded, called; nothing left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import modelglass as mg
from modelglass.errors import InspectError, TargetError, UsageError
from modelglass.files import suggest_path
from modelglass.options import BuildOptions
from modelglass.targets import resolve
from modelglass.targets.paths import is_code_name, is_config_path
from modelglass.user_code import only_installed

SOURCE = """
import torch
from torch import nn
import sibling

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, sibling.WIDTH)

    def forward(self, x):
        import late
        return self.fc(x) * late.SCALE

class Zoo:
    small = staticmethod(lambda: nn.Linear(4, 2))

def build():
    return Net()

def batch():
    return torch.zeros(3, 4)

def explode():
    raise ValueError("no weights here")

constant = 3
ready = Net()

def needy(width):
    return nn.Linear(width, 1)

def leave():
    raise SystemExit(7)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_net.py").write_text(SOURCE)
    (tmp_path / "sibling.py").write_text("WIDTH = 8")
    (tmp_path / "late.py").write_text("SCALE = 2.0")
    (tmp_path / "broken.py").write_text("import nonexistent_package")
    (tmp_path / "syntax.py").write_text("def f(:")
    monkeypatch.chdir(tmp_path)
    for name in ("sibling", "late", "my_net"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


FORMS = ["my_net.py::build", "my_net.py::Net", "my_net:build", "./my_net.py::build"]


@pytest.mark.parametrize("target", FORMS)
def test_targets_build_models(folder: Path, target: str) -> None:
    report = mg.inspect(target, inputs="my_net.py::batch")
    assert report.run.failure is None, report.run.failure
    assert report.cost.macs == 3 * 4 * 8


def test_a_model_that_is_already_built_is_taken_as_it_is(folder: Path) -> None:
    report = mg.inspect("my_net.py::ready", inputs="my_net.py::batch")
    assert report.cost.macs == 3 * 4 * 8
    assert report.model.modules[0].qualified_type == "my_net.Net"


def test_files_of_the_same_name_do_not_mix(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "my_net.py").write_text(SOURCE)
    (folder / "other" / "sibling.py").write_text("WIDTH = 2")
    (folder / "other" / "late.py").write_text("SCALE = 2.0")
    before = set(sys.modules)
    sizes = [mg.inspect(f"{place}my_net.py::build").counts.params for place in ("", "other/", "")]
    assert sizes == [40, 10, 40]
    assert {name for name in set(sys.modules) - before if "my_net" in name or name == "sibling"} == set()


def test_members_are_reached_by_dots(folder: Path) -> None:
    assert mg.inspect("my_net.py::Zoo.small").counts.params == 10


def test_a_path_object_is_a_target_too(folder: Path) -> None:
    assert mg.inspect(Path(f"{folder}/my_net.py::build")).counts.params == 40


def test_nothing_is_left_on_disk_or_on_the_path(folder: Path) -> None:
    before = (sorted(folder.rglob("*")), list(sys.path), sys.dont_write_bytecode)
    mg.inspect("my_net.py::build", inputs="my_net.py::batch")
    with pytest.raises(TargetError):
        mg.inspect("my_net.py::explode")
    assert (sorted(folder.rglob("*")), list(sys.path), sys.dont_write_bytecode) == before


@pytest.mark.parametrize("on_the_path", [True, False])
def test_bytecode_is_held_back_only_where_a_folder_could_be_imported(
    on_the_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed keeps its bytecode: a listing does not compile the readers each time."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)] * on_the_path)
    with only_installed(tmp_path / "model.pt"):
        assert sys.dont_write_bytecode is on_the_path
    assert sys.dont_write_bytecode is False


WRONG = {
    "absent.py::build": (TargetError, "no file 'absent.py'", ""),
    "my_nett.py::build": (TargetError, "no file", "did you mean my_net.py"),
    "nowhere/my_net.py::build": (TargetError, "no file", "does not exist either"),
    "my_net.py::bulid": (TargetError, "has no 'bulid'", "did you mean build? it has Net, Zoo, build"),
    "my_net.py::constant": (InspectError, "'my_net.py::constant' returned a builtins.int", "torch.nn.Module"),
    "my_net.py::needy": (TargetError, "cannot be called without arguments", "wrap it"),
    "my_net.py::leave": (TargetError, "raised SystemExit: 7", "my_net.py, line"),
    "my_net.py::explode": (TargetError, "raised ValueError: no weights here", "my_net.py, line 25"),
    "my_net.py::batch": (InspectError, "not a supported model type", "torch.nn.Module"),
    "broken.py::build": (TargetError, "raised ModuleNotFoundError", "broken.py, line 1"),
    "syntax.py::build": (TargetError, "raised SyntaxError", "syntax.py, line 1"),
    "absent_module:build": (TargetError, "no module 'absent_module'", "install it"),
    "broken:build": (TargetError, "raised ModuleNotFoundError", ""),
    "my_net.py::": (UsageError, "does not name a function", "file.py::function"),
    "my_net.py": (InspectError, "name a function in it", "it could be my_net.py::Net, my_net.py::build"),
    "weights.safetensors": (TargetError, "there is no file", "check the path"),
}


@pytest.mark.parametrize("target", WRONG)
def test_wrong_targets_get_one_clear_message(folder: Path, target: str) -> None:
    kind, problem, hint = WRONG[target]
    with pytest.raises(kind) as caught:
        mg.inspect(target)
    assert problem in caught.value.problem
    assert hint in caught.value.hint


def test_code_targets_are_told_from_paths(tmp_path: Path) -> None:
    assert is_code_name("a.py::b")
    assert is_code_name("pkg.mod:fn")
    assert not is_code_name("model.safetensors")
    odd = tmp_path / "with:colon"
    odd.write_text("")
    assert not is_code_name(str(odd))


@pytest.mark.parametrize("name", ["nope.json", "zzzz.yaml", "weights.gguf"])
def test_a_file_that_is_not_there_has_what_is_in_its_folder(name: str, tmp_path: Path) -> None:
    assert suggest_path(tmp_path / name).endswith("is empty")
    for number in range(10):
        (tmp_path / f"{number}.txt").touch()
    assert "has 0.txt, 1.txt, " in suggest_path(tmp_path / name)
    assert suggest_path(tmp_path / name).endswith("7.txt, …")


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("os.listdir", refuse)
    assert "cannot be listed (Permission denied)" in suggest_path(tmp_path / "model.pt")
    (tmp_path / "config.json").write_text("{}")
    assert is_config_path(tmp_path)


def test_every_kind_of_target_is_recognised_by_one_table(tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(b"")
    config = tmp_path / "only" / "config.json"
    config.parent.mkdir()
    config.write_text("{}")
    both = tmp_path / "both"
    both.mkdir()
    (both / "config.json").write_text("{}")
    (both / "model.safetensors").write_bytes(b"")
    report = mg.inspect(torch.nn.Linear(2, 2))
    mg.save(report, tmp_path / "report.json")

    def kind(target: object, *, runs: bool = False, **build: Any) -> str:
        return resolve(target, BuildOptions(**build), runs=runs, check=False).kind

    assert kind(torch.nn.Linear(2, 2)) == "live"
    assert kind(lambda: None) == kind("a.py::build") == kind("package:build") == "code"
    assert kind(weights) == kind(str(weights)) == "checkpoint"
    assert kind(weights, builder=len) == "config"
    assert kind(config) == kind(config.parent) == "config"
    assert kind(config, framework="vllm") == "served"
    assert kind(both) == "checkpoint"
    assert kind(both, runs=True) == "config", "what runs is built from its configuration"
    assert kind(report) == kind(tmp_path / "report.json") == "saved"


def test_options_that_do_not_apply_are_refused_by_the_kind_of_target(tmp_path: Path) -> None:
    report = mg.inspect(torch.nn.Linear(2, 2))
    for target, options, problem in (
        (torch.nn.Linear(2, 2), {"limits": {"tensors": 1}}, "limits does not apply to a live Linear"),
        (torch.nn.Linear(2, 2), {"trust": True}, "trust does not apply to a live Linear"),
        (lambda: torch.nn.Linear(2, 2), {"model_key": "a"}, "model_key does not apply to '<lambda>'"),
        (report, {"train": True}, "train does not apply to a report: a report is taken as it is"),
    ):
        with pytest.raises(UsageError, match=problem):
            mg.inspect(target, **options)


def test_questions_about_a_run_take_reports_and_their_files(tmp_path: Path) -> None:
    report = mg.inspect(torch.nn.Linear(2, 3), torch.ones(4, 2), symbols=True)
    mg.save(report, tmp_path / "report.json")
    for target in (report, tmp_path / "report.json"):
        assert mg.inspect(target) == report
        assert mg.flow(target) == mg.flow(torch.nn.Linear(2, 3), torch.ones(4, 2))
        assert mg.memory(target) == report.memory
        assert mg.unique(target) == mg.unique(torch.nn.Linear(2, 3), torch.ones(4, 2))
        assert mg.compare(target, torch.nn.Linear(2, 3)).same


def test_a_model_is_built_once_for_each_side_of_a_comparison() -> None:
    built = []

    def build() -> torch.nn.Module:
        built.append(1)
        return torch.nn.Linear(2, 2)

    mg.compare(build, build, inputs=torch.ones(1, 2))
    assert len(built) == 2


def test_a_file_of_code_lists_what_could_be_a_target(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(
        "import torch\nraise SystemExit('this file must not run')\n"
        "def build(): ...\ndef sized(width): ...\ndef wide(width=8, *, depth=2): ...\ndef _own(): ...\n"
        "class Net(torch.nn.Module):\n    def __init__(self): ...\n"
        "class Sized(torch.nn.Module):\n    def __init__(self, width): ...\n"
        "model = torch.nn.Linear(2, 2)\nwidth = 3\n"
    )
    with pytest.raises(InspectError) as caught:
        mg.inspect(tmp_path / "nets.py")
    names = [each.partition("::")[2] for each in caught.value.hint.split(", ")]
    assert names == ["build", "Net", "model", "wide"]


LIKELY = """
import torch
from torch import nn

class Base(nn.Module):
    pass

class Deep(Base):
    pass

class Settings(dict):
    pass

def helper():
    return 1

def batch():
    return 1

def make_inputs():
    return 1

def rows() -> torch.Tensor:
    return 1

def vision() -> "nn.Sequential":
    return 1

def get_model():
    return 1

deep = Deep()
"""


def test_what_looks_like_a_model_is_suggested_first_and_inputs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(LIKELY)
    with pytest.raises(InspectError) as caught:
        mg.inspect("m.py")
    models = "m.py::Base, m.py::Deep, m.py::vision, m.py::get_model, m.py::deep, m.py::Settings, m.py::helper"
    inputs = "m.py::batch, m.py::make_inputs, m.py::rows"
    assert caught.value.hint == f"it could be {models}; inputs could be {inputs}"
