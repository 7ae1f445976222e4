"""How long tools take to look at the same models, what memory they add, and what they find, in one run.

    python benchmarks/run.py --only speed            # into the results and pages
    python benchmarks/inspect_speed.py --quick       # fewer rounds, as lines on the screen

Only ratios mean something: a model's contestants take turns on the same machine, each in a process of its
own, and are called as their documentation says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from peers.tools import TOOLS, run
from real_models import MODELS, ROOT
from side_by_side import in_own_process, write_page
from turns import SLOW_ROUNDS, SLOW_SECONDS, failure, race

BARE = "bare forward"
# The questions that the tools are asked: MACs, or of one that counts nothing, to draw.
ASKED = {
    "modelglass": "macs",
    "torchinfo": "macs",
    "fvcore": "macs",
    "ptflops": "macs",
    "calflops": "macs",
    "torchlens": "macs",
    "torchview": "until the error",
    "FlopCounterMode": "macs",
}
# What documentation says of models on meta.
ON_META = {"torchview": 'draw_graph(model, input_data=args, device="meta", **kwargs)'}
CALL_SECONDS, QUICK_SECONDS = 180.0, 60.0
ROUNDS, QUICK_ROUNDS = 7, 1
QUICK_MODELS = [*MODELS][:1] + [*MODELS][-1:]
CONFIG = "examples/llama-70b/config.json"
ESTIMATES = {
    "modelglass": ("import modelglass as mg", "mg.inspect(path)"),
    "modelglass, a training step": (
        "import modelglass as mg",
        'mg.inspect(path, train=True, optimizer="adamw")',
    ),
    "accelerate": (
        "import torch\n"
        "from accelerate import init_empty_weights\n"
        "from accelerate.commands.estimate import estimate_training_usage\n"
        "from accelerate.utils import calculate_maximum_sizes\n"
        "from transformers import AutoConfig, AutoModelForCausalLM",
        "with init_empty_weights():\n"
        "    config = AutoConfig.from_pretrained(path)\n"
        "    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)\n"
        "total, largest = calculate_maximum_sizes(model)\n"
        'estimate_training_usage(total, "float32")',
    ),
}
PREPARED = ("inspect_speed", "prepared")
Section = dict[str, Any]


# Contestants


def prepared(model_name: str, tool: str, adapted: bool) -> Callable[[], Any]:
    """A tool's documented call on a model; an adapted one where that raises."""
    _make_ready()
    import torch
    from peers.asking import PlainCall, by_name
    from peers.builders import given

    model, inputs = MODELS[model_name]("cpu")
    if tool == BARE:
        return lambda: _forward(model, inputs)
    arguments = given(inputs)
    names = {"model": model, "args": arguments.args, "kwargs": arguments.kwargs, "PlainCall": PlainCall}
    names["named"] = by_name(model, arguments)
    question = ASKED[tool]
    code = TOOLS[tool].adapted[question] if adapted else TOOLS[tool].calls[question]
    if inputs.is_meta and not adapted:
        code = ON_META.get(tool, code)
    run(TOOLS[tool].setup, names)

    def call() -> int | None:
        answer = run(code, dict(names))
        if question != "macs":
            return None
        if answer is None:
            raise RuntimeError("gives None")
        return int(answer)

    torch.manual_seed(0)
    return call


def estimating(tool: str) -> Callable[[], None]:
    """What a configuration's model takes, by the calls that are shown."""
    _make_ready()
    setup, code = ESTIMATES[tool]
    names: dict[str, Any] = {"path": str(ROOT / CONFIG)}
    run(setup, names)

    def call() -> None:
        run(code, dict(names))

    return call


def expected_macs(model_name: str) -> int:
    """By torch's own counter on meta, where attention is products that it sees."""
    _make_ready()
    from torch.utils.flop_counter import FlopCounterMode

    model, inputs = MODELS[model_name]("meta")
    with FlopCounterMode(display=False) as counter:
        _forward(model, inputs)
    return counter.get_total_flops() // 2


def _forward(model: Any, inputs: Any) -> None:
    import torch

    with torch.no_grad():
        model(inputs)


def _make_ready() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.path[:0] = [str(ROOT / "tests/support")]
    import warnings

    from torchvision_beside_cpu import make_torchvision_importable

    warnings.simplefilter("ignore")
    make_torchvision_importable()


# Measuring


def speed(quick: bool = False) -> Section:
    """Every tool on every model, as plain values."""
    rounds, limit = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, CALL_SECONDS)
    models = {}
    for name in QUICK_MODELS if quick else MODELS:
        print(f"  {name}", file=sys.stderr)
        models[name] = {
            "macs": in_own_process(expected_macs, name),
            "tools": _on_model(name, rounds, limit),
        }
    print(f"  {CONFIG}", file=sys.stderr)
    estimates = race(
        {tool: ("inspect_speed", "estimating", tool) for tool in ESTIMATES}, min(rounds, 3), limit
    )
    return {
        "rounds": rounds,
        "models": models,
        "calls": {tool: TOOLS[tool].shown(question) for tool, question in ASKED.items()},
        "on_meta": ON_META,
        "adapted": {tool: TOOLS[tool].shown(ASKED[tool], adapted=True) for tool in _adaptable()},
        "why": {tool: TOOLS[tool].why for tool in _adaptable()},
        "estimates": {
            tool: {"call": ESTIMATES[tool][1], **_without(figures, "answer")}
            for tool, figures in estimates.items()
        },
    }


