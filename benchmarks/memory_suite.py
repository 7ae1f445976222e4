"""Models with inputs whose memory is measured and predicted: small ones, of every kind.

Each case builds a model with random weights and what it is called with. They are small enough for a training
step to take a second or two, and large enough for activations to weigh as much as parameters do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

os.environ["HF_HUB_OFFLINE"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Mode: TypeAlias = Literal["inference", "train"]
BOTH: tuple[Mode, ...] = ("inference", "train")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model and what it is called with."""

    model: nn.Module
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def pairs() -> list[tuple[str, Mode]]:
    """Every case with every mode it is measured in."""
    return [(name, mode) for name, (_, modes) in CASES.items() for mode in modes]


def build(name: str, mode: Mode) -> Case:
    """The case, the same each time, with its model in evaluation or in training mode."""
    make, _ = CASES[name]
    torch.manual_seed(0)
    case = make()
    case.model.train(mode == "train")
    return case


# Text models of transformers; their labels make them compute a loss.


def llama(attention: str = "sdpa", **more: Any) -> Case:
    sizes = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 3, "num_attention_heads": 4}
    return _text("Llama", "ForCausalLM", attention, **sizes, num_key_value_heads=2, **more)


def llama_bf16() -> Case:
    case = llama()
    case.model.to(torch.bfloat16)
    return case


def llama_checkpointed(use_reentrant: bool) -> Case:
    case = llama(use_cache=False)
    case.model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    return case


def llama_lora() -> Case:
    case = llama()
    case.model.requires_grad_(False)
    for layer in case.model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, LoRA(getattr(layer.self_attn, name), rank=8))
    return case


def with_attention_mask(make: Callable[[], Case]) -> Case:
    """A tokenizer gives a mask along with the tokens; here nothing is padded."""
    case = make()
    mask = torch.ones_like(case.kwargs["input_ids"])
    return Case(model=case.model, kwargs=case.kwargs | {"attention_mask": mask})


def gpt2(attention: str = "sdpa") -> Case:
    return _text("GPT2", "LMHeadModel", attention, n_embd=128, n_layer=3, n_head=4, n_positions=256)


def bert(attention: str = "sdpa") -> Case:
    sizes = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4}
    return _text("Bert", "ForMaskedLM", attention, **sizes)


def distilbert() -> Case:
    return _text("DistilBert", "ForMaskedLM", "sdpa", dim=128, hidden_dim=512, n_layers=3, n_heads=4)


def t5() -> Case:
    sizes = {"d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 2, "num_heads": 4}
    return _text("T5", "ForConditionalGeneration", "eager", **sizes, decoder_start_token_id=0)


def mixtral() -> Case:
    sizes = {"hidden_size": 128, "intermediate_size": 224, "num_hidden_layers": 2, "num_attention_heads": 4}
    return _text("Mixtral", "ForCausalLM", "sdpa", **sizes, num_key_value_heads=2, num_local_experts=4)


def qwen2() -> Case:
    sizes = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 3, "num_attention_heads": 4}
    return _text("Qwen2", "ForCausalLM", "sdpa", **sizes, num_key_value_heads=2)


def qwen3() -> Case:
    sizes = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 3, "num_attention_heads": 4}
    return _text("Qwen3", "ForCausalLM", "sdpa", **sizes, num_key_value_heads=2, head_dim=32)


def gemma2() -> Case:
    sizes = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 4, "num_attention_heads": 4}
    return _text(
        "Gemma2", "ForCausalLM", "eager", **sizes, num_key_value_heads=2, head_dim=32, sliding_window=32
    )


def _text(family: str, task: str, attention: str, **sizes: Any) -> Case:
    """A model of that family for 4 sequences of 96 tokens, of which there are 1,000 different ones."""
    transformers = _transformers()
    config = getattr(transformers, f"{family}Config")(vocab_size=1000, **_ENDS, **sizes)
    config._attn_implementation = attention
    tokens = torch.randint(3, 1000, (4, 96))
    model = getattr(transformers, family + task)(config)
    return Case(model=model, kwargs={"input_ids": tokens, "labels": tokens.clone()})


_ENDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


# Images and sound, of transformers.


def vit() -> Case:
    transformers = _transformers()
    config = transformers.ViTConfig(**_IMAGE, hidden_dropout_prob=0.1)
    model = transformers.ViTForImageClassification(config)
    return Case(
        model=model, kwargs={"pixel_values": torch.randn(8, 3, 64, 64), "labels": torch.arange(8) % 2}
    )


