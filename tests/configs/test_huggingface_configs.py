"""Models of transformers from their config.json, with inputs made for them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import modelglass as mg
from command_line import run
from opened import build

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "num_hidden_layers": 2}
TEXT = {**SMALL, "vocab_size": 120}
LLAMA = {**TEXT, "num_key_value_heads": 2, "model_type": "llama"}
PICTURE = {**SMALL, "image_size": 32, "patch_size": 8}
SPEECH = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
CONVOLUTIONS = {
    "conv_dim": [16, 16],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 2],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}

# class, configuration, the shapes of the inputs that are made
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "encoder": (
        "BertForMaskedLM",
        {"model_type": "bert", **TEXT},
        {"input_ids": (2, 16), "attention_mask": (2, 16)},
    ),
    "causal": ("LlamaForCausalLM", LLAMA, {"input_ids": (2, 16), "attention_mask": (2, 16)}),
    "experts": (
        "MixtralForCausalLM",
        {**LLAMA, "model_type": "mixtral", "num_local_experts": 4},
        {"input_ids": (2, 16), "attention_mask": (2, 16)},
    ),
    "state-space": (
        "MambaForCausalLM",
        {"model_type": "mamba", "hidden_size": 32, "vocab_size": 120, "num_hidden_layers": 2},
        {"input_ids": (2, 16), "attention_mask": (2, 16)},
    ),
    "encoder-decoder": (
        "T5ForConditionalGeneration",
        {"model_type": "t5", "vocab_size": 120, "d_model": 32, "d_ff": 64, "num_layers": 2, "num_heads": 4},
        {"input_ids": (2, 16), "attention_mask": (2, 16), "decoder_input_ids": (2, 12)},
    ),
    "choices": (
        "BertForMultipleChoice",
        {"model_type": "bert", **TEXT},
        {"input_ids": (2, 3, 16), "attention_mask": (2, 3, 16)},
    ),
    "one-at-a-time": (
        "GPT2ForSequenceClassification",
        {"model_type": "gpt2", "vocab_size": 120, "n_embd": 32, "n_head": 4, "n_layer": 2},
        {"input_ids": (1, 16), "attention_mask": (1, 16)},
    ),
    "picture": (
        "ViTForImageClassification",
        {"model_type": "vit", **PICTURE},
        {"pixel_values": (2, 3, 32, 32)},
    ),
    "grey-picture": (
        "ConvNextModel",
        {
            "model_type": "convnext",
            "num_channels": 1,
            "hidden_sizes": [8, 8, 8, 8],
            "depths": [1, 1, 1, 1],
            "image_size": 64,
        },
        {"pixel_values": (2, 1, 64, 64)},
    ),
    "film": (
        "VideoMAEForVideoClassification",
        {"model_type": "videomae", **PICTURE, "num_frames": 4},
        {"pixel_values": (2, 4, 3, 32, 32)},
    ),
    "speech": (
        "WhisperForConditionalGeneration",
        {
            "model_type": "whisper",
            "vocab_size": 120,
            "d_model": 32,
            "num_mel_bins": 20,
            "max_source_positions": 50,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 1),
            **SPEECH,
        },
        {"input_features": (2, 20, 100), "decoder_input_ids": (2, 12)},
    ),
    "sound": (
        "Wav2Vec2Model",
        {"model_type": "wav2vec2", **SMALL, **CONVOLUTIONS},
        {"input_values": (2, 19200)},
    ),
    "spectrogram": (
        "ASTForAudioClassification",
        {"model_type": "audio-spectrogram-transformer", **SMALL, "max_length": 64, "num_mel_bins": 32},
        {"input_values": (2, 64, 32)},
    ),
    "text-and-picture": (
        "CLIPModel",
        {
            "model_type": "clip",
            "text_config": {**TEXT, "max_position_embeddings": 20},
            "vision_config": PICTURE,
        },
        {"input_ids": (2, 16), "attention_mask": (2, 16), "pixel_values": (2, 3, 32, 32)},
    ),
    "picture-in-text": (
        "LlavaForConditionalGeneration",
        {
            "model_type": "llava",
            "text_config": LLAMA,
            "vision_config": {"model_type": "clip_vision_model", **PICTURE},
            "image_token_index": 100,
        },
        {"input_ids": (2, 32), "attention_mask": (2, 32), "pixel_values": (2, 3, 32, 32)},
    ),
    "patches-in-text": (
        "Qwen2VLForConditionalGeneration",
        {
            "model_type": "qwen2_vl",
            "text_config": {
                **TEXT,
                "num_key_value_heads": 2,
                "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
            },
            "vision_config": {"depth": 2, "embed_dim": 32, "num_heads": 4, "hidden_size": 32, "patch_size": 4}
            | {"temporal_patch_size": 2},
            "image_token_id": 101,
            "video_token_id": 102,
            "vision_start_token_id": 103,
            "vision_end_token_id": 104,
        },
        {
            **dict.fromkeys(("input_ids", "attention_mask", "mm_token_type_ids"), (2, 32)),
            **dict.fromkeys(("pixel_values", "pixel_values_videos"), (48, 96)),
            **dict.fromkeys(("image_grid_thw", "video_grid_thw"), (2, 3)),
        },
    ),
    "page": (
        "LayoutLMModel",
        {"model_type": "layoutlm", **TEXT},
        {"input_ids": (2, 16), "attention_mask": (2, 16), "bbox": (2, 16, 4)},
    ),
}


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_families(family: tuple[str, dict[str, Any], dict[str, tuple[int, ...]]], tmp_path: Path) -> None:
    import transformers

    class_name, config, shapes = family
    written(tmp_path, {"architectures": [class_name], **config})
    report = mg.inspect(tmp_path)
    assert report.run.failure is None
    assert {value.name: value.shape for value in report.run.inputs} == shapes
    given = {key: value for key, value in config.items() if key != "model_type"}
    truth = getattr(transformers, class_name)(
        transformers.AutoConfig.for_model(config["model_type"], **given)
    )
    assert report.counts is not None
    assert report.counts.params == sum(each.numel() for each in truth.parameters())
    assert not any(module.training for module in report.model.modules)
    called = {call.module for call in report.model.calls}
    weighted = [module for module in report.model.modules if module.tensors]
    unused = [each.path for each in weighted if called.isdisjoint((each.path, *each.aliases))]
    assert len(unused) <= len(weighted) // 4, unused  # some weights are used without a call


def test_ids_mean_nothing_in_particular(tmp_path: Path) -> None:
    config = {**LLAMA, "vocab_size": 20, "pad_token_id": 11, "bos_token_id": 12, "eos_token_id": [13, 14]}
    path = written(tmp_path, {"architectures": ["LlamaForCausalLM"], **config})
    from modelglass.api._inputs import automatic_inputs

    with build(path) as found:
        given = automatic_inputs(found.native)
    assert given is not None
    ids = set(given.kwargs["input_ids"].unique().tolist())
    assert ids.isdisjoint({11, 12, 13, 14})
    assert max(ids) < 20


def test_the_type_of_the_weights_is_the_configurations(tmp_path: Path) -> None:
    written(tmp_path, {"architectures": ["LlamaForCausalLM"], **LLAMA, "dtype": "bfloat16"})
    report = mg.inspect(tmp_path)
    assert report.counts is not None
    assert set(report.counts.params_by_dtype) == {"bfloat16"}
    assert report.run.failure is None


@pytest.mark.parametrize("train", [False, True])
def test_a_training_step_is_one_in_training_mode(train: bool, tmp_path: Path) -> None:
    written(tmp_path, {"architectures": ["BertForMaskedLM"], "model_type": "bert", **TEXT})
    report = mg.inspect(tmp_path, train=train)
    assert all(module.training is train for module in report.model.modules)


@pytest.mark.slow
def test_nothing_is_allocated(tmp_path: Path) -> None:
    """670 billion parameters."""
    written(tmp_path, {"model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"]})
    report = mg.inspect(tmp_path, run="none")
    assert report.counts is not None
    assert report.counts.params == 671_026_404_352


@pytest.mark.slow
def test_a_file_a_folder_and_a_folder_with_weights(tmp_path: Path) -> None:
    content = {"architectures": ["LlamaForCausalLM"], **LLAMA}
    path = written(tmp_path, content)
    assert mg.inspect(path).cost == mg.inspect(tmp_path).cost
    import transformers

    config = transformers.AutoConfig.for_model(**LLAMA)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    weights = mg.inspect(tmp_path)
    assert weights.checkpoint is not None
    assert weights.checkpoint.format == "safetensors"
    ran = mg.inspect(tmp_path, "auto")
    assert ran.checkpoint is None
    assert ran.run.failure is None
    assert "built-from-config" in {note.code for note in ran.notes}
    assert ran.counts is not None
    assert weights.counts is not None
    assert ran.counts.params == weights.counts.params
    assert mg.inspect(tmp_path, stats=True).stats is not None


@pytest.mark.slow
def test_commands_on_a_folder_with_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from safetensors.torch import save_file

    written(tmp_path, {"architectures": ["LlamaForCausalLM"], **LLAMA})
    save_file({"x": torch.ones(3)}, tmp_path / "model.safetensors")
    assert "safetensors" in run("inspect", str(tmp_path), capsys=capsys)[1]
    for command in (("memory",), ("fit", "--memory", "1GiB", "--no-options"), ("unique", "--ops")):
        code, out, _ = run(command[0], str(tmp_path), *command[1:], capsys=capsys)
        assert code == 0
        assert command[0] == "unique" or "weights and the cache of" in out  # as they are stored


def test_the_batch_and_the_length_can_be_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(tmp_path, {"architectures": ["LlamaForCausalLM"], **LLAMA}))
    _, out, _ = run("memory", path, "--batch-size", "8", "--seq-len", "64", "--format", "json", capsys=capsys)
    assert {tuple(value["shape"]) for value in json.loads(out)["run"]["inputs"]} == {(8, 64)}


def test_a_section_of_another_file_can_be_such_a_configuration(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text(
        "net:\n  model_type: bert\n" + "".join(f"  {key}: {value}\n" for key, value in TEXT.items())
    )
    assert mg.inspect(path, model_key="net").model.name == "BertForMaskedLM"


def test_without_a_class_the_usual_one_is_taken_and_told(tmp_path: Path) -> None:
    written(tmp_path, {"architectures": ["NobodysBert"], "model_type": "bert", **TEXT})
    report = mg.inspect(tmp_path, run="none")
    assert report.model.name == "BertForMaskedLM"
    [note] = [note for note in report.notes if note.code == "architecture-chosen"]
    assert "names the architecture 'NobodysBert', which transformers does not have" in note.text


def test_quantized_weights_are_built_as_they_were(tmp_path: Path) -> None:
    quantized = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    written(tmp_path, {"architectures": ["LlamaForCausalLM"], **LLAMA, "quantization_config": quantized})
    report = mg.inspect(tmp_path)
    assert report.run.failure is None
    assert "not-quantized" in {note.code for note in report.notes}


ERRORS = {
    "type": ({"model_type": "brt"}, "does not know the model_type 'brt'", "did you mean bert, bart"),
    "remote": (
        {"model_type": "mine", "auto_map": {"AutoModel": "modeling_mine.Mine"}},
        "in files of its own (modeling_mine.Mine), which modelglass does not run",
        "with trust_remote_code=True",
    ),
    "remote-class": (
        {"model_type": "bert", "architectures": ["Mine"], "auto_map": {"AutoModel": "modeling_mine.Mine"}},
        "which modelglass does not run",
        "file.py::function",
    ),
    "value": (
        {"model_type": "bert", "hidden_size": "wide"},
        "reading it as a BertConfig raised StrictDataclassFieldValidationError: Validation error for field "
        "'hidden_size': TypeError",
        "--debug shows",
    ),
    "sizes": (
        {"model_type": "bert", "hidden_size": 13},
        "building a BertForMaskedLM raised ValueError: The hidden size (13) is not a multiple",
        "it came from modeling_bert.py",
    ),
    "package": (
        {"model_type": "dinat"},
        "cannot be built here: DinatModel requires the natten library",
        "pip install natten",
    ),
    "nothing": ({"hidden_size": 3}, "no part of it names a model", "--builder"),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=list(ERRORS))
def test_errors(
    case: tuple[dict[str, Any], str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, problem, hint = case
    (tmp_path / "modeling_mine.py").write_text("open('made', 'w')\n")
    code, out, err = run("inspect", str(written(tmp_path, content)), capsys=capsys)
    assert (code, out) == (3, "")
    told, _, advice = err.partition("\n  hint: ")
    assert problem in told
    assert hint in advice
    assert not (tmp_path / "made").exists()


@pytest.mark.slow
def test_a_broken_torchvision_does_not_matter(tmp_path: Path) -> None:
    """In a process of its own, in which torchvision is there and raises."""
    broken = tmp_path / "packages" / "torchvision"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    path = written(tmp_path, {"architectures": ["LlamaForCausalLM"], **LLAMA})
    code = (
        f"import sys; sys.path.insert(0, {str(broken.parent)!r}); import modelglass as mg; "
        f"print(mg.inspect({str(path)!r}).run.failure, sys.modules.get('torchvision', 'gone'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "None gone\n", done.stderr


def test_an_index_and_a_report_are_no_configurations(tmp_path: Path) -> None:
    from modelglass.targets.paths import is_config_path

    index = tmp_path / "weights.json"
    index.write_text('{"metadata": {}, "weight_map": {"a": "b.safetensors"}}')
    mg.save(mg.inspect(torch.nn.Linear(1, 1)), tmp_path / "report.json")
    assert not is_config_path(index)
    assert not is_config_path(tmp_path / "report.json")
    assert not is_config_path(tmp_path / "model.safetensors.index.json")
    assert is_config_path(written(tmp_path, {"model_type": "bert"}))
    assert is_config_path(tmp_path / "model.yaml")
    assert not is_config_path(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("name", "type", "shape"),
    [
        ("BertForMultipleChoice", "bert", (2, 3, 16)),
        ("VisualBertForMultipleChoice", "visual_bert", (2, 3, 16)),  # which no table of transformers has
        ("GPT2ForSequenceClassification", "gpt2", (1, 16)),  # it cannot tell padding
        ("BertForSequenceClassification", "bert", (2, 16)),
    ],
    ids=["choice", "unlisted-choice", "classifier", "classifier-with-padding"],
)
def test_what_a_class_is_for_says_how_its_texts_come(
    name: str, type: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    gpt = {"n_embd": 32, "n_layer": 1, "n_head": 2}
    written(tmp_path, {"architectures": [name], "model_type": type, **(gpt if type == "gpt2" else sizes)})
    report = mg.inspect(tmp_path)
    assert report.run.failure is None
    assert report.run.inputs[0].shape == shape
