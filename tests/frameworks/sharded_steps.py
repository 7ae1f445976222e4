"""A sharded model, inspected and measured: a script, since it joins a group of processes."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.profiler import ProfilerActivity, profile
from torch.testing._internal.distributed.fake_pg import FakeStore

import modelglass as mg

X = torch.ones(4, 64)


def model() -> nn.Module:
    made = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, 64))
    mesh = init_device_mesh("cpu", (2,))
    for layer in made:
        fully_shard(layer, mesh=mesh)
    return fully_shard(made, mesh=mesh)


def measured(native: nn.Module, *, train: bool) -> int:
    """The peak of a real pass or step, by torch's profiler."""

    def run() -> Any:
        if not train:
            with torch.no_grad():
                return native(X)
        output = native(X)
        loss = output.sum()
        loss.backward()
        return output, loss

    base = X.nbytes + sum(each.to_local().untyped_storage().nbytes() for each in native.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        held = run()
    del held
    now = most = 0
    for event in profiled.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return int(base + most)


def main() -> None:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    found: dict[str, Any] = {}
    for train in (False, True):
        for run in ("fake", "real"):
            native = model()
            report = mg.inspect(native, X, train=train, run=run)
            again = mg.inspect(native, X, train=train, run=run)
            found[f"{run} {train}"] = {
                "peaks": [each.memory.peak_nbytes for each in (report, again)],
                "truth": measured(native, train=train),
                "nbytes": report.counts.nbytes,
                "text": mg.render(report),
                "notes": [note.code for note in report.notes],
                "runs": bool(native(X).isfinite().all()),
            }
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
