"""Files beside weights: what code they name is found, and nothing of it is run."""

from __future__ import annotations

import contextlib
import json
import time
from itertools import pairwise
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings, strategies as st

from modelglass.errors import CorruptFileError, FileError, LimitError
from modelglass.formats.documents import yaml as yaml_documents
from modelglass.formats.documents.code_in_text import code_references
from modelglass.formats.documents.strict_json import document
from modelglass.formats.limits import Limits
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source


def source_of(data: bytes, name: str = "config") -> Source:
    return Source(lambda at, length: data[at : at + length], len(data), file=name)


def read_json(source: Source, reading: Reading) -> None:
    code_references(source, reading, document(source, reading.limits))


def of_json(content: Any, name: str = "config") -> Reading:
    reading = Reading()
    read_json(source_of(json.dumps(content).encode(), name), reading)
    return reading


def of_yaml(text: str | bytes) -> Reading:
    reading = Reading()
    yaml_documents.read(source_of(text.encode() if isinstance(text, str) else text), reading)
    assert reading.format == "yaml"
    return reading


def found(reading: Reading) -> list[tuple[str, str]]:
    return [(finding.code, finding.level) for finding in reading.findings]


def test_code_that_a_configuration_maps_to() -> None:
    auto_map = {
        "AutoConfig": "configuration_x.XConfig",
        "AutoTokenizer": ["org/repo--tokenization_x.X", None],
    }
    reading = of_json({"model_type": "x", "auto_map": auto_map})
    assert found(reading) == [("code.auto-map", "notice")]
    text = reading.findings[0].text
    assert "'configuration_x.py', 'org/repo/tokenization_x.py'" in text
    assert reading.findings[0].details["path"] == "auto_map"


@pytest.mark.parametrize(
    "template", ["{{ x }}", [{"name": "default", "template": "{{ x }}"}], {"template": "{{ x }}"}]
)
def test_a_chat_template_is_ordinary(template: Any) -> None:
    assert found(of_json({"chat_template": template})) == [("code.chat-template", "info")]


@pytest.mark.parametrize(
    ("key", "code"),
    [("_target_", "code.target"), ("class_path", "code.class-path"), ("_instantiator", "code.instantiator")],
)
def test_classes_named_for_building(key: str, code: str) -> None:
    reading = of_json({"a": {"b": [1, {key: "os.system"}]}})
    assert found(reading) == [(code, "notice")]
    assert "'os.system'" in reading.findings[0].text
    assert reading.findings[0].details == {"path": f"a.b[1].{key}", "names": "os.system"}
    (finding,) = of_yaml(f"# {key}: no\na:\n  - x\n  - {key}: os.system  # yes\n").findings
    assert (finding.code, finding.level, finding.details["names"]) == (code, "notice", "os.system")
    assert finding.details["path"] == f"a[1].{key}"
    assert found(of_yaml(f'"{key}": "os.system"')) == [(code, "notice")]
    assert found(of_yaml(f"{{{key}: os.system}}")) == [(code, "notice")]
    assert found(of_json({key: 3, "x": key})) == []


def test_lambda_layers_of_keras() -> None:
    inner = {"class_name": "__lambda__", "config": {"code": "4wEAAA=="}}
    layer = {"module": "keras.layers", "class_name": "Lambda", "config": {"function": inner}}
    reading = of_json({"config": {"layers": [{"class_name": "Dense", "config": {}}, layer]}})
    assert found(reading) == [("code.lambda", "high")] * 2
    assert reading.findings[0].details["path"] == "config.layers[1].class_name"


def test_classes_outside_of_keras() -> None:
    ours = {"module": "keras.layers", "class_name": "Dense", "config": {}, "registered_name": None}
    assert found(of_json(ours)) == []
    assert found(of_json({**ours, "module": "shutil"})) == [("code.module", "notice")]
    assert found(of_json({**ours, "class_name": "function", "config": "get_file"})) == [
        ("code.module", "notice")
    ]


def test_a_list_of_names_maps_to_code_too() -> None:
    (finding,) = of_json({"auto_map": ["tokenization_x.Slow", ["org/repo--tokenization_x.Fast"]]}).findings
    assert finding.details["names"] == ["tokenization_x.Slow", "org/repo--tokenization_x.Fast"]
    assert found(of_json({"auto_map": "modeling_x.Net"})) == [("code.auto-map", "notice")]
    assert found(of_yaml("auto_map: &a [*a, {AutoModel: }]")) == []


