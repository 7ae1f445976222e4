"""Flows drawn by hand: the shapes that diagrams must be able to show."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from modelglass.report import Flow, FlowEdge, FlowNode, Note, Symbol

Dims = tuple[str, ...]


class Sketch:
    """Adds nodes in the order in which they ran, each with the ids of what it reads."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stage = "input"
        self._nodes: list[FlowNode] = []
        self._edges: list[FlowEdge] = []
        self._dims: dict[str, Dims] = {}
        self._within: list[str] = []

    def input(self, label: str, *dims: str, dtype: str = "float32") -> str:
        return self._add("input", label, (), dims, stage="input", dtype=dtype)

    def output(self, label: str, source: str) -> str:
        dims = self._dims[source]
        return self._add("output", label, (source,), dims, stage="output", dtype="float32")

    def module(self, label: str, type: str, *sources: str, dims: Dims = ("B", "L", "16"), **more: Any) -> str:
        return self._add("module", label, sources, dims, type=type, path=label, **more)

    def ops(self, label: str, *sources: str, dims: Dims = ("B", "L", "16"), **more: Any) -> str:
        names = tuple(f"torch.{name}" for name in label.split(" → "))
        return self._add("operators", label, sources, dims, operators=names, **more)

    @contextmanager
    def group(self, label: str, type: str, count: int = 1, **more: Any) -> Iterator[str]:
        start = int(label) if label.isdigit() else 0
        below = "" if label.isdigit() else f"{label.removesuffix('.0')}."
        paths = tuple(f"{below}{start + index}" for index in range(count)) if count > 1 else ()
        id = self._add("group", label, (), (), type=type, path=label, count=count, paths=paths, **more)
        self._within.append(id)
        yield id
        self._within.pop()

    def carried(self, source: str, *targets: str) -> None:
        """What one repetition gives to the next."""
        for target in targets:
            self._edges.append(FlowEdge(source=source, target=target, dims=self._dims[source], carried=True))

    def flow(self, *symbols: Symbol, notes: tuple[Note, ...] = ()) -> Flow:
        return Flow(
            name=self.name, nodes=tuple(self._nodes), edges=tuple(self._edges), symbols=symbols, notes=notes
        )

    def _add(self, kind: Any, label: str, sources: tuple[str, ...], dims: Dims, **more: Any) -> str:
        id = f"n{len(self._nodes)}"
        group = self._within[-1] if self._within else None
        shapes = () if kind in ("group", "output") and not dims else (dims,)
        fields = {"stage": self.stage, "group": group, **more}
        self._nodes.append(FlowNode(id=id, kind=kind, label=label, dims=shapes, **fields))
        self._dims[id] = dims
        for source in dict.fromkeys(sources):
            self._edges.append(FlowEdge(source=source, target=id, dims=self._dims[source]))
        return id


def symbol(name: str, size: int, *places: str) -> Symbol:
    return Symbol(name=name, size=size, places=places, tried=(size + 1, size + 2))


BATCH = symbol("B", 2, "x.0")


def chain() -> Flow:
    """One thing after the other."""
    sketch = Sketch("Sequential")
    x = sketch.input("x", "B", "784")
    sketch.stage = "head"
    x = sketch.module("0", "Linear", x, dims=("B", "128"), params=100_480)
    x = sketch.module("1", "ReLU", x, dims=("B", "128"))
    x = sketch.module("2", "Linear", x, dims=("B", "10"), params=1_290)
    sketch.output("output", x)
    return sketch.flow(BATCH)


def residual() -> Flow:
    """Around a norm and a layer, the input is added again."""
    sketch = Sketch("Residual")
    x = sketch.input("x", "B", "L", "16")
    sketch.stage = "blocks"
    y = sketch.module("norm", "LayerNorm", x, params=32)
    y = sketch.module("mlp", "MLP", y, params=2_128)
    x = sketch.ops("add", y, x)
    sketch.output("output", x)
    return sketch.flow(BATCH, symbol("L", 5, "x.1"))


