"""Models whose MACs are known by hand, from single layers to whole ones."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence

from models import CellLoop, Tied, gpt2, llama, mixtral, pruned, quantized, scripted
from peers import builders as made
from peers.builders import Given, given, r
from peers.case import macs_case, sixteen_tokens

BIAS = "with the additions of the bias"
NORMS_AND_POOLING = "with five for each value that is normalised, and one for each that is pooled"
BIAS_AND_NORMS = "with the additions of the bias, and one for each parameter of a norm"


def _tokens() -> Given:
    return given(torch.zeros(2, 10, dtype=torch.long))


def _packed() -> Given:
    return given(pack_padded_sequence(r(7, 3, 10), torch.tensor([7, 3, 1])))


def _einsum_macs() -> tuple[int, str]:
    """With opt_einsum installed, torch contracts the cheaper pair first."""
    if find_spec("opt_einsum") is not None:
        return 12_800, "4 * 16 * 32 * 5 + 4 * 8 * 16 * 5"
    return 21_504, "4 * 8 * 16 * 32 + 4 * 8 * 32 * 5"


LAYERS = (
    macs_case(
        "A1",
        "`nn.Linear(3, 8)` on 5x10x3",
        lambda: nn.Linear(3, 8),
        lambda: given(r(5, 10, 3)),
        1_200,
        "5 * 10 * 3 * 8",
        otherwise={1_600: BIAS},
    ),
    macs_case(
        "A3",
        "`nn.MultiheadAttention(64, 4)` on 2x10x64, training",
        made.attention,
        lambda: made.self_attention(need_weights=False),
        353_280,
        "20 * 64 * 256 + 2 * 2 * 10 * 10 * 64",
    ),
    macs_case(
        "A4",
        "the same in eval mode and frozen, where torch runs one fused kernel",
        lambda: made.fused(made.attention()),
        lambda: made.self_attention(need_weights=False),
        353_280,
        "20 * 64 * 256 + 2 * 2 * 10 * 10 * 64",
    ),
    macs_case(
        "A6",
        "`nn.TransformerEncoderLayer(64, 4, 128)` on 2x10x64, eval mode and frozen, fused",
        lambda: made.fused(made.encoder_layer()),
        lambda: given(r(2, 10, 64)),
        680_960,
        "353_280 + 2 * 20 * 64 * 128",
    ),
    macs_case(
        "A8",
        "`nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1)` on 2x4x8x8",
        lambda: nn.ConvTranspose2d(4, 6, 4, stride=2, padding=1),
        lambda: given(r(2, 4, 8, 8)),
        49_152,
        "2 * 8 * 8 * 4 * 6 * 16",
        otherwise={49_152 + 2 * 6 * 16 * 16: BIAS},
    ),
    macs_case(
        "A10",
        '`nn.Conv2d(3, 8, 3, padding="same")` on 1x3x16x16',
        lambda: nn.Conv2d(3, 8, 3, padding="same"),
        lambda: given(r(1, 3, 16, 16)),
        55_296,
        "16 * 16 * 8 * 27",
        otherwise={55_296 + 8 * 16 * 16: BIAS},
    ),
    macs_case("A12", "`nn.Embedding(1000, 64)` on 2x10 ids", lambda: nn.Embedding(1000, 64), _tokens, 0),
    macs_case(
        "A14",
        "weight-normed `nn.Conv2d(8, 16, 3, padding=1)` on 2x8x10x10",
        lambda: parametrizations.weight_norm(nn.Conv2d(8, 16, 3, padding=1)),
        lambda: given(r(2, 8, 10, 10)),
        230_400,
        "2 * 100 * 16 * 72",
        otherwise={230_400 + 2 * 16 * 100: BIAS},
    ),
    macs_case(
        "A16",
        "`nn.Linear(16, 32)`, half of it pruned, on 8x16",
        pruned,
        lambda: given(r(8, 16)),
        4_096,
        "8 * 16 * 32",
        otherwise={4_096 + 8 * 32: BIAS},
        params=544,
        effective_macs=2_048,
    ),
)
RECURRENT = (
    macs_case(
        "B1",
        "`nn.LSTM(10, 20)` on 2 sequences of 5",
        lambda: nn.LSTM(10, 20, batch_first=True),
        lambda: given(r(2, 5, 10)),
        24_000,
        "10 * 80 * 30",
        otherwise={25_600: BIAS},
    ),
    macs_case(
        "B3",
        "`nn.LSTMCell(10, 20)` in a loop of 5 steps, batch 2",
        CellLoop,
        lambda: given(r(5, 2, 10)),
        24_000,
        "10 * 80 * 30",
        otherwise={25_600: BIAS},
    ),
    macs_case(
        "B5",
        "`nn.LSTM(10, 20, 2, bidirectional=True)` on 2 sequences of 5",
        lambda: nn.LSTM(10, 20, 2, bidirectional=True, batch_first=True),
        lambda: given(r(2, 5, 10)),
        144_000,
        "2 * 10 * 80 * 30 + 2 * 10 * 80 * 60",
        otherwise={150_400: BIAS},
    ),
    macs_case(
        "B7",
        "`nn.LSTM(10, 20)` on a packed sequence of lengths 7, 3, 1",
        lambda: nn.LSTM(10, 20),
        _packed,
        26_400,
        "11 * 80 * 30",
        otherwise={28_160: BIAS},
    ),
)
FUNCTIONS = (
    macs_case(
        "C1",
        "`F.scaled_dot_product_attention(q, q, q)`, q 1x12x64x64",
        made.ScaledDotProduct,
        lambda: given(r(1, 12, 64, 64)),
        6_291_456,
        "2 * 12 * 64 * 64 * 64",
    ),
    macs_case(
        "C3",
        '`torch.einsum("bij,bjk,kl->bil", …)` of 4x8x16, 4x16x32, 32x5',
        made.EinsumOfThree,
        lambda: given(r(4, 8, 16), r(4, 16, 32), r(32, 5)),
        *_einsum_macs(),
    ),
    macs_case(
        "C5",
        "`torch.matmul` of 8x16 with a vector of 16",
        made.Product,
        lambda: given(r(8, 16), r(16)),
        128,
        "8 * 16",
    ),
    macs_case(
        "C6",
        "a module with a weight of its own beside a child: `act(x @ weight.t())`",
        made.WeightAndChild,
        lambda: given(r(8, 16)),
        4_096,
        "8 * 16 * 32",
    ),
    macs_case(
        "C7",
        "`F.linear` in a class named `ConvHeadLinear`, on 2x7x16",
        made.ConvHeadLinear,
        lambda: given(r(2, 7, 16)),
        7_168,
        "14 * 16 * 32",
    ),
    macs_case(
        "C9",
        "two `nn.Linear(16, 32)`, the result of one not used",
        made.UnusedResult,
        lambda: given(r(4, 16)),
        4_096,
        "2 * 4 * 16 * 32",
        otherwise={4_096 + 2 * 4 * 32: BIAS},
    ),
    macs_case(
        "C13",
        "`torch._grouped_mm` of 6x16 with 2x16x32 in bfloat16",
        made.GroupedProduct,
        made.group_product,
        3_072,
        "6 * 16 * 32",
    ),
    macs_case(
        "C14",
        "dynamically quantized `nn.Linear(16, 32)` on 4x16",
        lambda: quantized(nn.Sequential(nn.Linear(16, 32)), nn.Linear),
        lambda: given(r(4, 16)),
        2_048,
        "4 * 16 * 32",
        otherwise={2_048 + 4 * 32: BIAS},
        params=544,
    ),
    macs_case(
        "C16",
        "TorchScript of `Sequential(Linear(16, 32), ReLU())` on 4x16",
        lambda: scripted(nn.Sequential(nn.Linear(16, 32), nn.ReLU())),
        lambda: given(r(4, 16)),
        2_048,
        "4 * 16 * 32",
        otherwise={2_048 + 4 * 32: BIAS},
        params=544,
    ),
)
MODELS = (
    macs_case(
        "D1",
        "GPT-2 of 2 layers, width 64, 4 heads, 1000 words; 16 tokens",
        gpt2,
        sixteen_tokens,
        2_662_400,
        "2 * (16 * 12 * 64 * 64 + 2 * 16 * 16 * 64) + 16 * 64 * 1000",
        params=172_288,
        nbytes=4 * 172_288,
    ),
    macs_case(
        "D2",
        "Llama of 2 layers, width 64, 4 heads on 2 of keys, tied; 16 tokens",
        llama,
        sixteen_tokens,
        2_269_184,
        "2 * (16 * (12_288 + 3 * 64 * 128) + 2 * 16 * 16 * 64) + 16 * 64 * 1000",
        params=138_048,
        nbytes=4 * (138_048 + 2 * 8),
    ),
    macs_case(
        "D3",
        "Mixtral of the same sizes, 2 of 4 experts for each token; 16 tokens",
        mixtral,
        sixteen_tokens,
        3_063_808,
        "2 * (16 * (12_288 + 64 * 4 + 2 * 3 * 64 * 128) + 2 * 16 * 16 * 64) + 16 * 64 * 1000",
        params=350_016,
        nbytes=4 * (350_016 + 2 * 8),
        active=251_712,
    ),
    macs_case(
        "D6",
        "D1 with LoRA of rank 4 on `c_attn`",
        made.with_lora,
        sixteen_tokens,
        2_695_168,
        "2_662_400 + 2 * 16 * (64 * 4 + 4 * 192)",
        params=174_336,
        trainable=2_048,
        nbytes=4 * 174_336,
    ),
    macs_case(
        "D10",
        "ResNet-18 on 1x3x224x224",
        made.resnet18,
        lambda: given(r(1, 3, 224, 224)),
        1_814_073_344,
        params=11_689_512,
        otherwise={
            1_814_073_344 + 1_000: BIAS,
            1_814_073_344 + 1_000 + 9_600: BIAS_AND_NORMS,
            1_814_073_344 + 5 * 2_483_712 + 25_088: NORMS_AND_POOLING,
        },
        nbytes=4 * (11_689_512 + 9_600) + 20 * 8,
    ),
    macs_case(
        "D12",
        "`Embedding(1000, 64)` tied to a linear head; 2x10 ids",
        Tied,
        _tokens,
        1_280_000,
        "20 * 64 * 1000",
        params=64_000,
        nbytes=4 * 64_000,
    ),
)
