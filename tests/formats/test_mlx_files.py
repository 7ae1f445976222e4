"""What MLX and mlx_lm write is read as the model that was saved: as many weights, as many bytes.

The truth is the model before it was quantized, MLX's own sizes, and mlx_lm's own counter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm.utils
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models import deepseek_v3, llama, mixtral
from mlx_lm.tuner.utils import linear_to_lora_layers

import modelglass as mg
from command_line import run
from modelglass.errors import FileError
from modelglass.formats import read
from modelglass.formats.packing.layers import packed
from modelglass.formats.reading import Reading
from modelglass.formats.tensors.values import values
from modelglass.report import Counts, Values

LLAMA = {
    "model_type": "llama",
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": 320,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
DEEPSEEK = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 128,
    "num_attention_heads": 2,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "kv_lora_rank": 64,
    "q_lora_rank": 64,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 32,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
MODULES = {"llama": llama, "mixtral": mixtral, "deepseek_v3": deepseek_v3}


def arrays(model: nn.Module) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


def numel(model: nn.Module) -> int:
    return sum(array.size for array in arrays(model).values())


def nbytes(model: nn.Module) -> int:
    return sum(array.nbytes for array in arrays(model).values())


def made(config: Mapping[str, Any]) -> nn.Module:
    module = MODULES[config["model_type"]]
    model = module.Model(module.ModelArgs.from_dict(dict(config)))
    model.set_dtype(mx.bfloat16)
    return model


def saved(
    folder: Path,
    model: nn.Module,
    config: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    shards: int = 1,
) -> None:
    def split(weights: dict[str, mx.array]) -> list[dict[str, mx.array]]:
        names = list(weights)
        return [{name: weights[name] for name in names[i::shards]} for i in range(shards)]

    monkeypatch.setattr(mlx_lm.utils, "make_shards", split)
    mlx_lm.utils.save_model(folder, model)
    mlx_lm.utils.save_config(dict(config), folder / "config.json")


def counted(path: Path) -> Counts:
    report = mg.inspect(path)
    assert report.counts is not None
    assert not [note for note in report.notes if note.severity != "info"]
    return report.counts


def by_layer(path: str, module: nn.Module) -> Any:
    if "down_proj" in path:
        return {"bits": 8, "group_size": 32}
    if "q_proj" in path or "q_a_proj" in path:
        return {"bits": 2, "group_size": 64}
    if "gate_proj" in path:
        return {"bits": 4, "group_size": 32, "mode": "mxfp4"}
    return "embed" not in path


AFFINE = [(bits, group) for bits in (1, 2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
SETTINGS = {
    **{
        f"{bits} bits in groups of {group}": (LLAMA, {"bits": bits, "group_size": group})
        for bits, group in AFFINE
    },
    **{
        f"{mode}, {config['model_type']}": (config, {"bits": None, "group_size": None, "mode": mode})
        for mode in ("mxfp4", "nvfp4", "mxfp8")
        for config in (LLAMA, MIXTRAL, DEEPSEEK)
    },
    **{
        f"each layer its own, {config['model_type']}": (
            config,
            {"bits": 4, "group_size": 64, "quant_predicate": by_layer},
        )
        for config in (LLAMA, MIXTRAL, DEEPSEEK)
    },
    "experts": (MIXTRAL, {"bits": 3, "group_size": 64}),
    "experts with a scale each": (
        MIXTRAL,
        {"bits": 4, "group_size": 16, "mode": "nvfp4", "global_scale": True},
    ),
    "tied": ({**LLAMA, "tie_word_embeddings": True}, {"bits": 4, "group_size": 64}),
}


@pytest.mark.parametrize(("config", "options"), SETTINGS.values(), ids=SETTINGS)
def test_a_quantized_folder_has_the_weights_of_the_model_that_was_quantized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], options: dict[str, Any]
) -> None:
    model = made(config)
    weights = numel(model)
    model, written = mlx_lm.utils.quantize_model(model, dict(config), **options)
    saved(tmp_path, model, written, monkeypatch, shards=3)
    counts = counted(tmp_path)
    assert counts.params == counts.logical_params == weights
    assert counts.nbytes == nbytes(model)
    assert counts.trainable is None
    live = mg.inspect(model).counts
    assert live is not None
    assert (live.params, live.nbytes, live.buffers) == (counts.params, counts.nbytes, counts.buffers)
    assert live.bits_per_weight == counts.bits_per_weight
    assert counts.bits_per_weight == pytest.approx(8 * nbytes(model) / weights)
    assert counts.bits_per_weight == pytest.approx(mlx_lm.utils.compute_bits_per_weight(model))


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL, DEEPSEEK], ids=lambda config: config["model_type"])
def test_a_folder_that_is_not_quantized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    model = made(config)
    saved(tmp_path, model, config, monkeypatch)
    counts = counted(tmp_path)
    assert (counts.params, counts.buffers, counts.nbytes) == (numel(model), 0, nbytes(model))
    assert counts.bits_per_weight is None
    assert counts.params == mlx_lm.utils.get_total_parameters(model)
    assert counts.trainable is None


def test_a_shard_alone_has_the_configuration_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, config = made(LLAMA), dict(LLAMA)
    weights = numel(model)
    model, config = mlx_lm.utils.quantize_model(model, config, 64, 4, quant_predicate=by_layer)
    saved(tmp_path, model, config, monkeypatch)
    assert counted(tmp_path / "model.safetensors").params == weights
    saved(tmp_path, model, config, monkeypatch, shards=2)
    report = mg.inspect(tmp_path / "model-00001-of-00002.safetensors")
    assert [note.code for note in report.notes] == ["one-shard"]


def test_a_layer_may_leave_out_what_is_the_default(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(512, 64), nn.Linear(512, 64), nn.Linear(512, 64), nn.Linear(512, 64))
    quantized = [{"group_size": 32}, {"bits": 8}, {"group_size": 128, "bits": 2}, None]
    layers = {f"layers.{i}": setting for i, setting in enumerate(quantized) if setting}
    nn.quantize(model, 64, 3, class_predicate=lambda path, module: layers.get(path, hasattr(module, "bias")))
    model.save_weights(str(tmp_path / "model.safetensors"))
    config = {"quantization": {"group_size": 64, "bits": 3, **layers}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert counted(tmp_path).params == 4 * (512 * 64 + 64)


def test_a_layer_that_is_not_listed_goes_by_the_sizes_around_it(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 96), nn.Linear(512, 96))
    nn.quantize(model.layers[1], 32, 4)
    model.layers[1] = nn.QuantizedLinear.from_linear(nn.Linear(512, 96), 32, 4)
    model.layers[2] = nn.QuantizedLinear.from_linear(nn.Linear(512, 96), 64, 4)
    model.save_weights(str(tmp_path / "model.safetensors"))
    (tmp_path / "config.json").write_text('{"quantization": {"group_size": 64, "bits": 4}}')
    report = mg.inspect(tmp_path)
    assert report.counts is not None
    assert report.counts.params == 1024 + 2 * (512 * 96 + 96)
    assert [(note.code, note.where) for note in report.notes] == [
        ("packing-contradicted", ("layers.1.weight",))
    ]


WIDER = [(bits, group) for bits, group in AFFINE if bits > 1]


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL], ids=lambda config: config["model_type"])
def test_without_a_configuration_all_sizes_together_settle_the_bits(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    weights = numel(made(config))
    for bits, group in WIDER:
        model, path = made(config), tmp_path / f"{bits}x{group}.safetensors"
        nn.quantize(model, group, bits, class_predicate=lambda path, module, group=group: fits(module, group))
        model.save_weights(str(path))
        assert (bits, group, counted(path).params) == (bits, group, weights)


def fits(module: Any, group: int) -> bool:
    return hasattr(module, "to_quantized") and module.weight.shape[-1] % group == 0


@pytest.mark.parametrize(("bits", "group"), AFFINE, ids=[f"{bits} x {group}" for bits, group in AFFINE])
def test_of_one_layer_without_a_configuration_only_one_reading_is_certain(
    tmp_path: Path, bits: int, group: int
) -> None:
    path = tmp_path / "model.safetensors"
    nn.QuantizedLinear(256, 64, bias=False, group_size=group, bits=bits).save_weights(str(path))
    report = mg.inspect(path)
    assert report.counts is not None
    product = bits * group
    others = [b for b in (2, 3, 4, 5, 6, 8) if product % b == 0 and product // b in (32, 64, 128)]
    assumed = [note.code for note in report.notes]
    assert assumed == (["packing-assumed"] if len(others) > 1 else [])
    if others == [bits] or (group == 64 and bits > 1) or product == 32:
        assert report.counts.params == 256 * 64


def test_where_one_bit_would_explain_more_other_widths_are_only_assumed(tmp_path: Path) -> None:
    model = made(LLAMA)
    nn.quantize(model, 64, 1)
    model.save_weights(str(tmp_path / "model.safetensors"))
    assert "packing-assumed" in [note.code for note in mg.inspect(tmp_path).notes]


def test_layers_do_not_attest_their_own_inputs(tmp_path: Path) -> None:
    nn.QuantizedLinear(256, 512, group_size=32, bits=8).save_weights(str(tmp_path / "model.safetensors"))
    assert [note.code for note in mg.inspect(tmp_path).notes] == ["packing-assumed"]


@pytest.mark.parametrize(("bits", "group"), WIDER, ids=[f"{bits} x {group}" for bits, group in WIDER])
def test_what_is_stored_goes_before_a_configuration_that_contradicts_it(
    tmp_path: Path, bits: int, group: int
) -> None:
    model = made(LLAMA)
    weights = numel(model)
    nn.quantize(model, group, bits)
    model.save_weights(str(tmp_path / "model.safetensors"))
    for said in ((4, 32), (8, 64), (3, 128), (4, 64)):
        config = {**LLAMA, "quantization": {"bits": said[0], "group_size": said[1]}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        report = mg.inspect(tmp_path)
        if said[0] * said[1] != bits * group:
            assert report.counts is not None
            assert report.counts.params == weights
            (note,) = report.notes
            assert (note.code, note.severity, len(note.where)) == ("packing-contradicted", "warning", 15)
            assert "model.embed_tokens.weight" in note.where


def test_layers_of_their_own_that_are_not_listed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def more(path: str, module: nn.Module) -> Any:
        return {"bits": 6, "group_size": 64} if "down_proj" in path else True

    model = made(LLAMA)
    weights = numel(model)
    model, config = mlx_lm.utils.quantize_model(model, dict(LLAMA), 64, 3, quant_predicate=more)
    config["quantization"] = {"bits": 3, "group_size": 64}
    saved(tmp_path, model, {**config, "quantization_config": config["quantization"]}, monkeypatch)
    report = mg.inspect(tmp_path)
    assert report.counts is not None
    assert report.counts.params == weights
    (note,) = report.notes
    assert note.code == "packing-contradicted"
    assert note.where == tuple(f"model.layers.{i}.mlp.down_proj.weight" for i in range(2))


def test_a_setting_of_one_layer_that_contradicts_it(tmp_path: Path) -> None:
    model = nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 96), nn.Linear(512, 96))
    nn.quantize(model, 64, 4)
    model.save_weights(str(tmp_path / "model.safetensors"))
    settings = {"group_size": 64, "bits": 4, "layers.1": {"group_size": 32, "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps({"quantization": settings}))
    report = mg.inspect(tmp_path)
    assert report.counts is not None
    assert report.counts.params == 1024 + 2 * (512 * 96 + 96)
    assert [(note.code, note.where) for note in report.notes] == [
        ("packing-contradicted", ("layers.1.weight",))
    ]


def test_shards_are_found_by_their_numbers_as_mlx_lm_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, config = mlx_lm.utils.quantize_model(made(LLAMA), dict(LLAMA), 64, 4)
    saved(tmp_path, model, config, monkeypatch, shards=3)
    before = counted(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    assert counted(tmp_path) == before
    assert [note.code for note in mg.inspect(tmp_path, stats=True).notes][:1] == ["index.absent"]
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(FileError) as raised:
        mg.inspect(tmp_path)
    assert "'model-00002-of-00003.safetensors' is missing" in (raised.value.hint or "")
    (tmp_path / "model-00003-of-00003.safetensors").unlink()
    assert "one-shard" in [note.code for note in mg.inspect(tmp_path).notes]


def test_what_nothing_settles_is_called_assumed(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    nn.QuantizedLinear(768, 96).save_weights(str(path))
    report = mg.inspect(path)
    assert [(note.code, note.where) for note in report.notes] == [("packing-assumed", ("weight",))]
    assert report.counts is not None
    assert report.counts.params == 768 * 96 + 96


class Everything(nn.Module):
    """Arrays in containers, of every type, and statistics that are not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(64, 64), nn.BatchNorm(64), nn.QuantizedLinear(64, 48)]
        self.table = {"a": [mx.arange(12.0).reshape(3, 4), mx.ones((2,))], "mask": mx.array([True, False])}
        self.scalar, self.index, self.nothing = mx.array(1.5), mx.arange(5), mx.zeros((0, 3))
        self.wave = mx.array([1 + 2j, 3 - 4j])
        self.transposed = mx.arange(6.0).reshape(2, 3).T


