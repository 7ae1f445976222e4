"""What is known of the names that pickles use: which only build tensors and plain data, and which do more.

There is no list of bad names to trust: whatever is not proven to be harmless is reported, and how far it
reaches depends on what is done with it. The lists of notorious names only say more about them.
"""

from __future__ import annotations

import sys
from _compat_pickle import IMPORT_MAPPING

from modelglass.formats.pickles.acting import ACTING
from modelglass.formats.pickles.delegates import (
    ATTRIBUTES,
    CONDITIONAL,
    DELEGATES,
    GIVES_BACK,
    handed_to,
    is_operator,
)
from modelglass.formats.pickles.objects import Global, Thing
from modelglass.formats.pickles.proven import CALLED, ENUMS, MADE, NAMED
from modelglass.formats.pickles.uses import DYNAMIC, Use
from modelglass.formats.pickles.weights_only import ALLOWED
from modelglass.report import GlobalKind

_CORE = ALLOWED | {
    "torch._utils._rebuild_nested_tensor",
    "torch.layout",
    "torch.nn.parameter.Buffer",
    "torch.nn.parameter.UninitializedParameter",
    "torch._utils._rebuild_uninitialized_parameter",
    "torch.nested._internal.nested_tensor.NestedTensor",
    "torch.nested._internal.nested_tensor._rebuild_njt",
    "torch._dynamo.decorators._DimRange",  # which sizes of a nested tensor have
}
# Plain data of the standard library and of packages that checkpoints often use, also with arguments.
_DATA = frozenset(
    "argparse.Namespace types.SimpleNamespace builtins.dict builtins.list builtins.tuple "
    "builtins.frozenset builtins.bytes builtins.str builtins.int builtins.float builtins.bool "
    "builtins.object builtins.slice builtins.range collections.defaultdict collections.deque "
    "collections.UserDict copyreg._reconstructor copyreg.__newobj__ datetime.datetime datetime.date "
    "datetime.time datetime.timedelta datetime.timezone decimal.Decimal fractions.Fraction uuid.UUID "
    "uuid.SafeUUID pathlib.Path pathlib.PurePath pathlib.PosixPath pathlib.WindowsPath "
    "pathlib.PurePosixPath pathlib.PureWindowsPath easydict.EasyDict yacs.config.CfgNode".split()
)
# Annotations, which configurations of OmegaConf keep.
_NAMED = NAMED | {f"typing.{name}" for name in "Any Dict List Optional Sequence Set Tuple Union".split()}
_NAMED |= {"builtins.Ellipsis", "builtins.NotImplemented"}
_NAMED |= {"zoneinfo.ZoneInfo"}  # whose method for unpickling is looked up
# Tuples with names that operators of torch return.
_RETURNED = (
    "aminmax cummax cummin frexp geqrf histogram histogramdd kthvalue linalg_cholesky_ex linalg_eig "
    "linalg_eigh linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex linalg_lstsq linalg_lu "
    "linalg_lu_factor linalg_lu_factor_ex linalg_qr linalg_slogdet linalg_solve_ex linalg_svd lu_unpack "
    "max median min mode nanmedian qr slogdet sort svd topk triangular_solve"
).split()
_CALLED = CALLED | ENUMS | _DATA | {f"torch.return_types.{name}" for name in _RETURNED}
_PROVEN = {path.partition(".")[0] for path in (*MADE, *CALLED)}  # libraries whose data is known
_TORCHSCRIPT = "__torch__"  # in its archives, classes whose code is there; elsewhere, modules of a folder
# Namespaces of torch's own C++ classes, which TorchScript archives refer to.
_TORCH_CLASSES = ("_nnapi", "mkldnn", "quantized", "rnn", "sparse", "xnnpack")

# The names that the standard library had in Python 2 are its own, too.
_STANDARD = sys.stdlib_module_names | {module.partition(".")[0] for module in IMPORT_MAPPING}
# Parts of it that only some versions of Python have, and what comes along with Python.
_STANDARD |= set(
    "_aix_support _android_support _apple_support _bootsubprocess _distutils_hack _osx_support _pyrepl "
    "_sysconfigdata asynchat asyncore audioop binhex cgi cgitb chunk commands crypt distutils formatter "
    "imghdr imp lib2to3 macpath mailcap msilib nis nntplib ossaudiodev parser pip pipes pkg_resources "
    "setuptools smtpd sndhdr spwd sunau symbol telnetlib test tomllib uu xdrlib".split()
)

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


