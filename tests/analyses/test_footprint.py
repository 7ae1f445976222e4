"""What files take in memory, against arithmetic by hand on files that their own libraries wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Quantization
from safetensors.numpy import save_file

import modelglass as mg
from command_line import run
from modelglass.errors import UsageError

LAYERS, WIDTH, KV_HEADS, HEAD = 4, 256, 2, 32
# Blocks of 256 weights: 144 bytes of Q4_K, 210 of Q6_K.
Q4, Q6 = 144, 210
ATTENTION = 4 * WIDTH + (WIDTH + 2 * KV_HEADS * HEAD + WIDTH) * Q4  # the norm in float32, and four matrices
DENSE = [ATTENTION + 512 * 2 * (Q6 if layer % 2 else Q4) for layer in range(LAYERS)]
EXPERTS = 8 * 512 * 2 * Q4
TABLE, OUTPUT = 1000 * Q4, 1000 * Q6 + 4 * WIDTH
CACHE = 2 * 2 * KV_HEADS * HEAD  # bytes of a layer for a token: keys and values in float16


def write(folder: Path, *, experts: bool = False, tied: bool = False, kv_heads: Any = KV_HEADS) -> Path:
    path = folder / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_head_count(WIDTH // HEAD)
    writer.add_head_count_kv(kv_heads)
    packed(writer, "token_embd.weight", (1000, WIDTH), Quantization.Q4_K)
    for layer in range(LAYERS):
        block, type = f"blk.{layer}", Quantization.Q6_K if layer % 2 else Quantization.Q4_K
        writer.add_tensor(f"{block}.attn_norm.weight", np.zeros(WIDTH, np.float32))
        for name, rows in (("q", WIDTH), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD), ("output", WIDTH)):
            packed(writer, f"{block}.attn_{name}.weight", (rows, WIDTH), Quantization.Q4_K)
        if experts:
            packed(writer, f"{block}.ffn_down_exps.weight", (8, 512, 2 * WIDTH), Quantization.Q4_K)
        else:
            packed(writer, f"{block}.ffn_down.weight", (512, 2 * WIDTH), type)
    writer.add_tensor("output_norm.weight", np.zeros(WIDTH, np.float32))
    if not tied:
        packed(writer, "output.weight", (1000, WIDTH), Quantization.Q6_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def packed(writer: gguf.GGUFWriter, name: str, shape: tuple[int, ...], type: Quantization) -> None:
    block, nbytes = gguf.GGML_QUANT_SIZES[type]
    values = np.zeros((*shape[:-1], shape[-1] // block * nbytes), np.uint8)
    writer.add_tensor(name, values, raw_dtype=type)


def test_weights_count_as_stored_and_the_cache_by_the_context(tmp_path: Path) -> None:
    found = mg.footprint(write(tmp_path), context=[1000, 4096])
    assert found.weight_nbytes == sum(DENSE) + TABLE + OUTPUT
    on_device = sum(DENSE) + OUTPUT
    assert [(at.context, at.cache_nbytes, at.nbytes) for at in found.contexts] == [
        (1000, 1000 * LAYERS * CACHE, on_device + 1000 * LAYERS * CACHE),
        (4096, 4096 * LAYERS * CACHE, on_device + 4096 * LAYERS * CACHE),
    ]
    assert found.fits is None
    assert found.scores_nbytes == 512 * 1000 * 4


@pytest.mark.parametrize("layers", range(LAYERS + 1))
def test_the_last_layers_go_to_the_device_each_with_its_cache(tmp_path: Path, layers: int) -> None:
    room = sum(DENSE[LAYERS - layers :]) + layers * 1000 * CACHE
    path = write(tmp_path)
    exact = mg.footprint(path, device_memory=max(room, 1), context=1000).contexts[0]
    assert (exact.layers, exact.output, exact.device_nbytes) == (layers, False, room)
    assert exact.host_nbytes == sum(DENSE) + TABLE + OUTPUT + LAYERS * 1000 * CACHE - room
    if layers:
        less = mg.footprint(path, device_memory=room - 1, context=1000).contexts[0]
        assert less.layers == layers - 1


def test_with_its_output_layer_a_model_fits(tmp_path: Path) -> None:
    room = sum(DENSE) + OUTPUT + 1000 * LAYERS * CACHE
    found = mg.footprint(write(tmp_path), device_memory=room, context=1000)
    assert (found.fits, found.margin_nbytes, found.largest_context) == (True, 0, 1000)
    assert found.contexts[0].host_nbytes == TABLE
    assert "--n-gpu-layers 5" in mg.render(found)
    assert not mg.footprint(tmp_path / "m.gguf", device_memory=room - 1, context=1000).fits


def test_a_tied_output_layer_is_a_second_copy(tmp_path: Path) -> None:
    found = mg.footprint(write(tmp_path, tied=True), context=1)
    assert found.weight_nbytes == sum(DENSE) + TABLE + 4 * WIDTH
    assert found.contexts[0].nbytes == sum(DENSE) + TABLE + 4 * WIDTH + LAYERS * CACHE


def test_experts_can_stay_on_the_host(tmp_path: Path) -> None:
    path = write(tmp_path, experts=True)
    room = LAYERS * ATTENTION + OUTPUT + 1000 * LAYERS * CACHE
    found = mg.footprint(path, device_memory=room, context=1000, experts_on_host=True)
    assert (found.fits, found.margin_nbytes) == (True, 0)
    assert found.contexts[0].host_nbytes == LAYERS * EXPERTS + TABLE
    assert not mg.footprint(path, device_memory=room, context=1000).fits
    assert mg.footprint(path, context=1000).contexts[0].nbytes == room + LAYERS * EXPERTS


def test_layers_with_heads_of_their_own_number_have_no_known_cache(tmp_path: Path) -> None:
    found = mg.footprint(write(tmp_path, kv_heads=[2, 2, 1, 1]), context=1000)
    assert found.contexts[0].cache_nbytes is None
    assert "cache-unknown" in {note.code for note in found.notes}


def llama(folder: Path) -> Path:
    folder.mkdir()
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    for number in (1, 2):
        tensors = {f"model.layers.{number - 1}.mlp.weight": np.zeros((64, 64), np.float16)}
        save_file(tensors, folder / f"model-{number:05}-of-00002.safetensors")
    return folder


def test_a_folder_of_safetensors_with_a_configuration(tmp_path: Path) -> None:
    weights, per_token = 2 * 64 * 64 * 2, 2 * 2 * 2 * 16 * 2
    found = mg.footprint(llama(tmp_path / "m"), device_memory=weights + 5000 * per_token)
    assert found.weight_nbytes == weights
    assert [at.context for at in found.contexts] == [8192, 2048, 4096]
    assert [at.cache_nbytes for at in found.contexts] == [n * per_token for n in (8192, 2048, 4096)]
    assert [at.fits for at in found.contexts] == [False, True, True]
    assert found.largest_context == 5000
    assert found.layers is None


def pipeline(folder: Path) -> Path:
    parts = {"unet": 1000, "vae": 100, "text_encoder": 500}
    for name, rows in parts.items():
        (folder / name).mkdir(parents=True)
        stem = "model" if name == "text_encoder" else "diffusion_pytorch_model"
        save_file({"proj.weight": np.zeros((rows, 8), np.float16)}, folder / name / f"{stem}.safetensors")
    (folder / "scheduler").mkdir()
    index = {
        "_class_name": "StableDiffusionPipeline",
        "scheduler": ["diffusers", "PNDMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
        "safety_checker": [None, None],
        "../vae": ["diffusers", "AutoencoderKL"],
    }
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("file", ["", "model_index.json"])
def test_a_pipeline_is_its_parts_together(tmp_path: Path, file: str) -> None:
    path = pipeline(tmp_path / "p") / file
    report = mg.inspect(path)
    assert report.model.modules[0].children == ("text_encoder", "unet", "vae")
    assert [module.type for module in report.model.modules if "." not in module.path][1:3] == [
        "CLIPTextModel",
        "UNet2DConditionModel",
    ]
    assert report.counts is not None
    assert report.counts.params == 1600 * 8
    found = mg.footprint(path, device_memory=1600 * 16)
    assert (found.fits, found.margin_nbytes, found.contexts[0].cache_nbytes) == (True, 0, None)
    assert {part.name: part.nbytes for part in found.parts} == {
        "text_encoder": 8000,
        "unet": 16_000,
        "vae": 1600,
    }
    assert {note.code for note in mg.footprint(path, context=8).notes} == {"cache-unknown"}


@pytest.mark.parametrize(
    ("index", "told"),
    [("{}", "no part of this pipeline has weights"), ("[1]", "does not name the parts"), ("{", "JSON")],
)
def test_an_index_that_is_not_one_is_refused(
    tmp_path: Path, index: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model_index.json").write_text(index)
    code, _, err = run("fit", str(tmp_path), "--memory", "1GiB", capsys=capsys)
    assert code == 3
    assert told in err


def test_a_part_that_leads_out_of_its_pipeline_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = pipeline(tmp_path / "p")
    (path / "vae").rename(tmp_path / "elsewhere")
    (path / "vae").symlink_to(tmp_path / "elsewhere")
    code, _, err = run(str(path), capsys=capsys)
    assert code == 3
    assert "leads out of the folder" in err


@pytest.mark.parametrize("format", ["text", "markdown", "csv", "json", "html"])
def test_the_commands_in_every_format(
    tmp_path: Path, format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (str(write(tmp_path)), "--context", "1k", "--format", format)
    code, out, _ = run("fit", *asked, "--memory", "1MiB", capsys=capsys)
    assert code == 1
    assert "1,024" in out or "1024" in out
    code, out, _ = run("memory", *asked, capsys=capsys)
    assert code == 0
    assert "1,024" in out or "1024" in out


def test_what_is_saved_reads_back_equal(tmp_path: Path) -> None:
    found = mg.footprint(write(tmp_path), device_memory="1MiB", context=1000)
    mg.save(found, tmp_path / "f.json")
    assert mg.load(tmp_path / "f.json", mg.Footprint) == found


def test_options_of_files_are_refused_for_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("fit", "torch.nn:ReLU", "--memory", "1MiB", "--context", "8k", capsys=capsys)
    assert code == 2
    assert "only to weights in files" in err


@pytest.mark.parametrize("wrong", ["8q", "0", "-1", "8 KiB"])
def test_what_is_not_a_number_of_tokens_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run("memory", "m.gguf", f"--context={wrong}", capsys=capsys)
    assert code == 2
    assert "is not a number of tokens" in err
    assert "8k for 8 × 1,024" in err


def test_code_has_no_files_of_weights() -> None:
    with pytest.raises(UsageError, match="no weights to read"):
        mg.footprint("torch.nn:ReLU")
