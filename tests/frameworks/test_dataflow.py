"""Which tensor went where, against torch.export; and no number is left on anything of the user's."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

import modelglass as mg
from exported_flow import exported_edges, observed_edges
from fingerprint import fingerprint
from modelglass import Inputs
from models import Apply, UNet, gpt2, ids, llama, mixtral, transformers_model


def timm_model(name: str, size: int, **settings: Any) -> tuple[nn.Module, Inputs]:
    import timm

    model = timm.create_model(name, pretrained=False, **settings).eval()
    return model, Inputs((torch.randn(1, 3, size, size),))


def in_full(build: Callable[..., nn.Module], *args: Any, **more: Any) -> nn.Module:
    """With attention that needs its mask in every run: what is fused makes one for export alone."""
    return build(*args, attn_implementation="eager", **more)


def padded() -> torch.Tensor:
    """A mask that hides something: one that does not is dropped, but not in export."""
    return (torch.arange(16) < 12)[None].long()


TINY = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}


def bert() -> tuple[nn.Module, Inputs]:
    model = in_full(transformers_model, "Bert", "Model", **TINY, vocab_size=100)
    return model, Inputs(kwargs={"input_ids": ids(), "attention_mask": padded()})


def t5() -> tuple[nn.Module, Inputs]:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "vocab_size": 100}
    model = in_full(transformers_model, "T5", "Model", **sizes, use_cache=False)
    given = {"input_ids": ids(), "attention_mask": padded(), "decoder_input_ids": ids(5)}
    return model, Inputs(kwargs=given)


def clip() -> tuple[nn.Module, Inputs]:
    text = {**TINY, "vocab_size": 100, "eos_token_id": 6, "attn_implementation": "eager"}
    vision = {**TINY, "image_size": 32, "patch_size": 8, "attn_implementation": "eager"}
    model = in_full(transformers_model, "CLIP", "Model", text_config=text, vision_config=vision)
    given = {"input_ids": ids(), "pixel_values": torch.randn(1, 3, 32, 32), "attention_mask": padded()}
    return model, Inputs(kwargs=given)


def whisper() -> tuple[nn.Module, Inputs]:
    halves = ("layers", "attention_heads", "ffn_dim")
    sizes = {
        f"{side}_{half}": size
        for side in ("encoder", "decoder")
        for half, size in zip(halves, (1, 4, 64), strict=True)
    }
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    lengths = {"d_model": 32, "vocab_size": 100, "max_source_positions": 50, "max_target_positions": 32}
    model = in_full(transformers_model, "Whisper", "Model", **sizes, **tokens, **lengths, use_cache=False)
    given = {"input_features": torch.randn(1, 80, 100), "decoder_input_ids": ids(5)}
    return model, Inputs(kwargs=given)


def causal(model: nn.Module) -> tuple[nn.Module, Inputs]:
    return model, Inputs(kwargs={"input_ids": ids(), "use_cache": False})


def vit() -> tuple[nn.Module, Inputs]:
    model = transformers_model("ViT", "Model", **TINY, image_size=32, patch_size=8)
    return model, Inputs(kwargs={"pixel_values": torch.randn(2, 3, 32, 32)})


def residual() -> tuple[nn.Module, Inputs]:
    def run(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(x + self.body(x)).contiguous().to(x.dtype))

    body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(), nn.Linear(16, 8))
    return Apply(run, body=body, drop=nn.Dropout(), head=nn.Linear(8, 2)).eval(), Inputs((torch.randn(3, 8),))


# All of these export; none had to be left out. Those of transformers do so without a cache.
ARCHITECTURES: dict[str, Callable[[], tuple[nn.Module, Inputs]]] = {
    "mlp with a residual": residual,
    "u-net": lambda: (UNet(), Inputs((torch.randn(1, 3, 16, 16),))),
    "lstm": lambda: (nn.LSTM(10, 20, 2, bidirectional=True), Inputs((torch.randn(5, 2, 10),))),
    "transformer": lambda: (
        nn.Transformer(16, 2, 1, 1, 32, batch_first=True).train(),
        Inputs((torch.randn(2, 5, 16), torch.randn(2, 4, 16))),
    ),
    "resnet": lambda: timm_model("resnet10t", 32),
    "efficientnet": lambda: timm_model("test_efficientnet", 32),
    "convnext": lambda: timm_model("test_convnext", 32),
    "swin": lambda: timm_model("swin_tiny_patch4_window7_224", 64, img_size=64, window_size=4, depths=(1, 1)),
    "timm vit": lambda: timm_model("test_vit", 160),
    "bert": bert,
    "t5": t5,
    "clip": clip,
    "whisper": whisper,
    "vit": vit,
    "gpt2": lambda: causal(in_full(gpt2)),
    "llama": lambda: causal(in_full(llama)),
    "mixtral": lambda: causal(in_full(mixtral)),
}


@pytest.fixture
def masks_as_in_any_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers makes masks for export that it leaves out otherwise."""
    import transformers.masking_utils as masks

    monkeypatch.setattr(masks, "is_torchdynamo_exporting", lambda: False)


