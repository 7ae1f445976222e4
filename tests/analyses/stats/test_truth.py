"""Statistics against float64 numpy, on every element type and shape."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from modelglass.analyses.stats import compiled, plain
from modelglass.analyses.stats.engine import describe
from modelglass.analyses.stats.layouts import RESOLUTION, layout_of
from modelglass.analyses.stats.value_counts import KEPT_VALUES
from modelglass.report import TensorStats
from sources import DTYPES, as_doubles, source, stats_of

KERNELS = {"plain": plain, "compiled": compiled}
CLOSE = {"rel": 1e-12, "abs": 1e-300}


def check(stats: TensorStats, array: Any) -> None:
    """Everything the statistics say is what numpy says about the same numbers."""
    numbers = as_doubles(array)
    finite = np.sort(numbers[np.isfinite(numbers)])
    assert stats.count == numbers.size
    assert stats.nan == np.isnan(numbers).sum()
    assert (stats.positive_inf, stats.negative_inf) == ((numbers == np.inf).sum(), (numbers == -np.inf).sum())
    assert stats.zeros == (numbers == 0).sum()
    assert stats.finite == finite.size
    if not finite.size:
        assert (stats.mean, stats.std, stats.min, stats.max, stats.l2, stats.histogram) == (None,) * 6
        return
    spread = np.abs(finite).max()
    assert stats.mean == pytest.approx(math.fsum(finite) / finite.size, rel=1e-12, abs=1e-14 * spread)
    assert stats.min == finite[0]
    assert stats.max == finite[-1]
    assert stats.absmax == spread
    assert stats.l2 == pytest.approx(math.sqrt(math.fsum(finite * finite)), **CLOSE)
    if finite.size == 1:
        assert stats.std is None
    else:
        center = math.fsum(finite) / finite.size
        variance = math.fsum((finite - center) ** 2) / (finite.size - 1)
        assert stats.std == pytest.approx(math.sqrt(variance), rel=1e-9, abs=1e-14 * spread)
    check_distribution(stats, finite)


def check_distribution(stats: TensorStats, finite: np.ndarray[Any, Any]) -> None:
    histogram = stats.histogram
    assert histogram is not None
    assert sum(histogram.counts) == finite.size
    for share, found in stats.quantiles.items():
        truth = np.quantile(finite, share)
        around = np.abs(finite[[int(share * (finite.size - 1)), math.ceil(share * (finite.size - 1))]]).max()
        slack = stats.resolution * around if stats.resolution else 1e-12 * np.abs(finite).max()
        assert abs(found - truth) <= slack + 1e-40
    if histogram.low == histogram.high:
        assert histogram.counts == (finite.size,)
    elif stats.resolution == 0:
        truth = np.histogram(finite, bins=np.array(histogram.edges))[0]
        assert list(histogram.counts) == truth.tolist()


def samples(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Random bit patterns for small types, so that NaN, infinities and denormals are among them."""
    kind = np.dtype(DTYPES[dtype])
    rng = np.random.default_rng(seed)
    number = math.prod(shape)
    if kind.itemsize <= 2 and kind != np.bool_:
        return rng.integers(0, 256, number * kind.itemsize, dtype=np.uint8).view(kind).reshape(shape)
    if kind.kind in "iub":
        top = 2 if kind == np.bool_ else 10**6
        return rng.integers(0, top, shape).astype(kind)
    parts = rng.standard_normal((*shape, 2)) * 0.02
    values = parts[..., 0] + 1j * parts[..., 1] if kind.kind == "c" else parts[..., 0]
    made = values.astype(kind)
    if number > 10:
        flat = made.reshape(-1)
        flat[1], flat[3], flat[5], flat[7] = 0, np.nan, np.inf, -np.inf
    return made


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (7, 5), (3, 4, 5), (200, 300)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_figures_are_those_of_numpy(dtype: str, shape: tuple[int, ...], kernels: Any) -> None:
    array = samples(dtype, shape)
    check(stats_of(array, dtype, kernels=kernels), array)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", *(d for d in DTYPES if "float8" in d)])
