"""Configurations of strangers: what they name is built only where it is proven to be a model class."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import runpy
import socket
import subprocess
import sys
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from command_line import run
from modelglass.configs.guarding import guarded
from modelglass.errors import UntrustedError
from modelglass.user_code import only_installed
from opened import build

Capture = pytest.CaptureFixture[str]
MARK = "made-by-a-stranger"
LEAVES_A_MARK = f"open({MARK!r}, 'w').close()\n"
BERT = {"model_type": "bert", "vocab_size": 99, "hidden_size": 16, "num_attention_heads": 2}
BERT |= {"intermediate_size": 32, "num_hidden_layers": 1}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that was downloaded, in which the user stands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder: Path, content: Any, name: str = "config.yaml") -> Path:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder / name


def node(target: str, **given: Any) -> dict[str, Any]:
    return {"model": {"_target_": target, **given}}


# Each with the words that the refusal names it by.
STRANGERS: dict[str, tuple[Any, str]] = {
    "module-beside": (node("evil.Net"), "model would call 'evil.Net'"),
    "class-path": ({"model": {"class_path": "evil.Net", "init_args": {}}}, "model would call 'evil.Net'"),
    "standard-library": (node("os.system", command=f"touch {MARK}"), "'os.system', of Python's standard"),
    "by-way-of-torch": (node("torch.os.system", command=f"touch {MARK}"), "in which 'os' is another package"),
    "evaluates-text": (node("sympy.sympify", a=LEAVES_A_MARK), "model would call 'sympy.sympify'"),
    "writes-files": (node("torch.save", obj=1, f=MARK), "'torch.save', which is not a model class"),
    "writes-arrays": (node("numpy.save", file=MARK, arr=[1]), "model would call 'numpy.save'"),
    "hub": (node("torch.hub.load", repo_or_dir=".", model="x", source="local"), "'torch.hub.load'"),
    "method": (node("torch.nn.Module.load_state_dict"), "which is not a model class"),
    "private": (node("torch._utils._import_dotted_name", name="evil"), "which is not public"),
    "builtin": (node("builtins.eval", _args_=[LEAVES_A_MARK]), "of Python's standard library"),
    "partial": (node("torch.save", _partial_=True, obj=1, f=MARK), "'torch.save'"),
    "nested": (
        node("torch.nn.Sequential", _args_=[node("torch.save", obj=1, f=MARK)]),
        "model._args_.0.model would call 'torch.save'",
    ),
    "kept-for-itself": (
        {"model": {"_target_": "torch.nn.Identity", "_recursive_": False, "x": {"_target_": "evil.Net"}}},
        "model.x would call 'evil.Net'",
    ),
    "by-hydra": (node("hydra.utils.call", path="evil.run"), "'hydra.utils.call'"),
    "not-a-class": (node("torch.nn.functional.relu", input=1), "which is not a model class"),
}


@pytest.mark.parametrize("case", STRANGERS.values(), ids=list(STRANGERS))
def test_what_is_not_proven_is_refused_by_name_before_anything_runs(
    case: tuple[Any, str], folder: Path, capsys: Capture
) -> None:
    content, named = case
    (folder / "evil.py").write_text(LEAVES_A_MARK)
    path = written(folder, content)
    before = sorted(os.listdir(folder))
    for command in ("inspect", "memory", "flow", "unique", "info"):
        code, out, err = run(command, str(path), capsys=capsys)
        assert (code, out) == (3, ""), command
        assert named in err
        assert "--trust" in err
    assert sorted(os.listdir(folder)) == before


def test_everything_that_would_be_called_is_listed(folder: Path) -> None:
    content = node("torch.nn.Sequential", _args_=[{"_target_": "evil.A"}, {"_target_": "evil.B"}])
    with pytest.raises(UntrustedError, match=r"0 would call 'evil.A'.*; .*1 would call 'evil.B'"):
        mg.inspect(written(folder, content))


def test_model_classes_element_types_and_plain_values_are_built(folder: Path) -> None:
    half = {"_target_": "hydra.utils.get_object", "path": "torch.float16"}
    linear = {"_target_": "torch.nn.Linear", "in_features": 4, "out_features": 2, "dtype": half}
    norm = {
        "_target_": "torch.nn.LayerNorm",
        "normalized_shape": {"_target_": "builtins.list", "_args_": [[2]]},
    }
    with build(written(folder, node("torch.nn.Sequential", _args_=[linear, norm]))) as found:
        assert found.native[0].weight.dtype == torch.float16
        assert found.native[1].normalized_shape == (2,)


def test_a_class_of_a_library_is_built_from_where_it_is_installed(folder: Path) -> None:
    pytest.importorskip("timm")
    (folder / "timm").mkdir()
    (folder / "timm" / "__init__.py").write_text(LEAVES_A_MARK)
    layer = {"_target_": "timm.layers.Mlp", "in_features": 4, "hidden_features": 8}
    with build(written(folder, {"model": layer})) as found:
        assert isinstance(found.native, nn.Module)
    assert not (folder / MARK).exists()


SHADOWS = ("transformers", "sympy", "regex", "PIL", "torch", "numpy", "yaml", "tokenizers", "safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("command", [("memory",), ("flow",), ("unique",), ("inspect",), ("scan",)])
def test_no_file_of_a_downloaded_folder_runs(command: tuple[str, ...], folder: Path) -> None:
    """In a process of its own, where nothing is imported yet: under its own name, and as a module."""
    written(folder, {**BERT, "auto_map": {"AutoModel": "evil.Net"}, "trust_remote_code": True}, "config.json")
    for name in (*SHADOWS, "evil", "sitecustomize", "modeling_bert"):
        (folder / f"{name}.py").write_text(LEAVES_A_MARK)
    before = sorted(os.listdir(folder))
    done = subprocess.run(
        [sys.executable, "-m", "modelglass", *command, "."], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    assert sorted(os.listdir(folder)) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("entry", "arguments"),
    [("main", ["config.yaml"]), ("model_inspector", ["--config", "config.yaml"])],
)
def test_the_current_folder_on_the_import_path_stands_in_for_nothing_installed(
    entry: str, arguments: list[str], folder: Path
) -> None:
    written(folder, node("evil.Net"))
    for name in ("click", "jinja2", "torch", "yaml", "numpy", "evil"):
        (folder / f"{name}.py").write_text(LEAVES_A_MARK)
    code = f"import sys; sys.argv[1:] = {arguments}; from modelglass.cli.start import {entry}; {entry}()"
    environment = {**os.environ, "PYTHONPATH": "."}
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 3, done.stderr
    assert "would call 'evil.Net'" in done.stderr
    assert not (folder / MARK).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", ["inspect('config.json')", "scan('.')", "inspect('w.safetensors', stats=True)"]
)
def test_nothing_of_the_current_folder_runs_from_python_either(call: str, folder: Path) -> None:
    """Where Python is started by hand, the current folder comes first on the import path."""
    written(folder, BERT, "config.json")
    written(folder, "_target_: x.Y", "some.yaml")
    header = b'{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    (folder / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    for name in (*SHADOWS, "jinja2", "numba", "ml_dtypes"):
        (folder / f"{name}.py").write_text(LEAVES_A_MARK)
    code = f"import modelglass as mg; mg.{call}"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (folder / MARK).exists()


@pytest.mark.parametrize("name", ["model.py::weights.safetensors", "model:weights.safetensors"])
def test_a_file_that_is_called_like_code_is_a_file(name: str, folder: Path, capsys: Capture) -> None:
    (folder / "model.py").write_text(LEAVES_A_MARK)
    (folder / name).write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    assert run("inspect", name, capsys=capsys)[0] == 0
    (folder / name).unlink()
    (folder / name).symlink_to("nowhere")
    assert run("inspect", name, capsys=capsys)[0] == 3
    assert not (folder / MARK).exists()


class Writing(nn.Module):
    """A model of an installed package whose run does something."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Path(MARK).write_text("x")
        return x


