"""How long it takes to look into files, beside the libraries that load them, in one run.

    python benchmarks/run.py --only files       # into the results and pages, some ten minutes
    python benchmarks/files_speed.py --quick    # one round of tiny files, as lines on the screen

Only ratios mean something: contestants take turns on the same files. Commands are timed from outside, as
processes; calls are timed in processes of their own, which do nothing else, so that each has its own peak.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from files_ratios import Cost, Ratio, faster, files_details, longer, smaller
from made_files import bfloat16_file, gguf_file, q4_k_file, safetensors_file, state_dict_file
from side_by_side import in_own_process, peak_mib, take_turns, write_page

MIB = 2**20
PICKLESCAN = "`picklescan --path FILE`"
ROUNDS, QUICK_ROUNDS = 7, 1
MOST_SLOW_ROUNDS = 3  # of calls that take a minute

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


def picklescan_function(path: str) -> Call:
    """What `picklescan --path` calls."""
    from picklescan.scanner import scan_file_path

    return partial(scan_file_path, path)


def torch_load(path: str) -> Call:
    import torch

    return partial(torch.load, path, mmap=True, weights_only=True)


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
    return script("modelglass", *args)


def script(name: str, *args: str) -> Command:
    """A console script that belongs to this interpreter."""
    return [str(Path(sys.executable).parent / name), *args]


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


class Results:
    """Rows of ratios as they come, and what they were made from."""

    def __init__(self, folder: Path, sizes: Sizes, rounds: int) -> None:
        self.folder, self.sizes, self.rounds = folder, sizes, rounds
        self.slow_rounds = min(rounds, MOST_SLOW_ROUNDS)
        self.costs: list[dict[str, Any]] = []

    def ratios(self) -> Iterator[Ratio]:
        yield from self._state_dict()
        yield from self._start()
        yield from self._gguf()
        yield from self._many()
        yield from self._weights()
        yield from self._blocks()

    def _file(self, name: str, write: Callable[..., Any], *sizes: int) -> str:
        """Written by another process, so that this one stays small."""
        path = self.folder / name
        in_own_process(write, path, *sizes)
        return str(path)

    def _note(self, what: str, seconds: float, peak: float | None = None, nbytes: int | None = None) -> None:
        self.costs.append({"what": what, "seconds": seconds, "peak_mib": peak, "nbytes": nbytes})

    def _state_dict(self) -> Iterator[Ratio]:
        path = self._file("layers.pt", state_dict_file, self.sizes.layers)
        commands = {
            "list": modelglass(path),
            "scan": modelglass("scan", path),
            "torch": loading_with_torch(path),
            "picklescan": script("picklescan", "--path", path),
        }
        seconds = commands_take_turns(commands, self.rounds)
        file = f"`.pt` of {2 * self.sizes.layers:,} tensors"
        beside = "a process that runs `torch.load(mmap=True, weights_only=True)`"
        yield faster(f"`modelglass FILE`, {file}", seconds["list"], beside, seconds["torch"], 10)
        yield faster(f"`modelglass scan FILE`, {file}", seconds["scan"], beside, seconds["torch"])
        self._note(f"`modelglass FILE`, {file}", seconds["list"])
        self._note(f"`modelglass scan FILE`, {file}", seconds["scan"])
        yield faster(f"`modelglass scan FILE`, {file}", seconds["scan"], PICKLESCAN, seconds["picklescan"])
        self._note(f"`torch.load` in a process, {file}", seconds["torch"])
        self._note(f"{PICKLESCAN}, {file}", seconds["picklescan"])
        theirs = ("`picklescan.scanner.scan_file_path`", "`torch.load(mmap=True, weights_only=True)`")
        calls = dict(zip(("`mg.scan`", *theirs), (scanning, picklescan_function, torch_load), strict=True))
        costs = calls_take_turns(calls, path, self.rounds)
        for each in theirs:
            yield faster(f"`mg.scan`, {file}", costs["`mg.scan`"].seconds, each, costs[each].seconds)
            yield smaller(f"`mg.scan`, {file}", costs["`mg.scan`"], each, costs[each])
        self._note_all(costs, file)

    def _start(self) -> Iterator[Ratio]:
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

    def _gguf(self) -> Iterator[Ratio]:
        path = self._file("many.gguf", gguf_file, self.sizes.gguf_tensors, 8)
        theirs = "`gguf.GGUFReader`"
        calls = {"`mg.scan`": scanning, "`mg.inspect`": inspecting, theirs: gguf_reader}
        costs = calls_take_turns(calls, path, self.slow_rounds)
        file = f"GGUF of {self.sizes.gguf_tensors:,} tensors"
        for ours in ("`mg.scan`", "`mg.inspect`"):
            yield faster(f"{ours}, {file}", costs[ours].seconds, theirs, costs[theirs].seconds, 20)
            yield smaller(f"{ours}, {file}", costs[ours], theirs, costs[theirs])
        self._note_all(costs, file)

    def _many(self) -> Iterator[Ratio]:
        path = self._file("many.safetensors", safetensors_file, self.sizes.tensors, 1)
        theirs = "`safe_open`, every type and shape"
        calls = {"`mg.scan`": scanning, "`mg.inspect`": inspecting, theirs: safe_open}
        costs = calls_take_turns(calls, path, self.slow_rounds)
        file = f"safetensors of {self.sizes.tensors:,} tensors"
        for ours in ("`mg.scan`", "`mg.inspect`"):
            yield longer(f"{ours}, {file}", costs[ours].seconds, theirs, costs[theirs].seconds)
            yield smaller(f"{ours}, {file}", costs[ours], theirs, costs[theirs])
        self._note_all(costs, file)

    def _weights(self) -> Iterator[Ratio]:
        nbytes = self.sizes.weights_nbytes
        path = self._file("weights.safetensors", bfloat16_file, nbytes)
        calls = {"`mg.inspect(stats=True)`": inspecting_with_stats, "safetensors and torch": torch_figures}
        yield from self._statistics(calls, path, f"{nbytes // MIB} MiB of bfloat16", nbytes)

    def _blocks(self) -> Iterator[Ratio]:
        nbytes = self.sizes.blocks_nbytes
        path = self._file("blocks.gguf", q4_k_file, nbytes)
        calls = {"`mg.inspect(stats=True)`": inspecting_with_stats, "gguf and numpy": gguf_figures}
        yield from self._statistics(calls, path, f"{nbytes // MIB} MiB of Q4_K", nbytes)

    def _statistics(self, calls: Mapping[str, Prepare], path: str, file: str, nbytes: int) -> Iterator[Ratio]:
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


def files(quick: bool = False) -> dict[str, Any]:
    """All ratios and what they were made from, as plain values."""
    rounds, sizes = (QUICK_ROUNDS, TINY) if quick else (ROUNDS, Sizes())
    compile_modelglass()
    ratios = []
    with TemporaryDirectory() as folder:
        results = Results(Path(folder), sizes, rounds)
        for ratio in results.ratios():
            print(f"  {ratio.what} | {ratio.beside} | {ratio.shown}", file=sys.stderr)
            ratios.append(ratio._asdict())
    least = min(rounds, MOST_SLOW_ROUNDS)
    return {"rounds": least, "tiny": quick, "ratios": ratios, "costs": results.costs}


if __name__ == "__main__":
    write_page(lambda rounds: files_details(files(quick=rounds < ROUNDS)), __doc__)
