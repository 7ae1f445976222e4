"""Parts, threads and bounds: the result is the same however the work is cut up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from modelglass.analyses.stats import compiled, engine, plain
from modelglass.analyses.stats.fold import fold
from modelglass.analyses.stats.layouts import layout_of
from modelglass.report import TensorStats, Values
from modelglass.report.dtypes import nbytes_of
from sources import DTYPES, source, stats_of

EXACT = ("count", "nan", "positive_inf", "negative_inf", "zeros", "denormals", "min", "max", "first_nan")
EXACT += ("first_inf", "dead_rows", "dead_columns", "first_dead_row", "first_dead_column", "resolution")


def in_parts(values: Values, cuts: list[int]) -> TensorStats:
    layout = layout_of(values.dtype)
    assert layout is not None
    borders = [0, *sorted(cuts), values.numel]
    parts = [fold(values, layout, a, b, plain) for a, b in pairwise(borders) if a < b]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.merge(part)
    return whole.finish(values.described)


def sample(dtype: str) -> Any:
    rng = np.random.default_rng(1)
    array = (rng.standard_normal((150, 300)) * 3).astype(dtype)
    array[5], array[:, 8] = 0, 0
    if array.dtype.kind == "f":
        array[40, 3], array[2, 2], array[90, 90] = np.nan, np.inf, -np.inf
    return array


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["float32", "float64", "float16", "int32", "int8"]), st.lists(st.integers(1, 44_999)))
def test_merged_parts_equal_the_whole(dtype: str, cuts: list[int]) -> None:
    values = source(sample(dtype))
    whole, merged = in_parts(values, []), in_parts(values, cuts)
    for name in EXACT:
        assert getattr(merged, name) == getattr(whole, name), name
    assert merged.histogram == whole.histogram
    assert merged.quantiles == whole.quantiles
    assert merged.mean == pytest.approx(whole.mean, rel=1e-13)
    assert merged.std == pytest.approx(whole.std, rel=1e-13)
    assert merged.l2 == pytest.approx(whole.l2, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8"])
def test_the_number_of_threads_does_not_matter(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "SPAN", 1000)
    sources = {f"tensor{i}": source(np.roll(sample(dtype), i)) for i in range(5)}
    alone = engine.describe(sources, workers=1)
    assert list(alone) == list(sources)
    for workers in (2, 3, 8):
        assert engine.describe(sources, workers=workers) == alone
    assert engine.describe(sources, workers=2, kernels=compiled) == alone


def test_small_tensors_are_folded_by_the_thread_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads would only wait for each other there; those at large tensors go on meanwhile."""
    monkeypatch.setattr(engine, "WORTH_A_THREAD", 4000)
    by: dict[str, set[str]] = {}

    def watched(name: str, numel: int) -> Values:
        def read(start: int, stop: int) -> Any:
            by.setdefault(name, set()).add(threading.current_thread().name)
            return np.full(2 * (stop - start), 7, np.uint8)

        return Values(dtype="float16", shape=(numel,), read=read)

    sizes = {f"{name}{index}": numel for index in range(9) for name, numel in (("l", 4000), ("s", 10))}
    sources = {name: watched(name, numel) for name, numel in sizes.items()}
    found = engine.describe(sources, workers=2)
    asking = threading.current_thread().name
    assert {name: threads == {asking} for name, threads in by.items()} == {
        name: name.startswith("s") for name in sizes
    }
    assert list(found) == list(sizes)
    assert found == engine.describe(sources, workers=1)


