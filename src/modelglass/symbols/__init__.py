"""Which sizes of the inputs can change, and which sizes in the model follow them: a search over fake runs.

Nothing is guessed: a size has a symbol when the model ran with two other ones, and a formula stands only
where it held in every run and the last runs, with fresh sizes, changed nothing of it. Nothing here needs a
framework: whoever asks brings a function that runs the model with other sizes.

- Sizes are changed in groups: first dimensions of equal size together (the batch), other dimensions of equal
  size together (a length that ids and mask share), except that height, width and depth of floating tensors of
  4 dimensions and more are changed each alone. A first dimension is never tied to another one at first.
- A group that cannot change is tried with all others of its size that could not change either (height and
  width together, both sides of a mask), then without one of its places, then each place alone.
- Twice and three times the size are tried, else a half and a quarter (tables that end), else one more (of
  sizes below 4). Of sizes other than the batch, one more than the first of these is
  also tried: it distinguishes a half from a rounded half.
- Where two or more sizes can change, they are also changed at once, to see products and sums of them.
- `further` then runs with the sizes at which formulas that fit differ, and with fresh ones to check them.
"""

from __future__ import annotations

from modelglass.report import Note, Symbol, Symbols
from modelglass.symbols.following_shapes import FollowingShapes
from modelglass.symbols.search import Search, find_input_dims, name_groups
from modelglass.symbols.trials import Sizes, TrialRun, Vary

__all__ = ["Sizes", "TrialRun", "Vary", "find_symbols"]


def find_symbols(first: TrialRun, vary: Vary) -> tuple[Symbols, tuple[Note, ...]]:
    """The sizes that can change, the shapes that follow them, and notes."""
    search = Search(find_input_dims(first), vary)
    groups = search.groups()
    names = name_groups(groups)
    symbols = tuple(
        Symbol(
            name=name,
            size=group.size,
            places=tuple(place.name for place in group.places),
            tried=tuple(size for size, _ in group.runs),
        )
        for name, group in zip(names, groups, strict=True)
    )
    following = FollowingShapes(first, names, groups, vary)
    found = Symbols(symbols=symbols, shapes=following.shapes())
    return found, (*search.notes(), *following.notes())
