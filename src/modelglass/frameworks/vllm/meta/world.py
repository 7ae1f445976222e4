"""One rank of several in a process of its own: torch's groups of processes without the other processes.

Only for a process that is thrown away afterwards: what it exchanges in torch and vLLM stays exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from modelglass.frameworks.torch.privates import fake_store

_BACKEND = "fake"  # torch's own, whose ranks agree with everything


def without_others() -> None:
    """Let every group of processes that vLLM makes do without the other processes."""
    from vllm.distributed import parallel_state

    torch_group, vllm_group = torch.distributed.new_group, parallel_state.GroupCoordinator.__init__

    def new_group(*args: Any, **kwargs: Any) -> Any:
        return torch_group(*args, **{**kwargs, "backend": _BACKEND})

    def coordinate(self: Any, *args: Any, **kwargs: Any) -> None:
        # Both talk to the other ranks as soon as they are made.
        silent = {"use_device_communicator": False, "use_message_queue_broadcaster": False}
        vllm_group(self, *args, **{**kwargs, **silent})

    torch.distributed.new_group = new_group
    parallel_state.GroupCoordinator.__init__ = coordinate
    parallel_state._node_count = lambda group: 1  # it would ask them on which machine they are


@contextmanager
def rank_of(rank: int, size: int) -> Iterator[None]:
    """As this rank of a world of that size, all of it tensor-parallel; vLLM's configuration must be set."""
    from vllm.distributed import parallel_state

    torch.distributed.init_process_group(_BACKEND, store=fake_store(), rank=rank, world_size=size)
    try:
        parallel_state.init_distributed_environment(size, rank, "file://none", rank, _BACKEND)
        parallel_state.initialize_model_parallel(size, 1)
        yield
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.destroy_distributed_environment()
