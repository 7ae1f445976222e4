"""How long it takes to look into files, beside the libraries that load them, in one run.

    python benchmarks/files_speed.py                                # all of it, some ten minutes
    python benchmarks/files_speed.py --quick                        # fewer rounds of tiny files
    python benchmarks/files_speed.py -o docs/benchmarks-files.md    # as a page

Only ratios mean something: contestants take turns on the same files. Commands are timed from outside, as
processes; calls are timed in processes of their own, which do nothing else, so that each has its own peak.
"""

from __future__ import annotations

import os
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from side_by_side import in_own_process, peak_mib, take_turns, versions, write_page

MIB = 2**20
MOST_SLOW_ROUNDS = 3  # of calls that take a minute
ALIGNMENT = 32  # of GGUF
F32, Q4_K = 0, 12  # numbers of GGUF's types
Q4_K_NUMEL, Q4_K_NBYTES = 256, 144

Command = list[str]
Call = Callable[[], Any]
Prepare = Callable[[str], Call]  # a path in, and out comes what is timed: imports come before


class Sizes(NamedTuple):
    """How large the files are."""

    layers: int = 5000
    gguf_tensors: int = 300_000
    tensors: int = 1_000_000
    sparse_nbytes: int = 2**40
    weights_nbytes: int = 512 * MIB
    blocks_nbytes: int = 128 * MIB


TINY = Sizes(50, 2000, 5000, 2**30, 4 * MIB, 4 * MIB)


class Cost(NamedTuple):
    """Median seconds of a call, and the median of its process's peaks."""

    seconds: float
    peak_mib: float


class Row(NamedTuple):
    """One line of the table of ratios."""

    what: str
    beside: str
    ratio: str
    goal: str = ""
    verdict: str = ""


# Files


def state_dict_file(path: Path, layers: int) -> None:
    """The weights and biases of so many small layers, as `torch.save` writes them."""
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
    torch.save(model.state_dict(), path)


def safetensors_file(path: Path, count: int, numel: int, dtype: str = "F32") -> int:
    """So many tensors of one size, all zero and taking no room on the disk; where the first one starts."""
    size = numel * {"F32": 4, "BF16": 2}[dtype]
    entries = (
        f'"layers.{index}.weight":{{"dtype":"{dtype}","shape":[{numel}],'
        f'"data_offsets":[{index * size},{(index + 1) * size}]}}'
        for index in range(count)
    )
    header = f"{{{','.join(entries)}}}".encode()
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + count * size)
    return 8 + len(header)


def gguf_file(path: Path, count: int, numel: int, kind: int = F32) -> int:
    """The same as GGUF."""
    size = numel * 4 if kind == F32 else numel // Q4_K_NUMEL * Q4_K_NBYTES
    stride = size + -size % ALIGNMENT
    parts = [b"GGUF", struct.pack("<IQQ", 3, count, 1)]
    parts += [_gguf_text("general.architecture"), struct.pack("<I", 8), _gguf_text("llama")]
    parts += [
        _gguf_text(f"blk.{index}.weight") + struct.pack("<IQIQ", 1, numel, kind, index * stride)
        for index in range(count)
    ]
    header = b"".join(parts)
    header += bytes(-len(header) % ALIGNMENT)
    path.write_bytes(header)
    os.truncate(path, len(header) + count * stride)
    return len(header)


def _gguf_text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def bfloat16_file(path: Path, nbytes: int, tensors: int = 8) -> None:
    """Normally distributed weights, as trained ones nearly are."""
    import numpy as np

    numel = nbytes // 2 // tensors
    start = safetensors_file(path, tensors, numel, "BF16")
    generator = np.random.default_rng(0)
    with path.open("r+b") as file:
        file.seek(start)
        for _ in range(tensors):
            values = generator.standard_normal(numel, dtype=np.float32) * np.float32(0.02)
            file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def q4_k_file(path: Path, nbytes: int, tensors: int = 8) -> None:
    """Random blocks, their scales as small as those of real weights."""
    import numpy as np

    count = nbytes // tensors // (Q4_K_NBYTES * 2) * 2  # an even number of blocks needs no padding
    start = gguf_file(path, tensors, count * Q4_K_NUMEL, Q4_K)
    generator = np.random.default_rng(0)
    with path.open("r+b") as file:
        file.seek(start)
        for _ in range(tensors):
            blocks = generator.integers(0, 256, (count, Q4_K_NBYTES), dtype=np.uint8)
            scales = generator.uniform(0.0005, 0.002, (count, 2)).astype(np.float16)
            blocks[:, :4] = scales.view(np.uint8)
            file.write(blocks.tobytes())


