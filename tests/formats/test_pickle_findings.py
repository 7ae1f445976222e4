"""What is said of a pickle's names and calls, however they are dressed up."""

from __future__ import annotations

import pickle
import struct
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

import modelglass as mg
from modelglass.errors import FileError
from modelglass.formats.pickles import load, scan_stream
from modelglass.formats.pickles.known import reputation
from modelglass.formats.pickles.uses import Use
from modelglass.formats.reading import MOST_FINDINGS, Reading
from modelglass.formats.source import Source
from modelglass.report import Finding

RANK = {"info": 0, "notice": 1, "high": 2, "invalid": 3}


def scanned(data: bytes) -> Reading:
    reading = Reading()
    try:
        scan_stream(Source(lambda at, n: data[at : at + n], len(data), file="x.pkl"), reading)
    except FileError:
        reading.format = "failed"
    return reading


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def named(module: str, name: str) -> bytes:
    return text(module) + text(name) + b"\x93"


def proto4(code: bytes) -> bytes:
    return b"\x80\x04" + code + b"."


def worst(data: bytes) -> str:
    return max((finding.level for finding in scanned(data).findings), key=RANK.__getitem__, default="info")


def finding_of(data: bytes, name: str) -> Finding:
    return next(f for f in scanned(data).findings if f.details.get("name") == name)


COMMAND = text("id") + b"\x85"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (text("os") + text("x") + b"0q\x000h\x00" + text("system") + b"\x93" + COMMAND + b"R", "os.system"),
        (named("pathlib", "os.system") + COMMAND + b"R", "pathlib.os.system"),
        (named("builtins", "getattr") + named("os", "path") + text("x") + b"\x86R", "builtins.getattr"),
        (named("operator", "attrgetter") + COMMAND + b"R", "operator.attrgetter"),
        (named("importlib", "import_module") + COMMAND + b"R", "importlib.import_module"),
        (named("inspect", "getattr_static") + COMMAND + b"R", "inspect.getattr_static"),
        (named("functools", "partial") + COMMAND + b"R", "functools.partial"),
        (named("functools", "reduce") + COMMAND + b"R", "functools.reduce"),
        (named("linecache", "getline") + COMMAND + b"R", "linecache.getline"),
        (named("sqlite3", "connect") + COMMAND + b"R", "sqlite3.connect"),
        (named("tarfile", "open") + COMMAND + b"R", "tarfile.open"),
        (b"(" + text("id") + b"ios\nsystem\n", "os.system"),
        (b"(cos\nsystem\n" + text("id") + b"o", "os.system"),
        (named("subprocess", "Popen") + COMMAND + b"}\x92", "subprocess.Popen"),
        (b"(" + text("x") + b"1" + named("os", "system") + COMMAND + b"R", "os.system"),
        (b"S'os'\nS'system'\n\x93" + COMMAND + b"R", "os.system"),
    ],
)  # fmt: skip
def test_calls_are_found_in_every_form(code: bytes, name: str) -> None:
    finding = finding_of(proto4(code), name)
    assert (finding.code, finding.level) == ("pickle.call", "high")
    assert "safe" not in finding.text
    assert name in finding.text


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._utils", "_rebuild_tensor_v2\u200b"), ("torch._utils", "_rebuild_tensor_v2.__globals__"),
        ("torch", "_utils.os.system"), ("omegaconf", "os.system"), ("omegaconf.dictconfig", "os.System"),
        ("omegaconf.dictconfig", "sys"), ("numpy.dtypes", "os"), ("numpy.dtypes", "os.Float32DType"),
        ("torch.distributed.checkpoint.metadata", "os.system"), ("torch.distributed.checkpoint.metadata", "os.System"),  # noqa: E501
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo.__init__"), ("__torch__", "os.system"),
        ("collections", "OrderedDict.fromkeys"), ("torch.nn.modules.linear", "math.Foo"), ("collections\n", "OrderedDict"),  # noqa: E501
        ("torch.nn.modules.module", "os.Linear"), ("builtins", "list.append"), ("torch.nn.Module", "x\nLinear"),  # noqa: E501
        ("torch.serialization", "os.path.Foo"), ("torch.jit", "CompilationUnit"), ("torch.fx", "GraphModule"),
        ("torсh", "Size"), ("__builtin__", "set"), ("numpy", "float64.tofile"),
    ],
)  # fmt: skip
def test_no_name_hides_behind_a_known_one(module: str, name: str) -> None:
    assert worst(proto4(named(module, name) + b")R")) in ("notice", "high")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch.fx", "GraphModule"),
        ("torch.hub", "Path"),
        ("torch._C", "PyTorchFileReader"),
    ],
)
def test_a_function_that_is_handed_to_another_counts_as_called(module: str, name: str) -> None:
    rebuild = named("torch._tensor", "_rebuild_from_type_v2")
    assert worst(proto4(rebuild + b"(" + named(module, name) + b"N)NtR")) == "high"


