"""Which sizes can change and what follows them, against real runs with yet other sizes."""

from __future__ import annotations

import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import modelglass as mg
from fingerprint import fingerprint
from modelglass import Inputs
from modelglass.report import Symbols, codec
from modelglass.symbols.further_runs import RUNS as FURTHER
from modelglass.symbols.search import RUNS
from models import SAMPLES, Apply, CellLoop, UNet, gpt2, ids, mixtral, transformers_model

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import diffusion

VIT = "vit_tiny_patch16_224"
TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}


def symbols_of(model: nn.Module, inputs: Any, **how: Any) -> tuple[mg.Report, Symbols]:
    report = mg.inspect(model, inputs, symbols=True, **how)
    assert report.symbols is not None
    return report, report.symbols


def found(symbols: Symbols) -> dict[str, tuple[int, tuple[str, ...]]]:
    return {symbol.name: (symbol.size, symbol.places) for symbol in symbols.symbols}


def tokens(*shape: int) -> torch.Tensor:
    return torch.arange(math.prod(shape)).view(shape) % 7


def timm_model(name: str, **settings: Any) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, **settings).eval()


def dit() -> nn.Module:
    return diffusion.SensorDiT(64, 16, 1, 8, 0.1, 6, 32, 4.0).eval()


def dit_inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {
        "x_sig": torch.zeros(batch, 2, length),
        "t": torch.zeros(batch),
        "label": torch.zeros(batch, 6),
        "geom": torch.zeros(batch, 3, length),
    }


def t5() -> nn.Module:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "vocab_size": 100}
    return transformers_model("T5", "Model", **sizes)


def whisper() -> nn.Module:
    widths = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_mel_bins": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "max_source_positions": 50}
    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0}
    return transformers_model("Whisper", "Model", **widths, **heads, **layers, **ends, vocab_size=100)


