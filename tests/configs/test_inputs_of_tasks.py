"""Inputs for models with a head: what a task asks for beyond what the model below it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import modelglass as mg
from small_models import PICTURE, ROBOT, SMALL, built_as, called

IDS = {"vocab_size": 120, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PAIR = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
PAIR |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
PAIR |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 64)
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "decoder_start_token_id": 0}
SPEECH = {"hidden_size": 32, "encoder_layers": 1, "decoder_layers": 1, "conv_dim": [8], "conv_stride": [5]}
SPEECH |= {"conv_kernel": [10], "num_mel_bins": 20, "speech_decoder_prenet_units": 24}
SPEECH |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
MUSIC = {
    "text_encoder": {"model_type": "t5", **T5, "vocab_size": 120},
    "audio_encoder": {"model_type": "encodec", "num_filters": 4, "hidden_size": 16, "codebook_dim": 16},
    "decoder": {"model_type": "musicgen_decoder", "vocab_size": 120, "hidden_size": 32, "ffn_dim": 64}
    | {"num_hidden_layers": 1, "num_attention_heads": 4, "num_codebooks": 4},
}

# class, configuration, the shapes of some inputs that are made
TASKS: dict[str, tuple[str, dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "a-decoder-that-classifies": (
        "BartForSequenceClassification",
        {**PAIR, **IDS},
        {"input_ids": (2, 16), "decoder_input_ids": (2, 16)},
    ),
    "a-decoder-that-writes": (
        "BartForConditionalGeneration",
        {**PAIR, **IDS},
        {"input_ids": (2, 16), "decoder_input_ids": (2, 12)},
    ),
    "another-that-classifies": (
        "T5ForSequenceClassification",
        {**T5, **IDS},
        {"input_ids": (2, 16), "decoder_input_ids": (2, 16)},
    ),
    "bands-of-sound-to-speak": (
        "SpeechT5ForTextToSpeech",
        {**SPEECH, **IDS},
        {"input_ids": (2, 16), "decoder_input_values": (2, 12, 20)},
    ),
    "encoded-sound": (
        "SpeechT5Model",
        {**SPEECH, **IDS},
        {"decoder_input_values": (2, 12, 32)},
    ),
    "codes-of-music": (
        "MusicgenForConditionalGeneration",
        MUSIC,
        {"input_ids": (2, 16), "decoder_input_ids": (2 * 4, 12)},
    ),
    "tones-of-a-melody": (
        "MusicgenMelodyForConditionalGeneration",
        {**MUSIC, "num_chroma": 12, "decoder": {**MUSIC["decoder"], "model_type": "musicgen_melody_decoder"}},
        {"input_ids": (2, 16), "decoder_input_ids": (2 * 4, 12), "input_features": (2, 400, 12)},
    ),
    "what-a-robot-has-done": (
        "PI0ForConditionalGeneration",
        {**ROBOT, "max_state_dim": 7},
        {"state": (2, 7), "input_ids": (2, 16 + 2 * 16), "pixel_values": (2, 2, 3, 32, 32)},
    ),
    "half-of-a-film": (
        "VideoMAEForPreTraining",
        {**PICTURE, "num_frames": 4, "tubelet_size": 2, "decoder_num_hidden_layers": 1}
        | {"decoder_hidden_size": 32, "decoder_num_attention_heads": 4, "decoder_intermediate_size": 64},
        {"pixel_values": (2, 4, 3, 32, 32), "bool_masked_pos": (2, 2 * 4 * 4)},
    ),
    "words-as-such": (
        "PerceiverForMaskedLM",
        {"num_latents": 4, "d_latents": 32, "d_model": 32, "num_blocks": 1, "num_self_attends_per_block": 1}
        | {"vocab_size": 120, "qk_channels": 16, "v_channels": 32, "max_position_embeddings": 20},
        {"input_ids": (2, 16)},
    ),
    "pictures-as-such": (
        "PerceiverForImageClassificationLearned",
        {
            "num_latents": 4,
            "d_latents": 32,
            "num_blocks": 1,
            "num_self_attends_per_block": 1,
            "image_size": 8,
        },
        {"pixel_values": (2, 3, 8, 8)},
    ),
    "one-language-of-all-choices": (
        "XmodForMultipleChoice",
        {**SMALL, **IDS, "languages": ["en_XX"], "max_position_embeddings": 40},
        {"input_ids": (2, 3, 16), "lang_ids": (1,)},
    ),
    "places-of-a-picture-before-a-head": (
        "Kosmos2ForConditionalGeneration",
        {
            "text_config": {**IDS, "embed_dim": 32, "layers": 2, "ffn_dim": 64, "attention_heads": 4},
            "vision_config": PICTURE,
            "latent_query_num": 6,
        },
        {"input_ids": (2, 16 + 6), "image_embeds_position_mask": (2, 16 + 6)},
    ),
    "an-episode": (
        "DecisionTransformerModel",
        {"hidden_size": 32, "n_layer": 1, "n_head": 4, "state_dim": 7, "act_dim": 3},
        {"states": (2, 16, 7), "actions": (2, 16, 3), "returns_to_go": (2, 16, 1)},
    ),
}


@pytest.mark.parametrize("case", TASKS.values(), ids=list(TASKS))
def test_a_model_for_a_task_can_be_called_with(
    case: tuple[str, dict[str, Any], dict[str, tuple[int, ...]]],
) -> None:
    name, config, shapes = case
    given = called(built_as(name, config))
    assert {each: tuple(given[each].shape) for each in shapes} == shapes
    assert ("actions" in given) == ("states" in given)  # a robot has yet to find them


def test_a_question_is_marked_where_a_model_looks_for_its_mark() -> None:
    given = called(built_as("SplinterForPreTraining", {**SMALL, **IDS, "question_token_id": 104}))
    assert (given["input_ids"] == 104).any(dim=-1).all()


@pytest.mark.parametrize("task", ["QuestionAnswering", "MultipleChoice"])
def test_a_question_and_its_text_are_told_apart(task: str) -> None:
    window = {"attention_window": 4, "sep_token_id": 2, "max_position_embeddings": 40}
    given = called(built_as(f"LongformerFor{task}", {**SMALL, **IDS, **window}))
    assert ((given["input_ids"] == 2).sum(-1) == 3).all()


def test_a_mark_that_the_vocabulary_does_not_have_is_left_out() -> None:
    model = built_as("BertForQuestionAnswering", {**SMALL, "vocab_size": 50, "sep_token_id": 102})
    assert called(model)["input_ids"].max() < 50


@pytest.mark.slow
def test_a_model_that_reads_text_is_given_a_line() -> None:
    with torch.device("meta"):
        model = built_as("PPOCRV6TinyRecForTextRecognition", {})
    report = mg.inspect(model, inputs="auto")
    assert report.run is not None
    assert report.run.failure is None
    assert [value.shape for value in report.run.inputs] == [(2, 3, 48, 320)]