PACKED = 64 * 48  # weights of the quantized layer
SIDES = 2 * 48  # its scales and biases, in groups of 64


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_what_a_module_saves(tmp_path: Path, suffix: str, dtype: str) -> None:
    model = Everything()
    model.set_dtype(getattr(mx, dtype))
    path = tmp_path / f"weights.{suffix}"
    model.save_weights(str(path))
    counts = counted(path)
    assert counts.params == numel(model) - SIDES + PACKED * 7 // 8  # eight weights of four bits a word
    assert (counts.buffers, counts.nbytes) == (SIDES, nbytes(model))
    assert {tensor.name for tensor in mg.inspect(path).model.tensors} == set(arrays(model))


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_values_are_read_whatever_their_type(tmp_path: Path, suffix: str) -> None:
    model = Everything()
    model.set_dtype(mx.bfloat16)
    path = tmp_path / f"weights.{suffix}"
    model.save_weights(str(path))
    stats = mg.inspect(path, stats=True).stats or {}
    for name, array in arrays(model).items():
        if array.size and array.dtype not in (mx.complex64, mx.uint32):
            values, found = np.array(array.astype(mx.float32), np.float64), stats[name]
            assert found is not None, name
            assert (found.count, found.min, found.max) == (values.size, values.min(), values.max())
            assert found.mean == pytest.approx(values.mean())


