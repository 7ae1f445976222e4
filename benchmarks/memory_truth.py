"""Predicted memory beside what torch really allocated, for many models, in inference and in training.

    python benchmarks/memory_truth.py                    # all of it, some minutes
    python benchmarks/memory_truth.py --only "gpt2*"     # the models that fit the pattern
    python benchmarks/memory_truth.py --truth            # what is measured, twice, and nothing else
    python benchmarks/memory_truth.py --markdown         # as a table for a page

The truth is the base (parameters, buffers and inputs, each storage once) and the peak of what torch's
profiler saw being allocated and freed on the CPU while the step ran. Each run gets a model of its own. The
exit code is 1 when a pair could not be measured or predicted.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler tells of its every start otherwise

import torch
from memory_suite import Case, Mode, build, pairs
from side_by_side import versions
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The bytes that were held after each change while a step ran, and the peak of the step after it."""

    held: tuple[int, ...]
    later_peak: int | None = None  # None: nothing was trained

    @property
    def peak(self) -> int:
        return max(self.held)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What modelglass says of a first step and of later ones; moments are of the one that takes the most."""

    peak: int
    later_peak: int | None
    moments: tuple[int, ...]
    fake: bool  # False: fake tensors would not do, and the model ran on real ones


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model and mode: as measured, as predicted without and with kernels' scratch, and by torchinfo."""

    name: str
    mode: Mode
    truth: Truth
    plain: Prediction
    calibrated: Prediction
    torchinfo: int | None

    @property
    def wrong_moments(self) -> int:
        """Of all predicted moments, not only the peak: how many hold what was never held."""
        real = set(self.truth.held)
        return sum(moment not in real for moment in self.calibrated.moments)


def measured(name: str, mode: Mode) -> Truth:
    """The first step, or the pass without gradients, and the peak of the second step."""
    case = build(name, mode)
    if mode == "inference":
        return Truth(held=held_during(lambda: inference_step(case), _base(case)))
    optimizer = torch.optim.AdamW(case.model.parameters())
    first = held_during(lambda: training_step(case, optimizer), _base(case))
    optimizer.zero_grad(set_to_none=True)
    second = held_during(lambda: training_step(case, optimizer), _base(case, optimizer))
    return Truth(held=first, later_peak=max(second))


def measured_peak(step: Callable[[], Any], base: dict[int, int]) -> int:
    """The most memory that was held while the step ran. `base` is what was held before, by its address."""
    return max(held_during(step, base))


def held_during(step: Callable[[], Any], base: dict[int, int]) -> tuple[int, ...]:
    """What was held before the step and after each allocation and release in it."""
    held = dict(base)
    changes = [sum(base.values())]
    for address, nbytes in allocations(step):
        if nbytes > 0:
            held[address] = nbytes
            changes.append(nbytes)
        else:
            # Of memory from before it started the profiler may know an earlier tenant's size, so its own
            # figure is not used. What is neither the step's nor the base's was never counted.
            changes.append(-held.pop(address, 0))
    return tuple(accumulate(changes))


