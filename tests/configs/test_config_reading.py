"""Configuration files as plain data, whoever wrote them."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from pathlib import Path

import pytest

from modelglass.configs.reading import read
from modelglass.errors import CorruptFileError, TargetError


def written(folder: Path, text: str | bytes, name: str = "model.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_yaml_values_are_those_that_hydra_reads(tmp_path: Path) -> None:
    text = "a: [1e-4, 1.5, .inf, yes, ~, 0x10, 1_000, 2024-01-01, '1', off]\nb: |\n  text\n3: x\n"
    assert read(written(tmp_path, text)) == {
        "a": [1e-4, 1.5, math.inf, True, None, 16, 1000, "2024-01-01", "1", False],
        "b": "text\n",
        3: "x",
    }


def test_numbers_are_those_that_omegaconf_reads(tmp_path: Path) -> None:
    omegaconf = pytest.importorskip("omegaconf")
    texts = ["1e5", "1E-3", ".5", "1.", "+3", "0o17", "017", "0b11", "1:30", "nan", ".nan", "e3", "1e", "yes"]
    path = written(tmp_path, "a: [" + ", ".join(texts) + "]\n")
    theirs = omegaconf.OmegaConf.to_container(omegaconf.OmegaConf.load(path))["a"]
    assert repr(read(path)["a"]) == repr(theirs)


def test_merge_keys_give_way_to_what_is_written_out(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\nmodel:\n  <<: [*base, *more]\n  a: 5\n"
    assert read(written(tmp_path, text))["model"] == {"a": 5, "b": 2, "c": 4}


@pytest.mark.parametrize(
    ("tag", "line"),
    [
        ("a: 1\nb: !!python/object/apply:os.system ['touch made']", 2),
        ("b: !!python/name:os.system x", 1),
        ("b: !!python/tuple [1]", 1),
        ("b: !Thing {a: 1}", 1),
        ("b: !!binary aGVsbG8=", 1),
        ("b: !!set {a}", 1),
        ("%TAG !p! tag:yaml.org,2002:python/\n---\nb: !p!object/apply:os.system [x]", 3),
        ("b: !<tag:yaml.org,2002:python/object:os.system> x", 1),
    ],
    ids=["apply", "name", "tuple", "own", "binary", "set", "handle", "verbatim"],
)
def test_tags_that_are_no_plain_value_are_refused_by_name(tmp_path: Path, tag: str, line: int) -> None:
    with pytest.raises(CorruptFileError, match=f"line {line}: the tag '[^']+' asks for an object") as error:
        read(written(tmp_path, tag))
    shown = {"apply": "python/object/apply:os.system"}
    assert all(text in str(error.value) for key, text in shown.items() if key in tag and "handle" not in tag)
    assert error.value.exit_code == 3
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the name 'a' is there twice: it is also in line 1"),
        ("m: {a: 1, a: 2}\n", "line 1: the name 'a' is there twice"),
        ("a: &a [*a]\n", "line 1: *a is inside of its own anchor"),
        ("a: *b\n", "line 1: no anchor before it is called &b"),
        ("a: [1\n", "this is not YAML"),
        ("a: 1\n---\nb: 2\n", "line 2: a second document begins"),
        ("? [1]\n: 2\n", "a list or mapping is where a name is expected"),
        ("[" * 200, "nested more than 64 levels deep"),
        ("<<: 3\n", "only a mapping can be merged"),
        ("- 1\n", "a configuration has names and values, and this holds a list"),
        ("", "this holds nothing"),
        (b"a: \xff\n", "this is not UTF-8"),
        ("a: !!int seven\n", "'seven' cannot be read as int"),
        ("a: !!int ''\n", "'' cannot be read as int"),
    ],
    ids=[
        *(
            "duplicate",
            "flow-duplicate",
            "itself",
            "no-anchor",
            "syntax",
            "documents",
            "key",
            "deep",
            "merge",
        ),
        *("list", "empty", "encoding", "value", "empty-value"),
    ],
)
def test_what_can_be_read_in_two_ways_is_an_error(tmp_path: Path, text: str | bytes, problem: str) -> None:
    with pytest.raises(CorruptFileError) as error:
        read(written(tmp_path, text))
    assert problem in str(error.value)


def test_aliases_do_not_grow_without_end(tmp_path: Path) -> None:
    names = "abcdefghij"
    lines = [f"a: &a [{','.join('1' * 9)}]"]
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in pairwise(names)]
    began = time.monotonic()
    with pytest.raises(CorruptFileError, match="its aliases expand to more than 1,000,000 values"):
        read(written(tmp_path, "\n".join(lines)))
    assert time.monotonic() - began < 5


def test_long_yaml_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="more than 2,097,152 of YAML are not read"):
        read(written(tmp_path, "a: " + "x" * (2 << 20)))


def test_json_is_strict_and_knows_infinity(tmp_path: Path) -> None:
    text = '{"a": [0.0, Infinity], "b": {"__float__": "-Infinity"}, "c": "x"}'
    path = written(tmp_path, text, "config.json")
    assert read(path) == {"a": [0.0, math.inf], "b": -math.inf, "c": "x"}
    assert read(written(tmp_path, '{"a": "Infinity"}', "text.json")) == {"a": "Infinity"}
    with pytest.raises(CorruptFileError, match="duplicate key 'a'"):
        read(written(tmp_path, '{"a": 1, "a": 2}', "twice.json"))
    with pytest.raises(CorruptFileError, match="nested more than 64 levels deep"):
        read(written(tmp_path, '{"a": ' + "[" * 100 + "]" * 100 + "}", "deep.json"))


def test_a_file_that_is_not_there_has_near_names(tmp_path: Path) -> None:
    written(tmp_path, "a: 1")
    with pytest.raises(TargetError, match=r"(?s)there is no file .*did you mean model.yaml\?"):
        read(tmp_path / "modle.yaml")
