"""`mg.compare_structure` of configurations that vLLM builds; hand-built facts play vLLM."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import build_engine
import command_line
import modelglass as mg
from modelglass.errors import MissingPackageError, TargetError, UsageError
from modelglass.report import Observation, Report, Serving

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 259,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
PADDED = 2 * (320 - 259) * 128
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration, and what stands for the process in which vLLM builds it."""
    from modelglass.frameworks.vllm import build, versions

    def built(path: Path, serving: Serving, *, progress: Callable[[str], None]) -> Observation:
        return build_engine.observation(ranks=serving.tensor_parallel, rank=serving.rank)

    monkeypatch.setattr(build, "build_rank", built)
    monkeypatch.setattr(versions, "installed_version", lambda: versions.TESTED[0])
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


def test_a_configuration_beside_itself(config: Path) -> None:
    for found in (
        mg.compare_structure(config, config, framework_b="vllm"),
        mg.compare_structure(config, framework_a="torch", framework_b="vllm"),
        mg.compare_structure(config, framework_b="vllm"),
    ):
        assert (found.a.source, found.b.source) == ("torch", "vllm")
        assert found.same
        assert [(term.code, term.params) for term in found.reconciliation[1:-1]] == [("padding", PADDED)]


def test_the_first_may_be_the_engines(config: Path) -> None:
    found = mg.compare_structure(config, framework_a="vllm")
    assert (found.a.source, found.b.source) == ("vllm", "torch")
    assert found.reconciliation[1].params == -PADDED


def test_both_may_be_the_engines(config: Path) -> None:
    serving = mg.Serving(tensor_parallel=2, rank=1)
    found = mg.compare_structure(config, config, framework_a="vllm", framework_b="vllm", serving=serving)
    assert found.same
    assert [term.text for term in found.reconciliation] == [
        "parameters of a, rank 1 of 2",
        "parameters of b, rank 1 of 2",
    ]


def test_a_saved_report_of_an_engine(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    mg.save(mg.inspect(config, framework="vllm"), path)
    assert mg.compare_structure(config, path).same
    assert mg.compare_structure(config, path, framework_b="vllm").same
    with pytest.raises(UsageError, match="a report of a model of vllm, not of torch"):
        mg.compare_structure(config, path, framework_b="torch")


def test_what_makes_no_sense_is_wrong_usage(config: Path) -> None:
    serving = mg.Serving(tensor_parallel=2)
    with pytest.raises(UsageError, match="compare needs two models"):
        mg.compare_structure(config)
    with pytest.raises(UsageError, match="serving options apply only"):
        mg.compare_structure(config, config, serving=serving)
    with pytest.raises(UsageError, match="cannot be called with inputs"):
        mg.compare_structure(config, framework_b="vllm", inputs="auto")
    with pytest.raises(UsageError, match="framework='jax' is not known"):
        mg.compare_structure(config, framework_b="jax")
    with pytest.raises(TargetError, match="there is no file"):
        mg.compare_structure(config.with_name("none.json"), config, framework_a="vllm")


def test_what_is_missing_is_said_before_anything_is_built(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelglass.frameworks.vllm import versions

    monkeypatch.setattr(versions, "installed_version", lambda: None)
    told: list[str] = []
    with pytest.raises(MissingPackageError, match="needs the package 'vllm'"):
        mg.compare_structure(config, framework_b="vllm", progress=told.append)
    with pytest.raises(UsageError, match="framework='jax' is not known"):
        mg.compare_structure(config, framework_b="jax", progress=told.append)
    assert told == []


def test_a_report_may_be_compared_again(config: Path) -> None:
    report = mg.inspect(config, framework="vllm")
    assert isinstance(report, Report)
    assert mg.compare_structure(report, report).same


def test_the_command_line(config: Path, capsys: Capture) -> None:
    code, out, _ = command_line.run("compare", str(config), "--framework-b", "vllm", capsys=capsys)
    assert code == 0
    assert out.startswith("same: 21 of 21 tensors of a line up with 15 of 15 of b; their parameters")
    options = ("--framework-b", "vllm", "--tensor-parallel", "2", "--rank", "1")
    code, out, _ = command_line.run("compare", str(config), *options, capsys=capsys)
    assert code == 0
    assert "parameters of b, rank 1 of 2" in out


def test_the_command_line_says_what_is_missing(config: Path, capsys: Capture) -> None:
    code, _, err = command_line.run("compare", str(config), capsys=capsys)
    assert code == 2
    assert "compare needs two models" in err
    code, _, err = command_line.run(
        "compare", str(config), str(config), "--tensor-parallel", "2", capsys=capsys
    )
    assert code == 2
    assert "add --framework-b vllm" in err