def allocations(step: Callable[[], Any]) -> list[tuple[int, int]]:
    """Address and bytes (negative: given back) of each event in order; what the step returns is kept.

    Raises when an event is missing or out of place: each carries the running total.
    """
    gc.collect()
    with _no_collection(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = step()
    events = [event.extra_fields for event in _allocation_events(profiler)]
    del result
    for before, after in pairwise(events):
        if before.total_allocated + after.alloc_size != after.total_allocated:
            raise RuntimeError("the profiler's allocation events are incomplete or out of order")
    return [(event.ptr, event.alloc_size) for event in events]


def inference_step(case: Case) -> Any:
    with torch.no_grad():
        return case.model(*case.args, **case.kwargs)


def training_step(case: Case, optimizer: torch.optim.Optimizer) -> Any:
    output = case.model(*case.args, **case.kwargs)
    loss = _loss(output)
    loss.backward()
    optimizer.step()
    return output, loss


def _loss(output: Any) -> Tensor:
    """The output's own loss, or else the sum of everything in it that has a gradient."""
    if getattr(output, "loss", None) is not None:
        return output.loss
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
    loss = tensors[0].sum()
    for tensor in tensors[1:]:
        loss = loss + tensor.sum()
    return loss


def _base(case: Case, optimizer: torch.optim.Optimizer | None = None) -> dict[int, int]:
    """Bytes of each storage that is there before the step, by its address."""
    state = [] if optimizer is None else list(optimizer.state.values())
    held = [*case.model.parameters(), *case.model.buffers(), *tree_leaves((case.args, case.kwargs, state))]
    storages = [tensor.untyped_storage() for tensor in held if isinstance(tensor, Tensor)]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _allocation_events(profiler: profile) -> Iterator[Any]:
    """Every allocation, depth first, which is the order of time on one thread."""
    waiting = list(reversed(profiler.profiler.kineto_results.experimental_event_tree()))
    while waiting:
        event = waiting.pop()
        if event.tag.name == "Allocation":
            yield event
        waiting += reversed(event.children)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """When the collector happens to run is chance, and no part of the step."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def predicted(name: str, mode: Mode, *, calibrate: bool) -> Prediction:
    """What modelglass says, without or with kernels' scratch."""
    import modelglass as mg

    case = build(name, mode)
    training = {"train": True, "optimizer": "adamw"} if mode == "train" else {}
    inputs = mg.Inputs(args=case.args, kwargs=case.kwargs)
    report = mg.inspect(case.model, inputs, calibrate=calibrate, **training)
    memory = report.memory
    return Prediction(
        peak=memory.peak_nbytes if memory.first_peak_nbytes is None else memory.first_peak_nbytes,
        later_peak=memory.later_peak_nbytes,
        moments=tuple(moment.nbytes for moment in memory.timeline),
        fake=report.run.mode == "fake",
    )


def torchinfo_says(name: str, mode: Mode) -> int | None:
    """Its estimate of parameters, passes and inputs together; None when it fails."""
    import torchinfo

    case = build(name, mode)
    given = list(case.args) or case.kwargs
    more = case.kwargs if case.args else {}
    running = "train" if mode == "train" else "eval"
    try:
        summary = torchinfo.summary(case.model, input_data=given, mode=running, verbose=0, **more)
    except RuntimeError:
        return None
    return summary.total_input + summary.total_output_bytes + summary.total_param_bytes


def compare(name: str, mode: Mode) -> Row:
    """Everything about one pair; the truth comes first, each part on a model of its own."""
    return Row(
        name=name,
        mode=mode,
        truth=measured(name, mode),
        plain=predicted(name, mode, calibrate=False),
        calibrated=predicted(name, mode, calibrate=True),
        torchinfo=torchinfo_says(name, mode),
    )


TRUTH = ("model", "step", "measured", "second step", "again")
COMPARED = (
    "model", "step", "measured", "predicted", "off by", "calibrated", "off by", "wrong moments",
    "second step", "predicted off by", "calibrated off by", "torchinfo",
)  # fmt: skip


def truth_cells(name: str, mode: Mode) -> list[str]:
    """The measurement, and whether another one of the same pair gives the same bytes."""
    first, again = measured(name, mode), measured(name, mode)
    later = "" if first.later_peak is None else f"{first.later_peak:,}"
    same = (first.peak, first.later_peak) == (again.peak, again.later_peak)
    return [name, mode, f"{first.peak:,}", later, "same" if same else f"{again.peak:,}"]


def row_cells(row: Row) -> list[str]:
    truth = row.truth
    return [
        row.name if row.plain.fake else f"{row.name} (ran for real)",
        row.mode,
        f"{truth.peak:,}",
        f"{row.plain.peak:,}",
        _off(row.plain.peak, truth.peak),
        f"{row.calibrated.peak:,}",
        _off(row.calibrated.peak, truth.peak),
        f"{row.wrong_moments} of {len(row.calibrated.moments)}",
        "" if truth.later_peak is None else f"{truth.later_peak:,}",
        _off(row.plain.later_peak, truth.later_peak),
        _off(row.calibrated.later_peak, truth.later_peak),
        "fails" if row.torchinfo is None else f"{row.torchinfo:,}",
    ]


def _off(said: int | None, real: int | None) -> str:
    if said is None or real is None:
        return ""
    return f"{said - real:+,}" if said != real else "0"


def closing(rows: Sequence[Row]) -> Iterator[str]:
    """How many are byte-exact, and the worst of those that are not."""
    trained = [row for row in rows if row.truth.later_peak is not None]
    for label, which in (("without calibration", "plain"), ("with calibration", "calibrated")):
        first = [(row, getattr(row, which).peak, row.truth.peak) for row in rows]
        later = [(row, getattr(row, which).later_peak, row.truth.later_peak) for row in trained]
        yield f"{label}: {_verdict(first)}"
        if later:
            yield f"{label}, second step: {_verdict(later)}"
    estimated = [(row, row.torchinfo, row.truth.peak) for row in rows if row.torchinfo is not None]
    if estimated:
        yield f"torchinfo: {_verdict(estimated)}"
    moments = sum(len(row.calibrated.moments) for row in rows)
    wrong = sum(row.wrong_moments for row in rows)
    yield f"moments of the calibrated timelines: {moments:,}, of which {wrong:,} hold what was never held"


def _verdict(found: Sequence[tuple[Row, int, int]]) -> str:
    exact = sum(said == real for _, said, real in found)
    row, said, real = max(found, key=lambda each: abs(each[1] - each[2]) / each[2])
    worst = f"at worst {abs(said - real) / real:.3%} off ({row.name}, {row.mode})"
    return f"{exact} of {len(found)} byte-exact" + ("" if exact == len(found) else f", {worst}")


def _line(texts: Sequence[str], markdown: bool) -> str:
    if markdown:
        return "| " + " | ".join(texts) + " |"
    name, mode, *figures = texts
    return f"{name:33} {mode:9} " + " ".join(f"{each:>13}" for each in figures)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="*", help="pattern of the models' names")
    parser.add_argument("--mode", default="*", help="inference or train")
    parser.add_argument("--truth", action="store_true", help="measure, and predict nothing")
    parser.add_argument("--markdown", action="store_true", help="print a table for a page")
    parser.add_argument("-o", "--output", type=Path, help="write the page here")
    return parser.parse_args()


