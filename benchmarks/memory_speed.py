"""What a prediction of memory costs, beside the bare step on fake tensors, in one run.

    python benchmarks/memory_speed.py                                      # all of it, a few minutes
    python benchmarks/memory_speed.py -o docs/benchmarks-memory-speed.md   # as a page

Only ratios mean something: each line's contestants take turns on the same machine, and the ratio is that of
their medians. Each model has a process of its own, so that the memory it takes is its own, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from side_by_side import Contestants, in_own_process, peak_mib, take_turns, versions, write_page

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))
os.environ["HF_HUB_OFFLINE"] = "1"

TOKENS = 2048
SIZES: dict[str, dict[str, int]] = {
    "1.1 billion parameters": {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
        "num_key_value_heads": 4, "vocab_size": 32_000,
    },
    "70 billion parameters": {
        "hidden_size": 8192, "intermediate_size": 28_672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 128_256,
    },
}  # fmt: skip


def llama(sizes: dict[str, int]) -> Any:
    from torchvision_beside_cpu import make_torchvision_importable

    make_torchvision_importable()
    import transformers

    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).train()


def contestants(sizes: dict[str, int]) -> Contestants:
    """The same training step: bare, inspected in full, and looked at as a search for a batch does."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import modelglass as mg

    mode = FakeTensorMode()
    with mode:
        bare = llama(sizes)
        tokens = torch.zeros(1, TOKENS, dtype=torch.int64)
    with torch.device("meta"):
        model = llama(sizes)
    ids = torch.zeros(1, TOKENS, dtype=torch.int64)
    inputs = {"input_ids": ids, "labels": ids}

    def step() -> None:
        with mode:
            optimizer = torch.optim.AdamW(bare.parameters())
            output = bare(input_ids=tokens, labels=tokens)
            output.loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return {"bare": step, "inspected": lambda: mg.inspect(model, inputs, train=True, optimizer="adamw")}


def speed(name: str, rounds: int) -> dict[str, float]:
    return take_turns(contestants(SIZES[name]), rounds)


def memory(name: str) -> tuple[float, float]:
    """MiB that a process has before it looks at a model, and at most while it does."""
    import torch

    import modelglass as mg

    with torch.device("meta"):
        model = llama(SIZES[name])
    ids = torch.zeros(1, TOKENS, dtype=torch.int64)
    before = peak_mib()
    mg.inspect(model, {"input_ids": ids, "labels": ids}, train=True, optimizer="adamw")
    return before, peak_mib()


def search(name: str) -> tuple[int, float]:
    """Fake runs of a search for the largest batch, and the time it takes in units of one bare step."""
    import time

    import torch

    import modelglass as mg

    with torch.device("meta"):
        model = llama(SIZES[name])
    ids = torch.zeros(1, TOKENS, dtype=torch.int64)
    inputs = {"input_ids": ids, "labels": ids}
    bare = take_turns({"bare": contestants(SIZES[name])["bare"]}, 1)["bare"]
    began = time.perf_counter()
    found = mg.fit(model, inputs, device_nbytes=2**42, train=True, options=False)
    return found.runs, (time.perf_counter() - began) / bare


def page(rounds: int) -> Iterator[str]:
    yield "# Benchmarks: what a prediction of memory costs"
    yield ""
    yield f"Llama-shaped models with {TOKENS:,} tokens, one training step: forward, loss, backward, AdamW."
    yield "The bare step is the same on torch's own fake tensors, with nobody watching. Inspected, it is"
    yield "`mg.inspect` with everything a report has: operators, cost, memory. Contestants take turns; ratios"
    yield "are those of medians."
    yield ""
    yield "| model | inspected / bare | process at most | of that, torch and the model's own objects |"
    yield "|---|---|---|---|"
    for name in SIZES:
        seconds = in_own_process(speed, name, 3 if rounds < 7 or name.startswith("70") else rounds)
        before, most = in_own_process(memory, name)
        ratio = seconds["inspected"] / seconds["bare"]
        yield f"| {name} | {ratio:.2f}x | {most:,.0f} MiB | {before:,.0f} MiB |"
    yield ""
    for name in SIZES:
        runs, steps = in_own_process(search, name)
        what = f"A search for the largest batch and sequence that fit into 4 TiB, {name}"
        yield f"{what}: {runs} runs in the time of {steps:.1f} bare steps."
        yield ""
    yield versions("torch", "transformers")


if __name__ == "__main__":
    write_page(page, __doc__)
