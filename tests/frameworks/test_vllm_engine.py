"""Engines that are odd: stand-ins for them, since nothing of vLLM is needed to be refused or to degrade."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import build
from modelglass.analyses.serving import with_shares
from modelglass.errors import UsageError
from modelglass.frameworks.shared.request import Inputs, Request
from modelglass.frameworks.vllm.engine import live as engine, rpc
from modelglass.report import Engine, Note, Report


def engine_with(**settings: Any) -> Any:
    return SimpleNamespace(engine_core=object(), vllm_config=SimpleNamespace(**settings))


def answering(monkeypatch: pytest.MonkeyPatch, *notes: tuple[Note, ...]) -> None:
    """Let the workers of any engine say that they hold one weight each, with notes of their own."""
    reports = tuple(
        Report(
            model=build.model(build.tensor("a")),
            engine=Engine(version="0.32.0", reached="workers", rank=rank),
            notes=each,
        )
        for rank, each in enumerate(notes)
    )
    monkeypatch.setattr(engine, "inspect_workers", lambda asked: reports)
    monkeypatch.setattr(engine, "version", lambda: "0.32.0")
    monkeypatch.setattr(engine, "components", lambda *asked: ())


def test_an_engine_that_tells_no_settings_is_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ())
    found = engine.observe_engine(None, SimpleNamespace(engine_core=object()), Request())
    assert [tensor.name for tensor in found.model.tensors] == ["a"]
    assert [note.code for note in found.notes] == ["settings-unknown"]
    assert "model_config, parallel_config, cache_config" in found.notes[0].text


def test_what_several_ranks_say_is_said_once_at_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(*where: str) -> Note:
        return Note(code="packed-weights", text="they are packed", where=where)

    answering(monkeypatch, (note("a", "b"),), (note("b", "c"),))
    settings = {name: SimpleNamespace() for name in ("model_config", "parallel_config", "cache_config")}
    found = engine.observe_engine(None, engine_with(**settings), Request())
    assert found.notes == (note("a", "b", "c"),)


def test_ranks_that_nobody_could_add_up_are_not_all_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    unclear = Note(code="unclear-shard", text="", where=("a",))
    answering(monkeypatch, (unclear,), (unclear,))
    parallel = SimpleNamespace(tensor_parallel_size=2)
    found = engine.observe_engine(None, engine_with(parallel_config=parallel), Request())
    assert [held.rank for held in found.ranks] == [0]
    assert found.engine is not None
    assert with_shares(found.engine, found.ranks, found.whole).whole is None


def test_neither_workers_nor_settings_leave_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(asked: Any) -> Any:
        raise rpc.NotReachedError("nobody answers")

    answering(monkeypatch)
    monkeypatch.setattr(engine, "inspect_workers", silent)
    found = engine.observe_engine(None, engine_with(), Request())
    assert [tensor.shape for tensor in found.model.tensors] == [None]
    assert [note.code for note in found.notes] == ["engine-not-reached", "settings-unknown"]


def test_an_engine_that_writes_no_text_refuses_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ())
    pooling = engine_with(model_config=SimpleNamespace(runner_type="pooling"))
    with pytest.raises(UsageError, match="no text"):
        engine.observe_engine(None, pooling, Request(inputs=Inputs(args=("hello",))))


def test_bytes_are_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ())
    vllm = ModuleType("vllm")
    vllm.SamplingParams = type("SamplingParams", (), {"__init__": lambda self, **given: None})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    with pytest.raises(UsageError, match="not a prompt: bytes"):
        engine.observe_engine(None, engine_with(), Request(inputs=Inputs(args=(b"hello",))))
