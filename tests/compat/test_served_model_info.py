"""`model_info.json` of an engine: the documented keys, filled with what the engine is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import build_engine
from build_engine import LLAMA_70B, TINY
from modelglass.compat.model_info import described, rendered
from modelglass.compat.served_model_info import LONGEST
from modelglass.report import Observation, Report
from renderers.test_engine_text import report

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "model-info-vllm-1.json"


def document(observed: Observation, name: str | None = None) -> Any:
    told: Report = report(observed)
    found = described(told, name)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    assert json.loads(rendered(told, name)) == found
    return found


def answered(*texts: str, prompt: str = "Test prompt") -> Observation:
    return build_engine.generated(build_engine.observation(operators_unknown=True), *texts, prompt=prompt)


def test_the_documented_keys_have_real_values() -> None:
    found = document(answered("Generated text"))
    assert (found["framework"], found["model_name"], found["model_type"]) == ("vllm", "vllm_model", "vLLM")
    assert found["parameters"] == 263_552
    asked, given = found["input_info"], found["output_info"]
    assert (asked["type"], asked["sample_input"]) == ("text_or_sampling_params", "Test prompt")
    assert (given["type"], given["sample_output"], given["num_outputs"]) == (
        "generated_text",
        "Generated text",
        1,
    )
    first = found["layers"][0]
    assert {key: first[key] for key in ("layer_index", "name", "type", "parameters", "description")} == {
        "layer_index": 0,
        "name": "vllm_model",
        "type": "vLLM",
        "parameters": 263_552,
        "description": "LlamaForCausalLM as vLLM 0.32.0 serves it",
    }
    assert [(part["name"], part["type"], part["class"]) for part in first["components"]] == [
        ("tokenizer", "Tokenizer", "LlamaTokenizerFast"),
        ("model_engine", "ModelEngine", "LLMEngine"),
        ("scheduler", "Scheduler", "Scheduler"),
    ]
    assert first["components"][0]["vocabulary_size"] == 259
    assert first["components"][2]["settings"]["max_num_seqs"] == 256


def test_every_module_follows_the_engine_and_adds_up() -> None:
    found = document(answered("x"), name="tiny")
    modules = build_engine.held().model.modules[1:]
    layers = found["layers"][1:]
    assert [layer["name"] for layer in layers] == [module.path for module in modules]
    assert [layer["layer_index"] for layer in layers] == list(range(1, len(modules) + 1))
    assert sum(layer["own_parameters"] for layer in layers) == found["totals"]["parameters"] == 279_168
    assert found["memory"]["nbytes"] == 2 * 279_168
    assert found["layers"][0]["name"] == found["model_name"] == "tiny"
    (projection,) = [layer for layer in layers if layer["name"] == "model.layers.0.self_attn.qkv_proj"]
    assert projection["parameter_shapes"] == [[256, 128]]
    assert projection["parameter_dtypes"] == ["torch.bfloat16"]
    assert projection["times_called"] is None, "an engine does not show its calls"
    (partition,) = projection["partitions"]
    assert [piece["name"] for piece in partition["pieces"]] == ["q_proj", "k_proj", "v_proj"]
    assert found["ranks"][0]["padding"] == layers[1]["partitions"][0]["padding"] * 2 == 15_616


@pytest.mark.slow
def test_a_rank_of_several_has_its_own_layers_and_the_parameters_of_all() -> None:
    found = document(build_engine.observation(LLAMA_70B, ranks=8, rank=3))
    assert found["parameters"] == found["layers"][0]["parameters"] == 70_553_706_496
    assert found["totals"]["parameters"] == found["ranks"][0]["held"] == 8_820_367_360
    assert (found["engine"]["rank"], found["engine"]["tensor_parallel"]) == (3, 8)
    assert (found["whole"]["rank"], found["whole"]["weight_nbytes"]) == (None, 2 * 70_553_706_496)
    assert found["kv_cache"]["nbytes_per_token"] == 40_960
    assert found["kv_cache"]["groups"][0]["kind"] == "FullAttentionSpec"
    (down,) = [layer for layer in found["layers"] if layer["name"] == "model.layers.79.mlp.down_proj"]
    assert down["partitions"][0] | {"pieces": []} == {
        "tensor": "model.layers.79.mlp.down_proj.weight",
        "shape": [8192, 3584],
        "whole_shape": [8192, 28_672],
        "dim": 1,
        "pieces": [],
        "padding": 0,
    }


def test_without_a_prompt_nothing_went_in_or_out() -> None:
    found = document(build_engine.observation())
    assert (found["input_info"], found["output_info"]) == (None, None)


def test_several_answers_are_all_there_and_long_ones_are_cut() -> None:
    found = document(answered("one", "x" * (LONGEST + 1), prompt="y" * LONGEST))
    assert found["output_info"]["num_outputs"] == 2
    assert [len(text) for text in found["output_info"]["outputs"]] == [3, LONGEST]
    assert found["output_info"]["outputs"][1].endswith("xxx...")
    assert found["input_info"]["sample_input"] == "y" * LONGEST


@pytest.mark.parametrize("emptied", [False, True], ids=["plain", "emptied"])
def test_emptied_weights_have_the_shapes_they_stand_for(emptied: bool) -> None:
    found = document(build_engine.observation(replace(TINY, emptied=emptied)))
    shapes = [layer["parameter_shapes"] for layer in found["layers"][1:]]
    assert found["parameters"] == 263_552
    assert [[256, 128]] in shapes


def test_a_whole_that_nothing_tells_has_no_number() -> None:
    found = document(build_engine.observation(ranks=2, whole=False))
    assert (found["parameters"], found["whole"]) == (None, None)
    assert found["ranks"][0]["parameters"] == 139_904
