"""Fake tensors that outlive their run: whoever holds them lets go of them, or is named.

Every fake tensor refers to its mode, so a mode that is gone has left none behind. What the model and its code
reach was put back before; these are what other ways led to.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

from modelglass.frameworks.state.holders import Release
from modelglass.frameworks.torch.privates import FakeTensor
from modelglass.report import Note

_NAMED = 8  # places that a note names


def find_left_behind(mode: weakref.ref[Any] | None) -> Iterator[Note]:
    """Have those who hold fake tensors of a mode let go of them, and name them."""
    if not _is_alive(mode):
        return
    ours = [each for each in gc.get_objects() if type(each) is FakeTensor]
    release = Release([each for each in ours if weakref.ref(each.fake_mode) is mode])
    del ours
    is_left = _is_alive(mode)
    if release.freed:
        yield _note("they were taken out again, and what was there before is not known", release.freed)
    if is_left:
        kept = release.kept or ["an object that Python cannot look into"]
        yield _note('empty them before the model runs again, or inspect with run="real"', kept)


def _is_alive(mode: weakref.ref[Any] | None) -> bool:
    if mode is None or mode() is None:
        return False
    gc.collect(0)  # what the run made is young; cycles hold some of it, and nobody else does
    return mode() is not None


def _note(then: str, places: list[str]) -> Note:
    text = f"the run left tensors without values in places that neither the model nor its code names: {then}"
    return Note(code="left-behind", severity="warning", text=text, where=tuple(sorted(set(places))[:_NAMED]))
