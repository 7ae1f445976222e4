"""Calls into the workers of an engine: with a time limit, and only text comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Any, Generic, TypeVar

from modelglass.errors import InspectError, ReportFormatError, TargetError
from modelglass.frameworks.vllm import plugin
from modelglass.frameworks.vllm.engine.components import is_in_process
from modelglass.report import Report, codec

SECONDS = 60.0  # that workers have to report what they hold

Found = TypeVar("Found")


class NotReachedError(InspectError):
    """The workers of an engine cannot report what they hold; `problem` is the reason."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, hint="start the engine with the modelglass plugin, as VLLM_PLUGINS allows")


def inspect_workers(engine: Any) -> tuple[Report, ...]:
    """What each worker holds, in the order of ranks."""
    method = _method(engine)
    if method is None:
        raise NotReachedError("the engine's workers were started without modelglass' plugin")
    try:
        answers = call_in_time(lambda: engine.collective_rpc(method), SECONDS, "report what they hold")
    except InspectError:
        raise
    except Exception as cause:
        _raise_if_dead(engine, cause)
        raise NotReachedError(f"the engine's workers did not answer: {first_line(cause)}") from cause
    reports = [_report(answer) for answer in answers]
    return tuple(sorted(reports, key=lambda each: 0 if each.engine is None else each.engine.rank))


def _method(engine: Any) -> str | Callable[[Any], str] | None:
    """What to call: a function where it can get to the workers, the method that the plugin gave them else."""
    if is_in_process(engine):
        return plugin.inspect_worker
    return plugin.METHOD if plugin.is_registered() else None


def _report(answer: Any) -> Report:
    """The document of one worker."""
    if not isinstance(answer, str):
        raise NotReachedError(f"a worker answered with {type(answer).__name__}, not with text")
    try:
        found = codec.loads(answer)
    except ReportFormatError as cause:
        raise NotReachedError(_problem(answer) or cause.problem) from cause
    if not isinstance(found, Report):
        raise NotReachedError("a worker did not answer with a report")
    return found


def _problem(answer: str) -> str | None:
    """The problem that a worker reports, if any."""
    try:
        document = json.loads(answer)
    except ValueError:
        return None
    problem = document.get(plugin.PROBLEM) if isinstance(document, dict) else None
    return None if problem is None else f"a worker cannot read what it holds: {problem}"


def is_closed(engine: Any) -> bool:
    """Whether the engine was shut down or has died."""
    core = getattr(engine, "engine_core", None)
    finalizer = getattr(core, "_finalizer", None)
    dead = getattr(getattr(core, "resources", None), "engine_dead", False)
    return core is None or bool(dead) or (finalizer is not None and not finalizer.alive)


def check_open(engine: Any) -> None:
    if is_closed(engine):
        raise TargetError(
            "this engine was shut down, or has died, and has no modules any more",
            hint="start it again, or pass the model's folder with framework='vllm'",
        )


def _raise_if_dead(engine: Any, cause: Exception) -> None:
    if is_closed(engine) or type(cause).__name__ == "EngineDeadError":
        raise TargetError(
            f"the engine died: {first_line(cause)}", hint="see its log for the reason, and start it again"
        ) from cause


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


@dataclass
class _Outcome(Generic[Found]):
    """What a call gave, once it is over."""

    value: Found | None = None
    error: BaseException | None = None


def call_in_time(call: Callable[[], Found], seconds: float, asked: str) -> Found:
    """What a call returns, or an error when that takes too long.

    Nothing can end a call that waits for another process. It is left to a thread that ends with it, or with
    this process.
    """
    outcome: _Outcome[Found] = _Outcome()

    def run() -> None:
        try:
            outcome.value = call()
        except BaseException as error:
            outcome.error = error

    thread = Thread(target=run, name="modelglass-call", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise TargetError(
            f"the engine's workers were asked to {asked}, and have not answered within {seconds:g} seconds",
            hint="ask again when the engine is idle; if it does not answer then, it has to be started again",
        )
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value]
