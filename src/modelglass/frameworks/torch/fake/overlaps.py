"""Writing to memory in which elements lie upon each other, which most kernels refuse and fake ones do not.

Where what a kernel writes to overlaps, in itself or with what it reads, the real kernel is asked: it is run
once on tensors that lie in memory in the same way. Zeros take no memory until they are written to, and
what is refused is refused before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from modelglass.frameworks.torch.describe import memory_of, tensors_among, unobserved
from modelglass.frameworks.torch.privates import OVERLAP

_LARGEST = 2**33  # bytes of zeros
_LARGEST_WRITTEN = 2**26  # of memory that a kernel most likely takes as it is
_refusals: dict[Any, str | None] = {}  # by kernel and layout


def refuse_overlaps(
    func: Any, written: Sequence[torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise what the real kernel raises about overlapping memory that it is to write to."""
    given = list(tensors_among((*args, *kwargs.values())))
    most = _most_to_ask_with(written, given)
    if not most or not all(each.layout is torch.strided and not each.is_quantized for each in given):
        return
    memories = {memory_of(each): each.untyped_storage().nbytes() for each in given}
    if sum(memories.values()) > most:
        return
    numbers = {memory: number for number, memory in enumerate(memories)}
    question = func, tuple((numbers[memory_of(each)], *_layout(each)) for each in given)
    if question not in _refusals:
        _refusals[question] = _refusal(func, memories, args, kwargs)
    refusal = _refusals[question]
    if refusal is not None:
        raise RuntimeError(refusal)


def _most_to_ask_with(written: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> int:
    """Bytes of memory with which the real kernel may be asked; 0: nothing overlaps, by torch's own rules."""
    if any(map(_lies_upon_itself, written)):
        return _LARGEST
    met = list(_overlapping(written, given)) if len(given) > 1 else ()
    return 0 if not met else _LARGEST_WRITTEN if all(met) else _LARGEST


def _lies_upon_itself(tensor: torch.Tensor) -> bool:
    """Whether torch itself sees that elements share memory; other layouts with gaps it does not look into."""
    return any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _overlapping(written: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> Iterator[bool]:
    """For each pair that overlaps, of which one is written to, whether it is the same elements."""
    for one in written:
        memory, itself = memory_of(one), False
        for other in given:
            if other is one and not itself:
                itself = True
            elif memory == memory_of(other) and _meet(one, other):
                yield _extent(one) == _extent(other) and one.stride() == other.stride()


def _meet(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not one.numel() or not other.numel() or not (_is_dense(one) and _is_dense(other)):
        return False  # torch itself does not look at layouts with gaps
    (start, end), (first, last) = _extent(one), _extent(other)
    return start < last and first < end


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie side by side, in whichever order of its dimensions."""
    reached = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != reached:
                return False
            reached *= size
    return True


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    start = int(tensor.storage_offset()) * tensor.itemsize
    return start, start + tensor.numel() * tensor.itemsize


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride()


def _refusal(
    func: Any, memories: Mapping[int | None, int], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str | None:
    """The error of the real kernel for zeros that lie in memory as the arguments do."""
    random = torch.default_generator.get_state()
    with unobserved():
        zeros = {memory: torch.zeros(nbytes, dtype=torch.uint8) for memory, nbytes in memories.items()}
        real: dict[int, torch.Tensor] = {}

        def swap(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                memory = zeros[memory_of(value)].untyped_storage()
                dtype, *place = _layout(value)
                empty = torch.empty(0, dtype=dtype, device="cpu")
                return real.setdefault(id(value), empty.set_(memory, *place))  # type: ignore[call-overload]
            if isinstance(value, (list, tuple)):
                return type(value)(map(swap, value))
            return torch.device("cpu") if isinstance(value, torch.device) else value

        try:
            func(*map(swap, args), **{key: swap(value) for key, value in kwargs.items()})
        except (RuntimeError, IndexError, TypeError, ValueError) as error:
            return str(error) if OVERLAP.is_of(error) else None
        finally:
            torch.default_generator.set_state(random)
    return None