@pytest.mark.slow
@pytest.mark.usefixtures("masks_as_in_any_run")
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_edges_between_modules_are_those_of_export(name: str) -> None:
    torch.manual_seed(0)
    model, inputs = ARCHITECTURES[name]()
    report = mg.inspect(model, inputs)
    assert report.run.mode == "fake"
    found = observed_edges(report)
    assert found == exported_edges(model, inputs)
    assert any(target.startswith("out ") for _, target in found)


class Scene(nn.Module):
    """Layers, and modules of one function each, on which something is played."""

    def __init__(self, play: Callable[..., Any], **functions: Callable[..., Any]) -> None:
        super().__init__()
        self.play = play
        self.a, self.b, self.c, self.d = (nn.Linear(4, 4) for _ in range(4))
        self.act = nn.ReLU(inplace=True)
        self.register_buffer("cache", torch.zeros(2, 4))
        for name, function in functions.items():
            setattr(self, name, Apply(lambda self, *args, run=function: run(*args)))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.play(self, *args, **kwargs)


def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def halves(self: Any, x: torch.Tensor) -> Any:
    q, k = self.a(x).chunk(2, -1)
    self.scale(q)
    return self.left(q), self.right(k)


def rows_and_columns(self: Any, x: torch.Tensor) -> Any:
    z = self.a(x)
    untouched, of_column, of_both = z[0, 1], z[0, 2], z[1, 2]
    self.columns(z)
    self.row(z)
    return self.untouched(untouched), self.of_column(of_column), self.of_both(of_both), self.all(z)


def through_views(self: Any, x: torch.Tensor) -> Any:
    z = self.a(x)
    turned, flat = z.t(), z.view(-1)
    self.act(z)
    self.end(flat[3:])
    return self.left(turned), self.right(flat[:2]), self.b(z)


def static_cache(self: Any, x: torch.Tensor) -> Any:
    self.first(self.cache, self.a(x))
    seen = self.b(self.cache)
    self.second(self.cache, self.c(seen))
    return self.d(self.cache), self.left(self.cache[:, 0]), self.right(self.cache[:, 1:])


def written_over(self: Any, x: torch.Tensor) -> Any:
    z = self.a(x)
    view, same = z[:, 1:], z[:, 1:]
    self.first(view)
    self.second(z)
    return self.left(same)


def assign(column: int) -> Callable[[torch.Tensor, torch.Tensor], None]:
    def run(target: torch.Tensor, value: torch.Tensor) -> None:
        target[:, column] = value[:, column]

    return run


def indices(self: Any, x: torch.Tensor) -> Any:
    z = torch.zeros(2, 4)
    z[torch.tensor([0, 1]), 1] = self.a(x)[:, 0]
    z.masked_fill_(x > 0, 1.0)
    z.index_add_(0, torch.tensor([0]), self.b(x)[:1])
    return self.c(z)


def given_room(self: Any, x: torch.Tensor) -> Any:
    room = torch.empty(2, 4)
    torch.add(self.a(x), self.b(x), out=room)
    self.cache.copy_(room)
    return self.c(self.cache)


def as_bytes(self: Any, x: torch.Tensor) -> Any:
    z = self.a(x)
    raw = z.view(torch.uint8)
    self.first(z)
    return self.left(raw), self.right(raw[:, 4:])


