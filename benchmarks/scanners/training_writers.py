"""What training leaves: Lightning, Hugging Face's libraries, OmegaConf and Hydra, timm."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from genuine import network  # of the tests
from scanners.exchange_writers import TEMPLATES

os.environ |= {"HF_HUB_OFFLINE": "1", "WANDB_DISABLED": "true", "TOKENIZERS_PARALLELISM": "false"}


def _batches() -> Any:
    return DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 2)), batch_size=4)


def lightning_files(folder: Path) -> None:
    """Checkpoints of short trainings, with hyper-parameters of several kinds and callbacks."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import (
        EarlyStopping,
        LearningRateMonitor,
        ModelCheckpoint,
        StochasticWeightAveraging,
    )
    from lightning.pytorch.loggers import CSVLogger
    from omegaconf import OmegaConf

    from scanners.lightning_module import Fitted

    structured = OmegaConf.create(
        {"optim": {"lr": 0.1, "betas": [0.9, 0.99]}, "layers": [4, 3, 2], "name": "x"}
    )
    given: dict[str, Any] = {
        "plain": {"lr": 0.1},
        "namespace": {"lr": 0.1, "settings": Namespace(layers=[4, 3], flag=True, path=Path("runs/1"))},
        "omegaconf": {"lr": 0.1, "settings": structured},
        "module": {"lr": 0.1, "settings": {"inner": {"deep": [1, 2, {"a": None}]}, "dtype": torch.float16}},
    }
    for name, values in given.items():
        callbacks = [
            ModelCheckpoint(folder / name, save_last=True, monitor="loss", filename="best"),
            EarlyStopping("loss"),
            LearningRateMonitor(),
            *([StochasticWeightAveraging(0.1)] if name == "plain" else []),
        ]
        trainer = Trainer(
            max_epochs=2,
            callbacks=callbacks,
            logger=CSVLogger(folder / name, name="logs"),
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            log_every_n_steps=1,
        )
        trainer.fit(Fitted(**values), _batches(), _batches())
        trainer.save_checkpoint(folder / name / "weights.ckpt", weights_only=True)


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    made.train_from_iterator(
        ["a cat and a dog"] * 9, trainers.BpeTrainer(special_tokens=special, show_progress=False)
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def _language_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=2, pad_token_id=3, **sizes))


class _Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": torch.arange(6), "labels": torch.arange(6)}


def trainer_folder(folder: Path) -> None:
    """A training with Hugging Face's Trainer: its checkpoints, and the model at the end."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(_language_model(), arguments, train_dataset=_Texts(), processing_class=_tokenizer())
    trainer.train()
    trainer.save_model(str(folder / "final"))
    trainer.save_state()


def tokenizer_folders(folder: Path) -> None:
    """Tokenizers with and without chat templates; a length without bound is written with 31 digits."""
    plain = _tokenizer()
    plain.save_pretrained(folder / "plain")
    for name, template in TEMPLATES.items():
        with_template = _tokenizer()
        with_template.chat_template = template
        with_template.save_pretrained(folder / name)
        with_template.save_pretrained(folder / f"{name}-inline", save_jinja_files=False)
    several = _tokenizer()
    several.chat_template = {"default": TEMPLATES["chatml"], "tool_use": TEMPLATES["tools"]}
    several.save_pretrained(folder / "several")


def transformers_folders(folder: Path) -> None:
    from transformers import BertConfig, BertModel, GenerationConfig, ViTConfig, ViTForImageClassification

    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = _language_model()
    model.save_pretrained(folder / "llama")
    model.save_pretrained(folder / "shards", max_shard_size="10KB")
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    BertModel(BertConfig(vocab_size=64, **small)).save_pretrained(folder / "bert")
    ViTForImageClassification(ViTConfig(image_size=32, patch_size=16, **small)).save_pretrained(
        folder / "vit"
    )
    GenerationConfig(max_new_tokens=5, do_sample=True, temperature=0.7).save_pretrained(folder / "generation")


def accelerate_folder(folder: Path) -> None:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    net = network()
    optimizer = torch.optim.AdamW(net.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    prepared = accelerator.prepare(net, optimizer, _batches(), schedule)
    for inputs, wanted in prepared[2]:
        accelerator.backward((prepared[0](inputs) - wanted).square().mean())
        prepared[1].step()
        prepared[3].step()
    accelerator.save_state(str(folder / "safe"))
    accelerator.save_state(str(folder / "pickled"), safe_serialization=False)


def peft_folders(folder: Path) -> None:
    from peft import LoraConfig, PromptTuningConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    get_peft_model(_language_model(), lora).save_pretrained(folder / "lora")
    get_peft_model(_language_model(), lora).save_pretrained(folder / "lora-bin", safe_serialization=False)
    prompts = PromptTuningConfig(num_virtual_tokens=4, task_type="CAUSAL_LM")
    get_peft_model(_language_model(), prompts).save_pretrained(folder / "prompts")


def diffusers_folders(folder: Path) -> None:
    from diffusers import AutoencoderKL, DDIMScheduler, DDPMPipeline, UNet2DModel

    blocks = {
        "down_block_types": ("DownBlock2D",),
        "up_block_types": ("UpBlock2D",),
        "block_out_channels": (8,),
    }
    picture = UNet2DModel(sample_size=8, layers_per_block=1, norm_num_groups=4, **blocks)
    DDPMPipeline(picture, DDIMScheduler()).save_pretrained(folder / "pipeline")
    AutoencoderKL(block_out_channels=(8,), norm_num_groups=4).save_pretrained(folder / "autoencoder")


def sentence_transformers_folder(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel

    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    base = folder / "base"
    BertModel(BertConfig(vocab_size=64, **small)).save_pretrained(base)
    _tokenizer().save_pretrained(base)
    words = models.Transformer(str(base), max_seq_length=16)
    pooling = models.Pooling(words.get_word_embedding_dimension())
    SentenceTransformer(modules=[words, pooling, models.Normalize()]).save(str(folder / "embedding"))


def sentencepiece_files(folder: Path) -> None:
    import sentencepiece

    for kind in ("unigram", "bpe", "char"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a cat and a dog", "two dogs and no cat"] * 50),
            model_prefix=str(folder / kind),
            model_type=kind,
            vocab_size=20,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a cat and a dog", "two dogs and no cat"] * 50),
        model_prefix=str(folder / "pads-first"),
        vocab_size=20,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        user_defined_symbols=["<mask>", "<|im_start|>"],
        minloglevel=2,
    )


@dataclass
class Typed:
    """Settings with types, as Hydra's users declare them."""

    lr: float = 0.1
    layers: list[int] = field(default_factory=lambda: [4, 3])


