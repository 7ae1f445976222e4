"""ONNX files say what onnx's own reader says they say; broken and hostile ones are refused."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.limits import Limits
from modelglass.formats.onnx.reader import looks_like, read
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile, Source

DTYPES = {
    "FLOAT": "float32",
    "UINT8": "uint8",
    "INT8": "int8",
    "UINT16": "uint16",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "STRING": "string",
    "BOOL": "bool",
    "FLOAT16": "float16",
    "DOUBLE": "float64",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
    "BFLOAT16": "bfloat16",
    "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2": "float8_e5m2",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz",
    "UINT4": "uint4",
    "INT4": "int4",
    "FLOAT4E2M1": "float4_e2m1fn",
    "FLOAT8E8M0": "float8_e8m0fnu",
    "UINT2": "uint2",
    "INT2": "int2",
    "FLOAT6E2M3": "float6_e2m3fn",
    "FLOAT6E3M2": "float6_e3m2fn",
}
NUMBERS = [name for name in DTYPES if name != "STRING"]


def graph_of(*initializers: TensorProto, nodes: Any = None, **more: Any) -> onnx.GraphProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="relu")] if nodes is None else nodes
    return helper.make_graph(nodes, "main", [x], [y], list(initializers), **more)


def model_of(
    *initializers: TensorProto, nodes: Any = None, functions: Any = (), **more: Any
) -> onnx.ModelProto:
    graph = graph_of(*initializers, nodes=nodes, **more)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("custom", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, producer_name="us")


def weight(name: str = "w", shape: tuple[int, ...] = (2, 3)) -> TensorProto:
    return numpy_helper.from_array(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), name)


def read_bytes(data: bytes, limits: Limits | None = None) -> Reading:
    reading = Reading(limits=limits or Limits())
    read(Source(lambda at, length: data[at : at + length], len(data), file="m.onnx"), reading)
    return reading


def read_model(model: onnx.ModelProto, limits: Limits | None = None) -> Reading:
    return read_bytes(model.SerializeToString(), limits)


def read_file(path: Path) -> Reading:
    reading = Reading()
    with OpenFile(path) as source:
        try:
            read(source, reading)
        finally:
            for file in reading.opened:
                file.close()
    return reading


def refused(model: onnx.ModelProto | bytes) -> str:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    with pytest.raises(CorruptFileError) as caught:
        read_bytes(data)
    return caught.value.code


def codes(reading: Reading) -> dict[str, str]:
    return {finding.code: finding.level for finding in reading.findings}


def values_at(reading: Reading, name: str) -> bytes:
    place = reading.places[name]
    return place.source.read(place.offset, place.nbytes, name)


def facts(reading: Reading) -> dict[str, tuple[Any, ...]]:
    assert len({tensor.name for tensor in reading.tensors}) == len(reading.tensors)
    return {tensor.name: (tensor.dtype, tensor.shape) for tensor in reading.tensors}


def expected(*tensors: TensorProto) -> dict[str, tuple[Any, ...]]:
    return {t.name: (DTYPES[TensorProto.DataType.Name(t.data_type)], tuple(t.dims)) for t in tensors}


# Tensors


def test_the_table_of_element_types_is_complete() -> None:
    assert set(TensorProto.DataType.keys()) - {"UNDEFINED"} == set(DTYPES)


@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4), (7,)])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_element_type_raw_and_typed(name: str, shape: tuple[int, ...]) -> None:
    number = TensorProto.DataType.Value(name)
    values = np.ones(shape, dtype=np.float32)
    array = values.astype(helper.tensor_dtype_to_np_dtype(number))
    raw = numpy_helper.from_array(array, "raw")
    assert raw.data_type == number
    typed = helper.make_tensor("typed", number, shape, values.flatten().tolist())
    reading = read_model(model_of(raw, typed))
    assert facts(reading) == expected(raw, typed)
    assert values_at(reading, "raw") == raw.raw_data
    by_name = {tensor.name: tensor for tensor in reading.tensors}
    assert by_name["raw"].nbytes == by_name["typed"].nbytes == len(raw.raw_data)
    if helper.tensor_dtype_to_field(number) in ("float_data", "double_data") or not values.size:
        assert values_at(reading, "typed") == raw.raw_data
    else:
        assert "typed" not in reading.places


def test_texts_have_a_shape_and_no_size() -> None:
    words = helper.make_tensor("words", TensorProto.STRING, (2, 2), [b"a", b"", b"ccc", b"d"])
    reading = read_model(model_of(words))
    assert facts(reading) == {"words": ("string", (2, 2))}
    assert reading.tensors[0].nbytes is None
    assert "words" not in reading.places
    words.string_data.append(b"e")
    assert refused(model_of(words)) == "onnx.size"


def test_numbers_that_are_not_packed_are_counted_too() -> None:
    tensor = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    alone = b"".join(b"\x25" + np.float32(value).tobytes() for value in (1, 2))
    unpacked = onnx.TensorProto.FromString(tensor.SerializeToString() + alone)
    assert list(unpacked.float_data) == [1, 2]
    body = tensor.SerializeToString() + alone
    graph = b"\x2a" + bytes([len(body)]) + body
    data = b"\x08\x08" + b"\x3a" + bytes([len(graph)]) + graph + b"\x42\x02\x10\x15"
    assert onnx.load_from_string(data).graph.initializer[0] == unpacked
    reading = read_bytes(data)
    assert facts(reading) == {"w": ("float32", (2,))}
    assert not reading.places


def test_a_large_weight_is_not_read(tmp_path: Path) -> None:
    model = model_of(weight("big", (1000, 1000)), weight("small"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    reading = Reading()
    with OpenFile(path) as source:
        read(source, reading)
        assert source.meter.nbytes < 20_000
        assert np.frombuffer(values_at(reading, "big"), np.float32)[-1] == 999_999
    assert [tensor.name for tensor in reading.tensors] == ["big", "small"]


def test_thousands_of_nodes_and_weights_take_well_under_a_second() -> None:
    nodes = [
        helper.make_node(
            "Conv", [f"v{i}", f"w{i}"], [f"v{i + 1}"], name=f"conv{i}", pads=[1, 1, 1, 1], group=1
        )
        for i in range(3000)
    ]
    infos = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [1, 3, 8, 8]) for i in range(3000)]
    weights = [weight(f"w{i}", (3, 3, 3, 3)) for i in range(3000)]
    data = model_of(*weights, nodes=nodes, value_info=infos).SerializeToString()
    start = time.process_time()
    reading = read_bytes(data)
    assert time.process_time() - start < 2  # about 0.3 s, with room for a busy machine
    assert (len(reading.ops), len(reading.tensors)) == (3000, 3000)
    assert reading.ops[7].inputs[1].tensor == "w7"
    assert reading.ops[7].inputs[0].shape == (1, 3, 8, 8)


def branch(name: str, value: float) -> onnx.GraphProto:
    out = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, [2])
    constant = helper.make_tensor("ignored", TensorProto.FLOAT, (2,), [value, value])
    nodes = [
        helper.make_node("Constant", [], [f"{name}_c"], value=constant),
        helper.make_node("Add", ["w", f"{name}_c"], [f"{name}_out"], name="add"),
    ]
    return helper.make_graph(nodes, name, [], [out], [weight("w", (2,))])


def test_tensors_of_subgraphs_and_attributes_get_the_path_to_them() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], name="const", value=weight("anything", (4,))),
        helper.make_node(
            "If", ["x"], ["y"], name="if", then_branch=branch("t", 1), else_branch=branch("e", 2)
        ),
    ]
    reading = read_model(model_of(weight("w"), nodes=nodes))
    assert facts(reading) == {
        "w": ("float32", (2, 3)),
        "const/value": ("float32", (4,)),
        "if/then_branch/w": ("float32", (2,)),
        "if/then_branch/t_c/value": ("float32", (2,)),
        "if/else_branch/w": ("float32", (2,)),
        "if/else_branch/e_c/value": ("float32", (2,)),
    }
    kinds = {tensor.name: tensor.kind for tensor in reading.tensors}
    assert (kinds["const/value"], kinds["w"], kinds["if/then_branch/w"]) == (
        "buffer",
        "parameter",
        "parameter",
    )
    assert values_at(reading, "if/else_branch/e_c/value") == np.float32([2, 2]).tobytes()
    assert [op.name for op in reading.ops] == ["onnx.Constant", "onnx.If"]
    assert reading.ops[0].outputs[0].tensor == "const/value"
    assert reading.ops[1].attributes == {"then_branch": "a graph", "else_branch": "a graph"}
    assert reading.metadata["nodes"] == {"Constant": 3, "Add": 2, "If": 1}
    assert not reading.findings


def test_names_stay_unique_and_the_main_graph_keeps_its_own() -> None:
    nodes = [helper.make_node("Constant", [], [f"c{i}"], name="n", value=weight("v")) for i in range(3)]
    reading = read_model(model_of(weight("n/value"), weight("n/value#2"), nodes=nodes))
    assert sorted(facts(reading)) == ["n/value", "n/value#2", "n/value#3", "n/value#4", "n/value#5"]
    assert {t.name for t in reading.tensors if t.kind == "parameter"} == {"n/value", "n/value#2"}


def test_tensors_of_loops_functions_and_training_are_found() -> None:
    body = branch("b", 3)
    constant = helper.make_node("Constant", [], ["k"], value=weight("v", (5,)))
    function = helper.make_function(
        "custom", "Twice", ["a"], ["k"], [constant], [helper.make_opsetid("", 21)]
    )
    nodes = [
        helper.make_node("Loop", ["x"], ["z"], name="loop", body=body),
        helper.make_node("Twice", ["z"], ["y"], name="twice", domain="custom"),
    ]
    model = model_of(nodes=nodes, functions=[function])
    model.training_info.add().algorithm.CopyFrom(branch("train", 1))
    reading = read_model(model)
    assert set(facts(reading)) == {
        "loop/body/w",
        "loop/body/b_c/value",
        "custom.Twice/k/value",
        "training_0/algorithm/w",
        "training_0/algorithm/train_c/value",
    }
    assert reading.metadata["functions"] == ["custom.Twice"]
    assert not reading.findings


def sparse(name: str = "s", count: int = 2) -> onnx.SparseTensorProto:
    indices = helper.make_tensor("i", TensorProto.INT64, (2,), [1, 5])
    return helper.make_sparse_tensor(weight(name, (count,)), indices, (2, 3))


def test_sparse_initializers_are_values_and_indices() -> None:
    nodes = [helper.make_node("MatMul", ["x", "s"], ["y"])]
    reading = read_model(model_of(nodes=nodes, sparse_initializer=[sparse()]))
    assert facts(reading) == {"s": ("float32", (2,)), "s/indices": ("int64", (2,))}
    packing = reading.tensors[0].packing
    assert packing is not None
    assert (packing.scheme, packing.logical_shape, packing.nbytes, packing.side_nbytes) == (
        "sparse",
        (2, 3),
        8,
        16,
    )
    assert reading.ops[0].inputs[1].shape == (2, 3)
    assert refused(model_of(sparse_initializer=[sparse(count=3)])) == "onnx.sparse"
    assert refused(model_of(weight("s"), sparse_initializer=[sparse()])) == "onnx.duplicate"


# The graph


def test_inputs_and_outputs_are_those_the_file_declares() -> None:
    model = model_of(weight("w"))
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2, 3]))
    model.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 128]))
    model.graph.input.append(helper.make_tensor_value_info("rank", TensorProto.FLOAT16, None))
    words = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, ["n"]))
    model.graph.input.append(helper.make_value_info("words", words))
    reading = read_model(model)
    assert [(v.name, v.shape, v.dtype, v.text) for v in reading.inputs] == [
        ("x", None, "float32", "batchx3"),
        ("ids", (1, 128), "int64", None),
        ("rank", None, "float16", "?"),
        ("words", None, None, "sequence of string n"),
    ]
    assert [v.name for v in reading.outputs] == ["y"]


def test_nodes_become_operators_with_their_arguments_and_attributes() -> None:
    clip = helper.make_node("Clip", ["x", "", "w"], ["h"])
    gelu = helper.make_node(
        "Gelu",
        ["h"],
        ["y"],
        domain="com.microsoft",
        alpha=0.5,
        sizes=[1, -2],
        mode="tanh",
        words=["a", "b"],
        ratios=[1.0, float("inf")],
        many=list(range(2000)),
        kernel=weight("k"),
    )
    reading = read_model(model_of(weight("w"), nodes=[clip, gelu]))
    first, second = reading.ops
    assert (first.index, first.name, first.overload) == (0, "onnx.Clip", "onnx.Clip.default")
    assert [(v.name, v.tensor, v.text, v.dtype) for v in first.inputs] == [
        ("0", None, "batchx3", "float32"),
        ("2", "w", None, "float32"),
    ]
    assert (first.outputs[0].text, first.outputs[0].dtype) == ("h", None)
    assert (second.name, second.overload) == ("com.microsoft.Gelu", "com_microsoft.Gelu.default")
    assert second.attributes == {
        "alpha": 0.5,
        "sizes": [1, -2],
        "mode": "tanh",
        "words": ["a", "b"],
        "ratios": [1.0, "inf"],
        "many": "2,000 ints",
        "kernel": "float32 2x3",
    }


def test_metadata_is_what_the_model_says() -> None:
    model = model_of()
    model.doc_string = "d" * 5000
    model.producer_version, model.domain, model.model_version = "1.2", "our.models", 7
    helper.set_model_props(model, {"author": "someone", "long": "x" * 100_000})
    metadata = read_model(model).metadata
    assert metadata["ir_version"] == model.ir_version
    assert (metadata["producer_name"], metadata["producer_version"]) == ("us", "1.2")
    assert (metadata["domain"], metadata["model_version"], metadata["graph"]) == ("our.models", 7, "main")
    assert metadata["opset_import"] == {"ai.onnx": 21, "custom": 1}
    assert metadata["metadata_props"]["author"] == "someone"
    assert len(metadata["metadata_props"]["long"]) < 66_000
    assert metadata["doc_string"].endswith("… (5,000 bytes)")
    assert metadata["nodes"] == {"Relu": 1}


def test_the_models_that_come_with_onnx_are_read_without_complaint() -> None:
    paths = sorted(Path(onnx.__file__).parent.rglob("*.onnx"))
    for path in paths:
        reading, told = read_file(path), onnx.load(path, load_external_data=False)
        ours = facts(reading)
        assert {name: ours.get(name) for name in expected(*told.graph.initializer)} == expected(
            *told.graph.initializer
        )
        assert [op.overload.split(".")[1] for op in reading.ops] == [node.op_type for node in told.graph.node]
        assert [value.name for value in reading.outputs] == [value.name for value in told.graph.output]
        assert set(codes(reading).values()) <= {"info"}
        head = path.read_bytes()[:4096]
        assert looks_like(head, path.stat().st_size)
    assert len(paths) > 50


@pytest.mark.parametrize(
    ("domain", "name", "level"),
    [
        ("", "Relu", None),
        ("ai.onnx", "Relu", None),
        ("ai.onnx.preview.training", "Adam", None),
        ("ai.onnx.preview", "FlexAttention", None),
        ("org.pytorch.aten", "ATen", None),
        ("ai.onnx.ml", "Scaler", "info"),
        ("com.microsoft", "Gelu", "info"),
        ("com.microsoft.nchwc", "Conv", "info"),
        ("com.microsoft", "PythonOp", "notice"),
        ("com.microsoftish", "Gelu", "notice"),
        ("custom", "Anything", "notice"),
    ],
)
def test_operators_from_elsewhere_are_told(domain: str, name: str, level: str | None) -> None:
    inner = helper.make_graph([helper.make_node(name, ["x"], ["z"], domain=domain)], "g", [], [])
    for nodes in (
        [helper.make_node(name, ["x"], ["y"], domain=domain)],
        [helper.make_node("If", ["x"], [], g=inner)],
    ):
        reading = read_model(model_of(nodes=nodes))
        assert codes(reading) == ({} if level is None else {"code.custom-domain": level})


def test_a_function_vouches_for_its_own_name_only() -> None:
    function = helper.make_function("custom", "Mine", ["a"], ["a"], [], [helper.make_opsetid("", 21)])
    nodes = [helper.make_node(name, ["x"], ["y"], domain="custom") for name in ("Mine", "Other")]
    reading = read_model(model_of(nodes=nodes, functions=[function]))
    assert [finding.details["operators"] for finding in reading.findings] == [["Other"]]


# Values in other files


def external_model(**entries: str) -> onnx.ModelProto:
    tensor = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL
    )
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return model_of(tensor)


def read_external(folder: Path, model: onnx.ModelProto) -> Reading:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return read_file(path)


@pytest.mark.parametrize("one_file", [True, False])
def test_external_data_is_found_where_onnx_put_it(tmp_path: Path, one_file: bool) -> None:
    arrays = {
        f"w{i}": np.random.default_rng(i).normal(size=(i + 1, 300)).astype(np.float32) for i in range(4)
    }
    model = model_of(*(numpy_helper.from_array(array, name) for name, array in arrays.items()))
    path = tmp_path / "m.onnx"
    onnx.save_model(model, path, save_as_external_data=True, all_tensors_to_one_file=one_file, location=None)
    told = onnx.load(path, load_external_data=False)
    assert all(tensor.data_location == TensorProto.EXTERNAL for tensor in told.graph.initializer)
    reading = Reading()
    with OpenFile(path) as source:
        read(source, reading)
        assert facts(reading) == expected(*told.graph.initializer)
        for name, array in arrays.items():
            assert values_at(reading, name) == array.tobytes()
        for file in reading.opened:
            file.close()
    assert not reading.findings


def test_two_tensors_with_the_same_external_bytes_share_their_storage(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(100))
    model = external_model(location="w.bin", length="24")
    again = model.graph.initializer.add()
    again.CopyFrom(model.graph.initializer[0])
    again.name = "tied"
    other = model.graph.initializer.add()
    other.CopyFrom(again)
    other.name = "shifted"
    other.external_data.add(key="offset", value="4")
    reading = read_external(tmp_path, model)
    one, two, three = (tensor.storage for tensor in reading.tensors)
    assert one == two != three
    assert codes(reading) == {"onnx.overlap": "notice"}


@pytest.mark.parametrize(
    "location",
    [
        "../w.bin",
        "/etc/passwd",
        "a/../../w.bin",
        "a\\w.bin",
        "C:w.bin",
        "//host/w",
        "https://x/w",
        "w\0.bin",
        "",
    ],
)
def test_a_location_outside_is_not_opened(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(24))
    reading = read_external(folder, external_model(location=location))
    assert codes(reading) == {"path.outside": "high"}
    assert not reading.opened
    assert not reading.places
    assert facts(reading) == {"w": ("float32", (2, 3))}


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(24))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    os.link(tmp_path / "w.bin", folder / "hard.bin")
    assert "high" in codes(read_external(folder, external_model(location="link.bin"))).values()
    assert set(codes(read_external(folder, external_model(location="hard.bin"))).values()) == {"info"}


def test_a_missing_file_is_told_once(tmp_path: Path) -> None:
    model = external_model(location="gone.bin")
    again = model.graph.initializer.add()
    again.CopyFrom(model.graph.initializer[0])
    again.name = "v"
    reading = read_external(tmp_path, model)
    assert [finding.code for finding in reading.findings] == ["path.missing"]
    assert codes(reading)["path.missing"] == "high"


def test_an_address_in_memory_is_told() -> None:
    reading = read_model(external_model(location="*/_ORT_MEM_ADDR_/*", offset="4096", length="24"))
    assert codes(reading) == {"onnx.memory-address": "high"}


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ({"offset": "-4"}, "onnx.external-number"),
        ({"offset": "1e3"}, "onnx.external-number"),
        ({"offset": "٣"}, "onnx.external-number"),
        ({"offset": "9" * 5000}, "onnx.external-number"),
        ({"length": ""}, "onnx.external-number"),
        ({"length": str(2**62)}, "onnx.external-size"),
        ({"length": "20"}, "onnx.external-size"),
        ({"offset": "8", "length": "24"}, "onnx.external-size"),
        ({"offset": str(2**62)}, "onnx.external-size"),
        ({"__class__": "x"}, "onnx.external-key"),
        ({"basepath": "/etc"}, "onnx.external-key"),
    ],
)
def test_lies_about_external_data_are_told(tmp_path: Path, entries: dict[str, str], code: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    reading = read_external(tmp_path, external_model(location="w.bin", **entries))
    assert codes(reading) == {code: "invalid"}


def test_an_external_key_that_is_there_twice_is_told(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(24))
    model = external_model(location="w.bin")
    model.graph.initializer[0].external_data.add(key="location", value="other.bin")
    assert codes(read_external(tmp_path, model)) == {"onnx.external-key": "invalid"}


# Broken files


def counted(number: int, content: bytes) -> bytes:
    """A field of protobuf; its own library refuses to write messages that lie too deep."""
    size, length = bytearray(), len(content)
    while length >= 0x80:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((number << 3 | 2, *size, length)) + content


def whole(graph: bytes) -> bytes:
    return b"\x08\x08" + counted(7, graph) + b"\x42\x02\x10\x15"


def broken(**changes: Any) -> onnx.ModelProto:
    fields: dict[str, Any] = {"name": "w", "data_type": 1, "dims": [2, 3], "raw_data": bytes(24)}
    fields.update(changes)
    return model_of(TensorProto(**{key: value for key, value in fields.items() if value is not None}))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"dims": [2**62, 2**62]}, "onnx.shape"),
        ({"dims": [2**62, 4, 0], "raw_data": None}, "onnx.shape"),
        ({"dims": [-1, 3]}, "onnx.shape"),
        ({"dims": [-2, -3]}, "onnx.shape"),
        ({"data_type": 99}, "onnx.dtype"),
        ({"data_type": -1}, "onnx.dtype"),
        ({"data_type": 0}, "onnx.dtype"),
        ({"data_type": None}, "onnx.dtype"),
        ({"raw_data": bytes(23)}, "onnx.size"),
        ({"raw_data": bytes(25)}, "onnx.size"),
        ({"float_data": [0.0] * 6}, "onnx.data-fields"),
        ({"float_data": [0.0] * 6, "double_data": [0.0] * 6, "raw_data": None}, "onnx.data-fields"),
        ({"raw_data": None}, "onnx.data-fields"),
        ({"dims": [0]}, "onnx.data-fields"),
        ({"int64_data": [1] * 6, "raw_data": None}, "onnx.data-fields"),
        ({"float_data": [0.0] * 5, "raw_data": None}, "onnx.size"),
        ({"data_type": 7, "int64_data": [300] * 5, "raw_data": None}, "onnx.size"),
        ({"data_type": 22, "dims": [3], "raw_data": bytes(1)}, "onnx.size"),
        ({"data_type": 22, "dims": [3], "raw_data": None, "int32_data": [1] * 3}, "onnx.size"),
        ({"data_type": 8}, "onnx.data-fields"),
        ({"name": ""}, "onnx.no-name"),
        ({"segment": TensorProto.Segment(begin=0, end=1)}, "onnx.segment"),
        ({"data_location": 1}, "onnx.data-fields"),
        ({"external_data": [onnx.StringStringEntryProto(key="location", value="w")]}, "onnx.data-fields"),
    ],
)
def test_tensors_that_lie_are_refused(changes: dict[str, Any], code: str) -> None:
    assert refused(broken(**changes)) == code


def test_more_dimensions_than_allowed_stop() -> None:
    with pytest.raises(LimitError, match="dims = 64"):
        read_model(broken(dims=[1] * 65))
    with pytest.raises(LimitError, match="tensors = 1"):
        read_model(model_of(weight("a"), weight("b")), Limits(tensors=1))


@pytest.mark.parametrize(
    "fill",
    [
        counted(11, b"") * 40,  # inputs without a name
        counted(1, counted(4, b"A")) * 40,
        counted(1, counted(4, b"A") + counted(1, b"v") * 40),
        counted(1, counted(4, b"A") + counted(5, counted(9, b"") * 40)),  # texts in an attribute
    ],
)
def test_small_things_in_great_number_stop_at_a_limit(fill: bytes) -> None:
    assert read_bytes(whole(fill)).format == "onnx"
    with pytest.raises(LimitError, match="tensors = 30"):
        read_bytes(whole(fill), Limits(tensors=30))


def test_a_long_name_of_a_node_is_not_repeated_in_the_name_of_each_tensor() -> None:
    node = helper.make_node("Many", ["x"], ["y"], name="n" * 60_000, values=[weight("v", (1,))] * 100)
    reading = read_model(model_of(nodes=[node]))
    assert len(facts(reading)) == 100
    assert max(len(tensor.name) for tensor in reading.tensors) < 500


def test_a_key_of_the_metadata_that_is_there_twice_is_told() -> None:
    model = model_of()
    for value in ("one", "two", "three"):
        model.metadata_props.add(key="author", value=value)
    model.opset_import.append(helper.make_opsetid("ai.onnx", 7))
    assert [finding.code for finding in read_model(model).findings] == ["onnx.opset", "onnx.metadata"]


def test_two_initializers_of_one_name_are_refused() -> None:
    assert refused(model_of(weight("w"), weight("w"))) == "onnx.duplicate"


def test_a_second_graph_is_refused_where_protobuf_would_merge_it() -> None:
    data = model_of(weight("w")).SerializeToString()
    assert refused(data + model_of(weight("v")).SerializeToString()) == "protobuf.repeated"


def nested_graphs(levels: int) -> bytes:
    graph = b""
    for _ in range(levels):
        attribute = counted(1, b"g") + counted(6, graph)
        graph = counted(1, counted(2, b"o") + counted(4, b"If") + counted(5, attribute))
    return whole(graph)


def nested_types(levels: int) -> bytes:
    kind = counted(1, b"\x08\x01")
    for _ in range(levels):
        kind = counted(4, counted(1, kind))
    return whole(counted(11, counted(1, b"x") + counted(2, kind)))


@pytest.mark.parametrize(("nested", "most"), [(nested_graphs, 33), (nested_types, 48)])
def test_messages_are_followed_as_deep_as_protobuf_does(nested: Callable[[int], bytes], most: int) -> None:
    onnx.load_from_string(nested(most))
    assert not read_bytes(nested(most)).findings
    with pytest.raises(DecodeError):
        onnx.load_from_string(nested(most + 1))
    assert refused(nested(most + 1)) == "onnx.depth"
    assert refused(nested(3000)) == "onnx.depth"


def test_a_model_must_have_a_graph_and_versions() -> None:
    assert refused(b"") == "onnx.no-graph"
    assert refused(b"\x08\x08") == "onnx.no-graph"
    model = model_of()
    del model.opset_import[:]
    assert codes(read_model(model)) == {"onnx.no-version": "invalid"}
    assert refused(model_of(nodes=[onnx.NodeProto(name="n")])) == "onnx.no-operator"


def test_an_attribute_is_one_thing() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], alpha=1)
    node.attribute[0].f = 2.0
    assert refused(model_of(nodes=[node])) == "onnx.attribute"
    node = helper.make_node("Relu", ["x"], ["y"], alpha=1)
    node.attribute[0].type = onnx.AttributeProto.STRING
    assert refused(model_of(nodes=[node])) == "onnx.attribute"
    node = helper.make_node("Relu", ["x"], ["y"], alpha=1)
    node.attribute.append(node.attribute[0])
    assert refused(model_of(nodes=[node])) == "onnx.attribute"


def test_what_was_found_before_an_error_is_kept() -> None:
    nodes = [helper.make_node("Evil", ["x"], ["y"], domain="custom")]
    data = model_of(weight("w"), broken(dims=[-1]).graph.initializer[0], nodes=nodes).SerializeToString()
    reading = Reading()
    source = Source(lambda at, length: data[at : at + length], len(data), file="m")
    with pytest.raises(CorruptFileError):
        read(source, reading)
    assert codes(reading) == {"code.custom-domain": "notice"}
    assert [tensor.name for tensor in reading.tensors] == ["w"]


def test_hostile_names_are_kept_as_they_are() -> None:
    names = ["\x1b[2J", "<script>", "=cmd|x", "a\0b", "\u202e", "n" * 60_000]
    assert list(facts(read_model(model_of(*map(weight, names))))) == names


def everything() -> bytes:
    nodes = [
        helper.make_node("Constant", [], ["c"], name="const", value=weight("anything", (4,))),
        helper.make_node("If", ["x"], ["y"], then_branch=branch("t", 1), else_branch=branch("e", 2)),
        helper.make_node("Mine", ["y", "w"], ["z"], domain="custom", a=1.5, b=[1, 2], c="text", d=["q"]),
    ]
    function = helper.make_function("custom", "Mine", ["a"], ["a"], [nodes[0]], [helper.make_opsetid("", 21)])
    typed = helper.make_tensor("typed", TensorProto.INT64, (3,), [1, 2, 300])
    model = model_of(weight("w"), typed, nodes=nodes, functions=[function], sparse_initializer=[sparse()])
    model.graph.initializer.add().CopyFrom(external_model(location="w.bin", offset="0").graph.initializer[0])
    model.graph.initializer[-1].name = "outside"
    return model.SerializeToString()


EVERYTHING = everything()


def test_a_file_cut_anywhere_is_never_taken_for_whole() -> None:
    model = onnx.load_from_string(EVERYTHING)
    del model.functions[:], model.opset_import[1:]
    needed = model.SerializeToString()  # what follows may be there or not
    assert EVERYTHING.startswith(needed)
    assert codes(read_bytes(EVERYTHING)) == {"onnx.external-unread": "notice"}
    for cut in range(len(needed)):
        try:
            reading = read_bytes(EVERYTHING[:cut])
        except CorruptFileError:
            continue
        assert "invalid" in codes(reading).values()


def as_text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="surrogateescape")


@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, len(EVERYTHING) - 1), st.integers(0, 255))
def test_a_changed_byte_is_refused_or_read_as_onnx_reads_it(at: int, byte: int) -> None:
    data = bytearray(EVERYTHING)
    data[at] = byte
    with suppress(FileError, DecodeError):
        ours = facts(read_bytes(bytes(data)))
        graph = onnx.load_from_string(bytes(data)).graph
        theirs = {as_text(name): fact for name, fact in expected(*graph.initializer).items()}
        assert {name: ours.get(name) for name in theirs} == theirs


# Recognition


def test_models_are_recognised_by_their_first_bytes() -> None:
    plain = model_of(weight("w", (100, 100)))
    bare = onnx.ModelProto(producer_name="exporter", graph=plain.graph)
    graph_only = onnx.ModelProto(graph=plain.graph)
    for data in (
        plain.SerializeToString(),
        EVERYTHING,
        bare.SerializeToString(),
        graph_only.SerializeToString(),
    ):
        for size in (64, 512, 4096, len(data)):
            assert looks_like(data[:size], len(data))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"a": [1, 2]}',
        b"<!DOCTYPE html><html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 3\n",
        b"PK\x03\x04" + bytes(60),
        b"GGUF\x03\0\0\0" + bytes(60),
        b"Batch normalisation is a text that goes on for a while: " * 5,
        b":abcdefghijklmnopqrstuvwxyz" * 10,
        b"2" * 500,
        b"\x93NUMPY\x01\0v\0{'descr'",
        b"\x89HDF\r\n\x1a\n" + bytes(60),
        b"\x08\x01\x12\x10\x0a\x04abcd\x12\x08abcdefgh",  # another protobuf: a message where a name belongs
        b"\x08\x07\0\0\0\0\0\0" + b'{"w": 1}',
        b"\x3a\x07\0\0\0\0\0\0" + b'{"w": 1}',
        b"\x12\x03\0\0\0\0\0\0" + b'{"w": 1}',
        *(pickle.dumps({"a": [1.5, "b"]}, protocol) for protocol in range(6)),
        *(pickle.dumps([(1, "b")] * 50, protocol) for protocol in range(6)),
    ],
)
def test_other_files_are_not_taken_for_models(data: bytes) -> None:
    assert not looks_like(data[:4096], len(data))


@given(st.integers(2, 10_000_000))
def test_the_length_that_starts_safetensors_is_not_taken_for_a_model(length: int) -> None:
    assert not looks_like(length.to_bytes(8, "little") + b'{"__metadata__":{}}' * 10, length + 100)