def test_every_word_of_a_small_float_means_what_ml_dtypes_says(dtype: str) -> None:
    kind = np.dtype(DTYPES[dtype])
    words = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")
    layout = layout_of(dtype)
    assert layout is not None
    with np.errstate(invalid="ignore"):
        truth = words.view(kind).astype(np.float64)
    np.testing.assert_array_equal(layout.decode(words), truth)


def test_two_floats_in_a_byte() -> None:
    import ml_dtypes

    halves = np.arange(16, dtype=np.uint8)
    pairs = np.array([16 * high + low for high in range(16) for low in range(16)], dtype=np.uint8)
    truth = halves.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    stats = stats_of(pairs.reshape(16, 16), "float4_e2m1fn_x2")
    check(stats, np.concatenate([truth[pairs & 15], truth[pairs >> 4]]))
    assert stats.count == 512
    assert stats.denormals == 2 * 2 * 16  # half, and minus half


@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
def test_denormals_are_counted(kernels: Any) -> None:
    tiny = np.zeros(50_000, np.float32)
    tiny[:700] = 1e-40
    tiny[700:900] = -1e-42
    stats = stats_of(tiny, kernels=kernels)
    assert (stats.denormals, stats.zeros) == (900, 49_100)
    assert stats_of(np.array([6e-8, 1.0], np.float16)).denormals == 1
    assert stats_of(np.array([5e-324, 1.0])).denormals == 1
    assert stats_of(np.array([1, 2], np.int32)).denormals == 0
    for size in (100, 50_000):  # of a complex number, by the limit of its parts
        assert stats_of(np.full(size, 1e-40 + 1e-40j, np.complex64)).denormals == size


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_extremes_of_large_integers_are_not_rounded(dtype: str) -> None:
    top = int(np.iinfo(dtype).max)
    array = np.full(40_000, top - 2, dtype=dtype)
    array[7], array[9] = top - 1, top - 3
    stats = stats_of(array)
    assert (stats.min, stats.max) == (top - 3, top - 1)


def test_extremes_keep_what_comes_first() -> None:
    """Negative numbers only, positive only, both zeros."""
    for values in ([-3.0, -1.0, -2.0], [3.0, 1.0, 2.0], [-0.0, 0.0, 0.0]):
        array = np.array(values * 10_000, np.float32)
        for kernels in KERNELS.values():
            stats = stats_of(array, kernels=kernels)
            assert (stats.min, stats.max) == (min(values), max(values))
            assert math.copysign(1, stats.min) == (1 if min(values) == 0 else math.copysign(1, min(values)))


@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e-150, 1e130, 1e149, 3e150, 1e200, 1e305])
@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("size", [100, 100_000])
def test_squares_that_a_double_cannot_hold(scale: float, kernels: Any, size: int) -> None:
    unit = np.random.default_rng(0).standard_normal(size)
    stats, plain_stats = (stats_of(array, kernels=kernels) for array in (unit * scale, unit))
    precision = 1e-3 if scale < 1e-300 else 1e-9  # denormals have few digits
    assert stats.mean / scale == pytest.approx(plain_stats.mean, rel=precision)
    assert stats.std / scale == pytest.approx(plain_stats.std, rel=precision)
    assert stats.l2 / scale == pytest.approx(plain_stats.l2, rel=precision)


@pytest.mark.parametrize("value", [1e150, 3e150, 9e307, 1.7e308])
@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
def test_the_largest_doubles(value: float, kernels: Any) -> None:
    signs = np.where(np.arange(40_000) % 2, value, -value)
    stats = stats_of(signs, kernels=kernels)
    assert stats.std == pytest.approx(value, rel=1e-4)
    same = stats_of(np.full(40_000, value), kernels=kernels)
    assert (same.mean, same.std) == (value, 0.0)


def test_zeros_do_not_hide_what_is_tiny() -> None:
    array = np.zeros(60_000)
    array[16_384:] = np.linspace(1e-200, 3e-200, array.size - 16_384)
    truth = np.std(array * 1e200, ddof=1) * 1e-200
    for kernels in KERNELS.values():
        stats = stats_of(array, kernels=kernels)
        assert stats.std == pytest.approx(truth, rel=1e-9)
        assert stats.l2 == pytest.approx(np.linalg.norm(array * 1e200) * 1e-200, rel=1e-9)


