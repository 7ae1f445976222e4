"""What vLLM's processes load and answer, and how engines are asked: as far as that goes without vLLM."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from enum import IntEnum
from inspect import signature
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from modelglass.errors import TargetError, UsageError
from modelglass.frameworks.shared.request import Inputs, Request
from modelglass.frameworks.shared.specs import TensorSpec
from modelglass.frameworks.vllm import plugin
from modelglass.frameworks.vllm.engine import components, generate, rpc
from modelglass.options import FRAMEWORKS
from modelglass.report import Engine, Model, Module, Report, codec

WORKERS = "vllm.v1.worker.worker_base"


class SamplingParams:
    """As vLLM's, as far as it is asked."""

    def __init__(self, temperature: float = 1.0, max_tokens: int = 16) -> None:
        self.temperature, self.max_tokens = temperature, max_tokens


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package of the name, with workers and nothing else."""
    worker_base = ModuleType(WORKERS)
    worker_base.WorkerBase = type("WorkerBase", (), {})  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.v1", "vllm.v1.worker"):
        package = ModuleType(name)
        package.__path__ = []
        monkeypatch.setitem(sys.modules, name, package)
    sys.modules["vllm"].SamplingParams = SamplingParams  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, WORKERS, worker_base)
    return worker_base


def entry_point() -> str:
    """What vLLM is told to load."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    plugins: dict[str, str] = project["entry-points"]["vllm.general_plugins"]
    assert list(plugins) == ["modelglass"]
    return plugins["modelglass"]


