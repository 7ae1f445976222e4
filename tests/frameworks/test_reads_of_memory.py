"""Reading a tensor by other ways than torch's kernels: the branch is the one that real tensors take."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import modelglass as mg
from models import Apply

READS: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy": lambda x: x.numpy(),
    "detached": lambda x: x.detach().cpu().numpy(),
    "forced": lambda x: x.numpy(force=True),
    "asarray": np.asarray,
    "array of parts": lambda x: np.array([x[0], x[1]]),
    "mean by numpy": lambda x: np.mean(x.tolist()),
    "list": lambda x: x.tolist(),
    "address": lambda x: 1 / (x.data_ptr() != 0),
    "addresses": lambda x: 1 / (x.data_ptr() != x.clone().data_ptr()),
    "dlpack": np.from_dlpack,
    "storage": lambda x: x.storage().data_ptr(),
}


def going(read: Callable[[torch.Tensor], Any]) -> Callable[[Any, torch.Tensor], torch.Tensor]:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        try:
            read(x)
        except (RuntimeError, TypeError, BufferError, ZeroDivisionError):
            return self.layer(self.layer(x))  # type: ignore[no-any-return]
        return self.layer(x)  # type: ignore[no-any-return]

    return run


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_model_that_catches_the_error_goes_the_way_it_really_goes(read: Any) -> None:
    report = mg.inspect(Apply(going(read), layer=nn.Linear(4, 4)), torch.ones(2, 4), on_failure="report")
    assert report.run is not None
    assert report.cost is not None
    assert (report.run.mode, report.cost.macs) == ("real", 32)
    codes = [note.code for note in report.notes]
    assert [code for code in codes if code != "not-counted"] == ["real-run"]


@pytest.mark.parametrize("name", ["numpy", "list", "address"])
def test_without_values_the_report_says_so(name: str) -> None:
    with torch.device("meta"):
        model = Apply(going(READS[name]), layer=nn.Linear(4, 4))
    report = mg.inspect(model, torch.ones(2, 4, device="meta"), on_failure="report")
    assert report.run is not None
    assert report.run.failure is not None
    assert "needs a tensor that is in memory" in report.run.failure.message


KNOWN: dict[str, Callable[[torch.Tensor], bool]] = {
    "numpy": lambda ids: ids.numpy().sum() == 3,
    "list": lambda ids: ids.tolist() == [0, 1, 2],
    "asarray": lambda ids: bool((np.asarray(ids) == [0, 1, 2]).all()),
    "text": lambda ids: str(ids + 1) == "tensor([1, 2, 3])" and f"{ids[1]:>3}" == "  1",
    "written through an array": lambda ids: ids.numpy().__setitem__(0, 3) or ids.sum().item() == 6,
}


@pytest.mark.parametrize("read", KNOWN.values(), ids=list(KNOWN))
def test_values_that_are_known_need_no_real_run(read: Any) -> None:
    model = Apply(lambda self, x, ids: self.layer(x) if read(ids) else x, layer=nn.Linear(4, 4))
    ids = torch.arange(3)
    report = mg.inspect(model, (torch.ones(2, 4), ids), on_failure="report")
    assert report.run is not None
    assert report.cost is not None
    assert (report.run.mode, report.cost.macs) == ("fake", 32)
    assert ids.tolist() == [0, 1, 2]


CLASSES: dict[str, Callable[[Any, torch.Tensor], bool]] = {
    "is": lambda self, x: type(x) is torch.Tensor,
    "equal": lambda self, x: type(x) == torch.Tensor,  # noqa: E721
    "among": lambda self, x: type(x) in {torch.Tensor, nn.Parameter},
    "in a table": lambda self, x: {torch.Tensor: True}.get(type(x), False),
    "name": lambda self, x: type(x).__name__ == "Tensor",
    "mapped": lambda self, x: next(map(type, (x,))) is torch.Tensor,
    "parameter": lambda self, x: type(self.layer.weight) is nn.Parameter,
    "made in the run": lambda self, x: type(x + 1) is torch.Tensor,
    "layer": lambda self, x: type(self.layer) is nn.Linear,
    "class of a class": lambda self, x: type(type(x)) is type(torch.Tensor) and isinstance(type(x), type),
    "plain": lambda self, x: type(type("Made", (), {})) is type and int is int,
}


@pytest.mark.parametrize("is_so", CLASSES.values(), ids=list(CLASSES))
def test_the_exact_class_is_that_of_a_real_tensor(is_so: Any) -> None:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if is_so(self, x) else x

    report = mg.inspect(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4))
    assert report.run is not None
    assert report.cost is not None
    assert (report.run.mode, report.cost.macs, report.notes) == ("fake", 32, ())
    assert "type" not in globals()


GUESSED: dict[str, Callable[[torch.Tensor], bool]] = {
    "str": lambda x: "Fake" in str(x),
    "repr": lambda x: not repr(x).startswith("tensor(["),
    "inside": lambda x: "Fake" in repr([x]),
    "format": lambda x: "Fake" in f"{x}",
    "percent": lambda x: "Fake" in "%s" % (x,),  # noqa: UP031
    "class": lambda x: x.__class__ is not torch.Tensor,
    "class in a variable": lambda x: (cls := x.__class__) and cls is not torch.Tensor,
    "class's name": lambda x: x.__class__.__name__ != "Tensor",
    "address of storage": lambda x: x.untyped_storage().data_ptr() == 0,
    "fake": lambda x: hasattr(x, "fake_mode"),
}


@pytest.mark.parametrize("is_fake", GUESSED.values(), ids=list(GUESSED))
def test_what_a_fake_tensor_would_answer_otherwise_is_asked_of_a_real_one(is_fake: Any) -> None:
    run = going(lambda x: 1 / (not is_fake(x)))
    report = mg.inspect(Apply(run, layer=nn.Linear(4, 4)), torch.rand(2, 4))
    assert report.run is not None
    assert report.cost is not None
    assert (report.run.mode, report.cost.macs) == ("real", 32)
    assert [note.code for note in report.notes] == ["real-run"]


@pytest.mark.parametrize("is_fake", GUESSED.values(), ids=list(GUESSED))
def test_without_values_the_path_is_unsure(is_fake: Any) -> None:
    with torch.device("meta"):
        model = Apply(going(is_fake), layer=nn.Linear(4, 4))
    report = mg.inspect(model, torch.ones(2, 4, device="meta"))
    assert report.cost is not None
    assert report.cost.macs == 32
    assert [note.code for note in report.notes] == ["path-unsure"]


SWALLOWED: dict[str, Callable[[torch.Tensor], Any]] = {
    "pickle": pickle.dumps,
    "saved": lambda x: torch.save(x, io.BytesIO()),
    "copy": copy.deepcopy,
    "bytes of storage": lambda x: bytes(x.untyped_storage()),
    "list of storage": lambda x: x.untyped_storage().tolist(),
    "formatted number": lambda x: f"{x.sum():.2f}",
}


@pytest.mark.parametrize("read", SWALLOWED.values(), ids=list(SWALLOWED))
def test_errors_of_fake_tensors_that_a_model_catches_lead_to_a_real_run(read: Any) -> None:
    report = mg.inspect(Apply(going(read), layer=nn.Linear(4, 4)), torch.rand(2, 4))
    assert report.run is not None
    assert report.cost is not None
    assert (report.run.mode, report.cost.macs) == ("real", 32)


class Config:
    def __eq__(self, other: object) -> bool:
        return other.__class__ is self.__class__

    def __hash__(self) -> int:
        return 0


def test_classes_of_other_things_need_no_real_run() -> None:
    same = Config()

    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        name = f"{self.__class__.__name__}, {x.shape}"
        return self.layer(x) if same == Config() and name and type(self) is Apply else x

    report = mg.inspect(Apply(run, layer=nn.Linear(4, 4)), torch.ones(2, 4))
    assert report.run is not None
    assert (report.run.mode, report.notes) == ("fake", ())


def test_fake_tensors_are_as_before_afterwards() -> None:
    from torch._subclasses.fake_tensor import FakeTensor

    before = dict(vars(FakeTensor)), dict(vars(torch.UntypedStorage))
    mg.inspect(nn.Linear(4, 4), torch.ones(2, 4))
    assert (dict(vars(FakeTensor)), dict(vars(torch.UntypedStorage))) == before