class Flattening(nn.Module):
    """Rows of all batches in one, and a token in front."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.first = nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.first.expand(x.shape[0], 1, 8), x, y], 1)
        return self.layer(x.reshape(-1, 8)).view(x.shape[0], -1)


@dataclass
class Case:
    """A model, its inputs by their sizes, what is expected of them, and other sizes that work."""

    model: Callable[[], nn.Module]
    inputs: Callable[..., Any]
    usual: dict[str, int]
    places: dict[str, tuple[str, ...]]  # of those that can change, by symbol
    output: tuple[str, ...]  # the first output's shape
    others: tuple[dict[str, int], ...]


CASES: dict[str, Case] = {
    "diffusion transformer": Case(
        dit,
        dit_inputs,
        {"B": 1, "L": 64},
        {"B": ("x_sig.0", "t.0", "label.0", "geom.0"), "L": ("x_sig.2", "geom.2")},
        ("B", "2", "L"),
        ({"B": 5, "L": 7},),
    ),
    "mlp with as many rows as columns": Case(
        lambda: nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2)),
        lambda b: torch.zeros(b, 2),
        {"B": 2},
        {"B": ("input.0",)},
        ("B", "2"),
        ({"B": 7},),
    ),
    "resnet": Case(
        lambda: timm_model("resnet10t"),
        lambda b, h, w: torch.zeros(b, 3, h, w),
        {"B": 2, "H": 32, "W": 64},
        {"B": ("x.0",), "H": ("x.2",), "W": ("x.3",)},
        ("B", "1000"),
        ({"B": 1, "H": 160, "W": 32},),
    ),
    "u-net": Case(
        UNet,
        lambda b, h, w: torch.zeros(b, 3, h, w),
        {"B": 1, "H": 16, "W": 16},
        {"B": ("x.0",), "H": ("x.2",), "W": ("x.3",)},
        ("B", "3", "H", "W"),
        ({"B": 2, "H": 20, "W": 8},),
    ),
    "vision transformer of one size": Case(
        lambda: timm_model(VIT, img_size=32, depth=1),
        lambda b: torch.zeros(b, 3, 32, 32),
        {"B": 2},
        {"B": ("x.0",)},
        ("B", "1000"),
        ({"B": 3},),
    ),
    "vision transformer of any size": Case(
        lambda: timm_model(VIT, img_size=32, depth=1, dynamic_img_size=True),
        lambda b, h, w: torch.zeros(b, 3, h, w),
        {"B": 2, "H": 32, "W": 32},
        {"B": ("x.0",), "H": ("x.2",), "W": ("x.3",)},
        ("B", "1000"),
        ({"B": 3, "H": 48, "W": 80},),
    ),
    "bert": Case(
        lambda: transformers_model("Bert", "Model", **TINY, vocab_size=100),
        lambda b, n: {"input_ids": tokens(b, n), "attention_mask": torch.ones(b, n, dtype=torch.int64)},
        {"B": 2, "L": 16},
        {"B": ("input_ids.0", "attention_mask.0"), "L": ("input_ids.1", "attention_mask.1")},
        ("B", "L", "32"),
        ({"B": 3, "L": 21},),
    ),
    "t5": Case(
        t5,
        lambda b, n, m: {"input_ids": tokens(b, n), "decoder_input_ids": tokens(b, m)},
        {"B": 2, "L": 16, "L2": 5},
        {"B": ("input_ids.0", "decoder_input_ids.0"), "L": ("input_ids.1",), "L2": ("decoder_input_ids.1",)},
        ("B", "L2", "32"),
        ({"B": 1, "L": 9, "L2": 11},),
    ),
    "whisper": Case(
        whisper,
        lambda b, n: {"input_features": torch.zeros(b, 8, 100), "decoder_input_ids": tokens(b, n)},
        {"B": 1, "L": 4},
        {"B": ("input_features.0", "decoder_input_ids.0"), "L": ("decoder_input_ids.1",)},
        ("B", "L", "32"),
        ({"B": 2, "L": 7},),
    ),
    "lstm": Case(
        lambda: nn.LSTM(10, 20, 2, bidirectional=True, batch_first=True),
        lambda b, n: torch.zeros(b, n, 10),
        {"B": 2, "L": 5},
        {"B": ("input.0",), "L": ("input.1",)},
        ("B", "L", "40"),
        ({"B": 1, "L": 9},),
    ),
    "rows of all batches in one": Case(
        Flattening,
        lambda b, n, m: (torch.zeros(b, n, 8), torch.zeros(b, m, 8)),
        {"B": 2, "L": 6, "L2": 3},
        {"B": ("x.0", "y.0"), "L": ("x.1",), "L2": ("y.1",)},
        ("B", "8·L+8·L2+8"),
        ({"B": 3, "L": 4, "L2": 9},),
    ),
    "mixtral": Case(
        mixtral,
        lambda b, n: {"input_ids": tokens(b, n), "use_cache": False},
        {"B": 1, "L": 16},
        {"B": ("input_ids.0",), "L": ("input_ids.1",)},
        ("B", "L", "1000"),
        ({"B": 2, "L": 9},),
    ),
    "strided convolution": Case(
        lambda: nn.Conv1d(4, 4, 3, stride=2, padding=1),
        lambda b, n: torch.zeros(b, 4, n),
        {"B": 2, "L": 5},
        {"B": ("input.0",), "L": ("input.2",)},
        ("B", "4", "⌈L/2⌉"),
        ({"B": 1, "L": 12}, {"B": 1, "L": 13}),
    ),
}


def evaluated(text: str, sizes: dict[str, int]) -> int:
    """What a formula gives."""
    code = text.replace("·", "*").replace("²", "**2")
    code = re.sub(r"⌈(.*?)⌉", r"ceil(\1)", re.sub(r"⌊(.*?)⌋", r"floor(\1)", code))
    known = {name: Fraction(size) for name, size in sizes.items()}
    value = Fraction(eval(code, {"__builtins__": {}, "ceil": math.ceil, "floor": math.floor, **known}))
    assert value.denominator == 1
    return int(value)


Shape = tuple[int, ...]


def real_shapes(model: nn.Module, inputs: Any) -> tuple[dict[str, list[Shape]], list[Shape]]:
    """What modules gave in a run of torch's own, each time, if it was one tensor; and what the model gave."""
    seen: dict[str, list[Shape]] = defaultdict(list)

    def note(path: str, module: nn.Module, args: Any, output: Any) -> None:
        seen[path].append(tuple(output.shape) if isinstance(output, torch.Tensor) else ())

    hooks = [module.register_forward_hook(partial(note, path)) for path, module in model.named_modules()]
    with torch.no_grad():
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        output = model(**inputs) if isinstance(inputs, dict) else model(*given)
    for hook in hooks:
        hook.remove()
    return seen, [tuple(value.shape) for value in tree_leaves(output) if isinstance(value, torch.Tensor)]


