"""`mg.diff`: the verdict, and the figures of each tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import build_weights
import modelglass as mg
from modelglass.errors import UsageError

Q = "model.layers.1.self_attn.q_proj.weight"


def diff(tmp_path: Path, a: build_weights.Weights, b: build_weights.Weights, **options: object) -> mg.Diff:
    one = build_weights.saved(a, tmp_path / "a.safetensors")
    other = build_weights.saved(b, tmp_path / "b.safetensors")
    return mg.diff(one, other, **options)  # type: ignore[arg-type]


def test_every_bit_the_same_is_identical(tmp_path: Path) -> None:
    weights = build_weights.decoder()
    found = diff(tmp_path, weights, weights)
    assert (found.verdict, found.operations) == ("identical", ())
    assert all(each.equal and each.changed == 0 for each in found.tensors)
    assert mg.diff(tmp_path / "a.safetensors", tmp_path / "a.safetensors").verdict == "identical"


def test_one_bit_is_never_overlooked(tmp_path: Path) -> None:
    weights = build_weights.decoder()
    changed = build_weights.copied(weights)
    changed[Q].view(np.uint32)[3, 5] ^= 1
    found = diff(tmp_path, weights, changed)
    assert found.verdict == "derived"
    (tensor,) = [each for each in found.tensors if not each.equal]
    assert (tensor.b, tensor.changed, tensor.at) == (Q, 1, (3, 5))


def test_names_and_types_that_lose_nothing_are_equivalent(tmp_path: Path) -> None:
    weights = build_weights.decoder(dtype="bfloat16")
    wide = {f"wrapped.{name}": array.astype(np.float32) for name, array in weights.items()}
    found = diff(tmp_path, weights, wide)
    assert found.verdict == "equivalent"
    assert [(each.kind, each.exact, len(each.tensors)) for each in found.operations] == [
        ("cast", True, len(weights))
    ]


def test_a_cast_that_loses_digits_is_named(tmp_path: Path) -> None:
    weights = build_weights.decoder()
    found = diff(tmp_path, weights, {name: array.astype(np.float16) for name, array in weights.items()})
    assert (found.verdict, found.kinds) == ("derived", ("cast",))
    assert found.operations[0].figures == {"from": "float32", "to": "float16"}


def test_another_seed_is_unrelated(tmp_path: Path) -> None:
    found = diff(tmp_path, build_weights.decoder(0), build_weights.decoder(1))
    assert found.verdict == "unrelated"


def test_what_happened_to_single_tensors(tmp_path: Path) -> None:
    weights = build_weights.decoder()
    changed = build_weights.copied(weights)
    rng = np.random.default_rng(5)
    names = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(3)]
    changed[names[0]][:] = 0
    changed[names[1]][2, 7] = np.nan
    changed[names[2]] = rng.normal(size=weights[names[2]].shape).astype(np.float32)
    changed[Q] += rng.normal(size=weights[Q].shape).astype(np.float32) * 1e-3
    del changed["model.norm.weight"]
    found = diff(tmp_path, weights, changed)
    assert {each.kind: each.tensors for each in found.operations} == {
        "fine-tuned": (Q,),
        "reinitialised": (names[2],),
        "zeroed": (names[0],),
        "nan": (names[1],),
        "missing": ("model.norm.weight",),
    }


def test_live_models_are_read_as_files_are(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    found = mg.diff(model, tmp_path / "model.pt")
    assert found.verdict == "identical"
    with torch.no_grad():
        model[0].bias[3] += 1
    assert mg.diff(model, tmp_path / "model.pt").verdict == "derived"


def test_joined_weights_are_the_same_values(tmp_path: Path) -> None:
    weights = build_weights.decoder()
    joined = build_weights.copied(weights)
    for layer in range(3):
        at = f"model.layers.{layer}.self_attn"
        parts = [joined.pop(f"{at}.{name}_proj.weight") for name in "qkv"]
        joined[f"{at}.qkv_proj.weight"] = np.concatenate(parts)
    found = diff(tmp_path, weights, joined)
    assert found.verdict == "equivalent"
    joined["model.layers.2.self_attn.qkv_proj.weight"][70, 3] += 1
    found = diff(tmp_path, weights, joined)
    (changed,) = [each for each in found.tensors if not each.equal]
    assert changed.a == "model.layers.2.self_attn.k_proj.weight"


def test_values_that_nobody_has_are_not_spoken_of(tmp_path: Path) -> None:
    path = build_weights.saved(build_weights.decoder(), tmp_path / "a.safetensors")
    mg.save(mg.inspect(path), tmp_path / "report.json")
    found = mg.diff(path, tmp_path / "report.json")
    assert found.verdict == "incomparable"
    assert [note.text for note in found.notes] == ["same structure; values not compared"]


def test_patterns_and_a_tolerance_leave_differences_out(tmp_path: Path) -> None:
    weights = build_weights.decoder()
    changed = build_weights.copied(weights)
    changed[Q] *= np.float32(1 + 1e-5)
    assert diff(tmp_path, weights, changed).verdict == "derived"
    assert diff(tmp_path, weights, changed, ignore=["*.q_proj.*"]).verdict == "identical"
    assert diff(tmp_path, weights, changed, tolerance=1e-4).verdict == "equivalent"
    with pytest.raises(UsageError):
        diff(tmp_path, weights, changed, tolerance=-1.0)


def test_models_too_small_to_tell_are_not_called_derived() -> None:
    torch.manual_seed(0)
    a, b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    assert mg.diff(a, b).verdict == "unrelated"
    b.load_state_dict(a.state_dict())
    torch.nn.init.zeros_(b.bias)
    assert mg.diff(a, b).verdict == "derived"  # the weight is the same
