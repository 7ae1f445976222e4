"""Modules of many kinds, written by hand, whose inputs nothing but their code and layers shows."""

# ruff: noqa: RUF059, B905, T201 - written as people write models
from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Digits(nn.Module):
    """28 pixels, which only the size of a linear layer shows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc = nn.Linear(9216, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc(torch.flatten(x, 1))


class Cifar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc1(x.view(-1, 16 * 5 * 5))


class UNet(nn.Module):
    def __init__(self, channels: int = 1) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(channels, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        return self.out(torch.cat([a, self.up(b)], dim=1))


class UNet3d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv3d(4, 8, 3, padding=1), nn.Conv3d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose3d(16, 8, 2, stride=2)

    def forward(self, volume):
        a = self.down1(volume)
        return torch.cat([a, self.up(self.down2(F.max_pool3d(a, 2)))], 1)


class Denoiser(nn.Module):
    """A picture and a time for each."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 16), nn.SiLU())
        self.conv_in, self.conv_out = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, x, t):
        freqs = torch.exp(torch.arange(16, device=x.device) / 16)
        angles = t[:, None].float() * freqs[None]
        emb = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        return self.conv_out(self.conv_in(x) + emb[:, :, None, None])


class ConditionalDenoiser(nn.Module):
    """Latents, a step that is looked up, and a text's states."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Embedding(1000, 32)
        self.conv = nn.Conv2d(4, 32, 3, padding=1)
        self.attn = nn.MultiheadAttention(32, 4, kdim=48, vdim=48, batch_first=True)

    def forward(self, sample, timestep, encoder_hidden_states):
        h = self.conv(sample) + self.steps(timestep)[:, :, None, None]
        b, c, height, width = h.shape
        seq = h.flatten(2).transpose(1, 2)
        return self.attn(seq, encoder_hidden_states, encoder_hidden_states)[0]


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(1000, 32), nn.Embedding(64, 32)
        self.block = nn.TransformerEncoderLayer(32, 4, batch_first=True)
        self.head = nn.Linear(32, 1000)

    def forward(self, idx, targets=None):
        b, t = idx.size()
        assert t <= 64, f"Cannot forward sequence of length {t}, block size is only 64"
        x = self.tok(idx) + self.pos(torch.arange(t, device=idx.device))
        return self.head(self.block(x))


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.src_emb, self.tgt_emb = nn.Embedding(100, 32), nn.Embedding(120, 32)
        self.transformer = nn.Transformer(32, 4, 1, 1, 64, batch_first=True)

    def forward(self, src, tgt):
        return self.transformer(self.src_emb(src), self.tgt_emb(tgt))


class SequenceClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(40, 64, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        out, (h, c) = self.rnn(x)
        return self.head(out[:, -1])


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(500, 16)
        self.gru = nn.GRU(16, 32)
        self.head = nn.Linear(32, 9)

    def forward(self, words):
        return self.head(self.gru(self.emb(words))[0])


class WithState(nn.Module):
    """A cell with the state that is carried along."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(10, 20)

    def forward(self, x, state):
        h, c = self.cell(x, state)
        return h, (h, c)


class Waveform(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 16, 10, stride=5)
        self.head = nn.Linear(16, 4)

    def forward(self, waveform):
        return self.head(self.conv(waveform.unsqueeze(1)).mean(-1))


class Spectrogram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(80, 32, 3, padding=1)
        self.gru = nn.GRU(32, 16, batch_first=True)

    def forward(self, mels):
        return self.gru(self.conv(mels).transpose(1, 2))[0]


class Fourier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(201, 8)

    def forward(self, audio):
        spec = torch.stft(audio, 400, 160, window=torch.hann_window(400), return_complex=True).abs()
        return self.head(spec.transpose(1, 2))


class PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, points):
        return self.head(self.mlp(points.transpose(1, 2)).max(dim=2)[0])


class GraphConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(16, 32)

    def forward(self, x, edge_index):
        src, dst = edge_index
        h = self.lin(x)
        return torch.zeros_like(h).index_add_(0, dst, h[src])


