"""Whether two views of one memory share a byte, against looking at every byte."""

from __future__ import annotations

import random

import pytest
import torch

from modelglass.frameworks.torch.structure.regions import Region


def some_view(draw: random.Random, base: torch.Tensor) -> torch.Tensor:
    view = base
    for _ in range(draw.randint(1, 4)):
        dim = draw.randrange(view.dim()) if view.dim() else None
        if dim is None:
            break
        kind = draw.choice(["slice", "select", "turn", "split", "type"])
        if kind == "slice":
            start, step = draw.randrange(view.shape[dim] + 1), draw.randint(1, 3)
            view = view[(slice(None),) * dim + (slice(start, start + draw.randint(0, 6), step),)]
        elif kind == "select" and view.shape[dim]:
            view = view.select(dim, draw.randrange(view.shape[dim]))
        elif kind == "turn":
            view = view.transpose(dim, -1)
        elif kind == "split" and view.shape[dim] > 1:
            view = draw.choice(view.tensor_split(2, dim))
        elif kind == "type" and view.dtype is torch.float32 and view.stride(-1) == 1:
            view = view.view(torch.int16)
    return view


def bytes_of(view: torch.Tensor) -> set[int]:
    places = torch.arange(view.untyped_storage().nbytes() // view.itemsize)
    elements = places.as_strided(view.shape, view.stride(), view.storage_offset()).flatten().tolist()
    return {place * view.itemsize + at for place in elements for at in range(view.itemsize)}


@pytest.mark.parametrize("seed", range(20))
def test_regions_meet_exactly_when_they_share_a_byte(seed: int) -> None:
    draw = random.Random(seed)
    base = torch.zeros(draw.choice([(4, 6, 8), (2, 3, 4, 5), (7, 9), (24,)]))
    for _ in range(50):
        one, other = some_view(draw, base), some_view(draw, base)
        region, second = Region.of(one), Region.of(other)
        assert region.meets(second) == second.meets(region) == bool(bytes_of(one) & bytes_of(other))
        if region.covers(second):
            assert bytes_of(other) <= bytes_of(one)


def test_parts_of_one_projection_do_not_meet() -> None:
    parts = [Region.of(part) for part in torch.zeros(2, 16, 96).chunk(3, -1)]
    heads = [Region.of(part) for part in torch.zeros(2, 16, 4, 3, 8).unbind(3)]
    for regions in (parts, heads):
        assert [[one.meets(other) for other in regions] for one in regions] == [
            [True, False, False],
            [False, True, False],
            [False, False, True],
        ]


def test_a_tensor_without_elements_meets_nothing_and_what_is_expanded_meets_itself() -> None:
    whole = torch.zeros(4, 4)
    assert not Region.of(whole[:0]).meets(Region.of(whole))
    assert Region.of(whole[:1].expand(4, 4)).meets(Region.of(whole[0]))
    assert not Region.of(whole[:1].expand(4, 4)).meets(Region.of(whole[1:]))


def test_a_layout_too_tangled_to_tell_counts_as_meeting() -> None:
    base = torch.zeros(200_000)
    one = base.as_strided((40, 40, 40), (1001, 999, 997), 0)
    other = base.as_strided((40, 40, 40), (1003, 998, 996), 1)
    assert Region.of(one).meets(Region.of(other))