def handed(function: bytes, arguments: bytes) -> bytes:
    """`function(*arguments)`, called by a function that counts as harmless."""
    tensor = named("torch", "Tensor")
    return named("torch._tensor", "_rebuild_from_type_v2") + b"(" + function + tensor + arguments + b"NtR"


FX = [
    "torch.fx",
    "torch.fx.graph_module",
    "torch.ao.quantization.fx.convert",
    "torch.ao.quantization.fx.utils",
]


@pytest.mark.parametrize("module", FX)
@pytest.mark.parametrize("name", ["Graph", "Node", "GraphModule"])
@pytest.mark.parametrize("way", ["called", "handed", "made", "named", "reconstructed"])
def test_what_builds_code_is_high_under_every_name_and_in_every_way(module: str, name: str, way: str) -> None:
    cls = named(module, name)
    code = {
        "called": cls + COMMAND + b"R",
        "handed": handed(cls, COMMAND),
        "made": cls + b")\x81}b",
        "named": b"}" + text("forward") + cls + b"s",
        "reconstructed": named("copyreg", "_reconstructor") + cls + named("builtins", "object") + b"N\x87R",
    }[way]
    assert worst(proto4(code)) == "high"


@pytest.mark.parametrize(
    "code",
    [
        handed(named("mine", "Net"), COMMAND),
        handed(named("torch._tensor", "_rebuild_from_type_v2"), b"(" + named("mine", "Net") + b"N" + COMMAND + b"Nt"),  # noqa: E501
        handed(named("torch._tensor", "_rebuild_from_type_v2"), b"](" + named("mine", "Net") + b"N" + COMMAND + b"Ne"),  # noqa: E501
        named("copyreg", "_reconstructor") + named("mine", "Net") * 2 + text("id") + b"\x87R",
        named("numpy.random._pickle", "__generator_ctor") + text("id") + named("mine", "Net") + b"\x86R",
        named("mine", "Net") + COMMAND + b"R",
        b"(" + named("mine", "Net") + text("id") + b"o",
        b"(" + text("id") + b"imine\nNet\n",
        named("torch.jit._pickle", "restore_type_tag") + named("mine", "Net") + text("x") + b"\x86R" + COMMAND + b"R",  # noqa: E501
        named("collections", "UserDict") + b")\x81}" + text("__setstate__") + named("mine", "Net") + b"sb}b",
        named("numpy", "memmap") + text("made.bin") + b"\x85\x81",
        named("sklearn.linear_model._base", "LinearRegression") + COMMAND + b"R",
    ],
    ids=range(12),
)  # fmt: skip
def test_a_class_that_is_called_with_more_than_numbers_is_high(code: bytes) -> None:
    assert worst(proto4(code)) == "high"