class DenseGraph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(12, 24), nn.Linear(24, 7)

    def forward(self, x, adj):
        x = F.relu(adj @ self.lin1(x))
        return F.log_softmax(adj @ self.lin2(x), dim=-1)


class EdgeGraph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(2 * 16 + 4, 32)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index[0], edge_index[1]
        return self.message(torch.cat([x[row], x[col], edge_attr], dim=-1))


class TwoTower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(1000, 16), nn.Embedding(500, 16)

    def forward(self, user_ids, item_ids):
        return (self.user(user_ids) * self.item(item_ids)).sum(-1)


class Multimodal(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.vision = nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.table = nn.Linear(12, 8)
        self.head = nn.Linear(16, 2)

    def forward(self, picture, features):
        return self.head(torch.cat([self.vision(picture), self.table(features)], dim=1))


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    def forward(self, a, b):
        return F.pairwise_distance(self.encoder(a), self.encoder(b))


class FromDict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(50, 8)
        self.lin = nn.Linear(6, 8)

    def forward(self, batch):
        return self.emb(batch["ids"]).mean(1) + self.lin(batch["feats"])


class FromDictInside(nn.Module):
    """Keys that a helper takes."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(6, 8)

    def _encode(self, data):
        return self.lin(data["x"])

    def forward(self, data):
        return self._encode(data)


class FromTuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(7, 8)

    def forward(self, pair):
        x, y = pair
        return self.a(x) + self.b(y)


class FromList(nn.Module):
    """Pictures at several scales."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(c, 16, 1) for c in (8, 16, 32)])

    def forward(self, feats: list[Tensor]):
        return [conv(f) for conv, f in zip(self.convs, feats)]


class Spread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, *xs):
        return sum(self.lin(x) for x in xs)


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 32, 8, stride=8)
        self.pos = nn.Parameter(torch.zeros(1, 16, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, batch_first=True)

    def forward(self, x):
        return self.block(self.patch(x).flatten(2).transpose(1, 2) + self.pos)


class Mixer(nn.Module):
    """Tokens and channels that are both fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(49, 49), nn.Linear(24, 24)

    def forward(self, x):
        return self.channels(self.tokens(x.transpose(1, 2)).transpose(1, 2))


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 24, 8))

    def forward(self, x):
        return torch.einsum("bld,hde->bhle", x, self.weight)


class ShapeUnpacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(48, 144)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, 4, c // 4).permute(2, 0, 3, 1, 4)
        return (q @ k.transpose(-2, -1)) @ v


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(32, 2, batch_first=True)

    def forward(self, x, mask):
        return self.attn(x, x, x, key_padding_mask=mask)[0]


class Video(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.lstm = nn.LSTM(8, 16, batch_first=True)

    def forward(self, clip):
        b, t, c, h, w = clip.shape
        x = self.conv(clip.reshape(b * t, c, h, w)).mean((2, 3))
        return self.lstm(x.view(b, t, -1))[0]


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(17, 64), nn.Tanh(), nn.Linear(64, 6))

    def forward(self, obs):
        return torch.distributions.Normal(self.net(obs), 1.0).mean


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Sequential(nn.Linear(17 + 6, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, obs, action):
        return self.q(torch.cat([obs, action], dim=-1))


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enc, self.dec = nn.Linear(784, 20), nn.Linear(20, 784)

    def forward(self, x):
        return self.dec(self.enc(x.view(-1, 784)))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x, scale: float, repeats: int):
        for _ in range(repeats):
            x = self.lin(x) * scale
        return x


class ByValue(nn.Module):
    """What runs depends on the values of a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x, mask):
        return self.lin(x) if bool(mask.all()) else x


class Either(nn.Module):
    """All inputs can be left out, but not at once."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(30, 8)

    def forward(self, ids: Tensor | None = None, embeds: Tensor | None = None):
        if (ids is None) == (embeds is None):
            raise ValueError("You must specify exactly one of ids or embeds")
        return self.emb(ids) if embeds is None else embeds


class Functional(nn.Module):
    """Weights without layers."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.zeros(14, 32)), nn.Parameter(torch.zeros(32, 3))

    def forward(self, x):
        return torch.relu(x @ self.w1) @ self.w2


