"""How many bits quantized weights of MLX have, by the sizes of everything else in the file.

Bits and group size are not stored, only their product: 256 may be 8 x 32, 4 x 64 or 2 x 128. Each reading
gives a layer another number of inputs, and inputs of a layer are what something else makes or reads: a norm
as long, a layer with as many outputs, an embedding as wide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from modelglass.formats.packing.layouts import Named, whole
from modelglass.report import Shape, Tensor

GROUPS = (32, 64, 128)
USUAL_GROUP = 64  # unless the one who quantized chose otherwise
_BITS = (2, 3, 4, 5, 6, 8)
_CLEARLY = 0.25  # of all layers: how many more of them a width must explain than any other one
_ONE_BIT = 32  # of 1 bit, the only product that nothing else can have


class Layer(NamedTuple):
    """A quantized layer: words of 32 bits for each output, and bits x group size."""

    stem: str  # the path, with the dot
    words: int
    group_bits: int

    def inputs(self, bits: int) -> int:
        return 32 * self.words // bits


def affine_layer(stem: str, named: Named) -> Layer | None:
    """The layer at that path, if it is quantized with a scale and a bias for each group."""
    weight, scales, biases = (named.get(stem + each) for each in ("weight", "scales", "biases"))
    if weight is None or scales is None or biases is None or biases.shape != scales.shape:
        return None
    group_bits = bits_of_group(weight, scales)
    return None if group_bits is None else Layer(stem, _last(weight.shape), group_bits)


def bits_of_group(weight: Tensor, scales: Tensor) -> int | None:
    """Bits x group size of words with those scales; None: they do not belong together."""
    if weight.dtype != "uint32" or not weight.shape or not scales.shape or len(weight.shape) < 2:
        return None
    if weight.shape[:-1] != scales.shape[:-1]:
        return None
    return whole(32 * weight.shape[-1], scales.shape[-1])


def possible_bits(group_bits: int) -> list[int]:
    """The widths that can be. One bit is believed only when it is said, or when nothing else can be."""
    found = [bits for bits in _BITS if group_bits % bits == 0 and group_bits // bits in GROUPS]
    return found or ([1] if group_bits == _ONE_BIT else [])


class Widths:
    """What the sizes in a file say about the layers whose bits nobody else knows.

    `group` is the size of a group that is assumed where sizes do not settle it.
    """

    def __init__(self, named: Named, layers: Iterable[Layer], group: int = USUAL_GROUP) -> None:
        self._group = group
        self._sizes = _Sizes(named)
        alike: dict[int, list[Layer]] = defaultdict(list)
        for layer in layers:
            alike[layer.group_bits].append(layer)
        self._settled = {group_bits: self._common(group_bits, each) for group_bits, each in alike.items()}

    def bits(self, layer: Layer) -> int | None:
        """The bits of a layer, if sizes settle them."""
        settled = self._settled.get(layer.group_bits)
        return settled if settled in possible_bits(layer.group_bits) else None

    def assumed(self, layer: Layer) -> tuple[int, int] | None:
        """Bits and group size that a layer has if it is as others are."""
        for group in (self._group, USUAL_GROUP, *GROUPS):
            if (bits := whole(layer.group_bits, group)) in possible_bits(layer.group_bits):
                return bits, group
        return None

    def _common(self, group_bits: int, layers: Sequence[Layer]) -> int | None:
        """The one width that explains clearly more than each other one does, or the only one that can be.

        One bit competes as well: where it explains most, no other width is certain.
        """
        possible = possible_bits(group_bits)
        competing = {1, *possible} if group_bits in GROUPS else possible
        explained = {bits: self._explain(bits, layers) for bits in competing}
        for bits, (attested, read) in explained.items():
            others = [each for other, each in explained.items() if other != bits]
            ahead = min((attested + read - a - r for a, r in others), default=len(layers))
            if ahead > _CLEARLY * len(layers) and all(attested >= a and read >= r for a, r in others):
                return bits
        return possible[0] if len(possible) == 1 else None

    def _explain(self, bits: int, layers: Sequence[Layer]) -> tuple[int, int]:
        """How many layers would have inputs that something else makes or reads, and that something reads."""
        widths = [(layer.inputs(bits), layer.stem) for layer in layers]
        return (
            sum(self._sizes.attested(width, stem) for width, stem in widths),
            sum(width in self._sizes.read for width, _ in widths),
        )


class _Sizes:
    """Sizes that features have for certain."""

    def __init__(self, named: Named) -> None:
        self.read: set[int] = set()  # lengths of norms, and inputs of layers that are not quantized
        self._made: Counter[int] = Counter()  # by how many layers
        self._by_layer: dict[str, set[int]] = defaultdict(set)
        for tensor in named.values():
            if tensor.shape and tensor.name.endswith(("weight", "bias")):
                self._add(tensor, tensor.shape)
        for sizes in self._by_layer.values():
            self._made.update(sizes)

    def attested(self, size: int, stem: str) -> bool:
        """Whether some other layer makes or reads as many features."""
        own = size in self._by_layer.get(stem, ())
        return self._made[size] > own

    def _add(self, tensor: Tensor, shape: Shape) -> None:
        is_weight = tensor.name.endswith("weight")
        sizes = self._by_layer[tensor.name.removesuffix("weight" if is_weight else "bias")]
        sizes.add(shape[0] if len(shape) not in (2, 3) else shape[-2])
        if is_weight and tensor.dtype != "uint32":
            sizes.add(shape[-1])
            self.read.add(shape[-1])


def _last(shape: Shape | None) -> int:
    return shape[-1] if shape else 0
