"""Flows of real architectures: what an engineer would look for is there."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from flow_checks import flow_of, node, wires
from modelglass.report import Flow, FlowNode, Report
from models import SAMPLES

EXAMPLES = Path(__file__).parents[2] / "examples"
IDS = torch.ones(1, 8, dtype=torch.long)
IMAGE = torch.zeros(1, 3, 64, 64)
SMALL = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}


def example(name: str, source: str | None = None) -> ModuleType:
    """An example's module, or one of the same kind from other text."""
    spec = importlib.util.spec_from_loader(f"an_example_{name}", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    path = EXAMPLES / f"{name}.py"
    exec(compile(path.read_text() if source is None else source, str(path), "exec"), module.__dict__)
    return module


def built(kind: str, name: str, device: str = "meta", **config: Any) -> nn.Module:
    import transformers

    made = transformers.AutoConfig.for_model(name, **config)
    with torch.device(device), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, kind).from_config(made).eval()


def pictured(name: str) -> nn.Module:
    import timm

    with torch.device("meta"):
        return timm.create_model(name).eval()


def stages(found: Flow) -> dict[str, set[str]]:
    """Labels of nodes by stage."""
    drawn: dict[str, set[str]] = {}
    for each in found.nodes:
        if each.kind != "group":
            drawn.setdefault(each.stage, set()).add(each.label)
    return drawn


def group(found: Flow, kind: str) -> FlowNode:
    (one,) = [each for each in found.nodes if each.kind == "group" and each.type == kind]
    return one


def inside(found: Flow, outer: FlowNode) -> list[FlowNode]:
    """All nodes below a group."""
    ids = {outer.id}
    below = []
    for each in found.nodes:
        if each.group in ids:
            below.append(each)
            ids.add(each.id)
    return below


def diffusion(module: ModuleType, depth: int = 3) -> Report:
    names = {each.__name__.lower(): each for each in vars(module).values() if isinstance(each, type)}
    widest = max(names.values(), key=lambda each: each.__init__.__code__.co_argcount)
    return mg.inspect(widest(5160, 16, depth, 8, 0.1, 6, 128, 4.0).eval(), example("diffusion").batch())


def test_the_diffusion_transformer_at_the_first_depth() -> None:
    found = flow_of(diffusion(example("diffusion")), 1)
    assert [(each.label, each.stage) for each in found.nodes] == [
        ("x_sig", "input"),
        ("t", "input"),
        ("label", "input"),
        ("geom", "input"),
        ("transpose", "embedding"),
        ("geometry", "embedding"),
        ("transpose", "embedding"),
        ("signal", "embedding"),
        ("add", "embedding"),
        ("time", "embedding"),
        ("label", "embedding"),
        ("silu → add", "embedding"),
        ("blocks.0", "blocks"),
        ("add", "head"),
        ("norm", "head"),
        ("head", "head"),
        ("transpose", "head"),
        ("output", "output"),
    ]
    n = [each.id for each in found.nodes]
    x_sig, t, label, geom, turned, geometry, turned2, signal, both, time, labels, condition, blocks = n[:13]
    again, norm, head, back, output = n[13:]
    assert {(edge.source, edge.target, edge.carried) for edge in found.edges} == {
        (geom, turned, False),
        (turned, geometry, False),
        (x_sig, turned2, False),
        (turned2, signal, False),
        (geometry, both, False),
        (signal, both, False),
        (t, time, False),
        (label, labels, False),
        (time, condition, False),
        (labels, condition, False),
        (both, blocks, False),
        (condition, blocks, False),
        (blocks, blocks, True),
        (blocks, again, False),
        (geometry, again, False),
        (again, norm, False),
        (norm, head, False),
        (head, back, False),
        (back, output, False),
    }
    assert found.nodes[8].tensors == ("positions",)
    assert node(found, "blocks.0").count == 3
    assert node(found, "blocks.0").params == 3 * 4306