def shapes_by_formula(report: mg.Report, sizes: dict[str, int]) -> tuple[dict[str, list[Shape]], list[Shape]]:
    """The same by our formulas, for modules whose own last operator gave what they gave; () for others."""

    def shape(number: int, usual: Shape) -> Shape:
        dims = report.symbols.shapes.get(number, tuple(map(str, usual)))
        return tuple(evaluated(dim, sizes) for dim in dims)

    pairs = zip(report.model.ops, report.dataflow.writes, strict=True)
    last = {op.call: (op.outputs[0], writes[0]) for op, writes in pairs if writes}
    seen: dict[str, list[Shape]] = defaultdict(list)
    for call in report.model.calls:
        value, number = last.get(call.index, (None, None))
        plain = value is not None and call.outputs[:1] and call.outputs[0].shape == value.shape
        plain = plain and [output.name for output in call.outputs] == [""] and number is not None
        seen[call.module].append(shape(number, value.shape) if plain else ())
    returned = zip(report.dataflow.outputs, report.run.outputs, strict=True)
    return seen, [shape(numbers[0], value.shape) for numbers, value in returned if numbers]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_formulas_give_the_shapes_of_real_runs_with_other_sizes(name: str) -> None:
    case = CASES[name]
    model = case.model()
    report, symbols = symbols_of(model, case.inputs(*case.usual.values()))
    assert found(symbols) == {key: (case.usual[key], places) for key, places in case.places.items()}
    assert symbols.shapes[report.dataflow.outputs[0][0]] == case.output
    assert not any("{" in dim for dims in symbols.shapes.values() for dim in dims)
    for sizes in case.others:
        modules, outputs = real_shapes(model, case.inputs(*sizes.values()))
        by_formula, outputs_by_formula = shapes_by_formula(report, sizes)
        assert outputs == outputs_by_formula
        pairs = [
            (one, two)
            for path, shapes in by_formula.items()
            for one, two in zip(shapes, modules[path], strict=True)
            if one
        ]
        assert pairs or len(modules) == 1
        assert [one for one, _ in pairs] == [two for _, two in pairs]


@pytest.mark.slow
def test_what_was_tried_is_said_and_a_table_is_a_limit() -> None:
    _, symbols = symbols_of(dit(), dit_inputs(1, 64))
    assert [symbol.tried for symbol in symbols.symbols] == [(2, 3), (32, 16, 33)]


@pytest.mark.slow
def test_few_runs_are_made_and_told_of() -> None:
    told: list[str] = []
    mg.inspect(dit(), dit_inputs(1, 64), symbols=True, progress=told.append)
    runs = [text for text in told if text.startswith("trying other sizes")]
    assert runs[-1] == f"trying other sizes, run {len(runs)}"
    assert len(runs) <= RUNS + FURTHER


@pytest.mark.slow
def test_sizes_that_change_only_together_are_one() -> None:
    layer = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    x, mask = torch.zeros(16, 16, 16), torch.zeros(16, 16)  # as many in the batch, steps and features
    _, symbols = symbols_of(layer, Inputs((x, x, x), {"attn_mask": mask}))
    assert found(symbols) == {
        "B": (16, ("query.0",)),
        "L": (16, ("query.1", "attn_mask.0", "attn_mask.1")),
    }


def test_height_and_width_that_must_be_equal_are_one() -> None:
    def square(self: Any, x: torch.Tensor) -> torch.Tensor:
        return (x @ x).flatten(2)

    report, symbols = symbols_of(Apply(square), torch.zeros(2, 3, 8, 8))
    assert found(symbols)["H"] == (8, ("args.0.2", "args.0.3"))
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("B", "C", "H²")


def test_volumes_have_a_depth() -> None:
    report, symbols = symbols_of(nn.Conv3d(1, 2, 3, stride=2, padding=1), torch.zeros(1, 1, 8, 8, 8))
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("B", "2", "⌈D/2⌉", "⌈H/2⌉", "⌈W/2⌉")


@pytest.mark.parametrize("odd", [17, 29, 35])
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(3, 4, 3, stride=2, padding=1),
        nn.Conv1d(3, 4, 3, stride=2),
        nn.Conv1d(3, 4, 5, stride=4),
        nn.MaxPool1d(3, 2, ceil_mode=True),
        nn.Sequential(nn.Conv1d(3, 4, 7, stride=2, padding=3), nn.MaxPool1d(3, 2, 1)),
    ],
    ids=["padded", "bare", "by four", "ceil", "twice"],
)
def test_a_formula_holds_at_sizes_that_are_no_multiple(layer: nn.Module, odd: int) -> None:
    report, symbols = symbols_of(layer, torch.zeros(2, 3, 16))
    text = symbols.shapes[report.dataflow.outputs[0][0]][-1]
    sizes = {each.name: odd if each.places == ("input.2",) else each.size for each in symbols.symbols}
    assert evaluated(text, sizes) == layer(torch.zeros(2, 3, odd)).shape[-1]


