"""What a pickle can do without calling anything notorious: by states, texts, types and destructors."""

from __future__ import annotations

import ast
import pickle
from typing import Any

import numpy as np
import pytest
from test_pickle_findings import RANK, instance, mapping, named, proto4, scanned, text, worst

import acting_names
from modelglass.formats.pickles.acting import ACTING
from modelglass.formats.pickles.proven import CALLED, ENUMS, MADE

CODE = text("__import__('os').system('id')")
TUPLE = named("sympy.core.containers", "Tuple")  # evaluates texts that it is made of


def codes(code: bytes) -> set[tuple[str, str]]:
    return {(f.code, f.level) for f in scanned(proto4(code)).findings}


@pytest.mark.parametrize(
    "code",
    [
        TUPLE + CODE + b"\x85\x81",
        TUPLE + b"](" + CODE + b"e\x85\x81",
        TUPLE + b")" + mapping(text("sympify") + CODE) + b"\x92",
        TUPLE + named("builtins", "str") + CODE + b"\x85R\x85\x81",
        TUPLE + named("numpy", "str_") + CODE + b"\x85R\x85\x81",
        TUPLE + b"C\x01x\x85\x81",
        named("copyreg", "__newobj__") + TUPLE + CODE + b"\x86R",
        named("mine", "Reader") + text("../secret") + b"\x85\x81",
        named("mine", "Reader") + b")" + mapping(text("path") + text("notes.txt")) + b"\x92",
        named("mine", "Reader") + b")" + named("mine", "Kwargs") + b")R\x92",
        named("mine", "Reader") + text("w" * 300) + b"\x85\x81",
    ],
    ids=range(11),
)
def test_text_that_a_class_is_made_with_is_high_unless_it_is_words(code: bytes) -> None:
    assert worst(proto4(code)) == "high"


@pytest.mark.parametrize(
    "code",
    [
        named("sympy", "Symbol") + text("x") + b"\x85" + mapping(text("integer") + b"\x88") + b"\x92",
        named("mine", "Settings") + text("adam") + b"K\3](K\1K\2e\x87\x81",
        named("mine", "Settings") + text("one cycle, long") + b"\x85\x81",
        named("scipy.stats._kde", "gaussian_kde") + b")\x81}b",
        named("mine", "net") + b")\x81}b",
    ],
    ids=range(5),
)  # fmt: skip
def test_a_class_that_is_made_with_words_or_nothing_is_a_notice(code: bytes) -> None:
    assert worst(proto4(code)) == "notice"


def test_a_name_in_small_letters_is_a_class_only_where_nothing_else_is_taken() -> None:
    made = named("mine", "net") + b"\x94)\x81"
    assert worst(proto4(named("mine", "net") + b")R")) == "high"
    assert worst(proto4(made + b"0h\x00)R")) == "high"
    assert worst(proto4(made + b"0" + named("collections", "defaultdict") + b"h\x00\x85R")) == "high"


# Classes that act with nothing but a state


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("numpy.lib._datasource", "DataSource"), ("numpy.lib.npyio", "DataSource"),
        ("torch.utils.data.datapipes.datapipe", "_IterDataPipeSerializationWrapper"),
        ("fsspec.caching", "MMapCache"), ("transformers.integrations", "NeptuneCallback"),
    ],
)  # fmt: skip
def test_a_class_whose_state_is_acted_upon_is_high(module: str, name: str) -> None:
    assert worst(proto4(instance(module, name, b"}"))) == "high"
    assert worst(proto4(instance("mine", name, b"}"))) == "notice"  # only a name


@pytest.mark.parametrize("package", ["numpy", "fsspec"])
def test_classes_that_act_are_those_that_the_sources_show(package: str) -> None:
    assert acting_names.stored().get(package, set()) == acting_names.acting(package)


def test_the_table_of_classes_that_act_is_what_its_generator_writes() -> None:
    assert acting_names.TABLE.read_text() == acting_names.text(acting_names.stored())


def test_what_is_proven_to_be_data_does_not_act() -> None:
    data = {(path.partition(".")[0], path.rpartition(".")[2]) for path in MADE | CALLED | ENUMS}
    assert not data & {tuple(path.split(".")) for path in ACTING}


@pytest.mark.parametrize(
    ("source", "acts"),
    [
        ("def __del__(self):\n  shutil.rmtree(self.x)", True),
        ("def __setstate__(self, s):\n  self._go()\n def _go(self):\n  open(self.path, 'wb')", True),
        ("def __setstate__(self, s):\n  helper(s)", True),
        ("def __setstate__(self, s):\n  json.loads(s)\n  self.image.open()", False),
        ("def run(self):\n  eval(self.x)", False),
    ],
)
def test_acting_is_found_through_methods_and_functions(source: str, acts: bool) -> None:
    tree = ast.parse(f"def helper(s):\n exec(s)\nclass A:\n {source}\n")
    function, cls = tree.body
    assert isinstance(cls, ast.ClassDef)
    assert isinstance(function, ast.FunctionDef)
    assert acting_names._acts(cls, {"helper": function}) is acts


# Bytes that are computed


@pytest.mark.parametrize(
    "code",
    [
        named("_codecs", "encode") + text("\u6f63\u0a73") + text("utf-16-le") + b"\x86R",
        named("_codecs", "encode") + named("builtins", "str") + b")R" + text("latin1") + b"\x86R",
        named("builtins", "bytes") + b"](K\x80K\x04e\x85R",
        named("builtins", "bytearray") + b"K\x80K\x04\x86\x85R",
        named("builtins", "str") + b"C\x02xx" + text("utf-16") + b"\x86R",
        named("builtins", "bytes") + named("builtins", "range") + b"K\5\x85R\x85R",
    ],
    ids=range(6),
)  # fmt: skip
def test_text_and_bytes_that_are_computed_are_said_to_hide_something(code: bytes) -> None:
    assert ("pickle.hidden", "high") in codes(code)


