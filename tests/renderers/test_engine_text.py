"""What serves a model, as text and Markdown: ranks that add up, parts named, padding apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import build
import build_engine
import modelglass as mg
from build_engine import LLAMA_70B, TINY, held
from modelglass.analyses.counts import count
from modelglass.analyses.serving import with_shares
from modelglass.api import RENDERERS
from modelglass.errors import UsageError
from modelglass.page.sections.engine import part_text, rank_rows
from modelglass.page.sources import dtype_text
from modelglass.renderers._escape import cell_width
from modelglass.report import CacheGroup, Observation, Packing, Piece, RankModel, Report, Shard
from output_checks import check

MEMORY = RENDERERS["memory"]

Golden = Callable[[str, str], None]
DEVICE = 80 * 2**30


def report(observed: Observation, **more: Any) -> Report:
    assert observed.engine is not None
    engine = replace(with_shares(observed.engine, observed.ranks, observed.whole), **more)
    return Report(
        model=observed.model,
        run=observed.run,
        counts=count(observed.model),
        notes=observed.notes,
        engine=engine,
    )


def large() -> Report:
    """Rank 3 of 8 of a Llama of 70 billion, and a device."""
    free = DEVICE * 9 // 10 - 2 * 8_820_367_360
    blocks = free // (16 * 40_960)
    cache = build_engine.cache(
        device_nbytes=DEVICE,
        utilization=0.9,
        free_nbytes=free,
        blocks=blocks,
        tokens=16 * blocks,
        nbytes=16 * blocks * 40_960,
        sequences=16 * blocks / 8192,
    )
    return report(build_engine.observation(LLAMA_70B, ranks=8, rank=3), cache=cache)


def generated() -> Report:
    return report(build_engine.generated(build_engine.observation(), "wor\x1b[31mld | <b>"))


@pytest.mark.parametrize("width", [60, 100, 160])
def test_a_rank_of_a_large_model(width: int, golden: Golden) -> None:
    text = mg.render(large(), "text", width=width)
    golden(f"text/engine-{width}.txt", text)
    assert all(cell_width(line) <= width for line in text.splitlines())


def test_a_page(golden: Golden) -> None:
    golden("markdown/engine.md", mg.render(generated(), "markdown"))


def test_an_engine_that_answered(golden: Golden) -> None:
    golden("text/engine-answered.txt", mg.render(generated(), "text", width=100))


def test_ranks_that_hold_the_same_share_a_row() -> None:
    every = [held(TINY, ranks=4, rank=rank) for rank in range(4)]
    engine = with_shares(build_engine.engine(tensor_parallel=4), every)
    rows = rank_rows(engine)
    assert [row[:4] for row in rows] == [
        ["0–2, each", "78,464", "0", "78,464"],
        ["3", "62,848", "15,616", "78,464"],
        ["whole", "263,552", "15,616", "279,168"],
    ]


def test_one_rank_alone_is_the_whole() -> None:
    engine = with_shares(build_engine.engine(), [held()])
    assert [row[0] for row in rank_rows(engine)] == ["0 (whole)"]


def test_a_hole_in_a_rank_is_shown() -> None:
    unsaid = build.tensor("a", trainable=None), build.tensor("b", shape=None, trainable=None)
    model = replace(build.model(*unsaid), source="vllm")
    observed = build_engine.observation(model=model, ranks=1)
    text = mg.render(report(replace(observed, ranks=(RankModel(0, model),), whole=None)), width=100)
    assert "0 (whole)         ≥ 6" in text
    assert "parameters  6 + unknown" in text
    assert "(root)  Block  unknown" in text


def test_weights_that_an_engine_emptied_keep_blocks_of_other_sizes_apart() -> None:
    def emptied(path: str, rows: int) -> Any:
        packing = Packing(scheme="onednn", logical_shape=(rows, 4), nbytes=8 * rows)
        return build.tensor(f"{path}.weight", shape=(0,), kind="packed", packing=packing)

    paths = [str(index) for index in range(6)]
    modules = (
        build.module("", children=tuple(paths)),
        *(build.module(path, "Linear", tensors=(f"{path}.weight",)) for path in paths),
    )
    tensors = [emptied(path, 8 if index < 3 else 16) for index, path in enumerate(paths)]
    model = build.model(*tensors, modules=modules)
    text = mg.render(Report(model=model, counts=count(model)), width=80)
    assert "0–2 ×3" in text
    assert "3–5 ×3" in text


@pytest.mark.parametrize(
    ("shape", "shard", "text"),
    [
        ((4, 8), Shard(whole=(8, 8), dim=0), "4 of 8 rows"),
        ((8, 2), Shard(whole=(8, 8), dim=1), "2 of 8 columns"),
        ((8, 8), Shard(whole=(8, 8), dim=0), ""),
        ((8, 8), Shard(whole=(8, 8)), ""),
        ((2_048,), Shard(whole=(4_096,), dim=0), "2,048 of 4,096 rows"),
        ((320, 8), Shard(whole=(259, 8), padding=61 * 8), "320 rows, 61 of them padding"),
        ((320, 8), Shard(whole=(259, 8), dim=0, padding=3), "320 rows, 3 elements of padding"),
        ((8, 64, 4), Shard(whole=(8, 256, 4), dim=1), "64 of 256 in dim 1"),
        (
            (6, 8),
            Shard(
                whole=(12, 8),
                dim=0,
                pieces=(Piece(name="q_a", size=8, held=4), Piece(name="kv_b", size=4, held=2)),
            ),
            "6 of 12 rows: q_a 4, kv_b 2",
        ),
        (
            (6, 8),
            Shard(whole=(6, 8), pieces=(Piece(name=None, size=4, held=4), Piece(name=None, size=2, held=2))),
            "4, 2",
        ),
    ],
)
def test_what_a_rank_holds_in_words(shape: tuple[int, ...], shard: Shard, text: str) -> None:
    assert part_text([("weight", build.tensor("weight", shape=shape), shard)]) == text


def test_a_bias_is_not_told_beside_its_weight_and_two_weights_are_named() -> None:
    cut = Shard(whole=(8, 8), dim=0)
    weight = ("weight", build.tensor("weight", shape=(4, 8)), cut)
    bias = ("bias", build.tensor("bias", shape=(4,)), Shard(whole=(8,), dim=0))
    assert part_text([weight, bias]) == "4 of 8 rows"
    assert part_text([bias]) == "4 of 8 rows"
    other = ("other", build.tensor("other", shape=(8, 2)), Shard(whole=(8, 8), dim=1))
    assert part_text([weight, other]) == "weight 4 of 8 rows; other 2 of 8 columns"


def test_caches_of_several_kinds_are_told_apart() -> None:
    groups = (
        CacheGroup(kind="SlidingWindowSpec", layers=52, block_size=16, block_nbytes=65_536, window=1024),
        CacheGroup(kind="MambaSpec", layers=8, block_size=64, block_nbytes=2**20, grows=False),
    )
    cache = build_engine.cache(groups=groups, state_nbytes=2**23, device_nbytes=2**30, free_nbytes=-(2**29))
    text = mg.render(report(build_engine.observation(), cache=cache), width=200)
    assert "52 × SlidingWindowSpec, 64.00 KiB a block, looking back over 1,024 tokens" in text
    assert "8 × MambaSpec, 1.00 MiB a block, of one size for each sequence" in text
    assert "8.00 MiB for each sequence, however long" in text
    assert "1.00 GiB: 512.00 MiB missing for the weights" in text


def test_a_model_without_a_cache_has_no_line_about_it() -> None:
    assert "KV cache" not in mg.render(report(build_engine.observation(), cache=None))


def test_blocks_fold_although_layers_carry_their_own_paths() -> None:
    def block(path: str, window: int = 0) -> tuple[Any, ...]:
        config = {"prefix": path, "layer_name": f"{path}.attn", "window": window}
        return build.module(path, children=(f"{path}.a",)), build.module(f"{path}.a", "Leaf", config=config)

    paths = [f"layers.{index}" for index in range(4)]
    blocks = [block(path, window=int(index == 3)) for index, path in enumerate(paths)]
    root = (
        build.module("", children=("layers",)),
        build.module("layers", "ModuleList", children=tuple(paths)),
    )
    model = build.model(modules=(*root, *(module for pair in blocks for module in pair)))
    text = mg.render(Report(model=model, counts=count(model)), width=140)
    assert "0–2 ×3" in text, "what differs is only the name"
    assert "window=1" in text.split("0–2 ×3")[1]
    stranger = build.module("layers.0.a", "Leaf", config={"shared_with": "layers.1.a"})
    modules = (*root, blocks[0][0], stranger, *(module for pair in blocks[1:3] for module in pair))
    parents = (modules[0], replace(modules[1], children=tuple(paths[:3])))
    model = build.model(modules=(*parents, *modules[2:]))
    assert "0–2" not in mg.render(Report(model=model, counts=count(model)), width=140)


def test_memory_and_data_are_not_followed_inside_an_engine() -> None:
    with pytest.raises(UsageError, match="not followed inside an engine"):
        MEMORY["text"](generated())
    with pytest.raises(UsageError, match="cannot be followed inside it"):
        mg.flow(generated())


def test_names_from_elsewhere_are_escaped() -> None:
    observed = build_engine.observation()
    parts = (replace(build_engine.COMPONENTS[0], type="Evil\x1b[2J", description="<script>|\u202e"),)
    told = report(observed, components=parts, version="0\x07")
    for format in ("text", "markdown"):
        shown = mg.render(told, format)
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "<script>" not in mg.render(told, "markdown")


def test_element_types_are_those_of_torch() -> None:
    assert dtype_text("vllm", "bfloat16") == "torch.bfloat16"


def test_the_page_of_a_rank_says_what_serves_it() -> None:
    page = mg.render(large(), "html")
    check("html", page)
    assert 'id="section-run"' in page
    assert "8 ranks share each layer" in page
