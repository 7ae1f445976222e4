"""A formula that is shown gives torch's own sizes at every residue, or is not shown.

Each is compared with real runs with sizes that were not used to find it, every residue of small divisors
among them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import modelglass as mg
from models import Apply

RESIDUES = 18  # consecutive sizes, each changed alone
TOGETHER = 12  # runs with all sizes changed
LARGEST = 500_000  # elements of an input


def doing(function: Callable[[Any], Any]) -> nn.Module:
    return Apply(lambda self, x: function(x))


def conv2d(*settings: int, **more: int) -> nn.Module:
    return nn.Conv2d(3, 3, *settings, **more)


def conv1d(*settings: tuple[int, int]) -> nn.Module:
    return nn.Sequential(*[nn.Conv1d(2, 2, kernel, stride) for kernel, stride in settings])


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            [conv2d(3, 2), nn.MaxPool2d(3, 2), nn.Sequential(conv2d(1), conv2d(3, 2))]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class CeilingUNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2, 2, ceil_mode=True)
        self.last = nn.Conv2d(6, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = functional.interpolate(self.pool(self.pool(x)), scale_factor=4)
        return self.last(torch.cat([x, up[..., : x.shape[2], : x.shape[3]]], 1))


class Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 4, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)


def windows(x: torch.Tensor) -> torch.Tensor:
    x = functional.pad(x, (0, -x.shape[3] % 7, 0, -x.shape[2] % 7))
    batch, channels, height, width = x.shape
    return (
        x.view(batch, channels, height // 7, 7, width // 7, 7)
        .permute(0, 2, 4, 3, 5, 1)
        .reshape(-1, 49, channels)
    )


def merged(x: torch.Tensor) -> torch.Tensor:
    x = functional.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
    return torch.cat([x[:, row::2, column::2] for row in (0, 1) for column in (0, 1)], -1).flatten(1, 2)


def padded(length: Callable[[int], int]) -> nn.Module:
    return doing(lambda x: functional.pad(x, (0, length(x.shape[1]) - x.shape[1])))


def cut(length: Callable[[int], int]) -> nn.Module:
    return doing(lambda x: x[:, : length(x.shape[1])])


AUDIO = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
Shape = tuple[int, ...]
EXACT: dict[str, tuple[nn.Module, Shape, tuple[str, ...]]] = {
    "two strides": (
        nn.Sequential(conv2d(3, 2, 1), nn.MaxPool2d(2)),
        (2, 3, 64, 64),
        ("⌊(H+1)/4⌋", "⌊(W+1)/4⌋"),
    ),
    "a kernel that is not a multiple": (conv2d(11, 4, 2), (1, 3, 224, 224), ("⌊(H-3)/4⌋", "⌊(W-3)/4⌋")),
    "a step over a product": (doing(lambda x: x.flatten(2)[..., ::2]), (2, 3, 8, 8), ("⌈H·W/2⌉",)),
    "every second of a batch": (doing(lambda x: x[::2]), (4, 8), ("⌈B/2⌉", "L")),
    "alexnet": (
        nn.Sequential(conv2d(11, 4, 2), *[nn.MaxPool2d(3, 2) for _ in range(3)]),
        (1, 3, 224, 224),
        ("⌊(H-31)/32⌋", "⌊(W-31)/32⌋"),
    ),
    "resampled after a stride": (
        nn.Sequential(nn.Conv1d(2, 2, 5, 4), doing(lambda x: functional.interpolate(x, scale_factor=0.75))),
        (1, 2, 64),
        ("⌊3·⌊(L-1)/4⌋/4⌋",),
    ),
    "repeated after a stride": (
        nn.Sequential(nn.Conv1d(2, 2, 3, 3), doing(lambda x: x.repeat_interleave(2, -1)), nn.MaxPool1d(3)),
        (1, 2, 64),
        ("⌊2·⌊L/3⌋/3⌋",),
    ),
    "windows of three, then every second": (
        doing(lambda x: functional.max_pool1d(x.unfold(-1, 3, 2).flatten(-2), 4, 2, dilation=2)),
        (1, 2, 50),
        ("⌊(3·⌊(L2-1)/2⌋-5)/2⌋",),
    ),
    "vgg": (
        nn.Sequential(*[layer for _ in range(4) for layer in (conv2d(3, 1, 1), nn.MaxPool2d(2))]),
        (1, 3, 96, 64),
        ("⌊H/16⌋", "⌊W/16⌋"),
    ),
    "resnet": (
        nn.Sequential(conv2d(7, 2, 3), nn.MaxPool2d(3, 2, 1), *[conv2d(3, 2, 1) for _ in range(3)]),
        (1, 3, 128, 96),
        ("⌈H/32⌉", "⌈W/32⌉"),
    ),
    "few pixels": (nn.Sequential(*[conv2d(3, 2, 1) for _ in range(5)]), (1, 3, 32, 32), ("⌈H/32⌉", "⌈W/32⌉")),
    "strides of three": (
        nn.Sequential(conv2d(5, 3), conv2d(5, 3)),
        (1, 3, 70, 61),
        ("⌊(H-8)/9⌋", "⌊(W-8)/9⌋"),
    ),
    "dilation": (conv2d(3, 2, 1, dilation=3), (1, 3, 33, 40), ("⌊(H-3)/2⌋", "⌊(W-3)/2⌋")),
    "branches": (Branches(), (1, 3, 33, 35), ("⌊(H-1)/2⌋", "⌊(W-1)/2⌋")),
    "u-net that rounds up": (CeilingUNet(), (1, 3, 32, 32), ("H", "W")),
    "autoencoder": (
        nn.Sequential(conv2d(3, 2, 1), conv2d(3, 2, 1), *[nn.ConvTranspose2d(3, 3, 2, 2) for _ in range(2)]),
        (1, 3, 32, 32),
        ("4·⌈H/4⌉", "4·⌈W/4⌉"),
    ),
    "transposed, then strided": (
        nn.Sequential(nn.ConvTranspose2d(3, 3, 3, 2, 1), conv2d(3, 4)),
        (1, 3, 17, 19),
        ("⌊H/2⌋", "⌊W/2⌋"),
    ),
    "windows": (doing(windows), (2, 3, 28, 28), ("B·⌈H/7⌉·⌈W/7⌉", "49", "C")),
    "patches": (Patches(), (2, 3, 64, 64), ("⌊H/16⌋·⌊W/16⌋+1", "4")),
    "merged patches": (doing(merged), (2, 9, 11, 3), ("4·W",)),
    "half as large again": (nn.Upsample(scale_factor=1.5), (1, 3, 16, 16), ("⌊3·H/2⌋", "⌊3·W/2⌋")),
    "a scale of 0.3": (
        doing(lambda x: functional.interpolate(x, scale_factor=0.3)),
        (1, 3, 40, 40),
        ("⌊3·H/10⌋", "⌊3·W/10⌋"),
    ),
    "unfold": (nn.Unfold(4, padding=1, stride=3), (2, 3, 17, 20), ("⌊(H+1)/3⌋·⌊(W+1)/3⌋",)),
    "unfolded steps": (doing(lambda x: x.unfold(-1, 5, 3)), (2, 3, 40), ("⌊(L2-2)/3⌋", "5")),
    "shuffled pixels": (nn.PixelShuffle(2), (1, 8, 9, 9), ("2·H", "2·W")),
    "unshuffled pixels": (
        nn.Sequential(nn.PixelUnshuffle(4), nn.Conv2d(48, 3, 3, 2, 1)),
        (1, 3, 32, 32),
        ("⌈H/8⌉", "⌈W/8⌉"),
    ),
    "ceil mode": (nn.AvgPool2d(2, 3, padding=1, ceil_mode=True), (1, 3, 16, 16), ("⌊H/3⌋+1", "⌊W/3⌋+1")),
    "audio": (conv1d(*AUDIO), (1, 2, 16_000), ("⌊(L-80)/320⌋",)),
    "short audio": (conv1d(*AUDIO), (2, 2, 1000), ("⌊(L-80)/320⌋",)),
    "frames": (doing(lambda x: x.unfold(-1, 400, 160)), (1, 16_000), ("⌊(L-240)/160⌋", "400")),
    "spectrogram": (
        doing(lambda x: torch.stft(x, 64, 16, window=torch.hann_window(64), return_complex=True)),
        (2, 512),
        ("33", "⌊L/16⌋+1"),
    ),
    "every third": (doing(lambda x: x[:, ::3]), (2, 16), ("⌈L/3⌉",)),
    "first half": (doing(lambda x: x.chunk(2, 1)[1]), (2, 16), ("⌊L/2⌋",)),
    "repeated": (doing(lambda x: x.repeat_interleave(3, 1)), (2, 16), ("3·L",)),
    "all rows": (doing(lambda x: x.flatten(0, 1)), (2, 16, 4), ("B·L", "L2")),
    "every second of all rows": (doing(lambda x: x.flatten(0, 1)[::2]), (2, 16, 4), ("⌈B·L/2⌉", "L2")),
    "every seventh element": (doing(lambda x: x.view(-1)[::7]), (6, 10), ("⌈B·L/7⌉",)),
    "a triangle": (
        doing(lambda x: x[:, torch.tril_indices(x.shape[1], x.shape[1])[0]]),
        (2, 16, 4),
        ("(L²+L)/2", "L2"),
    ),
    "different steps": (doing(lambda x: torch.cat([x[:, ::2], x[:, ::3]], 1)), (2, 64), ("⌈L/2⌉+⌈L/3⌉",)),
    "one more": (doing(lambda x: torch.cat([x[:, :1], x], 1)), (2, 16, 4), ("L+1", "L2")),
    "a multiple of three": (cut(lambda n: n // 3 * 3), (2, 64), ("3·⌊L/3⌋",)),
    "filled to a multiple": (padded(lambda n: -(-n // 8) * 8), (2, 64), ("8·⌈L/8⌉",)),
    "filled to a large multiple": (padded(lambda n: -(-n // 100) * 100), (2, 64), ("100·⌈L/100⌉",)),
    "three quarters": (cut(lambda n: int(n * 0.75)), (2, 64), ("⌊3·L/4⌋",)),
    "steps in every row": (doing(lambda x: x[:, ::2].transpose(1, 2).flatten(1)), (2, 16, 10), ("⌈L/2⌉·L2",)),
    "volume": (
        nn.Sequential(nn.Conv3d(1, 2, (1, 7, 7), (1, 2, 2), (0, 3, 3)), nn.MaxPool3d(2), nn.Flatten(2)),
        (1, 1, 8, 32, 32),
        ("⌊D/2⌋·⌊(H+1)/4⌋·⌊(W+1)/4⌋",),
    ),
}
NONE: dict[str, tuple[nn.Module, Shape]] = {
    "a root": (doing(lambda x: x[..., : math.isqrt(x.shape[-1])]), (2, 4, 64)),
    "a logarithm": (cut(lambda n: int(math.log2(n))), (2, 64)),
    "the next power": (padded(lambda n: 1 << (n - 1).bit_length()), (2, 50)),
    "the next power of a power": (padded(lambda n: 1 << (n - 1).bit_length()), (2, 64)),
    "no more than a limit": (cut(lambda n: min(n, 512)), (2, 64)),
    "the last hundred": (doing(lambda x: x[:, -100:]), (2, 64)),
    "no less than a limit": (padded(lambda n: max(n, 512)), (2, 64)),
    "a remainder": (cut(lambda n: n % 5 + 1), (2, 24)),
    "the shorter side": (doing(lambda x: x[:, :, : min(x.shape[2:])]), (1, 3, 16, 24)),
    "a product that floats are short of": (cut(lambda n: int(n * 0.29)), (2, 64)),
}


def evaluated(text: str, sizes: dict[str, int]) -> Fraction:
    for sign, code in {"·": "*", "²": "**2", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")"}.items():
        text = text.replace(sign, code)
    known = {name: Fraction(size) for name, size in sizes.items()}
    return Fraction(eval(text, {"__builtins__": {}, "ceil": math.ceil, "floor": math.floor, **known}))


def other_sizes(usual: dict[str, int]) -> Iterator[dict[str, int]]:
    chance = random.Random(1)
    for name, size in usual.items():
        yield from ({**usual, name: size + more} for more in range(1, RESIDUES))
        yield from ({**usual, name: chance.randrange(size, 6 * size + 8)} for _ in range(4))
    for _ in range(TOGETHER):
        yield {name: chance.randrange(size, 2 * size + 20) for name, size in usual.items()}


def real_shape(model: nn.Module, shape: list[int]) -> tuple[int, ...] | None:
    """None: it does not run so."""
    try:
        with torch.no_grad():
            return tuple(model(torch.zeros(shape)).shape)
    except RuntimeError:
        return None


def wrong(model: nn.Module, shape: Shape) -> tuple[tuple[str, ...], list[str], int]:
    """The formulas of the output, what they give that torch does not, and how many sizes were tried."""
    report = mg.inspect(model, torch.zeros(shape), symbols=True)
    assert report.symbols is not None
    assert report.dataflow is not None
    usual = {symbol.name: symbol.size for symbol in report.symbols.symbols}
    places = {
        symbol.name: [int(each.split(".")[-1]) for each in symbol.places] for symbol in report.symbols.symbols
    }
    made = report.run.outputs[0].shape
    dims = report.symbols.shapes.get(report.dataflow.outputs[0][0], tuple(map(str, made)))
    found, tried = [], 0
    for sizes in other_sizes(usual):
        given = list(shape)
        for name, size in sizes.items():
            for dim in places[name]:
                given[dim] = size
        real = real_shape(model, given) if math.prod(given) <= LARGEST else None
        if real is not None:
            tried += 1
            pairs = [(text, size) for text, size in zip(dims, real, strict=True) if "{" not in text]
            found += [f"{text} at {sizes}: {size}" for text, size in pairs if evaluated(text, sizes) != size]
    return dims, found, tried


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_a_formula_is_right_with_every_size_that_runs(name: str) -> None:
    model, shape, expected = EXACT[name]
    dims, found, tried = wrong(model.eval(), shape)
    assert found == []
    assert dims[-len(expected) :] == expected
    assert tried > RESIDUES


@pytest.mark.parametrize("name", NONE)
def test_what_is_no_quotient_has_no_formula(name: str) -> None:
    model, shape = NONE[name]
    dims, found, _ = wrong(model, shape)
    assert found == []
    assert any("{" in text for text in dims)