# Contestants


def inspecting(path: str) -> Call:
    import modelglass as mg

    return partial(mg.inspect, path)


def inspecting_with_stats(path: str) -> Call:
    import modelglass as mg

    return partial(mg.inspect, path, stats=True)


def scanning(path: str) -> Call:
    import modelglass as mg

    return partial(mg.scan, path)


def gguf_reader(path: str) -> Call:
    import gguf

    return partial(gguf.GGUFReader, path)


def safe_open(path: str) -> Call:
    """Type and shape of every tensor, as the reference library gives them."""
    import numpy  # noqa: F401, which would be imported while the time is taken
    import safetensors

    def look() -> list[Any]:
        with safetensors.safe_open(path, framework="np") as file:
            slices = map(file.get_slice, file.keys())
            return [(each.get_dtype(), each.get_shape()) for each in slices]

    return look


def torch_figures(path: str) -> Call:
    """As one would write it: load the file, and four figures a tensor."""
    from safetensors.torch import load_file

    def figures() -> list[Any]:
        weights = load_file(path).values()
        return [(each.mean(), each.std(), each.min(), each.max()) for each in weights]

    return figures


def gguf_figures(path: str) -> Call:
    """The same with the reference package and numpy."""
    import gguf

    def figures() -> list[Any]:
        tensors = gguf.GGUFReader(path).tensors
        arrays = (gguf.dequantize(each.data, each.tensor_type) for each in tensors)
        return [(each.mean(), each.std(), each.min(), each.max()) for each in arrays]

    return figures


# Measuring


def modelglass(*args: str) -> Command:
    """The console script that belongs to this interpreter."""
    return [str(Path(sys.executable).parent / "modelglass"), *args]


def python(code: str, *args: str) -> Command:
    return [sys.executable, "-c", code, *args]


def loading_with_torch(path: str) -> Command:
    code = "import sys, torch; torch.load(sys.argv[1], mmap=True, weights_only=True)"
    return python(code, path)


def compile_modelglass() -> None:
    """Write the bytecode of modelglass, as its installer does; an editable one has none at first."""
    spec = find_spec("modelglass")
    assert spec is not None
    folders = spec.submodule_search_locations or []
    subprocess.run([sys.executable, "-m", "compileall", "-q", *folders], check=True)


def commands_take_turns(commands: dict[str, Command], rounds: int) -> dict[str, float]:
    """Median seconds of each process, from its start to its end."""
    # Bytecode may be written: whoever runs a command a second time has it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = partial(subprocess.run, env=environment, stdout=subprocess.DEVNULL, check=True)
    return take_turns({name: partial(run, command) for name, command in commands.items()}, rounds)


