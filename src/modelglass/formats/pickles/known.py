"""What is known of the names that pickles use: which only build tensors and plain data, and which do more.

There is no list of bad names to trust: whatever is not known to be harmless is reported. The short list of
notorious ones only says more about them.
"""

from __future__ import annotations

import sys
from _compat_pickle import IMPORT_MAPPING

from modelglass.formats.pickles.uses import DYNAMIC, Use
from modelglass.formats.pickles.weights_only import ALLOWED
from modelglass.report import GlobalKind

_CORE = ALLOWED | {
    "torch._utils._rebuild_nested_tensor",
    "torch.layout",
    "torch.nn.parameter.Buffer",
    "torch.nn.parameter.UninitializedParameter",
    "torch._utils._rebuild_uninitialized_parameter",
}

# Plain data of the standard library and of packages that checkpoints often use.
_DATA = frozenset(
    {
        "argparse.Namespace",
        "types.SimpleNamespace",
        "builtins.dict",
        "builtins.list",
        "builtins.tuple",
        "builtins.frozenset",
        "builtins.bytes",
        "builtins.str",
        "builtins.int",
        "builtins.float",
        "builtins.bool",
        "builtins.object",
        "builtins.slice",
        "builtins.range",
        "collections.defaultdict",
        "collections.deque",
        "collections.UserDict",
        "copyreg._reconstructor",
        "copyreg.__newobj__",
        "datetime.datetime",
        "datetime.date",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "fractions.Fraction",
        "uuid.UUID",
        "uuid.SafeUUID",
        "pathlib.Path",
        "pathlib.PurePath",
        "pathlib.PosixPath",
        "pathlib.WindowsPath",
        "pathlib.PurePosixPath",
        "pathlib.PureWindowsPath",
        "numpy.core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        "numpy.core.numeric._frombuffer",
        "numpy._core.numeric._frombuffer",
        "numpy.dtype",
        "numpy.ndarray",
        "numpy.random._pickle.__bit_generator_ctor",
        "numpy.random._pickle.__generator_ctor",
        "numpy.random._pickle.__randomstate_ctor",
        "numpy.random._mt19937.MT19937",
        "numpy.random._pcg64.PCG64",
        "easydict.EasyDict",
        "yacs.config.CfgNode",
        "torch.torch_version.TorchVersion",
        "torch.jit._pickle.build_intlist",
        "torch.jit._pickle.build_tensorlist",
        "torch.jit._pickle.build_doublelist",
        "torch.jit._pickle.build_boollist",
        "torch.jit._pickle.build_tensor_from_id",
        "torch.jit._pickle.restore_type_tag",
    }
)
# Modules of which every class is plain data; what is reached through one of its attributes is not.
_DATA_MODULES = frozenset(
    {
        "numpy.dtypes",
        "omegaconf.base",
        "omegaconf.dictconfig",
        "omegaconf.listconfig",
        "omegaconf.nodes",
        "torch.distributed.checkpoint.metadata",
    }
)
_TORCHSCRIPT = "__torch__"  # its classes have their code in the same archive, and are never imported
# Packages of torch whose classes are layers, optimizers and the like: making one sets attributes, no more.
_TORCH_PARTS = (
    "torch.nn.modules.", "torch.nn.parallel.", "torch.nn.parameter", "torch.nn.utils.", "torch.optim.",
    "torch.ao.nn.", "torch.ao.quantization.", "torch.nn.quantized.", "torch.nn.intrinsic.", "torch.nn.qat.",
)  # fmt: skip
_DATA_NUMPY = frozenset(
    f"numpy.{name}"
    for name in (
        "float16 float32 float64 longdouble int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ bool "
        "complex64 complex128 str_ bytes_ datetime64 timedelta64"
    ).split()
)

# The names that the standard library had in Python 2 are its own, too.
_STANDARD = sys.stdlib_module_names | {module.partition(".")[0] for module in IMPORT_MAPPING}

# Modules of which nearly everything reaches the system; only used to say so.
_NOTORIOUS = {
    "os": "runs commands or touches files",
    "posix": "runs commands or touches files",
    "nt": "runs commands or touches files",
    "subprocess": "runs commands",
    "pty": "runs commands",
    "commands": "runs commands",
    "builtins": "can run any code",
    "runpy": "runs a module or file",
    "importlib": "imports a module, which runs it",
    "code": "runs code",
    "codeop": "compiles code",
    "types": "can build a function from code",
    "marshal": "loads compiled code",
    "pickle": "loads another pickle",
    "_pickle": "loads another pickle",
    "shelve": "loads another pickle",
    "socket": "opens a connection",
    "urllib": "opens a connection",
    "http": "opens a connection",
    "requests": "opens a connection",
    "httpx": "opens a connection",
    "ctypes": "calls compiled code",
    "shutil": "touches files",
    "webbrowser": "opens a program",
    "multiprocessing": "starts processes",
    "asyncio": "can start processes",
    "operator": "calls or looks up whatever it is given",
    "functools": "calls or binds whatever it is given",
    "sys": "reaches into the running program",
}


# Modules whose functions compute, and which whole modules refer to.
_ARITHMETIC = frozenset({"torch", "torch._C", "torch._C._nn", "torch.nn.functional", "torch.nn.init"})


def kind_of(use: Use) -> GlobalKind:
    """What the pickle can do with that name."""
    if use.module.startswith(DYNAMIC) or use.name == DYNAMIC:
        return "dynamic"
    package = use.module.partition(".")[0]
    if "." not in use.name:  # else it is looked up through attributes, and may lead anywhere
        if use.path in _CORE:
            return "core"
        if use.path in _DATA or use.path in _DATA_NUMPY or _is_data_class(use):
            return "data"
    if package == _TORCHSCRIPT and not use.as_function:
        return "data"
    if package in _STANDARD or package.startswith("<"):
        return "call"
    if not _names_a_class(use.name) and (use.as_function or use.module not in _ARITHMETIC):
        return "call"  # a function that is only named is called by whatever it is handed to
    return "class"


def _is_data_class(use: Use) -> bool:
    if not _names_a_class(use.name):
        return False
    if use.module in _DATA_MODULES:
        return True
    if use.module == "torch.distributed.checkpoint.filesystem":
        return use.name in ("_StorageInfo", "_StoragePrefix")
    return use.module.startswith(_TORCH_PARTS) and not use.as_function


def package_of(use: Use) -> str | None:
    """The package beyond Python and torch that loading would import."""
    package = use.module.partition(".")[0]
    if package in _STANDARD or package.startswith("<") or package in ("torch", "__torch__"):
        return None
    return package


def reputation(path: str) -> str | None:
    """What the name is notorious for, in a few words."""
    parts = path.split(".")
    return next((_NOTORIOUS[part] for part in parts[:-1] if part in _NOTORIOUS), None)


def _names_a_class(name: str) -> bool:
    """Whether the name is one word, written as classes are; what it names is not looked up."""
    return name.isascii() and name.isidentifier() and name.lstrip("_")[:1].isupper()
