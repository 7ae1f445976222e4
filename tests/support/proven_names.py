"""Which names of libraries are data: found by looking at what each really is, and written as a table.

`python tests/support/proven_names.py` rewrites `formats/pickles/proven.py` for the libraries that are
installed, and keeps what it says of others.
Nothing gets into the table for its name. A class must be what its name says,
and all that unpickling runs of it must be Python's own or have been read by somebody, and stand in
`REVIEWED`; functions that pickles call are listed one by one; functions that they only name must compute.
"""

from __future__ import annotations

import builtins
import collections
import enum
import importlib
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parents[2] / "src" / "modelglass" / "formats" / "pickles" / "proven.py"
KINDS = ("MADE", "CALLED", "ENUMS", "NAMED")
WIDTH = 108


def _words(text: str) -> list[str]:
    return text.split()


# What unpickling may run of a class: making an object, setting its state and items, and the object's end.
RUN = (
    "__new__", "__setstate__", "__setstate_cython__", "__setattr__", "__setitem__", "__getattr__",
    "__getattribute__", "append", "extend", "add", "__del__", "__missing__",
)  # fmt: skip
OWN = {each for each in vars(builtins).values() if isinstance(each, type)} | {
    collections.OrderedDict,
    collections.UserDict,
    collections.defaultdict,
}
# Methods that were read: they set attributes and items, compare versions, and make arrays.
REVIEWED = frozenset(
    _words(
        """
        torch.nn.modules.activation.LogSoftmax.__setstate__
        torch.nn.modules.activation.MultiheadAttention.__setstate__
        torch.nn.modules.activation.Softmax.__setstate__ torch.nn.modules.activation.Softmin.__setstate__
        torch.nn.modules.container.Container.__new__ torch.nn.modules.container.ModuleDict.__setitem__
        torch.nn.modules.container.ModuleList.__setitem__ torch.nn.modules.container.ModuleList.append
        torch.nn.modules.container.ModuleList.extend torch.nn.modules.container.ParameterDict.__setitem__
        torch.nn.modules.container.ParameterList.__setitem__ torch.nn.modules.container.ParameterList.append
        torch.nn.modules.container.ParameterList.extend torch.nn.modules.container.Sequential.__setitem__
        torch.nn.modules.container.Sequential.append torch.nn.modules.container.Sequential.extend
        torch.nn.modules.conv._ConvNd.__setstate__ torch.nn.modules.module.Module.__getattr__
        torch.nn.modules.module.Module.__setattr__ torch.nn.modules.module.Module.__setstate__
        torch.nn.modules.module._WrappedHook.__setstate__ torch.nn.modules.loss.NLLLoss2d.__new__
        torch.nn.modules.pooling.AvgPool3d.__setstate__ torch.nn.modules.rnn.RNNBase.__setattr__
        torch.nn.modules.rnn.RNNBase.__setstate__
        torch.nn.modules.transformer.TransformerDecoderLayer.__setstate__
        torch.nn.modules.transformer.TransformerEncoderLayer.__setstate__
        torch.nn.modules.upsampling.Upsample.__setstate__
        torch.nn.parallel.distributed.DistributedDataParallel.__setstate__
        torch.nn.utils.rnn.PackedSequence.__new__ torch.optim.Adafactor.__setstate__
        torch.optim.adadelta.Adadelta.__setstate__ torch.optim.adagrad.Adagrad.__setstate__
        torch.optim.adam.Adam.__setstate__ torch.optim.adamax.Adamax.__setstate__
        torch.optim.adamw.AdamW.__setstate__ torch.optim.asgd.ASGD.__setstate__
        torch.optim.nadam.NAdam.__setstate__ torch.optim.optimizer.Optimizer.__setstate__
        torch.optim.radam.RAdam.__setstate__ torch.optim.rmsprop.RMSprop.__setstate__
        torch.optim.rprop.Rprop.__setstate__ torch.optim.sgd.SGD.__setstate__
        torch.ao.nn.quantized.modules.conv._ConvNd.__setstate__
        torch.ao.nn.quantized.modules.functional_modules.FXFloatFunctional.add
        torch.ao.nn.quantized.modules.functional_modules.FloatFunctional.add
        torch.ao.nn.quantized.modules.functional_modules.QFunctional.add
        torch.ao.nn.sparse.quantized.linear.LinearPackedParams.__setstate__
        torch.ao.quantization.observer.Granularity.__setattr__
        torch.ao.quantization.observer.PerAxis.__setattr__
        torch.ao.quantization.observer.PerBlock.__setattr__
        torch.ao.quantization.observer.PerGroup.__setattr__
        torch.ao.quantization.observer.PerTensor.__setattr__ torch.amp.grad_scaler.GradScaler.__setstate__
        torch.utils.hooks.RemovableHandle.__setstate__ torch.ScriptObject.__getattr__
        torch.distributed.checkpoint.metadata.MetadataIndex.__setattr__
        torch.distributed.checkpoint.metadata.TensorProperties.__setstate__ numpy.ma.MaskedArray.__new__
        numpy.ma.MaskedArray.__setitem__ numpy.ma.MaskedArray.__setstate__
        numpy.polynomial._polybase.ABCPolyBase.__setstate__ numpy.poly1d.__setitem__ numpy.matrix.__new__
        sklearn.base.BaseEstimator.__setstate__ sklearn.isotonic.IsotonicRegression.__setstate__
        sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor.__setstate__
        sklearn.frozen._frozen.FrozenEstimator.__getattr__ sklearn.utils._bunch.Bunch.__setstate__
        sklearn.utils._bunch.Bunch.__setattr__ sklearn.utils._bunch.Bunch.__getattr__
        sklearn.linear_model._passive_aggressive.PassiveAggressiveClassifier.__new__
        sklearn.linear_model._passive_aggressive.PassiveAggressiveRegressor.__new__
        scipy.interpolate._polyint._Interpolator1D.__setattr__ scipy._lib._util._RichResult.__getattr__
        scipy.optimize._optimize.OptimizeResult.__getattr__ scipy.sparse._index.IndexMixin.__setitem__
        scipy.sparse._lil._lil_base.__setitem__ scipy.sparse._dok._dok_base.__setitem__
        scipy.sparse._coo._coo_base.__setitem__ pandas.core.generic.NDFrame.__getattr__
        pandas.core.generic.NDFrame.__setattr__ pandas.core.generic.NDFrame.__setstate__
        pandas.DataFrame.__setitem__ pandas.Series.__setitem__
        pandas.core.internals.managers.SingleBlockManager.__setstate__
        pandas.arrays.ArrowExtensionArray.__setitem__ pandas.arrays.ArrowExtensionArray.__setstate__
        pandas.arrays.IntervalArray.__new__ pandas.arrays.IntervalArray.__setitem__
        pandas.arrays.SparseArray.__setitem__ pandas.arrays.SparseArray.__setstate__
        pandas.arrays.StringArray.__setitem__
        pandas.core.arrays._mixins.NDArrayBackedExtensionArray.__setitem__
        pandas.core.arrays.datetimelike.DatetimeLikeArrayMixin.__setitem__
        pandas.core.arrays.masked.BaseMaskedArray.__setitem__ pandas.PeriodDtype.__new__
        pandas.PeriodDtype.__setstate__ pandas.DatetimeTZDtype.__setstate__ pandas.IntervalDtype.__new__
        pandas.IntervalDtype.__setstate__ pandas.CategoricalDtype.__setstate__ pandas.Index.__new__
        pandas.Index.__setitem__ pandas.Index.append pandas.RangeIndex.__new__ pandas.MultiIndex.__new__
        pandas.MultiIndex.append pandas.DatetimeIndex.__new__ pandas.TimedeltaIndex.__new__
        pandas.PeriodIndex.__new__ pandas.IntervalIndex.__new__ pandas.CategoricalIndex.__new__
        pandas.SparseDtype.__setattr__ pandas.Categorical.__setstate__ omegaconf.base.Container.__setitem__
        omegaconf.base.Node.__setstate__ omegaconf.basecontainer.BaseContainer.__setstate__
        omegaconf.dictconfig.DictConfig.__getattr__ omegaconf.dictconfig.DictConfig.__setattr__
        omegaconf.dictconfig.DictConfig.__setitem__ omegaconf.listconfig.ListConfig.__getattr__
        omegaconf.listconfig.ListConfig.__setattr__ omegaconf.listconfig.ListConfig.__setitem__
        omegaconf.listconfig.ListConfig.append omegaconf.listconfig.ListConfig.extend
        omegaconf.nodes.ValueNode.__setattr__ accelerate.state.PartialState.__getattr__
        accelerate.state.AcceleratorState.__getattr__
        lightning.fabric.utilities.data.AttributeDict.__getattr__
        lightning.fabric.utilities.data.AttributeDict.__setattr__
        lightning_fabric.utilities.data.AttributeDict.__getattr__
        lightning_fabric.utilities.data.AttributeDict.__setattr__ pandas.DataFrame.add
        pandas.Series.add scipy.interpolate._interpolate._PPolyBase.extend
        scipy._lib._util._RichResult.__setattr__ scipy.sparse._bsr._bsr_base.__setitem__
        scipy.sparse._coo.coo_matrix.__setstate__ scipy.sparse._coo.coo_matrix.__setitem__
        scipy.spatial.transform._rotation.Rotation.__setstate__
        scipy.spatial.transform._rotation.Rotation.__setitem__
        sklearn.utils._metadata_requests.MetadataRequest.__getattr__
        """
    )
)
# Compiled modules with nothing but numbers in them: what they run cannot be read here.
COMPILED = (
    "numpy.", "pandas._libs.", "scipy.spatial._ckdtree.", "scipy.spatial.transform.", "scipy.interpolate.",
    "sklearn._loss.", "sklearn.linear_model._sgd_fast.", "sklearn.metrics._dist_metrics.",
    "sklearn.neighbors._kd_tree.", "sklearn.neighbors._ball_tree.", "sklearn.tree._",
    "sklearn.utils._random.", "torch._C.",
)  # fmt: skip