def test_the_diffusion_transformer_shows_its_block() -> None:
    found = flow_of(diffusion(example("diffusion")))
    block = group(found, "Block")
    assert block.count == 3
    assert [each.label for each in inside(found, block) if each.kind != "group"] == [
        "modulation",
        "norm1",
        "add → mul → add",
        "attention",
        "mul → add",
        "norm2",
        "add → mul → add",
        "0",
        "1",
        "2",
        "mul → add",
    ]


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("depth", [None, 1, 2])
def test_the_same_model_under_other_names_has_the_same_flow(depth: int | None, layers: int) -> None:
    source = (EXAMPLES / "diffusion.py").read_text()
    names = {
        "SensorDiT": "Zebra",
        "TimeEmbedding": "LayerBlock",
        "Block": "Head",
        "self.signal": "self.head_in",
        "self.geometry": "self.decoder",
        "self.positions": "self.blocks_table",
        "self.time": "self.classifier",
        "self.label": "self.layers_0",
        "self.blocks": "self.embedding",
        "self.norm1": "self.b",
        "self.norm": "self.stem",
        "self.head": "self.encoder",
        "self.attention": "self.q",
        "self.mlp": "self.inputs",
        "self.modulation": "self.embed",
    }
    for name, other in names.items():
        source = re.sub(rf"{re.escape(name)}\b(?!_gate)", other, source)
    flows = [
        flow_of(diffusion(module, layers), depth)
        for module in (example("diffusion"), example("diffusion", source))
    ]
    shapes = [
        (
            [(n.id, n.kind, n.stage, n.group, n.count, n.operators, n.dims, n.params) for n in found.nodes],
            found.edges,
            found.notes,
        )
        for found in flows
    ]
    assert shapes[0] == shapes[1]
    assert [n.label for n in flows[0].nodes] != [n.label for n in flows[1].nodes]


def test_one_block_in_a_list_is_still_a_block() -> None:
    found = stages(flow_of(diffusion(example("diffusion"), 1), 1))
    assert found["blocks"] == {"blocks.0"}
    assert {"geometry", "signal", "time"} <= found["embedding"]
    assert {"norm", "head"} <= found["head"]


def test_a_unet_has_its_skips() -> None:
    found = flow_of(mg.inspect(example("models").unet(), IMAGE))
    edges = wires(found)
    assert {("down.2", "cat"), ("down.1", "cat"), ("down.0", "cat"), ("stem", "cat")} <= edges
    assert [each.count for each in found.nodes] == [1] * len(found.nodes)
    cats = [each.id for each in found.nodes if each.label == "cat"]
    assert len(cats) == 4
    assert all(sum(edge.target == cat for edge in found.edges) == 2 for cat in cats)


@pytest.mark.slow
def test_a_resnet_has_its_stages_and_shortcuts() -> None:
    found = flow_of(mg.inspect(example("models").resnet50(), IMAGE), 2)
    blocks = [(each.label, each.count) for each in found.nodes if each.type == "Bottleneck"]
    assert blocks == [("0", 1), ("1", 2), ("0", 1), ("1", 3), ("0", 1), ("1", 5), ("0", 1), ("1", 2)]
    opened = flow_of(mg.inspect(example("models").resnet50(), IMAGE))
    add = next(each for each in opened.nodes if each.label == "add → relu")
    assert len({edge.source for edge in opened.edges if edge.target == add.id and not edge.carried}) == 2
    assert len(opened.nodes) < 50


def test_bert() -> None:
    model = built("AutoModelForMaskedLM", "bert", "cpu", num_hidden_layers=5, vocab_size=90, **SMALL)
    mask = torch.ones_like(IDS)
    mask[0, 0] = 0
    found = flow_of(mg.inspect(model, {"input_ids": IDS, "attention_mask": mask}, run="real"))
    assert group(found, "BertLayer").count == 5
    by_stage = stages(found)
    assert {"word_embeddings", "position_embeddings", "token_type_embeddings"} <= by_stage["embedding"]
    assert {"query", "key", "value", "scaled_dot_product_attention"} <= by_stage["blocks"]
    assert "decoder" in by_stage["head"]
    masked = [source for source, target in wires(found) if target == "scaled_dot_product_attention"]
    assert {"query", "key", "value"} < set(masked)


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "qwen3", "gemma2", "mamba", "falcon"])
def test_language_models(name: str) -> None:
    sizes = {"num_hidden_layers": 4, "vocab_size": 90}
    if name in ("mixtral", "qwen3", "gemma2", "llama"):
        sizes |= {**SMALL, "num_key_value_heads": 2, "head_dim": 8}
    found = flow_of(mg.inspect(built("AutoModelForCausalLM", name, **sizes), {"input_ids": IDS}))
    assert sum(each.kind != "group" for each in found.nodes) <= 40
    repeated = {each.count for each in found.nodes if each.kind == "group" and each.count > 1}
    assert repeated == ({2} if name == "gemma2" else {4})  # Gemma's layers alternate
    by_stage = stages(found)
    assert by_stage["embedding"]
    assert {"lm_head"} <= by_stage["head"]
    assert any("add" in label for label in by_stage["blocks"])