def test_a_run_changes_nothing_outside_of_the_process_either(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.nn, "Writing", Writing, raising=False)
    monkeypatch.setattr(Writing, "__module__", "torch.nn.modules.linear")
    path = written(folder, node("torch.nn.Writing"))
    failure = mg.inspect(path, inputs=torch.zeros(2), on_failure="report").run.failure
    assert failure is not None
    assert "would write a file" in failure.message
    assert not (folder / MARK).exists()


def test_code_that_the_user_names_is_free(folder: Path) -> None:
    def inputs() -> torch.Tensor:
        (folder / "cache").write_text("x")
        return torch.zeros(2, 4)

    path = written(folder, node("torch.nn.Linear", in_features=4, out_features=2))
    assert mg.inspect(path, inputs=inputs).cost.macs == 16
    assert (folder / "cache").exists()


def test_what_was_closed_opens_with_the_last(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["first", str(folder), "", "last"])
    first, second = only_installed(folder / "a"), only_installed(folder / "b")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.path == ["first", "last"]
    second.__exit__(None, None, None)
    assert sys.path == ["first", str(folder), "", "last"]


def test_what_is_installed_stays_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = Path(torch.__file__).parents[1]
    monkeypatch.chdir(installed)
    with only_installed(installed):
        assert str(installed) in sys.path