# Of these, classes that pickles make by calling them, with numbers.
CONSTRUCTED = (
    "sklearn._loss._loss", "sklearn.linear_model._sgd_fast", "pandas._libs.tslibs.offsets",
)  # fmt: skip

# Where data is: a module, or with a dot at the end, a package; and what of it is left out.
SOURCES = {
    "torch": _words(
        """
        torch.nn.modules. torch.nn.parallel. torch.nn.utils. torch.optim. torch.ao.nn.
        torch.ao.quantization. torch.nn.quantized. torch.nn.quantizable. torch.nn.intrinsic. torch.nn.qat.
        torch.quantization. torch.amp.grad_scaler torch.cuda.amp.grad_scaler torch.distributions.
        torch.utils.data.dataset torch.utils.data.sampler torch.utils.hooks
        torch.distributed.checkpoint.metadata
        """
    ),
    "numpy": ["numpy.ma.", "numpy.polynomial.", "numpy.dtypes"],
    "sklearn": ["sklearn."],
    "scipy": ["scipy.sparse.", "scipy.spatial.", "scipy.interpolate.", "scipy.optimize._optimize"],
    "pandas": _words(
        """
        pandas pandas.arrays pandas.core.frame pandas.core.series pandas.core.internals.
        pandas.core.indexes. pandas.core.arrays. pandas.core.dtypes.dtypes pandas._libs.tslibs.
        pandas._libs.interval pandas._libs.sparse pandas._libs.internals pandas._libs.arrays
        """
    ),
    "omegaconf": ["omegaconf.base", "omegaconf.dictconfig", "omegaconf.listconfig", "omegaconf.nodes"],
    "accelerate": ["accelerate.state", "accelerate.utils.dataclasses", "accelerate.parallelism_config"],
    "transformers": _words(
        """
        transformers.training_args transformers.training_args_seq2seq transformers.trainer_utils
        transformers.trainer_pt_utils transformers.trainer_callback
        transformers.generation.configuration_utils
        """
    ),
    "lightning": ["lightning.fabric.utilities.data", "lightning.fabric.utilities.types"],
    "pytorch_lightning": [],
    "lightning_fabric": ["lightning_fabric.utilities.data"],
    "timm": ["timm.layers.format"],
    "torchvision": ["torchvision.transforms.functional"],
    "peft": ["peft.utils.peft_types"],
}
# Modules that are only there for files of older versions.
OLD_NAMES = (
    "torch.nn.quantized.", "torch.nn.quantizable.", "torch.nn.intrinsic.", "torch.nn.qat.",
    "torch.quantization.",
)  # fmt: skip
LEFT_OUT = (
    "tests", "conftest", "__main__", "_testing", "fx", "pt2e", "datasets", "externals", "callback",
    "computation", "plotting", "window", "groupby", "reshape", "_expanded_weights", "_numeric_suite",
    "_numeric_suite_fx", "_bundled", "parsers", "sas", "experimental",
)  # fmt: skip
# Single names: of classes elsewhere, and of functions that pickles call, all of which were read.
SINGLE = {
    "torch": {
        "MADE": _words(
            """
            torch.ScriptObject torch.distributed.checkpoint.filesystem._StorageInfo
            torch.distributed.checkpoint.filesystem._StoragePrefix
            """
        ),
        "CALLED": _words(
            """
            torch.torch_version.TorchVersion torch.nn.parameter.UninitializedBuffer
            torch.amp.grad_scaler._refresh_per_optimizer_state
            torch.jit._pickle.build_intlist torch.jit._pickle.build_tensorlist
            torch.jit._pickle.build_doublelist torch.jit._pickle.build_boollist
            torch.jit._pickle.build_tensor_from_id torch.jit._pickle.restore_type_tag
            """
        ),
        "NAMED": _words(
            """
            torch._C._VariableFunctionsClass
            """
        ),
    },
    "numpy": {
        "MADE": _words(
            """
            numpy.ndarray numpy.matrix numpy.recarray numpy.rec.recarray numpy.record numpy.poly1d
            numpy.random.bit_generator.SeedSequence
            """
        ),
        "CALLED": _words(
            """
            numpy.core.multiarray._reconstruct numpy.core.multiarray.scalar
            numpy._core.multiarray._reconstruct numpy._core.multiarray.scalar numpy.core.numeric._frombuffer
            numpy._core.numeric._frombuffer numpy.dtype numpy.ma.core._mareconstruct
            numpy.random._pickle.__bit_generator_ctor numpy.random._pickle.__generator_ctor
            numpy.random._pickle.__randomstate_ctor numpy.random.bit_generator.__pyx_unpickle_SeedSequence
            numpy.float16 numpy.float32 numpy.float64 numpy.longdouble numpy.int8 numpy.int16 numpy.int32
            numpy.int64 numpy.uint8 numpy.uint16 numpy.uint32 numpy.uint64 numpy.bool_ numpy.bool
            numpy.complex64 numpy.complex128 numpy.str_ numpy.bytes_ numpy.datetime64 numpy.timedelta64
            numpy.void numpy.object_ numpy.random._mt19937.MT19937 numpy.random._pcg64.PCG64
            numpy.random._pcg64.PCG64DXSM numpy.random._philox.Philox numpy.random._sfc64.SFC64
            """
        ),
    },
    "sklearn": {
        "CALLED": _words(
            """
            sklearn.metrics._dist_metrics.newObj sklearn.neighbors._kd_tree.newObj
            sklearn.neighbors._ball_tree.newObj sklearn.tree._tree.Tree
            """
        ),
    },
    "joblib": {"MADE": ["joblib.numpy_pickle.NumpyArrayWrapper"]},
    "scipy": {"NAMED": ["scipy._lib.array_api_compat.numpy._aliases.asarray"]},
    "pandas": {
        "CALLED": _words(
            """
            pandas._libs.internals._unpickle_block pandas._libs.arrays.__pyx_unpickle_NDArrayBacked
            pandas._libs.interval.__pyx_unpickle_IntervalMixin pandas._libs.tslibs.nattype._nat_unpickle
            pandas._libs.tslibs.timedeltas._timedelta_unpickle
            pandas._libs.tslibs.timestamps._unpickle_timestamp pandas.core.indexes.base._new_Index
            pandas.core.indexes.datetimes._new_DatetimeIndex pandas.core.indexes.interval._new_IntervalIndex
            pandas.core.indexes.period._new_PeriodIndex pandas.core.indexes.timedeltas._new_TimedeltaIndex
            pandas.core.internals.blocks.new_block pandas.Interval pandas.Period pandas.PeriodDtype
            pandas.StringDtype pandas._libs.interval.Interval pandas._libs.tslibs.period.Period
            pandas._libs.sparse.IntIndex pandas._libs.sparse.BlockIndex
            pandas.core.internals.managers.BlockManager
            """
        ),
        "NAMED": _words(
            """
            pandas.NA
            """
        ),
    },
    "pyarrow": {
        "CALLED": _words(
            """
            pyarrow.lib._restore_array pyarrow.lib.py_buffer pyarrow.lib.type_for_alias
            """
        ),
    },
}
# Modules whose functions compute with what they are handed, and that are only named: activations, scores.
COMPUTING = {
    "torch": ["torch.nn.functional", "torch._C._nn", "torch.nn.init"],
    "numpy": ["numpy"],
    "sklearn": [
        "sklearn.metrics._classification", "sklearn.metrics._regression", "sklearn.metrics._ranking",
        "sklearn.metrics.pairwise", "sklearn.feature_selection._univariate_selection",
        "sklearn.feature_selection._mutual_info", "sklearn.cluster._kmeans",
    ],
}  # fmt: skip
# What other than computing these modules have: it reads, writes, compiles, or is told what to call.
DOES_MORE = frozenset(
    _words(
        """
        from_file load save compile set_default_device set_default_dtype set_default_tensor_type
        set_printoptions boolean_dispatch handle_torch_function has_torch_function assert_int_or_pair cond
        while_loop fromfile loadtxt savetxt genfromtxt fromregex save savez savez_compressed tofile
        fromfunction frompyfunc vectorize apply_along_axis apply_over_axes piecewise set_string_function
        setbufsize seterrcall seterr show_config show_runtime info test memmap load get_include
        """
    )
)