@pytest.mark.slow
def test_t5_is_an_encoder_that_a_decoder_reads() -> None:
    model = built("AutoModelForSeq2SeqLM", "t5", num_layers=4, d_model=32, d_kv=8, d_ff=64, num_heads=4)
    inputs = {"input_ids": IDS, "decoder_input_ids": torch.ones(1, 5, dtype=torch.long)}
    found = flow_of(mg.inspect(model, inputs), 2)
    blocks = [each for each in found.nodes if each.type == "T5Block"]
    assert [each.count for each in blocks] == [1, 3, 1, 3]  # the first ones know positions
    assert {each.stage for each in blocks} == {"blocks"}
    norms = [each for each in found.nodes if each.label == "final_layer_norm"]
    assert [each.stage for each in norms] == ["blocks", "head"]
    read = {edge.target for edge in found.edges if edge.source == norms[0].id}
    assert {blocks[2].id, blocks[3].id} <= read
    embeddings = [each for each in found.nodes if each.type == "Embedding"]
    assert [each.stage for each in embeddings] == ["embedding", "embedding"]


def test_clip_has_two_towers() -> None:
    parts = {**SMALL, "num_hidden_layers": 3}
    model = built(
        "AutoModel",
        "clip",
        text_config={**parts, "vocab_size": 90},
        vision_config={**parts, "image_size": 64, "patch_size": 16},
    )
    found = flow_of(mg.inspect(model, {"input_ids": IDS, "pixel_values": IMAGE}))
    layers = [each for each in found.nodes if each.type == "CLIPEncoderLayer"]
    assert [(each.count, each.stage) for each in layers] == [(3, "blocks"), (3, "blocks")]
    assert {"visual_projection", "text_projection"} <= stages(found)["head"]
    assert {"logits_per_image", "text_embeds"} <= stages(found)["output"]
    assert node(found, "matmul → mul").tensors == ("logit_scale",)


def test_whisper_hears_and_writes() -> None:
    model = built(
        "AutoModel",
        "whisper",
        d_model=32,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    )
    inputs = {"input_features": torch.zeros(1, 80, 3000), "decoder_input_ids": IDS}
    found = flow_of(mg.inspect(model, inputs))
    assert [group(found, kind).count for kind in ("WhisperEncoderLayer", "WhisperDecoderLayer")] == [3, 3]
    assert {"conv1", "conv2", "embed_positions", "embed_tokens"} <= stages(found)["embedding"]
    assert ("layer_norm", "encoder_attn") in wires(found)


@pytest.mark.slow
def test_swin_alternates_two_blocks() -> None:
    found = flow_of(mg.inspect(pictured("swin_tiny_patch4_window7_224"), torch.zeros(1, 3, 224, 224)))
    pair = node(found, "0, 1")
    assert (pair.count, len(pair.paths)) == (3, 6)
    kinds = [each.type for each in found.nodes if each.group == pair.id]
    assert kinds == ["SwinTransformerBlock", "SwinTransformerBlock"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"), [("convnext_atto", 6), ("efficientnet_b0", 3), ("resnet18", 2), ("densenet121", 1)]
)
def test_convolutional_networks(name: str, most: int) -> None:
    found = flow_of(mg.inspect(pictured(name), torch.zeros(1, 3, 224, 224)))
    assert max(each.count for each in found.nodes) == most
    assert sum(each.kind != "group" for each in found.nodes) <= 40
    assert set(stages(found)) == {"input", "embedding", "blocks", "head", "output"}


def test_a_model_that_repeats_nothing_is_all_blocks() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    assert stages(flow_of(mg.inspect(model, torch.zeros(1, 4))))["blocks"] == {"0", "1", "2"}


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - {"failing"}))
@pytest.mark.filterwarnings("ignore")
def test_every_kind_of_model_that_runs_has_a_flow(name: str) -> None:
    report = mg.inspect(*SAMPLES[name]())
    for depth in (None, 1, 3):
        assert flow_of(report, depth).nodes
