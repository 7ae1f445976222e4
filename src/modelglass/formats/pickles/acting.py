"""Classes of well-known libraries that act when a pickle only makes and fills them, by package.

Written by `tests/support/acting_names.py`, which says how; do not edit. A class may have any of its package's
modules before its name.
"""

from __future__ import annotations

_TABLE = """
filelock _ForkSafeConnection
fsspec LocalFileOpener MMapCache
huggingface_hub _LazyUtilsModule
numpy DataSource Repository
torch ConfigModule ConfigModuleInstance DLLWrapper ExecutionTraceObserver _CudaModule
torch _DataPipeSerializationWrapper _IterDataPipeSerializationWrapper _LazyModule
torch _MapDataPipeSerializationWrapper
transformers NeptuneCallback _LazyModule
"""
ACTING = frozenset(
    f"{package}.{name}" for package, *names in map(str.split, _TABLE.strip().splitlines()) for name in names
)
