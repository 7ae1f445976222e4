"""Engines that are started, looked at and used; what was seen goes to a file, as JSON.

Each scenario is a process of its own: `python scenarios.py here FOLDER ... RESULT`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROMPT = "hello"


def start(folder: str, **options: Any) -> Any:
    from vllm import LLM

    settings = {
        "enforce_eager": True,
        "max_model_len": 64,
        "max_num_seqs": 4,
        "dtype": "float32",
        "seed": 0,
        "kv_cache_memory_bytes": 32 << 20,
    }
    return LLM(model=folder, **{**settings, **options})


def stop(llm: Any) -> None:
    llm.llm_engine.engine_core.shutdown()


def tokens(llm: Any, **options: Any) -> list[int]:
    """Eight tokens, the likeliest unless options say otherwise."""
    from vllm import SamplingParams

    sampling = SamplingParams(**{"max_tokens": 8, "temperature": 0.0, "ignore_eos": True, **options})
    return list(llm.generate([PROMPT], sampling, use_tqdm=False)[0].outputs[0].token_ids)


def look(native: Any, **asked: Any) -> Any:
    """What the adapter observes."""
    from modelglass.frameworks import adapter, framework_of
    from modelglass.frameworks.shared.request import Request

    framework = framework_of(native)
    assert framework == "vllm"
    assert adapter(framework).accepts(native)
    return adapter(framework).observe(native, Request(**asked))


def told(observation: Any) -> Any:
    """The observation as JSON."""
    from dataclasses import replace

    from modelglass.report import Report, codec

    engine = observation.engine
    document = Report(model=observation.model, run=observation.run, notes=observation.notes, engine=engine)
    ranks = [
        codec.dumps(Report(model=held.model, engine=replace(engine, rank=held.rank, shards=held.shards)))
        for held in observation.ranks
    ]
    return {"report": json.loads(codec.dumps(document)), "ranks": [json.loads(each) for each in ranks]}


def refusal(call: Callable[[], Any]) -> list[str]:
    """The class of the error that a call ends with, what it says, and what it suggests."""
    from modelglass.errors import InspectError

    try:
        call()
    except InspectError as error:
        return [type(error).__name__, error.problem, error.hint]
    return []


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return sorted(name for name in before if before[name] != after.get(name))


def here(*folders: str) -> Any:
    """Engines in this process, one after the other; the first is looked at from all sides."""
    result: dict[str, Any] = {"models": {}}
    for folder in folders:
        llm = start(folder)
        before, loaded = tokens(llm), set(sys.modules)
        seen = look(llm)
        result.setdefault("loaded", sorted({*sys.modules} - loaded))
        result["models"][Path(folder).name] = {"before": before, "after": tokens(llm), **told(seen)}
        if folder == folders[0]:
            result.update(_sides(llm))
        stop(llm)
        result["closed"] = refusal(lambda llm=llm: look(llm))
    result["sampled"] = [_sampled(folders[0], looks=looks) for looks in (False, True)]
    return result


def _sampled(folder: str, *, looks: bool) -> list[int]:
    """Tokens that are drawn by whatever random numbers come next, before and after a look, or none."""
    llm = start(folder)
    drawn = tokens(llm, temperature=1.0)
    if looks:
        look(llm)
    drawn += tokens(llm, temperature=1.0)
    stop(llm)
    return drawn


def _sides(llm: Any) -> dict[str, Any]:
    from vllm.v1.worker.worker_base import WorkerBase

    from modelglass.frameworks.shared.request import Inputs

    return {
        "registered": hasattr(WorkerBase, "modelglass_inspect"),
        "trace": _trace(llm),
        "engine": told(look(llm.llm_engine)),
        "prompts": told(look(llm, inputs=Inputs(args=(PROMPT, "you there")))),
        "stepped": told(look(llm.llm_engine, inputs=Inputs(args=(PROMPT,)))),
        "failure": told(look(llm, inputs=Inputs(args=(PROMPT * 100,)))),
        "refusals": _refusals(llm),
        **_modules(llm),
    }


def _trace(llm: Any) -> list[str]:
    """What a look changed, after a first one has loaded what it needs."""
    from watching import of_process, of_worker

    worker = llm.llm_engine.model_executor.driver_worker.worker
    pool = llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool

    def states() -> dict[str, str]:
        objects = {
            "llm": str(sorted(vars(llm))),
            "engine": str(sorted(vars(llm.llm_engine))),
            "core": str(sorted(vars(llm.llm_engine.engine_core.engine_core))),
            "requests": str(llm.request_counter.counter),
            "free blocks": str(pool.get_num_free_blocks()),
        }
        return {**of_process(), **of_worker(worker), **objects}

    before = states()
    look(llm)
    return changed(before, states())


def _refusals(llm: Any) -> dict[str, list[str]]:
    from modelglass.frameworks import adapter
    from modelglass.frameworks.shared.request import Inputs, Request

    asked, request = adapter("vllm"), Request()
    waiting = Request(inputs=Inputs(args=(PROMPT,)))
    found = {
        "values": refusal(lambda: asked.values(llm)),
        "sizes": refusal(lambda: asked.sizes(llm, request)),
        "folded": refusal(lambda: asked.run_shortened(llm, request, None)),
        "varied": refusal(lambda: asked.run_resized(llm, request, {})),
        "in_training": refusal(lambda: asked.training_mode(llm)),
        "train": refusal(lambda: look(llm, train=True)),
    }
    llm.enqueue([PROMPT], use_tqdm=False)
    found["waiting"] = refusal(lambda: asked.observe(llm, waiting))
    found["finished"] = [str(len(llm.wait_for_completion(use_tqdm=False)))]
    return found


def _modules(llm: Any) -> dict[str, Any]:
    """Modules of the engine, without it."""
    import torch

    from modelglass.frameworks.shared.request import Inputs

    native = llm.llm_engine.model_executor.driver_worker.worker.get_model()
    norm = native.model.norm
    ran = look(norm, inputs=Inputs(args=(torch.ones(3, 128),)))
    whole = look(native)
    from modelglass.frameworks import adapter

    values = adapter("vllm").values(native)
    unreadable = {name: value for name, value in values.items() if isinstance(value, str)}
    shown = [value.shape for value in ran.run.outputs]
    return {
        "module": told(whole),
        "values": {"read": len(values) - len(unreadable), "not": unreadable},
        "layer": {"shapes": shown, "mode": ran.run.mode, "failed": ran.run.failure is not None},
    }


def workers(folder: str) -> Any:
    """An engine in processes of its own, as vLLM starts them."""
    from vllm.v1.worker.worker_base import WorkerBase

    from modelglass.frameworks.shared.request import Inputs
    from modelglass.frameworks.vllm import plugin
    from modelglass.frameworks.vllm.engine import generate, rpc

    llm = start(folder, worker_extension_cls="watching.Watcher")
    before = tokens(llm)
    look(llm)
    (states,) = llm.collective_rpc("states")
    seen = look(llm)
    (later,) = llm.collective_rpc("states")
    result = {
        "before": before,
        "after": tokens(llm),
        "trace": changed(states, later),
        "prompt": told(look(llm, inputs=Inputs(args=(PROMPT,)))),
        **told(seen),
    }
    enough, generate.GENERATING = generate.GENERATING, 0.0
    result["too long"] = refusal(lambda: look(llm, inputs=Inputs(args=(PROMPT,))))
    generate.GENERATING = enough
    result["left"] = llm.llm_engine.get_num_unfinished_requests()
    result["after too long"] = tokens(llm)
    method, rpc.SECONDS = plugin.METHOD, 1.0
    WorkerBase.sleep_for_long = None
    plugin.METHOD = "sleep_for_long"
    result["late"] = refusal(lambda: look(llm))
    rpc.SECONDS, plugin.METHOD = 60.0, method
    result["after all"] = tokens(llm)
    delattr(WorkerBase, method)
    result["built"] = told(look(llm))
    stop(llm)
    result["closed"] = refusal(lambda: look(llm))
    return result


def ranks(folder: str) -> Any:
    """An engine of two ranks."""
    llm = start(folder, tensor_parallel_size=2)
    before = tokens(llm)
    seen = told(look(llm))
    result = {"before": before, "after": tokens(llm), **seen}
    stop(llm)
    return result


if __name__ == "__main__":
    name, *arguments, result_file = sys.argv[1:]
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0" if name == "here" else "1"
    scenario = {"here": here, "workers": workers, "ranks": ranks}[name]
    Path(result_file).write_text(json.dumps(scenario(*arguments)))
