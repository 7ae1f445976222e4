"""Inputs of MLX models are found by traced runs, with channels last."""

from __future__ import annotations

from typing import Any

import pytest

import modelglass as mg
from modelglass.errors import InputsError

mx = pytest.importorskip("mlx.core")
nn = pytest.importorskip("mlx.nn")

pytestmark = pytest.mark.slow  # each search may take its time on a busy machine


class Classifier(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm(8), nn.Linear(8, 10)

    def __call__(self, x: Any) -> Any:
        return self.head(nn.relu(self.norm(self.conv(x))).mean((1, 2)))


class Digits(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool, self.head = (
            nn.Conv2d(1, 8, 3, padding=1),
            nn.MaxPool2d(2, 2),
            nn.Linear(8 * 14 * 14, 10),
        )

    def __call__(self, x: Any) -> Any:
        y = self.pool(self.conv(x))
        return self.head(y.reshape(y.shape[0], -1))


class Tagger(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn = nn.Embedding(50, 32), nn.LSTM(48, 8)
        self.features = nn.Linear(5, 16)

    def __call__(self, batch: Any) -> Any:
        return self.rnn(mx.concatenate([self.embed(batch["ids"]), self.features(batch["extra"])], -1))[0]


class Choosing(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 20)

    def __call__(self, x: Any) -> Any:
        y = self.linear(x)
        return y * 2 if y.mean().item() > 0 else y


class Wrong(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(10, 20), nn.Linear(30, 2)

    def __call__(self, x: Any) -> Any:
        return self.b(self.a(x))


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (Classifier, "x 1x224x224x3 float32; B, H, W are free"),
        (Digits, "x 1x28x28x1 float32; B is free"),
        (Tagger, "batch.ids 1x128 int64, batch.extra 1x128x5 float32; B, L are free"),
        (Choosing, "x 1x10 float32; B is free"),
    ],
)
def test_what_is_found_runs(cls: Any, expected: str) -> None:
    mx.eval(mx.ones(3) + 1)  # a thread that computes, which a copy of the process does not have
    model = cls()
    found = mg.find_inputs(model, seconds=20)
    assert expected in found.text
    assert "mx.zeros" in found.python
    assert mg.inspect(model, found.inputs).run.failure is None


def test_a_model_that_runs_with_nothing_gets_the_truth() -> None:
    with pytest.raises(InputsError, match="b: 20 features met 30"):
        mg.inspect(Wrong(), inputs="auto")