# What classes are called that start programs, open files or connections, or build code; other packages than
# their own may have them, too.
_ACTING = frozenset(
    "CDLL CodeType CompilationUnit ExtensionFileLoader FTP FileFinder FileHandler FileIO FunctionType "
    "HTTPConnection HTTPSConnection IMAP4_stream InteractiveConsole InteractiveInterpreter LambdaType "
    "LibraryLoader MethodType ModuleType OleDLL PackageImporter Pdb Popen ProcessPoolExecutor PyDLL "
    "PyTorchFileReader PyTorchFileWriter SMTP SharedMemory SourceFileLoader SourcelessFileLoader TarFile "
    "Telnet TemporaryDirectory Unpickler WinDLL ZipFile".split()
)
# Parts of torch that trace, compile or load code.
_CODE_OF_TORCH = frozenset(
    "_C _compile _dynamo _export _functorch _higher_order_ops _inductor _library _logging _lazy compiler "
    "cpp_extension export fx hub jit library multiprocessing onnx package serialization".split()
)
_CODE_CLASSES = frozenset({"CodeGen", "Graph", "Interpreter", "Node", "Proxy", "PythonCode", "Tracer"})


def kind_of(use: Use, *, scripted: bool = False) -> GlobalKind:
    """What the pickle can do with that name; `scripted`: the pickle is one of a TorchScript archive."""
    if use.module.startswith(DYNAMIC) or use.name == DYNAMIC:
        return "dynamic"
    package = use.module.partition(".")[0]
    if package == _TORCHSCRIPT:
        return _kind_of_script(use) if scripted else "call"
    if "." not in use.name and use.path in _CORE:
        return "core"
    if _is_data(use):
        return "data"
    if package in _STANDARD or package.startswith("<") or use.called_with:
        return "call"
    if not _is_a_class(use) or _builds_code(use, package):
        return "call"  # a function that is only named is called by whatever it is handed to
    if use.told or (package in _PROVEN and use.made_with):
        return "call"
    return "class"


def _is_data(use: Use) -> bool:
    """Whether the name is proven to be data, for what is done with it."""
    if "." in use.name:  # it is looked up through attributes, and may lead anywhere
        return use.path in ATTRIBUTES or (is_operator(use.path) and not use.calls)
    if use.path in CONDITIONAL:
        return not use.calls and use.harmless >= use.named  # each mention of it is such a call
    if use.path in _CALLED:
        return True
    if use.path in MADE:
        return not use.as_function
    return use.path in _NAMED and not use.calls


def _kind_of_script(use: Use) -> GlobalKind:
    parts = use.path.split(".")
    if use.as_function:
        return "call"
    foreign = parts[1:3] == ["torch", "classes"] and parts[3] not in _TORCH_CLASSES
    return "class" if foreign else "data"


def _builds_code(use: Use, package: str) -> bool:
    name = use.name.lstrip("_")
    if name in _ACTING or name.endswith("GraphModule") or f"{package}.{use.name}" in ACTING:
        return True
    parts = set(use.module.split(".")[1:])
    return package == "torch" and (bool(parts & _CODE_OF_TORCH) or name in _CODE_CLASSES)


def is_shared(made: Thing) -> bool:
    """Whether a call gives something that the whole program shares, such as a value of an enumeration."""
    called = (made.path, *(each.function.path for each in handed_to(made) if type(each.function) is Global))
    return any(path in ENUMS or path == "uuid.SafeUUID" for path in called)


def is_data(path: str) -> bool:
    """Whether what a dotted name stands for may be made with any arguments, and hands none of them on."""
    return path in _CALLED and path not in DELEGATES | GIVES_BACK


def package_of(use: Use) -> str | None:
    """The package beyond Python and torch that loading would import."""
    package = use.module.partition(".")[0]
    if package in _STANDARD or package.startswith("<") or package in ("torch", "__torch__"):
        return None
    return package


def reputation(use: Use) -> str | None:
    """What the name is notorious for, in a few words."""
    package, *parts = use.path.split(".")
    if package == _TORCHSCRIPT:
        return "outside of a TorchScript archive is a module of the current folder, which loading runs"
    known = next((_NOTORIOUS[part] for part in (package, *parts[:-1]) if part in _NOTORIOUS), None)
    if known is None and _is_a_class(use) and _builds_code(use, package):
        return "can build code, start programs, or open and delete files"
    return known


def _is_a_class(use: Use) -> bool:
    """Whether the name is one word, written as classes are or used as only they can be.

    What it names is not looked up. An opcode that makes objects takes nothing but classes.
    """
    name = use.name
    if not (name.isascii() and name.isidentifier()):
        return False
    return name.lstrip("_")[:1].isupper() or (use.as_class > 0 and not use.as_function)
