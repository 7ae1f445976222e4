"""`mg.inspect` and `mg.model_info` on a live engine of two ranks, and the documents' schemas."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tiny import VOCABULARY

SCHEMAS = Path(__file__).parents[2] / "docs" / "schema"
TWO_RANKS = {"VLLM_CPU_OMP_THREADS_BIND": "0|1"}
PADDED = 320  # the next multiple of 64


@pytest.fixture(scope="session")
def found(script: Callable[..., Any], tiny: Callable[[str], Any]) -> Any:
    return script("public_functions.py", str(tiny("qwen").folder), env=TWO_RANKS)


def test_tokens_are_the_same_afterwards(found: Any) -> None:
    assert found["before"] == found["after"]


@pytest.mark.parametrize(
    ("document", "schema"), [("report", "report-1.json"), ("info", "model-info-vllm-1.json")]
)
def test_documents_keep_to_their_schemas(document: str, schema: str, found: Any) -> None:
    jsonschema.validate(found[document], json.loads((SCHEMAS / schema).read_text()))


def test_the_whole_is_what_transformers_counts_and_padding_is_apart(
    found: Any, tiny: Callable[[str], Any]
) -> None:
    padding = (PADDED - VOCABULARY) * 128
    engine = found["report"]["engine"]
    assert engine["reached"] == "workers"
    assert engine["whole"]["params"] == tiny("qwen").params
    assert engine["whole"]["padding"] == padding
    assert [rank["padding"] for rank in engine["ranks"]] == [0, padding]  # the last rows are the last rank's


def test_key_value_heads_that_both_ranks_hold_count_once(found: Any, tiny: Callable[[str], Any]) -> None:
    ranks = found["report"]["engine"]["ranks"]
    # Both ranks hold the norms, and of each layer the one head of keys and of values with their biases.
    copied = 2 * (2 * 32 * (128 + 1) + 2 * 128) + 128
    assert sum(rank["params"] for rank in ranks) == tiny("qwen").params + copied


def test_model_info_has_real_text_and_numbers(found: Any, tiny: Callable[[str], Any]) -> None:
    info = found["info"]
    assert found["written"]
    assert info["framework"] == "vllm"
    assert info["parameters"] == tiny("qwen").params
    assert info["input_info"]["sample_input"] == "hello"
    assert info["output_info"]["num_outputs"] == 1
    assert info["output_info"]["sample_output"]
    engine, *modules = info["layers"]
    assert engine["parameters"] == tiny("qwen").params
    assert {"tokenizer", "model_engine", "scheduler"} <= {part["name"] for part in engine["components"]}
    assert any(layer["type"] == "QKVParallelLinear" for layer in modules)


def test_components_are_filled_from_the_engine(found: Any) -> None:
    parts = {part["name"]: part for part in found["info"]["layers"][0]["components"]}
    assert parts["tokenizer"]["vocabulary_size"] >= VOCABULARY
    assert parts["scheduler"]["settings"]["max_num_seqs"] == 4
    assert parts["model_engine"]["settings"]["architecture"] == "Qwen2ForCausalLM"
    assert parts["parallel"]["settings"]["tensor_parallel_size"] == 2


def test_the_table_shows_what_a_rank_holds_of_the_whole(found: Any) -> None:
    assert "128 of 192 rows: q 64, k 32, v 32" in found["text"]
