"""What a layout of packed weights is asked with, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from modelglass.report import Json, Shape, Tensor

if TYPE_CHECKING:
    from modelglass.formats.packing.mlx_widths import Widths

Named = Mapping[str, Tensor]


class Match(NamedTuple):
    """A weight that was recognised: how it is packed, and which tensors only serve it."""

    weight: str | None  # None: tensors that serve no weight of this file
    scheme: str = ""
    logical_shape: Shape = ()
    sides: tuple[str, ...] = ()


class Hints:
    """What configuration and metadata say about the quantization."""

    def __init__(self, settings: tuple[Mapping[str, Json], ...]) -> None:
        self.settings = settings
        self.widths: Widths | None = None  # of MLX, by the sizes in the file, once they were looked at

    @classmethod
    def of(cls, *documents: Mapping[str, Json] | None) -> Hints:
        found = []
        for document in documents:
            for holder in _holders(document):
                for key in ("quantization", "quantization_config", "compression_config"):
                    value = _object(holder.get(key))
                    if value is not None:
                        found.append(value)
        return cls(tuple(found))

    def number(self, key: str) -> int | None:
        values = (setting.get(key) for setting in self.settings)
        return next((v for v in values if type(v) is int and v > 0), None)

    def text(self, key: str) -> str | None:
        values = (setting.get(key) for setting in self.settings)
        return next((v for v in values if isinstance(v, str)), None)

    def of_layer(self, path: str) -> tuple[int | None, int | None]:
        """Bits and group size of the layer at that path, else of all layers."""
        own = self.of_only(path)
        return (self.number("bits"), self.number("group_size")) if own is None else own

    def of_only(self, path: str) -> tuple[int | None, int | None] | None:
        """Bits and group size, if there is a setting for that very layer; each may still be left out."""
        for setting in self.settings:
            own = setting.get(path)
            if isinstance(own, Mapping):
                bits, group = (own.get(key) for key in ("bits", "group_size"))
                found = bits if type(bits) is int else None, group if type(group) is int else None
                if found != (None, None):
                    return found
        return None

    def weight_groups(self) -> Iterator[tuple[int, int | None]]:
        """Bits and group size of each group of weights, as compressed-tensors lists them."""
        for setting in self.settings:
            groups = setting.get("config_groups")
            for group in groups.values() if isinstance(groups, Mapping) else ():
                weights = group.get("weights") if isinstance(group, Mapping) else None
                if isinstance(weights, Mapping) and type(bits := weights.get("num_bits")) is int:
                    size = weights.get("group_size")
                    yield bits, size if type(size) is int and size > 0 else None


def _holders(document: Mapping[str, Json] | None) -> Iterator[Mapping[str, Json]]:
    if isinstance(document, Mapping):
        yield document
        inner = document.get("text_config")
        if isinstance(inner, Mapping):
            yield inner


def _object(value: Json) -> Mapping[str, Json] | None:
    """A JSON object, also when it is text, as metadata of safetensors has to be."""
    if isinstance(value, str) and len(value) <= 1 << 20:
        try:
            value = import_module("json").loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, Mapping) else None


def present(named: Named, stem: str, suffixes: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names that begin with the stem and are there."""
    return tuple(stem + suffix for suffix in suffixes if stem + suffix in named)


def whole(numerator: int, denominator: int) -> int | None:
    """The quotient, when there is one and it is whole."""
    return None if denominator <= 0 or numerator % denominator else numerator // denominator


Layout = Callable[[str, Named, Hints], Match | None]
