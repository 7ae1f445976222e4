"""What serves a model: an engine, what each of its ranks holds, and the cache of its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from typing import Literal, TypeAlias

from modelglass.errors import UsageError
from modelglass.report.model import Json, Shape
from modelglass.report.sizes import device_nbytes

# Where the module tree was read: in this process, in the engine's worker processes, or off classes that were
# built without weights and without an engine.
Reached: TypeAlias = Literal["in-process", "workers", "meta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One of several weights that lie side by side in a fused one."""

    name: str | None  # as checkpoints call it; None: unknown
    size: int  # rows of it in the whole model
    held: int  # rows of it in this rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """What one rank holds of a weight. Shapes are logical: of packed weights, what they stand for."""

    whole: Shape  # of all ranks together; padding, and copies that several ranks hold, left out
    dim: int | None = None  # that ranks divide; None: each holds all of it
    pieces: tuple[Piece, ...] = ()  # empty: the weight is one
    pieces_dim: int = 0  # along which the pieces lie
    padding: int = 0  # elements held here that stand for nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one rank holds, or the whole model would take on one device, each weight once.

    Of a rank all is known. Of the whole, bytes are None where it is unknown which scales ranks hold twice.
    """

    rank: int | None  # None: the whole model
    params: int  # weights without padding; packed ones as many as they stand for
    padding: int  # padding elements
    weight_nbytes: int | None  # as stored: padding, scales and zero points included
    nbytes: int | None  # with buffers
    unknown: int = 0  # tensors of unknown size: missing in every figure here

    @property
    def held(self) -> int:
        """Weights and padding, as the engine's own parameters count."""
        return self.params + self.padding


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that keep the same of each token."""

    kind: str  # as the engine calls it: FullAttentionSpec, SlidingWindowSpec, MambaSpec ...
    layers: int
    block_size: int  # tokens of a block
    block_nbytes: int  # of one layer's block, on one rank
    window: int | None = None  # tokens that are looked back over; None: all
    grows: bool = True  # False: a state of one size, at any length


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedCache:
    """What an engine keeps of each token, in blocks that all sequences share; bytes are those of one rank.

    `blocks`, `tokens` and `nbytes` are None where no engine is running and no device was named.
    """

    dtype: str
    block_size: int
    nbytes_per_token: int  # of all layers that grow with each token
    state_nbytes: int = 0  # of each sequence, whatever its length
    groups: tuple[CacheGroup, ...] = ()
    blocks: int | None = None
    tokens: int | None = None  # that fit, of all sequences together, each of the greatest length
    nbytes: int | None = None  # that the blocks take
    max_model_len: int | None = None
    sequences: float | None = None  # of the greatest length, that fit at once
    device_nbytes: int | None = None  # of the device that was asked about
    utilization: float | None = None  # the share of it that the engine may use
    free_nbytes: int | None = None  # what weights leave of that share; negative: what is missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A part of an engine, and its settings as the engine has them."""

    name: str
    type: str  # its class
    description: str
    settings: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine that serves a model. `rank` is the one whose modules the report lists."""

    version: str
    reached: Reached
    rank: int = 0
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    ranks: tuple[Share, ...] = ()  # those that were looked at
    whole: Share | None = None  # None: unknown how ranks make up the model
    shards: Mapping[str, Shard] = field(default_factory=dict)  # by tensor; others are whole in every rank
    cache: PagedCache | None = None  # None: the model keeps nothing, or it is unknown
    components: tuple[Component, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How an engine would be set up that is not running. None: as the engine chooses.

    >>> Serving(tensor_parallel=8, rank=3).rank
    3
    """

    tensor_parallel: int = 1
    rank: int = 0
    expert_parallel: bool = False
    quantization: str | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    device_nbytes: int | None = None
    utilization: float | None = None  # of the device's memory
    device_memory: InitVar[int | str | None] = None  # `device_nbytes` in bytes or as "80GiB"

    def __post_init__(self, device_memory: int | str | None) -> None:
        if device_memory is not None:
            object.__setattr__(self, "device_nbytes", device_nbytes(device_memory))
        for name in ("tensor_parallel", "block_size", "max_model_len", "device_nbytes"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(
                    f"{name} must be a positive integer, got {value!r}", hint="leave it out, or give a number"
                )
        if type(self.rank) is not int or not 0 <= self.rank < self.tensor_parallel:
            raise UsageError(
                f"there is no rank {self.rank!r} among {self.tensor_parallel}",
                hint=f"ranks are 0 to {self.tensor_parallel - 1}"
                if self.tensor_parallel > 1
                else "give tensor_parallel as well: without it there is only rank 0",
            )
        share = self.utilization
        if share is not None and (type(share) not in (int, float) or not 0 < share <= 1):
            raise UsageError(
                f"utilization must be above 0 and at most 1, got {share!r}", hint="give a number such as 0.9"
            )
