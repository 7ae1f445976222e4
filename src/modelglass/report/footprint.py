"""What the weights of files take in memory as they are stored, with the cache of a context beside them."""

from __future__ import annotations

from dataclasses import dataclass

from modelglass.printing import Printed
from modelglass.report.report import Note


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintPart:
    """Some of the weights. `device_nbytes` are those on the device; None: no device is given."""

    name: str
    nbytes: int
    device_nbytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FootprintAt:
    """Weights and cache at one length. The last `layers` are on the device, and their cache with them."""

    context: int | None  # tokens; None: there is no cache, or nobody knows its size
    cache_nbytes: int | None
    nbytes: int  # that a device takes which holds all that it is to hold
    fits: bool | None = None  # None: no device is given
    layers: int | None = None  # on the device; None: they are not divided
    output: bool | None = None  # whether the output layer is there, too
    device_nbytes: int | None = None  # what the device holds of it
    host_nbytes: int | None = None  # what the host holds, weights and cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint(Printed):
    """What the files of a model take in memory, and what of it fits into a device.

    The first of `contexts` is what was asked about. Buffers that an engine computes in are in no figure:
    `excludes` names them.
    """

    name: str
    source: str  # the format of its files
    weight_nbytes: int
    contexts: tuple[FootprintAt, ...]
    parts: tuple[FootprintPart, ...] = ()
    layers: int | None = None
    experts_on_host: bool = False
    device_nbytes: int | None = None  # of the device
    cache_dtype: str | None = None
    context_length: int | None = None  # that the model was made for
    largest_context: int | None = None  # with which all of it fits; None: not even the weights do, or unknown
    excludes: tuple[str, ...] = ()
    scores_nbytes: int | None = None  # the least that compute buffers usually take; in no other figure
    notes: tuple[Note, ...] = ()

    @property
    def fits(self) -> bool | None:
        """Whether all of it fits at the length that was asked about."""
        return self.contexts[0].fits

    @property
    def margin_nbytes(self) -> int | None:
        """What is left on the device then; negative: what is missing."""
        return None if self.device_nbytes is None else self.device_nbytes - self.contexts[0].nbytes
