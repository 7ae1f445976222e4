"""Whatever torch saves is read as torch loads it; whatever is broken in it ends in an error of ours."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st

import modelglass as mg
from genuine import CONTENTS, DTYPES, network, trained
from modelglass.errors import CorruptFileError, FileError
from modelglass.report import Report

OLD_DTYPES = [dtype for dtype in DTYPES if dtype not in DTYPES[12:]]  # those that the old form can have
QUIET_DTYPES = [dtype for dtype in DTYPES if dtype != torch.complex32]  # which torch warns of
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)
steady = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def state_dicts(draw: st.DrawFn, dtypes: list[torch.dtype]) -> dict[str, torch.Tensor]:
    made: dict[str, torch.Tensor] = {}
    for name in draw(st.lists(names, max_size=6, unique=True)):
        way = draw(st.sampled_from(["fresh", "fresh", "tied", "view", "transposed", "expanded"]))
        known = list(made.values())
        if way == "fresh" or not known:
            tensor = torch.zeros(draw(shapes), dtype=draw(st.sampled_from(dtypes)))
        else:
            tensor = known[draw(st.integers(0, len(known) - 1))]
            if way == "view" and tensor.ndim and tensor.shape[0]:
                tensor = tensor[draw(st.integers(0, tensor.shape[0] - 1)) :]
            elif way == "transposed" and tensor.ndim > 1:
                tensor = tensor.transpose(0, -1)
            elif way == "expanded":
                tensor = tensor.expand(2, *tensor.shape)
        made[name] = tensor
    return made


def inspected(content: bytes, suffix: str = ".pt") -> Report:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        path.write_bytes(content)
        return mg.inspect(path)


def check(content: dict[str, torch.Tensor], **ways: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.save(content, buffer, **ways)
        buffer.seek(0)
        expected = torch.load(buffer, weights_only=False)  # the other way knows only protocol 2
    report = inspected(buffer.getvalue())
    found = [(t.name, t.shape, t.dtype) for t in report.model.tensors]
    assert found == [
        (name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in expected.items()
    ]
    # What shares a storage in our table shares one in torch's.
    for one in report.model.tensors:
        for other in report.model.tensors:
            if one.storage == other.storage:
                same = expected[one.name].untyped_storage().data_ptr()
                assert same == expected[other.name].untyped_storage().data_ptr()


@steady
@given(content=state_dicts(QUIET_DTYPES), protocol=st.integers(2, 5))
def test_archives_are_read_as_torch_loads_them(content: dict[str, torch.Tensor], protocol: int) -> None:
    check(content, pickle_protocol=protocol)


@steady
@given(content=state_dicts(OLD_DTYPES), protocol=st.integers(2, 3))
def test_old_files_are_read_as_torch_loads_them(content: dict[str, torch.Tensor], protocol: int) -> None:
    check(content, pickle_protocol=protocol, _use_new_zipfile_serialization=False)


def saved(content: Any, **ways: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **ways)
    return buffer.getvalue()


def scripted() -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(network().eval()), buffer)
    return buffer.getvalue()


def exported() -> bytes:
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(network().eval(), (torch.randn(2, 4),)), buffer)
    return buffer.getvalue()


def checkpoint() -> dict[str, Any]:
    return {
        **trained(torch.optim.Adam),
        "norm_mean": torch.ones(3),
        "array": CONTENTS["plain-data"]()["array"],
    }


WRITERS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: saved(checkpoint()),
    "legacy": lambda: saved(checkpoint(), _use_new_zipfile_serialization=False),
    "module": lambda: saved(network()),
    "torchscript": scripted,
    "pt2": exported,
}


@cache
def written(kind: str) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return WRITERS[kind]()


def survives(path: Path) -> None:
    with suppress(FileError):
        mg.inspect(path, stats=True)
    mg.scan(path)


def damaged(data: st.DataObject, content: bytes) -> bytes:
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        return content[:place]
    byte = data.draw(st.integers(0, 255))
    return content[:place] + bytes([byte]) + content[place + 1 :]


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_ends_in_an_error_or_a_clean_result(kind: str, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("x.pt2" if kind == "pt2" else "x.pt")
        path.write_bytes(damaged(data, written(kind)))
        survives(path)


@pytest.mark.parametrize("kind", ["zip", "legacy"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_in_the_pickle(kind: str, data: st.DataObject) -> None:
    """Most of a file is values; here, the byte is one of its description."""
    content = written(kind)
    start = content.index(b"\x80\x02", 0 if kind == "zip" else 100)
    place = data.draw(st.integers(start, start + 3000))
    byte = data.draw(st.integers(0, 255))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "x.pt"
        path.write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
        survives(path)


@cache
def distributed_files() -> dict[str, bytes]:
    import torch.distributed.checkpoint as dcp

    content = trained(torch.optim.Adam)
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("c10d-NullHandler-dcp_logger").setLevel(logging.WARNING)
        dcp.save({"model": content["model"], "epoch": 3}, checkpoint_id=folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_in_a_distributed_checkpoint(data: st.DataObject) -> None:
    files = dict(distributed_files())
    broken = data.draw(st.sampled_from([".metadata", ".metadata", *sorted(files)]))
    files[broken] = damaged(data, files[broken])
    with TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        survives(Path(folder))


def test_a_piece_whose_archive_lost_its_pickle(tmp_path: Path) -> None:
    for name, content in distributed_files().items():
        (tmp_path / name).write_bytes(content.replace(b"data.pkl", b"date.pkl"))
    with pytest.raises(CorruptFileError, match=r"no data\.pkl"):
        mg.inspect(tmp_path, stats=True)
