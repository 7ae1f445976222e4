"""Where two models come from, and what that says about them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from modelglass.analyses.compare.common_form.conventions import LIVE, MEMBERS
from modelglass.analyses.compare.common_form.parts import logical_shape

if TYPE_CHECKING:
    from modelglass.report import Checkpoint, Engine, Model, Shape, Shard

STORED = "file"  # the source of parts that were read from files, whatever wrote them
_WRITERS = {"pt": "torch", "mlx": "mlx"}
_WRITTEN_IN = {"vllm": "torch"}


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
    shards: Mapping[str, Shard] = field(default_factory=dict)  # of an engine's tensors
    held: Mapping[str, Shape | None] = field(default_factory=dict)  # of those, what the rank has
    served: bool = False  # by an engine, which trains nothing
    rank: str = ""  # of several, which one it is: each has a share of the heads


class Sides(NamedTuple):
    """Both of them."""

    a: Side
    b: Side

    @property
    def live(self) -> bool:
        """Whether both know which tensors train and which share memory."""
        return all(side.source in LIVE for side in self)

    @property
    def served(self) -> bool:
        """Whether one of them is an engine's."""
        return any(side.served for side in self)


def describe_side(
    model: Model,
    unsaved: Collection[str] | None,
    checkpoint: Checkpoint | None,
    engine: Engine | None = None,
) -> Side:
    """What is known of a model beyond its parts."""
    if checkpoint is not None:
        return Side(source=STORED, stored=True, layout=_layout(checkpoint))
    shards = {} if engine is None else engine.shards
    return Side(
        source=module_framework(model.source),
        unsaved=None if unsaved is None else frozenset(unsaved),
        types=_types(model),
        aliases={alias: module.path for module in model.modules for alias in module.aliases},
        shards=shards,
        held={tensor.name: logical_shape(tensor) for tensor in model.tensors if tensor.name in shards},
        served=engine is not None or model.source in _WRITTEN_IN,
        rank=_rank(engine),
    )


def _rank(engine: Engine | None) -> str:
    if engine is None or engine.tensor_parallel == 1:
        return ""
    return f", rank {engine.rank} of {engine.tensor_parallel}"


def module_framework(source: str) -> str:
    """The framework whose layers and layouts a model has: an engine's modules are those of another one."""
    return _WRITTEN_IN.get(source, source)


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