STATISTICS = {
    name: SETTINGS[name]
    for name in (
        *(f"{bits} bits in groups of 64" for bits in (1, 2, 3, 4, 5, 6, 8)),
        *(f"{mode}, mixtral" for mode in ("mxfp4", "nvfp4", "mxfp8")),
        "each layer its own, deepseek_v3",
        "experts with a scale each",
    )
}


@pytest.mark.parametrize(("config", "options"), STATISTICS.values(), ids=STATISTICS)
def test_statistics_of_a_quantized_folder_are_those_of_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], options: dict[str, Any]
) -> None:
    """Words, scales and biases are in three files."""
    model, written = mlx_lm.utils.quantize_model(made(config), dict(config), **options)
    saved(tmp_path, model, written, monkeypatch, shards=3)
    report = mg.inspect(tmp_path, stats=True)
    live = mg.inspect(model, stats=True)
    weights = {tensor.name: tensor for tensor in report.model.tensors if tensor.packing is not None}
    assert len(weights) > 10
    for name, tensor in weights.items():
        found = (report.stats or {})[name]
        assert found is not None
        assert (found.described, found.count) == ("dequantized", tensor.logical_numel)
        assert found == (live.stats or {})[name]
    assert not [note for note in report.notes if note.code == "stored-values"]


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_any_piece_of_a_quantized_weight_is_read_as_mlx_has_it(tmp_path: Path, suffix: str) -> None:
    layer = nn.QuantizedLinear(256, 200, bits=3)
    path = tmp_path / f"model.{suffix}"
    layer.save_weights(str(path))
    reading = Reading()
    truth = np.array(mx.dequantize(layer.weight, layer.scales, layer.biases, 64, 3)).reshape(-1)
    try:
        read(path, reading)
        tensors = packed(reading.tensors, {"quantization": {"group_size": 64, "bits": 3}})
        offered = values(reading, tensors)
        found = offered["weight"]
        assert isinstance(found, Values)
        before = sum(each.meter.nbytes for each in reading.opened)
        for start, stop in ((0, 1), (190, 333), (51_199, 51_200), (777, 777)):
            assert np.array_equal(found.read(start, stop), truth[start:stop])
        assert sum(each.meter.nbytes for each in reading.opened) - before < 400
        assert np.array_equal(found.read(0, truth.size), truth)
    finally:
        reading.close()


