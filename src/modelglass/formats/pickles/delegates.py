"""Functions that are harmless themselves, and call, make or give back what they are handed.

Such a function can do whatever is handed to it can, so each is broken down here into the calls that it makes.
A test holds this table against the parameters that the functions really have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from modelglass.formats.pickles.objects import Blob, Elements, Global, Pairs, Thing, as_text

MOST_DEPTH = 8  # of functions that are handed each other; beyond, the last one counts as computed


class Handed(NamedTuple):
    """A call that a function makes of what it is handed."""

    function: Any
    args: Any
    as_class: bool = False  # only an object is made
    changes: bool = False  # and what comes out of it gets a state


def handed_to(made: Thing) -> Iterator[Handed]:
    """The calls that one call leads to, if it is one of those functions; with wrong arguments it fails."""
    path = made.path
    delegate = _DELEGATES.get(path)
    if delegate is None and ".__pyx_unpickle_" in path:  # what Cython writes: a class, a number, a state
        delegate = _makes_first
    if delegate is None:
        return
    if type(made.args) not in (tuple, list):  # only a program that runs it knows what they are
        yield Handed(made, ())
        return
    try:
        yield from delegate(*made.args)
    except TypeError:
        return  # Python would refuse the arguments, too


def given_back(value: Any) -> Any:
    """What a value really is, where functions that give back what they are handed stand around it."""
    around: list[Thing] = []
    while isinstance(value, Thing) and (inside := _given_back(value)) is not None:
        around += (value,) if value.path in GIVES_BACK else ()
        value = inside
    for each in around:  # the next time it is one step: a file may pile up as many as it likes
        each.args = (value,)
    return value


def _given_back(call: Thing) -> Any:
    path, args = call.path, call.args
    if type(args) is not tuple or not args:
        return None
    if path in GIVES_BACK:
        return args[0]
    if path == "builtins.getattr":
        return _attribute(call)
    if path.endswith("core.multiarray.scalar") and len(args) == 2:  # for the type of any object
        return args[1] if isinstance(args[1], (Global, Thing)) else None
    return None


def harmless(made: Thing) -> bool:
    """Whether a function that can do much is called with what libraries themselves hand it."""
    path, args = made.path, made.args
    if path not in CONDITIONAL or type(args) is not tuple:
        return False
    if path == LOAD_SAVED:  # what torch itself saves that way is read as well
        return len(args) == 1 and _begins(args[0]).startswith(_SAVED)
    if len(args) != 2:
        return False
    of, what = args
    if path == "builtins.getattr":
        found = _attribute(made)
        if found is not None:
            return found.path in ATTRIBUTES or is_operator(found.path)
        return isinstance(of, Thing) and of.path.startswith("torch.nn.modules.") and what in _METHODS
    # As in Dict[str, int]; a text would be code, which is compiled.
    return type(of) is Global and of.module == "typing" and "." not in of.name and _are_types(what)


def _are_types(what: Any) -> bool:
    each = what if type(what) is tuple else (what,)
    return all(type(one) in (Global, type(None)) or isinstance(one, Thing) for one in each)


def hides(made: Thing) -> bool:
    """Whether a call makes text or bytes as no pickle of Python does, so that what they are is not seen."""
    path, args = made.path, made.args
    if path == "_codecs.encode":
        return text_of_bytes(made) is None
    if path not in ("builtins.bytes", "builtins.bytearray", "builtins.str") or type(args) is not tuple:
        return False
    first, encoding = (*args, None, None)[:2]
    if isinstance(first, Thing):
        return text_of_bytes(first) is None
    usual = ("latin1", "latin-1", "ascii", "utf-8", None)
    return isinstance(first, (list, tuple, Pairs, Elements)) or encoding not in usual


def _begins(saved: Any) -> bytes:
    """The first bytes of what is handed over, as protocol 3 or, by way of a text, protocol 2 writes them."""
    if type(saved) is Blob:
        return saved.head
    text = text_of_bytes(saved)
    return b"" if text is None else text[: len(_SAVED)].encode("latin-1", "replace")


def text_of_bytes(value: Any) -> str | None:
    """The text that stands for bytes where a protocol has none."""
    if not isinstance(value, Thing) or value.path != "_codecs.encode" or type(value.args) is not tuple:
        return None
    text, *rest = (*value.args, None)
    return text if type(text) is str and rest[0] in ("latin1", "latin-1") else None


def is_operator(path: str) -> bool:
    """Whether a name with dots is one of torch's operators on tensors, as activations of layers are."""
    owner, _, name = path.rpartition(".")
    return owner == _OPERATORS and not name.startswith("__") and name != "from_file"


