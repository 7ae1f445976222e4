"""Runs in which few of the equal blocks are in place, beside runs of all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import modelglass as mg
from fingerprint import fingerprint
from modelglass.analyses.memory.extrapolation import extrapolate
from modelglass.analyses.memory.timeline import memory
from modelglass.frameworks.shared.request import Detail, Inputs, Request
from modelglass.frameworks.torch import session as adapter
from modelglass.frameworks.torch.structure import repeated_blocks
from modelglass.frameworks.torch.structure.repeated_blocks import MANY, Blocks, find_repeated
from modelglass.report import Lifetimes
from models import SMALL, Apply, ids, transformers_model

COUNT = 8
SIZES: dict[str, Any] = {**SMALL, "hidden_size": 32, "num_hidden_layers": COUNT, "vocab_size": 50}
Case = tuple[nn.Module, Any]


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of a test are so small that whole runs cost no more."""
    monkeypatch.setattr(repeated_blocks, "WORTH", 10.0)


def text(name: str, suffix: str = "ForCausalLM", **more: Any) -> Case:
    model = transformers_model(name, suffix, **{**SIZES, "pad_token_id": 0, **more})
    return model, {"input_ids": ids(8), "labels": ids(8)}


def mlp(width: int = 8) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))


def gpt2() -> Case:
    sizes = {"n_layer": COUNT, "n_embd": 32, "n_head": 4, "n_positions": 16}
    return text("GPT2", "LMHeadModel", **sizes, bos_token_id=0, eos_token_id=1)


def t5() -> Case:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": COUNT, "num_heads": 4}
    model = transformers_model("T5", "ForConditionalGeneration", vocab_size=50, **sizes, num_decoder_layers=1)
    model.config.decoder_start_token_id = 0
    return model, {"input_ids": ids(8), "labels": ids(8)}


def vit() -> Case:
    sizes = {"image_size": 16, "patch_size": 8}
    model = transformers_model("ViT", "ForImageClassification", **{**SIZES, **sizes})
    return model, {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 1])}


def timm_model(name: str, size: int = 32, **settings: Any) -> Case:
    import timm

    return timm.create_model(name, num_classes=3, **settings), torch.randn(2, 3, size, size)


def encoder() -> Case:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return nn.TransformerEncoder(layer, COUNT, enable_nested_tensor=False), torch.randn(2, 5, 16)


def transformer() -> Case:
    """Two lists."""
    model = nn.Transformer(16, 2, COUNT, COUNT, 32, batch_first=True)
    return model, (torch.randn(2, 5, 16), torch.randn(2, 4, 16))


def checkpointed(reentrant: bool) -> Case:
    def forward(self: Any, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=reentrant)
        return self.head(x)

    first = nn.Linear(8, 8)
    model = nn.Sequential(
        first, Apply(forward, layers=nn.ModuleList(mlp() for _ in range(COUNT)), head=first)
    )
    return model, torch.randn(4, 8)


class LoRA(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.base(x) + self.up(self.down(x))


def lora() -> Case:
    model, inputs = encoder()
    model.requires_grad_(False)
    for layer in model.layers:  # type: ignore[union-attr]
        layer.linear1 = LoRA(layer.linear1)  # type: ignore[operator, union-attr]
    return model, inputs


def last_trains() -> Case:
    model: Any
    model, inputs = text("Llama")
    model.model.layers[:-1].requires_grad_(False)
    return model, inputs


ALIKE: dict[str, Callable[[], Case]] = {
    "mlp": lambda: (nn.Sequential(*(mlp() for _ in range(COUNT))), torch.randn(4, 8)),
    "llama": partial(text, "Llama", tie_word_embeddings=True),
    "gpt2": gpt2,
    "bert": partial(text, "Bert", "ForMaskedLM"),
    "t5": t5,
    "vit": vit,
    "mixtral": partial(text, "Mixtral", num_local_experts=4),
    "qwen3": partial(text, "Qwen3", head_dim=8),
    "encoder": encoder,
    "transformer": transformer,
    "timm vit": partial(
        timm_model, "vit_tiny_patch16_224", img_size=32, depth=COUNT, embed_dim=24, num_heads=2
    ),
    "timm convnext": partial(timm_model, "convnext_atto", 64, depths=(1, 1, COUNT, 1), dims=(4, 8, 8, 16)),
    "checkpointed": partial(checkpointed, False),
    "checkpointed with reentry": partial(checkpointed, True),
    "lora": lora,
    "last trains": last_trains,
}


def request(inputs: Any, *, train: bool, **more: Any) -> Request:
    if isinstance(inputs, dict):
        given = Inputs(kwargs=inputs)
    else:
        given = Inputs(args=inputs if isinstance(inputs, tuple) else (inputs,))
    optimizer = "adamw" if train else None
    return Request(inputs=given, train=train, optimizer=optimizer, detail=Detail.MEMORY, **more)


def both(model: nn.Module, asked: Request) -> tuple[Lifetimes | None, Lifetimes]:
    """What few blocks tell, and what all of them do."""
    model.train(asked.train)
    whole = adapter.observe(model, asked).lifetimes
    assert whole is not None
    return adapter.run_shortened(model, asked, extrapolate), whole


PASSED = ["gpt2", "bert", "t5", "vit", "mixtral", "qwen3", "transformer", "timm convnext"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSED)
def test_few_blocks_tell_what_a_pass_of_all_of_them_takes(name: str) -> None:
    model, inputs = ALIKE[name]()
    found, whole = both(model, request(inputs, train=False))
    assert found == whole
    assert memory(found) == memory(whole)


TRAINED = ["mlp", "llama", "timm vit", "last trains"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TRAINED, "lora", "checkpointed", "checkpointed with reentry"])
def test_few_blocks_tell_what_a_step_of_all_of_them_takes(name: str) -> None:
    model, inputs = ALIKE[name]()
    found, whole = both(model, request(inputs, train=True))
    assert found == whole
    assert memory(found, optimizer="adamw") == memory(whole, optimizer="adamw")