@pytest.mark.parametrize(
    "code",
    [
        named("mine", "Net") + b")\x81}b", named("mine", "Net") + b")R", named("mine", "Colour") + b"K\1\x85R",  # noqa: E501
        named("mine", "Point") + b"K\1" + text("x") + b"\x86\x81",
        named("copyreg", "_reconstructor") + named("mine", "Net") + named("builtins", "object") + b"N\x87R",
    ],
    ids=range(5),
)  # fmt: skip
def test_a_class_that_is_only_filled_is_a_notice(code: bytes) -> None:
    assert worst(proto4(code)) == "notice"


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._inductor.compile_worker.subproc_pool", "subprocess.Popen"), ("torch._inductor.codecache", "Popen"),  # noqa: E501
        ("numpy.testing._private.utils", "Popen"), ("timm.utils", "subprocess.run"), ("mine", "FileIO"),
        ("sklearn.utils._testing", "os.system"), ("torch.serialization", "os.system"), ("pandas", "importlib.import_module"),  # noqa: E501
        ("transformers.utils.fx", "GraphModule"), ("mine", "Popen"), ("__torch__.net", "Net"), ("__torch__", "Net"),  # noqa: E501
    ],
)  # fmt: skip
@pytest.mark.parametrize("use", [b"", b")\x81", b")R", COMMAND + b"R"])
def test_what_acts_is_high_in_another_package(module: str, name: str, use: bytes) -> None:
    assert worst(proto4(named(module, name) + use)) == "high"


@pytest.mark.parametrize(
    ("module", "name"), [("torch.fx", "x.Graph"), ("torch.utils.collect_env", "run"), ("mine", "function")]
)
def test_a_function_that_is_only_named_is_for_something_to_call(module: str, name: str) -> None:
    namespace = named("argparse", "Namespace") + b")\x81"
    assert worst(proto4(namespace + b"}" + b"\x8c\x0c__setstate__" + named(module, name) + b"sb")) == "high"


def test_the_same_dotted_path_split_in_two_ways_is_two_names() -> None:
    reading = scanned(
        proto4(
            named("torch._utils", "_rebuild_tensor_v2") + named("torch", "_utils._rebuild_tensor_v2") + b")R"
        )
    )
    assert [use.kind for use in reading.globals] == ["core", "call"]


