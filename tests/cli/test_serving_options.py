"""`modelglass inspect CONFIG --framework vllm` as a person meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import build_engine
import command_line
from modelglass.errors import MissingPackageError
from modelglass.report import Observation, Serving
from modelglass.report.codec import loads

Run = Callable[..., tuple[int, str, str]]
SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return lambda *args: command_line.run(*args, capsys=capsys)


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


@pytest.fixture
def setups(monkeypatch: pytest.MonkeyPatch) -> list[Serving]:
    """How engines were to be set up, by the calls so far."""

    found: list[Serving] = []

    def built(path: Path, serving: Serving, *, progress: Callable[[str], None]) -> Observation:
        found.append(serving)
        return build_engine.observation(ranks=serving.tensor_parallel, rank=serving.rank)

    from modelglass.frameworks.vllm import build

    monkeypatch.setattr(build, "build_rank", built)
    return found


def test_the_table_has_the_rank_and_the_whole(run: Run, config: str, setups: list[Serving]) -> None:
    options = ("--framework", "vllm", "--tensor-parallel", "2", "--rank", "1")
    code, out, err = run("inspect", config, *options, "--width", "120")
    assert (code, err) == (0, "")
    assert setups == [Serving(tensor_parallel=2, rank=1)]
    assert "2 ranks share each layer; rank 1 is listed above" in out
    assert "160 of 259 rows, 61 of them padding" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["1", "124,288", "15,616", "139,904", "273.25", "KiB", "273.25", "KiB"] in lines
    assert ["whole", "263,552", "15,616", "279,168", "545.25", "KiB", "545.25", "KiB"] in lines


def test_every_option_arrives(run: Run, config: str, setups: list[Serving]) -> None:
    options = """--framework vllm --tensor-parallel 4 --rank 0 --expert-parallel --quantization awq
        --model-dtype float16 --kv-cache-dtype fp8 --block-size 32 --max-model-len 4096
        --device-memory 80GiB --utilization 0.85"""
    code, _, err = run(config, *options.split())
    assert (code, err) == (0, "")
    assert setups == [
        Serving(
            tensor_parallel=4,
            rank=0,
            expert_parallel=True,
            quantization="awq",
            dtype="float16",
            kv_cache_dtype="fp8",
            block_size=32,
            max_model_len=4096,
            device_nbytes=80 * 2**30,
            utilization=0.85,
        )
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("--tensor-parallel 2", "--tensor-parallel applies only to a configuration that vLLM builds"),
        ("--rank 0", "--rank applies only"),
        ("--framework torch --model-dtype float16", "--model-dtype applies only"),
        ("--expert-parallel", "--expert-parallel applies only"),
        ("--framework vllm --tensor-parallel 2 --rank 2", "there is no rank 2 among 2"),
        ("--framework vllm --tensor-parallel 0", "tensor_parallel must be a positive integer, got 0"),
        ("--framework vllm --device-memory 80G", "'80G' is not a valid size"),
        ("--framework vllm --utilization 0.9", "--utilization is a fraction of a device's memory"),
        (
            "--framework vllm --device-memory 8GiB --utilization 1.5",
            "utilization must be above 0 and at most 1, got 1.5",
        ),
        ("--framework vllm --rank 1", "give tensor_parallel as well"),
        ("--framework vllm --run real", 'run="real" does not apply to'),
        ("--framework vllm --train", "train does not apply to"),
        ("--framework vllm --stats", "stats does not apply to"),
        ("--framework vllm --input 1x2", "inputs does not apply to"),
        ("--framework nothing", "framework='nothing' is not known"),
        ("--framework vllm --rank one", "'one' is not a valid integer"),
    ],
)
def test_wrong_usage_is_told_in_a_line(
    run: Run, config: str, setups: list[Serving], options: str, problem: str
) -> None:
    code, out, err = run("inspect", config, *options.split())
    assert (code, out) == (2, "")
    assert problem in err
    assert "Traceback" not in err
    assert setups == []


def test_a_missing_package_is_one_sentence(run: Run, config: str, monkeypatch: pytest.MonkeyPatch) -> None:

    def built(*args: object, **more: object) -> Observation:
        raise MissingPackageError("vllm", wanted_by="building a model of vLLM", extra="vllm")

    from modelglass.frameworks.vllm import build

    monkeypatch.setattr(build, "build_rank", built)
    code, out, err = run("inspect", config, "--framework", "vllm")
    assert (code, out) == (3, "")
    assert "needs the package 'vllm'" in err


def test_json_reads_back_and_info_keeps_to_its_schema(run: Run, config: str, setups: list[Serving]) -> None:
    code, out, _ = run("inspect", config, "--framework", "vllm", "--format", "json")
    assert code == 0
    assert loads(out).engine.whole.params == 263_552  # type: ignore[union-attr]
    code, out, _ = run("info", config, "--framework", "vllm", "--tensor-parallel", "2", "--name", "tiny")
    document = json.loads(out)
    jsonschema.validate(document, json.loads((SCHEMAS / "model-info-vllm-1.json").read_text()))
    assert (code, document["model_name"], document["parameters"]) == (0, "tiny", 263_552)
    assert (document["input_info"], document["output_info"]) == (None, None)
    code, _, err = run("info", config, "--rank", "1")
    assert (code, "--rank applies only" in err) == (2, True)