CHANGES = {
    "batch": mg.WhatIf(batch_size=3),
    "checkpoints": mg.WhatIf(recompute=("layers.*",)),
    "autocast": mg.WhatIf(autocast="bfloat16"),
    "weights": mg.WhatIf(weights="bfloat16", master_weights=True),
    "all": mg.WhatIf(accumulate=4, weights="bfloat16", recompute=("layers.*.0",), batch_size=2),
}


def residual(self: Any, x: torch.Tensor) -> torch.Tensor:
    x = self.stem(x)
    for layer in self.layers:
        x = x + layer(x)
    return x


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_few_blocks_tell_what_a_change_does(name: str) -> None:
    model = Apply(residual, stem=nn.Linear(8, 8), layers=nn.ModuleList(mlp() for _ in range(COUNT)))
    others = ("sgd", "adam8bit")
    asked = request(torch.randn(4, 8), train=True, what_if=CHANGES[name], other_optimizers=others)
    found, whole = both(model, asked)
    assert found == whole
    assert "adamw" in whole.tails


def odd(change: Callable[[Any], Any]) -> Case:
    """One block in the middle is not like the others."""
    model: Any
    model, inputs = text("Llama")
    change(model.model.layers[3])
    return model, inputs


def tied() -> Case:
    """Two blocks have one weight."""
    blocks = [mlp() for _ in range(COUNT)]
    blocks[3][0].weight = blocks[5][0].weight  # type: ignore[assignment]
    return nn.Sequential(*blocks), torch.randn(4, 8)


def swin() -> Case:
    return timm_model("swin_tiny_patch4_window7_224", 32, img_size=32, window_size=2, depths=(1, 1, COUNT, 1))