def proven(package: str) -> dict[str, set[str]]:
    """The names of one library by what may be done with them; it is imported for that."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    modules = [module for source in SOURCES.get(package, ()) for module in _modules(source)]
    classes = [
        (module, name, value)
        for module in modules
        for name, value in sorted(vars(module).items())
        if isinstance(value, type)
    ]
    objects = set()
    for module, name, cls in classes:
        kind = _kind(cls) if _is(cls, module, name) else None
        if kind is not None:
            objects.add(cls)
            found[kind].add(f"{module.__name__}.{name}")
    for module, name, cls in classes:  # what the proven was called in files of older versions
        if cls in objects and _was_called(cls, module, name):
            found[_kind(cls) or ""].add(f"{module.__name__}.{name}")
    for kind, names in SINGLE.get(package, {}).items():
        found[kind] |= {path for path in names if _get(path) is not None}
    for name in COMPUTING.get(package, ()):
        found["NAMED"] |= set(_computing(importlib.import_module(name)))
    found["MADE"] -= found["CALLED"]
    return found


def _modules(source: str) -> Iterator[types.ModuleType]:
    name = source.removesuffix(".")
    module = _imported(name)
    if module is None:
        return
    yield module
    if source.endswith("."):
        for each in pkgutil.walk_packages(getattr(module, "__path__", ()), source, onerror=lambda _: None):
            if not set(each.name.split(".")) & set(LEFT_OUT):
                inner = _imported(each.name)
                if inner is not None:
                    yield inner


def _imported(name: str) -> types.ModuleType | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except (ImportError, AttributeError, RuntimeError, ValueError):
        return None


def _is(cls: type, module: types.ModuleType, name: str) -> bool:
    """Whether a class is what it is called."""
    return (cls.__module__, cls.__qualname__) == (module.__name__, name)


def _was_called(cls: type, module: types.ModuleType, name: str) -> bool:
    """Whether a class has its code here, or this is a module that only keeps old names."""
    if module.__name__.startswith(OLD_NAMES):
        return True
    code = (each for each in vars(cls).values() if isinstance(each, types.FunctionType))
    return name == cls.__qualname__ and any(each.__globals__ is vars(module) for each in code)


def _kind(cls: type) -> str | None:
    """Whether objects of a class can be made and filled without running anything but what was read."""
    if issubclass(cls, (BaseException, type)):
        return None
    if issubclass(cls, enum.Enum):
        return "ENUMS"
    if list(unread(cls)):
        return None
    return "CALLED" if cls.__module__ in CONSTRUCTED else "MADE"


def unread(cls: type) -> Iterator[str]:
    """What unpickling may run of a class that nobody has read."""
    for method in RUN:
        owner = next(each for each in (*cls.__mro__, None) if each is None or method in vars(each))
        if owner is None or owner in OWN:
            continue
        path = f"{owner.__module__}.{owner.__qualname__}.{method}"
        compiled = not isinstance(vars(owner)[method], (types.FunctionType, staticmethod))
        is_named_tuple = method == "__new__" and issubclass(owner, tuple) and hasattr(owner, "_fields")
        if path in REVIEWED or is_named_tuple or (compiled and path.startswith(COMPILED)):
            continue
        yield path


def _computing(module: types.ModuleType) -> Iterator[str]:
    """Functions of a module that compute: its own in Python, operators of torch, and universal ones."""
    for name, value in vars(module).items():
        own = isinstance(value, types.FunctionType) and value.__module__ == module.__name__
        computes = type(value).__name__ in ("ufunc", "_ArrayFunctionDispatcher") or _is_operator(value)
        # In the root of a package, functions in Python are helpers of every kind.
        if (computes or (own and "." in module.__name__)) and not (
            name in DOES_MORE or name.startswith("__") or "file" in name
        ):
            yield f"{module.__name__}.{name}"


def _is_operator(value: Any) -> bool:
    owner = getattr(value, "__self__", None)
    if not isinstance(value, types.BuiltinFunctionType) or owner is None:
        return False
    owned = owner.__name__ if isinstance(owner, (type, types.ModuleType)) else type(owner).__name__
    return owned in ("_VariableFunctionsClass", "torch._C._nn", "_nn")


def _get(path: str) -> Any:
    parts = path.split(".")
    module = _imported(".".join(parts[:-1]))
    return getattr(module, parts[-1], None)


# The table


def stored() -> dict[str, set[str]]:
    from modelglass.formats.pickles import proven as table

    return {kind: set(getattr(table, kind)) for kind in KINDS}


def packages() -> set[str]:
    return set(SOURCES) | set(SINGLE)


def installed() -> list[str]:
    return sorted(package for package in packages() if find_spec(package) is not None)


def of_package(names: set[str], package: str) -> set[str]:
    return {name for name in names if name.partition(".")[0] == package}


def text(table: dict[str, set[str]]) -> str:
    head = '''"""Names that pickles of well-known libraries use, and that were proven to be data.

