"""Engines that run: what is read of them is right, and they do not notice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from modelglass.report import Engine, Model, Report, codec

MODELS = ("llama", "opt", "qwen", "mixtral")
PADDED, VOCABULARY, WIDTH = 320, 259, 128  # vLLM's padding is to a multiple of 64
PADDING = (PADDED - VOCABULARY) * WIDTH
TIED = ("opt", "qwen")


@pytest.fixture(scope="session")
def here(tiny: Callable[[str], Any], script: Callable[..., Any]) -> Any:
    """Engines in one process, which loaded no plugins."""
    folders = [str(tiny(name).folder) for name in MODELS]
    found = script("scenarios.py", "here", *folders, env={"VLLM_PLUGINS": ""})
    found["models"] = dict(zip(MODELS, found["models"].values(), strict=True))
    return found


@pytest.fixture(scope="session")
def workers(tiny: Callable[[str], Any], script: Callable[..., Any]) -> Any:
    """An engine in processes of its own."""
    return script("scenarios.py", "workers", str(tiny("llama").folder))


@pytest.fixture(scope="session")
def ranks(tiny: Callable[[str], Any], script: Callable[..., Any]) -> Any:
    """An engine of two ranks, each on a core."""
    folder = str(tiny("qwen").folder)
    return script("scenarios.py", "ranks", folder, env={"VLLM_CPU_OMP_THREADS_BIND": "0|1"})


def report(told: Any) -> Report:
    found = codec.loads(json.dumps(told["report"]))
    assert isinstance(found, Report)
    return found


def engine(told: Any) -> Engine:
    found = report(told).engine
    assert found is not None
    return found


def held(model: Model) -> int:
    """Weights, each storage once."""
    sizes = {each.storage: each.params for each in model.tensors if each.kind != "buffer"}
    return sum(size or 0 for size in sizes.values())


class TestInProcess:
    @pytest.mark.parametrize("name", MODELS)
    def test_parameters_are_those_of_transformers_and_padding(
        self, here: Any, tiny: Callable[[str], Any], name: str
    ) -> None:
        padding = PADDING * (1 if name in TIED else 2)
        assert held(report(here["models"][name]).model) == tiny(name).params + padding

    @pytest.mark.parametrize("name", MODELS)
    def test_tokens_are_the_same_before_and_after(self, here: Any, name: str) -> None:
        seen = here["models"][name]
        assert len(seen["before"]) == 8
        assert seen["before"] == seen["after"]

    def test_drawn_tokens_are_those_of_an_engine_nobody_looked_at(self, here: Any) -> None:
        without, looked_at = here["sampled"]
        assert len(set(without)) > 2
        assert without == looked_at

    def test_nothing_in_the_process_or_the_engine_changes(self, here: Any) -> None:
        assert here["trace"] == []

    def test_only_modelglass_and_torch_are_loaded_for_a_look(self, here: Any) -> None:
        packages = {name.partition(".")[0] for name in here["loaded"]}
        assert packages <= {"modelglass", "torch"}

    def test_no_plugin_is_needed(self, here: Any) -> None:
        assert here["registered"] is False
        assert engine(here["models"]["llama"]).reached == "in-process"

    def test_types_are_those_of_vllm(self, here: Any) -> None:
        modules = {each.path: each.type for each in report(here["models"]["llama"]).model.modules}
        assert modules["model.layers.0.self_attn.qkv_proj"] == "QKVParallelLinear"
        assert modules["lm_head"] == "ParallelLMHead"

    def test_the_cache_is_as_large_as_was_asked_for(self, here: Any) -> None:
        cache = engine(here["models"]["llama"]).cache
        assert cache is not None
        per_token = 2 * 2 * 2 * 32 * 4  # keys and values, of two layers and two heads of 32, in float32
        assert (cache.dtype, cache.nbytes, cache.nbytes_per_token) == ("float32", 32 << 20, per_token)
        assert cache.blocks == (32 << 20) // (per_token * cache.block_size)

    def test_components_are_filled_from_the_engine(self, here: Any) -> None:
        found = engine(here["models"]["llama"])
        names = [each.name for each in found.components]
        expected = ["tokenizer", "model_engine", "scheduler", "model", "kv_cache", "parallel", "load"]
        assert names == expected
        settings = {each.name: each.settings for each in found.components}
        assert settings["tokenizer"]["vocab_size"] == VOCABULARY
        assert settings["scheduler"]["max_num_seqs"] == 4
        assert settings["model_engine"]["architecture"] == "LlamaForCausalLM"
        assert settings["kv_cache"]["num_gpu_blocks"] == 256
        assert settings["parallel"]["tensor_parallel_size"] == 1
        assert settings["model"]["max_model_len"] == 64

    def test_the_engine_inside_says_the_same(self, here: Any) -> None:
        inside, around = report(here["engine"]), report(here["models"]["llama"])
        assert inside == around

    def test_prompts_are_answered_by_the_engine(self, here: Any) -> None:
        run = report(here["prompts"]).run
        assert [(each.name, each.text, each.shape) for each in run.inputs] == [
            ("prompt.0", "hello", (5,)),
            ("prompt.1", "you there", (9,)),
        ]
        assert [(each.name, each.shape) for each in run.outputs] == [("0", (16,)), ("1", (16,))]
        assert all(each.text for each in run.outputs)

    def test_an_engine_alone_generates_the_same(self, here: Any) -> None:
        (alone,) = report(here["stepped"]).run.outputs
        first, _ = report(here["prompts"]).run.outputs
        assert alone == first

    def test_a_prompt_that_is_too_long_is_a_failure_in_the_report(self, here: Any) -> None:
        found = report(here["failure"])
        assert found.run.failure is not None
        assert "maximum context length is 64" in found.run.failure.message
        assert [each.code for each in found.notes if each.severity == "error"] == ["forward-failed"]

    @pytest.mark.parametrize(
        "name", ["values", "sizes", "folded", "varied", "in_training", "train", "waiting"]
    )
    def test_what_an_engine_cannot_do_is_said(self, here: Any, name: str) -> None:
        error, problem, hint = here["refusals"][name]
        assert error == "UsageError"
        assert problem
        assert hint

    def test_requests_that_were_waiting_are_still_answered(self, here: Any) -> None:
        assert here["refusals"]["finished"] == ["1"]

    def test_an_engine_that_was_shut_down_is_an_error(self, here: Any) -> None:
        error, problem, _ = here["closed"]
        assert (error, "shut down" in problem) == ("TargetError", True)

    def test_a_module_says_what_its_engine_says_of_it(self, here: Any) -> None:
        alone, served = report(here["module"]), report(here["models"]["llama"])
        assert alone.model == served.model
        assert engine(here["module"]).shards == engine(here["models"]["llama"]).shards

    def test_a_layer_runs_as_any_of_torch(self, here: Any) -> None:
        assert here["layer"] == {"shapes": [[3, WIDTH]], "mode": "fake", "failed": False}

    def test_values_that_were_packed_away_are_not_read(self, here: Any) -> None:
        assert here["values"]["read"] > 0
        assert "model.layers.0.mlp.down_proj.weight" in here["values"]["not"]


class TestWorkers:
    def test_the_report_is_that_of_an_engine_in_this_process(self, workers: Any, here: Any) -> None:
        there, nearby = report(workers), report(here["models"]["llama"])
        assert there.model == nearby.model
        assert there.notes == nearby.notes
        assert engine(workers).reached == "workers"
        assert engine(workers).cache == engine(here["models"]["llama"]).cache
        assert engine(workers).shards == engine(here["models"]["llama"]).shards

    def test_nothing_in_the_worker_changes(self, workers: Any) -> None:
        assert workers["trace"] == []

    def test_tokens_are_the_same_before_and_after(self, workers: Any, here: Any) -> None:
        assert workers["before"] == workers["after"] == here["models"]["llama"]["before"]

    def test_a_prompt_is_answered(self, workers: Any, here: Any) -> None:
        assert report(workers["prompt"]).run.outputs == report(here["stepped"]).run.outputs

    def test_text_that_takes_too_long_is_left_off_and_the_engine_goes_on(self, workers: Any) -> None:
        error, problem, hint = workers["too long"]
        assert error == "TargetError"
        assert "did not finish within 0 seconds" in problem
        assert "max_tokens" in hint
        assert workers["left"] == 0
        assert workers["after too long"] == workers["before"]

    def test_a_worker_that_does_not_answer_is_given_up_with_a_clear_message(self, workers: Any) -> None:
        error, problem, hint = workers["late"]
        assert error == "TargetError"
        assert "have not answered within 1 seconds" in problem
        assert "idle" in hint

    def test_the_engine_still_works_after_that(self, workers: Any) -> None:
        assert workers["after all"] == workers["before"]

    def test_without_the_plugin_the_same_classes_are_built_without_weights(self, workers: Any) -> None:
        built, real = report(workers["built"]), report(workers)
        assert engine(workers["built"]).reached == "meta"
        assert "engine-not-reached" in [each.code for each in built.notes]
        assert held(built.model) == held(real.model)
        modules = [[(each.path, each.type) for each in found.model.modules] for found in (built, real)]
        assert modules[0] == modules[1]
        cache, live = engine(workers["built"]).cache, engine(workers).cache
        assert cache is not None
        assert live is not None
        assert (cache.nbytes_per_token, cache.blocks) == (live.nbytes_per_token, live.blocks)

    def test_an_engine_that_was_shut_down_is_an_error(self, workers: Any) -> None:
        error, problem, _ = workers["closed"]
        assert (error, "shut down" in problem) == ("TargetError", True)


class TestRanks:
    def test_each_rank_says_what_it_holds(self, ranks: Any) -> None:
        found = [codec.loads(json.dumps(each)) for each in ranks["ranks"]]
        assert [each.engine.rank for each in found] == [0, 1]
        assert engine(ranks).tensor_parallel == 2

    def test_ranks_and_what_they_share_make_up_the_model(
        self, ranks: Any, tiny: Callable[[str], Any]
    ) -> None:
        models = [codec.loads(json.dumps(each)).model for each in ranks["ranks"]]
        rows = 2 * 32  # of one head of keys and one of values, which both ranks hold in both layers
        copied = 2 * (rows * WIDTH + rows) + 5 * WIDTH  # and both hold all norms
        assert sum(map(held, models)) == tiny("qwen").params + PADDING + copied

    def test_fused_weights_name_their_pieces_and_how_much_is_here(self, ranks: Any) -> None:
        shard = engine(ranks).shards["model.layers.0.self_attn.qkv_proj.weight"]
        assert shard.whole == (WIDTH + 2 * 32, WIDTH)
        assert [(each.name, each.size, each.held) for each in shard.pieces] == [
            ("q_proj", WIDTH, WIDTH // 2),
            ("k_proj", 32, 32),
            ("v_proj", 32, 32),
        ]

    def test_tokens_are_the_same_before_and_after(self, ranks: Any, here: Any) -> None:
        assert ranks["before"] == ranks["after"] == here["models"]["qwen"]["before"]