class TestPlugin:
    def test_loading_it_and_registering_without_vllm_imports_nothing_heavy(self) -> None:
        code = (
            "import sys; sys.modules['vllm'] = None\n"
            "from modelglass.frameworks.vllm.plugin import register\n"
            "register(); register()\n"
            "print(sorted({'torch', 'numpy', 'transformers'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert (done.stdout.strip(), done.stderr) == ("[]", "")

    def test_registering_reads_nothing_and_loads_nothing_of_ours_but_itself(self) -> None:
        code = (
            "import sys; from types import ModuleType\n"
            "for name in ('vllm', 'vllm.v1', 'vllm.v1.worker', 'vllm.v1.worker.worker_base'):\n"
            "    sys.modules[name] = ModuleType(name)\n"
            "base = sys.modules['vllm.v1.worker.worker_base']\n"
            "base.WorkerBase = type('WorkerBase', (), {})\n"
            "from importlib.metadata import EntryPoint\n"
            f"EntryPoint('modelglass', {entry_point()!r}, 'vllm.general_plugins').load()()\n"
            "assert hasattr(base.WorkerBase, 'modelglass_inspect')\n"
            "watched = ('torch', 'numpy', 'transformers', 'modelglass.api', 'modelglass.frameworks.')\n"
            "print(*sorted(name for name in sys.modules if name.startswith(watched)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        loaded = "modelglass.frameworks.vllm modelglass.frameworks.vllm.plugin"
        assert (done.stdout.strip(), done.stderr) == (loaded, "")

    def test_registering_calls_no_worker_and_the_method_takes_nothing(
        self, vllm: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(vllm.WorkerBase, "__getattr__", lambda *_: pytest.fail("asked"), raising=False)
        plugin.register()
        assert list(signature(getattr(vllm.WorkerBase, plugin.METHOD)).parameters) == ["worker"]

    def test_workers_get_one_method_however_often_it_is_loaded(self, vllm: Any) -> None:
        before = set(vars(vllm.WorkerBase))
        assert not plugin.is_registered()
        plugin.register()
        given = getattr(vllm.WorkerBase, plugin.METHOD)
        plugin.register()
        assert set(vars(vllm.WorkerBase)) - before == {plugin.METHOD}
        assert getattr(vllm.WorkerBase, plugin.METHOD) is given
        assert plugin.is_registered()

    def test_a_vllm_without_such_workers_is_left_alone(self, vllm: Any) -> None:
        del vllm.WorkerBase
        plugin.register()
        assert not plugin.is_registered()

    def test_a_vllm_that_cannot_be_imported_stops_nothing(
        self, vllm: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(name: str) -> Any:
            raise RuntimeError("no driver")

        del vllm.WorkerBase
        monkeypatch.setattr(vllm, "__getattr__", broken, raising=False)
        plugin.register()

    def test_whatever_goes_wrong_in_a_worker_the_answer_is_text(self) -> None:
        class Broken:
            def __getattr__(self, name: str) -> Any:
                raise RuntimeError("a torch.dtype ☃")

        answer = json.loads(plugin.inspect_worker(Broken()))
        assert list(answer) == [plugin.PROBLEM]
        assert isinstance(answer[plugin.PROBLEM], str)


def document(rank: int) -> str:
    model = Model(name=f"M{rank}", source="vllm", modules=(Module(path="", type="M", qualified_type="M"),))
    return codec.dumps(Report(model=model, engine=Engine(version="1", reached="workers", rank=rank)))


@dataclass
class FakeEngine:
    """An engine whose workers give the same answer to everything."""

    answers: Any
    in_process: bool = True
    asked: list[Any] = field(default_factory=list)
    closed: bool = False

    def __post_init__(self) -> None:
        self.engine_core = SimpleNamespace(resources=SimpleNamespace(engine_dead=self.closed))
        if self.in_process:
            self.engine_core.engine_core = SimpleNamespace()

    def collective_rpc(self, method: Any) -> Any:
        self.asked.append(method)
        return self.answers() if callable(self.answers) else self.answers


class TestCalling:
    def test_answers_come_in_the_order_of_ranks(self) -> None:
        reports = rpc.inspect_workers(FakeEngine([document(1), document(0)]))
        assert [report.model.name for report in reports] == ["M0", "M1"]

    def test_workers_of_another_process_are_asked_by_name(self, vllm: Any) -> None:
        plugin.register()
        engine = FakeEngine([document(0)], in_process=False)
        rpc.inspect_workers(engine)
        assert engine.asked == [plugin.METHOD]

    def test_workers_without_the_plugin_are_not_asked(self, vllm: Any) -> None:
        engine = FakeEngine([document(0)], in_process=False)
        with pytest.raises(rpc.NotReachedError, match="without modelglass' plugin"):
            rpc.inspect_workers(engine)
        assert engine.asked == []

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            pytest.param(None, "not with text", id="nothing"),
            pytest.param("{}", "not a modelglass document", id="other-json"),
            pytest.param("oh no", "not JSON", id="no-json"),
            pytest.param(json.dumps({plugin.PROBLEM: "KeyError: 'x'"}), "KeyError: 'x'", id="problem"),
        ],
    )
    def test_an_answer_that_is_no_document_says_so(self, answer: Any, said: str) -> None:
        with pytest.raises(rpc.NotReachedError, match=said):
            rpc.inspect_workers(FakeEngine([answer]))

    def test_an_error_of_the_engine_says_that_workers_did_not_answer(self) -> None:
        def fail() -> None:
            raise NotImplementedError("Method is not implemented.\nmore")

        with pytest.raises(rpc.NotReachedError) as caught:
            rpc.inspect_workers(FakeEngine(fail))
        assert caught.value.problem == "the engine's workers did not answer: Method is not implemented."

    def test_workers_that_hang_are_given_up_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rpc, "SECONDS", 0.2)
        begun = time.monotonic()
        with pytest.raises(TargetError, match=r"not answered within 0\.2 seconds"):
            rpc.inspect_workers(FakeEngine(lambda: time.sleep(3)))
        assert time.monotonic() - begun < 2

    def test_a_closed_engine_is_an_error_and_an_open_one_is_not(self) -> None:
        rpc.check_open(FakeEngine([]))
        with pytest.raises(TargetError, match="shut down"):
            rpc.check_open(FakeEngine([], closed=True))


class Mode(IntEnum):
    FAST = 3


@dataclass
class FakeConfig:
    """As vLLM's configurations: plain values among others."""

    max_num_batched_tokens: int = 128
    mode: Mode = Mode.FAST
    folder: PurePosixPath = field(default_factory=lambda: PurePosixPath("a/b"))
    endless: float = float("inf")
    sizes: tuple[int, ...] = (1, 2)
    ignored: frozenset[str] = frozenset({"b", "a"})
    cls: type = dict
    unset: None = None
    hf_token: str = "hf_secret"
    api_key: str = "secret"
    endpoint: str = "s3://user:secret@host/x"
    nested: dict[str, str] = field(default_factory=lambda: {"password": "secret"})
    objects: list[Any] = field(default_factory=lambda: [object()])
    long: tuple[int, ...] = tuple(range(components.LONGEST + 1))
    master_port: int = 29501
    _private: int = 1


class TestComponents:
    def test_settings_are_plain_values_and_no_secrets(self) -> None:
        found = components.settings(FakeConfig())
        assert json.loads(json.dumps(found, allow_nan=False)) == {
            "max_num_batched_tokens": 128,
            "mode": "fast",
            "folder": "a/b",
            "endless": "inf",
            "sizes": [1, 2],
            "ignored": ["a", "b"],
            "cls": "dict",
            "unset": None,
        }

    def test_a_configuration_of_another_version_is_read_as_far_as_it_goes(self) -> None:
        found = components.components(SimpleNamespace(scheduler_config=FakeConfig()))
        assert [each.name for each in found] == ["model_engine", "scheduler"]
        scheduler = found[1]
        assert (scheduler.type, scheduler.settings["max_num_batched_tokens"]) == ("Scheduler", 128)
        assert (
            scheduler.description == "Takes up to an unknown number of sequences and 128 tokens in one step"
        )

    def test_a_tokenizer_is_described_by_what_it_has(self) -> None:
        class Words:
            vocab_size = 7
            model_max_length = 10**30
            all_special_tokens = ("<s>",)
            bos_token = "<s>"

            def __len__(self) -> int:
                return 8

            @property
            def is_fast(self) -> bool:
                raise RuntimeError("who knows")

        class Wrapped(Words):
            pass

        Words.__qualname__ = "Words"
        (tokenizer, _) = components.components(SimpleNamespace(), Wrapped())
        assert (tokenizer.name, tokenizer.type) == ("tokenizer", "Words")
        assert tokenizer.description == "Knows 8 tokens, 1 of them special"
        assert tokenizer.settings == {
            "vocab_size": 7,
            "length": 8,
            "max_length": None,
            "special_tokens": ["<s>"],
            "bos_token": "<s>",
        }


@dataclass
class FakeLLM:
    """An engine that says what it was asked, and answers in one step."""

    error: Exception | None = None
    unfinished: int = 0

    def __post_init__(self) -> None:
        self.engine_core = SimpleNamespace(engine_core=None)
        self.vllm_config = SimpleNamespace(cache_config=SimpleNamespace(enable_prefix_caching=True))
        self.tokenizer = object()
        self.asked: tuple[list[Any], Any] = ([], None)
        self.waiting: dict[str, Any] = {}
        self.aborted: list[str] = []

    def get_num_unfinished_requests(self) -> int:
        return self.unfinished + len(self.waiting)

    def add_request(self, name: str, prompt: Any, sampling: Any) -> None:
        self.asked = [*self.asked[0], prompt], sampling
        if self.error is not None:
            raise self.error
        self.waiting[name] = prompt

    def step(self) -> list[Any]:
        waiting, self.waiting = self.waiting, {}
        return [_output(name, prompt) for name, prompt in waiting.items()]

    def abort_request(self, names: list[str]) -> None:
        self.aborted += names
        self.waiting = {name: prompt for name, prompt in self.waiting.items() if name not in names}


def _output(name: str, prompt: Any) -> Any:
    sample = SimpleNamespace(index=0, text="and so on", token_ids=[1, 2, 3])
    text = prompt if isinstance(prompt, str) else None
    return SimpleNamespace(
        request_id=name, finished=True, prompt=text, prompt_token_ids=[5, 6], outputs=[sample]
    )


def generate_text(llm: FakeLLM, *args: Any, **kwargs: Any) -> Any:
    return generate.generate(llm, llm, Request(inputs=Inputs(args, kwargs)))


@pytest.mark.usefixtures("vllm")
class TestGenerating:
    def test_a_prompt_gives_a_text_and_how_many_tokens_there_were(self) -> None:
        run, notes = generate_text(FakeLLM(), "hello")
        assert run.mode == "real"
        assert [(value.name, value.text, value.shape) for value in run.inputs] == [("prompt", "hello", (2,))]
        assert [(value.name, value.text, value.shape) for value in run.outputs] == [("0", "and so on", (3,))]
        assert [note.code for note in notes] == ["engine-ran"]

    def test_without_other_wishes_tokens_are_the_likeliest_and_few(self) -> None:
        llm = FakeLLM()
        generate_text(llm, "hello", "you")
        sampling = llm.asked[1]
        assert (llm.asked[0], sampling.temperature, sampling.max_tokens) == (["hello", "you"], 0.0, 16)

    def test_text_that_takes_too_long_is_aborted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(generate, "GENERATING", -1.0)
        llm = FakeLLM()
        with pytest.raises(TargetError, match="requests were cancelled"):
            generate_text(llm, "hello", "you")
        assert len(llm.aborted) == 2
        assert not llm.get_num_unfinished_requests()

    @pytest.mark.parametrize(
        ("args", "kwargs", "prompts"),
        [
            pytest.param((), {"prompt": "a"}, ["a"], id="keyword"),
            pytest.param((), {"prompts": ["a", "b"]}, ["a", "b"], id="keywords"),
            pytest.param((5, 6), {}, [{"prompt_token_ids": [5, 6]}], id="tokens"),
            pytest.param(([5, 6], "a"), {}, [{"prompt_token_ids": [5, 6]}, "a"], id="mixed"),
            pytest.param(
                (),
                {"prompt": "a", "multi_modal_data": {"image": 1}},
                [{"prompt": "a", "multi_modal_data": {"image": 1}}],
                id="image",
            ),
        ],
    )
    def test_prompts_come_in_many_forms(self, args: Any, kwargs: Any, prompts: list[Any]) -> None:
        llm = FakeLLM()
        generate_text(llm, *args, sampling_params={"max_tokens": 3}, **kwargs)
        assert (llm.asked[0], llm.asked[1].max_tokens) == (prompts, 3)

    @pytest.mark.parametrize(
        ("args", "kwargs"),
        [
            pytest.param((), {}, id="none"),
            pytest.param((1.5,), {}, id="number"),
            pytest.param(("a",), {"sampling_params": 3}, id="sampling"),
            pytest.param(("a",), {"sampling_params": {"warmth": 3}}, id="option"),
            pytest.param(("a",), {"colour": 3}, id="keyword"),
        ],
    )
    def test_what_is_no_prompt_is_refused(self, args: Any, kwargs: Any) -> None:
        with pytest.raises(UsageError):
            generate_text(FakeLLM(), *args, **kwargs)

    def test_shapes_are_refused(self) -> None:
        llm = FakeLLM()
        with pytest.raises(UsageError, match="prompts"):
            generate.generate(llm, llm, Request(inputs=(TensorSpec((1, 2)),)))

    def test_requests_of_others_are_not_disturbed(self) -> None:
        llm = FakeLLM(unfinished=1)
        with pytest.raises(UsageError, match="under way"):
            generate_text(llm, "hello")
        assert llm.asked[0] == []

    def test_a_failure_is_an_answer(self) -> None:
        run, (note,) = generate_text(FakeLLM(error=ValueError("too long\nby far")), "hello")
        assert (run.failure.error, run.failure.message) == ("ValueError", "too long\nby far")
        assert note.severity == "error"
        assert note.text == "the engine could not generate text: ValueError: too long"


def an_engine(name: str, **attributes: Any) -> Any:
    """An object of a class of that name, as if vLLM had made it."""
    cls = type(name, (), {"__module__": f"vllm.{name.lower()}"})
    native = cls()
    vars(native).update(attributes)
    return native


class TestAdapter:
    def test_naming_the_package_loads_no_framework(self) -> None:
        code = (
            "import sys, modelglass.frameworks.vllm as adapter\n"
            "import modelglass.frameworks.vllm.engine.rpc, modelglass.frameworks.vllm.engine.generate\n"
            "print(sorted({'torch', 'numpy', 'vllm'} & set(sys.modules)), hasattr(adapter, 'nothing'))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[] False"

    def test_it_offers_what_every_adapter_does(self) -> None:
        from modelglass.frameworks import adapter
        from modelglass.frameworks.protocol import Adapter

        asked = [name for name, value in vars(Adapter).items() if callable(value) and name[0] != "_"]
        assert asked
        for framework in FRAMEWORKS:
            assert all(callable(getattr(adapter(framework), name)) for name in asked)

    @pytest.mark.parametrize("name", ["LLM", "LLMEngine", "AsyncLLM", "AsyncLLMEngine"])
    def test_engines_are_taken_and_other_objects_of_vllm_are_not(self, name: str) -> None:
        from modelglass.frameworks import adapter, framework_of

        native = an_engine(name)
        assert framework_of(native) == "vllm"
        assert adapter("vllm").accepts(native)
        assert not adapter("vllm").accepts(an_engine("SamplingParams"))

    def test_an_asynchronous_engine_is_refused_in_words(self) -> None:
        from modelglass.frameworks import adapter

        with pytest.raises(UsageError, match="event loop") as caught:
            adapter("vllm").observe(an_engine("AsyncLLM"), Request())
        assert "vllm.LLM" in caught.value.hint

    def test_an_engine_that_is_gone_is_an_error(self) -> None:
        from modelglass.frameworks import adapter

        with pytest.raises(TargetError, match="engine of this LLM was released"):
            adapter("vllm").observe(an_engine("LLM"), Request())


def a_configuration() -> Any:
    """As little as an engine's configuration may say."""
    return SimpleNamespace(
        model_config=SimpleNamespace(model="nowhere", dtype="float32", architecture="SomeLM"),
        parallel_config=SimpleNamespace(tensor_parallel_size=2),
        cache_config=SimpleNamespace(block_size=16),
    )


def served(engine: FakeEngine, config: Any = None) -> Any:
    from modelglass.frameworks.vllm.engine.live import observe_engine

    engine.vllm_config = config or a_configuration()  # type: ignore[attr-defined]
    return observe_engine(engine, engine, Request())


class TestEngine:
    def test_what_ranks_hold_is_kept_apart_and_the_first_is_shown(self) -> None:
        found = served(FakeEngine([document(1), document(0)]))
        assert [each.rank for each in found.ranks] == [0, 1]
        assert found.model == found.ranks[0].model
        assert (found.engine.rank, found.engine.tensor_parallel) == (0, 2)

    @pytest.mark.parametrize("says", [True, False], ids=["configured", "unconfigured"])
    def test_where_nothing_can_be_reached_or_built_the_size_is_unknown(
        self, monkeypatch: pytest.MonkeyPatch, says: bool
    ) -> None:

        def fail(folder: Path, *args: Any, **kwargs: Any) -> Any:
            assert json.loads((folder / "config.json").read_text()) == {}
            raise TargetError("there is no vllm", hint="install it")

        from modelglass.frameworks.vllm import build

        monkeypatch.setattr(build, "build_rank", fail)
        config = a_configuration()
        if says:
            config.model_config.hf_config = SimpleNamespace(to_json_string=lambda use_diff: "{}")
        found = served(FakeEngine([None]), config)
        assert [each.shape for each in found.model.tensors] == [None]
        assert (found.ranks, found.engine.reached) == ((), "meta")
        note = found.notes[0]
        assert (note.code, note.severity) == ("engine-not-reached", "error")
        assert "not with text" in note.text
        assert ("there is no vllm" if says else "does not report") in note.text