def windows(self: Any, x: torch.Tensor) -> Any:
    z = self.a(x)
    pairs = z.unfold(1, 2, 1)
    self.first(z[:, 3:])
    return self.left(pairs), self.right(pairs[:, 0])


def called_twice(self: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    z = self.act(self.a(x))
    z = self.act(self.a(z + self.b(y)))
    return {"joined": torch.cat([z, y]), "more": [z.sum(), (self.b(z), y)]}


def other_views(self: Any, x: torch.Tensor) -> Any:
    z = self.a(x)
    z.detach().mul_(2)
    wide = z.unsqueeze(0)
    wide.squeeze_(0)
    return self.b(z), self.c(wide)


def input_written(self: Any, x: torch.Tensor) -> Any:
    self.first(x)
    return self.a(x), x


def zero(x: torch.Tensor) -> None:
    x.zero_()


LEFT_AND_RIGHT = {"left": plus, "right": plus}
SCENES: dict[str, Callable[[], nn.Module]] = {
    "half of a tensor is scaled": lambda: Scene(halves, scale=lambda q: q.mul_(2), **LEFT_AND_RIGHT),
    "columns and rows are written": lambda: Scene(
        rows_and_columns,
        columns=lambda z: z[:, ::2].mul_(2),
        row=lambda z: z[1].add_(1),
        untouched=plus,
        of_column=plus,
        of_both=plus,
        all=plus,
    ),
    "views see what is written": lambda: Scene(through_views, end=zero, **LEFT_AND_RIGHT),
    "a static cache": lambda: Scene(static_cache, first=assign(0), second=assign(1), **LEFT_AND_RIGHT),
    "what is written over is gone": lambda: Scene(written_over, first=zero, second=zero, left=plus),
    "assignment by index": lambda: Scene(indices),
    "a result with room given": lambda: Scene(given_room),
    "another type of the same bytes": lambda: Scene(
        as_bytes, first=lambda z: z[:, 0].zero_(), **LEFT_AND_RIGHT
    ),
    "a view that overlaps itself": lambda: Scene(windows, first=zero, **LEFT_AND_RIGHT),
    "detached and squeezed": lambda: Scene(other_views),
    "an input that is written": lambda: Scene(input_written, first=lambda z: z.add_(1)),
    "handed on": lambda: Scene(lambda self, x: (x, self.a(x), x)),
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("run", ["fake", "real"])
def test_what_is_written_in_place_is_read_by_whoever_looks_at_it(name: str, run: Any) -> None:
    model, inputs = SCENES[name]().eval(), Inputs((torch.randn(2, 4),))
    assert observed_edges(mg.inspect(model, inputs, run=run)) == exported_edges(model, inputs)


def test_several_inputs_and_outputs_by_name() -> None:
    model, inputs = Scene(called_twice).eval(), Inputs((torch.randn(2, 4), torch.randn(2, 4)))
    assert observed_edges(mg.inspect(model, inputs)) == exported_edges(model, inputs)
    both = Inputs((inputs.args[0],) * 2)  # the same tensor twice
    assert observed_edges(mg.inspect(model, both)) == exported_edges(model, both)


class Named(nn.Module):
    def forward(self, x: Any, *rest: torch.Tensor, mask: Any = None) -> torch.Tensor:
        return x["a"][0] + rest[1]


def test_inputs_have_the_names_of_the_signature() -> None:
    one = torch.ones(2)
    report = mg.inspect(Named(), Inputs(({"a": [one]}, one + 1, one + 2), {"mask": {"at": one}}))
    assert report.dataflow.names == ("x.a.0", "rest.0", "rest.1", "mask.at")
    assert [report.dataflow.inputs[at] for at in (0, 1, 2, 3)] == [0, 1, 2, 0]
    assert report.dataflow.reads[-1] == (0, 2)


def read_by_last(report: mg.Report) -> set[int]:
    """The operators whose results the last operator reads."""
    flow = report.dataflow
    return {index for index, writes in enumerate(flow.writes) if set(writes) & set(flow.reads[-1])}


def test_what_no_operator_made_is_known_by_its_memory() -> None:
    def play(self: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        same = nn.Parameter(y)
        y.mul_(3)
        return torch.relu(same)

    report = mg.inspect(Apply(play), torch.ones(2, 3), run="real")
    assert [op.name for op in report.model.ops] == ["torch.mul", "torch.Tensor.mul_", "torch.relu"]
    assert read_by_last(report) == {0, 1}


KEPT: list[torch.Tensor] = []  # outside of any model
TABLE = torch.zeros(3)
TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "vmap": torch.func.vmap,
    "grad": lambda run: torch.func.grad(lambda x: run(x).sum()),
    "vmap of grad": lambda run: torch.func.vmap(torch.func.grad(lambda x: run(x).sum())),
    "jvp": lambda run: lambda x: torch.func.jvp(run, (x,), (x,))[1],
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("run", ["fake", "real"])
def test_function_transforms_hide_nothing(transform: str, run: Any) -> None:
    def play(self: Any, x: torch.Tensor) -> torch.Tensor:
        return TRANSFORMS[transform](lambda row: torch.sin(row * row).relu())(x * 2)

    model, x = Apply(play), torch.ones(2, 3)
    before = fingerprint(model, x)
    report = mg.inspect(model, x, run=run)
    assert fingerprint(model, x) == before
    names = [op.name for op in report.model.ops]
    made = {number: at for at, writes in enumerate(report.dataflow.writes) for number in writes}
    reads = [{made.get(number, "x") for number in numbers} for numbers in report.dataflow.reads]
    assert reads[0] == {"x"}
    assert reads[names.index("torch.sin")] == {names.index("torch.mul", 1)}
    assert reads[names.index("torch.relu")] == {names.index("torch.sin")}


def test_a_second_run_knows_nothing_of_the_first() -> None:
    """A table made in the first run and kept outside of the model is a constant in the second."""

    def play(self: Any, x: torch.Tensor) -> torch.Tensor:
        if not KEPT:
            KEPT.append(torch.arange(3.0) * 2)
        return x + KEPT[0]

    first = mg.inspect(Apply(play), torch.ones(2, 3), run="real")
    assert len(first.dataflow.reads[-1]) == 2
    assert KEPT == [], "what the run put there is taken out again"
    Apply(play)(torch.ones(2, 3))
    assert mg.inspect(Apply(play), torch.ones(2, 3), run="real").dataflow.reads == ((0,),)
    KEPT.clear()


def numbered() -> list[Any]:
    """Whatever is alive and real, and carries a number."""
    kinds = (torch.Tensor, torch.UntypedStorage)
    found = [each for each in gc.get_objects() if issubclass(type(each), kinds)]
    real = (each for each in found if type(each) is not FakeTensor and each.device.type != "meta")
    return [each for each in real if any(key.startswith("_modelglass") for key in vars(each))]


class Tagged(torch.Tensor):
    """A subclass, of which there are no fake ones."""


def keeping(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.last = y = x.relu()
    KEPT.append(y)
    KEPT.append(y[:1])
    TABLE.add_(1)
    self.seen.add_(y.sum())
    return y + TABLE


def raising(self: Any, x: torch.Tensor) -> torch.Tensor:
    keeping(self, x)
    raise ValueError("no more")


def nested(layout: torch.layout) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=layout)


RUNS: dict[str, Callable[[], tuple[Callable[..., Any], Any]]] = {
    "kept": lambda: (keeping, torch.ones(2, 3)),
    "raising": lambda: (raising, torch.ones(2, 3)),
    "a subclass": lambda: (lambda self, x: keeping(self, x.as_subclass(Tagged).mul_(2)), torch.ones(2, 3)),
    "nested": lambda: (lambda self, x: (x.mul_(2) * 2, x.unbind()[0] * 3), nested(torch.jagged)),
    "nested without a layout": lambda: (lambda self, x: (x.mul_(2), x * 3)[1], nested(torch.strided)),
    "sparse": lambda: (lambda self, x: x.to_dense() * 2, torch.eye(3).to_sparse()),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("how", [{"run": "fake"}, {"run": "real"}, {"run": "real", "train": True}], ids=str)
def test_no_number_outlives_the_run(name: str, how: dict[str, Any]) -> None:
    function, x = RUNS[name]()
    model = Apply(function, seen=torch.zeros(()), layer=nn.Linear(1, 1))
    report = mg.inspect(model, x, on_failure="report", **how)
    assert (report.run.failure is None) == (name != "raising")
    assert not numbered()
    KEPT.clear()
