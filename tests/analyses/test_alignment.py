"""Parts find their counterparts: whatever their names and wrappers, and where some are missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import mlx.core as mx
import pytest
import torch
from hypothesis import given, settings, strategies as st
from mlx import nn as mnn
from safetensors.torch import save_file
from torch import nn

import modelglass as mg
from differences import found
from modelglass.report import Comparison

Tree: TypeAlias = "dict[str, Any]"


def made(parts: Tree) -> nn.Module:
    """A module with modules, or with trees of modules, by their names."""
    module = nn.Module()
    for name, part in parts.items():
        module.add_module(name, made(part) if isinstance(part, dict) else part)
    return module


def listed(*parts: Tree) -> Tree:
    return {str(place): part for place, part in enumerate(parts)}


def linear(inputs: int = 8, outputs: int = 8, bias: bool = True) -> nn.Module:
    return nn.Linear(inputs, outputs, bias=bias)


def norm() -> nn.Module:
    return nn.LayerNorm(8)


def compared(a: Tree, b: Tree) -> Comparison:
    return mg.compare_structure(made(a), made(b))


def bottleneck(inputs: int, width: int, names: str) -> Tree:
    """A block of three convolutions, whose names say which they are, or in lists."""
    convolutions = [nn.Conv2d(inputs, width, 1), nn.Conv2d(width, width, 3), nn.Conv2d(width, inputs, 1)]
    norms = [nn.BatchNorm2d(width), nn.BatchNorm2d(width), nn.BatchNorm2d(inputs)]
    if names == "lists":
        return {"c": listed(*convolutions), "n": listed(*norms)}  # type: ignore[arg-type]
    pairs = zip(convolutions, norms, strict=True)
    return {
        f"{what}{n}": each
        for n, two in enumerate(pairs)
        for what, each in zip(("conv", "bn"), two, strict=True)
    }


def stages(*depths: int, names: str = "numbers") -> list[Tree]:
    return [
        listed(*(bottleneck(8 * 2**at, 4 * 2**at, names) for _ in range(depth)))
        for at, depth in enumerate(depths)
    ]


def test_namesakes_out_of_opened_wrappers_are_matched_once() -> None:
    a = {"x": linear(3, 5), "W": {"x": linear(7, 11), "y": linear(2, 2), "z": linear(13, 17)}}
    b = {"y": linear(2, 2), "V": {"x": linear(19, 23), "q": linear(29, 31)}}
    assert not compared(a, b).same


LAYERS: tuple[Callable[[], nn.Module], ...] = (
    *(lambda i=i, o=o: nn.Linear(i, o) for i in (2, 3) for o in (2, 3, 4)),
    lambda: nn.Linear(2, 3, bias=False),
    lambda: nn.LayerNorm(3),
    lambda: nn.BatchNorm1d(3),
    lambda: nn.Conv2d(2, 3, 1),
    nn.ReLU,
)
TREES = st.recursive(
    st.sampled_from(LAYERS),
    lambda below: st.dictionaries(
        st.sampled_from(["a", "b", "c", "d", "0", "1", "2", "norm", "layers"]), below, min_size=1, max_size=5
    ),
    max_leaves=12,
)


def grown(tree: Any) -> nn.Module:
    return made({"root": grown_below(tree)})


def grown_below(tree: Any) -> Any:
    return {name: grown_below(part) for name, part in tree.items()} if isinstance(tree, dict) else tree()


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(TREES, TREES)
def test_any_two_trees_can_be_compared_and_nothing_is_matched_twice(one: Any, other: Any) -> None:
    a, b = grown(one), grown(other)
    comparison = mg.compare_structure(a, b)
    for side in ("a", "b"):
        names = Counter(
            name for pair in comparison.pairs for tensors in pair.tensors for name in getattr(tensors, side)
        )
        assert not [name for name, times in names.items() if times > 1]
        paths = Counter(getattr(pair, side) for pair in comparison.pairs if pair.tensors)
        assert not [path for path, times in paths.items() if times > 1]
        assert getattr(comparison, side).matched <= getattr(comparison, side).tensors


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(TREES)
def test_every_tree_is_the_same_as_itself(tree: Any) -> None:
    comparison = mg.compare_structure(grown(tree), grown(tree))
    assert comparison.same
    assert comparison.a.matched == comparison.a.tensors == comparison.b.matched


def test_two_square_matrices_are_no_stack_of_themselves() -> None:
    tree = {"0": {"a": linear(2, 2)}, "1": linear(2, 2)}
    assert compared({"root": tree}, {"root": tree}).same


def test_numbers_of_members_are_no_names() -> None:
    """A stem of three layers is not a list of three blocks."""

    def block(width: int) -> Tree:
        return {
            "expand": listed(nn.Conv2d(width, 16, 1), nn.BatchNorm2d(16)),  # type: ignore[arg-type]
            "project": listed(nn.Conv2d(16, width, 1), nn.BatchNorm2d(width)),  # type: ignore[arg-type]
        }

    stem = listed(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())  # type: ignore[arg-type]
    a = {"stem": stem, "blocks": listed(*(block(8) for _ in range(4)))}
    port = {
        "c0": nn.Conv2d(3, 8, 3),
        "n0": nn.BatchNorm2d(8),
        "stages": listed(*(block(8) for _ in range(3))),
    }
    assert found(compared(a, port)) == [("blocks.3", None, "missing-in-b")]


def test_a_block_that_is_missing_does_not_shift_vectors_elsewhere() -> None:
    names = [f"layer{n}" for n in range(4)]
    a = dict(zip(names, stages(3, 4, 6, 3), strict=True))
    b = {"stages": listed(*stages(3, 3, 6, 3, names="lists"))}
    assert found(compared(a, b)) == [("layer1.3", None, "missing-in-b")]


@pytest.mark.parametrize("depths", [(3, 4, 6, 3), (3, 4, 5, 3)], ids=["all", "one missing"])
def test_stages_may_be_one_list(depths: tuple[int, ...]) -> None:
    a = dict(zip([f"layer{n}" for n in range(4)], stages(3, 4, 6, 3), strict=True))
    blocks = [block for stage in stages(*depths, names="lists") for block in stage.values()]
    missing = [("layer2.5", None, "missing-in-b")] if depths[2] == 5 else []
    b = {"body": listed(*blocks)}
    assert found(compared(a, b)) == missing
    assert [(one, other) for other, one, _ in found(compared(b, a))] == [
        (one, other) for one, other, _ in missing
    ]


def inside() -> Tree:
    """A block whose norms are inside of what they follow."""
    attention = {"q": linear(), "k": linear(), "out": linear(), "norm": norm()}
    return {"attn": attention, "mlp": {"fc1": linear(8, 16), "fc2": linear(16, 8), "norm": norm()}}


def beside(*, norms: int = 2) -> Tree:
    """The same, with norms beside it."""
    block = {"attention": {"q": linear(), "k": linear(), "out": linear()}, "ln1": norm()}
    block |= {"lin1": linear(8, 16), "lin2": linear(16, 8)}
    return block | ({"ln2": norm()} if norms == 2 else {})


def test_a_norm_may_be_inside_of_what_it_follows_or_beside_it() -> None:
    assert compared(inside(), beside()).same
    several = {"layers": listed(*(inside() for _ in range(3)))}
    assert compared(several, {"blocks": listed(*(beside() for _ in range(3)))}).same
    fewer = {"blocks": listed(*(beside() for _ in range(2)))}
    assert found(compared(several, fewer)) == [("layers.2", None, "missing-in-b")]
    wrong = {"blocks": listed(beside(), beside(norms=1), beside())}
    assert found(compared(several, wrong)) == [("layers.1.mlp.norm", None, "missing-in-b")]


def test_a_missing_block_is_one_though_a_part_of_it_is_elsewhere() -> None:
    """As of T5, whose first block has the table of distances that a port keeps beside the blocks."""
    first = inside() | {"distances": nn.Embedding(8, 2)}
    a = {"block": listed(first, inside(), inside())}
    b = {"layers": listed(beside(), beside()), "distances": nn.Embedding(8, 2)}
    assert found(compared(a, b)) == [("block.0", None, "missing-in-b")]


def test_keys_and_values_of_other_widths_line_up() -> None:
    original = nn.MultiheadAttention(32, 4, kdim=16, vdim=24)
    widths = {"key_input_dims": 16, "value_input_dims": 24, "value_dims": 32, "value_output_dims": 32}
    assert mg.compare_structure(original, mnn.MultiHeadAttention(32, 4, **widths, bias=True)).same
    exchanged = widths | {"key_input_dims": 24, "value_input_dims": 16}
    comparison = mg.compare_structure(original, mnn.MultiHeadAttention(32, 4, **exchanged, bias=True))
    assert {"key_proj", "value_proj"} == {b for _, b, code in found(comparison) if code == "shape"}


def spectral() -> nn.Module:
    return torch.nn.utils.spectral_norm(nn.Linear(4, 8))


OWN: dict[str, Callable[[], nn.Module]] = {
    "transposed convolution": lambda: nn.Sequential(nn.ConvTranspose2d(8, 4, 3)),
    "in groups": lambda: nn.Sequential(nn.ConvTranspose1d(8, 4, 3, groups=2)),
    "spectral norm": lambda: nn.Sequential(spectral(), nn.Linear(8, 2)),
    "spectral norm of all": spectral,
    "parametrized": lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)),
    "recurrent": lambda: nn.LSTM(10, 20, 2, bidirectional=True),
    "other widths": lambda: nn.MultiheadAttention(32, 4, kdim=16, vdim=24),
    "many layers": lambda: nn.Sequential(*(nn.Linear(4, 4 + n % 3) for n in range(12))),
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_model_is_the_same_as_its_own_checkpoint(name: str, suffix: str, tmp_path: Path) -> None:
    model, path = OWN[name](), tmp_path / f"own{suffix}"
    weights = {key: value.contiguous() for key, value in model.state_dict().items()}
    torch.save(weights, path) if suffix == ".pt" else save_file(weights, path)
    assert found(mg.compare_structure(path, model)) == []
    assert found(mg.compare_structure(model, path)) == []


def test_spectral_norm_is_folded_into_a_plain_weight() -> None:
    assert mg.compare_structure(spectral(), mnn.Linear(4, 8)).same


def test_memory_that_only_one_shares_is_found_under_other_names() -> None:
    embedding, head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    head.weight = embedding.weight
    tied = made({"emb": embedding, "head": head})
    untied = made({"tok": nn.Embedding(5, 4), "out": linear(4, 5, bias=False)})
    assert found(mg.compare_structure(tied, untied)) == [("head", "out", "tied")]
    assert found(mg.compare_structure(untied, tied)) == [("out", "head", "tied")]


def test_of_equal_parts_the_order_tells_which_is_missing() -> None:
    attention = {"qkv": linear(8, 24), "proj": linear()}
    a = {"norm1": norm(), "attn": attention, "norm2": norm(), "fc1": linear(8, 16), "fc2": linear(16, 8)}
    b = {"mixer": attention, "ln": norm(), "up": linear(8, 16), "down": linear(16, 8)}
    assert found(compared(a, b)) == [("norm1", None, "missing-in-b")]


def test_of_equal_parts_the_order_tells_which_has_a_bias() -> None:
    def attention(bias: bool) -> Tree:
        return {"q": linear(), "k": linear(bias=bias)}

    a = {"self_attn": attention(False), "encoder_attn": attention(False)}
    b = {"attn": attention(True), "cross": attention(False)}
    assert found(compared(a, b)) == [("self_attn.k", "attn.k", "bias")]
    leaves = {name: linear(bias=name != "w") for name in "uvwx"}
    assert found(compared({name: linear() for name in "abcd"}, leaves)) == [("c", "w", "bias")]


def test_a_convolution_of_1x1_is_a_linear_layer() -> None:
    def block(stride: int = 1) -> nn.Module:
        return made(
            {
                "dw": nn.Conv2d(8, 8, 7, groups=8),
                "pw1": nn.Conv2d(8, 32, 1, stride),
                "pw2": nn.Conv2d(32, 8, 1),
            }
        )

    port = mnn.Module()
    port.dw, port.up, port.down = mnn.Conv2d(8, 8, 7, groups=8), mnn.Linear(8, 32), mnn.Linear(32, 8)
    comparison = mg.compare_structure(block(), port)
    assert comparison.same
    assert [pair.b for pair in comparison.pairs] == ["dw", "up", "down"]
    assert found(mg.compare_structure(block(stride=2), port)) == [("pw1", "up", "kind")]


def test_matrices_of_low_rank_are_turned_in_mlx_lm() -> None:
    parts = {"base_layer": linear(8, 6), "lora_A": {"default": linear(8, 2, bias=False)}}
    original = made({"q_proj": parts | {"lora_B": {"default": linear(2, 6, bias=False)}}})

    def port(rank: int) -> mnn.Module:
        layer = mnn.Module()
        layer.linear, layer.lora_a, layer.lora_b = mnn.Linear(8, 6), mx.zeros((8, rank)), mx.zeros((rank, 6))
        whole = mnn.Module()
        whole.q_proj = layer
        return whole

    assert mg.compare_structure(original, port(2)).same
    assert [code for _, _, code in found(mg.compare_structure(original, port(4)))] == ["shape", "shape"]


class Experts(mnn.Module):
    """A router and experts, stacked."""

    def __init__(self, count: int = 4, width: int = 16, joined: bool = False) -> None:
        super().__init__()
        self.router = mnn.Linear(8, 4, bias=False)
        if joined:
            self.wi, self.wo = mx.zeros((count, 2 * width, 8)), mx.zeros((count, 8, width))
        else:
            self.mlp = mnn.Module()
            self.mlp.gate, self.mlp.up = mx.zeros((count, width, 8)), mx.zeros((count, width, 8))
            self.mlp.down = mx.zeros((count, 8, width))


def experts() -> nn.Module:
    def expert() -> Tree:
        return {"w1": linear(8, 16, False), "w2": linear(16, 8, False), "w3": linear(8, 16, False)}

    return made({"gate": linear(8, 4, False), "experts": listed(*(expert() for _ in range(4)))})


def test_experts_may_be_stacked_in_tensors_of_any_name() -> None:
    assert mg.compare_structure(experts(), Experts()).same
    assert mg.compare_structure(experts(), Experts(joined=True)).same
    assert mg.compare_structure(Experts(joined=True), experts()).same


@pytest.mark.parametrize("wrong", [{"count": 3}, {"width": 12}], ids=["number", "width"])
def test_stacked_experts_of_another_size_differ_in_shape(wrong: dict[str, Any]) -> None:
    differences = found(mg.compare_structure(experts(), Experts(**wrong)))
    assert sorted(differences) == [
        ("experts.*.w1", "mlp", "shape"),
        ("experts.*.w2", "mlp", "shape"),
        ("experts.*.w3", "mlp", "shape"),
    ]
