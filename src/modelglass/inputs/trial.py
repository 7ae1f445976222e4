"""What a trial shows: whether the model ran, or where it stopped and which sizes met there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from modelglass.inputs.described import Shape

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Want:
    """What a layer accepts: ranks, sizes by dimension (negative from the end), whole numbers."""

    ranks: tuple[int, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. `depth` is the number of operators that ran, `met` the shapes where it stopped."""

    ran: bool
    depth: int = 0
    outputs: tuple[Shape, ...] = ()
    module: str = ""
    op: str | None = None
    error: str = ""
    message: str = ""
    line: str = ""  # of the model's own code
    met: tuple[Shape, ...] = ()
    weights: tuple[Shape, ...] = ()  # among them, those of parameters
    want: Want | None = None  # of the layer that stopped

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers that the message names, in its order."""
        return tuple(dict.fromkeys(int(each) for each in _NUMBER.findall(self.message) if len(each) < 9))

    @property
    def gap(self) -> tuple[int, int] | None:
        """The size that the layer that stopped met, and the one that it wants."""
        met = self.met[0] if self.met else ()
        for dim, size in self.want.sizes if self.want is not None else ():
            if -len(met) <= dim < len(met) and met[dim] != size:
                return met[dim], size
        return None

    def __str__(self) -> str:
        """In a line: where it stopped, and which sizes met.

        >>> str(Trial(False, module="qkv", met=((2, 16),), want=Want(sizes=((-1, 32),))))
        'qkv: 16 features met 32'
        """
        where = self.module or "(root)"
        for dim, size in self.want.sizes if self.want is not None else ():
            for shape in self.met[:1]:
                if -len(shape) <= dim < len(shape) and shape[dim] != size:
                    unit = "features" if dim < 0 else "channels"
                    return f"{where}: {shape[dim]} {unit} met {size}"
        first = self.message.strip().splitlines()[:1]
        return f"{where}: {self.error}{': ' if first else ''}{''.join(first)[:160]}"