def omegaconf_files(folder: Path) -> None:
    from omegaconf import OmegaConf

    content = {
        "optim": {"lr": 0.1, "betas": [0.9, 0.99]},
        "path": Path("a/b"),
        "name": "${optim.lr}",
        "none": None,
    }
    config = OmegaConf.create(content)
    typed = OmegaConf.structured(Typed)
    for name, each in {
        "plain": config,
        "list": OmegaConf.create([1, "a", {"b": 2.5}]),
        "typed": typed,
    }.items():
        OmegaConf.save(each, folder / f"{name}.yaml")
        if name != "typed":  # that one names a class of ours
            (folder / f"{name}.pkl").write_bytes(pickle.dumps(each))
    torch.save({"config": config, "state_dict": network().state_dict()}, folder / "with-weights.pt")


_HYDRA = """
import hydra

@hydra.main(version_base=None, config_path=".", config_name="config")
def main(config):
    print(config.optim.lr)

main()
"""


def hydra_outputs(folder: Path) -> None:
    """What a run of Hydra leaves in its folder: three YAML files and a log."""
    (folder / "config.yaml").write_text("optim:\n  lr: 0.1\nlayers: [4, 3, 2]\nname: ${optim.lr}\n")
    command = [sys.executable, "-c", _HYDRA, "--config-dir", str(folder), f"hydra.run.dir={folder}/outputs"]
    subprocess.run([*command, "+optim.momentum=0.9"], check=True, capture_output=True)


def timm_files(folder: Path) -> None:
    import timm
    from safetensors.torch import save_file
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import CheckpointSaver, ModelEmaV2

    model = timm.create_model("resnet10t", num_classes=4)
    torch.save(model.state_dict(), folder / "weights.pth")
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    optimizer = create_optimizer_v2(model, "lamb", lr=0.1)
    arguments = Namespace(model="resnet10t", lr=0.1, mean=(0.5, 0.5), output=None)
    saver = CheckpointSaver(model, optimizer, arguments, ModelEmaV2(model), checkpoint_dir=str(folder))
    saver.save_checkpoint(0, metric=0.5)
    torch.save(CosineLRScheduler(optimizer, 10).state_dict(), folder / "schedule.pt")


def whole_models(folder: Path) -> None:
    """Models with their classes: loading imports the packages that have them."""
    import timm

    torch.save(timm.create_model("resnet10t", num_classes=4), folder / "timm.pt")
    torch.save(timm.create_model("test_vit", num_classes=4), folder / "timm-vit.pt")
    torch.save(_language_model(), folder / "transformers.pt")
    (folder / "tokenizer.pkl").write_bytes(pickle.dumps(_tokenizer()))


WRITERS = {
    "lightning": lightning_files,
    "trainer": trainer_folder,
    "tokenizers": tokenizer_folders,
    "transformers": transformers_folders,
    "accelerate": accelerate_folder,
    "peft": peft_folders,
    "diffusers": diffusers_folders,
    "sentence-transformers": sentence_transformers_folder,
    "sentencepiece": sentencepiece_files,
    "omegaconf": omegaconf_files,
    "hydra": hydra_outputs,
    "timm": timm_files,
}
WITH_CODE = {"whole-models": whole_models}
