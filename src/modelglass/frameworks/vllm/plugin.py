"""What vLLM loads in each of its processes: one more method of its workers, and nothing else.

The entry point `modelglass` of the group `vllm.general_plugins` names `register`. An engine would not start
if it raised, and would start later if it loaded more than vLLM itself does, so it does neither. What the
method needs is imported when somebody calls it.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

METHOD = "modelglass_inspect"  # of workers
PROBLEM = "modelglass-problem"  # the only key of an answer that holds no document

_WORKERS = "vllm.v1.worker.worker_base"
_logger = logging.getLogger(__name__)


def register() -> None:
    """Give workers their method. Where this vLLM has no such workers, there is nothing to do."""
    try:
        from vllm.v1.worker.worker_base import WorkerBase

        if not hasattr(WorkerBase, METHOD):
            setattr(WorkerBase, METHOD, inspect_worker)
    except Exception as problem:
        _logger.debug("modelglass cannot look into the workers of this vLLM: %r", problem)


def is_registered() -> bool:
    """Whether workers of this process have the method, as those of processes that it starts then do."""
    return hasattr(getattr(sys.modules.get(_WORKERS), "WorkerBase", None), METHOD)


def inspect_worker(worker: Any) -> str:
    """What the worker holds, as a JSON document, or a JSON object with the reason for its absence.

    The answer is text, whatever happens: an engine whose worker returns anything else may hang.
    """
    try:
        from modelglass.frameworks.vllm.engine.worker import dump_worker

        return dump_worker(worker)
    except Exception as problem:
        return json.dumps({PROBLEM: f"{type(problem).__name__}: {problem}"})