def unet(levels: int = 4) -> Flow:
    """Down and up, and at every level a skip connection."""
    sketch = Sketch("UNet")
    x = sketch.input("x", "B", "3", "H", "W")
    sketch.stage = "embedding"
    x = sketch.module("stem", "Sequential", x, dims=("B", "32", "H", "W"), params=960)
    skips = [x]
    sketch.stage = "blocks"
    for level in range(levels):
        dims = ("B", str(64 * 2**level), f"H/{2 ** (level + 1)}", f"W/{2 ** (level + 1)}")
        x = sketch.ops("max_pool2d", x, dims=(dims[0], str(32 * 2**level), *dims[2:]))
        x = sketch.module(f"down.{level}", "Sequential", x, dims=dims, params=18_624 * 4**level)
        skips.append(x)
    skips.pop()
    for level in range(levels):
        depth = levels - level - 1
        size = (f"H/{2**depth}", f"W/{2**depth}") if depth else ("H", "W")
        width = 32 * 2**depth
        x = sketch.module(f"up.{level}", "ConvTranspose2d", x, dims=("B", str(width), *size), params=8_224)
        x = sketch.ops("cat", x, skips.pop(), dims=("B", str(2 * width), *size))
        x = sketch.module(f"merge.{level}", "Sequential", x, dims=("B", str(width), *size), params=18_528)
    sketch.stage = "head"
    x = sketch.module("head", "Conv2d", x, dims=("B", "2", "H", "W"), params=66)
    sketch.output("output", x)
    return sketch.flow(BATCH, symbol("H", 64, "x.2"), symbol("W", 64, "x.3"))


def diffusion() -> Flow:
    """Four inputs, two paths that are added, a condition, three blocks, and one path added again."""
    sketch = Sketch("SensorDiT")
    signal = sketch.input("x_sig", "B", "2", "L")
    time = sketch.input("t", "B")
    label = sketch.input("label", "B", "6")
    geometry = sketch.input("geom", "B", "3", "L")
    sketch.stage = "embedding"
    geometry = sketch.ops("transpose", geometry, dims=("B", "L", "3"))
    geometry = sketch.module("geometry", "Linear", geometry, params=64)
    signal = sketch.ops("transpose", signal, dims=("B", "L", "2"))
    signal = sketch.module("signal", "Linear", signal, params=48)
    x = sketch.ops("add", signal, geometry)
    x = sketch.ops("slice → add", x, tensors=("positions",))
    time = sketch.module("time", "TimeEmbedding", time, dims=("B", "16"), params=2_336)
    label = sketch.module("label", "Sequential", label, dims=("B", "16"), params=384)
    label = sketch.ops("silu", label, dims=("B", "16"))
    condition = sketch.ops("add", time, label, dims=("B", "16"))
    sketch.stage = "blocks"
    with sketch.group("blocks.0", "Block", 3, params=13_062):
        shifts = sketch.module("modulation", "Linear", condition, dims=("B", "64"), params=3_264)
        shifts = sketch.ops("unsqueeze → chunk", shifts, dims=("B", "1", "16"))
        norm1 = sketch.module("norm1", "LayerNorm", x)
        y = sketch.ops("mul → add", norm1, shifts)
        y = sketch.module("attention", "MultiheadAttention", y, params=3_264)
        y = sketch.ops("mul", y, tensors=("attention_gate",))
        middle = sketch.ops("add", x, y)
        y = sketch.module("norm2", "LayerNorm", middle)
        y = sketch.ops("mul → add", y, shifts)
        y = sketch.module("mlp", "Sequential", y, params=6_384)
        y = sketch.ops("mul", y, tensors=("mlp_gate",))
        end = sketch.ops("add", middle, y)
        sketch.carried(end, norm1, middle)
    sketch.stage = "head"
    x = sketch.ops("add", end, geometry)
    x = sketch.module("norm", "LayerNorm", x, params=32)
    x = sketch.module("head", "Sequential", x, dims=("B", "L", "2"), params=306)
    x = sketch.ops("transpose", x, dims=("B", "2", "L"))
    sketch.output("output", x)
    return sketch.flow(
        symbol("B", 1, "x_sig.0", "t.0", "label.0", "geom.0"), symbol("L", 5160, "x_sig.2", "geom.2")
    )


