"""Alignment of two sequences with gaps (Needleman–Wunsch)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import TypeVar

MOST = 250_000  # comparisons of one member with another; beyond, only equal ones find each other

Item = TypeVar("Item")


def align_sequences(
    left: Sequence[Item],
    right: Sequence[Item],
    *,
    key: Callable[[Item], object],
    likeness: Callable[[Item, Item], float],
) -> list[tuple[int, int]]:
    """Pairs of indices, rising on both sides, that are as alike as can be in all.

    Members with the same key are alike; of others, `likeness` says how much they are, from 0 (not at all) to
    less than 1.
    """
    first, ahead = [key(item) for item in left], [key(item) for item in right]
    begin, end = 0, 0
    while begin < min(len(first), len(ahead)) and first[begin] == ahead[begin]:
        begin += 1
    while end < min(len(first), len(ahead)) - begin and first[-1 - end] == ahead[-1 - end]:
        end += 1
    rows, columns = range(begin, len(first) - end), range(begin, len(ahead) - end)
    if len(rows) * len(columns) > MOST:
        middle = _equal_ones(first, ahead, rows, columns)
    else:
        same = lambda i, j: 1.0 if first[i] == ahead[j] else likeness(left[i], right[j])  # noqa: E731
        middle = _best(rows, columns, same)
    tail = zip(range(len(first) - end, len(first)), range(len(ahead) - end, len(ahead)), strict=True)
    return [*((i, i) for i in range(begin)), *middle, *tail]


def leave_unpaired(
    left: Sequence[Item], right: Sequence[Item], pairs: Sequence[tuple[int, int]]
) -> tuple[list[Item], list[Item]]:
    """Those that are in no pair."""
    rows, columns = {i for i, _ in pairs}, {j for _, j in pairs}
    return (
        [item for i, item in enumerate(left) if i not in rows],
        [item for j, item in enumerate(right) if j not in columns],
    )


def _best(rows: range, columns: range, likeness: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Needleman–Wunsch: the best path through a table of all members of one side by all of the other."""
    best = [[0.0] * (len(columns) + 1)]
    pairs: list[list[bool]] = []
    for i in rows:
        above, line, chosen = best[-1], [0.0], []
        for at, j in enumerate(columns):
            alike = likeness(i, j)
            together = above[at] + alike if alike > 0 else -1.0
            apart = max(above[at + 1], line[at])
            chosen.append(together > apart)
            line.append(max(together, apart))
        best.append(line)
        pairs.append(chosen)
    found, i, j = [], len(rows), len(columns)
    while i and j:
        if pairs[i - 1][j - 1]:
            found.append((rows[i - 1], columns[j - 1]))
            i, j = i - 1, j - 1
        elif best[i - 1][j] >= best[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return found[::-1]


def _equal_ones(
    first: Sequence[object], ahead: Sequence[object], rows: range, columns: range
) -> list[tuple[int, int]]:
    matcher = SequenceMatcher(
        None, first[rows.start : rows.stop], ahead[columns.start : columns.stop], autojunk=False
    )
    return [
        (rows[i + n], columns[j + n]) for i, j, size in matcher.get_matching_blocks() for n in range(size)
    ]
