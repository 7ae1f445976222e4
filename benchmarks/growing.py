"""What grows: models and files of any size, and what is done with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

SUPPORT = str(Path(__file__).parents[1] / "tests" / "support")
if SUPPORT not in sys.path:
    sys.path.append(SUPPORT)

Call = Callable[[], Any]
Calls = Iterator[tuple[str, Call]]
MIB = 2**20
WIDTH = 64
INSPECT = "`mg.inspect`"
TRAIN = "`mg.inspect`, a training step"
FLOW = "`mg.flow`"
DRAWN = "every module drawn as SVG"
COMPARED = "`mg.compare_structure` with itself"
JSON = "the report as JSON"
LISTED = "the listing as text"


class Subject(NamedTuple):
    """Something that can be had in any size, and what is done with it.

    `calls` makes one of a size, with a folder for its files, and gives what is done with it in order; later
    ones may use what earlier ones gave.
    """

    title: str
    unit: str
    story: str
    calls: Callable[[int, Path], Calls]
    sizes: tuple[int, ...]
    quick: tuple[int, ...]


# Models


def alike_layers(size: int, _folder: Path) -> Calls:
    import torch

    from example_models import example

    return _of_model(example("models").language_model(size), torch.zeros(1, 4096, dtype=torch.long))


def differing_layers(size: int, _folder: Path) -> Calls:
    import torch

    with torch.device("meta"):
        layers = [_residual(WIDTH, WIDTH + index) for index in range(size)]
        model = torch.nn.Sequential(*layers)
    return _of_model(model, torch.zeros(2, WIDTH))


def _residual(width: int, hidden: int) -> Any:
    from torch import nn

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

        def forward(self, x: Any) -> Any:
            return x + self.down(self.up(x).relu())

    return Residual()


def one_module(size: int, _folder: Path) -> Calls:
    import torch

    class Operators(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            first = x
            for _ in range(size // 4):
                x = torch.tanh(x * self.weight + first).cos()
            return x

    return _of_model(Operators(), torch.zeros(2, WIDTH))


def branches(size: int, _folder: Path) -> Calls:
    import torch
    from torch import nn

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(WIDTH, size)
            self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(size))

        def forward(self, x: Any) -> Any:
            parts = self.router(x).softmax(-1).unsqueeze(1).unbind(-1)
            return torch.cat([expert(x) * part for expert, part in zip(self.experts, parts, strict=True)])

    with torch.device("meta"):
        model = Branches()
    return _of_model(model, torch.zeros(2, WIDTH))


def ends(size: int, _folder: Path) -> Calls:
    import torch
    from torch import nn

    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(size))

        def forward(self, xs: Any) -> Any:
            results = (head(x) for head, x in zip(self.heads, xs, strict=True))
            return {f"task{index}": result for index, result in enumerate(results)}

    with torch.device("meta"):
        model = Ends()
    return _of_model(model, ([torch.zeros(2, WIDTH) for _ in range(size)],))


def skips(size: int, _folder: Path) -> Calls:
    import torch
    from torch import nn

    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(size))
            self.up = nn.ModuleList(nn.Linear(2 * WIDTH, WIDTH) for _ in range(size))

        def forward(self, x: Any) -> Any:
            kept = []
            for layer in self.down:
                x = layer(x).relu()
                kept.append(x)
            for layer in self.up:
                x = layer(torch.cat([x, kept.pop()], dim=-1)).relu()
            return x

    with torch.device("meta"):
        model = Skips()
    return _of_model(model, torch.zeros(2, WIDTH))


def _of_model(model: Any, inputs: Any) -> Calls:
    import modelglass as mg
    from modelglass.api import RENDERERS

    made: dict[str, Any] = {}

    def keep(name: str, call: Call) -> None:
        made[name] = call()

    train = partial(mg.inspect, model, inputs, train=True, optimizer="adamw")
    yield "`mg.inspect` without inputs", partial(mg.inspect, model)
    yield INSPECT, partial(keep, "report", partial(mg.inspect, model, inputs))
    yield TRAIN, partial(keep, "trained", train)
    yield "its memory as text", lambda: mg.render(made["trained"], "memory")
    yield FLOW, lambda: keep("flow", partial(mg.flow, made["report"]))
    yield DRAWN, lambda: mg.render(made["report"], "svg", depth=8)
    yield "`mg.unique`", lambda: keep("unique", partial(mg.unique, made["report"]))
    yield "`mg.unique` as text", lambda: RENDERERS["unique"]["text"](made["report"], made["unique"])
    yield COMPARED, partial(mg.compare_structure, model, model)
    yield "the report as text", lambda: mg.render(made["report"], "text")
    yield "the report as Markdown", lambda: mg.render(made["report"], "markdown")
    yield JSON, lambda: mg.render(made["report"], "json")


# Files


def tensors_in_files(size: int, folder: Path) -> Calls:
    import made_files

    import modelglass as mg

    paths = {name: folder / f"many{suffix}" for name, suffix in _SUFFIXES.items()}
    made_files.safetensors_file(paths["safetensors"], size, 4)
    made_files.gguf_file(paths["GGUF"], size, 8)
    made_files.state_dict_file(paths["`.pt`"], size // 2)
    for name, path in paths.items():
        yield f"`mg.inspect`, {name}", partial(mg.inspect, path)
        yield f"`mg.scan`, {name}", partial(mg.scan, path)
    yield LISTED, partial(mg.render, mg.inspect(paths["safetensors"]), "text")


_SUFFIXES = {"safetensors": ".safetensors", "GGUF": ".gguf", "`.pt`": ".pt"}


def bytes_in_files(size: int, folder: Path) -> Calls:
    import made_files

    import modelglass as mg

    sparse = folder / "sparse.safetensors"
    made_files.safetensors_file(sparse, 4, size // 16)
    yield "`mg.inspect`", partial(mg.inspect, sparse)
    yield "`mg.scan`", partial(mg.scan, sparse)


def bytes_of_weights(size: int, folder: Path) -> Calls:
    import made_files
    import torch

    import modelglass as mg

    path = folder / "weights.safetensors"
    made_files.bfloat16_file(path, size)
    model = torch.nn.ParameterList(torch.randn(size // 32) for _ in range(8))
    yield "bfloat16 in a file", partial(mg.inspect, path, stats=True)
    yield "float32 in a model", partial(mg.inspect, model, stats=True)


def tensors_of_weights(size: int, folder: Path) -> Calls:
    import made_files
    import torch

    import modelglass as mg

    path = folder / "tensors.safetensors"
    made_files.safetensors_file(path, size, 256)
    model = torch.nn.ParameterList(torch.randn(256) for _ in range(size))
    yield "tensors in a file", partial(mg.inspect, path, stats=True)
    yield "tensors in a model", partial(mg.inspect, model, stats=True)


SUBJECTS: dict[str, Subject] = {
    "layers": Subject(
        "Layers that are alike",
        "layers",
        "The block of a large language model on the meta device, 4,096 tokens, so many times.",
        alike_layers,
        (16, 32, 64, 128, 256, 512),
        (2, 4, 8),
    ),
    "differing": Subject(
        "Layers that all differ",
        "layers",
        "A residual block so many times, each of a width of its own: no two can be told as one.",
        differing_layers,
        (16, 32, 64, 128, 256, 512),
        (2, 4, 8),
    ),
    "ops": Subject(
        "Operators of one module",
        "operators",
        "One module whose forward pass runs so many operators one after the other.",
        one_module,
        (400, 800, 1600, 3200, 6400),
        (16, 32, 64),
    ),
    "branches": Subject(
        "Branches side by side",
        "branches",
        "A layer whose input goes to so many others, and what they give is put together.",
        branches,
        (32, 64, 128, 256, 512, 1024),
        (4, 8, 16),
    ),
    "skips": Subject(
        "Skip connections",
        "levels",
        "A U-Net of so many levels: what the first layer gives goes past all others to the last.",
        skips,
        (32, 64, 128, 256, 512),
        (2, 4, 8),
    ),
    "ends": Subject(
        "Inputs and outputs",
        "outputs",
        "So many inputs in a list, a layer for each, and as many outputs by name.",
        ends,
        (32, 64, 128, 256, 512, 1024),
        (4, 8, 16),
    ),
    "tensors": Subject(
        "Tensors in a file",
        "tensors",
        "Small tensors, so many in a file.",
        tensors_in_files,
        (4_000, 8_000, 16_000, 32_000, 64_000, 128_000),
        (64, 128, 256),
    ),
    "bytes": Subject(
        "Bytes in a file",
        "bytes",
        "Four tensors of so many bytes in all. Listings and scans read descriptions, not values.",
        bytes_in_files,
        tuple(2**power for power in (20, 25, 30, 35, 37, 38, 39, 40)),
        (2**20, 2**24),
    ),
    "weights": Subject(
        "Bytes of weights",
        "bytes",
        "`mg.inspect(stats=True)` on 8 tensors of so many bytes in all.",
        bytes_of_weights,
        tuple(32 * MIB * 2**power for power in range(5)),
        (MIB, 2 * MIB),
    ),
    "weight tensors": Subject(
        "Tensors with statistics",
        "tensors",
        "`mg.inspect(stats=True)` on so many tensors of 256 numbers.",
        tensors_of_weights,
        (1_000, 2_000, 4_000, 8_000, 16_000),
        (16, 32),
    ),
}