def clip() -> Case:
    transformers = _transformers()
    text = {"vocab_size": 1000, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2} | _ENDS
    config = transformers.CLIPConfig(
        text_config=text | {"num_attention_heads": 4}, vision_config=_IMAGE, projection_dim=64
    )
    tokens = torch.randint(3, 1000, (8, 40))
    tokens[:, -1] = 2
    images = torch.randn(8, 3, 64, 64)
    model = transformers.CLIPModel(config)
    return Case(model=model, kwargs={"input_ids": tokens, "pixel_values": images, "return_loss": True})


def whisper() -> Case:
    transformers = _transformers()
    config = transformers.WhisperConfig(
        vocab_size=1000, d_model=128, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, max_source_positions=200,
        decoder_start_token_id=1, dropout=0.1, **_ENDS,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config)
    sound = torch.randn(2, 80, 400)
    return Case(model=model, kwargs={"input_features": sound, "labels": torch.randint(3, 1000, (2, 32))})


def wav2vec2() -> Case:
    transformers = _transformers()
    config = transformers.Wav2Vec2Config(
        vocab_size=32, hidden_size=96, num_hidden_layers=2, num_attention_heads=4, intermediate_size=192,
        conv_dim=(64,) * 4, conv_stride=(5, 2, 2, 2), conv_kernel=(10, 3, 3, 2), num_feat_extract_layers=4,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, apply_spec_augment=False, layerdrop=0.0,
    )  # fmt: skip
    model = transformers.Wav2Vec2ForCTC(config)
    sound = torch.randn(2, 8000)
    return Case(model=model, kwargs={"input_values": sound, "labels": torch.randint(1, 32, (2, 12))})


_IMAGE = {
    "image_size": 64, "patch_size": 8, "hidden_size": 128, "intermediate_size": 256,
    "num_hidden_layers": 3, "num_attention_heads": 4,
}  # fmt: skip


def _transformers() -> Any:
    _let_torchvision_be_imported()
    import transformers

    return transformers


# Images, of timm.


def timm_model(name: str, batch: int = 4, side: int = 64, **more: Any) -> Case:
    _let_torchvision_be_imported()
    import timm

    model = timm.create_model(name, num_classes=100, **more)
    return Case(model=model, args=(torch.randn(batch, 3, side, side),))


def _let_torchvision_be_imported() -> None:
    from torchvision_beside_cpu import make_torchvision_importable

    make_torchvision_importable()


# Written out with torch alone.


class UNet(nn.Module):
    """Down twice and up twice; each way up is joined by what came down at that height."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(
            [self._twice(3, width), self._twice(width, 2 * width), self._twice(2 * width, 4 * width)]
        )
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)]
        )
        self.join = nn.ModuleList([self._twice(4 * width, 2 * width), self._twice(2 * width, width)])
        self.head = nn.Conv2d(width, 5, 1)

    @staticmethod
    def _twice(narrow: int, wide: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.Conv2d(wide, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        high = self.down[0](x)
        middle = self.down[1](self.pool(high))
        low = self.down[2](self.pool(middle))
        middle = self.join[0](torch.cat([self.up[0](low), middle], dim=1))
        return self.head(self.join[1](torch.cat([self.up[1](middle), high], dim=1)))


class Recurrent(nn.Module):
    """An embedding, a recurrent layer and a head."""

    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(500, 64)
        self.rnn = kind(64, 96, batch_first=True, **options)
        self.head = nn.Linear(192 if options.get("bidirectional") else 96, 500)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.rnn(self.embed(tokens))[0])


class LoRA(nn.Module):
    """A frozen linear layer beside two small ones that learn."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.into = nn.Linear(base.in_features, rank, bias=False)
        self.out = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.out(self.into(x)) * 0.5


class Checkpointed(nn.Module):
    """Blocks that run again in the backward pass."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.stem = nn.Linear(64, 128)
        self.blocks = nn.ModuleList(_mlp(128, 512, dropout=0.1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.use_reentrant)
        return x


class Autocast(nn.Module):
    """A forward pass that computes in bfloat16 what may be."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model(*args, **kwargs)


class TiedWords(nn.Module):
    """The embedding's matrix is the head's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(800, 96)
        self.body = _mlp(96, 384)
        self.head = nn.Linear(96, 800, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.embed(tokens)))


class Expanded(nn.Module):
    """Adds what has one row in memory and many by its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _mlp(64, 256)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        return self.body(x + position) * position


class Outcome(NamedTuple):
    loss: Tensor
    logits: Tensor


