"""What vLLM's modules hold, against what transformers counts and what one rank alone would hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from builds import MODELS

from modelglass.analyses.counts import count
from modelglass.frameworks.vllm.meta.rank_report import correct_shards
from modelglass.report import Report, Shape, Shard, Tensor, codec

RANKS = 4
# What vLLM counts as parameters and transformers keeps in buffers: a bias of the router for each expert.
MORE = {"deepseek": 8}
LOADED = ("llama", "opt", "qwen", "mixtral", "deepseek")
ENGINES = (*((name, "float32") for name in LOADED), ("llama", "bfloat16"), ("mixtral", "bfloat16"))


@pytest.fixture(scope="session")
def builds(script: Callable[..., Any]) -> Any:
    return script("builds.py", "ranks")


@pytest.fixture(scope="session")
def engines(script: Callable[..., Any], tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What engines that loaded small models hold, and how many parameters transformers counts in each."""
    folders = {name: tiny(name) for name in LOADED}
    int8 = _quantized_copy(folders["llama"].folder, tmp_path_factory.mktemp("int8"))
    wanted = {(name, dtype): f"{folders[name].folder}={dtype}" for name, dtype in ENGINES}
    wanted["int8", "bfloat16"] = f"{int8}=bfloat16"
    found = script("builds.py", "loaded", *wanted.values())
    params = {name: model.params for name, model in folders.items()} | {"int8": folders["llama"].params}
    return {key: (found[text], params[key[0]]) for key, text in wanted.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_build_without_padding_has_the_weights_of_transformers(builds: Any, name: str) -> None:
    report = codec.loads(builds[name]["whole"])
    expected = builds[name]["transformers"] + MORE.get(name, 0)
    assert count(report.model).params - _padding(report) == expected
    assert not [note for note in report.notes if note.severity != "info"]


@pytest.mark.parametrize("name", MODELS)
def test_every_rank_tells_the_shapes_of_the_whole(builds: Any, name: str) -> None:
    whole = _wholes(codec.loads(builds[name]["whole"]))
    for reports in builds[name]["ranks"].values():
        for text in reports:
            report = codec.loads(text)
            assert _wholes(report) == whole
            assert not [note for note in report.notes if note.severity != "info"]


@pytest.mark.parametrize("name", MODELS)
def test_ranks_hold_each_weight_as_often_as_they_say(builds: Any, name: str) -> None:
    for reports in builds[name]["ranks"].values():
        held = [codec.loads(text) for text in reports]
        for tensor in _weights(held[0]):
            shard = held[0].engine.shards.get(tensor.name)
            numel = sum(_real(report, tensor.name) for report in held)
            assert numel == _expected(shard, tensor), tensor.name


@pytest.mark.parametrize("name", [name for name in MODELS if "+" in name])
def test_quantized_layers_hold_the_weights_of_plain_ones_in_the_bytes_that_are_stored(
    builds: Any, name: str
) -> None:
    report, plain = (codec.loads(builds[key]["whole"]) for key in (name, name.partition("+")[0]))
    counts = count(report.model)
    assert counts.params == count(plain.model).params
    schemes = {"awq": "awq-4bit", "gptq": "gptq-8bit"}
    expected = schemes.get(name.partition("+")[2], "float8_e4m3fn")
    packings = [tensor.packing for tensor in report.model.tensors if tensor.packing is not None]
    assert {packing.scheme for packing in packings} == {expected}
    stored = sum(_stored(tensor) for tensor in _weights(report))
    sides = sum(packing.side_nbytes for packing in packings)
    others = sum(t.nbytes or 0 for t in report.model.tensors if _is_no_weight(t))
    assert stored + sides + others == builds[name]["nbytes"]


def test_pieces_have_the_names_of_checkpoints(builds: Any) -> None:
    shards = codec.loads(builds["llama"]["ranks"]["tensors"][3]).engine.shards
    queries, keys, values = shards["model.layers.0.self_attn.qkv_proj.weight"].pieces
    assert (queries.name, queries.size, queries.held) == ("q_proj", 256, 64)
    assert (keys.name, keys.size, keys.held) == ("k_proj", 64, 32)  # two heads, each in two ranks
    assert values.name == "v_proj"
    experts = codec.loads(builds["mixtral"]["whole"]).engine.shards
    name = "model.layers.0.block_sparse_moe.experts.routed_experts.w13_weight"
    assert [piece.name for piece in experts[name].pieces] == ["w1", "w3"]
    latent = codec.loads(builds["deepseek"]["whole"]).engine.shards
    pieces = latent["model.layers.0.self_attn.fused_qkv_a_proj.weight"].pieces
    assert [piece.name for piece in pieces] == ["q_a_proj", "kv_a_proj_with_mqa"]


def test_experts_are_divided_among_ranks_or_each_of_them_is(builds: Any) -> None:
    name = "model.layers.0.block_sparse_moe.experts.routed_experts.w2_weight"
    for way, dim in (("experts", 0), ("tensors", 2)):
        report = codec.loads(builds["mixtral"]["ranks"][way][1])
        assert report.engine.shards[name].dim == dim
        shape = next(tensor.shape for tensor in report.model.tensors if tensor.name == name)
        assert shape == tuple(
            size // RANKS if index == dim else size for index, size in enumerate((8, 256, 512))
        )


def test_only_the_last_ranks_pad_the_vocabulary(builds: Any) -> None:
    shards = [codec.loads(text).engine.shards for text in builds["llama"]["ranks"]["tensors"]]
    padding = [shard["model.embed_tokens.weight"].padding for shard in shards]
    assert padding == [0, 0, 0, (1024 - 1003) * 256]


def test_what_a_rank_does_not_tell_the_whole_does(builds: Any) -> None:
    report = codec.loads(builds["sinks"]["ranks"]["tensors"][1])
    whole = codec.loads(builds["sinks"]["whole"])
    name = "model.layers.0.attn.sinks"
    fewer = {key: shard for key, shard in report.engine.shards.items() if key != name}
    found = correct_shards(replace(report, engine=replace(report.engine, shards=fewer)), whole)
    assert found.engine.shards[name] == report.engine.shards[name]


@pytest.mark.parametrize(("name", "dtype"), ENGINES)
def test_an_engine_holds_the_weights_of_transformers_and_padding(engines: Any, name: str, dtype: str) -> None:
    found, params = engines[name, dtype]
    report = codec.loads(found["report"])
    assert count(report.model).params - _padding(report) == params + MORE.get(name, 0)
    assert not [note for note in report.notes if note.severity != "info"]
    assert found["untouched"]


def test_weights_that_were_emptied_are_counted_as_their_layers_describe_them(engines: Any) -> None:
    found, _ = engines["llama", "float32"]
    report = codec.loads(found["report"])
    emptied = next(note.where for note in report.notes if note.code == "packed-weights")
    tensors = {tensor.name: tensor for tensor in report.model.tensors}
    assert all(tensors[name].shape == (0,) and tensors[name].kind == "packed" for name in emptied)
    hidden = sum(tensors[name].params or 0 for name in emptied)
    assert found["listed"] + hidden == count(report.model).params
    assert count(report.model).param_nbytes == 4 * count(report.model).params


def test_a_tied_head_counts_once_after_packing(engines: Any) -> None:
    report = codec.loads(engines["qwen", "float32"][0]["report"])
    embeddings = [tensor for tensor in report.model.tensors if tensor.shape == (320, 128)]
    assert len({tensor.storage for tensor in embeddings}) == 1


def test_a_weight_that_a_layer_no_longer_has_is_counted(engines: Any) -> None:
    found, params = engines["int8", "bfloat16"]
    report = codec.loads(found["report"])
    assert count(report.model).params - _padding(report) == params
    name = "model.layers.0.mlp.down_proj.weight"
    weight = next(tensor for tensor in report.model.tensors if tensor.name == name)
    assert weight.packing is not None
    assert (weight.packing.scheme, weight.packing.nbytes) == ("int8", prod(weight.packing.logical_shape))
    assert name in next(module.tensors for module in report.model.modules if module.path == name[:-7])


def test_matrices_made_for_attention_are_no_weights(engines: Any) -> None:
    report = codec.loads(engines["deepseek", "float32"][0]["report"])
    made = next(note.where for note in report.notes if note.code == "absorbed-weights")
    tensors = {tensor.name: tensor for tensor in report.model.tensors}
    assert made
    assert {tensors[name].kind for name in made} == {"buffer"}


def test_settings_tell_the_method_and_no_whole_engine(engines: Any) -> None:
    report = codec.loads(engines["mixtral", "float32"][0]["report"])
    for module in report.model.modules:
        assert not [value for value in module.config.values() if str(value).startswith("vllm.")]
    layers = {module.path: module for module in report.model.modules}
    assert layers["model.layers.0.self_attn.qkv_proj"].config["quant_method"] == "UnquantizedLinearMethod"
    experts = layers["model.layers.0.block_sparse_moe.experts.routed_experts"].config
    assert (experts["num_local_experts"], experts["top_k"]) == (4, 2)


def _quantized_copy(folder: Path, target: Path) -> Path:
    """The same model without weights, to be quantized to eight bits."""
    for file in folder.iterdir():
        if file.suffix != ".safetensors":
            (target / file.name).write_bytes(file.read_bytes())
    settings = json.loads((folder / "config.json").read_text())
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", "dynamic": False}
    settings["dtype"] = "bfloat16"
    settings["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": weights,
                "input_activations": {**weights, "strategy": "token", "dynamic": True},
            }
        },
    }
    (target / "config.json").write_text(json.dumps(settings))
    return target