def test_nobody_is_asked_for_leave_to_run_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO("y\n" * 9))
    with build(written(folder, node("torch.nn.Identity"))), pytest.raises(EOFError):
        input("run it? ")
    assert sys.stdin.readline() == "y\n"


GROWING = {
    "texts": "".join(f"a{i}: ${{a{i + 1}}}${{a{i + 1}}}\n" for i in range(34)) + "a34: x\n",
    "lists": "".join(f"a{i}: ['${{a{i + 1}}}', '${{a{i + 1}}}']\n" for i in range(34)) + "a34: x\n",
    "deep": "a0: " + "${" * 2000 + "b" + "}" * 2000 + "\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("references", GROWING.values(), ids=list(GROWING))
def test_references_are_followed_within_bounds(references: str, folder: Path) -> None:
    pytest.importorskip("omegaconf")
    path = written(folder, references + "model: {_target_: torch.nn.Identity, x: '${a0}'}\n")
    with pytest.raises(mg.InspectError, match=r"take too long to follow|cannot be resolved"):
        mg.inspect(path)


def test_the_environment_is_not_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("omegaconf")
    monkeypatch.setenv("A_TOKEN", "topsecret")
    path = written(folder, "model: {_target_: 'torch.nn.${oc.env:A_TOKEN}'}\n")
    with pytest.raises(mg.InspectError) as caught:
        mg.inspect(path)
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("numbers.yaml", "model: {_target_: torch.nn.Linear, 1: 2, null: 4}\n"),
        ("config.json", {"architectures": ["BertModel", 5], "model_type": ["bert"]}),
        ("script.yaml", node("torch.jit.RecursiveScriptModule", cpp_module=None)),
    ],
)
def test_what_makes_no_sense_gets_a_sentence(name: str, content: Any, folder: Path, capsys: Capture) -> None:
    code, _, err = run("inspect", str(written(folder, content, name)), capsys=capsys)
    assert code in (2, 3)
    assert "Traceback" not in err


def test_code_of_a_part_is_not_asked_for_either(folder: Path) -> None:
    part = {**BERT, "auto_map": {"AutoModel": "evil.Net"}, "attn_implementation": "somebody/kernels"}
    content = {"model_type": "encoder-decoder", "encoder": part, "decoder": {**part, "is_decoder": True}}
    (folder / "evil.py").write_text(LEAVES_A_MARK)
    report = mg.inspect(written(folder, content, "config.json"), run="none")
    assert report.model.name == "EncoderDecoderModel"
    assert not (folder / MARK).exists()