class Loss(nn.Module):
    """A model whose output has a loss, as those of transformers do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, target: Tensor) -> Outcome:
        logits = self.model(x)
        return Outcome(F.cross_entropy(logits, target), logits)


def unet() -> Case:
    return Case(model=UNet(), args=(torch.randn(2, 3, 64, 64),))


def recurrent(kind: type[nn.RNNBase], **options: Any) -> Case:
    return Case(model=Recurrent(kind, **options), args=(torch.randint(0, 500, (8, 40)),))


def transformer() -> Case:
    model = nn.Transformer(64, 4, 2, 2, dim_feedforward=256, dropout=0.1, batch_first=True)
    return Case(model=model, args=(torch.randn(4, 48, 64), torch.randn(4, 32, 64)))


def transformer_encoder(norm_first: bool) -> Case:
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.1, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return Case(model=model, args=(torch.randn(4, 64, 64),))


def attention_with_mask() -> Case:
    model = nn.MultiheadAttention(96, 4, batch_first=True)
    x = torch.randn(4, 80, 96)
    mask = nn.Transformer.generate_square_subsequent_mask(80)
    return Case(model=model, args=(x, x, x), kwargs={"attn_mask": mask, "need_weights": False})


def mlp() -> Case:
    return Case(model=_mlp(256, 1024), args=(torch.randn(512, 256),))


def mlp_with_loss() -> Case:
    model = Loss(_mlp(256, 1024, dropout=0.2))
    return Case(model=model, args=(torch.randn(512, 256), torch.randint(0, 256, (512,))))


def mlp_bf16() -> Case:
    return Case(model=_mlp(256, 1024).bfloat16(), args=(torch.randn(512, 256, dtype=torch.bfloat16),))


def lora() -> Case:
    model = nn.Sequential(*(layer for _ in range(3) for layer in (LoRA(nn.Linear(256, 256), 4), nn.GELU())))
    return Case(model=model, args=(torch.randn(512, 256),))


def checkpointed(use_reentrant: bool) -> Case:
    return Case(model=Checkpointed(use_reentrant), args=(torch.randn(1024, 64),))


def autocast_mlp() -> Case:
    return Case(model=Autocast(_mlp(256, 1024)), args=(torch.randn(512, 256),))


def autocast_gpt2() -> Case:
    case = gpt2()
    return Case(model=Autocast(case.model), kwargs=case.kwargs)


def autocast_cnn() -> Case:
    case = cnn()
    return Case(model=Autocast(case.model), args=case.args)


def tied() -> Case:
    return Case(model=TiedWords(), args=(torch.randint(0, 800, (8, 64)),))


def frozen_half() -> Case:
    model = nn.Sequential(_mlp(256, 512), _mlp(256, 512))
    model[0].requires_grad_(False)
    return Case(model=model, args=(torch.randn(512, 256),))


def cnn() -> Case:
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.AvgPool2d(2),
        nn.Conv2d(32, 32, 3, stride=2), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(32, 10),
    )  # fmt: skip
    return Case(model=model, args=(torch.randn(4, 3, 48, 48),))


def channels_last() -> Case:
    case = cnn()
    case.model.to(memory_format=torch.channels_last)
    return Case(model=case.model, args=(case.args[0].to(memory_format=torch.channels_last),))


def depthwise() -> Case:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 1), nn.Conv2d(32, 32, 5, padding=2, groups=32), nn.SiLU(),
        nn.Conv2d(32, 64, 1), nn.Conv2d(64, 64, 3, padding=2, dilation=2, groups=64), nn.Hardswish(),
    )  # fmt: skip
    return Case(model=model, args=(torch.randn(4, 3, 48, 48),))


def group_norm() -> Case:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU(), nn.Upsample(scale_factor=2),
        nn.Conv2d(32, 16, 3), nn.InstanceNorm2d(16, affine=True), nn.LeakyReLU(0.1), nn.PixelShuffle(2),
    )  # fmt: skip
    return Case(model=model, args=(torch.randn(4, 3, 32, 32),))


def conv1d() -> Case:
    model = nn.Sequential(
        nn.Conv1d(8, 64, 9), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(64, 64, 5, dilation=2), nn.Tanh()
    )
    return Case(model=model, args=(torch.randn(4, 8, 1000),))


def conv3d() -> Case:
    model = nn.Sequential(
        nn.Conv3d(3, 16, 3), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(16, 16, 3)
    )
    return Case(model=model, args=(torch.randn(2, 3, 12, 24, 24),))


def embedding() -> Case:
    model = nn.Sequential(
        nn.Embedding(2000, 64, padding_idx=0, sparse=False), nn.LayerNorm(64), nn.Linear(64, 32)
    )
    return Case(model=model, args=(torch.randint(0, 2000, (16, 128)),))


def embedding_bag() -> Case:
    model = nn.Sequential(nn.EmbeddingBag(2000, 64, mode="sum"), nn.Linear(64, 512), nn.GLU())
    return Case(model=model, args=(torch.randint(0, 2000, (256, 20)),))


def expanded() -> Case:
    position = torch.randn(1, 1, 64).expand(8, 128, 64)
    return Case(model=Expanded(), kwargs={"x": torch.randn(8, 128, 64), "position": position})


def _mlp(width: int, inner: int, dropout: float = 0.0) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width), nn.Linear(width, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, width)
    )


CASES: dict[str, tuple[Callable[[], Case], tuple[Mode, ...]]] = {
    "llama sdpa": (llama, BOTH),
    "llama eager": (partial(llama, "eager"), BOTH),
    "llama bf16": (llama_bf16, BOTH),
    "llama attention mask": (partial(with_attention_mask, llama), BOTH),
    "llama LoRA": (llama_lora, BOTH),
    "llama checkpointed": (partial(llama_checkpointed, False), ("train",)),
    "llama checkpointed, reentrant": (partial(llama_checkpointed, True), ("train",)),
    "gpt2 sdpa": (gpt2, BOTH),
    "gpt2 eager": (partial(gpt2, "eager"), BOTH),
    "gpt2 autocast": (autocast_gpt2, BOTH),
    "bert sdpa": (bert, BOTH),
    "bert eager": (partial(bert, "eager"), BOTH),
    "bert attention mask": (partial(with_attention_mask, bert), BOTH),
    "distilbert": (distilbert, BOTH),
    "t5": (t5, BOTH),
    "mixtral": (mixtral, BOTH),
    "qwen2": (qwen2, BOTH),
    "qwen3": (qwen3, BOTH),
    "gemma2": (gemma2, BOTH),
    "vit": (vit, BOTH),
    "clip": (clip, BOTH),
    "whisper": (whisper, BOTH),
    "wav2vec2": (wav2vec2, BOTH),
    "resnet18": (partial(timm_model, "resnet18", side=128, drop_rate=0.1), BOTH),
    "resnet50": (partial(timm_model, "resnet50"), BOTH),
    "convnext": (partial(timm_model, "convnext_atto", side=96), BOTH),
    "efficientnet": (partial(timm_model, "efficientnet_b0", drop_path_rate=0.1), BOTH),
    "mobilenet_v3": (partial(timm_model, "mobilenetv3_small_100", batch=8), BOTH),
    "swin": (
        partial(timm_model, "swin_tiny_patch4_window7_224", batch=2, side=224, depths=(1, 1, 2, 1)),
        BOTH,
    ),
    "mlp-mixer": (partial(timm_model, "mixer_s32_224", side=224), BOTH),
    "densenet": (partial(timm_model, "densenet121", block_config=(2, 2, 3, 2)), BOTH),
    "unet": (unet, BOTH),
    "lstm": (partial(recurrent, nn.LSTM), BOTH),
    "lstm bidirectional": (partial(recurrent, nn.LSTM, bidirectional=True, num_layers=2, dropout=0.1), BOTH),
    "gru": (partial(recurrent, nn.GRU), BOTH),
    "gru bidirectional": (partial(recurrent, nn.GRU, bidirectional=True), BOTH),
    "rnn": (partial(recurrent, nn.RNN, num_layers=2), BOTH),
    "nn.Transformer": (transformer, BOTH),
    "nn.TransformerEncoder": (partial(transformer_encoder, False), BOTH),
    "nn.TransformerEncoder, norm first": (partial(transformer_encoder, True), BOTH),
    "nn.MultiheadAttention": (attention_with_mask, BOTH),
    "mlp": (mlp, BOTH),
    "mlp with loss": (mlp_with_loss, BOTH),
    "mlp bf16": (mlp_bf16, BOTH),
    "mlp autocast": (autocast_mlp, BOTH),
    "LoRA": (lora, BOTH),
    "checkpointed": (partial(checkpointed, False), ("train",)),
    "checkpointed, reentrant": (partial(checkpointed, True), ("train",)),
    "tied embedding": (tied, BOTH),
    "frozen first half": (frozen_half, BOTH),
    "cnn, in-place relu": (cnn, BOTH),
    "cnn channels last": (channels_last, BOTH),
    "cnn autocast": (autocast_cnn, BOTH),
    "depthwise": (depthwise, BOTH),
    "group norm": (group_norm, BOTH),
    "conv1d": (conv1d, BOTH),
    "conv3d": (conv3d, BOTH),
    "embedding": (embedding, BOTH),
    "embedding bag": (embedding_bag, BOTH),
    "expanded argument": (expanded, BOTH),
}
