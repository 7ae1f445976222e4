"""How long weight statistics take, beside torch's own figures and beside merely reading, in one run.

    python benchmarks/stats_speed.py                                # all of it, some ten minutes
    python benchmarks/stats_speed.py --quick                        # fewer rounds
    python benchmarks/stats_speed.py -o docs/benchmarks-stats.md    # as a page

Only ratios mean something: contestants take turns on the same weights in the same process. What modelglass
does is all of `mg.inspect(model, stats=True)`: moments, extremes, tallies, quantiles, histogram, findings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from side_by_side import Contestants, forget_peak, in_own_process, peak_mib, take_turns, versions, write_page

GIB = 2**30
TENSORS = 8
OTHERS = {
    "bfloat16, 1 in 1000 zero": ("bfloat16", 0.001),
    "bfloat16, half of them zero": ("bfloat16", 0.5),
    "float32, half of them zero": ("float32", 0.5),
    "float8_e4m3fn": ("float8_e4m3fn", 0.0),
    "float64": ("float64", 0.0),
}
GROWTH = {"1 MiB": 2**20, "16 MiB": 2**24, "256 MiB": 2**28, "1 GiB": 2**30, "4 GiB": 2**32}


def model(dtype: str, nbytes: int, tensors: int = TENSORS, zeros: float = 0.0) -> Any:
    """Normally distributed weights of so many bytes, as trained ones nearly are, a share of them zero."""
    import torch

    kind = getattr(torch, dtype)
    numel = nbytes // kind.itemsize // tensors
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(min(numel, 2**24), generator=generator) * (0.02 if kind.itemsize > 1 else 1.0)
    draws[torch.rand(draws.shape, generator=generator) < zeros] = 0
    made = torch.nn.Module()
    for index in range(tensors):
        values = torch.empty(numel, dtype=kind)
        for start in range(0, numel, draws.numel()):
            values[start : start + draws.numel()] = draws[: numel - start]
        weight = torch.nn.Parameter(values.view(-1, 1024), requires_grad=False)
        weight[0, index] = 1 + index  # no two tensors are the same
        made.register_parameter(f"weight{index}", weight)
    return made


def torch_figures(native: Any) -> None:
    """As one would write it: five lines a tensor."""
    import torch

    for weight in native.parameters():
        weight.mean()
        weight.std()
        weight.min()
        weight.max()
        torch.histc(weight.float(), bins=64)


def reader(native: Any) -> Any:
    """Reading every byte once, with as many threads as there are cores, and doing next to nothing with it."""
    import numpy as np
    import torch
    from numba import njit

    @njit(nogil=True)
    def fold(words: Any) -> Any:
        total = np.uint64(0)
        for i in range(words.size):
            total ^= words[i]
        return total

    words = [weight.view(-1).view(torch.int64).numpy().view(np.uint64) for weight in native.parameters()]
    step = 2**22
    pieces = [array[start : start + step] for array in words for start in range(0, array.size, step)]
    fold(pieces[0][:8])

    def read() -> None:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fold, pieces))

    return read


def contestants(dtype: str, nbytes: int) -> Contestants:
    import modelglass as mg

    native = model(dtype, nbytes)
    return {
        "modelglass": lambda: mg.inspect(native, stats=True),
        "torch": lambda: torch_figures(native),
        "reading": reader(native),
    }


def race(dtype: str, rounds: int) -> dict[str, float]:
    return take_turns(contestants(dtype, GIB), rounds)


def other_weights(dtype: str, zeros: float, rounds: int) -> dict[str, float]:
    import modelglass as mg

    native = model(dtype, GIB, zeros=zeros)
    return take_turns(
        {"modelglass": lambda: mg.inspect(native, stats=True), "reading": reader(native)}, rounds
    )


def added_mib(dtype: str) -> tuple[float, float]:
    """By how much the process's peak grows: once, for numba and the loops it loads, and then for the work."""
    import modelglass as mg
    from modelglass.analyses.stats import engine

    native = model(dtype, GIB)
    mg.inspect(native)
    before = forget_peak()
    engine.WORTH_COMPILING = 0
    mg.inspect(model(dtype, 2**20, tensors=1), stats=True)
    loaded = forget_peak()
    mg.inspect(native, stats=True)
    return loaded - before, peak_mib() - loaded


def growth(nbytes: int, rounds: int) -> dict[str, float]:
    import modelglass as mg
    from modelglass.analyses.stats import engine

    engine.WORTH_COMPILING = 0  # the same loops at every size
    native = model("float32", nbytes, tensors=1)
    return take_turns({"modelglass": lambda: mg.inspect(native, stats=True)}, rounds)


def page(rounds: int) -> Iterator[str]:
    """The results as Markdown, a line at a time."""
    yield "# Benchmarks: weight statistics"
    yield ""
    yield f"Printed by `make bench` with {versions('torch', 'numpy', 'numba')}."
    yield f"Each ratio is of medians over {rounds} rounds in which the contestants take turns; absolute times"
    yield "mean little on a busy machine."
    yield ""
    yield "## One GiB of weights"
    yield ""
    yield "modelglass: `mg.inspect(model, stats=True)`, everything included. torch: `mean`, `std`, `min`,"
    yield "`max`, `histc` of each tensor. Reading: the same bytes read once by all cores."
    yield ""
    yield "| weights | modelglass | torch takes | of reading speed | memory for the work | to load numba |"
    yield "|---|---:|---:|---:|---:|---:|"
    for dtype in ("bfloat16", "float32"):
        seconds = in_own_process(race, dtype, rounds)
        loading, work = in_own_process(added_mib, dtype)
        ours = seconds["modelglass"]
        speed = f"{GIB / ours / 1e9:.1f} GB/s"
        ratio, share = seconds["torch"] / ours, seconds["reading"] / ours
        cells = (
            f"1 GiB of {dtype}",
            speed,
            f"{ratio:.0f} x as long",
            f"{100 * share:.0f} %",
            f"{work:.0f} MiB",
            f"{loading:.0f} MiB",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield "Zeros are looked at more closely, for rows and columns that are nothing else."
    yield ""
    yield "| weights | modelglass | of plain reading speed |"
    yield "|---|---:|---:|"
    for label, (dtype, zeros) in OTHERS.items():
        seconds = in_own_process(other_weights, dtype, zeros, rounds)
        ours = seconds["modelglass"]
        yield f"| 1 GiB of {label} | {GIB / ours / 1e9:.1f} GB/s | {100 * seconds['reading'] / ours:.0f} % |"
    yield ""
    yield "## Growth"
    yield ""
    yield "One float32 tensor of each size: time per byte, relative to 1 GiB. Any tensor costs a little"
    yield "whatever its size; beyond that, time grows with the bytes."
    yield ""
    yield "| size | seconds | per byte |"
    yield "|---:|---:|---:|"
    measured = {label: in_own_process(growth, size, rounds)["modelglass"] for label, size in GROWTH.items()}
    unit = measured["1 GiB"] / GROWTH["1 GiB"]
    for label, seconds in measured.items():
        yield f"| {label} | {seconds:.4f} | {seconds / GROWTH[label] / unit:.2f} x |"


if __name__ == "__main__":
    write_page(page, __doc__)
