"""How long it takes to extract distinct modules and operators, beside one inspection of the same model.

    python benchmarks/unique_speed.py                               # a minute or two
    python benchmarks/unique_speed.py --quick                       # fewer rounds
    python benchmarks/unique_speed.py -o docs/benchmarks-unique.md  # as a page

Only ratios mean something: the contestants take turns on the same machine, on a model without weights.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from side_by_side import in_own_process, take_turns, versions, write_page

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/support")]
os.environ["HF_HUB_OFFLINE"] = "1"

INSPECT = "`mg.inspect`"


def llama_70b() -> tuple[Any, Any]:
    from torchvision_beside_cpu import make_torchvision_importable

    make_torchvision_importable()
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).eval()
    return model, {"input_ids": torch.zeros(1, 2048, dtype=torch.long)}


def resnet50() -> tuple[Any, Any]:
    sys.path.insert(0, str(ROOT / "examples"))
    import torch

    import models

    return models.resnet50(), torch.zeros(1, 3, 224, 224)


CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "Llama-70B on meta, 2048 tokens": llama_70b,
    "ResNet-50, 1x3x224x224": resnet50,
}


def measure(case: str, rounds: int) -> tuple[dict[str, float], str]:
    """Median seconds of each way, and how many modules and operators there are."""
    import modelglass as mg
    from modelglass.compat.unique_modules import analyse

    model, inputs = CASES[case]()
    with TemporaryDirectory() as folder:
        modules, ops = Path(folder, "unique_modules.json"), Path(folder, "pytorch_ops.json")

        def both() -> None:
            mg.extract_unique_modules(lambda: model, lambda: inputs, modules)
            mg.extract_pytorch_ops(modules, lambda: model, lambda: inputs, ops)

        contestants = {
            INSPECT: lambda: mg.inspect(model, inputs),
            "`extract_unique_modules`": lambda: mg.extract_unique_modules(
                lambda: model, lambda: inputs, modules
            ),
            "`extract_unique_modules`, then `extract_pytorch_ops`": both,
            "`tt-model-analysis`, both files": lambda: analyse(lambda: model, lambda: inputs, Path(folder)),
        }
        seconds = take_turns(contestants, rounds)
    report = mg.inspect(model, inputs)
    found = mg.unique(report)
    size = (
        f"{len(report.model.modules):,} modules, {len(found.modules):,} distinct; "
        f"{found.total_ops:,} operators, {len(found.ops):,} distinct"
    )
    return seconds, size


def page(rounds: int) -> Iterator[str]:
    """The results as Markdown, a line at a time."""
    yield "# Benchmarks of distinct modules and operators"
    yield ""
    yield f"Printed by `make bench` with {versions('torch', 'transformers')}."
    yield f"Each ratio is of medians over {rounds} rounds in which the contestants take turns; absolute times"
    yield "mean little on a busy machine. Models are built beforehand; files are written each time."
    for case in CASES:
        seconds, size = in_own_process(measure, case, rounds)
        yield ""
        yield f"## {case}"
        yield ""
        yield f"{size}."
        yield ""
        yield "| what | seconds | beside `mg.inspect` |"
        yield "|---|---:|---:|"
        for name, value in seconds.items():
            yield f"| {name} | {value:.3f} | {value / seconds[INSPECT]:.2f} x |"


if __name__ == "__main__":
    write_page(page, __doc__)