@pytest.mark.parametrize("protocol", range(6))
def test_bytes_as_python_writes_them_hide_nothing(protocol: int) -> None:
    values = [b"", b"\x80\xff", bytearray(b"\xfe"), bytearray(), "text", {1: b"x" * 300}]
    assert not scanned(pickle.dumps(values, protocol)).findings


# Types of numpy's arrays that lie about what they hold


def dtype(kind: str, *state: Any) -> bytes:
    made = named("numpy", "dtype") + text(kind) + b"\x89\x88\x87R"
    return made + b"(" + b"".join(state) + b"tb" if state else made


def state(size: int = -1, flags: int = 0, fields: bytes = b"N", subarray: bytes = b"N") -> tuple[bytes, ...]:
    numbers = b"J" + size.to_bytes(4, "little", signed=True), b"K\1", b"J" + flags.to_bytes(4, "little")
    return b"K\3", text("|"), subarray, b"N" if fields == b"N" else text("a") + b"\x85", fields, *numbers


def field(made: bytes, offset: int = 0) -> bytes:
    return mapping(text("a"), made + b"J" + offset.to_bytes(4, "little", signed=True) + b"\x86")


@pytest.mark.parametrize(
    "code",
    [
        dtype("O8", *state()),
        dtype("|O", *state(flags=1)),
        dtype("V8", *state(8, 16, field(dtype("O8")))),
        dtype("V8", *state(8, 16, field(dtype("V8", *state(8, 27, field(dtype("O8"))))))),
        dtype("V8", *state(8, 16, b"N", dtype("O8") + b"K\1\x85\x86")),
        dtype("V8", *state(8, 0, field(named("mine", "dtype")))),
        named("numpy", "dtype") + named("numpy", "object_") + b"\x85R(" + b"".join(state()) + b"tb",
        named("numpy.dtypes", "ObjectDType") + b")\x81(" + b"".join(state()) + b"tb",
        dtype("V8", *state(8, 16, field(dtype("f8"), 1_000_000))),
        dtype("V8", *state(8, 16, field(dtype("f8"), -8))),
        dtype("V8", *state(8, 16, field(dtype("f8"), 4))),
        dtype("S8", *state(-5)),
    ],
    ids=range(12),
)
def test_types_that_reach_other_memory_are_high(code: bytes) -> None:
    assert ("pickle.memory", "high") in codes(code)


@pytest.mark.parametrize(
    "value",
    [
        np.arange(3.0), np.array([1, {"a": 2}], object), np.zeros(2, [("a", "f4"), ("b", "O")]),
        np.zeros(2, np.dtype([("a", "f4"), ("b", "i8", (2, 3))], align=True)), np.array(["x", "yy"]),
        np.zeros(1, [("a", [("b", "O"), ("c", "S3")])]), np.array([b"abc"]), np.array(["2020"], "M8[D]"),
        np.zeros(1, {"names": ["a"], "formats": ["f4"], "offsets": [4], "itemsize": 16}), np.void(b"abcd"),
        np.zeros(1, ">i4"), np.zeros(1, [("t", "M8[ns]"), ("u", "U5")]), np.empty(0, "S"), np.empty(0, "V"),
        np.rec.array([(1, "a")], dtype=[("x", "i4"), ("y", "U1")]), np.float16(1), np.str_("x"),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_types_as_numpy_writes_them_are_ordinary(value: Any, protocol: int) -> None:
    levels = {finding.level for finding in scanned(pickle.dumps(value, protocol)).findings}
    assert max((RANK[level] for level in levels), default=0) == 0


# What is read from other files, annotations, and dictionaries of pairs


@pytest.mark.parametrize(
    ("name", "level"), [("../x.npy", "high"), ("/x.npy", "high"), ("x_01.npy", "notice")]
)
@pytest.mark.parametrize("wrapper", ["NDArrayWrapper", "ZNDArrayWrapper"])
def test_arrays_of_old_joblib_lie_beside_their_pickle(wrapper: str, name: str, level: str) -> None:
    code = instance("joblib.numpy_pickle_compat", wrapper, mapping(text("filename"), text(name)))
    assert worst(proto4(code)) == level


def test_a_text_is_not_a_type_in_an_annotation() -> None:
    optional = named("_operator", "getitem") + named("typing", "Optional")
    assert worst(proto4(optional + CODE + b"\x86R")) == "high"
    assert worst(proto4(optional + named("builtins", "int") + b"\x86R")) == "info"


@pytest.mark.parametrize("name", ["collections.OrderedDict", "collections.UserDict", "builtins.dict"])
def test_a_dictionary_that_is_made_of_pairs_is_looked_through(name: str) -> None:
    pairs = b"](" + text("_target_") + text("os.system") + b"\x86" + b"e"
    code = named(*name.rsplit(".", 1)) + pairs + b"\x85R"
    assert ("code.target", "notice") in codes(code)


def test_very_long_names_are_kept_by_their_ends() -> None:
    code = text("first" + ".a" * 30_000 + ".last") + b"\x94" + text("run") + b"\x93)R"
    (use,) = scanned(proto4(code)).globals
    assert len(use.name) < 400
    assert use.name.startswith("first.a")
    assert use.name.endswith(".last.run")
