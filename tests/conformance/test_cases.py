"""Models whose right answer is known by hand, most of which tools in use get wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from peers.builders import (
    Given,
    TwoOutputs,
    attention,
    encoder_layer,
    group_product,
    r,
    self_attention,
    two_layers,
    with_lora,
)
from peers.known import CASES, Case
from torch import nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.utils.rnn import pack_padded_sequence

import modelglass as mg
from models import (
    SMALL,
    Apply,
    Converting,
    ids,
    llama,
    mixtral,
    old_weight_norm,
    pruned,
    quantized,
    transformers_model,
)


def complex_pair() -> tuple[torch.Tensor, ...]:
    return torch.randn(4, 16, dtype=torch.complex64), torch.randn(16, 32, dtype=torch.complex64)


def padded_encoder() -> nn.Module:
    """With a padding mask, the fused path packs sequences of 10 and 7 into a nested tensor."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 2).eval()


def padded_batch() -> mg.Inputs:
    mask = torch.zeros(2, 10, dtype=torch.bool)
    mask[1, 7:] = True
    return mg.Inputs((r(2, 10, 64),), {"src_key_padding_mask": mask})


def in_bfloat16(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return self.fc(x)


def static_quantized() -> nn.Module:
    from torch.ao import quantization

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
        model = quantization.QuantWrapper(layers).eval()
        model.qconfig = quantization.get_default_qconfig("fbgemm")
        quantization.prepare(model, inplace=True)
        model(r(2, 3, 8, 8))
        return quantization.convert(model)


def force(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(self.fc(x).sum(), x)[0]


def careful(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
    try:
        x.sum().item()
    except Exception:  # noqa: BLE001
        return x
    return self.fc(x)


def quantized_bag() -> nn.Module:
    model = nn.Sequential(nn.EmbeddingBag(100, 8, mode="sum"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = torch.ao.quantization.float_qparams_weight_only_qconfig
        return torch.ao.quantization.quantize_dynamic(model, {nn.EmbeddingBag: settings})


def function(body: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: Apply(lambda self, *args: body(*args))


def as_inputs(given: Given) -> mg.Inputs:
    return mg.Inputs(given.args, given.kwargs)


def known(case: Case) -> tuple[Callable[[], nn.Module], Callable[[], Any], int]:
    """A case that other tools are asked, too."""
    assert case.build is not None
    return case.build, lambda: as_inputs(case.inputs()), case.asked["macs"]


# id: (model, inputs, multiply-accumulates)
MACS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int]] = {
    **{case.id: known(case) for case in CASES.values() if "macs" in case.asked},
    "attention with weights": (lambda: attention().eval(), lambda: as_inputs(self_attention()), 353_280),
    "encoder layer, training": (encoder_layer, lambda: r(2, 10, 64), 680_960),
    "encoder on padded sequences": (padded_encoder, padded_batch, 1_165_312),
    "attention with other keys": (
        lambda: nn.MultiheadAttention(64, 4, kdim=48, vdim=32, batch_first=True),
        lambda: (r(2, 10, 64), r(2, 7, 48), r(2, 7, 32)),
        2 * (2 * 10 * 64 * 64 + 7 * 48 * 64 + 7 * 32 * 64) + 2 * 2 * 10 * 7 * 64,
    ),
    "flex attention": (
        function(lambda q: flex_attention(q, q, q)),
        lambda: r(1, 2, 128, 16),
        2 * 128 * 128 * 32,
    ),
    "vmap of a layer": (
        lambda: Apply(lambda self, x: torch.vmap(self.fc)(x), fc=nn.Linear(8, 4)),
        lambda: r(5, 3, 8),
        480,
    ),
    "gradient inside forward": (lambda: Apply(force, fc=nn.Linear(8, 4)), lambda: r(3, 8), 192),
    "values asked for and not missed": (lambda: Apply(careful, fc=nn.Linear(2, 2)), lambda: r(1, 2), 4),
    "nested through a linear": (
        lambda: nn.Linear(4, 4),
        lambda: torch.nested.nested_tensor([r(2, 4), r(3, 4)]),
        80,
    ),
    "vecdot, broadcast": (function(torch.linalg.vecdot), lambda: (r(5), r(10, 5)), 50),
    "distances, broadcast": (
        function(lambda a, b: torch.cdist(a, b, p=1)),
        lambda: (r(1, 10, 5), r(3, 7, 5)),
        1_050,
    ),
    "blocks of a sparse matrix": (
        function(torch.matmul),
        lambda: (torch.eye(4).to_sparse_bsr((2, 2)), r(4, 5)),
        40,
    ),
    "in-place product": (
        function(lambda a, b, c: a.clone().addmm_(b, c)),
        lambda: (r(2, 5), r(2, 3), r(3, 5)),
        30,
    ),
    "quantized embedding bag": (quantized_bag, lambda: torch.zeros(2, 3, dtype=torch.long), 0),
    "quantized gru cell": (
        lambda: quantized(nn.Sequential(nn.GRUCell(10, 20)), nn.GRUCell),
        lambda: r(2, 10),
        3_600,
    ),
    "vmap": (function(torch.vmap(torch.matmul)), lambda: (r(5, 4, 8), r(5, 8, 3)), 5 * 4 * 8 * 3),
    "autocast": (lambda: Apply(in_bfloat16, fc=nn.Linear(8, 8)), lambda: r(4, 8), 256),
    "multi dot": (
        function(lambda *m: torch.linalg.multi_dot(m)),
        lambda: (r(4, 8), r(8, 3), r(3, 5)),
        4 * 8 * 3 + 4 * 3 * 5,
    ),
    "tensordot": (function(lambda a, b: torch.tensordot(a, b, 1)), lambda: (r(4, 5), r(5, 6)), 120),
    "inner": (function(torch.inner), lambda: (r(4, 5), r(6, 5)), 120),
    "vecdot": (function(torch.linalg.vecdot), lambda: (r(4, 5), r(4, 5)), 20),
    "statically quantized": (static_quantized, lambda: r(2, 3, 8, 8), 2 * 8 * 36 * 27 + 2 * 4 * 16 * 72),
    "transposed, grouped": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), lambda: r(1, 4, 9), 4 * 9 * 3 * 3),
    "depthwise convolution": (lambda: nn.Conv1d(8, 8, 5, groups=8), lambda: r(2, 8, 20), 2 * 8 * 16 * 5),
    "convolution 3d, strided": (
        lambda: nn.Conv3d(2, 4, 3, stride=2),
        lambda: r(1, 2, 7, 7, 7),
        4 * 27 * 2 * 27,
    ),
    "weight norm by hook": (
        lambda: old_weight_norm(nn.Conv2d(8, 16, 3, padding=1)),
        lambda: r(2, 8, 10, 10),
        230_400,
    ),
    "lstm with projection": (
        lambda: nn.LSTM(10, 20, proj_size=7),
        lambda: r(5, 2, 10),
        10 * (80 * 17 + 20 * 7),
    ),
    "gru": (lambda: nn.GRU(10, 20, batch_first=True), lambda: r(2, 5, 10), 18_000),
    "gru on a packed sequence": (
        lambda: nn.GRU(10, 20),
        lambda: pack_padded_sequence(r(7, 3, 10), torch.tensor([7, 3, 1])),
        11 * 60 * 30,
    ),
    "rnn": (lambda: nn.RNN(10, 20), lambda: r(5, 2, 10), 6_000),
    "gru cell": (lambda: nn.GRUCell(10, 20), lambda: r(2, 10), 2 * 60 * 30),
    "scaled dot product, shared keys": (
        function(lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True)),
        lambda: (r(1, 8, 10, 16), r(1, 2, 12, 16)),
        8 * 10 * 12 * 32,
    ),
    "vector times vector": (function(torch.dot), lambda: (r(16), r(16)), 16),
    "baddbmm": (function(torch.baddbmm), lambda: (r(3, 4, 6), r(3, 4, 5), r(3, 5, 6)), 3 * 4 * 5 * 6),
    "addbmm": (function(torch.addbmm), lambda: (r(4, 6), r(3, 4, 5), r(3, 5, 6)), 3 * 4 * 5 * 6),
    "addmv": (function(torch.addmv), lambda: (r(4), r(4, 5), r(5)), 20),
    "grouped product in float32": (
        function(lambda x, w, o: torch._grouped_mm(x, w, offs=o)),
        lambda: tuple(t.float() if t.is_floating_point() else t for t in group_product().args),
        3_072,
    ),
    "quantized lstm": (
        lambda: quantized(nn.Sequential(nn.LSTM(10, 20, batch_first=True)), nn.LSTM),
        lambda: r(2, 5, 10),
        24_000,
    ),
    "complex product": (function(torch.matmul), complex_pair, 4 * 2_048),
    "bilinear": (lambda: nn.Bilinear(3, 4, 7), lambda: (r(5, 3), r(5, 4)), 5 * 7 * 4 * (3 + 1)),
    "distances": (function(torch.cdist), lambda: (r(2, 5, 3), r(2, 7, 3)), 2 * 5 * 7 * 3),
    "sparse times dense": (function(torch.sparse.mm), lambda: (torch.eye(3).to_sparse(), r(3, 5)), 15),
    "mixtral, expert by expert": (lambda: mixtral(experts_implementation="eager"), ids, 3_063_808),
}


@pytest.mark.parametrize("case", MACS)
@pytest.mark.filterwarnings("ignore")  # torch's own: nested tensors, uncompiled flex attention
def test_multiply_accumulates_are_exact(case: str) -> None:
    build, inputs, expected = MACS[case]
    report = mg.inspect(build(), inputs=inputs())
    assert report.run.failure is None
    assert report.cost.unknown_ops == {}
    assert report.cost.macs == expected
    assert report.cost.flops == 2 * expected
    assert report.cost.coverage == 1.0


PARAMS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "quantized embedding bag": (quantized_bag, 800),
    "quantized gru cell": (lambda: quantized(nn.Sequential(nn.GRUCell(10, 20)), nn.GRUCell), 1_920),
}