def test_keras_looks_up_modules_without_a_registered_name() -> None:
    layer = {"module": "shutil", "class_name": "rmtree", "config": {}}
    assert found(of_json(layer)) == [("code.module", "notice")]


def test_files_and_modules_that_other_libraries_import() -> None:
    assert found(of_json({"model_file": "net.py"}, "x/config.json")) == [("code.model-file", "high")]
    assert found(of_json({"model_file": "model.onnx"}, "config.json")) == []
    assert found(of_json({"data": {"model_file": "net.py"}}, "config.json")) == []
    pipeline = {"_class_name": "XPipeline", "unet": ["diffusers", "UNet"], "vae": [None, None]}
    assert found(of_json(pipeline, "model_index.json")) == []
    foreign = {**pipeline, "unet": ["my_unet", "UNet"]}
    assert found(of_json(foreign, "model_index.json")) == [("code.module", "notice")]
    assert found(of_json({"_class_name": "UNet", "down_block_types": ["DownBlock2D", "X"]})) == []
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    assert found(of_json([module])) == []
    assert found(of_json([{**module, "type": "evil.Transformer"}])) == [("code.module", "notice")]


def test_ordinary_configurations_have_no_findings() -> None:
    document = {
        "architectures": ["LlamaForCausalLM"],
        "rope_scaling": None,
        "x": [{"class_name": 3}],
        "auto_map": {},
    }
    assert found(of_json(document)) == []
    assert (
        found(of_yaml("lr: 1e-3\nlayers:\n  - 1\n  - {a: b, c: [d, 'e']}\nname: it's\nurl: http://x#y\n"))
        == []
    )
    assert found(of_yaml("a: &defaults {x: 1}\nb:\n  <<: *defaults\nc: !!str 3\nd: ! x\n")) == []


def test_a_tree_may_be_deep_or_contain_itself() -> None:
    deep: Any = {"_target_": "a.b"}
    for _ in range(200_000):
        deep = [deep]
    loop: dict[str, Any] = {"deep": deep}
    loop["loop"] = (loop,)
    loop[7] = {"class_path": "c.d"}  # type: ignore[index]
    reading = Reading()
    code_references(source_of(b""), reading, loop)
    assert sorted(found(reading)) == [("code.class-path", "notice"), ("code.target", "notice")]
    assert all(len(finding.details["path"]) < 20_000 for finding in reading.findings)
    while isinstance(deep, list):  # so that no destructor recurses
        deep = deep.pop()


def test_many_findings_are_counted() -> None:
    reading = of_json([{"_target_": "a.b"}] * 5_000)
    assert len(reading.findings) == 101
    assert reading.findings[-1].details == {"count": 4_900}


@pytest.mark.parametrize("data", [b"", b"{", b'{"a": 1, "a": 2}', b"\xff\xfe", b"[" * 100_000, b"nul"])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(FileError):
        read_json(source_of(data), Reading())


def test_long_documents_stop_at_the_limit() -> None:
    for read in (read_json, yaml_documents.read):
        with pytest.raises(LimitError):
            read(source_of(b"[1,2,3]"), Reading(limits=Limits(json_nbytes=5)))


EVIL = "!!python/object/apply:os.system"


@pytest.mark.parametrize(
    "text",
    [
        f"{EVIL} [true]",
        f"a: {EVIL} [true]",
        f"- - {EVIL}\n    - true",
        f"{{a: 1, b: {EVIL} [x]}}",
        f"? {EVIL} [x]\n: 1",
        f"a: &x {EVIL} [x]",
        "a: !<tag:yaml.org,2002:python/object/apply:os.system> [x]",
        "%TAG ! tag:yaml.org,2002:python/\n---\na: !object/apply:os.system [x]",
        "%TAG !e! tag:yaml.org,2002:pyth\n---\na: !e!on/object/apply:os.system [x]",
        "a: !!%70ython/object/apply:os.system [x]",
        f"a: it's\nb: {EVIL} [x]  # it's",
        f"? foo\n  \"bar\n: {EVIL} ['\"']",
        f'{{? foo\n "bar: {EVIL} ["id"], x: "}}',
        f'a: "x\n  # " \nb: {EVIL} [x]',
        f'? "x\n  \' "\n: {EVIL} ["\'"]',
        f'{{a: "x\n  }}}}", "d":{EVIL} [x]}}',
        f"- - |\n  - {EVIL} [x]",
    ],
)
def test_python_tags(text: str) -> None:
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode(), text.encode("utf-16")):
        reading = Reading()
        with contextlib.suppress(CorruptFileError):  # some are YAML to one of the parsers alone
            yaml_documents.read(source_of(data), reading)
        assert ("yaml.python-tag", "high") in found(reading)


