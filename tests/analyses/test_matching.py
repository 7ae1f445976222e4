"""Tensors of a checkpoint against a model's: what torch would miss, what it would not expect."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.analyses.matching import match
from modelglass.frameworks.torch.session import non_persistent_names
from modelglass.report import Matching


class Net(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(2))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 20, bias=False)
        self.register_buffer("table", torch.zeros(3), persistent=False)


def matched(net: nn.Module, state: dict[str, torch.Tensor], folder: Path) -> Matching:
    torch.save({"model": state, "epoch": 1}, folder / "state.pt")
    stored = mg.inspect(folder / "state.pt")
    return match(mg.inspect(net).model, stored.model, unsaved=non_persistent_names(net))


def test_a_models_own_state_fits(tmp_path: Path) -> None:
    net = Net()
    found = matched(net, net.state_dict(), tmp_path)
    assert found.complete
    assert (found.matched, found.wanted) == (len(net.state_dict()), len(net.state_dict()))
    assert (found.prefix, found.side, found.retyped, found.tied) == ("", None, (), ())


def test_missing_and_unexpected_are_those_of_load_state_dict(tmp_path: Path) -> None:
    net = Net()
    state = net.state_dict()
    del state["blocks.1.0.bias"], state["norm.running_var"]
    state |= {"blocks.2.0.weight": torch.zeros(8, 8), "table": torch.zeros(3)}
    truth = net.load_state_dict(state, strict=False)
    found = matched(net, state, tmp_path)
    assert set(found.missing) == set(truth.missing_keys)
    assert set(found.unexpected) == set(truth.unexpected_keys)


def test_other_shapes_are_those_that_torch_refuses(tmp_path: Path) -> None:
    net, wider = Net(8), Net(16)
    found = matched(net, wider.state_dict(), tmp_path)
    with pytest.raises(RuntimeError, match="size mismatch") as refusal:
        net.load_state_dict(wider.state_dict())
    assert {each.name for each in found.reshaped} == {
        name for name in net.state_dict() if f"size mismatch for {name}:" in str(refusal.value)
    }
    (head,) = [each for each in found.reshaped if each.name == "head.weight"]
    assert (head.shape, head.stored_shape) == ((20, 8), (20, 16))
    assert not found.missing
    assert found.matched == 1  # the counter of batches


@pytest.mark.parametrize("prefix", ["net.", "model.backbone.", "module.", "_orig_mod.", "module._orig_mod."])
def test_a_prefix_of_the_checkpoint_is_found(prefix: str, tmp_path: Path) -> None:
    net = Net()
    state = {prefix + name: tensor for name, tensor in net.state_dict().items()}
    state["loss.weight"] = torch.zeros(3)  # so that not all names begin alike
    found = matched(net, state, tmp_path)
    assert (found.prefix, found.side) == (prefix, "checkpoint")
    assert found.unexpected == ("loss.weight",)
    assert not found.missing


def test_a_prefix_of_the_model_is_found(tmp_path: Path) -> None:
    net = nn.ModuleDict({"bert": Net(), "classifier": nn.Linear(8, 2)})
    found = matched(net, Net().state_dict(), tmp_path)
    assert (found.prefix, found.side) == ("bert.", "model")
    assert set(found.missing) == {"classifier.weight", "classifier.bias"}
    assert not found.unexpected


def test_wrappers_inside_of_names_are_seen_through(tmp_path: Path) -> None:
    net = Net()
    inside = {"blocks.1.": "blocks.1._orig_mod.", "head.": "head._fsdp_wrapped_module."}
    state = {}
    for name, tensor in net.state_dict().items():
        for plain, wrapped in inside.items():
            name = name.replace(plain, wrapped)
        state[name] = tensor
    assert matched(net, state, tmp_path).complete


def test_tied_names_that_are_absent_are_not_missing(tmp_path: Path) -> None:
    net = Net()
    net.head.weight = net.embed.weight
    state = net.state_dict()
    del state["head.weight"]
    found = matched(net, state, tmp_path)
    assert found.complete
    assert found.tied == ("head.weight",)
    del state["embed.weight"]
    assert matched(net, state, tmp_path).missing == ("embed.weight",)


def test_either_name_of_a_tied_weight_will_do(tmp_path: Path) -> None:
    net = Net()
    net.head.weight = net.embed.weight
    state = net.state_dict()
    del state["embed.weight"]
    assert matched(net, state, tmp_path).complete


def test_a_module_under_two_names_is_known_by_both(tmp_path: Path) -> None:
    shared = nn.Sequential(nn.Linear(4, 4))
    net = nn.ModuleDict({"first": shared, "second": shared})
    state = net.state_dict()
    assert {name.partition(".")[0] for name in state} == {"first", "second"}
    found = matched(net, {name: state[name] for name in state if name.startswith("second")}, tmp_path)
    assert found.complete
    assert found.matched == 2


def test_other_element_types_are_told_and_no_fault(tmp_path: Path) -> None:
    net = Net()
    half = {k: t.half() if t.is_floating_point() else t for k, t in net.state_dict().items()}
    found = matched(net, half, tmp_path)
    assert found.complete
    assert {each.name for each in found.retyped} == {k for k, t in half.items() if t.dtype is torch.half}
    assert {(each.dtype, each.stored_dtype) for each in found.retyped} == {("float32", "float16")}


def test_lazy_parameters_take_any_shape(tmp_path: Path) -> None:
    found = matched(nn.LazyLinear(4), nn.Linear(7, 4).state_dict(), tmp_path)
    assert found.complete


def test_another_models_checkpoint_matches_nothing(tmp_path: Path) -> None:
    found = matched(Net(), nn.Conv2d(1, 1, 1).state_dict(), tmp_path)
    assert found.matched == 0
    assert set(found.unexpected) == {"weight", "bias"}
    assert set(found.missing) == set(Net().state_dict())