def towers() -> Flow:
    """A picture and a text, each with a tower of blocks, compared at the end."""
    sketch = Sketch("TwoTowers")
    text = sketch.input("input_ids", "B", "L", dtype="int64")
    picture = sketch.input("pixel_values", "B", "3", "224", "224")
    ends = []
    for name, source, width, layers in (("text", text, "512", 12), ("vision", picture, "768", 24)):
        dims = ("B", "L" if name == "text" else "50", width)
        sketch.stage = "embedding"
        x = sketch.module(f"{name}.embeddings", "Embeddings", source, dims=dims, params=25_000_000)
        sketch.stage = "blocks"
        with sketch.group(f"{name}.layers.0", "EncoderLayer", layers, params=layers * 3_152_384):
            norm = sketch.module("layer_norm1", "LayerNorm", x, dims=dims, params=layers * 1_024)
            y = sketch.module("self_attn", "Attention", norm, dims=dims, params=layers * 1_050_624)
            middle = sketch.ops("add", x, y, dims=dims)
            y = sketch.module("layer_norm2", "LayerNorm", middle, dims=dims, params=layers * 1_024)
            y = sketch.module("mlp", "MLP", y, dims=dims, params=layers * 2_099_712)
            x = sketch.ops("add", middle, y, dims=dims)
            sketch.carried(x, norm, middle)
        sketch.stage = "head"
        x = sketch.module(f"{name}.projection", "Linear", x, dims=("B", "512"), params=262_144)
        ends.append(sketch.ops("norm → div", x, dims=("B", "512")))
    logits = sketch.ops("matmul", *ends, dims=("B", "B"), tensors=("logit_scale",))
    for label, source in (("logits_per_text", logits), ("text_embeds", ends[0]), ("image_embeds", ends[1])):
        sketch.output(label, source)
    return sketch.flow(symbol("B", 2, "input_ids.0", "pixel_values.0"), symbol("L", 7, "input_ids.1"))


HOSTILE = (
    'quo"te', "end", "`code`", "a[b]{c}(d)<e>", "<script>alert(1)</script>", "1. list", "- item", "# head",
    "&amp; #35;", "back\\slash", "line\nbreak", "\x1b[31mred", "\u202eright to left", "模型输入", "🦙 llama",
    "%%{init: {}}%%", "$$x^2$$", "fa:fa-car", "||pipe|", "*bold* _it_", "http://x.y", "é" * 80, "x" * 200, "",
)  # fmt: skip


def hostile() -> Flow:
    """Names that try to leave their place."""
    sketch = Sketch('graph "x" { <b>')
    x = sketch.input(HOSTILE[0], '"', "<B>", "|")
    sketch.stage = "blocks"
    with sketch.group('end"] <g> \\', "]\n", 2):
        for name in HOSTILE[1:]:
            x = sketch.module(name, name[:20], x, dims=("B", '"<', name[:6]), tensors=(name[:30],))
        sketch.carried(x, "n2")
    sketch.output("out|put", x)
    note = Note(code="x", text='says "<&> \x07')
    return sketch.flow(symbol('"<', 3, '"x".0', "|.1"), notes=(note,))


def nested() -> Flow:
    """Groups in groups, modules that repeat, experts side by side, edges into the innermost."""
    sketch = Sketch("Mixture")
    ids = sketch.input("input_ids", "B", "L", dtype="int64")
    mask = sketch.input("attention_mask", "B", "L", dtype="int64")
    sketch.stage = "embedding"
    x = sketch.module("embed", "Embedding", ids, dims=("B", "L", "64"), params=64_000)
    bias = sketch.ops("to → sub → mul", mask, dims=("B", "1", "1", "L"))
    sketch.stage = "blocks"
    with sketch.group("layers.0", "Layer", 32, params=5_000_000):
        with sketch.group("attention", "Attention", params=500_000):
            q, k, v = (sketch.module(f"{n}_proj", "Linear", x, dims=("B", "L", "64")) for n in "qkv")
            y = sketch.ops("scaled_dot_product_attention", q, k, v, bias, dims=("B", "4", "L", "16"))
            y = sketch.module("o_proj", "Linear", y, dims=("B", "L", "64"))
        middle = sketch.ops("add", x, y, dims=("B", "L", "64"))
        with sketch.group("experts", "Experts", params=4_000_000):
            gate = sketch.module("router", "Linear", middle, dims=("B·L", "8"))
            gate = sketch.ops("softmax → topk", gate, dims=("B·L", "2"))
            y = sketch.module("experts", "MLP", middle, dims=("B·L", "64"), count=8, params=4_000_000)
            y = sketch.ops("mul → index_add", y, gate, dims=("B·L", "64"))
        end = sketch.ops("add", middle, y, dims=("B", "L", "64"))
        sketch.carried(end, q, k, v, middle)
    x = sketch.module("adapters", "Adapter", end, dims=("B", "L", "64"), count=4, params=16_000)
    sketch.carried(x, x)
    sketch.stage = "head"
    x = sketch.module("norm", "RMSNorm", x, dims=("B", "L", "64"), params=64)
    x = sketch.module("lm_head", "Linear", x, dims=("B", "L", "1000"), params=64_000)
    sketch.output("logits", x)
    return sketch.flow(
        symbol("B", 2, "input_ids.0", "attention_mask.0"), symbol("L", 7, "input_ids.1", "attention_mask.1")
    )