def test_functions_that_a_process_registered_are_not_called_for_a_strangers_file(folder: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    called: list[str] = []
    omegaconf.OmegaConf.register_resolver("mark", lambda text: called.append(text) or 4)
    try:
        text = (
            "width: ${mark:x}\nmodel: {_target_: torch.nn.Linear, in_features: '${width}', out_features: 2}\n"
        )
        path = written(folder, text)
        with pytest.raises(mg.InspectError, match="cannot be resolved"):
            mg.inspect(path)
        escaped = written(folder, text.replace("${width}", "\\${mark:x}"), "escaped.yaml")
        with pytest.raises(UntrustedError, match="might find a function to call"):
            mg.inspect(escaped)
        assert called == []
        assert mg.inspect(path, trust=True).model.name == "Linear"
    finally:
        omegaconf.OmegaConf.clear_resolver("mark")


ACTS = {
    "program": (lambda: subprocess.run(["true"]), "start a program"),
    "shell": (lambda: os.system("true"), "start a program"),
    "write": (lambda: open(MARK, "w"), "write a file"),  # noqa: SIM115
    "folder": (lambda: os.mkdir(MARK), "change files"),
    "lookup": (lambda: socket.getaddrinfo("localhost", 80), "connect to another machine"),
    "pickle": (lambda: pickle.loads(b"cposix\nsystem\n."), "load a pickle"),
}


@pytest.mark.parametrize("case", ACTS.values(), ids=list(ACTS))
def test_a_constructor_changes_nothing_outside_of_the_process(case: tuple[Any, str], folder: Path) -> None:
    act, what = case
    with guarded(), pytest.raises(UntrustedError, match=f"it would {what}"):
        act()
    assert os.listdir(folder) == []


def test_afterwards_everything_is_allowed_again(folder: Path) -> None:
    with guarded(), guarded():
        Path(os.devnull).write_text("")
    (folder / "mine").write_text("mine")
    assert subprocess.run(["true"]).returncode == 0


NO_MODELS = {
    "text": ("builtins.str", "evil.py::Net"),
    "path": ("pathlib.Path", "evil.py"),
    "number": ("builtins.float", "nan"),
    "list": ("builtins.list", [1]),
    "type": ("hydra.utils.get_class", "torch.nn.Linear"),
    "element-type": ("hydra.utils.get_object", "torch.float16"),
    "mapping": ("collections.OrderedDict", [["a", 1]]),
}


@pytest.mark.parametrize("case", NO_MODELS.values(), ids=list(NO_MODELS))
def test_what_is_no_model_gets_a_sentence(case: tuple[str, Any], folder: Path, capsys: Capture) -> None:
    (folder / "evil.py").write_text(LEAVES_A_MARK)
    target, argument = case
    path = written(folder, node(target, _args_=[argument]))
    for command in ("inspect", "memory", "flow", "unique"):
        code, out, err = run(command, str(path), capsys=capsys)
        assert (code, out) == (3, ""), command
        assert "which is not a supported model type" in err
    assert not (folder / MARK).exists()


def test_names_that_a_section_cannot_have_get_a_sentence(folder: Path, capsys: Capture) -> None:
    pytest.importorskip("omegaconf")
    path = written(folder, "model: {_target_: torch.nn.Identity, x: {null: 1}}\n")
    code, _, err = run("inspect", str(path), capsys=capsys)
    assert code == 3
    assert "model.x, as a section of OmegaConf, raised KeyValidationError" in err


def test_classes_that_inherit_code_are_refused(folder: Path) -> None:
    for name in (
        "torch.ao.quantization.fx.graph_module.ObservedGraphModule",
        "torch.utils.mkldnn.MkldnnLinear",
    ):
        with pytest.raises(UntrustedError, match="which holds code instead of layers"):
            mg.inspect(written(folder, node(name)))


def test_a_refusal_is_no_longer_than_it_can_be_read(folder: Path) -> None:
    many = [{"_target_": f"{'a' * 10_000}.B{index}"} for index in range(500)]
    with pytest.raises(UntrustedError, match="and 450 more") as caught:
        mg.inspect(written(folder, node("torch.nn.Sequential", _args_=many), "config.json"))
    assert len(str(caught.value)) < 50 * 1_000


def test_code_that_is_not_installed_does_not_run_however_it_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A constructor may put a folder on the import path, or run a file that a text names."""
    (folder / "evil.py").write_text(LEAVES_A_MARK)
    imported = "import sys; sys.path.insert(0, '.'); import evil"
    for act in (lambda: exec(imported), lambda: runpy.run_path("evil.py")):
        monkeypatch.setattr(sys, "path", [each for each in sys.path if each not in ("", ".")])
        with guarded(), pytest.raises(UntrustedError, match="is not installed"):
            act()
    assert "evil" not in sys.modules
    assert not (folder / MARK).exists()


def test_a_thread_has_the_rules_of_the_one_that_starts_it(folder: Path) -> None:
    def act() -> None:
        try:
            (folder / MARK).write_text("x")
        except UntrustedError as error:
            refused.append(str(error))

    def act_in_another() -> None:
        thread = Thread(target=act)
        thread.start()
        thread.join()

    refused: list[str] = []
    start = Thread.start
    for target in (act, act_in_another):
        with guarded():
            thread = Thread(target=target)
            thread.start()
            thread.join()
    assert len(refused) == 2
    assert Thread.start is start
    assert not (folder / MARK).exists()


def test_libraries_are_not_loaded_by_name(folder: Path) -> None:
    with guarded(), pytest.raises(UntrustedError, match="it would load a library"):
        ctypes.CDLL("./evil.so")


def test_places_that_are_not_there_are_not_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop.pt").symlink_to("loop.pt")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["first", str(tmp_path / "missing.zip")])
    before = list(sys.path)
    with only_installed(tmp_path / "loop.pt"):
        assert sys.path == before
