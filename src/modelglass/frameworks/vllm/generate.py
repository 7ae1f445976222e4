"""Text that an engine generates for the prompts it is given.

The engine really runs, as it does for any request. It is done before this returns, and the numbers of later
requests are not moved. What it leaves is what any request leaves: statistics, where the engine keeps some,
and full blocks of the prompt in its cache, where it looks for known prefixes, until others need them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from modelglass.errors import InspectError, TargetError, UsageError
from modelglass.frameworks.foreign import foreign_errors
from modelglass.frameworks.request import Inputs, Request
from modelglass.frameworks.vllm.components import has_workers_here, tokenizer_of
from modelglass.frameworks.vllm.rpc import call_in_time, first_line
from modelglass.report import Failure, Note, Run, Value

TOKENS = 16  # that are generated where nobody says how many
GENERATING = 600.0  # seconds for text; the first of an engine may wait for kernels to be compiled
_GRACE = 10.0  # seconds more, for an engine to leave off
_KEYWORDS = ("prompt", "prompts", "prompt_token_ids")
_HINT = 'give a text, several texts, or {"prompt": "...", "sampling_params": SamplingParams(...)}'


@dataclass(frozen=True)
class _Prompts:
    """Prompts as vLLM takes them, and how tokens are chosen."""

    prompts: list[Any]
    sampling: Any


def generate(native: Any, engine: Any, request: Request) -> tuple[Run, tuple[Note, ...]]:
    """What the engine makes of the prompts; a failure of it is an answer, too."""
    _check_writes(engine)
    asked = _parse_prompts(request.inputs)
    if engine.get_num_unfinished_requests():
        raise UsageError(
            "the engine has requests under way, whose outputs would get lost",
            hint="wait until they are finished, or inspect it without a prompt",
        )
    with foreign_errors() as found:
        outputs = _outputs(engine, asked)
    if isinstance(found.error, InspectError):
        raise found.error
    if found.error is not None:
        return _describe_failure(native, asked, found.error)
    texts = tuple(_texts(outputs, are_read=tokenizer_of(engine) is not None))
    run = Run(mode="real", inputs=tuple(_inputs(outputs)), outputs=texts)
    return run, tuple(_notes(engine))


def _check_writes(engine: Any) -> None:
    model = getattr(getattr(engine, "vllm_config", None), "model_config", None)
    if getattr(model, "runner_type", None) == "pooling":
        raise UsageError(
            "this engine makes vectors or scores of prompts, and no text", hint="inspect it without a prompt"
        )


def _parse_prompts(inputs: Any) -> _Prompts:
    if not isinstance(inputs, Inputs):
        raise UsageError("an engine is called with prompts, not with tensors of some shape", hint=_HINT)
    options = dict(inputs.kwargs)
    sampling = _sampling(options.pop("sampling_params", None))
    given: list[Any] = list(inputs.args)
    if "prompts" in options:
        several = options.pop("prompts")
        given += [several] if isinstance(several, str) else list(several)
    if options:  # one prompt, with what belongs to it
        given.append(options["prompt"] if list(options) == ["prompt"] else options)
    if given and all(type(each) is int for each in given):
        given = [given]  # the tokens of one prompt
    prompts = [_prompt(each) for each in given]
    if not prompts:
        raise UsageError("there is no prompt among the inputs", hint=_HINT)
    return _Prompts(prompts, sampling)


def _prompt(given: Any) -> Any:
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping) and any(key in given for key in _KEYWORDS):
        return dict(given)
    is_list = isinstance(given, Sequence) and not isinstance(given, (bytes, bytearray))
    if is_list and given and all(type(token) is int for token in given):
        return {"prompt_token_ids": list(given)}
    raise UsageError(f"not a prompt: {type(given).__name__}", hint=_HINT)


def _sampling(given: Any) -> Any:
    from vllm import SamplingParams

    if isinstance(given, SamplingParams):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"sampling_params is {type(given).__name__}", hint="give vllm.SamplingParams")
    try:
        return SamplingParams(**(given or {"temperature": 0.0, "max_tokens": TOKENS}))
    except (TypeError, ValueError) as cause:
        raise UsageError(f"invalid sampling_params: {first_line(cause)}", hint=_HINT) from cause


def _outputs(engine: Any, asked: _Prompts) -> list[Any]:
    """vLLM's own outputs, one for each prompt.

    Between two steps the engine can be told to leave it. In a step that hangs in another process it cannot,
    and is given up a little later.
    """

    def generate() -> list[Any]:
        return _run_requests(engine, asked, time.monotonic() + GENERATING)

    return (
        generate()
        if has_workers_here(engine)
        else call_in_time(generate, GENERATING + _GRACE, "generate text")
    )


def _run_requests(engine: Any, asked: _Prompts, until: float) -> list[Any]:
    """Requests of our own names, so that those of later ones are what they would be without ours."""
    name = f"modelglass-{uuid4().hex}"
    names = [f"{name}-{number}" for number in range(len(asked.prompts))]
    done: dict[str, Any] = {}
    added: list[str] = []
    try:
        for each, prompt in zip(names, asked.prompts, strict=True):
            added.append(each)
            engine.add_request(each, prompt, asked.sampling)
        while engine.get_num_unfinished_requests():
            if time.monotonic() > until:
                raise TargetError(
                    f"the engine did not finish within {GENERATING:g} seconds; the requests were cancelled",
                    hint="ask for fewer tokens: sampling_params with a lower max_tokens",
                )
            done.update((output.request_id, output) for output in engine.step() if output.finish)
    finally:
        left = [each for each in added if each not in done]
        if left:
            engine.abort_request(left)
    return [done[each] for each in names]


def _inputs(outputs: Sequence[Any]) -> Iterator[Value]:
    for number, output in enumerate(outputs):
        tokens = getattr(output, "prompt_token_ids", None)
        yield Value(
            name="prompt" if len(outputs) == 1 else f"prompt.{number}",
            text=getattr(output, "prompt", None),
            shape=None if tokens is None else (len(tokens),),
        )


def _texts(outputs: Sequence[Any], *, are_read: bool) -> Iterator[Value]:
    """Each text, with the number of its tokens as its shape; without a tokenizer there is no text."""
    for number, output in enumerate(outputs):
        for sample in output.outputs:
            name = str(number) if len(output.outputs) == 1 else f"{number}.{sample.index}"
            text = sample.text if are_read else None
            yield Value(name=name, text=text, shape=(len(sample.token_ids),))


def _describe_failure(
    native: Any, asked: _Prompts, error: Exception | SystemExit
) -> tuple[Run, tuple[Note, ...]]:
    said = first_line(error)
    given = tuple(
        Value(name="prompt" if len(asked.prompts) == 1 else f"prompt.{number}", text=_text_of(prompt))
        for number, prompt in enumerate(asked.prompts)
    )
    failure = Failure(
        module="",
        module_type=type(native).__name__,
        error=type(error).__name__,
        message=str(error),
        op=None,
        inputs=given,
    )
    text = f"the engine could not generate text: {type(error).__name__}: {said}"
    note = Note(code="forward-failed", severity="error", text=text, where=("",))
    return Run(mode="real", inputs=given, failure=failure), (note,)


def _text_of(prompt: Any) -> str | None:
    found = prompt.get("prompt") if isinstance(prompt, Mapping) else prompt
    return found if isinstance(found, str) else None


def _notes(engine: Any) -> Iterator[Note]:
    cache = getattr(getattr(engine, "vllm_config", None), "cache_config", None)
    if getattr(cache, "enable_prefix_caching", False):
        yield Note(
            code="engine-ran",
            text="the engine generated text for real; it may keep full blocks of the prompt in its prefix "
            "cache until others need them",
        )