Written by `tests/support/proven_names.py`; do not edit. Of MADE, objects may be made and given a
state; of CALLED and ENUMS, also with arguments; what is NAMED may be referred to, and not called.
"""

from __future__ import annotations


def _names(table: str) -> frozenset[str]:
    """Each line has a module and names in it."""
    found = (line.split() for line in table.splitlines())
    return frozenset(f"{module}.{name}" for module, *names in filter(None, found) for name in names)
'''
    return head + "".join(f'\n\n{kind} = _names("""\n{_lines(table[kind])}""")' for kind in KINDS) + "\n"


def _lines(names: set[str]) -> str:
    by_module: dict[str, list[str]] = {}
    for path in sorted(names):
        module, _, name = path.rpartition(".")
        by_module.setdefault(module, []).append(name)
    lines = []
    for module, inside in sorted(by_module.items()):
        line = module
        for name in inside:
            if len(line) + len(name) + 1 > WIDTH and line != module:
                lines.append(line)
                line = module
            line += f" {name}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    from torchvision_beside_cpu import make_torchvision_importable

    make_torchvision_importable()
    table = stored() if TABLE.exists() else {kind: set() for kind in KINDS}
    for package in sys.argv[1:] or installed():
        found = proven(package)
        for kind in KINDS:
            table[kind] = (table[kind] - of_package(table[kind], package)) | found[kind]
        print(package, {kind: len(names) for kind, names in found.items()})  # noqa: T201
    TABLE.write_text(text(table))


if __name__ == "__main__":
    main()