def test_a_weight_of_another_byte_order(tmp_path: Path) -> None:
    weight, scales, biases = (np.array(each) for each in mx.quantize(mx.random.normal((64, 512)), 128, 5))
    stored = {
        "a.weight": weight.astype(">u4"),
        "a.scales": scales.astype(">f4"),
        "a.biases": biases.astype("f2"),
    }
    np.savez(tmp_path / "weights.npz", **stored)
    (tmp_path / "config.json").write_text('{"quantization": {"group_size": 128, "bits": 5}}')
    found = (mg.inspect(tmp_path, stats=True).stats or {})["a.weight"]
    halves = mx.array(stored["a.biases"]).astype(mx.float32)
    truth = np.array(mx.dequantize(mx.array(weight), mx.array(scales), halves, 128, 5))
    assert found is not None
    assert (found.described, found.min, found.max) == ("dequantized", truth.min(), truth.max())
    assert found.mean == pytest.approx(truth.astype(np.float64).mean(), abs=1e-9)


def test_weights_of_an_assumed_width_are_described_as_stored(tmp_path: Path) -> None:
    nn.QuantizedLinear(768, 96).save_weights(str(tmp_path / "model.safetensors"))
    report = mg.inspect(tmp_path / "model.safetensors", stats=True)
    found = (report.stats or {})["weight"]
    assert found is not None
    assert (found.described, found.count) == ("stored", 96 * 96)
    assert {note.code for note in report.notes} >= {"packing-assumed", "stored-values"}


