"""Tensors out of the calls that would rebuild them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from modelglass.formats.pickles.delegates import LOAD_SAVED
from modelglass.formats.pickles.objects import (
    Blob,
    Global,
    Pairs,
    Persistent,
    Record,
    Thing,
    as_text,
    preview,
)
from modelglass.formats.pickles.weights_only import DTYPES, TENSOR_CLASSES
from modelglass.formats.tensors.strides import column_major
from modelglass.report import Shape, TensorKind

STORAGE_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
    "QInt8": "qint8",
    "QUInt8": "quint8",
    "QInt32": "qint32",
    "QUInt4x2": "quint4x2",
    "QUInt2x4": "quint2x4",
}
INSIDE = "@"  # before the keys of storages that are in the pickle itself
UNTYPED = "uint8"  # bytes, whose meaning the tensor says
_STORAGES = {
    **{
        f"{place}.{name}Storage": dtype
        for place in ("torch", "torch.cuda")
        for name, dtype in STORAGE_DTYPES.items()
    },
    "torch.storage.UntypedStorage": UNTYPED,
    "torch.UntypedStorage": UNTYPED,
}
_DTYPES = frozenset(DTYPES)
_NUMPY = {
    "b1": "bool",
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}
_NUMPY |= {
    f"{letter}{size}": f"{sign}int{8 * size}"
    for letter, sign in (("i", ""), ("u", "u"))
    for size in (1, 2, 4, 8)
}


class BadTensorError(ValueError):
    """A call that would not rebuild a tensor; the text says why."""


class Storage(NamedTuple):  # a tuple: there may be a million
    """A piece of memory in the file: how many elements of which type, under which key."""

    key: str
    dtype: str
    numel: int
    device: str
    view: tuple[str, int, int] | None = None  # legacy: a part of another storage


@dataclass(slots=True, kw_only=True)  # not frozen: there may be a million
class Found:
    """A tensor as the file describes it. A `storage` of None has no values: meta, or made of `parts`."""

    storage: Storage | None
    shape: Shape
    dtype: str
    first: int = 0
    strides: Shape | None = None
    kind: TensorKind | None = None  # None: the file does not say
    trainable: bool | None = None
    scheme: str | None = None  # how it is packed, when its elements are not the weights
    parts: tuple[Found, ...] = ()
    blob: Blob | None = None  # the values, when they are in the pickle itself
    big_endian: bool = False


def is_tensor(value: Any) -> bool:
    """Whether a call would give a tensor or an array."""
    if type(value) is Record:
        return True
    return isinstance(value, Thing) and (value.path in _BUILDERS or value.path in TENSOR_CLASSES)


def tensor_of(value: Thing) -> Found:
    """The tensor that a call would give; `BadTensorError` when it cannot."""
    if type(value) is Record:
        return _of_record(value)
    try:
        builder = _BUILDERS.get(value.path, _old_tensor)
        return builder(*(_arguments(value) if builder is not _old_tensor else ()), thing=value)
    except RecursionError as cause:
        raise BadTensorError("a tensor inside a tensor, too deep") from cause
    except (TypeError, ValueError, KeyError, IndexError, StopIteration, AttributeError) as cause:
        if isinstance(cause, BadTensorError):
            raise
        raise BadTensorError(f"{value.path} has arguments that it does not take") from cause


def _of_record(record: Record) -> Found:
    """The tensor of an entry of a state dict, whose form is known to be right."""
    dtype = _STORAGES.get(record.storage.path)
    if dtype is None:
        raise BadTensorError(f"{record.storage.path} is not a known storage")
    if len(record.shape) != len(record.strides):
        raise BadTensorError(f"strides {record.strides} do not fit the shape {record.shape}")
    storage = Storage(record.number, dtype, record.numel, record.device)
    return Found(storage=storage, shape=record.shape, dtype=dtype, first=record.first, strides=record.strides)


def _arguments(value: Thing) -> tuple[Any, ...]:
    if type(value.args) is not tuple:
        raise BadTensorError(f"{value.path} has no arguments")
    return value.args


def storage_of(value: Any) -> Storage:
    """The storage that a persistent id names."""
    if isinstance(value, Thing) and value.path == LOAD_SAVED:
        return _storage_inside(value)
    id = value.id if type(value) is Persistent else None
    if type(id) is not tuple or len(id) < 5 or (id[0] != "storage" and as_text(id[0]) != "storage"):
        raise BadTensorError("a tensor without a storage")
    cls, key, device, numel = id[1:5]
    if type(cls) is not Global:
        raise BadTensorError("a storage without a class")
    if type(numel) is not int or numel < 0:
        raise BadTensorError("a storage whose size is not a number")
    dtype = _STORAGES.get(cls.path)
    if dtype is None:
        raise BadTensorError(f"{cls.path} is not a known storage")
    name = key if type(key) is str else as_text(key) or preview(key, most=100)
    where = device if type(device) is str else as_text(device)
    return Storage(name, dtype, numel, where, _view(id[5]) if len(id) > 5 else None)


def _storage_inside(call: Thing) -> Storage:
    """A storage that is in the pickle itself, as a file of its own; its key says where that ends."""
    if type(call.args) is not tuple or len(call.args) != 2 or type(call.args[0]) is not Blob:
        raise BadTensorError("a tensor without a storage")
    blob, inner = call.args
    return storage_of(inner)._replace(key=f"{INSIDE}{blob.offset + blob.nbytes}", view=None)


def _view(view: Any) -> tuple[str, int, int] | None:
    if view is None:
        return None
    if type(view) is not tuple or len(view) != 3 or not all(type(part) is int for part in view[1:]):
        raise BadTensorError("a view of something that is not a storage")
    return as_text(view[0]), view[1], view[2]


def shape_of(value: Any) -> Shape:
    """A shape out of a tuple, a list or a `torch.Size`."""
    if isinstance(value, Thing) and value.path == "torch.Size":
        value = value.first_argument
    if type(value) is list:
        value = tuple(value)
    if type(value) is not tuple:
        raise BadTensorError("an invalid shape")
    if len(value) > 64:
        raise BadTensorError(f"a shape of {len(value):,} dimensions")
    for size in value:
        if type(size) is not int or size < 0:
            raise BadTensorError("a shape that is not made of whole numbers")
    return value


def _plain(storage: Any, first: Any, size: Any, strides: Any, *rest: Any, thing: Thing) -> Found:
    memory = storage_of(storage)
    return _check(memory, first, shape_of(size), shape_of(strides), memory.dtype)


def _with_dtype(
    storage: Any,
    first: Any,
    size: Any,
    strides: Any,
    gradient: Any,
    hooks: Any,
    dtype: Any,
    *rest: Any,
    thing: Thing,
) -> Found:
    return _check(storage_of(storage), first, shape_of(size), shape_of(strides), dtype_of(dtype))


def _check(storage: Storage, first: Any, shape: Shape, strides: Shape, dtype: str) -> Found:
    if type(first) is not int or first < 0:
        raise BadTensorError(f"a tensor that begins at element {first!r}")
    if len(strides) != len(shape):
        raise BadTensorError(f"strides {strides} do not fit the shape {shape}")
    return Found(storage=storage, shape=shape, dtype=dtype, first=first, strides=strides)


def dtype_of(value: Any) -> str:
    """An element type out of its name, such as `torch.float32`."""
    name = value.name if type(value) is Global and value.module == "torch" else ""
    if name not in _DTYPES:
        raise BadTensorError("an element type that torch does not have")
    return str(name)


def _parameter(data: Any, gradient: Any = None, *rest: Any, thing: Thing) -> Found:
    trainable = gradient if type(gradient) is bool else None
    return replace(_inner(data), kind="parameter", trainable=trainable)


def _inner(value: Any) -> Found:
    """The tensor inside another call; calls nest a few times at most."""
    depth = 0
    while isinstance(value, Thing) and value.path in _WRAPPERS and depth < 8:
        value, depth = _arguments(value)[0], depth + 1
    if not is_tensor(value) or value.path in _WRAPPERS:
        raise BadTensorError("invalid arguments for a tensor")
    return tensor_of(value)


def _quantized(storage: Any, first: Any, size: Any, strides: Any, *rest: Any, thing: Thing) -> Found:
    return _plain(storage, first, size, strides, thing=thing)


def _sparse(layout: Any, data: Any, *rest: Any, thing: Thing) -> Found:
    name = (as_text(layout.first_argument) if isinstance(layout, Thing) else "") or "sparse"
    parts = tuple(_dense(part) for part in data if is_tensor(part))
    shape = next(
        shape_of(part) for part in data if not is_tensor(part) and type(part) in (tuple, list, Thing)
    )
    return Found(
        storage=None, shape=shape, dtype=parts[-1].dtype, scheme=name.removeprefix("torch."), parts=parts
    )


def _dense(part: Any) -> Found:
    """A part of a sparse tensor, which is not a sparse one: these could contain each other over and over."""
    if part.path == "torch._utils._rebuild_sparse_tensor":
        raise BadTensorError("a sparse tensor made of sparse tensors")
    return tensor_of(part)


def _meta(dtype: Any, size: Any, strides: Any, gradient: Any = None, *rest: Any, thing: Thing) -> Found:
    return Found(storage=None, shape=shape_of(size), dtype=dtype_of(dtype))


def _nested(buffer: Any, *rest: Any, thing: Thing) -> Found:
    inside = _inner(buffer)
    return replace(inside, scheme="nested")


def _jagged(parts: Any, *rest: Any, thing: Thing) -> Found:
    """Rows of different lengths: the values one after the other, and where each row begins."""
    values = parts.get("values") if type(parts) is Pairs else None
    return replace(_inner(values), scheme="nested")


def _from_type(function: Any, cls: Any, args: Any, state: Any = None, *rest: Any, thing: Thing) -> Found:
    found = tensor_of(Thing(function, args, thing.offset))
    if type(cls) is Global and cls.name == "Buffer":
        return replace(found, kind="buffer")
    if type(cls) is Global and cls.name == "Parameter":
        return replace(found, kind="parameter")
    return found


def _wrapper(cls: Any, dtype: Any, size: Any, *rest: Any, thing: Thing) -> Found:
    name = cls.name if type(cls) is Global else "wrapper"
    return Found(storage=None, shape=shape_of(size), dtype=dtype_of(dtype), scheme=name)


def _from_cpu(data: Any, *rest: Any, thing: Thing) -> Found:
    return _inner(data)


def _old_tensor(*, thing: Thing) -> Found:
    """A tensor of before 2018: its storage, place and shape are its state."""
    state = thing.state
    if type(state) is not tuple or len(state) < 4:
        raise BadTensorError(f"{thing.path} without its storage")
    return _plain(*state[:4], thing=thing)


def _array(*args: Any, thing: Thing) -> Found:
    """A numpy array: version, shape, type, order and bytes are its state."""
    state = thing.state
    if type(state) is not tuple or len(state) != 5:
        raise BadTensorError("an array without its values")
    _, size, descr, fortran, data = state
    return _numpy(descr, shape_of(size), data, fortran is True)


def _frombuffer(data: Any, descr: Any, size: Any, order: Any = "C", *rest: Any, thing: Thing) -> Found:
    return _numpy(descr, shape_of(size), data, as_text(order) == "F")


def _numpy(descr: Any, shape: Shape, data: Any, fortran: bool) -> Found:
    code = as_text(descr.first_argument) if isinstance(descr, Thing) else ""
    order = as_text(descr.state[1]) if isinstance(descr, Thing) and type(descr.state) is tuple else ""
    dtype = _NUMPY.get(code.lstrip("<>|="))
    if isinstance(data, Thing) and data.path == "_codecs.encode":  # bytes, as Python 2 could read them
        data = None
    if dtype is None:
        return Found(storage=None, shape=shape, dtype=code or "object", kind="buffer")
    strides = None
    if fortran:
        strides = column_major(shape)
    blob = data if type(data) is Blob else None
    return Found(
        storage=None,
        shape=shape,
        dtype=dtype,
        kind="buffer",
        blob=blob,
        strides=strides,
        big_endian=order == ">",
    )


_BUILDERS: dict[str, Callable[..., Found]] = {
    "torch._utils._rebuild_tensor": _plain,
    "torch._utils._rebuild_tensor_v2": _plain,
    "torch._utils._rebuild_tensor_v3": _with_dtype,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_qtensor": _quantized,
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_meta_tensor_no_storage": _meta,
    "torch._utils._rebuild_nested_tensor": _nested,
    "torch.nested._internal.nested_tensor._rebuild_njt": _jagged,
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_wrapper_subclass": _wrapper,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _from_cpu,
    "torch._utils._rebuild_device_tensor_from_numpy": _from_cpu,
    "numpy.core.multiarray._reconstruct": _array,
    "numpy._core.multiarray._reconstruct": _array,
    "numpy.core.numeric._frombuffer": _frombuffer,
    "numpy._core.numeric._frombuffer": _frombuffer,
}
_WRAPPERS = frozenset(
    f"torch._utils._rebuild_{name}"
    for name in ("parameter", "parameter_with_state", "device_tensor_from_cpu_tensor")
)


def items_of(value: Any) -> Pairs | None:
    """The items of a dictionary, plain or ordered, or of what subclasses one."""
    if type(value) is Pairs:
        return value
    if isinstance(value, Thing):
        return value.pairs
    return None