def _attribute(made: Thing) -> Global | None:
    """The name with dots that `getattr` of a name comes to."""
    if type(made.args) is not tuple or len(made.args) != 2:
        return None
    of, name = made.args
    if type(of) is not Global or type(name) is not str or "." in of.name:
        return None
    return Global(of.module, f"{of.name}.{name}", made.offset)


def _from_type(func: Any, new_type: Any, args: Any, state: Any) -> Iterator[Handed]:
    yield Handed(func, args, changes=bool(state))
    yield Handed(new_type, (), as_class=True)
    if not (type(func) is Global and func.path.startswith(_REBUILD)):
        # What comes out of it may be no tensor; then its method `as_subclass` is whatever the file put there.
        yield Handed(Thing(func, args, 0), (new_type,))


def _makes_first(cls: Any, *rest: Any) -> Iterator[Handed]:
    yield Handed(cls, (), as_class=True)


def _makes_with_rest(cls: Any, *rest: Any) -> Iterator[Handed]:
    yield Handed(cls, rest, as_class=True)


def _makes_first_two(subtype: Any, base: Any, *rest: Any) -> Iterator[Handed]:
    yield Handed(subtype, (), as_class=True)
    yield Handed(base, (), as_class=True)


def _reconstructor(cls: Any, base: Any, state: Any) -> Iterator[Handed]:
    yield Handed(cls, (), as_class=True)
    if not (type(base) is Global and base.path == "builtins.object"):
        yield Handed(base, (state,))


def _bit_generator(cls: Any = None) -> Iterator[Handed]:
    if cls is not None and not as_text(cls):
        yield Handed(cls, ())


def _generator(name: Any = None, constructor: Any = None) -> Iterator[Handed]:
    if constructor is not None:
        yield Handed(constructor, (name,))


def _default(factory: Any = None, *rest: Any) -> Iterator[Handed]:
    if factory is not None:
        yield Handed(factory, ())


_DELEGATES: dict[str, Callable[..., Iterator[Handed]]] = {
    "torch._tensor._rebuild_from_type_v2": _from_type,
    "torch._utils._rebuild_wrapper_subclass": _makes_first,
    "copyreg._reconstructor": _reconstructor,
    "copyreg.__newobj__": _makes_with_rest,
    "collections.defaultdict": _default,
    "numpy.core.multiarray._reconstruct": _makes_first,
    "numpy._core.multiarray._reconstruct": _makes_first,
    "numpy.ma.core._mareconstruct": _makes_first_two,
    "numpy.random._pickle.__bit_generator_ctor": _bit_generator,
    "numpy.random._pickle.__generator_ctor": _generator,
    "numpy.random._pickle.__randomstate_ctor": _generator,
    "pandas.core.indexes.base._new_Index": _makes_first,
    "pandas.core.indexes.datetimes._new_DatetimeIndex": _makes_first,
    "pandas.core.indexes.interval._new_IntervalIndex": _makes_first,
    "pandas.core.indexes.period._new_PeriodIndex": _makes_first,
    "pandas.core.indexes.timedeltas._new_TimedeltaIndex": _makes_first,
    "sklearn.metrics._dist_metrics.newObj": _makes_first,
    "sklearn.neighbors._ball_tree.newObj": _makes_first,
    "sklearn.neighbors._kd_tree.newObj": _makes_first,
}
_REBUILD = ("torch._utils._rebuild_", "torch.nested._internal.nested_tensor._rebuild_njt")
GIVES_BACK = {"numpy.object_"} | frozenset(
    f"torch.jit._pickle.{name}"
    for name in (
        "build_boollist",
        "build_doublelist",
        "build_intlist",
        "build_tensorlist",
        "restore_type_tag",
    )
)
DELEGATES = frozenset(_DELEGATES)
# Functions that can do much, and that libraries themselves call with harmless arguments.
LOAD_SAVED = "torch.storage._load_from_bytes"
_SAVED = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # with which torch's files of before 1.6 begin
CONDITIONAL = frozenset({"builtins.getattr", "operator.getitem", "_operator.getitem", LOAD_SAVED})
# Methods of classes that pickles of Python and torch look up.
ATTRIBUTES = frozenset(
    {
        "zoneinfo.ZoneInfo._unpickle",
        "torch.optim.lr_scheduler.CyclicLR._triangular_scale_fn",
        "torch.optim.lr_scheduler.CyclicLR._triangular2_scale_fn",
        "scipy.interpolate._interpolate.interp1d._call_linear",
        "scipy.interpolate._interpolate.interp1d._call_linear_np",
        "scipy.interpolate._interpolate.interp1d._call_nearest",
        "scipy.interpolate._interpolate.interp1d._call_previousnext",
        "scipy.interpolate._interpolate.interp1d._call_spline",
    }
)
_OPERATORS = "torch._C._VariableFunctionsClass"
_METHODS = frozenset({"_infer_parameters", "_lazy_load_hook"})  # of layers without sizes, as their hooks