def _on_model(name: str, rounds: int, limit: float) -> dict[str, Section]:
    """Each tool by its documented call; where that fails and there is an adapted one, by this."""
    failing = {tool: failure((*PREPARED, name, tool, False), limit) for tool in _adaptable()}
    found = race(
        {tool: (*PREPARED, name, tool, failing.get(tool) is not None) for tool in (*ASKED, BARE)},
        rounds,
        limit,
    )
    for tool, why in failing.items():
        if why is not None:
            found[tool] = {"failed": why} if "failed" in found[tool] else {**found[tool], "adapted": why}
    return {tool: _with_macs(figures) for tool, figures in found.items()}


def _adaptable() -> list[str]:
    return [tool for tool, question in ASKED.items() if question in TOOLS[tool].adapted]


def _with_macs(figures: Section) -> Section:
    return {**_without(figures, "answer"), **({"macs": figures["answer"]} if "answer" in figures else {})}


def _without(figures: Section, name: str) -> Section:
    return {key: value for key, value in figures.items() if key != name}


# The page


def speed_page(found: Mapping[str, Any]) -> Iterator[str]:
    """The section as Markdown, a line at a time."""
    yield "## Time and memory, on the same models"
    yield ""
    yield f"Contestants take {found['rounds']} turns, each in a process of its own; whoever needs more than"
    yield f"{SLOW_SECONDS} seconds takes no more than {SLOW_ROUNDS}. Seconds are medians. They differ from"
    yield "machine to machine, their ratio to the bare forward pass less so. Added memory is by how much the"
    yield "first call raised the peak of the process, with what it loads. MACs are compared with an"
    yield "independent count, which is torch's counter on meta, where it sees attention: by how many they are"
    yield "off where that is less than 1 %, as by biases or norms, else their share."
    for name, model in found["models"].items():
        yield ""
        yield f"### {name}"
        yield ""
        yield f"{model['macs']:,} MACs."
        yield ""
        yield "| tool | seconds | of the bare forward | added memory | MACs told |"
        yield "|---|---:|---:|---:|---:|"
        bare = model["tools"][BARE].get("seconds")
        for tool, figures in model["tools"].items():
            yield _row(tool, figures, bare, model["macs"])
        for tool, figures in model["tools"].items():
            if "adapted" in figures:
                yield ""
                yield f"{tool}'s own call {cell(figures['adapted'])}"
    yield ""
    yield from _calls(found)
    yield ""
    yield from _estimates(found["estimates"])


def _row(tool: str, figures: Mapping[str, Any], bare: float | None, macs: int) -> str:
    shown = f"{tool}, adapted call" if "adapted" in figures else tool
    if "failed" in figures:
        return f"| {shown} | {cell(figures['failed'])} | | | |"
    seconds = figures["seconds"]
    ratio = f"{seconds / bare:.2f} x" if bare else ""
    told = "–" if figures.get("macs") is None else compared(figures["macs"], macs)
    return f"| {shown} | {seconds:.3f} | {ratio} | {figures['added_mib']:,.0f} MiB | {told} |"


def compared(told: int, right: int) -> str:
    """A count beside the right one: what it is off by when that is little, else its share."""
    if told == right:
        return "right"
    share = 100 * told / right
    return (
        f"{told - right:+,}"
        if abs(share - 100) < 1
        else f"{share:,.3g} %"
        if share < 1000
        else f"{share:,.0f} %"
    )


def cell(text: str) -> str:
    """Text that a cell of a table can hold."""
    return text.replace("|", "/").replace("<", "&lt;").replace("\n", " ")


def _calls(found: Mapping[str, Any]) -> Iterator[str]:
    yield "The calls, with `args` and `kwargs` as the model takes them and `named` by name:"
    yield ""
    yield from _code(
        {
            **found["calls"],
            **{f"{tool}, of a model on meta": call for tool, call in found["on_meta"].items()},
            **{f"{tool}, adapted": call for tool, call in found["adapted"].items()},
        }
    )
    for tool, why in found["why"].items():
        yield ""
        yield f"{tool}'s call is adapted where its own raises: {why}."


def _code(calls: Mapping[str, str]) -> Iterator[str]:
    yield "```py"
    for title, code in calls.items():
        yield f"# {title}"
        yield code
    yield "```"


def _estimates(estimates: Mapping[str, Any]) -> Iterator[str]:
    yield "## What a configuration's model takes"
    yield ""
    yield f"`{CONFIG}`, a model of 70 B. accelerate adds up the parameters of the empty model and"
    yield "multiplies; modelglass runs it on fake tensors, operator by operator. `accelerate estimate-memory`"
    yield "asks the hub for the model, so the calls that it makes itself are made here, with a file's"
    yield "configuration."
    yield ""
    yield "| tool | seconds | added memory |"
    yield "|---|---:|---:|"
    for tool, figures in estimates.items():
        if "failed" in figures:
            yield f"| {tool} | {cell(figures['failed'])} | |"
        else:
            yield f"| {tool} | {figures['seconds']:.2f} | {figures['added_mib']:,.0f} MiB |"
    yield ""
    yield from _code({tool: figures["call"] for tool, figures in estimates.items()})


if __name__ == "__main__":
    write_page(lambda rounds: speed_page(speed(quick=rounds < ROUNDS)), __doc__)
