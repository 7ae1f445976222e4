"""What vLLM makes of a configuration beside what transformers makes of it: every parameter is explained."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Tiny
from side_by_side import CASES

IDS = [
    f"{name}, rank {rank} of {ranks}{f', {method}' if method else ''}" for name, ranks, rank, method in CASES
]


@pytest.fixture(scope="module")
def built(script: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = script("side_by_side.py", "built", str(tmp_path_factory.mktemp("configs")))
    return found


@pytest.fixture(scope="module")
def live(script: Callable[..., Any], tiny: Callable[[str], Tiny]) -> dict[str, Any]:
    found: dict[str, Any] = script("side_by_side.py", "live", str(tiny("llama").folder))
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_every_tensor_and_every_parameter_is_explained(built: list[dict[str, Any]], number: int) -> None:
    case = built[number]
    original, held = case["truth"]
    terms = case["terms"]
    assert (case["same"], case["codes"], case["reconciled"]) == (True, {}, True)
    assert case["lone"] == [0, 0]
    assert terms[0][:2] == ["total", original]
    assert sum(params for _, params, _ in terms[:-1]) == terms[-1][1]
    assert {code for code, _, _ in terms} <= {"total", "padding", "ranks", "buffer"}
    if case["method"] is None:
        assert terms[-1][1] == held
    else:  # torch counts words and scales there: as many weights as without quantization
        name, ranks, rank = case["model"], case["ranks"], case["rank"]
        plain = next(
            each for each in built if (each["model"], each["ranks"], each["rank"]) == (name, ranks, rank)
        )
        assert terms[-1][1] == plain["truth"][1]


@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_the_other_way_round_it_is_the_same(built: list[dict[str, Any]], number: int) -> None:
    case, turned = built[number], built[number]["turned"]
    assert turned["same"]
    assert turned["terms"][0][1] == case["terms"][-1][1]
    between = {code: -params for code, params, _ in case["terms"][1:-1]}
    assert {code: params for code, params, _ in turned["terms"][1:-1]} == between


def test_fused_weights_are_mapped_to_their_parts(built: list[dict[str, Any]]) -> None:
    cases = {(case["model"], case["ranks"]): case for case in built if case["method"] is None}
    attention = "model.layers.0.self_attn"
    for ranks in (1, 2, 8):
        parts = [f"{attention}.{name}_proj.weight" for name in "qkv"]
        assert [parts, [f"{attention}.qkv_proj.weight"]] in cases["llama", ranks]["joined"]
    latent = [f"{attention}.{name}.weight" for name in ("q_a_proj", "kv_a_proj_with_mqa")]
    assert [latent, [f"{attention}.fused_qkv_a_proj.weight"]] in cases["deepseek", 1]["joined"]


def test_padding_is_told_in_rows_and_elements(built: list[dict[str, Any]]) -> None:
    case = built[0]
    padding = (320 - 259) * 256
    assert f"61 rows of padding: 320 = 259 + 61 ({padding:,} elements)" in case["texts"]
    assert case["terms"][1] == ["padding", 2 * padding, ["model.embed_tokens.weight", "lm_head.weight"]]


@pytest.mark.parametrize("side", ["checkpoint", "model"])
def test_an_engine_that_runs(live: dict[str, Any], tiny: Callable[[str], Tiny], side: str) -> None:
    """Its weights are packed away by now, and still all there."""
    padding = 2 * (320 - 259) * 128
    params = tiny("llama").params
    found = live[side]
    assert (found["same"], found["codes"], found["lone"]) == (True, {}, [0, 0])
    assert [term[:2] for term in found["terms"]] == [
        ["total", params],
        ["padding", padding],
        ["total", params + padding],
    ]


def test_the_command_line_compares_a_configuration_with_itself(tiny: Callable[[str], Tiny]) -> None:
    config = str(tiny("llama").folder / "config.json")
    options = ["--framework-b", "vllm", "--tensor-parallel", "2", "--rank", "1", "--format", "json"]
    command = [sys.executable, "-m", "modelglass", "compare", config, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["a"]["source"] == "torch"
    assert found["b"]["source"] == "vllm"
    codes = [term["code"] for term in found["reconciliation"]]
    assert codes == ["total", "ranks", "padding", "total"]
    assert found["reconciliation"][-1]["text"] == "parameters of b, rank 1 of 2"
