"""`mg.inspect` of what an engine serves, live or built without one; hand-built facts play the adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import build_engine
import modelglass as mg
from modelglass import frameworks
from modelglass.errors import TargetError, UsageError
from modelglass.frameworks.shared.request import Inputs, Request
from modelglass.report import Observation, Serving


class Builder:
    """Stands for the child process that builds vLLM's classes: remembers what it was asked."""

    def __init__(self) -> None:
        self.path: Path | None = None
        self.serving: Serving | None = None

    def __call__(self, path: Path, serving: Serving, *, progress: Callable[[str], None]) -> Observation:
        progress("building")
        self.path, self.serving = path, serving
        return build_engine.observation(
            build_engine.LLAMA_70B, ranks=serving.tensor_parallel, rank=serving.rank
        )


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Builder:

    builder = Builder()
    from modelglass.frameworks.vllm import build

    monkeypatch.setattr(build, "build_rank", builder)
    return builder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    return tmp_path


@pytest.mark.slow
def test_a_configuration_is_built_as_a_rank_would_hold_it(built: Builder, config: Path) -> None:
    serving = mg.Serving(tensor_parallel=8, rank=3)
    told: list[str] = []
    report = mg.inspect(config, framework="vllm", serving=serving, progress=told.append)
    assert (built.path, built.serving, told) == (config, serving, ["building"])
    assert report.model.source == "vllm"
    assert report.counts is not None
    assert report.counts.params == 8_820_367_360
    assert report.engine is not None
    assert [(share.rank, share.params) for share in report.engine.ranks] == [(3, 8_820_367_360)]
    assert report.engine.whole is not None
    assert report.engine.whole.params == 70_553_706_496
    assert report.engine.shards["lm_head.weight"].whole == (128_256, 8192)


def test_one_rank_is_meant_where_nothing_is_said(built: Builder, config: Path) -> None:
    mg.inspect(str(config / "config.json"), framework="vllm")
    assert built.serving == Serving()


def test_a_report_with_an_engine_reads_back_equal(built: Builder, config: Path, tmp_path: Path) -> None:
    report = mg.inspect(config, framework="vllm", serving=mg.Serving(tensor_parallel=2))
    mg.save(report, tmp_path / "report.json")
    assert mg.load(tmp_path / "report.json") == report


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"framework": "jax"}, "framework='jax' is not known"),
        ({"framework": "torch", "serving": Serving()}, "serving does not apply to"),
        ({"serving": Serving()}, "serving does not apply to"),
        ({"framework": "vllm", "serving": {"rank": 1}}, "serving must be a mg.Serving"),
        ({"framework": "vllm", "inputs": "hello"}, "inputs does not apply to"),
        ({"framework": "vllm", "input_shape": (3,)}, "input_shape does not apply to"),
        ({"framework": "vllm", "train": True}, "train does not apply to"),
        ({"framework": "vllm", "run": "real"}, 'run="real" does not apply to'),
        ({"framework": "vllm", "stats": "*.weight"}, "stats does not apply to"),
        ({"framework": "vllm", "dtype": "float16"}, "dtype does not apply to"),
        ({"framework": "vllm", "builder": len}, "builder does not apply to"),
        ({"framework": "vllm", "symbols": True}, "symbols does not apply to"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_contradicts_itself_is_wrong_usage(
    built: Builder, config: Path, given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        mg.inspect(config, **given)
    assert built.path is None


def test_what_is_no_configuration_is_said_so(built: Builder, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="there is no file"):
        mg.inspect(tmp_path / "missing", framework="vllm")
    for target in (tmp_path, tmp_path / "model.safetensors"):
        (tmp_path / "model.safetensors").write_bytes(b"")
        with pytest.raises(TargetError, match="not a configuration that vLLM could build"):
            mg.inspect(target, framework="vllm")


def test_a_framework_that_agrees_is_welcome_and_another_is_not() -> None:
    assert mg.inspect(torch.nn.Linear(2, 2), framework="torch").counts is not None
    for other in ("mlx", "vllm"):
        with pytest.raises(UsageError, match=f"a model of torch, not of {other}"):
            mg.inspect(torch.nn.Linear(2, 2), framework=other)
    with pytest.raises(UsageError, match="serving does not apply to"):
        mg.inspect(torch.nn.Linear(2, 2), framework="vllm", serving=Serving())


def test_a_file_that_is_read_has_no_framework(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match='framework="torch" does not apply to'):
        mg.inspect(tmp_path / "a.safetensors", framework="torch")


class LLM:
    """Stands for a live engine: its class says that it is vLLM's."""


LLM.__module__ = "vllm.entrypoints.llm"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What the adapter of engines is asked, which answers each prompt with "world"."""
    requests: list[Request] = []

    def observe(native: object, request: Request) -> Observation:
        requests.append(request)
        found = build_engine.observation(operators_unknown=request.runs)
        return build_engine.generated(found, "world") if request.runs else found

    fake = SimpleNamespace(
        FRAMEWORK="vllm", __name__="modelglass.frameworks.vllm", accepts=lambda native: True, observe=observe
    )
    real = frameworks.adapter

    def adapter(framework: str) -> ModuleType | SimpleNamespace:
        return fake if framework == "vllm" else real(framework)

    monkeypatch.setattr(frameworks, "adapter", adapter)
    monkeypatch.setattr(
        frameworks, "adapter_for", lambda native: adapter(frameworks.framework_of(native) or "")
    )
    return requests


@pytest.mark.parametrize("prompt", ["a prompt", "auto", "what::is this", "os:getcwd"])
def test_a_text_for_an_engine_is_a_prompt_and_not_code(asked: list[Request], prompt: str) -> None:
    report = mg.inspect(LLM(), prompt)
    assert asked[0].inputs == Inputs(args=(prompt,))
    assert report.run.outputs[0].text == "world"
    assert report.cost is None


def test_an_engine_without_a_prompt_does_not_run(asked: list[Request]) -> None:
    report = mg.inspect(LLM(), framework="vllm")
    assert asked[0].inputs is None
    assert report.run.mode == "none"
    assert report.engine is not None
    assert report.engine.whole is not None


def test_code_may_give_an_engine(asked: list[Request], tmp_path: Path) -> None:
    file = tmp_path / "serve.py"
    file.write_text("class LLM: pass\nLLM.__module__ = 'vllm'\ndef build(): return LLM()\n")
    assert mg.inspect(f"{file}::build", "hello", framework="vllm").run.mode == "real"
    assert asked[0].inputs == Inputs(args=("hello",))


def test_ranks_of_a_live_engine_make_up_the_whole(asked: list[Request], monkeypatch: Any) -> None:
    def observe(native: object, request: Request) -> Observation:
        every = tuple(build_engine.held(ranks=2, rank=rank) for rank in range(2))
        return replace(build_engine.observation(ranks=2, whole=False), ranks=every)

    monkeypatch.setattr(frameworks.adapter("vllm"), "observe", observe)
    engine = mg.inspect(LLM()).engine
    assert engine is not None
    assert engine.whole is not None
    assert [share.held for share in engine.ranks] == [139_904, 139_904]
    assert (engine.whole.params, engine.whole.padding) == (263_552, 15_616)
