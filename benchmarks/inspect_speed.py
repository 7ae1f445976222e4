"""How long an inspection takes, beside torchinfo and beside the bare forward pass, in one run.

    python benchmarks/inspect_speed.py                          # all of it, a few minutes
    python benchmarks/inspect_speed.py --quick                  # fewer rounds
    python benchmarks/inspect_speed.py -o docs/benchmarks.md    # as a page

Only ratios mean something: each line's contestants take turns on the same machine, and the ratio is that of
their medians. Each case runs in a process of its own, so that added memory is its own too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from side_by_side import Contestants, Figures, in_own_process, peak_mib, take_turns, versions, write_page

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests")]
os.environ["HF_HUB_OFFLINE"] = "1"


def resnet50() -> Contestants:
    import torch

    import models

    return beside_torchinfo(models.resnet50(), torch.zeros(1, 3, 224, 224))


def gpt2() -> Contestants:
    from torchvision_beside_cpu import make_torchvision_importable

    make_torchvision_importable()
    import torch
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    return beside_torchinfo(model, torch.zeros(1, 128, dtype=torch.long))


def beside_torchinfo(model: Any, inputs: Any) -> Contestants:
    import torch
    import torchinfo

    import modelglass as mg

    def forward() -> None:
        with torch.no_grad():
            model(inputs)

    return {
        "modelglass": lambda: mg.inspect(model, inputs=inputs),
        "torchinfo": lambda: torchinfo.summary(model, input_data=inputs, verbose=0),
        "bare forward": forward,
    }


def language_model(layers: int) -> Contestants:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    import modelglass as mg
    import models

    model = models.language_model(layers)
    ids = torch.zeros(1, 4096, dtype=torch.long)

    def fake_forward() -> None:
        with FakeTensorMode(), torch.no_grad():
            weights = {
                name: torch.empty(tensor.shape, dtype=tensor.dtype)
                for name, tensor in model.named_parameters()
            }
            torch.func.functional_call(model, weights, torch.zeros(1, 4096, dtype=torch.long))

    return {
        "modelglass": lambda: mg.inspect(model, inputs=ids),
        "bare fake forward": fake_forward,
    }


CASES: dict[str, Callable[[], Contestants]] = {
    "ResNet-50, 1x3x224x224": resnet50,
    "GPT-2 small, 128 tokens": gpt2,
    "78 B on meta, 4096 tokens": lambda: language_model(80),
}


def measure(case: str, rounds: int) -> Figures:
    contestants = CASES[case]()
    before = peak_mib()
    added: dict[str, float] = {}
    for name, run in contestants.items():
        run()
        added[name], before = peak_mib() - before, peak_mib()
    return take_turns(contestants, rounds), added


def growth(layers: int, rounds: int) -> Figures:
    contestants = language_model(layers)
    del contestants["bare fake forward"]
    return take_turns(contestants, rounds), {}


def page(rounds: int) -> Iterator[str]:
    """The results as Markdown, a line at a time."""
    yield "# Benchmarks"
    yield ""
    yield f"Printed by `make bench` with {versions('torch', 'torchinfo', 'transformers')}."
    yield f"Each ratio is of medians over {rounds} rounds in which the contestants take turns; absolute times"
    yield "mean little on a busy machine."
    yield ""
    yield "## Speed of an inspection"
    yield ""
    yield "modelglass finds structure, calls, operators, counts and cost; the others compute."
    yield ""
    yield "| model | beside | its seconds | modelglass takes | peak memory modelglass added |"
    yield "|---|---|---:|---:|---:|"
    for case in CASES:
        seconds, added = in_own_process(measure, case, rounds)
        ours = seconds.pop("modelglass")
        for name, value in seconds.items():
            memory = f"{added['modelglass']:.0f} MiB"
            yield f"| {case} | {name} | {value:.3f} | {ours / value:.2f} x | {memory} |"
    yield ""
    yield "Added memory is the growth of the process's peak by the first inspection, with what torch loads"
    yield "for it; it is 0 where building the model had needed more."
    yield ""
    yield "## Growth"
    yield ""
    yield "The same block 8, 80 and 800 times: time per layer stays about level."
    yield ""
    yield "| layers | seconds | per layer, relative to 8 |"
    yield "|---:|---:|---:|"
    first = None
    for layers in (8, 80, 800):
        seconds, _ = in_own_process(growth, layers, max(1, rounds // 3))
        each = seconds["modelglass"] / layers
        first = first or each
        yield f"| {layers} | {seconds['modelglass']:.3f} | {each / first:.2f} x |"


if __name__ == "__main__":
    write_page(page, __doc__)