@pytest.mark.parametrize("case", PARAMS)
def test_parameters_are_exact(case: str) -> None:
    build, expected = PARAMS[case]
    assert mg.inspect(build()).counts.params == expected


def test_experts_that_a_token_does_not_visit_are_not_active() -> None:
    assert mg.inspect(mixtral()).counts.active_params == 251_712
    assert mg.inspect(llama()).counts.active_params == 138_048


def test_active_parameters_follow_other_names_for_the_same_thing() -> None:
    qwen = transformers_model(
        "Qwen3Moe", **SMALL, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, head_dim=16
    )
    experts = 2 * 8 * 3 * 64 * 32
    counts = mg.inspect(qwen).counts
    assert counts.active_params == counts.params - experts * 6 // 8


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_that_its_model_converts_runs_on_fake_tensors(dtype: torch.dtype, device: str) -> None:
    with torch.device(device):
        model = Converting(dtype)
    report = mg.inspect(model, inputs=torch.zeros(8, 16))
    assert (report.run.mode, report.run.failure, report.cost.macs) == ("fake", None, 8 * 16 * 4)
    assert report.run.outputs[0].dtype == str(dtype).removeprefix("torch.")
    assert model.gate.weight.dtype == torch.float32


def test_pruned_weights_are_executed_but_not_effective() -> None:
    cost = mg.inspect(pruned(), inputs=r(8, 16)).cost
    assert (cost.macs, cost.effective_macs) == (4_096, 2_048)