def test_threads_are_gone_afterwards() -> None:
    before = threading.active_count()
    stats_of(np.zeros((10, engine.SPAN // 4), np.uint8), workers=4)
    assert threading.active_count() == before


def test_an_error_while_reading_ends_the_work() -> None:
    def fail(start: int, stop: int) -> Any:
        raise OSError("the disk is gone")

    broken = Values(dtype="float32", shape=(10,), read=fail)
    good = source(np.zeros(10, np.float32))
    before = threading.active_count()
    with pytest.raises(OSError, match="the disk is gone"):
        engine.describe({"a": good, "b": broken, "c": good}, workers=2)
    assert threading.active_count() == before


@pytest.mark.slow
@pytest.mark.parametrize("kernels", [plain, compiled], ids=["plain", "compiled"])
@pytest.mark.parametrize("shape", [(3000, 3000), (2, 4_100_000)], ids=str)
@pytest.mark.parametrize("dtype", [*(name for name in DTYPES if name != "bool"), "float4_e2m1fn_x2"])
def test_memory_does_not_grow_with_the_tensor(
    dtype: str, shape: tuple[int, int], kernels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values come into being as they are read, with zeros and NaN among them, in many spans."""
    monkeypatch.setattr(engine, "SPAN", 2 << 20)
    piece = np.random.default_rng(0).integers(0, 255, 8 << 20, dtype=np.uint8)
    piece[: 1 << 20] = 0
    itemsize = nbytes_of(dtype, 1) or 0

    def read(start: int, stop: int) -> Any:
        assert (stop - start) * itemsize <= 8 << 20
        return piece[: (stop - start) * itemsize]

    values = Values(dtype=dtype, shape=shape, read=read)
    engine.describe({"x": source(np.zeros(20_000, np.float32))}, kernels=kernels)  # what loads once
    tracemalloc.start()
    try:
        stats = engine.describe({"x": values}, kernels=kernels, workers=2)["x"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert stats.count >= values.numel
    assert peak < 2 * (48 << 20)


def test_progress_counts_bytes() -> None:
    seen: list[tuple[int, int]] = []
    engine.describe(
        {"a": source(np.zeros(1000, np.float32)), "b": source(np.zeros(500, np.float16))},
        advance=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(4000, 5000), (5000, 5000)]


def test_the_compiler_is_loaded_only_where_it_pays() -> None:
    assert engine.kernels_for(1 << 20) is plain
    assert engine.kernels_for(1 << 30) is compiled


def test_without_numba_the_plain_loops_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "modelglass.analyses.stats.compiled")
    assert engine.kernels_for(1 << 30) is plain


@pytest.mark.slow
def test_a_numba_that_must_not_compile_is_not_used() -> None:
    code = "from modelglass.analyses.stats import engine; print(engine.kernels_for(1 << 30).__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    assert done.stdout.strip().endswith("plain")


def test_more_threads_than_processors_are_not_started() -> None:
    assert 1 <= engine.processors() <= min(engine.MOST_WORKERS, os.cpu_count() or 1)


class TestDeadRowsAndColumns:
    def check(self, array: Any, **more: Any) -> None:
        stats = stats_of(array, **more)
        matrix = np.asarray(array).reshape(*array.shape[:2], -1) != 0
        rows = np.flatnonzero(~matrix.any(axis=(1, 2)))
        columns = np.flatnonzero(~matrix.any(axis=(0, 2)))
        assert (stats.dead_rows, stats.dead_columns) == (rows.size, columns.size)
        assert stats.first_dead_row == (rows[0] if rows.size else None)
        assert stats.first_dead_column == (columns[0] if columns.size else None)

    @settings(max_examples=60, deadline=None)
    @given(
        st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 4)),
        st.integers(0, 100),
        st.sampled_from(["float32", "float16", "int8"]),
        st.sampled_from([7, 50, 200, 10_000]),
    )
    def test_wherever_pieces_begin(self, shape: tuple[int, ...], seed: int, dtype: str, chunk: int) -> None:
        rng = np.random.default_rng(seed)
        array = (rng.random(shape) > rng.choice([0.1, 0.7])).astype(dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("modelglass.analyses.stats.fold.CHUNK_NBYTES", chunk)
            patch.setattr(engine, "SPAN", 3 * chunk)
            self.check(array)

    def test_two_values_in_an_element(self) -> None:
        pairs = np.full((6, 4), 0x22, np.uint8)
        pairs[:, 1] = 0x20  # the low half comes first
        pairs[3] = 0
        stats = stats_of(pairs, "float4_e2m1fn_x2")
        assert (stats.dead_rows, stats.first_dead_row) == (1, 3)
        assert (stats.dead_columns, stats.first_dead_column) == (1, 2)

    def test_nothing_is_dead_without_zeros(self) -> None:
        self.check(np.ones((300, 200), np.float32))
        self.check(np.ones((30, 20, 3, 3), np.float16))

    def test_vectors_and_empty_matrices_have_neither(self) -> None:
        assert stats_of(np.zeros(5, np.float32)).dead_rows is None
        assert stats_of(np.zeros((0, 5), np.float32)).dead_rows is None

    def test_no_record_is_kept_of_endless_sides(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("modelglass.analyses.stats.nonzero_slices.LONGEST_SIDE", 4)
        assert stats_of(np.zeros((5, 2), np.float32)).dead_rows is None
