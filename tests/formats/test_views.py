"""What loaders see of a file is what is looked at: genuine files are quiet, and real loaders agree."""

from __future__ import annotations

import base64
import gzip
import io
import lzma
import os
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.export import Dim

import modelglass as mg
from hostile.views import tar_of
from modelglass.formats.archives import tars, zip as zips
from modelglass.formats.archives.compressed import packing_of
from modelglass.formats.limits import Limits
from modelglass.formats.pickles import also_a_pickle
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.torch.expressions import FUNCTIONS, strange_part
from modelglass.report import Scan

EVIL = b"\x80\x02cos\nsystem\n(X\4\0\0\0truetR."
# What joblib 1.6 writes of an array of numbers, one of objects, one of texts, and a text after them.
JOBLIB = zlib.decompress(
    base64.b64decode(
        "eNqFUstKw0AUTZoWQ63WIj7AH6ibLFy5EKp050AEQVxJmCSjE82LyQSNKNRFsYVx5c2/+Rn+QZ0kbW0V9MAdzgz3cc5lBvX8Q6nwDF2h"
        "YhCbt5Hte7YRpkGcWbHn3PkERMcsrieM4eyS4TgmDN5h/wWKKj1JbcfHSQKiUVaBWAldXOTKJNFIKI4JIG0oecRcWSrUvuQuz+Q71WdM"
        "5tauD2E8eoVz6CJNqEdgmubpRKI8kMLBFk3s+9G9FQQ4hpHYq3SW0yzsezdhQEJu2RknCaCN1G5NFqAs4bM3Jcc5mjKhRkDrlTG6Qpt0"
        "FdWGQNfoOm3TjqidLel7+qGvJ/XRnTHdLQYPGvnbrOt2qdKwnIgRI0h97lXrES2LEScKE85Sh5fb+r1BpAyhr9pQjVVLQdri0v4XNb4q"
        "Kk0iqZH3516TP71eHHy3pVuyKdJRHemlx1HlsT1ZxsO0dSbjUUbems+Sn0gjoQup8QXaG/Jh"
    )
)


def in_memory(data: bytes) -> Source:
    return Source(lambda at, length: data[at : at + length], len(data), file="made")


def loud(scan: Scan) -> list[tuple[str, str, str]]:
    return [(each.code, each.level, each.text) for each in scan.findings if each.level != "info"]


def codes(scan: Scan) -> set[tuple[str, str]]:
    return {(each.code, each.level) for each in scan.findings}


# --- exported programs --------------------------------------------------------------------------------