UNLIKE: dict[str, Callable[[], Case]] = {
    "activation": lambda: odd(lambda block: setattr(block.mlp, "act_fn", nn.Tanh())),
    "frozen": lambda: odd(lambda block: block.requires_grad_(False)),
    "setting": lambda: odd(lambda block: setattr(block.self_attn, "attention_dropout", 0.5)),
    "hook": lambda: odd(lambda block: block.register_forward_hook(lambda *args: None)),
    "type": lambda: odd(lambda block: block.mlp.to(torch.bfloat16)),
    "tied": tied,
    "alternating": partial(text, "Gemma2", head_dim=8, sliding_window=4),
    "every sixth": partial(text, "Qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=5),
    "swin": swin,
    "one block many times": lambda: (nn.Sequential(*[mlp()] * COUNT), torch.randn(4, 8)),
    "few": lambda: (nn.Sequential(*(mlp() for _ in range(7))), torch.randn(4, 8)),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_blocks_that_differ_are_not_folded(name: str) -> None:
    assert find_repeated(UNLIKE[name]()[0]) == ()


def test_a_change_of_some_blocks_is_not_folded() -> None:
    model, inputs = text("Llama")
    some = request(inputs, train=True, what_if=mg.WhatIf(recompute=("model.layers.[0-3]",)))
    assert adapter.run_shortened(model, some, extrapolate) is None


@pytest.mark.slow
@pytest.mark.parametrize("count", [COUNT, MANY])
def test_neighbours_of_a_stem_and_a_head_are_not_taken_for_the_others(count: int) -> None:
    blocks = (nn.Linear(4, 8), *(mlp() for _ in range(count - 2)), nn.Linear(8, 2))
    found, whole = both(nn.Sequential(*blocks), request(torch.randn(4, 4), train=True))
    assert found == (whole if count == MANY else None)


def bare(self: Any, x: torch.Tensor) -> torch.Tensor:
    for layer in self.layers:
        x = x + layer(x)
    return x


@pytest.mark.slow
@pytest.mark.parametrize("count", [COUNT, MANY])
def test_a_first_block_whose_input_needs_no_gradient_is_not_taken_for_the_others(count: int) -> None:
    model = Apply(bare, layers=nn.ModuleList(mlp() for _ in range(count)))
    found, whole = both(model, request(torch.randn(4, 8), train=True))
    assert found == (whole if count == MANY else None)


def by_index(self: Any, x: torch.Tensor) -> torch.Tensor:
    for at in range(COUNT):
        x = self.layers[at](x)
    return x


def test_a_model_that_needs_all_its_blocks_falls_back() -> None:
    model = Apply(by_index, layers=nn.ModuleList(mlp() for _ in range(COUNT)))
    asked = request(torch.randn(4, 8), train=False)
    assert find_repeated(model) != ()
    assert adapter.run_shortened(model, asked, extrapolate) is None
    assert len(model.layers) == COUNT  # type: ignore[arg-type]


def tapped(self: Any, x: torch.Tensor) -> Any:
    """Keeps what one block in the middle gives, which no kernel shows."""
    kept = []
    for at, layer in enumerate(self.layers):
        x = layer(x)
        kept += [x] if at == 5 else []
    return x, kept


def test_a_search_is_not_misled_by_what_one_block_does(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Apply(tapped, layers=nn.ModuleList(mlp() for _ in range(COUNT)))
    inputs = torch.randn(4, 8)
    found, whole = both(model, request(inputs, train=False))
    assert found is not None
    assert found != whole  # the blocks look alike
    answer = mg.fit(model, inputs, device_nbytes=2**20)
    monkeypatch.setattr(adapter, "run_shortened", lambda *args: None)
    assert answer == mg.fit(model, inputs, device_nbytes=2**20)


def test_a_search_finds_the_same_with_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = nn.Sequential(*(mlp() for _ in range(COUNT))), torch.randn(4, 8)
    seen: list[Lifetimes | None] = []
    original = adapter.run_shortened

    def folded(*args: Any) -> Lifetimes | None:
        seen.append(original(*args))
        return seen[-1]

    monkeypatch.setattr(adapter, "run_shortened", folded)
    before = fingerprint(model, inputs)
    answer = mg.fit(model, inputs, device_nbytes=20_000)
    assert fingerprint(model, inputs) == before
    assert len(seen) > 3
    assert None not in seen
    monkeypatch.setattr(adapter, "run_shortened", lambda *args: None)
    assert answer == mg.fit(model, inputs, device_nbytes=20_000)


def failing(self: Any, x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError(f"with {len(self.layers)} blocks")


def test_blocks_are_back_when_a_run_fails() -> None:
    model = Apply(failing, layers=nn.ModuleList(mlp() for _ in range(COUNT)))
    inputs = torch.randn(4, 8)
    before = fingerprint(model, inputs)
    assert adapter.run_shortened(model, request(inputs, train=False), extrapolate) is None
    assert fingerprint(model, inputs) == before


def test_the_first_blocks_and_the_last_one_stay_in_the_list() -> None:
    native = nn.Sequential(*(mlp() for _ in range(COUNT)))
    children, held = dict(native._modules), native._modules
    with Blocks("", native).shortened(3):
        assert list(native) == [children["0"], children["1"], children[str(COUNT - 1)]]
    assert native._modules is held
    assert list(held.items()) == list(children.items())


def test_short_runs_are_taken_where_they_cost_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [blocks.count for blocks in find_repeated(nn.Sequential(*(mlp() for _ in range(12))))] == [12]
    assert find_repeated(nn.Sequential(*(mlp() for _ in range(8)))) == ()
    both_lists = nn.Transformer(16, 2, 24, 24, 32, batch_first=True)
    assert [blocks.path for blocks in find_repeated(both_lists)] == ["decoder.layers", "encoder.layers"]
