"""The largest batch that is said to fit really runs in that much memory, and one more does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import modelglass as mg

pytestmark = pytest.mark.slow

# Runs one pass or step with so many rows in so much address space beyond what the process has before it.
PROGRAM = """
import resource, sys
import torch
sys.path.insert(0, {tests!r})
from test_fit_for_real import Wave, rows

train = sys.argv[2] == "train"
batch, device_nbytes, slack = (int(sys.argv[at]) for at in (1, 3, 4))
torch.set_num_threads(1)
model, x = Wave(), rows(batch)


def step(x):
    if not train:
        with torch.no_grad():
            return model(x)
    output = model(x)
    loss = output.sum()
    loss.backward()
    torch.optim.SGD(model.parameters()).step()
    return output, loss


step(x[:1])  # whatever torch loads or keeps at its first step
model.zero_grad()
base = x.nbytes + sum(p.nbytes for p in model.parameters())
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + device_nbytes - base + slack
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    step(x)
except (RuntimeError, MemoryError) as error:
    assert "allocate" in str(error), error
    sys.exit(7)
"""
SLACK = 2 * 2**20  # bytes for Python itself; a row is 4 MiB


class Wave(nn.Module):
    """Element-wise work on large rows: no kernel of it takes memory for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2**20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.tanh(x * self.scale))


def rows(count: int) -> torch.Tensor:
    return torch.ones(count, 2**20)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="address space is read off Linux's /proc")
@pytest.mark.parametrize("mode", ["inference", "train"])
def test_the_largest_batch_runs_and_one_more_does_not(mode: str) -> None:
    device_nbytes = 300 * 2**20
    train = mode == "train"
    found = mg.fit(Wave(), rows(1), device_nbytes=device_nbytes, train=train, optimizer="sgd")
    assert found.fits
    assert found.largest_batch is not None
    assert found.largest_batch_peak_nbytes is not None
    assert found.next_batch_peak_nbytes is not None
    assert found.largest_batch_peak_nbytes <= device_nbytes < found.next_batch_peak_nbytes

    def runs(batch: int) -> bool:
        program = PROGRAM.format(tests=str(Path(__file__).parent))
        arguments = [str(batch), mode, str(device_nbytes), str(SLACK)]
        # Large pieces go back to the system at once, so that the address space is what is in use.
        fixed = {
            "MALLOC_ARENA_MAX": "1",
            "MALLOC_MMAP_THRESHOLD_": "65536",
            "MALLOC_TRIM_THRESHOLD_": "65536",
        }
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **fixed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 7), done.stderr
        return done.returncode == 0

    assert runs(found.largest_batch)
    assert not runs(found.largest_batch + 1)
