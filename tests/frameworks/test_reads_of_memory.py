"""Reading a tensor by other ways than torch's kernels: the branch is the one that real tensors take."""

from __future__ import annotations

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


def test_fake_tensors_are_as_before_afterwards() -> None:
    from torch._subclasses.fake_tensor import FakeTensor

    before = dict(vars(FakeTensor))
    mg.inspect(nn.Linear(4, 4), torch.ones(2, 4))
    assert dict(vars(FakeTensor)) == before