def _weights(report: Report) -> list[Tensor]:
    """Each weight once."""
    first: dict[str, Tensor] = {}
    for tensor in report.model.tensors:
        if tensor.kind != "buffer":
            first.setdefault(tensor.storage, tensor)
    return list(first.values())


def _shard(report: Report, name: str) -> Shard | None:
    assert report.engine is not None
    return report.engine.shards.get(name)


def _padding(report: Report) -> int:
    shards = (_shard(report, tensor.name) for tensor in _weights(report))
    return sum(shard.padding for shard in shards if shard is not None)


def _logical(tensor: Tensor) -> Shape:
    shape = tensor.shape if tensor.packing is None else tensor.packing.logical_shape
    assert shape is not None
    return shape


def _wholes(report: Report) -> dict[str, Shape]:
    found = {}
    for tensor in _weights(report):
        shard = _shard(report, tensor.name)
        found[tensor.name] = _logical(tensor) if shard is None else shard.whole
    return found


def _real(report: Report, name: str) -> int:
    tensor = next(tensor for tensor in report.model.tensors if tensor.name == name)
    shard = _shard(report, name)
    return prod(_logical(tensor)) - (0 if shard is None else shard.padding)


def _expected(shard: Shard | None, tensor: Tensor) -> int:
    """Elements of all ranks together, copies included."""
    if shard is None or shard.dim is None:
        return RANKS * (prod(_logical(tensor)) if shard is None else prod(shard.whole))
    if not shard.pieces or shard.pieces_dim != shard.dim:
        return prod(shard.whole)
    rows = sum(RANKS * piece.held for piece in shard.pieces)
    return prod(shard.whole) // shard.whole[shard.dim] * rows


def _stored(tensor: Tensor) -> int:
    assert tensor.nbytes is not None
    return tensor.nbytes


def _is_no_weight(tensor: Tensor) -> bool:
    """What vLLM calls a parameter: scales of its cache, and room for biases that the experts do not have."""
    last = tensor.name.rpartition(".")[2]
    return tensor.kind == "buffer" and last in (
        "q_scale",
        "k_scale",
        "v_scale",
        "prob_scale",
        "w13_bias",
        "w2_bias",
    )
