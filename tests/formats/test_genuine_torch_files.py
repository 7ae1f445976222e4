"""Files that torch wrote give the table torch gives, torch's own verdict, and nothing above info."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from genuine import CONTENTS, nested, network, trained
from modelglass.formats.archives import zip as zips
from modelglass.formats.limits import Limits
from modelglass.formats.pickles.machine import Machine
from modelglass.formats.pickles.objects import Pairs, Persistent, Thing
from modelglass.formats.pickles.weights_only import ALLOWED
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile
from modelglass.frameworks.torch.privates import VERSION

# torch itself cannot load types newer than 2021 from the old form.
SAVED = [
    (name, way)
    for name in CONTENTS
    for way in ("zip", "legacy", "protocol4")
    if (name, way) != ("every-dtype", "legacy")
]
each_way = pytest.mark.parametrize(("name", "way"), SAVED)
WAYS: dict[str, dict[str, Any]] = {
    "zip": {},
    "legacy": {"_use_new_zipfile_serialization": False},
    "protocol4": {"pickle_protocol": 4},
}


def saved(name: str, way: str, folder: Path) -> Path:
    path = folder / f"{name}.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(CONTENTS[name](), path, **WAYS[way])
    return path


def listed(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor that torch itself loads, by dotted names."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, nn.Module):
        yield from ((f"{path}.{k}" if path else k, v) for k, v in value.state_dict().items())
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from listed(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from listed(item, f"{path}.{index}" if path else str(index))


def of_model(name: str, content: Any) -> dict[str, torch.Tensor]:
    keys = {
        "adam": "model",
        "sgd": "model",
        "rmsprop": "model",
        "adagrad": "model",
        "lightning": "state_dict",
    }
    keys |= {"plain-data": "state_dict", "compiled-parallel": "model_state_dict"}
    prefixes = {"parallel": "module.", "compiled": "_orig_mod.", "compiled-parallel": "_orig_mod.module."}
    inside = content[keys[name]] if name in keys else content
    return {key.removeprefix(prefixes.get(name, "")): tensor for key, tensor in listed(inside)}


@each_way
@pytest.mark.filterwarnings("ignore")
def test_the_table_is_the_one_torch_gives(name: str, way: str, tmp_path: Path) -> None:
    path = saved(name, way, tmp_path)
    expected = of_model(name, torch.load(path, weights_only=False))
    found = {tensor.name: tensor for tensor in mg.inspect(path).model.tensors}
    assert list(found) == list(expected)
    for key, tensor in expected.items():
        assert found[key].shape == tuple(tensor.shape), key
        assert found[key].dtype == str(tensor.dtype).removeprefix("torch."), key


@each_way
@pytest.mark.filterwarnings("ignore")
def test_the_verdict_is_the_one_torch_gives(name: str, way: str, tmp_path: Path) -> None:
    path = saved(name, way, tmp_path)
    try:
        torch.load(path, weights_only=True)
        accepted = True
    except UnpicklingError:
        accepted = False
    (file,) = mg.scan(path).files
    assert file.weights_only == ("accepts" if accepted else "refuses"), file.refusal
    assert (file.refusal is None) == accepted


@each_way
@pytest.mark.filterwarnings("ignore")
def test_nothing_above_info_is_found(name: str, way: str, tmp_path: Path) -> None:
    scan = mg.scan(saved(name, way, tmp_path))
    assert [finding for finding in scan.findings if finding.level != "info"] == []
    assert scan.exit_code() == 0


def test_nested_tensors_are_listed(tmp_path: Path) -> None:
    torch.save(nested(), tmp_path / "n.pt")
    (tensor,) = mg.inspect(tmp_path / "n.pt").model.tensors
    assert tensor.numel == 18
    assert mg.scan(tmp_path / "n.pt").exit_code() == 0


@pytest.mark.filterwarnings("ignore")
def test_torchscript_and_exported_programs(tmp_path: Path) -> None:
    net = network().eval()
    torch.jit.save(torch.jit.script(net), tmp_path / "s.pt")
    torch.export.save(torch.export.export(net, (torch.randn(2, 4),)), tmp_path / "e.pt2")
    expected = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    for file in ("s.pt", "e.pt2"):
        report = mg.inspect(tmp_path / file)
        assert {tensor.name: tensor.shape for tensor in report.model.tensors} == expected
        assert report.counts is not None
        assert report.counts.params == 29
        assert mg.scan(tmp_path / file).exit_code() == 0
    with pytest.raises(RuntimeError):
        torch.load(tmp_path / "s.pt", weights_only=True)
    assert mg.scan(tmp_path / "s.pt").files[0].weights_only == "refuses"


def save_distributed(content: dict[str, Any], folder: Path) -> None:
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(content, checkpoint_id=folder)


def test_a_distributed_checkpoint(tmp_path: Path) -> None:
    content = trained(torch.optim.Adam)
    save_distributed({"model": content["model"], "optim": content["optimizer"], "epoch": 3}, tmp_path / "d")
    report = mg.inspect(tmp_path / "d")
    expected = {name: tuple(tensor.shape) for name, tensor in content["model"].items()}
    assert {tensor.name: tensor.shape for tensor in report.model.tensors} == expected
    assert report.checkpoint is not None
    assert [(part.kind, len(part.tensors)) for part in report.checkpoint.parts] == [
        ("model", 0),
        ("optimizer", 18),
    ]
    assert mg.scan(tmp_path / "d").exit_code() == 0


def twelve_blocks() -> nn.Sequential:
    blocks = ({"up": nn.Linear(2, 4), "act": nn.LayerNorm(4), "down": nn.Linear(4, 2)} for _ in range(12))
    return nn.Sequential(*map(nn.ModuleDict, blocks))


@pytest.mark.parametrize("shape", ["model", "app.model", "wrapped", "plain"])
def test_a_distributed_checkpoint_lists_what_one_file_with_the_same_content_lists(
    shape: str, tmp_path: Path
) -> None:
    state = twelve_blocks().state_dict()
    states = {"state": {name: {"exp_avg": tensor} for name, tensor in state.items()}, "param_groups": []}
    content: dict[str, Any] = {
        "model": {"model": state, "optimizer": states},
        "app.model": {"app": {"model": state, "optimizer": states}},
        "wrapped": {"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}},
        "plain": state,
    }[shape]
    save_distributed(content, tmp_path / "d")
    torch.save(state, tmp_path / "one.pt")
    one, many = mg.inspect(tmp_path / "one.pt"), mg.inspect(tmp_path / "d", stats=True)
    assert many.model.modules == one.model.modules
    assert [tensor.name for tensor in many.model.tensors] == list(state)
    assert many.blocks == one.blocks
    assert many.stats is not None
    assert {name: each.mean for name, each in many.stats.items() if each is not None} == pytest.approx(
        {name: tensor.mean().item() for name, tensor in state.items()}, abs=1e-6
    )


def test_processes_that_share_the_saving_list_tensors_in_another_order(tmp_path: Path) -> None:
    state = twelve_blocks().state_dict()
    save_distributed({"model": state}, tmp_path)
    described = pickle.loads((tmp_path / ".metadata").read_bytes())
    names = list(described.state_dict_metadata)  # two processes, and each has every other tensor
    described.state_dict_metadata = {
        name: described.state_dict_metadata[name] for name in (*names[::2], *names[1::2])
    }
    (tmp_path / ".metadata").write_bytes(pickle.dumps(described))
    assert [tensor.name for tensor in mg.inspect(tmp_path).model.tensors] == list(state)


# Names by the version from which torch takes them, and from which it does not; the verdict is that of 2.13.
SINCE = {
    **dict.fromkeys(("torch.float8_e8m0fnu", "torch.float4_e2m1fn_x2"), (2, 9)),
    **{f"torch.{sign}int{bits}": (2, 9) for sign in ("", "u") for bits in range(1, 8)},
    "torch.bcomplex32": (2, 14),
}
UNTIL = {"torch._utils._rebuild_nested_tensor": (2, 15)}


def test_the_names_that_torch_allows() -> None:
    from torch._weights_only_unpickler import _get_allowed_globals

    names = {name for name in {*ALLOWED, *SINCE} if SINCE.get(name, VERSION) <= VERSION}
    expected = {name for name in names if name not in UNTIL or UNTIL[name] > VERSION}
    assert set(_get_allowed_globals()) == expected


@pytest.mark.parametrize("name", ["many", "state-dict", "every-dtype", "tied", "odd-shapes", "adam", "views"])
def test_entries_taken_in_one_step_change_nothing(name: str, tmp_path: Path) -> None:
    with OpenFile(saved(name, "zip", tmp_path)) as source:
        reading = Reading()
        archive = zips.read(source, reading)
        member = archive.member(archive.by_name[f"{name}/data.pkl"], Limits())
        quick, slow = (Machine(member, Limits(), quick=quick) for quick in (True, False))
        assert same(quick.run(), slow.run())
        assert [vars_of(use) for use in quick.uses] == [vars_of(use) for use in slow.uses]
        assert quick.refusals.first == slow.refusals.first
        count = max(slow._memo) + 1
        for index in range(count):
            quick._recall(index)
            slow._recall(index)
            assert same(quick._stack[-1], slow._stack[-1])


def vars_of(use: Any) -> tuple[Any, ...]:
    return use.path, use.offset, use.named, use.as_function, use.as_class


def same(one: Any, other: Any) -> bool:
    """Whether two inert values are the same, with their positions in the file."""
    if isinstance(one, Thing):
        parts = ("function", "args", "kwargs", "state", "pairs", "listed")
        return isinstance(other, Thing) and all(same(getattr(one, p), getattr(other, p)) for p in parts)
    if isinstance(one, Persistent):
        return same(one.id, other.id)
    if isinstance(one, Pairs):
        return same(one.flat, other.flat)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return getattr(one, "path", one) == getattr(other, "path", other)