@pytest.mark.parametrize(
    ("code", "level"),
    [
        (b"csys\npath\nVx\na.", "high"),
        (b"cos\nenviron\nVx\nNs.", "high"),
        (b"ctorch\nTensor\nN}\x86b.", "high"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n}b.", "high"),
        (b"ctorch.nn.modules.linear\nLinear\n(Vforward\nNu.", "high"),
        (b"\x80\x04ctorch.serialization\n_package_registry\n(K\1e.", "high"),
        (b"\x80\x04ctorch\nfoo\n(K\1\x90.", "high"),
        (b"ctorch.jit._pickle\nrestore_type_tag\n(ctorch\nTensor\nNtR}b.", "high"),
        (b"ctransformers.trainer_utils\nIntervalStrategy\n(Vno\ntR}b.", "high"),
        (b"cbuiltins\ngetattr\n(ctorch\nTensor\nVgrad\ntR}b.", "high"),
        (b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(VO\ntRctorch\nTensor\ntR}b.", "high"),
    ],
)
def test_a_change_of_something_that_exists_is_found(code: bytes, level: str) -> None:
    (finding,) = [f for f in scanned(code).findings if f.code == "pickle.change"]
    assert finding.level == level
    assert finding.offset == len(code) - 2


def test_a_planted_setstate_is_found() -> None:
    made = (
        named("argparse", "Namespace")
        + b")\x81}"
        + text("__setstate__")
        + named("os", "system")
        + b"sb"
        + text("id")
        + b"b"
    )
    assert finding_of(proto4(made), "os.system").level == "high"


def test_a_global_that_is_only_named_is_found() -> None:
    finding = finding_of(b"cos\nsystem\n.", "os.system")
    assert finding.code == "pickle.name"
    assert "names os.system" in finding.text


def test_the_first_arguments_are_shown() -> None:
    code = b"cos\nsystem\nq\0" + text("first") + b"\x85R0h\0" + text("second") + b"\x85R."
    finding = finding_of(code, "os.system")
    assert finding.details["arguments"] == "('first'); ('second')"
    (use,) = scanned(code).globals
    assert use.count == 2


def test_offsets_are_those_of_the_opcode() -> None:
    for before in (b"", b"N0", text("x") + b"0"):
        assert finding_of(before + b"cos\nsystem\n.", "os.system").offset == len(before)
        code = b"\x80\x04" + before + text("os") + text("system")
        assert finding_of(code + b"\x93.", "os.system").offset == len(code)
        assert finding_of(b"(" + before + b"ios\nsystem\n.", "os.system").offset == len(before) + 1
        assert scanned(before + b"\x82\x07.").globals[0].offset == len(before)


EVIL = b"cos\nsystem\n(Vid\ntR."


@pytest.mark.parametrize(
    "argument",
    [
        b"C" + bytes([len(EVIL)]) + EVIL, b"U" + bytes([len(EVIL)]) + EVIL, text(EVIL.decode()),
        b"c_codecs\nencode\n" + text(EVIL.decode()) + text("latin1") + b"\x86R",
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", [("pickle", "loads"), ("torch.storage", "_load_from_bytes")])
def test_a_pickle_inside_a_pickle_is_scanned(call: tuple[str, str], argument: bytes) -> None:
    reading = scanned(proto4(named(*call) + argument + b"\x85R"))
    assert {use.name for use in reading.globals} >= {".".join(call), "os.system"}


def _of_module(module: str, name: str, package: str) -> bytes:
    """A pickled object of a class that a module of that name defines, while it is pickled."""
    made = type(name, (), {"__module__": module})
    modules = {
        ".".join(module.split(".")[: n + 1]): types.ModuleType(module) for n in range(module.count(".") + 1)
    }
    modules[module].__dict__[name] = made
    kept = {key: sys.modules[key] for key in modules if key in sys.modules}
    sys.modules.update(modules)
    try:
        value: Any = made()
        value.learning_rate, value.output_dir = 1e-4, "out"
        return pickle.dumps(value, 2)
    finally:
        for key in modules:
            del sys.modules[key]
        sys.modules.update(kept)


@pytest.mark.parametrize(
    ("module", "name", "package"),
    [
        ("transformers.models.bert.modeling_bert", "BertModel", "transformers"),
        ("ultralytics.nn.tasks", "DetectionModel", "ultralytics"),
        ("mynet", "Net", "mynet"),
    ],
)
def test_somebodys_class_is_a_notice_that_names_the_package(module: str, name: str, package: str) -> None:
    data = _of_module(module, name, package)
    finding = finding_of(data, f"{module}.{name}")
    assert (finding.code, finding.level) == ("pickle.class", "notice")
    assert package in finding.text
    assert worst(data) == "notice"
    assert [use.package for use in scanned(data).globals] == [package]


def test_main_is_a_package_like_any_other() -> None:
    assert worst(b"\x80\x02c__main__\nNet\n)\x81.") == "notice"


@pytest.mark.parametrize(
    "path", ["os.system", "posix.system", "subprocess.Popen", "builtins.eval", "pathlib.os.system"]
)
def test_notorious_names_say_what_they_do(path: str) -> None:
    known = reputation(Use(*path.rsplit(".", 1), 0))
    assert known is not None
    assert "safe" not in known


# Nothing takes long, and nothing gets large


def _timed(data: bytes, seconds: float) -> Reading:
    start = time.process_time()
    reading = scanned(data)
    assert time.process_time() - start < seconds
    assert len(reading.findings) <= 6 * MOST_FINDINGS
    return reading


def test_very_many_names_are_counted() -> None:
    data = b"".join(b"cm%d\nf\n0" % number for number in range(60_000)) + b"cos\nsystem\n)R."
    reading = _timed(data, 10)
    assert sum(reading.beyond.values()) == 60_000 - MOST_FINDINGS
    assert any(finding.details.get("name") == "os.system" for finding in reading.findings)


@pytest.mark.parametrize(
    "data",
    [
        b"N." * 50_000, b"(" * 1_000_000 + b".", b"N" + b"2" * 1_000_000 + b".", b"Nq\0" * 300_000 + b".",
        b")" + b"\x85" * 500_000 + b".", b")" + b"2\x86" * 300_000 + b"}2" + b"0N" * 10 + b"N.",
        b"V" + b"x" * 3_000_000, b"c" + b"m" * 900_000 + b"\n" + b"n" * 900_000 + b"\n)R.",
        b")q\0" + b"2\x86" * 30 + b"q\1}" + b"h\1Ns" * 100_000 + b".", b"cm\nf\n" + b")R" * 200_000 + b".",
        b"(" + b"I1\n" * 300_000 + b"t.", b"C\1x" * 300_000 + b".",
    ],
    ids=range(12),
)  # fmt: skip
def test_time_grows_with_the_file_and_no_faster(data: bytes) -> None:
    _timed(data, 10)


def test_one_nested_pickle_is_looked_into_once() -> None:
    inner = b"(" + b"N" * 60_000 + b"t."
    data = b"B" + struct.pack("<I", len(inner)) + inner + b"\x85q\0"
    data += b"".join(b"cm%d\nf\nh\0R" % number for number in range(3000)) + b"."
    _timed(data, 10)


def test_a_failed_stream_keeps_what_was_found() -> None:
    reading = Reading()
    data = b"cos\nsystem\n)R\xff"
    with pytest.raises(FileError):
        load(Source(lambda at, n: data[at : at + n], len(data), file="x"), reading)
    assert [use.name for use in reading.globals] == ["os.system"]


# What hangs inside of what a pickle would build


def mapping(*pairs: bytes) -> bytes:
    return b"}(" + b"".join(pairs) + b"u"


def instance(module: str, name: str, state: bytes) -> bytes:
    return named(module, name) + b")\x81" + state + b"b"


def node(value: str) -> bytes:
    return instance("omegaconf.nodes", "AnyNode", mapping(text("_val"), text(value)))


TARGET = text("_target_") + text("os.system")


@pytest.mark.parametrize(
    "code",
    [
        mapping(*(text(f"p{number}") + b"K\1" for number in range(100_000)), TARGET),
        (b"}(" + text("deeper")) * 3000 + mapping(TARGET) + b"u" * 3000,
        b"](" * 300 + mapping(TARGET) + b"e" * 300,
        instance("omegaconf.dictconfig", "DictConfig", mapping(text("_content"), mapping(text("_target_"), node("os.system")))),  # noqa: E501
        mapping(named("builtins", "str") + text("_target_") + b"\x85R", text("os.system")),
        mapping(text("_target_"), named("builtins", "str") + text("os.system") + b"\x85R"),
        mapping(b"U\x08_target_", b"U\x09os.system"),
        instance("argparse", "Namespace", mapping(text("model"), mapping(TARGET))),
        instance("argparse", "Namespace", b"N" + mapping(text("model"), mapping(TARGET)) + b"\x86"),
        named("collections", "OrderedDict") + b")R(" + TARGET + b"u",
        named("collections", "deque") + b")R(" + mapping(TARGET) + b"e",
        named("builtins", "frozenset") + b"](" + mapping(TARGET) + b"e\x85R",
    ],
    ids=range(12),
)  # fmt: skip
@pytest.mark.parametrize("in_checkpoint", [False, True])
def test_a_configuration_that_names_code_is_found_wherever_it_hangs(code: bytes, in_checkpoint: bool) -> None:
    if in_checkpoint:
        code = mapping(text("state_dict"), b"}", text("hyper_parameters"), code)
    (finding,) = [f for f in scanned(proto4(code)).findings if f.code == "code.target"]
    assert finding.details["names"] == "os.system"
    assert finding.level == "notice"


HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
)


def layer(key: str, value: bytes) -> bytes:
    return instance("torch.nn.modules.linear", "Linear", mapping(text(key), value))


@pytest.mark.parametrize("key", [*HOOKS, "forward", "__call__"])
@pytest.mark.parametrize(
    ("hook", "level"),
    [
        (named("mine", "run"), "high"),
        (named("subprocess", "Popen"), "high"),
        (instance("functools", "partial", b"}"), "high"),
        (named("mine", "Hook"), "notice"),
        (instance("mine", "Hook", b"}"), "notice"),
        (instance("torch.nn.utils.weight_norm", "WeightNorm", b"}"), None),
        (named("torch.nn.functional", "relu"), None),
    ],
)
def test_what_runs_with_the_model_is_told_of(key: str, hook: bytes, level: str | None) -> None:
    several = named("collections", "OrderedDict") + b")R(K\1" + hook + b"u"
    found = scanned(proto4(layer(key, several if key in HOOKS else hook))).findings
    assert [f.level for f in found if f.code == "pickle.hook"] == ([level] if level else [])


@pytest.mark.parametrize(
    "code",
    [
        named("numpy", "dtype") + text(EVIL.decode()) + b"\x85R",
        b"](" + b"K\1" * 500 + b"C" + bytes([len(EVIL)]) + EVIL + b"e",
        mapping(text("notes"), text(EVIL.decode())),
        mapping(text(EVIL.decode()), b"N"),
        (b"](" * 50) + b"C" + bytes([len(EVIL)]) + EVIL + b"e" * 50,
    ],
    ids=range(5),
)
def test_a_pickle_that_acts_is_found_also_among_plain_data(code: bytes) -> None:
    assert finding_of(proto4(code), "os.system").level == "high"


@pytest.mark.parametrize(
    "data",
    [b"(I think", b"conv\nweight", b"\x80\x04data", b"](K\1K\2e.", b"ccollections\nOrderedDict\n)R.", b"(dp0\n", b"cat\ndog"],  # noqa: E501
)  # fmt: skip
def test_data_that_begins_as_a_pickle_is_data(data: bytes) -> None:
    values = mapping(text("a"), b"C" + bytes([len(data)]) + data, text("b"), text(data.decode("latin-1")))
    assert worst(proto4(values)) == "info"


def test_pickles_inside_pickles_are_followed_and_the_end_is_told() -> None:
    data = EVIL
    for depth in range(30):
        call = named("pickle", "loads") + b"B" + struct.pack("<I", len(data)) + data + b"\x85R"
        data = proto4(call)
        levels = {finding.level for finding in scanned(data).findings}
        assert ("limit" in levels) == (depth >= 20)


NAMESPACE = named("argparse", "Namespace") + b")\x81"
LOADS = named("torch.storage", "_load_from_bytes")
SAVED = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # as torch's old files begin


def bytes_of(data: bytes) -> bytes:
    return b"B" + struct.pack("<I", len(data)) + data


HARMLESS_FIRST = LOADS + b"q\x05" + bytes_of(SAVED + b"\x80\x02N." * 4) + b"\x85R0"
NET = named("mine", "Net")
REBUILD = named("torch._tensor", "_rebuild_from_type_v2")
TAGGED = named("torch.jit._pickle", "restore_type_tag")


@pytest.mark.parametrize(
    "code",
    [
        HARMLESS_FIRST + NAMESPACE + b"}" + text("as_subclass") + b"h\x05sb",
        HARMLESS_FIRST + LOADS,
        HARMLESS_FIRST + b"h\x05\x85",
        HARMLESS_FIRST + b"h\x052]",
    ],
    ids=["state", "named again", "memo", "twice"],
)
def test_one_harmless_call_does_not_forgive_another_mention(code: bytes) -> None:
    assert worst(proto4(HARMLESS_FIRST + b"N")) != "high"
    assert worst(proto4(code)) == "high"


@pytest.mark.parametrize(
    "code",
    [
        NAMESPACE + b"}" + text("append") + named("mine", "Net") + b"sb" + text("id") + b"a",
        NAMESPACE + b"}" + text("add") + named("mine", "Net") + b"sb(" + text("id") + b"\x90",
        NAMESPACE + named("collections", "OrderedDict") + b")R" + text("append") + NET
        + b"sb" + text("id") + b"a",
        NAMESPACE + b"}q\x07bh\x07" + text("append") + named("mine", "Net") + b"s0" + text("id") + b"a",
        named("scipy.optimize._optimize", "OptimizeResult") + b")\x81" + text("append") + NET
        + b"s" + text("id") + b"a",
        REBUILD + b"(" + TAGGED + NAMESPACE + b"}" + text("as_subclass") + named("mine", "Net") + b"sb"
        + text("x") + b"\x86R" + text("id") + b")Nt" + b"R",
        REBUILD + b"(" + TAGGED + text("id") + NAMESPACE + text("x") + b"\x86" + b"Nt" + b"R",
    ],
    ids=range(7),
)  # fmt: skip
def test_methods_that_a_file_plants_count_as_called(code: bytes) -> None:
    assert {"pickle.dynamic", "pickle.call"} & {each.code for each in scanned(proto4(code)).findings}


@pytest.mark.parametrize(
    "made",
    [
        TAGGED * 40 + named("argparse", "Namespace") + (text("x") + b"\x86R") * 40,
        named("numpy", "object_") + named("argparse", "Namespace") + b"\x85R",
        named("copyreg", "__newobj__") + named("torch.amp.grad_scaler", "OptState") + b"K\x00\x86R",
    ],
    ids=["tagged", "object", "enum"],
)
def test_what_is_given_back_is_changed_all_the_same(made: bytes) -> None:
    found = scanned(proto4(made + b"N}" + text("evil") + b"K\x01s\x86b")).findings
    assert "pickle.change" in {finding.code for finding in found}


@pytest.mark.parametrize("protocol", range(2, 6))
def test_tensors_in_plain_pickles_are_ordinary(protocol: int) -> None:
    torch = pytest.importorskip("torch")
    value = {"w": torch.zeros(3), "large": torch.ones(30_000), "rest": ..., "no": NotImplemented}
    assert worst(pickle.dumps(value, protocol)) == "info"


def test_what_is_saved_behind_more_than_is_kept_is_not_called_harmless() -> None:
    saved = SAVED + b"\x80\x02" + text("x" * 70_000).replace(b"X", b"X", 1) + b"0cos\nsystem\n."
    encoded = named("_codecs", "encode") + text(saved.decode("latin-1")) + text("latin1") + b"\x86R"
    assert worst(proto4(LOADS + encoded + b"\x85R")) == "high"


def test_many_states_of_one_object_take_linear_time() -> None:
    items = b"".join(text(f"k{number}") + b"K\x01s" for number in range(3_000))
    start = time.process_time()
    scanned(proto4(named("collections", "OrderedDict") + b")R" + items + b"Nb" * 30_000))
    assert time.process_time() - start < 3


def test_tuples_with_names_of_torch_are_ordinary(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    jagged = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)], layout=torch.jagged)
    torch.save({"max": torch.zeros(2, 2).max(0), "jagged": jagged}, tmp_path / "x.pt")
    assert mg.scan(tmp_path / "x.pt").exit_code() == 0