def test_one_array_and_a_compressed_archive(tmp_path: Path) -> None:
    array = mx.arange(12.0).reshape(3, 4).astype(mx.bfloat16)
    mx.save(str(tmp_path / "a.npy"), array)
    mx.savez_compressed(str(tmp_path / "b.npz"), **{"x.weight": array})
    for name in ("a.npy", "b.npz"):
        counts = counted(tmp_path / name)
        assert (counts.params, counts.nbytes, counts.params_by_dtype) == (12, 24, {"bfloat16": 12})


def test_archives_of_arrays_have_a_configuration_beside_them(tmp_path: Path) -> None:
    model = made(LLAMA)
    weights = numel(model)
    nn.quantize(model, 32, 8)
    model.save_weights(str(tmp_path / "weights.npz"))
    config = {**LLAMA, "quantization": {"group_size": 32, "bits": 8}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "weights.npz"):
        assert (counted(path).params, counted(path).nbytes) == (weights, nbytes(model))


def test_adapters(tmp_path: Path) -> None:
    model = made(LLAMA)
    nn.quantize(model, 64, 4)
    model.freeze()
    linear_to_lora_layers(model, 2, {"rank": 4, "scale": 10.0, "dropout": 0.0, "keys": ["self_attn.q_proj"]})
    trained = dict(tree_flatten(model.trainable_parameters()))
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), trained)
    (tmp_path / "adapter_config.json").write_text('{"fine_tune_type": "lora"}')
    for path in (tmp_path, tmp_path / "adapters.safetensors"):
        assert counted(path).params == 2 * 4 * (128 + 128) == sum(array.size for array in trained.values())
    mx.save_safetensors(str(tmp_path / "0000100_adapters.safetensors"), trained)
    with pytest.raises(FileError, match="2 files here may be the model") as raised:
        mg.inspect(tmp_path)
    assert raised.value.hint == f"pass one of them: {tmp_path / 'adapters.safetensors'}"


def test_gguf(tmp_path: Path) -> None:
    given = {"a.weight": mx.zeros((32, 32), mx.float16), "b.weight": mx.zeros((8, 3))}
    mx.save_gguf(str(tmp_path / "a.gguf"), given, {"general.architecture": "llama"})
    counts = counted(tmp_path / "a.gguf")
    assert (counts.params, counts.nbytes) == (1024 + 24, 2048 + 96)


def test_a_file_of_mlx_that_was_cut_is_refused(tmp_path: Path) -> None:
    for suffix in ("safetensors", "npz"):
        path = tmp_path / f"weights.{suffix}"
        Everything().save_weights(str(path))
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(FileError):
            mg.inspect(path)


def test_commands_on_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, config = mlx_lm.utils.quantize_model(made(MIXTRAL), dict(MIXTRAL), 64, 4)
    saved(tmp_path, model, config, monkeypatch, shards=2)
    for command in ("stats", "scan"):
        assert run(command, str(tmp_path), capsys=capsys)[0] == 0
    code, shown, _ = run(str(tmp_path), capsys=capsys)
    assert code == 0
    for line in ("parameters    968,320", "buffers       30,240", "bits          4.51 for each weight"):
        assert line in shown


def test_a_header_may_be_as_long_as_other_files_begin(tmp_path: Path) -> None:
    """MLX writes headers of any length, and the bytes of that length are what the file begins with."""
    array = mx.zeros((2, 2))
    path = tmp_path / "model-00001-of-00001.safetensors"
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"w": path.name}}))
    for start in (b"\x1f\x8b", b"MZ", b"{\0", b"[\0", b" {", b"\x80\x02", b"\x08\x07"):
        wanted = int.from_bytes(start, "little")
        metadata = {"x": "x" * (wanted - 81)} if wanted > 100 else {"x": "x" * (wanted + 256 - 81)}
        mx.save_safetensors(str(path), {"w": array}, metadata=metadata)
        assert path.read_bytes()[:2] in (start, start[:1] + b"\1")
        assert counted(path).params == counted(index).params == 4