def test_the_offset_of_a_tag() -> None:
    for mark in (b"", b"\xef\xbb\xbf"):
        data = mark + f"é: 1\nb: {EVIL} [x]".encode()
        (finding,) = of_yaml(data).findings
        assert finding.offset == data.index(b"!!python")
        assert finding.details["tag"] == "tag:yaml.org,2002:python/object/apply:os.system"


@pytest.mark.parametrize(
    "text",
    [
        f"a: 1 # {EVIL}",
        f"# {EVIL}\na: 1",
        f"a: '{EVIL}'",
        f'a: "x \\" {EVIL}"  # it',
        f"a: text {EVIL}",
        f"a: |\n  {EVIL}\n  more\nb: 1",
        f"- a: >-\n    {EVIL}\n\n    more\n- 1",
    ],
)
def test_texts_and_comments_are_no_tags(text: str) -> None:
    assert found(of_yaml(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/tuple [1, 2]",
        "!!python/object:argparse.Namespace {lr: 0.1}",
        "a: !!python/object/apply:pathlib.PosixPath [/, data]",
    ],
)
def test_tags_of_plain_data_are_ordinary(text: str) -> None:
    assert {level for _, level in found(of_yaml(text))} == {"info"}


@pytest.mark.parametrize(
    "tag", ["object/apply:copyreg._reconstructor", "name:argparse.Namespace", "module:argparse", "object:x.Y"]
)
def test_tags_that_hand_on_or_import_are_high(tag: str) -> None:
    assert found(of_yaml(f"a: !!python/{tag} ''")) == [("yaml.python-tag", "high")]


def test_a_version_of_thousands_of_digits_is_not_yaml() -> None:
    with pytest.raises(CorruptFileError, match="this is not YAML"):
        of_yaml("%YAML 1." + "9" * 5_000 + "\n---\na: 1\n")


def test_what_hydra_writes_beside_every_run_is_ordinary() -> None:
    name = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
    assert found(of_yaml(f"launcher: {{_target_: {name}}}")) == [("code.target", "info")]
    assert found(of_yaml(f"launcher: {{_target_: {name}.x.os.system}}")) == [("code.target", "notice")]


def test_other_tags_are_noticed() -> None:
    (finding,) = of_yaml("a: !Foo {x: 1}").findings
    assert (finding.code, finding.level, finding.details["tag"]) == ("yaml.tag", "notice", "!Foo")


def laughs(levels: int, width: int) -> list[str]:
    names = [f"n{level}" for level in range(levels)]
    flow = [
        f"{name}: &{name} [{', '.join(f'*{before}' for _ in range(width))}]"
        for before, name in pairwise(names)
    ]
    block = [
        line
        for before, name in pairwise(names)
        for line in (f"{name}: &{name}", *(f"- *{before}" for _ in range(width)))
    ]
    one_line = "{n0: &n0 [x], " + ", ".join(flow) + "}"
    return ["\n".join(["n0: &n0 [x]", *flow]), "\n".join(["n0: &n0 [x]", *block]), one_line]


@pytest.mark.parametrize("text", [*laughs(10, 9), "a: &a x\nb: [" + "*a, " * 1001 + "]"])
def test_aliases_that_expand_stop_at_a_limit(text: str) -> None:
    with pytest.raises(LimitError, match="yaml_aliases"):
        of_yaml(text)


@pytest.mark.parametrize("text", [*laughs(4, 4), "a: &a [*a]\nb: *a", "x: &x\n  y: 1\n" + "z: *x\n" * 900])
def test_ordinary_aliases_do_not(text: str) -> None:
    assert found(of_yaml(text)) == []


