"""What serves a model, as labels and texts and a table of ranks for any output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING

from modelglass.page import Block, Column, Facts, Table
from modelglass.page.sources import engine_name
from modelglass.page.units import shape_text, size

if TYPE_CHECKING:
    from modelglass.report import (
        CacheGroup,
        Engine,
        PagedCache,
        Piece,
        Report,
        Shape,
        Shard,
        Share,
        Tensor,
    )

_RANKS = (
    Column("rank", "rank"),
    Column("params", "parameters", number=True),
    Column("padding", "+ padding", number=True),
    Column("held", "= held", number=True),
    Column("weights", "weights", number=True),
    Column("nbytes", "with buffers", number=True),
)
_SPARE = ("nbytes", "held", "padding")  # left out first where a line is too short

_REACHED = {
    "in-process": "read in this process",
    "workers": "read in its worker processes",
    "meta": "built without weights and without an engine",
}
_TOLD = frozenset({"kv_cache", "parallel"})  # parts whose facts have lines of their own
_DIMS = ("rows", "columns")

Rows = Iterator[tuple[str, str]]


def listed_share(report: Report) -> Share | None:
    """What the rank holds whose modules the report lists."""
    engine = report.engine
    return None if engine is None else next((s for s in engine.ranks if s.rank == engine.rank), None)


def blocks(report: Report, engine: Engine) -> Iterator[Block]:
    """What serves the model, and what its ranks hold."""
    yield Facts(list(engine_rows(report, engine)), head="served by", most=4)
    rows = rank_rows(engine)
    if rows:
        yield Table(_RANKS, rows, spare=_SPARE, whole=True)


def engine_rows(report: Report, engine: Engine) -> Rows:
    """What the engine is, how it divides the model, what it keeps of each token, and its settings."""
    yield "engine", f"{engine_name(report.model.source)} {engine.version}, {_REACHED[engine.reached]}"
    yield "parallel", _layout(engine)
    if engine.cache is not None:
        yield from _cache(engine.cache, " on each rank" if _divides(engine) else "")
    for part in engine.components:
        if part.name not in _TOLD:
            yield part.name.replace("_", " "), f"{part.type}: {_continued(part.description)}"


def _continued(text: str) -> str:
    """The text as it reads in the middle of a sentence."""
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def _layout(engine: Engine) -> str:
    sizes = (
        (engine.tensor_parallel, "ranks share each layer"),
        (engine.pipeline_parallel, "stages follow each other"),
        (engine.data_parallel, "copies run beside each other"),
    )
    parts = [f"{count:,} {what}" for count, what in sizes if count > 1]
    if engine.expert_parallel:
        parts.append("experts are divided among ranks")
    if not parts:
        return "one rank"
    return f"{', '.join(parts)}; rank {engine.rank} is listed above"


def _divides(engine: Engine) -> bool:
    return engine.tensor_parallel * engine.pipeline_parallel > 1


def _cache(cache: PagedCache, where: str) -> Rows:
    each = f"{cache.nbytes_per_token:,} B a token{where}"
    yield "KV cache", f"{each}, {cache.dtype}, in blocks of {cache.block_size:,} tokens"
    if cache.groups:
        yield "  layers", "; ".join(map(_group, cache.groups))
    if cache.state_nbytes:
        yield "  state", f"{size(cache.state_nbytes)} for each sequence, however long"
    if cache.device_nbytes is not None:
        yield "  device", _device(cache, cache.device_nbytes)
    if cache.tokens is not None or cache.blocks is not None:
        yield "  fits", _fits(cache)
    if cache.sequences is not None and cache.max_model_len is not None:
        yield "  sequences", f"{cache.sequences:,.2f} of the greatest length at once"
    elif cache.max_model_len is not None:
        yield "  longest", f"{cache.max_model_len:,} tokens of a sequence"


def _group(group: CacheGroup) -> str:
    text = f"{group.layers:,} × {group.kind}, {size(group.block_nbytes)} a block"
    if group.window is not None:
        text += f", looking back over {group.window:,} tokens"
    return text + ("" if group.grows else ", of one size for each sequence")


def _device(cache: PagedCache, nbytes: int) -> str:
    used = "" if cache.utilization is None else f", {100 * cache.utilization:g} % of it for the engine"
    left = cache.free_nbytes
    if left is None:
        return f"{size(nbytes)}{used}"
    beside = (
        f"{size(left)} left beside the weights" if left >= 0 else f"{size(-left)} missing for the weights"
    )
    return f"{size(nbytes)}{used}: {beside}"


def _fits(cache: PagedCache) -> str:
    longest = "" if cache.max_model_len is None else f" of sequences of {cache.max_model_len:,}"
    tokens = None if cache.tokens is None else f"{cache.tokens:,} tokens{longest}"
    blocks = None if cache.blocks is None else f"{cache.blocks:,} blocks"
    taken = None if cache.nbytes is None else size(cache.nbytes)
    return ", ".join(filter(None, (" in ".join(filter(None, (tokens, blocks))), taken)))


def rank_rows(engine: Engine) -> list[list[str]]:
    """A row for each rank, those that hold the same together, and for the whole model."""
    alike: list[list[Share]] = []
    for each in engine.ranks:
        if alike and _figures(alike[-1][0]) == _figures(each):
            alike[-1].append(each)
        else:
            alike.append([each])
    rows = [[_ranks(group), *_figures(group[0])] for group in alike]
    whole = engine.whole
    if whole is not None and len(engine.ranks) == 1 and _figures(whole) == _figures(engine.ranks[0]):
        rows[0][0] += " (whole)"
    elif whole is not None:
        rows.append(["whole", *_figures(whole)])
    return rows


def _ranks(group: Sequence[Share]) -> str:
    return f"{group[0].rank}" if len(group) == 1 else f"{group[0].rank}–{group[-1].rank}, each"


def _figures(share: Share) -> list[str]:
    at_least = "≥ " if share.unknown else ""
    counts = (share.params, share.padding, share.held)
    return [
        *(f"{at_least}{count:,}" for count in counts),
        *(
            "unknown" if nbytes is None else f"{at_least}{size(nbytes)}"
            for nbytes in (share.weight_nbytes, share.nbytes)
        ),
    ]


def part_text(tensors: Sequence[tuple[str, Tensor, Shard]]) -> str:
    """What the rank holds of a module's weights: of how many rows, in which pieces, with what padding.

    Vectors that are cut as their matrix is are not told beside it.
    """
    matrices = [each for each in tensors if each[1].kind != "buffer" and len(each[2].whole) > 1]
    shown = matrices or [each for each in tensors if each[1].kind != "buffer"]
    texts = [(name, _part(tensor, shard)) for name, tensor, shard in shown]
    told = [(name, text) for name, text in texts if text]
    return told[0][1] if len(told) == 1 else "; ".join(f"{name} {text}" for name, text in told)


def _part(tensor: Tensor, shard: Shard) -> str:
    held = tensor.shape if tensor.packing is None else tensor.packing.logical_shape
    if held is None:
        return "unknown"
    dim = _differing(held, shard)
    padding = "" if not shard.padding else _padding(held, shard.padding, dim or 0)
    sizes = "" if dim is None else _held(held, shard.whole, dim)
    pieces = ", ".join(_pieces(shard.pieces))
    return ", ".join(filter(None, (": ".join(filter(None, (sizes, pieces))), padding)))


def _differing(held: Shape, shard: Shard) -> int | None:
    """The dimension in which a rank has another size than the whole; None where it has all of it."""
    if len(held) != len(shard.whole):
        return shard.dim
    dims = [dim for dim, (mine, all_) in enumerate(zip(held, shard.whole, strict=True)) if mine != all_]
    return shard.dim if shard.dim in dims else dims[0] if dims else None


def _held(held: Shape, whole: Shape, dim: int) -> str:
    if len(held) != len(whole):
        return f"{shape_text(held)} of {shape_text(whole)}"
    what = _DIMS[dim] if len(held) <= len(_DIMS) else f"in dim {dim}"
    if held[dim] > whole[dim]:  # one rank has them all, and padding
        return f"{held[dim]:,} {what}"
    return f"{held[dim]:,} of {whole[dim]:,} {what}"


def _pieces(pieces: Sequence[Piece]) -> Iterator[str]:
    """Each piece by its name, without an ending that all of them have, and its rows."""
    endings = {(piece.name or "").rpartition("_")[2] for piece in pieces}
    shared = f"_{endings.pop()}" if len(endings) == 1 else ""
    for piece in pieces:
        yield f"{(piece.name or '').removesuffix(shared)} {piece.held:,}".lstrip()


def _padding(held: Shape, padding: int, dim: int) -> str:
    each = prod(held) // held[dim] if held and held[dim] else 0
    if len(held) <= len(_DIMS) and each and padding % each == 0:
        return f"{padding // each:,} of them padding"
    return f"{padding:,} elements of padding"