def test_bins_are_no_narrower_than_what_is_known() -> None:
    near_one = 1 + 1e-3 * np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    histogram = stats_of(near_one).histogram
    assert len(histogram.counts) <= 2
    assert sum(histogram.counts) == near_one.size
    usual = stats_of(np.random.default_rng(0).standard_normal(50_000).astype(np.float32))
    assert len(usual.histogram.counts) == 64


def test_small_numbers_of_wide_integers_are_told_apart() -> None:
    array = np.random.default_rng(0).integers(-100, 100, 50_000)
    stats = stats_of(array)
    assert (
        list(stats.histogram.counts) == np.histogram(array, bins=np.array(stats.histogram.edges))[0].tolist()
    )
    assert stats.quantiles[0.25] == np.quantile(array, 0.25)


def test_what_is_beyond_all_doubles_is_unknown() -> None:
    assert stats_of(np.full(100, 1.7e308)).l2 is None
    extreme = stats_of(np.array([-1.7e308, 1.7e308]))
    assert extreme.quantiles[0.25] == pytest.approx(-0.85e308)
    assert sum(extreme.histogram.counts) == 2


@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
def test_no_digits_are_lost_far_from_zero(kernels: Any) -> None:
    """Where squares are summed first and subtracted later, this deviation comes out as nonsense."""
    rng = np.random.default_rng(0)
    array = 1e8 + rng.standard_normal(300_000) * 1e-3
    truth = math.sqrt(math.fsum((array - math.fsum(array) / array.size) ** 2) / (array.size - 1))
    assert stats_of(array, kernels=kernels).std == pytest.approx(truth, rel=1e-9)


def test_small_wide_tensors_are_described_exactly() -> None:
    near_one = (1 + np.random.default_rng(0).standard_normal(KEPT_VALUES) * 1e-3).astype(np.float32)
    stats = stats_of(near_one)
    assert stats.resolution == 0
    check(stats, near_one)
    assert stats_of(np.concatenate([near_one, near_one])).resolution == RESOLUTION


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["float32", "float64", "float16"]).flatmap(
        lambda dtype: arrays.arrays(
            dtype, st.integers(0, 60), elements=st.floats(width=int(dtype[-2:]), allow_nan=True)
        )
    )
)
def test_any_floats(array: Any) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = array.astype(np.float64)
    largest = np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0)
    assume(largest == 0 or 1e-140 < largest < 1e150)  # numpy itself gives up beyond; other tests look there
    check(stats_of(array), array)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(st.data(), st.sampled_from([32, 64]), st.integers(40, 400))
def test_plain_and_compiled_loops_agree_to_the_bit(data: Any, width: int, more: int) -> None:
    floats = st.floats(width=width)
    pattern = data.draw(st.lists(floats, min_size=1, max_size=200))
    specials = data.draw(st.lists(st.tuples(st.integers(0, 19_999), floats), max_size=8))
    array = np.resize(np.array(pattern, f"f{width // 8}"), 20_000 + more)
    for place, value in specials:
        array[place] = value
    # As text, in which minus zero is not zero.
    assert repr(stats_of(array, kernels=plain)) == repr(stats_of(array, kernels=compiled))


def test_minus_zero_is_zero() -> None:
    for size in (10, 50_000):
        stats = stats_of(np.full(size, -0.0, np.float32))
        assert "-0.0" not in repr(stats)
        assert stats.zeros == size


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
@pytest.mark.parametrize("dtype", DTYPES)
def test_plain_and_compiled_loops_agree_on_every_type(dtype: str) -> None:
    array = samples(dtype, (333, 77))
    assert stats_of(array, dtype, kernels=plain) == stats_of(array, dtype, kernels=compiled)


def test_a_type_without_numbers_has_no_statistics() -> None:
    assert layout_of("bits8") is None
    assert describe({"x": source(np.zeros(3, np.uint8), "bits8")}) == {}