def main() -> int:
    options = _options()
    if options.output is None:
        return table(options)
    options.markdown = True
    with io.StringIO() as page, contextlib.redirect_stdout(page):
        failures = table(options)
        options.output.write_text(PAGE + page.getvalue(), encoding="utf-8")
    return failures


PAGE = """# Benchmarks: memory

What modelglass predicts of a pass or a training step, beside what torch's profiler says a real one takes:
parameters, buffers and inputs, plus the peak of allocations on the CPU, in bytes. The real step is run in
the same process, on a model of its own. Training is forward, loss, backward and AdamW; the second step
finds gradients gone and the optimizer's state made. *Predicted* is the peak of live tensors, *calibrated*
adds what kernels take for themselves. *Wrong moments* are those of the whole calibrated timeline at which
something else is held than the real run ever held. Beside it the total of torchinfo's own estimate. `python
benchmarks/memory_truth.py -o docs/benchmarks-memory.md` writes this page.

"""


def table(options: argparse.Namespace) -> int:
    """Print a row for each pair, and what they come to; 1 when one of them fails."""
    header = TRUTH if options.truth else COMPARED
    print(_line(header, options.markdown))
    if options.markdown:
        print(_line(["---", "---", *["---:"] * (len(header) - 2)], True))
    rows: list[Row] = []
    failures = 0
    for name, mode in pairs():
        if not (fnmatch(name, options.only) and fnmatch(mode, options.mode)):
            continue
        try:
            if options.truth:
                texts = truth_cells(name, mode)
            else:
                rows.append(compare(name, mode))
                texts = row_cells(rows[-1])
        except Exception as error:  # noqa: BLE001 - one pair that fails must not hide the others
            failures += 1
            texts = [name, mode, f"fails: {type(error).__name__}"]
            traceback.print_exc()
        print(_line(texts, options.markdown), flush=True)
    if rows:
        print()
        for line in closing(rows):
            print(f"- {line}" if options.markdown else line)
        print(("\n" if options.markdown else "") + versions("torch", "transformers", "timm", "torchinfo"))
    return 1 if failures else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    code = main()
    print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr)
    sys.exit(code)