def numbered() -> Flow:
    """Blocks without names, as `Sequential` has them, whose end the end of the next one reads again."""
    sketch = Sketch("Sequential")
    x = sketch.input("input", "B", "64", "H", "W")
    sketch.stage = "blocks"
    with sketch.group("1", "Sequential", params=7_098_368):
        first = sketch.module("0", "Bottleneck", x, dims=("B", "256", "H", "W"), params=1_512_448)
        with sketch.group("1", "Bottleneck", 5, params=5_585_920):
            with sketch.group("reduce", "Sequential"):
                start = sketch.module("0", "Conv2d", first, dims=("B", "64", "H", "W"))
                y = sketch.module("1", "BatchNorm2d", start, dims=("B", "64", "H", "W"))
            end = sketch.ops("add → relu", first, y, dims=("B", "256", "H", "W"))
            sketch.carried(end, start, end)
    sketch.output("output", end)
    return sketch.flow(BATCH)


def large(nodes: int = 300) -> Flow:
    """A long network in which each block also reads one from further above."""
    sketch = Sketch("Large")
    made = [sketch.input("x", "B", "64")]
    sketch.stage = "blocks"
    for index in range(nodes - 2):
        if index % 3 == 2:
            made.append(sketch.ops("add", made[-1], made[-3], dims=("B", "64")))
        elif index % 17 == 4:
            made.append(sketch.ops("cat", made[-1], made[max(0, index - 30)], dims=("B", "64")))
        else:
            made.append(sketch.module(f"layers.{index}", "Linear", made[-1], dims=("B", "64"), params=4_160))
    sketch.output("output", made[-1])
    return sketch.flow(BATCH)


def by_chance(seed: int) -> Flow:
    """Groups in groups, joins, repetitions and now and then data that goes back, as a dice has it."""
    dice = random.Random(seed)
    sketch = Sketch(f"Chance{seed}")
    made = [sketch.input(f"x{index}", "B") for index in range(dice.randint(1, 4))]

    def fill(depth: int) -> None:
        for _ in range(dice.randint(1, 6)):
            if depth < 3 and dice.random() < 0.3:
                with sketch.group(f"g{dice.randint(0, 9)}", "Group", dice.choice([1, 1, 3])):
                    before = len(made)
                    fill(depth + 1)
                    new = made[before:]
                    if dice.random() < 0.6:
                        sketch.carried(new[-1], *dice.sample(new, min(len(new), dice.randint(1, 3))))
                continue
            read = dice.sample(made, min(len(made), dice.choice([0, 1, 1, 1, 2, 2, 3])))
            if dice.random() < 0.5:
                name, type = f"m{len(made)}", "T" * dice.randint(1, 30)
                made.append(sketch.module(name, type, *read, count=dice.choice([1, 1, 1, 4])))
            else:
                made.append(sketch.ops(dice.choice(["add", "cat", "mul → add"]), *read))

    fill(0)
    for index in range(dice.randint(1, 3)):
        sketch.output(f"output{index}", dice.choice(made))
    flow = sketch.flow()
    back = FlowEdge(source=made[-1], target=made[0])
    return replace(flow, edges=(*flow.edges, back)) if dice.random() < 0.2 else flow


FLOWS = {
    "chain": chain,
    "residual": residual,
    "unet": unet,
    "diffusion": diffusion,
    "towers": towers,
    "nested": nested,
    "numbered": numbered,
    "hostile": hostile,
    "large": large,
}
CHANCE = {f"chance-{seed}": partial(by_chance, seed) for seed in range(20)}
