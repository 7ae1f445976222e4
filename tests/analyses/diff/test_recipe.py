"""What was done to weights is found again: operations, tensors and figures, alone and two after another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import build_weights
import modelglass as mg
from derivations import COMPOSITIONS, DERIVATIONS, Done, derived

ALONE = tuple((name,) for name in DERIVATIONS)


def found_by(tmp_path: Path, a: build_weights.Weights, b: build_weights.Weights) -> mg.Diff:
    one = build_weights.saved(a, tmp_path / "a.safetensors")
    other = build_weights.saved(
        {name: np.ascontiguousarray(array) for name, array in b.items()}, tmp_path / "b.safetensors"
    )
    return mg.diff(one, other)


def generated(tmp_path: Path, names: tuple[str, ...], dtype: str, seed: int) -> tuple[mg.Diff, Done]:
    weights = build_weights.decoder(seed, dtype, width=(64, 96)[seed % 2])
    rng = np.random.default_rng([seed, *map(ord, "".join(names))])
    changed, done = derived(weights, names, rng)
    return found_by(tmp_path, weights, changed), done


def by_kind(found: mg.Diff) -> dict[str, frozenset[str]]:
    return {each.kind: frozenset(each.tensors) for each in found.operations}


@pytest.mark.slow
def test_at_least_97_of_100_cases_are_explained_rightly(tmp_path: Path) -> None:
    wrong, total, ranks, wrong_ranks = [], 0, 0, 0
    for seed in (0, 1):
        for dtype in build_weights.TYPES:
            for names in (*ALONE, *COMPOSITIONS):
                found, done = generated(tmp_path, names, dtype, seed)
                assert not found.same, (names, dtype, seed)
                total += 1
                if by_kind(found) != done.operations:
                    wrong.append((names, dtype, seed))
                if "rank" in done.figures:
                    ranks += 1
                    wrong_ranks += _figure(found, "low-rank", "rank") != done.figures["rank"]
    assert len(wrong) <= 0.03 * total, wrong
    assert wrong_ranks <= 0.05 * ranks


def _figure(found: mg.Diff, kind: str, name: str) -> Any:
    return next((each.figures.get(name) for each in found.operations if each.kind == kind), None)


@pytest.mark.parametrize("names", ALONE, ids=lambda names: names[0])
def test_each_operation_is_found(tmp_path: Path, names: tuple[str, ...]) -> None:
    found, done = generated(tmp_path, names, "float32", 0)
    assert by_kind(found) == done.operations
    assert found.verdict == "derived"
    for kind, name in (("low-rank", "rank"), ("scaled", "factor"), ("offset", "offset")):
        if name in done.figures:
            assert _figure(found, kind, name) == pytest.approx(done.figures[name], rel=0.01)


@pytest.mark.parametrize("dtype", build_weights.TYPES)
def test_other_seeds_are_unrelated(tmp_path: Path, dtype: str) -> None:
    weights = build_weights.decoder(0, dtype)
    for seed in range(1, 6):
        assert found_by(tmp_path, weights, build_weights.decoder(seed, dtype)).verdict == "unrelated"


def test_means_in_common_make_no_relation(tmp_path: Path) -> None:
    pair = [build_weights.decoder(seed) for seed in (0, 1)]
    for weights in pair:
        for array in weights.values():
            if array.ndim == 2:
                array += np.linspace(-1, 1, array.shape[1], dtype=np.float32)
                array += np.linspace(-1, 1, array.shape[0], dtype=np.float32)[:, None]
    assert found_by(tmp_path, *pair).verdict == "unrelated"


def merged_by(tmp_path: Path, make: Any) -> Any:
    models = [build_weights.decoder(seed) for seed in (0, 1)]
    weights = {name: make(models[0][name], models[1][name]).astype(np.float32) for name in models[0]}
    paths = [
        build_weights.saved(each, tmp_path / f"{place}.safetensors")
        for place, each in enumerate((*models, weights))
    ]
    (operation,) = mg.diff(paths[0], paths[2], with_=[paths[1]]).operations
    assert operation.kind == "merged"
    assert len(operation.tensors) == len(weights)
    return operation.figures


def test_a_linear_merge_and_its_weights(tmp_path: Path) -> None:
    figures = merged_by(tmp_path, lambda a, c: 0.7 * a + 0.3 * c)
    assert figures["method"] == "linear"
    for each in figures.get("by_tensor", {"": figures}).values():
        assert each["weights"] == pytest.approx([0.7, 0.3], rel=0.01)


def slerp(a: Any, c: Any, share: float = 0.4) -> Any:
    cosine = np.dot(a.ravel(), c.ravel()) / np.linalg.norm(a) / np.linalg.norm(c)
    angle = np.arccos(cosine)
    return (np.sin((1 - share) * angle) * a + np.sin(share * angle) * c) / np.sin(angle)


def test_a_spherical_merge(tmp_path: Path) -> None:
    figures = merged_by(tmp_path, slerp)
    methods = [each["method"] for each in figures.get("by_tensor", {"": figures}).values()]
    assert methods.count("SLERP") > len(methods) / 2


def large(seed: int = 0) -> build_weights.Weights:
    rng = np.random.default_rng(seed)
    return {f"layers.{place}.weight": rng.normal(size=(1100, 1024)).astype(np.float32) for place in range(2)}


def test_few_changes_of_a_large_tensor_are_counted_in_all_of_it(tmp_path: Path) -> None:
    weights = large()
    changed = build_weights.copied(weights)
    changed["layers.0.weight"][1099, 1000] += 1
    changed["layers.1.weight"][70, 1000] = np.nan
    operations = {each.kind: each for each in found_by(tmp_path, weights, changed).operations}
    assert operations["sparse"].figures["elements"] == 1
    assert operations["nan"].figures["nan"] == 1
    assert set(operations) == {"sparse", "nan"}


@pytest.mark.parametrize("rank", [1, 16, 64])
def test_the_rank_of_a_large_difference_is_that_of_a_part(tmp_path: Path, rank: int) -> None:
    weights, rng = large(), np.random.default_rng(3)
    changed = build_weights.copied(weights)
    product = rng.normal(size=(1100, rank)) @ rng.normal(size=(rank, 1024))
    changed["layers.0.weight"] += (0.01 * product).astype(np.float32)
    (operation,) = found_by(tmp_path, weights, changed).operations
    assert (operation.kind, operation.figures["rank"]) == ("low-rank", rank)


def test_rows_of_a_large_tensor_in_another_order(tmp_path: Path) -> None:
    weights = large()
    changed = build_weights.copied(weights)
    changed["layers.1.weight"] = changed["layers.1.weight"][::-1].copy()
    (operation,) = found_by(tmp_path, weights, changed).operations
    assert (operation.kind, operation.tensors) == ("permuted", ("layers.1.weight",))


def test_a_cast_to_eight_bits_has_the_error_that_it_must_have(tmp_path: Path) -> None:
    weights = build_weights.decoder()
    changed = {name: array.astype(ml_dtypes.float8_e4m3fn) for name, array in weights.items()}
    (operation,) = found_by(tmp_path, weights, changed).operations
    assert operation.kind == "quantized"
    assert operation.figures["error_ratio"] == pytest.approx(1, abs=0.2)
    assert not operation.figures["more_than_needed"]


def test_rows_of_another_length_are_the_same_values(tmp_path: Path) -> None:
    weights = {"layers.0.weight": build_weights.decoder()["lm_head.weight"]}
    wide = {"layers.0.weight": weights["layers.0.weight"].reshape(100, -1)}
    assert found_by(tmp_path, weights, wide).verdict == "equivalent"
    other = {"layers.0.weight": weights["layers.0.weight"][:, :7].reshape(-1, 4, 7)}
    assert found_by(tmp_path, weights, other).verdict == "incomparable"
