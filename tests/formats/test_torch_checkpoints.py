"""Training checkpoints: the model under whatever key, what is beside it, and what is trained."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modelglass as mg
from genuine import lightning, network, wrapped
from modelglass.report import Checkpoint, CheckpointPart, Counts, Report


class Scaled(nn.Module):
    """A model with 22 elements of buffers that no name of torch's own gives away."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 20), nn.BatchNorm1d(20), nn.Linear(20, 2))
        self.register_buffer("affine_offset", torch.zeros(2))
        self.register_buffer("label_scales", torch.ones(20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) * self.label_scales[0] + self.affine_offset


def step(native: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    native(torch.randn(5, 4)).sum().backward()
    optimizer.step()


def inspected(content: Any, folder: Path) -> Report:
    torch.save(content, folder / "c.pt")
    return mg.inspect(folder / "c.pt")


def checkpoint_of(report: Report) -> Checkpoint:
    assert report.checkpoint is not None
    return report.checkpoint


def counts_of(report: Report) -> Counts:
    assert report.counts is not None
    return report.counts


def part_of(report: Report, key: str) -> CheckpointPart:
    return next(part for part in checkpoint_of(report).parts if part.key == key)


def expected_params(native: nn.Module) -> int:
    return sum(parameter.numel() for parameter in native.parameters())


KEYS = [
    *("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights"),
    *("params", "model_weights", "generator", "params_ema", "ema", "model_ema", "teacher", "student"),
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_the_model_is_found_under_its_key_and_prefix(key: str, prefix: str, tmp_path: Path) -> None:
    report = inspected({"epoch": 3, key: wrapped(prefix), "lr": 0.1}, tmp_path)
    assert [tensor.name for tensor in report.model.tensors] == list(network().state_dict())
    checkpoint = checkpoint_of(report)
    assert checkpoint.prefix == prefix
    assert [(part.kind, part.key, part.value) for part in checkpoint.parts] == [
        ("model", key, None),
        ("progress", "epoch", 3),
        ("hyper-parameters", "lr", 0.1),
    ]
    assert counts_of(report).params == expected_params(network())


def test_a_whole_module_under_a_key(tmp_path: Path) -> None:
    report = inspected({"epoch": 4, "ema": None, "model": network(), "train_args": {"lr": 1}}, tmp_path)
    assert [module.type for module in report.model.modules] == [
        "Sequential",
        "Linear",
        "BatchNorm1d",
        "Linear",
    ]
    assert (counts_of(report).params, counts_of(report).trainable) == (29, 29)
    assert [part.kind for part in checkpoint_of(report).parts] == [
        "model",
        "progress",
        "other",
        "hyper-parameters",
    ]


def test_several_models_without_a_key_are_one_model(tmp_path: Path) -> None:
    content = {
        "encoder": network().state_dict(),
        "decoder": nn.Linear(2, 2).state_dict(),
        "epoch": 3,
        "norm_mean": torch.tensor([0.5, 0.25]),
        "rng_state": {"cpu": torch.get_rng_state()},
    }
    report = inspected(content, tmp_path)
    names = [f"encoder.{name}" for name in network().state_dict()] + ["decoder.weight", "decoder.bias"]
    assert [tensor.name for tensor in report.model.tensors] == names
    assert counts_of(report).params == 29 + 6
    assert [(part.kind, part.key) for part in checkpoint_of(report).parts] == [
        ("model", ""),
        ("progress", "epoch"),
        ("normalisation", "norm_mean"),
        ("training", "rng_state"),
    ]
    assert part_of(report, "norm_mean").value == [0.5, 0.25]


def test_a_copy_is_not_counted(tmp_path: Path) -> None:
    report = inspected({"params": network().state_dict(), "params_ema": network().state_dict()}, tmp_path)
    assert counts_of(report).params == 29
    copy = part_of(report, "params_ema")
    assert (copy.kind, len(copy.tensors), copy.value) == ("copy", 9, None)


def test_lightning(tmp_path: Path) -> None:
    report = inspected(lightning(), tmp_path)
    kinds = {part.key: part.kind for part in checkpoint_of(report).parts}
    assert kinds == {
        "state_dict": "model",
        "epoch": "progress",
        "global_step": "progress",
        "pytorch-lightning_version": "training",
        "loops": "training",
        "callbacks": "training",
        "optimizer_states.0": "optimizer",
        "lr_schedulers": "scheduler",
        "hparams_name": "hyper-parameters",
        "hyper_parameters": "hyper-parameters",
    }
    optimizer = part_of(report, "optimizer_states.0")
    assert optimizer.type == "AdamW"
    assert list(optimizer.matched.values()) == [f"net.{name}" for name, _ in network().named_parameters()]
    assert part_of(report, "callbacks").value == {
        "ModelCheckpoint{'monitor': None}": {"best_model_score": 0.5}
    }


# Optimizers

MAKERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1),
    "Adam with amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: torch.optim.Adadelta(p, lr=0.1),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.1),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.1),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_algorithm_its_settings_and_its_parameters(name: str, tmp_path: Path) -> None:
    native = Scaled()
    optimizer = MAKERS[name](native.parameters())
    step(native, optimizer)
    report = inspected({"model": native.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
    part = part_of(report, "optimizer")
    assert (part.kind, part.type) == ("optimizer", name)
    assert part.value[0]["lr"] == 0.1
    assert "params" not in part.value[0]
    names = [each for each, _ in native.named_parameters()]
    stateless = name == "SGD"
    assert part.matched == ({} if stateless else {str(i): each for i, each in enumerate(names)})
    if not stateless:
        assert counts_of(report).params == expected_params(native)
        assert counts_of(report).buffers == sum(buffer.numel() for buffer in native.buffers())


def test_adafactor_keeps_sums_along_axes(tmp_path: Path) -> None:
    native = Scaled()
    optimizer = torch.optim.Adafactor(native.parameters())
    step(native, optimizer)
    report = inspected({"model": native.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path)
    part = part_of(report, "optimizer")
    assert part.type == "Adafactor"
    assert list(part.matched.values()) == [name for name, _ in native.named_parameters()]


def test_only_an_optimizer_tells_custom_buffers(tmp_path: Path) -> None:
    native = Scaled()
    report = inspected(native.state_dict(), tmp_path)
    assert counts_of(report).params == expected_params(native) + 22
    notes = {note.code: note for note in report.notes}
    assert notes["buffers-unknown"].where == ("affine_offset", "label_scales")
    optimizer = torch.optim.Adam(native.parameters())
    step(native, optimizer)
    known = inspected({"model": native.state_dict(), "optim": optimizer.state_dict()}, tmp_path)
    assert counts_of(known).params == expected_params(native)
    assert known.notes == ()


def test_frozen_parameters_stay_parameters(tmp_path: Path) -> None:
    native = Scaled()
    for parameter in native.body[2].parameters():
        parameter.requires_grad_(False)
    given = [p for p in native.parameters() if p.requires_grad]
    for parameters in (given, native.parameters()):  # not given to the optimizer, or given without a gradient
        optimizer = torch.optim.Adam(parameters)
        step(native, optimizer)
        report = inspected({"model": native.state_dict(), "optim": optimizer.state_dict()}, tmp_path)
        trained = [name for name, p in native.named_parameters() if p.requires_grad]
        assert list(part_of(report, "optim").matched.values()) == trained
        assert counts_of(report).params == expected_params(native)


def test_frozen_biases_stay_parameters(tmp_path: Path) -> None:
    native = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    native.register_buffer("offset", torch.zeros(7))
    optimizer = torch.optim.Adam([p for n, p in native.named_parameters() if not n.endswith("bias")])
    step(native, optimizer)
    report = inspected({"model": native.state_dict(), "optim": optimizer.state_dict()}, tmp_path)
    assert counts_of(report).params == expected_params(native)


def test_states_that_may_belong_to_several_parameters_are_not_matched(tmp_path: Path) -> None:
    native = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.Adam(native[1].parameters())
    step(native, optimizer)
    report = inspected({"model": native.state_dict(), "optim": optimizer.state_dict()}, tmp_path)
    part = part_of(report, "optim")
    assert (part.type, part.matched, len(part.tensors)) == ("Adam", {}, 6)
    assert counts_of(report).params == expected_params(native)


def test_groups_are_matched_each_in_order(tmp_path: Path) -> None:
    native = Scaled()
    matrices = [(n, p) for n, p in native.named_parameters() if p.ndim > 1]
    vectors = [(n, p) for n, p in native.named_parameters() if p.ndim < 2]
    groups = [
        {"params": [p for _, p in matrices], "weight_decay": 0.5},
        {"params": [p for _, p in vectors], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    step(native, optimizer)
    report = inspected({"model": native.state_dict(), "optim": optimizer.state_dict()}, tmp_path)
    part = part_of(report, "optim")
    assert list(part.matched.values()) == [name for name, _ in matrices + vectors]
    assert [group["weight_decay"] for group in part.value] == [0.5, 0.0]
    assert counts_of(report).params == expected_params(native)


def test_an_optimizer_that_knows_names(tmp_path: Path) -> None:
    native = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    named = [(f"module.{name}", p) for name, p in native.named_parameters() if name.startswith("1")]
    optimizer = torch.optim.SGD(named, lr=0.1, momentum=0.9)
    step(native, optimizer)
    state = {f"module.{name}": tensor for name, tensor in native.state_dict().items()}
    report = inspected({"model": state, "optim": optimizer.state_dict()}, tmp_path)
    assert part_of(report, "optim").matched == {"0": "1.weight", "1": "1.bias"}
    assert counts_of(report).params == expected_params(native)


def test_two_optimizers_under_one_key(tmp_path: Path) -> None:
    one, other = nn.Linear(4, 3), nn.Linear(4, 2)
    optimizers = {"g": torch.optim.Adam(one.parameters()), "d": torch.optim.SGD(other.parameters(), 0.1, 0.9)}
    step(one, optimizers["g"])
    step(other, optimizers["d"])
    content = {"generator": one.state_dict(), "discriminator": other.state_dict()}
    states = {name: optimizer.state_dict() for name, optimizer in optimizers.items()}
    report = inspected({"model": content, "optimizers": states}, tmp_path)
    assert part_of(report, "optimizers.g").matched == {"0": "generator.weight", "1": "generator.bias"}
    assert part_of(report, "optimizers.d").type == "SGD with momentum"
    assert part_of(report, "optimizers.d").matched == {"0": "discriminator.weight", "1": "discriminator.bias"}


def test_tied_weights_have_one_state(tmp_path: Path) -> None:
    native = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    native[1].weight = native[0].weight
    optimizer = torch.optim.Adam(native.parameters())
    step(native, optimizer)
    report = inspected({"model": native.state_dict(), "optim": optimizer.state_dict()}, tmp_path)
    assert counts_of(report).params == expected_params(native) == 24
    assert list(part_of(report, "optim").matched.values()) == ["0.weight", "0.bias", "1.bias"]


def test_an_optimizer_alone_has_no_parameters(tmp_path: Path) -> None:
    native = Scaled()
    optimizer = torch.optim.Adam(native.parameters())
    step(native, optimizer)
    report = inspected(optimizer.state_dict(), tmp_path)
    assert (counts_of(report).params, len(report.model.tensors)) == (0, 18)
    (part,) = checkpoint_of(report).parts
    assert (part.kind, part.type, part.matched) == ("optimizer", "Adam", {})


# What is beside the model

SMALL: dict[str, Any] = {
    "float32": torch.tensor([0.485, 0.456, 0.406]),
    "float64": torch.tensor([1 / 3, 1e300], dtype=torch.float64),
    "float16": torch.tensor([0.1, -2.5], dtype=torch.float16),
    "bfloat16": torch.tensor([0.1, 3e38, -1], dtype=torch.bfloat16),
    "int64": torch.tensor([[1, -2], [3, 2**62]]),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(0.25),
    "column": torch.arange(12.0).reshape(3, 4)[:, 1],
    "transposed": torch.arange(6.0).reshape(2, 3).t(),
    "array": np.arange(6.0).reshape(2, 3),
    "order": np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    "full": torch.arange(64),
}


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_small_tensors_show_their_values(name: str, legacy: bool, tmp_path: Path) -> None:
    content = {"model": network().state_dict(), "norm_mean": SMALL[name], "inner": {"norm_std": SMALL[name]}}
    torch.save(content, tmp_path / "c.pt", _use_new_zipfile_serialization=not legacy)
    report = mg.inspect(tmp_path / "c.pt")
    part = part_of(report, "norm_mean")
    assert (part.kind, len(part.tensors)) == ("normalisation", 1)
    again = torch.as_tensor(np.asarray(part.value))
    expected = torch.as_tensor(SMALL[name])
    assert torch.equal(again.to(expected.dtype), expected)
    assert part_of(report, "inner").value == {"norm_std": part.value}


def test_values_are_written_as_short_as_they_can_be(tmp_path: Path) -> None:
    values = torch.tensor([0.485, 0.1, 1e-7, 3.0, float("nan"), float("inf")])
    report = inspected({"model": network().state_dict(), "mean": values}, tmp_path)
    assert part_of(report, "mean").value == [0.485, 0.1, 1e-7, 3.0, "nan", "inf"]


def test_large_and_empty_tensors_show_their_shapes(tmp_path: Path) -> None:
    content = {"model": network().state_dict(), "mean": torch.zeros(65), "std": torch.zeros(0, 3)}
    report = inspected(content, tmp_path)
    assert part_of(report, "mean").value == "float32 tensor 65"
    assert part_of(report, "std").value == "float32 tensor 0x3"


def test_sparse_tensors_show_their_shapes(tmp_path: Path) -> None:
    report = inspected({"model": network().state_dict(), "mean": torch.eye(3).to_sparse()}, tmp_path)
    assert part_of(report, "mean").value == "float32 tensor 3x3"


def test_names_of_parts_do_not_hide_values_of_the_model(tmp_path: Path) -> None:
    native = Scaled()
    content = {"model": native.state_dict(), "label_scales": torch.full((20,), 7.0)}
    torch.save(content, tmp_path / "c.pt")
    report = mg.inspect(tmp_path / "c.pt", stats=True)
    assert report.stats is not None
    assert report.stats["label_scales"].max == 1.0
    assert part_of(report, "label_scales").value == [7.0] * 20


class Config(dict):  # type: ignore[type-arg]
    """As configuration libraries have it: a dictionary with attributes."""


@pytest.mark.parametrize(
    ("key", "value", "kind", "shown"),
    [
        ("args", argparse.Namespace(lr=0.1), "hyper-parameters", {"class": "argparse.Namespace", "lr": 0.1}),
        ("config", {"a": {"b": [1, 2]}}, "hyper-parameters", {"a": {"b": [1, 2]}}),
        ("cfg", Config(a=1), "hyper-parameters", {"a": 1}),
        ("hparams", {"lr": 1}, "hyper-parameters", {"lr": 1}),
        ("iteration", 7, "progress", 7),
        ("best_acc1", 0.5, "loss", 0.5),
        ("valLoss", 0.5, "loss", 0.5),
        ("loss_scaler", {"scale": 2.0}, "training", {"scale": 2.0}),
        ("amp", {"a": 1}, "training", {"a": 1}),
        ("criterion", {"a": 1}, "other", {"a": 1}),
        ("sample", 3, "other", 3),
        ("lr_scheduler", {"last_epoch": 3}, "scheduler", {"last_epoch": 3}),
        ("label_scales", (1.0, 2.0), "normalisation", [1.0, 2.0]),
        ("affine_offsets", [1.0], "normalisation", [1.0]),
        ("classes", {"cat", "dog"}, "other", None),
        ("size", torch.Size([3, 4]), "other", [3, 4]),
        ("device", torch.device("cuda", 1), "other", "cuda:1"),
        ("step", np.int64(9), "progress", 9),
    ],
)
def test_parts_by_their_keys(key: str, value: Any, kind: str, shown: Any, tmp_path: Path) -> None:
    report = inspected({"state_dict": network().state_dict(), key: value}, tmp_path)
    part = part_of(report, key)
    assert part.kind == kind
    if isinstance(value, set):
        assert sorted(part.value) == sorted(value)
    else:
        assert part.value == shown


# Memory


def findings(report: Report, code: str) -> Iterator[str]:
    return (note.text for note in report.notes if note.code == code)


def test_a_slice_of_a_large_tensor_wastes_its_storage(tmp_path: Path) -> None:
    report = inspected({"w": torch.zeros(100_000)[:10], "v": torch.zeros(3)}, tmp_path)
    (text,) = findings(report, "torch.storage-waste")
    assert "399,960 bytes" in text
    assert "'w'" in text
    assert counts_of(report).nbytes == 52
    (finding,) = (each for each in mg.scan(tmp_path / "c.pt").findings if each.code == "torch.storage-waste")
    assert (finding.level, finding.details["nbytes"]) == ("info", 399_960)


@pytest.mark.parametrize("legacy", [False, True])
def test_whole_storages_waste_nothing(legacy: bool, tmp_path: Path) -> None:
    flat = torch.zeros(20_000)
    content = {"a": flat[:8000].view(80, 100), "b": flat[8000:], "c": flat, "t": flat.view(100, 200).t()}
    torch.save(content, tmp_path / "c.pt", _use_new_zipfile_serialization=not legacy)
    report = mg.inspect(tmp_path / "c.pt")
    assert list(findings(report, "torch.storage-waste")) == []
    assert counts_of(report).params == 20_000


def test_sparse_and_expanded_tensors_take_what_is_stored(tmp_path: Path) -> None:
    sparse = torch.eye(1000).to_sparse()
    report = inspected({"s": sparse, "e": torch.zeros(1).expand(1000, 3)}, tmp_path)
    found = {tensor.name: tensor for tensor in report.model.tensors}
    assert found["s"].shape == (1000, 1000)
    assert found["s"].nbytes == 1000 * (4 + 2 * 8)
    assert (found["e"].shape, found["e"].nbytes) == ((1000, 3), 4)


def test_the_states_of_a_whole_optimizer_are_counted_as_its_state_dict_does(tmp_path: Path) -> None:
    native = Scaled()
    optimizer = torch.optim.Adam(native.parameters())
    step(native, optimizer)
    report = inspected(optimizer, tmp_path)
    names = {tensor.name for tensor in report.model.tensors}
    states = optimizer.state_dict()["state"]
    assert {f"state.{number}.{name}" for number in states for name in states[number]} <= names
    assert not [f for f in mg.scan(tmp_path / "c.pt").findings if f.code == "torch.duplicate-key"]


def test_numbers_of_numpy_are_keys_of_their_own(tmp_path: Path) -> None:
    content = {(np.int32(row), np.int32(row)): torch.ones(2) for row in range(3)}
    report = inspected(content, tmp_path)
    assert [tensor.name for tensor in report.model.tensors] == ["0,0", "1,1", "2,2"]
    assert not [f for f in mg.scan(tmp_path / "c.pt").findings if f.code == "torch.duplicate-key"]


def test_rows_of_different_lengths_are_listed(tmp_path: Path) -> None:
    rows = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    (tensor,) = inspected({"rows": rows}, tmp_path).model.tensors
    assert tensor.shape == (6, 3)
