"""Whole numbers that a fake run knows are compared with what they index, as torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modelglass as mg
from modelglass.frameworks.torch.fake.index_values import rule_of
from models import SMALL, Apply, ids, transformers_model

NUMBERS = (-5, -3, -1, 0, 2, 3, 4, 7, 10)


def valueless(model: nn.Module) -> nn.Module:
    """The model with a tensor on meta that it does not use: no real run can correct the fake one."""
    model.register_buffer("_unused", torch.empty(1, device="meta"), persistent=False)
    return model.eval()


def torch_error(model: nn.Module, inputs: tuple[Any, ...]) -> str | None:
    try:
        with torch.no_grad():
            model(*(each.clone() for each in inputs))
    except (RuntimeError, IndexError) as error:
        return type(error).__name__
    return None


def reported_error(model: nn.Module, inputs: tuple[Any, ...]) -> str | None:
    failure = mg.inspect(model, inputs, on_failure="report").run.failure
    return None if failure is None else failure.error


def in_place(write: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        write(x, *others)
        return x

    return forward


# Each gets random numbers in 3 rows of 4 and an index of two numbers: 0, and one of those above.
LOOKUPS: dict[str, Callable[..., Any]] = {
    "gather": lambda self, x, i: x.gather(0, i[None]),
    "gather columns": lambda self, x, i: x.gather(-1, i[None]),
    "gather out": lambda self, x, i: torch.gather(x, 1, i[None], out=torch.empty(1, 2)),
    "scatter": lambda self, x, i: x.scatter(0, i[None], torch.ones(1, 2)),
    "scatter value": lambda self, x, i: x.scatter(1, i[None], 2.0),
    "scatter_": in_place(lambda x, i: x.scatter_(1, i[None], 2.0)),
    "scatter_add": lambda self, x, i: x.scatter_add(0, i[None], torch.ones(1, 2)),
    "scatter_reduce": lambda self, x, i: x.scatter_reduce(1, i[None], torch.ones(1, 2), "amax"),
    "index_select": lambda self, x, i: x.index_select(0, i),
    "index_select columns": lambda self, x, i: x.index_select(-1, i),
    "index_add": lambda self, x, i: x.index_add(0, i, torch.ones(2, 4)),
    "index_add_": in_place(lambda x, i: x.index_add_(1, i, torch.ones(3, 2))),
    "index_copy": lambda self, x, i: x.index_copy(0, i, torch.ones(2, 4)),
    "index_copy_": in_place(lambda x, i: x.index_copy_(1, i, torch.ones(3, 2))),
    "index_fill": lambda self, x, i: x.index_fill(0, i, 1.0),
    "index_fill_": in_place(lambda x, i: x.index_fill_(1, i, 1.0)),
    "take": lambda self, x, i: x.take(i),
    "take_along_dim": lambda self, x, i: torch.take_along_dim(x, i[None], 1),
    "put": lambda self, x, i: x.put(i, torch.ones(2)),
    "rows": lambda self, x, i: x[i],
    "columns": lambda self, x, i: x[:, i],
    "places": lambda self, x, i: x[i, i],
    "last": lambda self, x, i: x[..., i],
    "row by its number": lambda self, x, i: x[i[1]],
    "assign": in_place(lambda x, i: x.__setitem__(i, 1.0)),
    "assign columns": in_place(lambda x, i: x.__setitem__((slice(None), i), torch.ones(3, 2))),
    "index_put": lambda self, x, i: x.index_put((i,), torch.ones(2, 4), accumulate=True),
    "one_hot": lambda self, x, i: x.sum() + F.one_hot(i, 4),
    "one_hot of any number": lambda self, x, i: x.sum() + F.one_hot(i),
    "embedding": lambda self, x, i: F.embedding(i, x),
    "embedding with a largest norm": lambda self, x, i: F.embedding(i, x.clone(), max_norm=1.0),
    "bag": lambda self, x, i: F.embedding_bag(i, x, torch.tensor([0])),
    "bag of the largest": lambda self, x, i: F.embedding_bag(i[None], x, mode="max"),
    "bag that begins": lambda self, x, i: F.embedding_bag(torch.tensor([0, 1, 2]), x, i),
    "labels": lambda self, x, i: F.cross_entropy(x[:2], i),
    "labels with weights": lambda self, x, i: F.cross_entropy(x[:2], i, torch.ones(4), label_smoothing=0.1),
    "ignored labels": lambda self, x, i: F.cross_entropy(x[:2], i, ignore_index=7),
    "nll": lambda self, x, i: F.nll_loss(x[:2], i),
    "nll of pixels": lambda self, x, i: F.nll_loss(x.view(1, 4, 3, 1)[:, :, :2], i.view(1, 2, 1)),
    "margins": lambda self, x, i: F.multi_margin_loss(x[:2], i),
    "several margins": lambda self, x, i: F.multilabel_margin_loss(x[0, :2], i),
    "unpool": lambda self, x, i: F.max_unpool2d(x[:1, None, None, :2], i.view(1, 1, 1, 2), 2),
    "shifted": lambda self, x, i: F.embedding(torch.arange(2) + i - 1, x),
    "clamped": lambda self, x, i: F.embedding(i.clamp(0, 2), x),
    "masked": lambda self, x, i: F.embedding(torch.where(i > 2, 0, i), x),
    "added up": lambda self, x, i: F.embedding((i + 1).cumsum(0), x),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_an_index_out_of_range_fails_as_in_torch(name: str) -> None:
    model = valueless(Apply(LOOKUPS[name]))
    for number in NUMBERS:
        inputs = torch.rand(3, 4), torch.tensor([0, number])
        assert reported_error(model, inputs) == torch_error(model, inputs), number


@pytest.mark.parametrize("name", ["embedding", "gather", "take", "rows", "index_copy", "labels", "one_hot"])
def test_the_message_is_that_of_torch(name: str) -> None:
    x, index = torch.rand(3, 4), torch.tensor([0, 12])
    model = valueless(Apply(LOOKUPS[name]))
    with pytest.raises((IndexError, RuntimeError)) as raised:
        model(x, index)
    failure = mg.inspect(model, (x, index), on_failure="report").run.failure
    assert failure is not None
    assert failure.message == str(raised.value)


MASKED: dict[str, Callable[..., Any]] = {
    "masked_scatter": lambda self, x, mask, y: x.masked_scatter(mask, y),
    "masked_scatter_ of rows": in_place(lambda x, mask, y: x.masked_scatter_(mask[0], y)),
    "assign": in_place(lambda x, mask, y: x.__setitem__(mask, y)),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_that_selects_another_number_than_given_fails_as_in_torch(name: str) -> None:
    model = valueless(Apply(MASKED[name]))
    for selected in range(7):
        inputs = torch.rand(2, 3), (torch.arange(6) < selected).view(2, 3), torch.rand(3)
        assert reported_error(model, inputs) == torch_error(model, inputs), selected


@pytest.mark.parametrize("replacement", [True, False])
def test_no_more_is_drawn_than_there_is(replacement: bool) -> None:
    for count in (1, 4, 5, 9):
        model = valueless(Apply(lambda self, x, n=count: x.multinomial(n, replacement)))
        inputs = (torch.rand(2, 4),)
        assert reported_error(model, inputs) == torch_error(model, inputs), count


def test_the_real_run_has_the_last_word() -> None:
    report = mg.inspect(nn.Embedding(10, 4), torch.tensor([3, 10]), on_failure="report")
    assert report.run.mode == "real"
    failure = report.run.failure
    assert failure is not None
    assert (failure.error, failure.message) == ("IndexError", "index out of range in self")


def test_numbers_that_come_from_the_run_are_not_known_and_not_checked() -> None:
    model = valueless(Apply(lambda self, x: F.embedding(x.argmax(-1) + 100, x)))
    assert mg.inspect(model, torch.rand(3, 4), on_failure="report").run.failure is None


def test_numbers_that_something_unknown_was_written_over_are_not_checked() -> None:
    def forward(self: Any, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        index.copy_(x.argmax(0))
        return F.one_hot(index, 3) + F.embedding(index, x).sum()

    assert (
        mg.inspect(
            valueless(Apply(forward)), (torch.rand(3, 2), torch.tensor([9, 9])), on_failure="report"
        ).run.failure
        is None
    )


def test_training_on_labels_out_of_range_fails() -> None:
    model = valueless(Apply(lambda self, x, y: F.cross_entropy(self.layer(x), y), layer=nn.Linear(4, 3)))
    report = mg.inspect(model, (torch.rand(2, 4), torch.tensor([0, 3])), train=True, on_failure="report")
    assert report.run.failure is not None
    assert report.run.failure.message == "Target 3 is out of bounds."


def failure_of(model: nn.Module, **inputs: Any) -> tuple[str, str] | None:
    failure = mg.inspect(valueless(model), inputs, on_failure="report").run.failure
    return None if failure is None else (failure.module, failure.error)


@pytest.mark.slow
def test_transformers_look_up_no_more_than_their_tables_hold() -> None:
    gpt = transformers_model(
        "GPT2", "LMHeadModel", n_embd=32, n_layer=1, n_head=4, vocab_size=50, n_positions=8
    )
    assert failure_of(gpt, input_ids=torch.arange(8)[None]) is None
    assert failure_of(gpt, input_ids=torch.arange(9)[None]) == ("transformer.wpe", "IndexError")
    bert = transformers_model("Bert", "Model", **SMALL)
    assert failure_of(bert, input_ids=ids(), token_type_ids=torch.ones_like(ids())) is None
    types = torch.full_like(ids(), 2)
    assert failure_of(bert, input_ids=ids(), token_type_ids=types) == (
        "embeddings.token_type_embeddings",
        "IndexError",
    )
    llama = transformers_model("Llama", "ForCausalLM", **SMALL)
    beyond = ids() + llama.config.vocab_size
    assert failure_of(llama, input_ids=beyond) == ("model.embed_tokens", "IndexError")
    assert failure_of(llama, input_ids=ids(), labels=beyond) == ("", "IndexError")
    assert failure_of(llama, input_ids=ids(), labels=torch.full_like(ids(), -100)) is None


def test_a_static_cache_that_is_too_short_fails() -> None:
    from transformers import StaticCache

    llama = transformers_model("Llama", "ForCausalLM", **SMALL)
    length = ids().shape[1]
    for room in (length, length + 4):
        cache = StaticCache(config=llama.config, max_cache_len=room)
        assert failure_of(llama, input_ids=ids(), past_key_values=cache) is None
    cache = StaticCache(config=llama.config, max_cache_len=length - 1)
    failed = failure_of(llama, input_ids=ids(), past_key_values=cache)
    assert failed == ("model.layers.0.self_attn", "IndexError")


# What each is given is known, so torch's own check of it can be made.
CHECKED: dict[str, Callable[..., Any]] = {
    "a chance above one": lambda self, x: torch.bernoulli(torch.tensor([0.5, 2.0])),
    "chances that are numbers of the input": lambda self, x: torch.bernoulli(x.double()),
    "a chance given as a number": lambda self, x: torch.empty(3).bernoulli_(1.5),
    "bounds in the wrong order": lambda self, x: torch.empty(3).uniform_(2, 1),
    "a spread below zero": lambda self, x: torch.normal(torch.zeros(2), torch.tensor([-1.0, 1.0])),
    "a rate below zero": lambda self, x: torch.poisson(-x.double()),
    "nothing to draw": lambda self, x: torch.multinomial(torch.zeros(3), 1),
    "a matrix without an inverse": lambda self, x: torch.linalg.inv(torch.ones(2, 2)),
    "a matrix that is not positive": lambda self, x: torch.linalg.cholesky(-torch.eye(2)),
    "an assertion": lambda self, x: torch._assert_async((x < 1).all()),
    "a place beyond the end": lambda self, x: torch.zeros(3, 2).select_scatter(torch.ones(2), 0, 3),
    "memory beyond the end": lambda self, x: x.as_strided((4,), (1,)),
    "memory beyond its end to write to": lambda self, x: x.as_strided_scatter(torch.ones(4), (4,), (1,)),
}
FINE: dict[str, Callable[..., Any]] = {
    "a chance": lambda self, x: torch.bernoulli(torch.tensor([0.5, 1.0])),
    "bounds": lambda self, x: torch.empty(3).uniform_(1, 2),
    "a rate": lambda self, x: torch.poisson(x.double()),
    "an inverse": lambda self, x: torch.linalg.inv(torch.eye(2)),
    "an assertion that holds": lambda self, x: torch._assert_async((x < 8).all()),
    "a place": lambda self, x: torch.zeros(3, 2).select_scatter(torch.ones(2), 0, -3),
    "memory": lambda self, x: x.as_strided((2, 2), (1, 1)),
}


@pytest.mark.parametrize("name", CHECKED | FINE)
def test_checks_of_known_values_are_made(name: str) -> None:
    inputs = (torch.tensor([1, 2, 3]),)
    for turn in range(2):  # the answer of the first is not forgotten
        model = valueless(Apply((CHECKED | FINE)[name]))
        found = reported_error(model, inputs)
        assert (found is None) == (name in FINE), turn
        assert found == torch_error(model, inputs)


def test_a_gradient_that_torch_checks_by_values_is_named() -> None:
    matrix = nn.Parameter(torch.randn(3, 3, dtype=torch.complex64))
    vectors = Apply(lambda self, x: torch.linalg.eigh(self.matrix)[1], matrix=matrix)
    numbers = Apply(lambda self, x: torch.linalg.eigvalsh(self.matrix), matrix=matrix)
    for model, there in ((vectors, True), (numbers, False)):
        notes = mg.inspect(model, torch.ones(1), train=True).notes
        assert ("unchecked-gradient" in {note.code for note in notes}) is there


def test_backward_kernels_are_not_run_to_check_what_forward_kernels_checked() -> None:
    aten = torch.ops.aten
    assert rule_of(aten.embedding.default) is not None
    assert rule_of(aten.embedding_dense_backward.default) is None  # its result is as large as the table
