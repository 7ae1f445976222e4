"""What `torch.load(weights_only=True)` would say: which opcodes and names it takes, and what it does not.

The names are those of torch 2.13; a test compares them with the torch that is installed.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING
from typing import Any

from modelglass.formats.pickles.objects import Global, Pairs, Thing, as_text

BLOCKED_MODULES = frozenset({"sys", "os", "posix", "nt"})
_OPCODES = frozenset(b"ae]\x8f)tNX.RQKMJGhqjrc}us(b\x80\x81\x85\x86\x87\x88\x89\x8aU")

_STORAGES = (
    "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long QInt32 QInt8 QUInt2x4 "
    "QUInt4x2 QUInt8 Short"
).split()
_CUDA_STORAGES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short".split()
_TENSORS = "BFloat16 Bool Byte Char Double Float Half Int Long Short".split()
_SPARSE_TENSORS = [name for name in _TENSORS if name != "Bool"]
DTYPES = (
    "bfloat16 bits16 bits1x8 bits2x4 bits4x2 bits8 bool complex128 complex32 complex64 float16 float32 "
    "float4_e2m1fn_x2 float64 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "int1 int16 int2 int3 int32 int4 int5 int6 int64 int7 int8 qint32 qint8 quint2x4 quint4x2 quint8 "
    "uint1 uint16 uint2 uint3 uint32 uint4 uint5 uint6 uint64 uint7 uint8"
).split()
_SCHEMES = (
    "per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine "
    "per_tensor_symmetric"
).split()
_REBUILDS = (
    "device_tensor_from_cpu_tensor device_tensor_from_numpy meta_tensor_no_storage nested_tensor parameter "
    "parameter_with_state qtensor sparse_tensor tensor tensor_v2 tensor_v3 wrapper_subclass"
).split()

TENSOR_CLASSES = frozenset(
    ["torch.Tensor", *(f"torch.{name}Tensor" for name in _TENSORS)]
    + [f"torch.cuda.{name}Tensor" for name in _TENSORS]
    + [f"torch.{place}sparse.{name}Tensor" for place in ("", "cuda.") for name in _SPARSE_TENSORS]
)
REBUILDS = frozenset(
    ["torch._tensor._rebuild_from_type_v2", *(f"torch._utils._rebuild_{name}" for name in _REBUILDS)]
)
STORAGES = frozenset(
    ["torch.storage.TypedStorage", "torch.storage.UntypedStorage"]
    + [f"torch.{name}Storage" for name in _STORAGES]
    + [f"torch.cuda.{name}Storage" for name in _CUDA_STORAGES]
)
_DICTS = frozenset({"collections.OrderedDict", "collections.Counter"})
_CLASSES = (
    TENSOR_CLASSES
    | _DICTS
    | {"torch.nn.parameter.Parameter", "torch.Size", "torch.device"}
    | {"builtins.bytearray", "builtins.set", "builtins.complex"}
)
ALLOWED = (
    _CLASSES
    | STORAGES
    | REBUILDS
    | {"torch.serialization._get_layout", "_codecs.encode"}
    | {f"torch.{name}" for name in (*DTYPES, *_SCHEMES)}
)
# What can be called; the rest of the names are values, and calling one is an error in torch, too.
_CALLABLE = (
    _CLASSES
    | REBUILDS
    | {"torch.serialization._get_layout", "_codecs.encode"}
    | {"torch.storage.TypedStorage", "torch.storage.UntypedStorage"}
)
_NEW = _CLASSES | {"torch.storage.TypedStorage", "torch.storage.UntypedStorage"}
# Objects whose state torch would set.
_BUILDABLE = (REBUILDS | TENSOR_CLASSES | _DICTS) | {"torch.nn.parameter.Parameter"}


class Refusals:
    """The first reason why torch would refuse, if there is one."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.offset = 0

    @staticmethod
    def allows(code: int) -> bool:
        """Whether torch knows the opcode."""
        return code in _OPCODES

    @staticmethod
    def sets_items(target: Any) -> bool:
        """Whether torch would set items of that."""
        return type(target) is Pairs or (isinstance(target, Thing) and target.path in _DICTS)

    def add(self, reason: str, offset: int) -> None:
        if self.first is None:
            self.first, self.offset = reason, offset

    def name(self, each: Global) -> None:
        if each.module in BLOCKED_MODULES:
            self.add(f"the module {each.module} is blocked ({each.path})", each.offset)
        elif _path(each) not in ALLOWED:
            self.add(f"unsupported global {each.path}", each.offset)

    def reduce(self, function: Any, offset: int) -> None:
        if type(function) is not Global or _path(function) not in _CALLABLE:
            self.add("it calls something that is not an allowed function", offset)

    def newobj(self, function: Any, offset: int) -> None:
        if type(function) is not Global or _path(function) not in _NEW:
            self.add("it makes an object of something that is not an allowed class", offset)

    def build(self, target: Any, offset: int) -> None:
        if not isinstance(target, Thing) or target.path not in _BUILDABLE:
            self.add("it sets the state of something that is neither tensor nor OrderedDict", offset)

    def persistent(self, id: Any, offset: int) -> None:
        if type(id) is tuple and id and as_text(id[0]) == "storage":
            return
        if type(id) is not int:
            self.add("it refers to something outside of the pickle that is not a storage", offset)


def _path(each: Global) -> str:
    """The name as torch reads it: names of Python 2 are mapped whatever the protocol."""
    return f"{IMPORT_MAPPING.get(each.module, each.module)}.{each.name}"