def test_text_that_cannot_be_decoded() -> None:
    with pytest.raises(CorruptFileError) as caught:
        of_yaml(b"a: \xff")
    assert (caught.value.code, caught.value.offset) == ("yaml.encoding", 3)


@pytest.mark.parametrize(
    "piece", ["'", '"', '"\\"', "!", "[", "a: ", "- ", "&a ", "{a: 'b", "!!x ", "# ", "|\n", "''' "]
)
def test_time_is_linear(piece: str) -> None:
    start = time.process_time()
    with contextlib.suppress(FileError):
        of_yaml("!a\n" + piece * 20_000)
    assert time.process_time() - start < 3


PIECES = st.sampled_from(
    [
        *(
            "a",
            "b c",
            "it's",
            '"',
            "'",
            ": ",
            ":",
            "- ",
            "? ",
            ", ",
            "[",
            "]",
            "{",
            "}",
            "#",
            " # ",
            "\n",
            "\n  ",
        ),
        *(
            "\n ",
            "|",
            ">-",
            "|2",
            "&x ",
            "*x",
            "!t ",
            "!!str ",
            "---",
            "\n---\n",
            "\\",
            "''",
            "%",
            "\t",
            "\r",
        ),
        *("_target_", "_target_: ", '"_target_"', "os.system", "\ufeff"),
        *("!!python/name:os.x ", "!!python/none ", "!<tag:yaml.org,2002:python/none>", '"k": ', "'k': "),
    ]
)


@settings(max_examples=1500, deadline=None)
@given(st.lists(PIECES, max_size=14).map("".join))
@example('{? foo\n "bar: !!python/none , x: "}')
@example("\n\ufeff_target_: !!python/none")
def test_every_tag_and_target_that_a_yaml_parser_sees_is_found(text: str) -> None:
    expected = set()
    with contextlib.suppress(yaml.YAMLError):
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if str(getattr(event, "tag", "")).startswith("tag:yaml.org,2002:python/"):
                expected.add("yaml.python-tag")
    with contextlib.suppress(yaml.YAMLError, TypeError, ValueError):
        values = yaml.load(text, Loader=yaml.SafeLoader)
        if isinstance(values, dict) and isinstance(values.get("_target_"), str) and values["_target_"]:
            expected.add("code.target")
    reading = Reading()
    with contextlib.suppress(CorruptFileError):
        yaml_documents.read(source_of(text.encode()), reading)
    assert expected <= {code for code, _ in found(reading)}


HIDDEN_TARGETS = [
    '"\\x5ftarget_": os.system',
    '? "_tar\\\n  get_"\n: os.system',
    "? _target_\n: os.system",
    "? |-\n  _target_\n: os.system",
    "a: &k _target_\nb:\n  *k : os.system",
    "a: &v os.system\nb: {_target_: *v}",
    "a: &m {_target_: os.system}\nb:\n  <<: *m",
    "!!str _target_: !!str os.system",
    '{"_target_":os.system}',
    "a: 1\n---\n_target_: os.system",
    "_target_: os.system\n_target_: torch.nn.Linear",
    "? {_target_: os.system}\n: 1",
    "_target_: >-\n  os.system",
    "a: [1, {b: [{_target_: 'os.system'}]}]",
]


@pytest.mark.parametrize("text", HIDDEN_TARGETS)
def test_a_target_is_found_however_it_is_written(text: str) -> None:
    for data in (text.encode(), text.encode("utf-16")):
        reading = of_yaml(data)
        assert "os.system" in [finding.details.get("names") for finding in reading.findings]


def test_a_document_that_goes_on_after_a_fault_was_looked_at_until_there() -> None:
    reading = Reading()
    with pytest.raises(CorruptFileError, match="this is not YAML") as caught:
        yaml_documents.read(source_of(b"_target_: os.system\nb: ]"), reading)
    assert (caught.value.code, caught.value.offset) == ("yaml.syntax", 23)
    assert found(reading) == [("code.target", "notice")]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_give_a_result_or_an_error_of_the_file(data: bytes) -> None:
    for read in (read_json, yaml_documents.read):
        with contextlib.suppress(FileError):
            read(source_of(data), Reading())