def test_patches_are_a_product_of_rounded_sizes() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.Flatten(2))
    report, symbols = symbols_of(model, torch.zeros(2, 3, 32, 32))
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("B", "8", "⌊H/4⌋·⌊W/4⌋")


def test_what_follows_by_no_formula_is_a_number_with_its_symbol() -> None:
    def padded(self: Any, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(x, (0, (1 << (x.shape[1] - 1).bit_length()) - x.shape[1]))

    report, symbols = symbols_of(Apply(padded), torch.zeros(2, 16))
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("B", "16{L}")


def test_two_batches_of_different_sizes_are_two() -> None:
    def scores(self: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.layer(a) @ self.layer(b).t()

    model = Apply(scores, layer=nn.Linear(4, 4))
    report, symbols = symbols_of(model, (torch.zeros(2, 4), torch.zeros(3, 4)))
    assert found(symbols) == {"B": (2, ("args.0.0",)), "B2": (3, ("args.1.0",))}
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("B", "B2")


def test_a_size_without_a_formula_stands_with_its_symbols() -> None:
    def odd(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x[:, : 2 ** (x.shape[1] // 5)]

    report, symbols = symbols_of(Apply(odd), torch.zeros(2, 10))
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("B", "4{L}")


def codes(report: mg.Report) -> list[str]:
    return [note.code for note in report.notes]


def test_fixed_sizes_are_named() -> None:
    def fixed(self: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view(2, 12) * 2

    report, symbols = symbols_of(Apply(fixed), torch.zeros(2, 3, 4))
    assert symbols == Symbols()
    note = next(note for note in report.notes if note.code == "fixed-sizes")
    assert note.where == ("args.0.0", "args.0.1", "args.0.2")


def test_control_flow_that_follows_a_size_is_said() -> None:
    def branching(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if x.shape[1] < 8:
            x = self.short(x.relu())
        return self.last(x.mean(1))

    layers = {name: nn.Linear(4, 4) for name in ("first", "short", "last")}
    report, symbols = symbols_of(Apply(branching, **layers), torch.zeros(2, 5, 4))
    shapes = {
        (op.module, op.name.rpartition(".")[2]): symbols.shapes.get(writes[0])
        for op, writes in zip(report.model.ops, report.dataflow.writes, strict=True)
    }
    assert shapes["first", "linear"] == ("B", "L", "4")
    assert shapes["short", "linear"] == ("B", "5{L}", "4"), "short ones alone have it"
    assert shapes["last", "linear"] == ("B", "4")
    assert "operators-follow-sizes" in codes(report)


@pytest.mark.slow
def test_a_loop_over_steps_has_a_length() -> None:
    report, symbols = symbols_of(CellLoop(), torch.zeros(5, 2, 10))
    assert found(symbols) == {"B": (5, ("x.0",)), "L": (2, ("x.1",))}
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("L", "20")


def test_inputs_without_sizes_have_no_symbols() -> None:
    _, symbols = symbols_of(nn.ReLU(), torch.zeros(()))
    assert symbols == Symbols()


def test_a_model_that_runs_for_real_has_none_and_says_so() -> None:
    model, inputs = SAMPLES["branching"]()
    report = mg.inspect(model, inputs, symbols=True)
    assert report.symbols is None
    assert "no-symbols" in codes(report)


def test_a_model_that_fails_has_none() -> None:
    model, inputs = SAMPLES["failing"]()
    assert mg.inspect(model, inputs, symbols=True, on_failure="report").symbols is None


@pytest.mark.slow
def test_the_pass_of_a_training_step_has_them_too() -> None:
    report, symbols = symbols_of(gpt2().train(), {"input_ids": ids()}, train=True)
    assert symbols.shapes[report.dataflow.outputs[0][0]] == ("B", "L", "1000")
    assert codec.loads(codec.dumps(report)) == report


@pytest.mark.parametrize("sample", ["stateful", "hoarder", "gpt2", "checkpointed", "compiled"])
def test_looking_for_them_leaves_no_trace(sample: str) -> None:
    model, inputs = SAMPLES[sample]()
    before = fingerprint(model, inputs)
    assert mg.inspect(model, inputs, symbols=True).symbols
    assert fingerprint(model, inputs) == before


def test_nobody_asked() -> None:
    assert mg.inspect(nn.ReLU(), torch.zeros(2)).symbols is None
