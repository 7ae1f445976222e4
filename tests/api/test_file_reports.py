"""Reports of files and folders: what they say of a Hugging Face model, and what they say when it is none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import modelglass as mg
from command_line import run
from genuine import lightning, network, trained
from modelglass.errors import FileError, InspectError, LimitError, NotAModelError, TargetError, UsageError
from modelglass.report import Architecture, Counts, Report
from torchvision_beside_cpu import make_torchvision_importable


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A mixture of experts in shards and a model with tied embeddings, as their library writes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        make_torchvision_importable()
        from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        folder = tmp_path_factory.mktemp("models")
        small: dict[str, Any] = {
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 12,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 100,
        }
        experts = MixtralForCausalLM(MixtralConfig(**small, num_local_experts=4, num_experts_per_tok=2))
        experts.save_pretrained(folder / "experts", max_shard_size="300KB")
        for size in ("10GB", "20KB", "70KB"):
            experts.save_pretrained(folder / size, max_shard_size=size)
        tied = LlamaForCausalLM(LlamaConfig(**small, tie_word_embeddings=True))
        tied.save_pretrained(folder / "tied")
        (folder / "bin").mkdir()
        torch.save(tied.state_dict(), folder / "bin" / "pytorch_model.bin")
        shutil.copy(folder / "tied" / "config.json", folder / "bin")
        _write_shards(tied.state_dict(), folder / "bins")
        shutil.copy(folder / "tied" / "config.json", folder / "bins")
        params = {
            "experts": sum(p.numel() for p in experts.parameters()),
            "tied": sum(p.numel() for p in tied.parameters()),
        }
        (folder / "params.json").write_text(json.dumps(params))
        yield folder


def _write_shards(state: dict[str, torch.Tensor], folder: Path) -> None:
    folder.mkdir()
    names = [name for name in state if name != "lm_head.weight"]
    where = {}
    for number, part in enumerate((names[:9], names[9:]), 1):
        file = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save({name: state[name].clone() for name in part}, folder / file)
        where |= dict.fromkeys(part, file)
    total = sum(state[name].nbytes for name in names)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))


def known(models: Path, name: str) -> int:
    return int(json.loads((models / "params.json").read_text())[name])


def architecture_of(report: Report) -> Architecture:
    assert report.checkpoint is not None
    assert report.checkpoint.architecture is not None
    return report.checkpoint.architecture


def counts_of(report: Report) -> Counts:
    assert report.counts is not None
    return report.counts


@pytest.mark.parametrize("size", ["20KB", "70KB"])
def test_shards_fold_and_are_ordered_as_one_file_is(models: Path, size: str) -> None:
    one, shards = mg.inspect(models / "10GB"), mg.inspect(models / size)
    assert len(list((models / size).glob("model-*.safetensors"))) > 12  # blocks are cut in many places
    assert shards.model.modules == one.model.modules
    assert shards.blocks == one.blocks
    layers = next(group for group in one.blocks or () if group.paths[0] == "model.layers.0")
    assert layers.paths == tuple(f"model.layers.{number}" for number in range(12))


@pytest.mark.parametrize(
    "ordered",
    [
        ("down", "down.1", "down.2", "down.10", "up"),
        ("conv1", "conv2", "conv10"),
        ("stage2_conv9", "stage2_conv10", "stage10_conv1"),
    ],
)
def test_numbers_in_names_count_as_numbers(tmp_path: Path, ordered: tuple[str, ...]) -> None:
    save_file({f"{name}.weight": torch.zeros(2) for name in ordered}, tmp_path / "m.safetensors")
    report = mg.inspect(tmp_path / "m.safetensors")
    assert tuple(module.path for module in report.model.modules) == ("", *ordered)


@pytest.mark.parametrize("file", ["", "model.safetensors.index.json"])
def test_a_mixture_of_experts_in_shards(models: Path, file: str) -> None:
    report = mg.inspect(models / "experts" / file)
    found = architecture_of(report)
    assert (found.name, found.layers, found.experts, found.experts_per_token) == (
        "MixtralForCausalLM",
        12,
        4,
        2,
    )
    assert counts_of(report).params == found.total_params == known(models, "experts")
    idle = 12 * 2 * 3 * 32 * 48  # two of four experts, each of three matrices
    assert counts_of(report).active_params == found.active_params == known(models, "experts") - idle
    assert found.kv_cache_nbytes_per_token == 12 * 2 * 2 * (32 // 4) * 4
    layers = next(module for module in report.model.modules if module.path == "model.layers")
    assert layers.children == tuple(f"model.layers.{number}" for number in range(12))
    text = mg.render(report, depth=0)
    assert text.count("active ") == 1
    assert f"{found.active_params:,} per token" in text


def test_one_shard_says_that_it_is_one(models: Path) -> None:
    shard = min((models / "experts").glob("model-*.safetensors"))
    report = mg.inspect(shard)
    assert [note.code for note in report.notes if note.severity == "warning"] == ["one-shard"]
    assert 0 < counts_of(report).params < known(models, "experts")


@pytest.mark.parametrize("folder", ["tied", "bins"])
def test_a_tied_output_is_absent_by_design(models: Path, folder: str) -> None:
    report = mg.inspect(models / folder)
    assert architecture_of(report).tied_output is True
    assert counts_of(report).params == known(models, "tied")
    assert "absent by design" in mg.render(report)
    assert "0–11 ×12" in mg.render(report)


def test_a_tied_output_that_is_there_counts_once(models: Path) -> None:
    report = mg.inspect(models / "bin")
    assert counts_of(report).tied == {"lm_head.weight": "model.embed_tokens.weight"}
    assert counts_of(report).params == known(models, "tied")
    assert architecture_of(report).tied_output is True
    assert "absent by design" not in mg.render(report)


@pytest.mark.slow
def test_a_configuration_beside_weights_is_built_without_them(models: Path) -> None:
    built, stored = mg.inspect(models / "tied" / "config.json"), mg.inspect(models / "tied")
    assert built.checkpoint is None
    assert built.model.source == "torch"
    assert counts_of(built).params == counts_of(stored).params


# Folders


def save(path: Path) -> None:
    if path.suffix == ".safetensors":
        save_file({"w": torch.ones(3)}, path)
    elif path.suffix == ".gguf":
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tensor("w", np.ones(3, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    elif path.suffix in (".txt", ".json"):
        path.write_text("{}")
    else:
        torch.save({"w": torch.ones(3)}, path)


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["x.gguf", "README.txt"], "x.gguf"),
        (["model.safetensors", "adapter.safetensors"], "model.safetensors"),
        (["model.safetensors", "pytorch_model.bin"], "model.safetensors"),
        (["pytorch_model.bin", "training_args.bin", "optimizer.pt", "rng_state_0.pth"], "pytorch_model.bin"),
        (["last.ckpt"], "last.ckpt"),
    ],
)
def test_the_model_of_a_folder(files: list[str], chosen: str, tmp_path: Path) -> None:
    for file in files:
        save(tmp_path / file)
    report = mg.inspect(tmp_path)
    assert report.checkpoint is not None
    assert [Path(file.path).name for file in report.checkpoint.files] == [chosen]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "this folder is empty"),
        (["README.txt", "notes.txt"], "no model is in this folder"),
        (["optimizer.pt"], "no model is in this folder"),
        (["a.safetensors", "b.safetensors"], "2 files here may be the model"),
        (["unet/model.safetensors", "vae/model.safetensors"], "its folders 'unet', 'vae'"),
    ],
)
def test_a_folder_without_one_model(files: list[str], words: str, tmp_path: Path) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        save(tmp_path / file)
    with pytest.raises(NotAModelError, match=words):
        mg.inspect(tmp_path)


def test_a_folder_with_a_configuration_of_nothing_is_told(tmp_path: Path) -> None:
    save(tmp_path / "config.json")
    with pytest.raises(TargetError, match="no part of it names a model"):
        mg.inspect(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0)
    with pytest.raises(NotAModelError, match="cannot be read"):
        mg.inspect(tmp_path / "d")


# Calls that cannot be answered


def test_a_missing_file_is_looked_for(tmp_path: Path) -> None:
    save(tmp_path / "model.pt")
    with pytest.raises(TargetError, match=r"did you mean model\.pt"):
        mg.inspect(tmp_path / "modle.pt")
    with pytest.raises(TargetError, match="check the path"):
        mg.inspect(tmp_path / "something-else.gguf")
    with pytest.raises(TargetError, match="does not exist either"):
        mg.inspect(tmp_path / "nowhere" / "model.pt")


def test_a_file_takes_no_inputs(tmp_path: Path) -> None:
    save(tmp_path / "model.pt")
    with pytest.raises(InspectError, match="inputs does not apply to"):
        mg.inspect(tmp_path / "model.pt", inputs=torch.zeros(3))


def test_limits(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "x.pt")
    with pytest.raises(LimitError, match="tensors = 3"):
        mg.inspect(tmp_path / "x.pt", limits={"tensors": 3})
    with pytest.raises(UsageError, match="no limit 'tensor'"):
        mg.inspect(tmp_path / "x.pt", limits={"tensor": 3})
    with pytest.raises(UsageError, match="must be a positive integer"):
        mg.inspect(tmp_path / "x.pt", limits={"tensors": -1})
    assert len(mg.inspect(tmp_path / "x.pt", limits={"tensors": 9}).model.tensors) == 9


def test_a_text_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello\n" * 20)
    with pytest.raises(FileError, match="text, not a model"):
        mg.inspect(tmp_path / "x.txt")


# Outputs


def contents() -> dict[str, Any]:
    return {
        "plain": network().state_dict(),
        "trained": {**trained(torch.optim.Adam), "norm_mean": torch.tensor([0.485, 0.456, 0.406])},
        "lightning": lightning(),
        "module": network(),
        "slice": {"w": torch.zeros(10_000)[:3]},
    }


@pytest.mark.parametrize("name", contents())
def test_reports_of_files_round_trip(name: str, tmp_path: Path) -> None:
    torch.save(contents()[name], tmp_path / "x.pt")
    report = mg.inspect(tmp_path / "x.pt", stats=True)
    mg.save(report, tmp_path / "r.json")
    assert mg.load(tmp_path / "r.json") == report


@pytest.mark.parametrize("format", ["json", "markdown"])
def test_other_outputs_of_the_command(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save(contents()["trained"], tmp_path / "x.pt")
    code, out, _ = run(str(tmp_path / "x.pt"), "--format", format, capsys=capsys)
    assert code == 0
    if format == "json":
        parts = json.loads(out)["checkpoint"]["parts"]
        mean = next(part for part in parts if part["key"] == "norm_mean")
        assert mean["value"] == [0.485, 0.456, 0.406]
    else:
        assert "norm\\_mean" in out
        assert "0.485, 0.456, 0.406" in out


@pytest.mark.parametrize("name", contents())
@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_texts_fit_their_width(name: str, width: int, tmp_path: Path) -> None:
    torch.save(contents()[name], tmp_path / "x.pt")
    text = mg.render(mg.inspect(tmp_path / "x.pt"), width=width)
    tables = text.partition("\ninfo [")[0].partition("\nwarning [")[0]
    lines = [line for line in tables.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= width
    assert "\n\n\n" not in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_the_normalisation_is_in_the_text(tmp_path: Path) -> None:
    torch.save(contents()["trained"], tmp_path / "x.pt")
    text = mg.render(mg.inspect(tmp_path / "x.pt"))
    assert "norm_mean: a tensor 3 float32, 12 B; [0.485, 0.456, 0.406]" in text
    assert "optimizer: Adam; 18 tensors, 256 B; of 6 parameters; lr=0.1" in text
