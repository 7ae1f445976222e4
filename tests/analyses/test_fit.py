"""The search for what fits, against trying every size, and the changes that make a step fit."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import log2
from typing import Any

import pytest

import build
from modelglass.analyses.fit.planner import Planner
from modelglass.analyses.fit.search import LARGEST, Figure, find_largest
from modelglass.errors import ForwardError, InspectError, UsageError
from modelglass.report import Lifetimes, Model, OptimizerStep, Step, Storage, WhatIf

Needs = Callable[[int], int | None]


def every(needs: Needs, device_nbytes: int, limit: int) -> int | None:
    """The largest that fits, by trying each."""
    fits = [
        size for size in range(1, limit + 1) if (found := needs(size)) is not None and found <= device_nbytes
    ]
    return max(fits, default=None)


def linear(rng: random.Random) -> Needs:
    base, slope = rng.randrange(10**6), rng.randrange(1, 10**4)
    return lambda size: base + slope * size


def jumpy(rng: random.Random) -> Needs:
    base, slope, step = rng.randrange(10**6), rng.randrange(1, 10**4), rng.choice([2, 16, 64])
    return lambda size: base + slope * (-(-size // step) * step)


def attention(rng: random.Random) -> Needs:
    base, slope, square = rng.randrange(10**6), rng.randrange(1, 10**4), rng.randrange(1, 100)
    return lambda size: base + slope * size + square * size**2


def two_peaks(rng: random.Random) -> Needs:
    first, second = linear(rng), linear(rng)
    return lambda size: max(first(size) or 0, second(size) or 0)


def noisy(rng: random.Random) -> Needs:
    base, slope = rng.randrange(10**6), rng.randrange(2, 10**4)
    return lambda size: base + slope * size + size * 2654435761 % 2**32 % (slope // 2)


def ending(rng: random.Random) -> Needs:
    """Runs beyond a length fail."""
    needs, end = linear(rng), rng.randrange(1, 1500)
    return lambda size: needs(size) if size <= end else None


# Sizes looked at, the most over all of the cases below; trying each takes 2,000.
SHAPES = {linear: 4, attention: 5, two_peaks: 12, noisy: 10, ending: 18, jumpy: 20}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_search_finds_what_trying_every_size_finds(shape: Callable[[random.Random], Needs]) -> None:
    rng = random.Random(0)
    most = 0
    for _ in range(150):
        needs, limit = shape(rng), 2_000
        start, device_nbytes = rng.choice([1, 2, 8, 32, 500]), rng.randrange(10**7)
        seen: list[int] = []

        def figure_at(size: int, needs: Needs = needs, seen: list[int] = seen) -> Figure:
            seen.append(size)
            return Figure(needs(size))

        found = find_largest(figure_at, start, device_nbytes, limit=limit)
        assert found.size == every(needs, device_nbytes, limit)
        assert len(set(seen)) == len(seen), "a size was asked for twice"
        if found.size is not None:
            assert found.nbytes == needs(found.size)
            assert found.size in seen
        edge = (found.size or 0) + 1
        assert edge in seen or edge > limit
        assert found.next_nbytes == (needs(edge) if edge <= limit else None)
        most = max(most, len(seen))
    assert most <= SHAPES[shape]


def test_what_does_not_grow_ends_at_the_limit_at_once() -> None:
    seen = []

    def figure_at(size: int) -> Figure:
        seen.append(size)
        return Figure(10)

    found = find_largest(figure_at, 4, 100)
    assert (found.size, found.nbytes, found.next) == (LARGEST, 10, None)
    assert seen == [4, 8, LARGEST]


def test_a_table_of_a_power_of_two_is_found_in_a_few_runs() -> None:
    seen = []

    def figure_at(size: int) -> Figure:
        seen.append(size)
        return Figure(size if size <= 1024 else None)

    assert find_largest(figure_at, 16, 10**6).size == 1024
    assert len(seen) <= 9


class Machine:
    """Stands for fake runs of a model with two blocks: counts them and remembers the changes."""

    def __init__(
        self,
        *,
        per_item: int = 10,
        weights: int = 1000,
        saved: int = 0,
        momentum: int = 0,
        longest: int | None = None,
    ) -> None:
        self.per_item, self.weights, self.saved, self.longest = per_item, weights, saved, longest
        self.momentum = momentum
        self.asked: list[WhatIf] = []

    def __call__(self, what_if: WhatIf) -> Lifetimes:
        self.asked.append(what_if)
        batch, seq_len = what_if.batch_size or 8, what_if.seq_len or 4
        if self.longest is not None and seq_len > self.longest:
            raise ForwardError(f"layers.0 raised IndexError at {seq_len}", hint="shorten it")
        weights = self.weights // (2 if what_if.weights == "bfloat16" else 1)
        saved = self.saved if not what_if.recompute else self.saved // 10
        activations = (self.per_item * seq_len + saved) * batch
        weight = Storage(nbytes=weights, category="parameters", shape=(weights,), name="layers.0.fc.weight")
        steps = (Step(op="mm", module="layers.0.fc", phase="forward"),) * 2
        return Lifetimes(
            steps=(*steps, Step(op="mm", module="layers.0.fc", phase="backward")),
            storages=(
                weight,
                Storage(nbytes=activations, category="activations", born=0, saved_by="layers.0.fc"),
            ),
            forward_steps=2,
            tails={"adamw": self._tail(8 * weights), "sgd": self._tail(self.momentum * weights)},
        )

    def _tail(self, nbytes: int) -> OptimizerStep:
        state = Storage(
            nbytes=nbytes,
            category="optimizer_state",
            born=3,
            shape=(8, nbytes // 8),
            name="layers.0.fc.weight",
        )
        return OptimizerStep(steps=(Step(op="add_", module="", phase="optimizer"),), storages=(state,))


def two_blocks(**more: Any) -> Model:
    config = {"in_features": 8, "out_features": 8}
    paths = ("layers.0", "layers.1")
    return build.model(
        *(build.tensor(f"{path}.fc.weight", (8, 8)) for path in paths),
        modules=(
            build.module("", children=("layers",)),
            build.module("layers", "ModuleList", children=paths),
            *(build.module(path, children=(f"{path}.fc",)) for path in paths),
            *(
                build.module(f"{path}.fc", "Linear", tensors=(f"{path}.fc.weight",), config=config)
                for path in paths
            ),
            *more.pop("modules", ()),
        ),
        **more,
    )


def planner(machine: Machine, **more: Any) -> Planner:
    given: dict[str, Any] = {"train": True, "optimizer": "adamw", "batch_size": 8, "seq_len": 4}
    return Planner(machine, two_blocks(), **{**given, **more})


def test_a_step_that_fits_has_a_margin_and_the_largest_sizes() -> None:
    machine = Machine()  # 1000 weights, 8000 state, 40 an item of the batch
    fit = planner(machine).fit(10_000)
    assert (fit.fits, fit.peak_nbytes, fit.margin_nbytes) == (True, 9_320, 680)
    assert (fit.batch_size, fit.largest_batch) == (8, 25)
    assert (fit.largest_batch_peak_nbytes, fit.next_batch_peak_nbytes) == (10_000, 10_040)
    assert (fit.seq_len, fit.largest_seq_len, fit.largest_seq_len_peak_nbytes) == (4, 12, 9_960)
    assert (fit.options, fit.limited, fit.method, fit.optimizer) == ((), False, "exact", "adamw")
    assert fit.runs == len(machine.asked) == 7
    assert WhatIf(batch_size=25) in machine.asked
    assert WhatIf(batch_size=26) in machine.asked


def test_a_batch_that_is_too_large_is_made_smaller() -> None:
    fit = planner(Machine(per_item=100)).fit(10_000, options=False)
    assert (fit.fits, fit.largest_batch, fit.largest_batch_peak_nbytes) == (False, 2, 9_800)
    assert fit.next_batch_peak_nbytes == 10_200
    assert fit.largest_seq_len == 1


def test_when_not_even_one_fits_there_is_no_largest() -> None:
    fit = planner(Machine()).fit(9_000, options=False)
    assert (fit.fits, fit.largest_batch, fit.largest_batch_peak_nbytes) == (False, None, None)
    assert fit.next_batch_peak_nbytes == 9_040


def test_inputs_without_batch_and_sequence_are_run_once() -> None:
    machine = Machine()
    fit = planner(machine, batch_size=None, seq_len=None).fit(10_000)
    assert (fit.batch_size, fit.largest_batch, fit.seq_len, fit.largest_seq_len) == (None,) * 4
    assert len(machine.asked) == 1


def test_what_never_fills_the_device_is_limited_by_the_search() -> None:
    fit = planner(Machine(per_item=0), seq_len=None).fit(10_000)
    assert (fit.largest_batch, fit.next_batch_peak_nbytes, fit.limited) == (LARGEST, None, True)


def test_a_length_that_cannot_run_is_no_answer_and_says_why() -> None:
    fit = planner(Machine(longest=6)).fit(10_000)
    assert fit.largest_seq_len == 6
    assert (fit.options, fit.next_seq_len_peak_nbytes) == ((), None)
    assert fit.seq_len_problem == "layers.0 raised IndexError at 7"


def test_a_run_that_fails_as_given_is_an_error() -> None:
    with pytest.raises(InspectError, match="IndexError at 4"):
        planner(Machine(longest=3)).fit(10_000)


def positions(name: str, rows: int, **config: Any) -> Any:
    return build.module(name, "Embedding", config={"num_embeddings": rows, "embedding_dim": 8, **config})


TABLES = {
    "as many as it has": (positions("wpe", 9), 9),
    "fewer by padding": (positions("position_embeddings", 9, padding_idx=1), 7),
    "fewer by an offset": (positions("embed_positions", 9, offset=2, padding_idx=None), 7),
    "distances are no positions": (positions("relative_position_bias", 9), 12),
    "words are no positions": (positions("wte", 9), 12),
    "too short to be asked": (positions("wpe", 3), 12),
}


@pytest.mark.parametrize(("table", "longest"), TABLES.values(), ids=TABLES)
def test_a_table_of_positions_ends_the_sequence(table: Any, longest: int) -> None:
    machine = Machine()
    planner = Planner(
        machine, two_blocks(modules=(table,)), train=True, optimizer="adamw", batch_size=8, seq_len=4
    )
    fit = planner.fit(10_000)
    assert fit.largest_seq_len == longest
    assert not fit.limited
    if longest != 12:
        assert fit.seq_len_problem == f"{table.path} has {longest} positions"
        assert max(each.seq_len or 0 for each in machine.asked) <= longest


def test_a_table_that_was_asked_for_other_lengths_ends_nothing() -> None:
    call = build.call("vision.wpe", inputs=(build.value("0", 1, 7, dtype="int64"),))
    model = two_blocks(modules=(positions("vision.wpe", 9),), calls=(call,))
    found = Planner(Machine(), model, train=True, optimizer="adamw", seq_len=4).fit(10_000)
    assert found.largest_seq_len == 12


def told(machine: Machine, device_nbytes: int, **more: Any) -> dict[WhatIf, Any]:
    fit = planner(machine, **more).fit(device_nbytes)
    assert not fit.fits
    return {option.what_if: option for option in fit.options}


def test_other_optimizers_take_no_run_of_their_own() -> None:
    machine = Machine()
    options = told(machine, 5_000)
    assert (options[WhatIf(optimizer="sgd")].fits, options[WhatIf(optimizer="sgd")].peak_nbytes) == (
        True,
        1_320,
    )
    assert not any(asked.optimizer for asked in machine.asked)
    assert machine.asked.count(WhatIf()) == 1


def test_options_are_worked_out_each_by_its_own_run() -> None:
    machine = Machine(saved=1_000)  # 8,000 of them can be thrown away
    options = told(machine, 16_000)
    checkpointed = options[WhatIf(recompute=("layers.*",))]
    assert (checkpointed.fits, checkpointed.peak_nbytes, checkpointed.method) == (True, 10_120, "exact")
    one = options[WhatIf(batch_size=1, accumulate=8)]
    assert (one.fits, one.peak_nbytes) == (True, 10_040)
    half = options[WhatIf(weights="bfloat16")]
    assert (half.fits, half.peak_nbytes) == (True, 12_820)
    for change in (checkpointed, one, half):
        assert change.what_if in machine.asked


def test_the_fewest_devices_that_fit_are_named() -> None:
    machine = Machine(weights=8_000, per_item=0)  # 64,000 of state
    options = told(machine, 20_000)
    shards = {each.sharding: each.devices for each in options if each.sharding and each.weights is None}
    # 8,000 + 64,000 / n; 8,000 / n + the block gathered + 64,000 / n; 72,000 / n
    assert shards == {"fsdp2": 8, "fsdp3": 8, "tensor": 4}
    assert {each.method for each in options.values() if each.what_if.sharding} == {"estimate"}
    assert not any(asked.sharding for asked in machine.asked)


def test_tensor_parallelism_is_offered_where_there_are_matrices() -> None:
    model = build.model(build.tensor("conv.weight", (8, 8, 3, 3)))
    fit = Planner(Machine(), model, train=True, optimizer="adamw").fit(5_000)
    assert {each.what_if.sharding for each in fit.options} == {None, "fsdp2", "fsdp3"}


def test_changes_that_are_not_enough_alone_are_tried_together() -> None:
    machine = Machine(saved=1_000)
    options = told(machine, 6_000)
    small = {"batch_size": 1, "accumulate": 8}
    together = {
        each.what_if: each.peak_nbytes for each in options.values() if each.method == "exact" and each.fits
    }
    assert together == {
        WhatIf(optimizer="sgd", recompute=("layers.*",)): 2_120,
        WhatIf(optimizer="sgd", **small): 2_040,
        WhatIf(weights="bfloat16", **small): 5_540,
    }
    assert WhatIf(weights="bfloat16", **small) in machine.asked


def test_ways_to_the_same_end_are_not_combined() -> None:
    for each in told(Machine(saved=1_000), 500):
        assert not (each.weights and each.autocast)
        assert each.weights or not each.master_weights


def test_when_nothing_else_helps_all_changes_go_over_several_devices() -> None:
    options = told(Machine(saved=1_000, weights=2_000, momentum=1), 1_900)
    fitting = [each.what_if for each in options.values() if each.fits]
    everything = WhatIf(
        optimizer="sgd",
        weights="bfloat16",
        batch_size=1,
        accumulate=8,
        recompute=("layers.*",),
        sharding="fsdp3",
        devices=4,
    )
    assert everything in fitting


def test_what_fits_comes_first_and_the_fewest_changes_of_it() -> None:
    fit = planner(Machine(saved=1_000)).fit(16_000)
    ranks = [(not option.fits, option.fits is None) for option in fit.options]
    assert ranks == sorted(ranks)


def test_inference_is_offered_weights_in_few_bits_and_no_training() -> None:
    class Inference(Machine):
        def __call__(self, what_if: WhatIf) -> Lifetimes:
            found = super().__call__(what_if)
            weight = replace(found.storages[0], nbytes=256, shape=(8, 8), dtype="float32")
            return replace(found, storages=(weight,), steps=found.steps[:2], tails={})

    options = told(Inference(), 100, train=False)
    assert options[WhatIf(weights="int8")].peak_nbytes == 64 + 8 * 4
    assert options[WhatIf(weights="int4")].peak_nbytes == 32 + 4
    assert options[WhatIf(weights="int8")].method == "estimate"
    for each in options:
        assert not each.recompute
        assert each.accumulate == 1
        assert each.optimizer is None
        assert each.sharding in (None, "fsdp3", "tensor")


def test_an_option_that_cannot_run_says_why() -> None:
    class Picky(Machine):
        def __call__(self, what_if: WhatIf) -> Lifetimes:
            if what_if.autocast:
                raise ForwardError("no kernel for bfloat16", hint="another type")
            return super().__call__(what_if)

    option = told(Picky(), 5_000)[WhatIf(autocast="bfloat16")]
    assert (option.fits, option.peak_nbytes, option.problem) == (None, None, "no kernel for bfloat16")


def test_a_base_is_part_of_everything() -> None:
    machine = Machine()
    base = WhatIf(weights="bfloat16", batch_size=4)
    fit = planner(machine).fit(4_000, base=base)
    assert (fit.peak_nbytes, fit.batch_size) == (4_660, 4)
    assert {asked.weights for asked in machine.asked} == {"bfloat16"}
    assert all(option.what_if.weights == "bfloat16" for option in fit.options)


def test_a_size_as_given_is_no_other_run() -> None:
    machine = Machine()
    given = planner(machine)
    assert given.memory(WhatIf(batch_size=8, seq_len=4)).peak_nbytes == given.memory().peak_nbytes
    assert machine.asked == [WhatIf()]


def test_the_memory_of_a_change_says_what_it_is_of() -> None:
    given = planner(Machine())
    assert given.memory().what_if is None
    found = given.memory(WhatIf(sharding="ddp", devices=2))
    assert (found.method, found.what_if) == ("estimate", WhatIf(sharding="ddp", devices=2))
    assert given.memory(WhatIf(optimizer="sgd")).method == "exact"
    with pytest.raises(UsageError, match="no step of the optimizer 'lion'"):
        given.memory(WhatIf(optimizer="lion"))


def test_each_run_is_told_in_a_line() -> None:
    lines: list[str] = []
    found = planner(Machine(), progress=lines.append).fit(10_000)
    assert len(lines) == found.runs
    assert lines[:2] == ["fake run 1: as given", "fake run 2: batch size 16"]
    lines.clear()
    change = WhatIf(weights="bfloat16", master_weights=True, recompute=("a.*", "b.*"))
    planner(Machine(), progress=lines.append).memory(change)
    assert lines == ["fake run 1: weights bfloat16, master weights, recompute a.* b.*"]


def test_the_longest_sequence_ends_with_the_positions_of_the_model() -> None:
    fit = planner(Machine(), context=9).fit(10_000)
    assert (fit.largest_seq_len, fit.context_length, fit.seq_len_problem) == (9, 9, None)
    longer = planner(Machine(), context=3).fit(10_000)
    assert longer.largest_seq_len == 12
    assert [note.code for note in longer.notes] == ["beyond-context"]


def test_figures_without_scratch_are_lower_bounds() -> None:
    assert planner(Machine()).fit(10_000).is_lower_bound
    calibrated = planner(lambda what_if: replace(Machine()(what_if), calibrated=True)).fit(10_000)  # type: ignore[arg-type]
    assert (calibrated.is_lower_bound, calibrated.method) == (False, "measured")


def test_options_save_something_and_are_worth_their_devices_and_what_leaves_most_is_first() -> None:
    machine = Machine(weights=300, per_item=1_000)  # 32,000 that no device takes over
    fit = planner(machine).fit(2_000)
    peaks = [each.peak_nbytes or 0 for each in fit.options]
    assert peaks == sorted(peaks)
    assert max(peaks) < 0.99 * fit.peak_nbytes
    for each in fit.options:
        if each.what_if.devices > 1 and each.peak_nbytes:
            assert each.what_if.devices <= 8 * log2(fit.peak_nbytes / each.peak_nbytes)
    assert not any(each.what_if.sharding in ("fsdp2", "ddp") for each in fit.options)


def test_a_size_that_nothing_follows_is_no_batch() -> None:
    class Unread(Machine):
        def __call__(self, what_if: WhatIf) -> Lifetimes:
            found = super().__call__(replace(what_if, batch_size=None))
            given = Storage(nbytes=8 * (what_if.batch_size or 8), category="inputs")
            return replace(found, storages=(*found.storages, given))

    fit = planner(Unread(), seq_len=None).fit(10_000)
    assert (fit.batch_size, fit.largest_batch) == (None, None)
    assert [note.code for note in fit.notes] == ["batch-unknown"]
