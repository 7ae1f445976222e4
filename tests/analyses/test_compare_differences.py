"""What counts as different between counterparts: steps of Sequentials, settings, heads, layouts of files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
import torch
from mlx import nn as mnn
from safetensors.torch import save_file
from torch import nn

import build
import modelglass as mg
from differences import found
from modelglass.analyses.compare import compare
from modelglass.errors import ForwardError, UnknownTargetError, UsageError

Codes = list[tuple[str | None, str | None, str]]

S, M = nn.Sequential, mnn.Sequential


class Block(nn.Module):
    """Something of one's own that has no weights."""


def shared() -> nn.Sequential:
    act = nn.ReLU()
    return S(nn.Linear(4, 8), act, nn.Linear(8, 2), act)


STEPS: dict[str, tuple[Callable[[], Any], Callable[[], Any], Codes]] = {
    "missing": (
        lambda: S(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        lambda: S(nn.Linear(4, 8), nn.Linear(8, 2)),
        [("1", None, "missing-in-b")],
    ),
    "missing between layers that could be stacked": (
        lambda: S(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)),
        lambda: S(nn.Linear(2, 2), nn.Linear(2, 2)),
        [("1", None, "missing-in-b")],
    ),
    "pool missing in the port": (
        lambda: S(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3)),
        lambda: M(mnn.Conv2d(3, 4, 3), mnn.Conv2d(4, 5, 3)),
        [("1", None, "missing-in-b")],
    ),
    "one too many at the end": (
        lambda: S(nn.Linear(4, 4)),
        lambda: M(mnn.Linear(4, 4), mnn.Softmax()),
        [(None, "layers.1", "extra-in-b")],
    ),
    "another kind": (
        lambda: S(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        lambda: S(nn.Linear(4, 8), nn.Hardsigmoid(), nn.Linear(8, 2)),
        [("1", "1", "kind")],
    ),
    "another kind at the end": (
        lambda: S(nn.Linear(2, 2), nn.RReLU()),
        lambda: S(nn.Linear(2, 2), nn.Tanhshrink()),
        [("1", "1", "kind")],
    ),
    "moved": (
        lambda: S(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        lambda: M(mnn.Conv2d(3, 4, 3), mnn.ReLU(), mnn.BatchNorm(4)),
        [("2", "layers.1", "order")],
    ),
    "in a Sequential inside of one": (
        lambda: S(S(nn.Linear(4, 8), nn.ReLU()), nn.Linear(8, 2)),
        lambda: M(mnn.Linear(4, 8), mnn.Linear(8, 2)),
        [("0.1", None, "missing-in-b")],
    ),
    "the same object twice": (
        shared,
        lambda: M(mnn.Linear(4, 8), mnn.ReLU(), mnn.Linear(8, 2), mnn.ReLU()),
        [],
    ),
    "nothing but an activation": (lambda: S(nn.ReLU()), lambda: M(), [("0", None, "missing-in-b")]),
    "idle in inference": (
        lambda: S(nn.Linear(4, 8), nn.Dropout(), nn.ReLU(), nn.Identity(), nn.Linear(8, 2)),
        lambda: M(mnn.Linear(4, 8), mnn.ReLU(), mnn.Linear(8, 2)),
        [],
    ),
    "a function that may do the same": (
        lambda: S(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)),
        lambda: M(mnn.Conv2d(3, 4, 3), lambda x: x.mean((1, 2)), mnn.Linear(4, 2)),
        [],
    ),
    "a module of one's own that may do the same": (
        lambda: S(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        lambda: S(nn.Linear(4, 8), Block(), nn.Linear(8, 2)),
        [],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_two_sequentials_run_what_they_hold_and_nothing_else(name: str) -> None:
    a, b, expected = STEPS[name]
    comparison = mg.compare_structure(a(), b())
    assert found(comparison) == expected
    backwards = mg.compare_structure(b(), a())
    assert len(found(backwards)) == len(expected)


SETTINGS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "LeakyReLU": (nn.LeakyReLU(0.2), mnn.LeakyReLU(0.01), ("negative_slope=0.2", "negative_slope=0.01")),
    "LeakyReLU, the same": (nn.LeakyReLU(0.2), mnn.LeakyReLU(0.2), ()),
    "ELU": (nn.ELU(2.0), mnn.ELU(1.0), ("alpha=2.0", "alpha=1.0")),
    "CELU": (nn.CELU(0.3), mnn.CELU(), ("alpha=0.3", "alpha=1.0")),
    "GELU by tanh": (nn.GELU("tanh"), mnn.GELU(), ("approximate=tanh", "approximate=none")),
    "GELU, precise is by tanh": (nn.GELU("tanh"), mnn.GELU("precise"), ()),
    "GELU is not precise": (nn.GELU(), mnn.GELU("precise"), ("approximate=none", "approximate=tanh")),
    "GELU as a function": (nn.GELU(), mnn.gelu_approx, ("approximate=none", "approximate=tanh")),
    "GELU as a function, the same": (nn.GELU("tanh"), mnn.gelu_approx, ()),
    "a function with arguments": (nn.LeakyReLU(0.2), partial(mnn.leaky_relu, negative_slope=0.2), ()),
    "Softplus": (nn.Softplus(beta=2), mnn.Softplus(), ("beta=2", "beta=1.0")),
    "Hardtanh": (nn.Hardtanh(-2, 1), mnn.HardTanh(), ("min_val=-2", "min_val=-1.0")),
    "Softshrink": (nn.Softshrink(0.1), mnn.Softshrink(), ("lambd=0.1", "lambd=0.5")),
    "Softmax over the batch": (nn.Softmax(0), mnn.Softmax(), ("dim=0", "dim=-1")),
    "Softmax of one framework": (nn.Softmax(1), nn.Softmax(2), ("dim=1", "dim=2")),
    "Softmax over what may be last": (nn.Softmax(1), mnn.Softmax(), ()),
    "MaxPool rounding up": (
        nn.MaxPool2d(2, ceil_mode=True),
        mnn.MaxPool2d(2),
        ("ceil_mode=True", "ceil_mode=False"),
    ),
    "AvgPool without what was padded": (
        nn.AvgPool2d(3, padding=1, count_include_pad=False),
        mnn.AvgPool2d(3, padding=1),
        ("count_include_pad=False", "count_include_pad=True"),
    ),
    "AvgPool with nothing padded": (nn.AvgPool2d(3, count_include_pad=False), mnn.AvgPool2d(3), ()),
    "Upsample": (nn.Upsample(scale_factor=2), mnn.Upsample(2), ()),
    "Upsample, bilinear is linear": (
        nn.Upsample(scale_factor=2, mode="bilinear"),
        mnn.Upsample(2, "linear"),
        (),
    ),
    "Upsample by more": (
        nn.Upsample(scale_factor=2),
        mnn.Upsample(4),
        ("scale_factor=2.0", "scale_factor=4.0"),
    ),
    "Upsample in another way": (
        nn.Upsample(scale_factor=2, mode="bicubic"),
        mnn.Upsample(2, "linear"),
        ("mode=cubic", "mode=linear"),
    ),
    "padding as a word": (nn.Conv2d(8, 4, 3, padding="same"), mnn.Conv2d(8, 4, 3, padding=1), ()),
    "padding as a word, dilated": (
        nn.Conv2d(8, 4, (3, 5), padding="same", dilation=2),
        mnn.Conv2d(8, 4, (3, 5), padding=(2, 4), dilation=2),
        (),
    ),
    "padding as a word, wrong": (
        nn.Conv2d(8, 4, 3, padding="same"),
        mnn.Conv2d(8, 4, 3),
        ("padding=1", "padding=0"),
    ),
    "no padding as a word": (nn.Conv2d(8, 4, 3, padding="valid"), mnn.Conv2d(8, 4, 3), ()),
    "what is padded": (
        nn.Conv2d(8, 4, 3, padding=1, padding_mode="reflect"),
        mnn.Conv2d(8, 4, 3, padding=1),
        ("padding_mode=reflect", "padding_mode=zeros"),
    ),
    "RNN": (nn.RNN(4, 6, nonlinearity="relu"), mnn.RNN(4, 6), ("nonlinearity=relu", "nonlinearity=tanh")),
    "eps of the type": (
        nn.RMSNorm(8),
        mnn.RMSNorm(8),
        (f"eps={torch.finfo(torch.float32).eps}", "eps=1e-05"),
    ),
    "AdaptiveAvgPool": (nn.AdaptiveAvgPool2d(1), nn.AdaptiveAvgPool2d(7), ("output_size=1", "output_size=7")),
    "PixelShuffle": (nn.PixelShuffle(2), nn.PixelShuffle(3), ("upscale_factor=2", "upscale_factor=3")),
    "Flatten": (nn.Flatten(1), nn.Flatten(2), ("start_dim=1", "start_dim=2")),
    "Dropout of one framework": (nn.Dropout(0.1), nn.Dropout(0.2), ("p=0.1", "p=0.2")),
    "Dropout of two frameworks": (nn.Dropout(0.1), mnn.Dropout(0.2), ()),
    "inplace": (nn.ReLU(inplace=True), nn.ReLU(), ()),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_compared(name: str) -> None:
    one, other, expected = SETTINGS[name]
    a = S(nn.Linear(3, 5), one)
    b = S(nn.Linear(3, 5), other) if isinstance(other, nn.Module) else M(mnn.Linear(3, 5), other)
    comparison = mg.compare_structure(a, b)
    told = [
        (each.a, each.b) for pair in comparison.differing for each in pair.deviations if each.code == "config"
    ]
    assert told == ([expected] if expected else [])
    assert set(comparison.codes) <= {"config"}


def test_the_function_inside_an_encoder_is_compared() -> None:
    layers = [nn.TransformerEncoderLayer(8, 2, 16, activation=name) for name in ("gelu", "relu")]
    comparison = mg.compare_structure(*layers)
    assert found(comparison) == [("", "", "config")]


def test_mlx_layers_tell_what_they_keep_behind_an_underscore() -> None:
    def config(module: mnn.Module) -> dict[str, Any]:
        return dict(mg.inspect(module).model.modules[0].config)

    assert config(mnn.LeakyReLU(0.2)) == {"negative_slope": 0.2}
    assert config(mnn.ELU(2.0)) == {"alpha": 2.0}
    assert config(mnn.GELU("tanh")) == {"approx": "tanh"}
    pool = config(mnn.MaxPool2d(3, 2, 1))
    assert pool == {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}


class Attention(nn.Module):
    def __init__(self, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(32, 96)
        self.proj = nn.Linear(32, 32)


class Ported(mnn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.n_heads = heads
        self.qkv = mnn.Linear(32, 96)
        self.proj = mnn.Linear(32, 32)


class ByWidth(nn.Module):
    """An attention that knows the width of a head and not how many it has."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head_dim = width
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(32, 32) for _ in range(4))


class ByNumber(mnn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.num_attention_heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (mnn.Linear(32, 32) for _ in range(4))


def test_numbers_of_heads_are_compared_whatever_the_classes_are() -> None:
    assert mg.compare_structure(Attention(4), Ported(4)).same
    for other in (Ported(8), Attention(8)):
        comparison = mg.compare_structure(Attention(4), other)
        assert [(each.a, each.b) for pair in comparison.differing for each in pair.deviations] == [
            ("num_heads=4", "num_heads=8")
        ]
    assert mg.compare_structure(ByWidth(8), ByNumber(4)).same
    assert found(mg.compare_structure(ByWidth(8), ByNumber(8))) == [("", "", "config")]


def test_two_of_one_class_are_compared_in_all_that_they_were_told() -> None:
    comparison = mg.compare_structure(S(Attention(4, 0.1)), S(Attention(4, 0.2)))
    assert found(comparison) == [("0", "0", "config")]
    wider = mg.compare_structure(nn.Linear(4, 8), nn.Linear(4, 6))
    assert {code for _, _, code in found(wider)} == {"shape"}  # which says what out_features would repeat


def saved(path: Path, *, format: str | None = None, **tensors: torch.Tensor) -> Path:
    save_file(tensors, path, metadata=None if format is None else {"format": format})
    return path


def test_weights_of_a_file_are_in_the_layout_of_whoever_wrote_it(tmp_path: Path) -> None:
    bias = torch.zeros(8)
    first, last = torch.zeros(8, 3, 5, 5), torch.zeros(8, 5, 5, 3)
    theirs, ours = mnn.Conv2d(3, 8, 5), nn.Conv2d(3, 8, 5)
    cases = [("pt", first, theirs, []), ("mlx", last, theirs, []), ("mlx", last, ours, [])]
    cases += [(None, first, theirs, []), (None, last, theirs, []), ("pt", first, ours, [])]
    cases += [("mlx", first, theirs, ["layout"]), ("pt", last, ours, ["layout"])]
    cases += [
        ("pt", torch.zeros(3, 8, 5, 5), theirs, ["shape"]),
        (None, torch.zeros(3, 8, 5, 5), ours, ["shape"]),
    ]
    for format, weight, model, expected in cases:
        path = saved(tmp_path / "conv.safetensors", format=format, weight=weight, bias=bias)
        told = found(mg.compare_structure(path, model))
        assert [code for _, _, code in told] == expected, (format, weight.shape, type(model))
        assert len(found(mg.compare_structure(model, path))) == len(expected)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_inputs_and_outputs_are_not_exchanged_in_a_linear_layer(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"linear.{suffix}"
    weights = {"weight": torch.zeros(4, 8), "bias": torch.zeros(8)}
    torch.save(weights, path) if suffix == "pt" else saved(path, **weights)
    for model in (nn.Linear(4, 8), mnn.Linear(4, 8)):
        assert found(mg.compare_structure(path, model)) == [("", "", "shape")]


@pytest.mark.parametrize("groups", [1, 2])
def test_a_transposed_convolution_fits_its_own_checkpoint(tmp_path: Path, groups: int) -> None:
    layer = S(nn.ConvTranspose2d(8, 4, 3, groups=groups))
    torch.save(layer.state_dict(), tmp_path / "weights.pt")
    saved(tmp_path / "weights.safetensors", format="pt", **layer.state_dict())
    for name in ("weights.pt", "weights.safetensors"):
        assert found(mg.compare_structure(tmp_path / name, layer)) == []
        if groups == 1:
            assert found(mg.compare_structure(tmp_path / name, M(mnn.ConvTranspose2d(8, 4, 3)))) == []


def test_a_checkpoint_of_torch_says_nothing_of_training(tmp_path: Path) -> None:
    frozen = nn.Linear(4, 8).requires_grad_(False)
    torch.save(frozen.state_dict(), tmp_path / "weights.pt")
    assert mg.compare_structure(tmp_path / "weights.pt", frozen).same
    tied = nn.ModuleDict({"embed": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    tied["head"].weight = tied["embed"].weight
    torch.save(tied.state_dict(), tmp_path / "tied.pt")
    port = mnn.Module()
    port.embed = mnn.Embedding(10, 4)
    comparison = mg.compare_structure(tmp_path / "tied.pt", port)
    assert comparison.same
    assert comparison.a.matched == comparison.a.tensors == 2


def test_what_is_not_run_takes_no_inputs(tmp_path: Path) -> None:
    layer = nn.Linear(4, 8)
    folder = tmp_path / "model"
    folder.mkdir()
    saved(folder / "model.safetensors", **layer.state_dict())
    (folder / "config.json").write_text("{}")
    report = mg.inspect(layer)
    mg.save(report, tmp_path / "report.json")
    for target in (folder, folder / "model.safetensors", report, tmp_path / "report.json"):
        with pytest.raises(UsageError, match="cannot be called with inputs"):
            mg.compare_structure(target, layer, inputs=torch.zeros(1, 4))


def test_a_comparison_is_not_a_model(tmp_path: Path) -> None:
    mg.save(mg.compare_structure(nn.Linear(2, 2), nn.Linear(2, 2)), tmp_path / "compared.json")
    with pytest.raises(UnknownTargetError, match="holds a Comparison, not a model"):
        mg.compare_structure(tmp_path / "compared.json", nn.Linear(2, 2))


def test_a_failing_run_says_whose_it_is() -> None:
    a, b = nn.Linear(4, 4), mnn.Linear(4, 4)
    with pytest.raises(ForwardError, match="of the two, a failed") as failed:
        mg.compare_structure(a, b, inputs_a=torch.zeros(1, 3), inputs_b=mx.zeros((1, 4)))
    assert failed.value.report.run.failure.error == "RuntimeError"
    with pytest.raises(ForwardError, match=r"of the two, b failed(.|\n)*inputs_a and inputs_b"):
        mg.compare_structure(a, b, inputs=torch.zeros(1, 4))


def test_a_run_of_one_alone_is_noted() -> None:
    comparison = mg.compare_structure(nn.Linear(4, 4), mnn.Linear(4, 4), inputs_a=torch.zeros(1, 4))
    assert [note.code for note in comparison.notes] == ["one-run"]


def test_multiply_accumulates_are_those_of_the_forward_pass() -> None:
    layer = nn.Linear(4, 4)
    trained, run = (mg.inspect(layer, torch.zeros(1, 4), train=train) for train in (True, False))
    comparison = mg.compare_structure(trained, run)
    assert comparison.a.macs == comparison.b.macs == 16
    assert comparison.notes == ()


def test_multiply_accumulates_that_are_not_all_known_are_not_compared() -> None:
    call = build.call(outputs=(build.value("", 1),))
    known = build.model(calls=(call,), ops=(build.op(macs=8),))
    partly = build.model(calls=(call,), ops=(build.op(macs=3), build.op(macs=None)))
    comparison = compare(known, partly)
    assert (comparison.b.macs, comparison.b.macs_complete) == (3, False)
    assert "≥ 3" in mg.render(comparison, "text")
    assert comparison.notes == ()


def test_a_parameter_beside_others_is_named() -> None:
    class Net(nn.Module):
        def __init__(self, length: int) -> None:
            super().__init__()
            self.pos_embed = nn.Parameter(torch.zeros(1, length, 8))
            self.head = nn.Linear(8, 2)

    text = mg.render(mg.compare_structure(Net(17), Net(16)), "text")
    assert "pos_embed" in text


def test_a_parametrization_is_no_layer() -> None:
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 8))
    assert mg.compare_structure(normed, mnn.Linear(4, 8)).notes == ()


def test_whole_numbers_and_fractions_are_not_the_same() -> None:
    a = build.model(build.tensor("weight", dtype="int64"))
    comparison = compare(a, build.model(build.tensor("weight")))
    (deviation,) = comparison.differing[0].deviations
    assert (deviation.code, deviation.text) == ("dtype", "integers in one, floating point in the other")