def test_a_pruned_bias_saves_no_product() -> None:
    layer = pruned()
    torch.nn.utils.prune.l1_unstructured(layer, "bias", 0.5)
    assert mg.inspect(layer, inputs=r(8, 16)).cost.effective_macs == 2_048


@pytest.mark.parametrize(("reentrant", "backward", "again"), [(False, 768, 256), (True, 1024, 512)])
def test_a_checkpointed_function_is_recomputed_not_backward(
    reentrant: bool, backward: int, again: int
) -> None:
    def run(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        body = lambda t: torch.relu(t @ self.w) @ self.w
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=reentrant)

    model = Apply(run, w=nn.Parameter(r(8, 8)))
    x = r(4, 8).requires_grad_(reentrant)
    cost = mg.inspect(model, inputs=x, train=True).cost
    assert (cost.backward_macs, cost.recompute_macs) == (backward, again)


def test_an_input_that_wants_its_gradient_gets_it() -> None:
    x = r(4, 8).requires_grad_() * 1  # not a leaf
    assert mg.inspect(nn.Linear(8, 2), inputs=x, train=True).cost.macs == 3 * 64


def test_a_loss_in_a_plain_dict_is_the_loss() -> None:
    body = lambda self, x: {"loss": self.a(x).sum(), "aux": self.b(x)}
    model = Apply(body, a=nn.Linear(8, 4), b=nn.Linear(8, 4))
    cost = mg.inspect(model, inputs=r(2, 8), train=True).cost
    assert (cost.forward_macs, cost.backward_macs) == (128, 64)


def test_lora_trains_little_of_the_whole() -> None:
    counts = mg.inspect(with_lora()).counts
    assert (counts.trainable, counts.frozen) == (2_048, 172_288)


@pytest.mark.parametrize(("frozen", "flops"), [((), 20_480), ((0,), 12_288), ((1,), 16_384), ((0, 1), 8_192)])
def test_backward_costs_what_really_ran(frozen: tuple[int, ...], flops: int) -> None:
    report = mg.inspect(two_layers(*frozen), inputs=r(8, 16), train=True)
    assert report.cost.flops == flops
    assert ("nothing-trains" in {note.code for note in report.notes}) == (frozen == (0, 1))


def test_every_part_of_an_output_is_seen() -> None:
    outputs = mg.inspect(TwoOutputs(), inputs=r(2, 8)).run.outputs
    assert [(value.name, value.shape) for value in outputs] == [("logits", (2, 8)), ("aux", ())]
