"""Where two models come from, and what that says about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from modelglass.analyses.comparison.conventions import LIVE, MEMBERS

if TYPE_CHECKING:
    from modelglass.report import Checkpoint, Model

STORED = "file"  # the source of parts that were read from files, whatever wrote them
_WRITERS = {"pt": "torch", "mlx": "mlx"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two models.

    `layout` is the framework in whose order a file keeps dimensions, as far as it says. `types` are the
    classes of modules by path, and `aliases` further paths of modules with those that they are known by.
    """

    source: str
    stored: bool = False
    layout: str | None = None
    unsaved: frozenset[str] | None = None  # buffers that are never stored; None: nobody knows
    types: Mapping[str, str] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


class Sides(NamedTuple):
    """Both of them."""

    a: Side
    b: Side

    @property
    def live(self) -> bool:
        """Whether both know which tensors train and which share memory."""
        return all(side.source in LIVE for side in self)


def side(model: Model, unsaved: Collection[str] | None, checkpoint: Checkpoint | None) -> Side:
    """What is known of a model beyond its parts."""
    if checkpoint is not None:
        return Side(source=STORED, stored=True, layout=_layout(checkpoint))
    return Side(
        source=model.source,
        unsaved=None if unsaved is None else frozenset(unsaved),
        types=_types(model),
        aliases={alias: module.path for module in model.modules for alias in module.aliases},
    )


def _types(model: Model) -> dict[str, str]:
    """Classes by path; a list in which a Sequential keeps its members stands for it."""
    types = {module.path: module.qualified_type for module in model.modules}
    for module in model.modules:
        name = MEMBERS.get((model.source, module.type))
        if name is not None:
            types[f"{module.path}.{name}".lstrip(".")] = module.qualified_type
    return types


def _layout(checkpoint: Checkpoint) -> str | None:
    if checkpoint.format == "torch":
        return "torch"
    return _WRITERS.get(str(checkpoint.metadata.get("format")))