def calls_take_turns(calls: Mapping[str, Prepare], path: str, rounds: int) -> dict[str, Cost]:
    """What each call costs in fresh processes, after one round that does not count."""
    costs: dict[str, list[Cost]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, prepare in calls.items():
            cost = in_own_process(cost_of, prepare, path)
            if turn:
                costs[name].append(cost)
    return {name: Cost(*map(statistics.median, zip(*each, strict=True))) for name, each in costs.items()}


def cost_of(prepare: Prepare, path: str) -> Cost:
    """What one call costs in this process, whose peak includes the interpreter and what it imported."""
    call = prepare(path)
    began = time.perf_counter()
    result = call()
    cost = Cost(time.perf_counter() - began, peak_mib())
    del result  # it is kept until here, for its memory counts and its end does not
    return cost


def warm_calls_take_turns(calls: Mapping[str, Prepare], path: str, rounds: int) -> dict[str, float]:
    """Median seconds of calls that are made again and again in the same process."""
    return take_turns({name: prepare(path) for name, prepare in calls.items()}, rounds)


# Results


def faster(what: str, ours: float, beside: str, theirs: float, at_least: float | None = None) -> Row:
    ratio = theirs / ours
    if at_least is None:
        return Row(what, beside, f"{ratio:.2g} x as fast" if ratio < 10 else f"{ratio:.0f} x as fast")
    return Row(
        what, beside, f"{ratio:.1f} x as fast", f"at least {at_least:g} x", _verdict(ratio >= at_least)
    )


def longer(what: str, ours: float, beside: str, theirs: float, at_most: float | None = None) -> Row:
    ratio = ours / theirs
    if at_most is None:
        return Row(what, beside, f"{ratio:.2f} x as long")
    return Row(what, beside, f"{ratio:.2f} x as long", f"at most {at_most:g} x", _verdict(ratio <= at_most))


def smaller(what: str, ours: Cost, beside: str, theirs: Cost) -> Row:
    return Row(what, beside, f"{100 * ours.peak_mib / theirs.peak_mib:.0f} % of the peak memory")


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


class Results:
    """Rows of ratios as they come, and what they were made from."""

    def __init__(self, folder: Path, sizes: Sizes, rounds: int) -> None:
        self.folder, self.sizes, self.rounds = folder, sizes, rounds
        self.slow_rounds = min(rounds, MOST_SLOW_ROUNDS)
        self.absolute: list[str] = []

    def rows(self) -> Iterator[Row]:
        yield from self._state_dict()
        yield from self._start()
        yield from self._gguf()
        yield from self._many()
        yield from self._weights()
        yield from self._blocks()

    def _file(self, name: str, write: Callable[..., Any], *sizes: int) -> str:
        """Written by another process, or this one's memory would count in the peaks of its children."""
        path = self.folder / name
        in_own_process(write, path, *sizes)
        return str(path)

    def _note(self, what: str, seconds: float, peak: float | None = None, nbytes: int | None = None) -> None:
        memory = "" if peak is None else f"{peak:.0f} MiB"
        speed = "" if nbytes is None else f"{nbytes / seconds / 1e9:.2f} GB/s"
        self.absolute.append(f"| {what} | {seconds:.3f} | {memory} | {speed} |")

    def _state_dict(self) -> Iterator[Row]:
        path = self._file("layers.pt", state_dict_file, self.sizes.layers)
        commands = {
            "list": modelglass(path),
            "scan": modelglass("scan", path),
            "torch": loading_with_torch(path),
        }
        seconds = commands_take_turns(commands, self.rounds)
        file = f"`.pt` of {2 * self.sizes.layers:,} tensors"
        beside = "a process that runs `torch.load(mmap=True, weights_only=True)`"
        yield faster(f"`modelglass FILE`, {file}", seconds["list"], beside, seconds["torch"], 10)
        yield faster(f"`modelglass scan FILE`, {file}", seconds["scan"], beside, seconds["torch"])
        self._note(f"`modelglass FILE`, {file}", seconds["list"])
        self._note(f"`modelglass scan FILE`, {file}", seconds["scan"])
        self._note(f"`torch.load` in a process, {file}", seconds["torch"])

    def _start(self) -> Iterator[Row]:
        small = self._file("small.safetensors", safetensors_file, 4, 16)
        large = self._file("large.safetensors", safetensors_file, 4, self.sizes.sparse_nbytes // 16)
        commands = {
            "small": modelglass(small),
            "large": modelglass(large),
            "import": python("import modelglass"),
            "python": python("pass"),
        }
        seconds = commands_take_turns(commands, 3 * self.rounds)
        size = f"{self.sizes.sparse_nbytes // 2**30:,} GiB"
        listing, bare = "`modelglass FILE`, 4 tensors", "`python -c pass`"
        yield longer(f"{listing} of {size} in all", seconds["large"], "4 small ones", seconds["small"], 1.1)
        yield longer(f"{listing}, small", seconds["small"], bare, seconds["python"], 6)
        yield longer("`python -c 'import modelglass'`", seconds["import"], bare, seconds["python"])
        self._note(f"{listing} of {size}", seconds["large"])
        self._note(f"{listing}, small", seconds["small"])
        self._note("`python -c 'import modelglass'`", seconds["import"])
        self._note(bare, seconds["python"])

    def _gguf(self) -> Iterator[Row]:
        path = self._file("many.gguf", gguf_file, self.sizes.gguf_tensors, 8)
        theirs = "`gguf.GGUFReader`"
        calls = {"`mg.scan`": scanning, "`mg.inspect`": inspecting, theirs: gguf_reader}
        costs = calls_take_turns(calls, path, self.slow_rounds)
        file = f"GGUF of {self.sizes.gguf_tensors:,} tensors"
        for ours in ("`mg.scan`", "`mg.inspect`"):
            yield faster(f"{ours}, {file}", costs[ours].seconds, theirs, costs[theirs].seconds, 20)
            yield smaller(f"{ours}, {file}", costs[ours], theirs, costs[theirs])
        self._note_all(costs, file)

    def _many(self) -> Iterator[Row]:
        path = self._file("many.safetensors", safetensors_file, self.sizes.tensors, 1)
        theirs = "`safe_open`, every type and shape"
        calls = {"`mg.scan`": scanning, "`mg.inspect`": inspecting, theirs: safe_open}
        costs = calls_take_turns(calls, path, self.slow_rounds)
        file = f"safetensors of {self.sizes.tensors:,} tensors"
        for ours in ("`mg.scan`", "`mg.inspect`"):
            yield longer(f"{ours}, {file}", costs[ours].seconds, theirs, costs[theirs].seconds)
            yield smaller(f"{ours}, {file}", costs[ours], theirs, costs[theirs])
        self._note_all(costs, file)

    def _weights(self) -> Iterator[Row]:
        nbytes = self.sizes.weights_nbytes
        path = self._file("weights.safetensors", bfloat16_file, nbytes)
        calls = {"`mg.inspect(stats=True)`": inspecting_with_stats, "safetensors and torch": torch_figures}
        yield from self._statistics(calls, path, f"{nbytes // MIB} MiB of bfloat16", nbytes)

    def _blocks(self) -> Iterator[Row]:
        nbytes = self.sizes.blocks_nbytes
        path = self._file("blocks.gguf", q4_k_file, nbytes)
        calls = {"`mg.inspect(stats=True)`": inspecting_with_stats, "gguf and numpy": gguf_figures}
        yield from self._statistics(calls, path, f"{nbytes // MIB} MiB of Q4_K", nbytes)

    def _statistics(self, calls: Mapping[str, Prepare], path: str, file: str, nbytes: int) -> Iterator[Row]:
        ours, theirs = calls
        warm = in_own_process(warm_calls_take_turns, calls, path, self.slow_rounds)
        costs = calls_take_turns(calls, path, self.slow_rounds)
        yield faster(f"{ours}, {file}", warm[ours], theirs, warm[theirs])
        first = f"{ours}, {file}, first call of a process"
        yield faster(first, costs[ours].seconds, theirs, costs[theirs].seconds)
        yield smaller(first, costs[ours], theirs, costs[theirs])
        for name in calls:
            self._note(f"{name}, {file}", warm[name], nbytes=nbytes)
        self._note_all(costs, f"{file}, first call", nbytes)

    def _note_all(self, costs: dict[str, Cost], file: str, nbytes: int | None = None) -> None:
        for name, cost in costs.items():
            self._note(f"{name}, {file}", cost.seconds, cost.peak_mib, nbytes)


def page(rounds: int, sizes: Sizes) -> Iterator[str]:
    """The results as Markdown, a line at a time."""
    yield "# Benchmarks: files"
    yield ""
    packages = versions("torch", "safetensors", "gguf", "numpy", "numba")
    yield f"Printed by `benchmarks/files_speed.py` with {packages}."
    yield f"Each ratio is of medians over {min(rounds, MOST_SLOW_ROUNDS)} rounds or more, in which"
    yield "contestants take turns after a round that does not count."
    if sizes != Sizes():
        yield ""
        yield "**These files are tiny, to try the script out: goals are for files of full size.**"
    yield ""
    yield "| what | beside | ratio | goal | |"
    yield "|---|---|---:|---:|---|"
    compile_modelglass()
    with TemporaryDirectory() as folder:
        results = Results(Path(folder), sizes, rounds)
        for row in results.rows():
            yield f"| {' | '.join(row)} |"
    yield ""
    yield "Commands are timed as whole processes, interpreter and imports included; calls inside fresh"
    yield "processes, imports excluded, apart from what modelglass imports only when called. Statistics are"
    yield "measured twice: in a process that has computed them before, and as the first call, which loads"
    yield "numba and its loops. modelglass gives moments, extremes, tallies, quantiles and a histogram; the"
    yield "others give `mean`, `std`, `min` and `max`, with a whole file (safetensors) or a whole"
    yield "tensor (gguf) in memory."
    yield ""
    yield "## In seconds"
    yield ""
    yield "For orientation only: they differ from machine to machine. The peak is that of the whole process."
    yield ""
    yield "| what | seconds | peak | bytes of the file |"
    yield "|---|---:|---:|---:|"
    yield from results.absolute


if __name__ == "__main__":
    # Only `--quick` asks for as few as three rounds.
    write_page(lambda rounds: page(rounds, Sizes() if rounds > 3 else TINY), __doc__)