class Sized(nn.Module):
    """Uses sizes in every way that leaves expressions and guards behind."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.constant = torch.arange(3)

    def forward(self, x: torch.Tensor, y: torch.Tensor, *, more: list[Any]) -> Any:
        found = torch.cat([self.linear(x), y[: x.shape[0] // 2 * 2]], 0)
        count = (x > 0).sum().item()
        torch._check(count >= 0)
        torch._check(count <= 100)
        rows = x.shape[0]
        sizes = max(rows, 5), rows**2, rows % 3, torch.sym_float(rows) / 2
        return {"found": found, "zeros": torch.zeros(count)}, self.constant, more[0].sum() * rows, sizes


def exported(path: Path, **options: Any) -> Path:
    inputs = torch.randn(6, 8), torch.randn(6, 4)
    more = {"more": [torch.ones(3), {"a": torch.ones(2)}]}
    shapes = {
        "x": {0: Dim("batch", min=2, max=64)},
        "y": {0: Dim.DYNAMIC},
        "more": [{0: Dim.AUTO}, {"a": {0: Dim.AUTO}}],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Sized(), inputs, more, dynamic_shapes=shapes, strict=False)
        torch.export.save(program, path, **options)
    return path


@pytest.fixture(scope="module")
def sized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return exported(tmp_path_factory.mktemp("export") / "sized.pt2", extra_files={"notes.txt": "hello"})


def test_an_exported_program_with_sizes_and_guards_is_quiet(sized: Path) -> None:
    scan = mg.scan(sized)
    assert loud(scan) == []
    assert scan.exit_code() == 0
    with zipfile.ZipFile(sized) as archive:
        program = archive.read("sized/models/model.json")
    assert program.count(b'"expr_str"') > 5
    assert b"L['x'].size()" in program


def test_compiled_code_that_torch_packs_is_high(tmp_path: Path) -> None:
    from torch.export.pt2_archive._package import package_pt2

    library = tmp_path / "abc.so"
    library.write_bytes(b"\x7fELF" + bytes(60))
    package_pt2(str(tmp_path / "a.pt2"), aoti_files={"model": [str(library)]})
    assert ("code.native", "high") in codes(mg.scan(tmp_path / "a.pt2"))


def test_every_function_that_torch_gives_to_sympy_is_known() -> None:
    import sympy
    from torch.utils._sympy import functions

    made = {
        name
        for name, each in vars(functions).items()
        if isinstance(each, type) and issubclass(each, sympy.Basic) and each.__module__ == functions.__name__
    }
    assert {name for name in made - {"MinMaxBase"} if strange_part(f"{name}(s0)") is not None} == set()
    # None of the others leaves arithmetic: they are types and relations of sympy, or functions of numbers.
    evaluating = {"sympify", "S", "parse_expr", "lambdify", "preview", "Lambda", "Function", "eval", "open"}
    assert evaluating & FUNCTIONS == set()


@pytest.mark.parametrize(
    "text",
    [
        "s0 + 2*s1",
        "-s0**2 // 3",
        "Max(1, s0)//2",
        "Eq(Mod(s0, 2), 0)",
        "Mul(Integer(2), FloorDiv(Symbol('s77', positive=True, integer=True), Integer(2)))",
        "Float('1.5', precision=53)",
        "2*(L['x'].size()[0] // 2) <= L['y'].size()[0]",
        "L['a']['b'][0].field.size()[1] == 3 and not (L['a'].stride()[0] > 1)",
        "math.floor(L['x'].size()[0]/2) < math.inf",
        "torch.sym_float(L['x'].size()[0]) != 1.0",
    ],
)
def test_expressions_over_sizes_are_quiet(text: str) -> None:
    assert strange_part(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x')",
        "().__class__",
        "L['x'].size().__class__",
        "L['x'].unlink()",
        "L['x'](2)",
        "s0.func",
        "lambda: 0",
        "[x for x in y]",
        "f'{x}'",
        "'a' 'b'",
        "torch.hub.load('x', 'y')",
        "math.__loader__",
        "math.floor.__self__",
        "Integer(2)(3)",
        'Symbol("x\'+y")',
        "a;b",
        "{1: 2}",
        "x := 3",
        "a if __builtins__ else b",
        "\N{MATHEMATICAL BOLD SMALL E}val(1)",
        "max(a)(b)",
        "s0 # comment",
        "s0\\\n+1",
    ],
)
def test_anything_else_in_an_expression_is_found(text: str) -> None:
    assert strange_part(text) is not None


# --- zips ---------------------------------------------------------------------------------------------


def renamed(data: bytes, name: Callable[[str], str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for each in old.namelist():
            new.writestr(name(each), old.read(each))
    return buffer.getvalue()


def saved(*shape: int) -> bytes:
    buffer = io.BytesIO()
    torch.save({"w": torch.ones(shape)}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("name", [str.upper, str.title, lambda name: name.replace("data.pkl", "DATA.PKL")])
def test_letters_are_compared_as_torch_does(name: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(renamed(saved(2, 3), name))
    assert torch.load(path, weights_only=True)["w"].shape == (2, 3)
    (tensor,) = mg.inspect(path).model.tensors
    assert (tensor.name, tensor.shape) == ("w", (2, 3))


@pytest.mark.parametrize("behind", [0, 1, 21, 22, 4096, 65_535, 69_000])
def test_the_directory_is_found_where_torch_finds_it(behind: int, tmp_path: Path) -> None:
    data = saved(100_000) + b"x" * behind
    (tmp_path / "a.pt").write_bytes(data)
    records = torch._C.PyTorchFileReader(str(tmp_path / "a.pt")).get_all_records()
    archive = zips.read(in_memory(data), Reading())
    assert [entry.name.partition("/")[2] for entry in archive.entries] == records
    assert zips.has_end(in_memory(b"other" + data))


def test_an_archive_with_a_comment_is_quiet_in_a_folder(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "model.bin")
    with zipfile.ZipFile(tmp_path / "docs.zip", "w") as archive:
        archive.writestr("readme.txt", "(hello)")
        archive.comment = b"PK is how archives begin"
    assert loud(mg.scan(tmp_path)) == []


# --- tars ---------------------------------------------------------------------------------------------


def made_tar(format: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as out:
        for name, kind in {
            "a": tarfile.REGTYPE,
            "d": tarfile.DIRTYPE,
            "d/" + "x" * 80: tarfile.REGTYPE,
            "y/" * 60 + "long": tarfile.REGTYPE,
            "link": tarfile.SYMTYPE,
            "hard": tarfile.LNKTYPE,
        }.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            info.size = 700 if kind == tarfile.REGTYPE else 0
            out.addfile(info, io.BytesIO(b"x" * 700) if info.size else None)
    return buffer.getvalue()


TARS = {
    "ustar": made_tar(tarfile.USTAR_FORMAT),
    "gnu": made_tar(tarfile.GNU_FORMAT),
    "pax": made_tar(tarfile.PAX_FORMAT),
    "v7": tar_of((b"a", b"\0", b"1"), (b"d/", b"\0", b""), (b"b", b"\0", b"2"), magic=b""),
    "folder": tar_of((b"d", b"5", tar_of((b"in", b"0", b"1"))[:1024]), (b"b", b"0", b"2")),
    "nul": tar_of((b"a\0b", b"0", b"1")),
    "unknown": tar_of((b"a", b"Z", b"1"), (b"b", b"0", b"2")),
}


@pytest.mark.parametrize("kind", TARS)
def test_members_of_a_tar_are_those_that_python_finds(kind: str) -> None:
    data = TARS[kind]
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        expected = [(each.name, each.offset_data, each.type) for each in archive.getmembers()]
    found = tars.read(in_memory(data), Reading())
    assert [(each.name, each.start, each.kind) for each in found][: len(expected)] == expected
    assert (len(found) > len(expected)) == (kind == "folder" and found[-1].name == "b" and len(expected) < 3)


@pytest.mark.parametrize("kind", ["ustar", "gnu", "pax"])
def test_an_ordinary_tar_is_quiet_in_a_folder(kind: str, tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "model.bin")
    (tmp_path / "data.tar").write_bytes(TARS[kind])
    (tmp_path / "data.tar.gz").write_bytes(gzip.compress(TARS[kind]))
    assert loud(mg.scan(tmp_path)) == []


# --- pickles ------------------------------------------------------------------------------------------


def test_text_that_goes_on_like_a_pickle_stays_text() -> None:
    assert not also_a_pickle(in_memory(b"N0" * 30_000 + b" is text"), Limits())
    assert also_a_pickle(in_memory(b"N0" * 30_000 + EVIL[2:]), Limits())


def test_a_probe_that_meets_a_limit_is_not_decided(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"N0" * 3000 + EVIL[2:])
    assert mg.scan(tmp_path / "a.txt", limits={"pickle_opcodes": 1000}).exit_code() == 4


@pytest.mark.parametrize("pack", [bytes, zlib.compress, gzip.compress])
def test_arrays_between_the_opcodes_of_joblib_are_passed_over(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "model.joblib"
    path.write_bytes(pack(JOBLIB))
    scan = mg.scan(path)
    assert {level for _, level, _ in loud(scan)} <= {"notice"}  # that joblib is imported
    assert {use.name for use in scan.files[0].globals if use.kind in ("call", "dynamic")} == set()
    path.write_bytes(pack(JOBLIB[:-1] + b"0" + EVIL[2:]))
    assert ("pickle.call", "high") in codes(mg.scan(path))


@pytest.mark.parametrize("text", [b"x^2 + y = 3\n" * 9, b"ZF is a prefix", b"]\x00\x01\x02", b"BZ is a name"])
def test_what_only_begins_like_a_compressed_file_is_not_one(text: bytes) -> None:
    assert packing_of(text) is None


# --- folders ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("collectives", [True, False])
def test_a_distributed_checkpoint_is_quiet(collectives: bool, tmp_path: Path) -> None:
    state = {"w": torch.zeros(2, 3), "name": "text", "steps": [1, 2], "optimizer": {"step": torch.tensor(3)}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(state, checkpoint_id=tmp_path / "d", use_collectives=collectives)
    assert loud(mg.scan(tmp_path / "d")) == []


def test_a_folder_as_people_publish_it_is_quiet(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    np.savez(tmp_path / "arrays.npz", x=np.zeros(3), X=np.ones(2))
    log = b"\x18" + bytes(7) + b"crc!" + b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2" + b"crc!"
    (tmp_path / "events.out.tfevents.1").write_bytes(log)
    (tmp_path / "modeling_own.py").write_text("import torch\n")
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "readme.md").write_text("no package\n")
    (tmp_path / ".gitattributes").write_text("*.bin filter=lfs\n")
    (tmp_path / "vocab.txt").write_text("".join(f"c{n}\nop\n" for n in range(100)))
    assert loud(mg.scan(tmp_path)) == []


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("collections.py", "high"),  # the pickle names it
        ("torch.pyc", "high"),
        ("torch/__init__.py", "high"),
        ("sub/collections.py", None),  # no loader of the file above looks there
        ("torch/extra.py", None),  # not a package: the installed one goes first
        ("sympy.py", "notice"),  # what programs import anyway
        ("transformers/__init__.py", "notice"),
        ("helpers.py", None),
    ],
)
def test_code_that_shadows_a_module_is_named(name: str, level: str | None, tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x = 1\n")
    found = [each for each in mg.scan(tmp_path).findings if each.code == "code.shadow"]
    assert [each.level for each in found] == ([] if level is None else [level])


def test_a_class_in_a_folder_beside_its_pickle_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.pkl").write_bytes(b"\x80\x02cmodels.yolo\nDetect\n)\x81.")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "yolo.py").write_text("class Detect: ...\n")
    assert ("code.shadow", "high") in codes(mg.scan(tmp_path))


def test_links_are_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    torch.save({"w": torch.zeros(1)}, folder / "model.bin")
    (tmp_path / "elsewhere").mkdir()
    links = {"folder": "../elsewhere", "long": "x" * 300, "device": "/dev/zero", "loop": "loop"}
    for name, target in links.items():
        os.symlink(target, folder / name)
    os.mkfifo(folder / "pipe")
    scan = mg.scan(folder)
    told = {Path(each.file).name: each.level for each in scan.findings if each.code != "torch.kind"}
    assert {name: told.get(name) for name in ("folder", "long", "device", "loop", "pipe")} == {
        "folder": "notice",
        "long": "info",
        "device": "notice",
        "loop": "info",
        "pipe": "notice",
    }


@pytest.mark.parametrize("made", ["reconstructed", "made", "tuple"])
def test_arrays_that_are_not_written_as_joblib_does_are_told_of(made: str, tmp_path: Path) -> None:
    """joblib passes over values that are opcodes to others, and the other way round."""
    wrapper = b"cjoblib.numpy_pickle\nNumpyArrayWrapper\n"
    start = {
        "reconstructed": b"ccopyreg\n_reconstructor\n" + wrapper + b"cbuiltins\nobject\nN\x87R}b",
        "made": b"ccopyreg\n__newobj__\n" + wrapper + b"\x85R}b",
        "tuple": wrapper + b")\x81N}\x86b",
    }[made]
    path = tmp_path / "x.joblib"
    path.write_bytes(b"\x80\x03" + start + b".")
    assert mg.scan(path).exit_code() == 3


def test_lzma_with_a_small_dictionary_is_unpacked(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 4096}]
    packed = lzma.compress(b"cos\nsystem\n(S'true'\ntR.", lzma.FORMAT_ALONE, filters=filters)
    (tmp_path / "x.joblib").write_bytes(packed)
    assert "pickle.call" in {finding.code for finding in mg.scan(tmp_path).findings}