class Recommender(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(10, 4) for _ in range(5)])
        self.dense = nn.Linear(13, 4)
        self.top = nn.Linear(24, 1)

    def forward(self, dense, sparse):
        found = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        return self.top(torch.cat([self.dense(dense), *found], dim=1))


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.labels = nn.Embedding(10, 1024)
        self.conv = nn.Conv2d(2, 8, 4, 2, 1)

    def forward(self, img, labels):
        plane = self.labels(labels).view(-1, 1, 32, 32)
        return self.conv(torch.cat([img, plane], 1))


class KeysInKeys(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state, self.action = nn.Linear(11, 16), nn.Linear(4, 16)

    def forward(self, seen, info):
        return self.state(seen["state"]) + self.action(info["before"]["action"])


class Keywords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(13, 4)

    def forward(self, **given):
        return self.linear(given["features"])


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x, rounds):
        for _ in range(int(rounds)):
            x = self.linear(x).tanh()
        return x


class Frequencies(nn.Module):
    """Joins several functions of an input: only the slope between two trials shows its size."""

    def __init__(self) -> None:
        super().__init__()
        self.points, self.colours = nn.Linear(63, 64), nn.Linear(64 + 27, 3)

    def bands(self, x, number):
        waves = [f(2**i * x) for i in range(number) for f in (torch.sin, torch.cos)]
        return torch.cat([x, *waves], -1)

    def forward(self, points, directions):
        found = self.points(self.bands(points, 10)).relu()
        return self.colours(torch.cat([found, self.bands(directions, 4)], -1))


class Cell(nn.Module):
    """Two inputs that are joined share the channels of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gates = nn.Conv2d(1 + 8, 32, 3, padding=1)

    def forward(self, x, hidden, cell):
        i, f, o, g = self.gates(torch.cat([x, hidden], 1)).chunk(4, 1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        return o.sigmoid() * cell.tanh(), cell


class Causal(nn.Module):
    """Its message names the whole shape of a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.transformer = nn.Embedding(77, 32), nn.Transformer(32, 4, 1, 1, 64, batch_first=True)

    def forward(self, src, tgt, src_mask, tgt_mask):
        return self.transformer(self.embed(src), self.embed(tgt), src_mask=src_mask, tgt_mask=tgt_mask)


RUNNING = (
    *(ConvNet, Digits, Cifar, UNet, UNet3d, Denoiser, ConditionalDenoiser, LanguageModel, Translator),
    *(SequenceClassifier, Tagger, WithState, Waveform, Spectrogram, Fourier, PointNet, GraphConv, DenseGraph),
    *(EdgeGraph, TwoTower, Multimodal, Siamese, FromDict, FromDictInside, FromTuple, FromList, Spread, ViT),
    *(Mixer, Einsum, ShapeUnpacked, Masked, Video, Policy, Critic, Autoencoder, Scaled, ByValue, Either),
    *(Functional, Recommender, Discriminator, KeysInKeys, Keywords, Counting, Frequencies, Cell, Causal),
)


class WrongWidths(nn.Module):
    """Layers that do not fit each other, whatever the input."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(32, 4)

    def forward(self, x):
        return self.b(self.a(x))


class Misspelt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 16)

    def forward(self, x):
        return self.linear(x)


class Sleeping(nn.Module):
    def forward(self, x):
        time.sleep(3600)


class Looping(nn.Module):
    def forward(self, x):
        while x is not None:
            pass


class Printing(nn.Module):
    def forward(self, x):
        print("x" * (1 << 20))
        raise RuntimeError("never")


class Leaving(nn.Module):
    def forward(self, x):
        raise SystemExit(7)


class Forty(nn.Module):
    def forward(self, a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9,
                c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9):  # fmt: skip
        raise RuntimeError("never")


FAILING = (WrongWidths, Misspelt, Sleeping, Looping, Printing, Leaving, Forty)


def named(*classes: Any) -> list[str]:
    return [each.__name__ for each in classes]
