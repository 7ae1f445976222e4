"""The inspector: a configuration, a checkpoint, or both, against what torch itself says."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from modelglass import api
from modelglass.compat.model_inspector import Question, inspect_model
from modelglass.compat.model_inspector.inspection import Inspection
from modelglass.errors import FileError, InspectError, TargetError, UsageError

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "examples" / "diffusion.yaml"
BATCH = f"{ROOT / 'examples' / 'diffusion.py'}::batch"
BUILDER = f"{ROOT / 'examples' / 'diffusion.py'}::build"
MIB = 2**20

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8, frozen=False, dtype="float32"):
        super().__init__()
        self.inside = nn.Linear(4, width, dtype=getattr(torch, dtype))
        self.norm = nn.BatchNorm1d(width)
        self.outside = nn.Linear(width, 2)
        self.inside.requires_grad_(not frozen)
        self.register_buffer("input_mean", torch.tensor([0.5, 0.25, 0.125, 0.1]))
        self.register_buffer("input_std", torch.ones(4))

    def forward(self, x):
        x = ((x - self.input_mean) / self.input_std).to(self.inside.weight.dtype)
        return self.outside(self.norm(self.inside(x).float()).relu())

class Impossible(Net):
    def forward(self, x):
        raise TypeError("never")

class Choosing(Net):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)

class Deciding(Net):
    def forward(self, x):
        x = super().forward(x)
        return x if self.inside.weight.sum() > 1e9 else -x

class DecidingInTraining(Net):
    def forward(self, x):
        x = super().forward(x)
        return x if not self.training or self.inside.weight.sum() > 1e9 else -x

def batch():
    return torch.ones(3, 4)

def build(config):
    return Net(**config["model"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one model, where the process is."""
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "config.yaml").write_text("model:\n  _target_: net.Net\n  width: 8\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def net(**settings: Any) -> nn.Module:
    scope: dict[str, Any] = {"__name__": "net"}
    exec(NET, scope)
    made: nn.Module = scope["Net"](**settings)
    return made


def asked(**options: Any) -> Inspection:
    paths = {key: Path(options.pop(key)) for key in ("config", "checkpoint") if key in options}
    return inspect_model(Question(**paths, trust=True, **options))


@pytest.fixture(scope="module")
def diffusion() -> Inspection:
    return asked(config=CONFIG, inputs=BATCH)


def by_type(found: Inspection) -> dict[str | None, int]:
    return {each.type: each.params for each in found.by_type}


@pytest.mark.slow
def test_the_documents_model_has_its_exact_figures(diffusion: Inspection) -> None:
    assert diffusion.name == "SensorDiT"
    counts = diffusion.described.counts
    assert counts is not None
    assert (counts.params, counts.trainable, counts.buffers) == (98_648, 98_648, 22)
    assert diffusion.nbytes_by_dtype == {"float32": 394_592}
    assert by_type(diffusion) == {
        "SensorDiT": 82_560,
        "Linear": 12_786,
        "MultiheadAttention": 2_448,
        "NonDynamicallyQuantizableLinear": 816,
        "LayerNorm": 32,
        "Block": 6,
    }
    assert sum(each.permille for each in diffusion.by_type) == 1000


def test_the_documents_batch_has_its_exact_figures(diffusion: Inspection) -> None:
    found = diffusion.estimate
    assert found is not None
    assert found.batch_size == 512
    inputs = {name: nbytes / MIB for name, nbytes in found.inputs}
    assert inputs["x_sig"] == pytest.approx(20.156, abs=5e-4)
    assert inputs["geom"] == pytest.approx(30.234, abs=5e-4)
    assert inputs["label"] == pytest.approx(0.0117, abs=5e-5)
    assert found.parameters / MIB == pytest.approx(0.376, abs=5e-4)
    assert found.model_nbytes / MIB == pytest.approx(1.505, abs=5e-4)


def test_attention_that_is_materialised_is_counted(diffusion: Inspection) -> None:
    """Dropout in attention keeps scores of every pair of sensors: 8 heads, three layers, three times each."""
    scores = 512 * 8 * 5160 * 5160 * 4
    assert diffusion.estimate is not None
    assert diffusion.estimate.activations is not None
    assert 9 * scores < diffusion.estimate.activations < 9.1 * scores
    assert diffusion.trained is not None
    assert diffusion.trained.memory is not None
    assert diffusion.trained.memory.largest[0].nbytes == scores


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_mixed_precision_is_a_run_of_its_own() -> None:
    found = asked(config="config.yaml", inputs="net.py::batch", batch_size=64)
    model = net()
    report = api.inspect(
        model,
        torch.ones(64, 4),
        train=True,
        optimizer="adamw",
        what_if=api.WhatIf(autocast="bfloat16"),
    )
    assert found.mixed_dtype == "bfloat16"
    assert found.mixed is not None
    assert report.memory is not None
    assert found.mixed.peak_nbytes == report.memory.peak_nbytes


def test_the_model_shows_how_its_data_are_scaled(diffusion: Inspection) -> None:
    assert diffusion.normalisation["affine_offset"] == [0, 0, -600, -550, -550]
    assert diffusion.normalisation["label_scale"] == [1e8, 3.14159, 6.28318, 1200, 1100, 1100]


def test_frozen_parameters_have_neither_gradients_nor_state(folder: Path) -> None:
    (folder / "config.yaml").write_text("model:\n  _target_: net.Net\n  frozen: true\n")
    found = asked(config="config.yaml", inputs="net.py::batch")
    model = net(frozen=True)
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert found.described.counts is not None
    assert found.described.counts.frozen == sum(p.numel() for p in model.parameters() if not p.requires_grad)
    assert found.estimate is not None
    assert found.estimate.gradients == trained
    steps = 4 * sum(p.requires_grad for p in model.parameters())  # AdamW counts them for each parameter
    assert found.estimate.optimizer_state == 2 * trained + steps


def test_sizes_are_those_of_real_types(folder: Path) -> None:
    (folder / "config.yaml").write_text("model:\n  _target_: net.Net\n  dtype: bfloat16\n")
    found = asked(config="config.yaml")
    truth: Counter[str] = Counter()
    for parameter in net(dtype="bfloat16").parameters():
        truth[str(parameter.dtype).removeprefix("torch.")] += parameter.nbytes
    assert found.nbytes_by_dtype == truth
    assert len(truth) == 2


@pytest.mark.usefixtures("folder")
def test_without_inputs_they_are_found_and_the_batch_is_honoured() -> None:
    found = asked(config="config.yaml", batch_size=3)
    assert found.flow is not None
    assert found.estimate is not None
    assert found.estimate.batch_size == 3
    assert found.estimate.inputs == (("x", 3 * 4 * 4),)
    assert found.report is not None
    assert "inputs-found" in {note.code for note in found.report.notes}
    assert found.failures == ()


@pytest.mark.usefixtures("folder")
def test_where_no_inputs_are_found_there_is_the_summary_and_a_failure() -> None:
    Path("config.yaml").write_text("model:\n  _target_: net.Impossible\n")
    found = asked(config="config.yaml")
    assert found.by_type
    assert (found.flow, found.estimate) == (None, None)
    (failure,) = found.failures
    assert "no inputs were found" in failure
    assert "hint: give" in failure


@pytest.mark.usefixtures("folder")
def test_a_pass_that_raises_leaves_the_summary() -> None:
    found = asked(config="config.yaml", inputs=(torch.ones(3, 5),))
    assert found.by_type
    assert found.flow is None
    assert found.estimate is None
    (failure,) = found.failures
    assert "was given" in failure
    assert "3x5" in failure


def test_a_batch_that_cannot_be_tried_is_left_as_given(folder: Path) -> None:
    (folder / "config.yaml").write_text("model:\n  _target_: net.Choosing\n")
    real = "net.py::Choosing"
    with pytest.raises(InspectError):
        api.require_complete(api.inspect(real, torch.ones(3, 4), what_if=api.WhatIf(batch_size=8)))
    found = asked(config="config.yaml", inputs="net.py::batch", builder=lambda config: _choosing(folder))
    assert found.batch_problem is not None
    assert found.estimate is not None
    assert found.estimate.batch_size is None
    assert found.estimate.inputs == (("x", 48),)
    insisted = asked(
        config="config.yaml", inputs="net.py::batch", builder=lambda config: _choosing(folder), batch_size=8
    )
    assert insisted.estimate is None
    assert insisted.failures


def _choosing(folder: Path) -> nn.Module:
    scope: dict[str, Any] = {"__name__": "net"}
    exec(NET, scope)
    with torch.device("cpu"):
        made: nn.Module = scope["Choosing"]()
    return made


@pytest.mark.parametrize("name", ["Deciding", "DecidingInTraining"])
@pytest.mark.parametrize("batch_size", [None, 8], ids=["default", "asked"])
def test_a_model_whose_run_depends_on_its_weights_gets_them(
    name: str, batch_size: int | None, folder: Path
) -> None:
    (folder / "config.yaml").write_text(f"model:\n  _target_: net.{name}\n")
    found = asked(config="config.yaml", inputs="net.py::batch", batch_size=batch_size)
    assert found.report is not None
    assert found.report.run.failure is None
    assert "built-with-weights" in {note.code for note in found.report.notes}
    assert found.flow is not None
    # A run with other sizes than the given ones has no values to decide by.
    assert (found.estimate is None) == (batch_size is not None)
    assert bool(found.failures) == (batch_size is not None)


@pytest.mark.parametrize("key", ["model_state_dict", "state_dict", "model", None])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_checkpoints_under_any_key_and_prefix(key: str | None, prefix: str, folder: Path) -> None:
    model = net()
    state = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    torch.save(state if key is None else {key: state, "epoch": 3}, folder / "best.pt")
    alone = asked(checkpoint="best.pt")
    assert alone.described.counts is not None
    assert alone.described.counts.params == sum(p.numel() for p in model.parameters())
    assert by_type(alone) == {"Linear": 58, "BatchNorm": 16}
    both = asked(config="config.yaml", checkpoint="best.pt")
    assert both.matching is not None
    assert both.matching.complete
    assert both.matching.matched == len(state)


def test_a_checkpoint_alone_says_what_it_can(folder: Path) -> None:
    model = net()
    content = {
        "model_state_dict": model.state_dict(),
        "epoch": 12,
        "global_step": 3400,
        "best_loss": 0.125,
        "config": {"model": {"width": 8}},
        "normalization": {"time_transform": "ln"},
    }
    torch.save(content, folder / "best.pt")
    found = asked(checkpoint="best.pt")
    assert found.name is None
    assert found.config == {"model": {"width": 8}}
    assert found.normalisation["normalization"] == {"time_transform": "ln"}
    assert found.normalisation["input_mean"] == [0.5, 0.25, 0.125, 0.1]
    assert found.checkpoint is not None
    assert found.checkpoint.stats is not None
    assert found.checkpoint.checkpoint is not None
    kinds = {part.key: part.kind for part in found.checkpoint.checkpoint.parts}
    assert (kinds["epoch"], kinds["global_step"], kinds["best_loss"]) == ("progress", "progress", "loss")


@pytest.mark.slow
def test_the_documents_checkpoint_keeps_buffers_apart(tmp_path: Path) -> None:
    """A state dict has 98,670 elements, of which 22 are no parameters."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import diffusion as code
    finally:
        sys.path.pop(0)
    settings = {
        "seq_len": 5160,
        "hidden": 16,
        "depth": 3,
        "heads": 8,
        "dropout": 0.1,
        "label_dim": 6,
        "t_embed_dim": 128,
        "mlp_ratio": 4.0,
    }
    model = code.SensorDiT(**settings)
    assert sum(tensor.numel() for tensor in model.state_dict().values()) == 98_670
    torch.save({"model_state_dict": model.state_dict(), "config": {"model": settings}}, tmp_path / "best.pt")
    alone = asked(checkpoint=tmp_path / "best.pt")
    assert alone.described.counts is not None
    assert (alone.described.counts.params, alone.described.counts.buffers) == (98_648, 22)
    built = asked(checkpoint=tmp_path / "best.pt", builder=BUILDER, inputs=BATCH, batch_size=2)
    assert built.name == "SensorDiT"
    assert built.flow is not None
    assert built.estimate is not None
    assert built.matching is not None
    assert built.matching.complete


def test_both_given_lists_what_differs(folder: Path) -> None:
    state = net().state_dict()
    state["outside.weight"] = torch.zeros(2, 9)
    state["more.weight"] = torch.zeros(1)
    del state["inside.bias"]
    torch.save(state, folder / "other.pt")
    found = asked(config="config.yaml", checkpoint="other.pt")
    assert found.name == "Net"  # the configuration's model
    assert found.matching is not None
    assert found.matching.missing == ("inside.bias",)
    assert found.matching.unexpected == ("more.weight",)
    assert [(each.shape, each.stored_shape) for each in found.matching.reshaped] == [((2, 8), (2, 9))]
    (failure,) = found.failures
    assert failure.startswith("shape mismatch: the model's outside.weight is 2x8, the checkpoint's 2x9")


def test_safetensors_and_gguf(folder: Path) -> None:
    from gguf import GGUFWriter
    from safetensors.torch import save_file

    model = net()
    save_file(model.state_dict(), folder / "net.safetensors")
    writer = GGUFWriter(folder / "net.gguf", "llama")
    writer.add_block_count(1)
    writer.add_tensor("token_embd.weight", torch.zeros(32, 8).numpy())
    writer.add_tensor("blk.0.attn_norm.weight", torch.ones(8).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    both = asked(config="config.yaml", checkpoint="net.safetensors")
    assert both.matching is not None
    assert both.matching.complete
    alone = asked(checkpoint="net.gguf")
    assert by_type(alone) == {"Embedding": 256, "Norm": 8}
    assert alone.config["llama.block_count"] == 1
    assert alone.name == "llama"


@pytest.mark.slow
def test_hugging_face_folders(tmp_path: Path) -> None:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=50,
        max_position_embeddings=24,
    )
    native = BertForMaskedLM(config)
    native.save_pretrained(tmp_path)
    found = asked(config=tmp_path / "config.json", checkpoint=tmp_path, batch_size=4)
    assert found.name == "BertForMaskedLM"
    assert found.config["hidden_size"] == 16
    assert found.matching is not None
    assert found.matching.complete
    assert found.matching.tied  # the decoder is the embedding
    assert found.described.counts is not None
    assert found.described.counts.params == sum(p.numel() for p in native.parameters())
    assert found.flow is not None
    assert found.estimate is not None


@pytest.mark.slow
def test_weights_that_a_library_stores_in_another_form(tmp_path: Path) -> None:
    """transformers holds the experts of a layer as one tensor, and stores them one by one."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
        vocab_size=50,
        num_local_experts=4,
    )
    native = MixtralForCausalLM(config)
    native.save_pretrained(tmp_path)
    found = asked(config=tmp_path, checkpoint=tmp_path)
    assert found.matching is not None
    assert found.matching.complete
    assert found.matching.library == "transformers"
    torch.save(native.state_dict(), tmp_path / "as_it_is.pt")
    found = asked(config=tmp_path, checkpoint=tmp_path / "as_it_is.pt")
    assert found.matching is not None
    assert found.matching.complete
    assert found.matching.library is None


@pytest.mark.usefixtures("folder")
def test_arguments_of_a_training_are_its_configuration() -> None:
    torch.save({"model": net().state_dict(), "args": argparse.Namespace(lr=0.5, data="toy")}, "run.pt")
    found = asked(checkpoint="run.pt")
    assert (found.config["lr"], found.config["data"]) == (0.5, "toy")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, UsageError, "--config FILE"),
        ({"config": "confg.yaml"}, TargetError, "did you mean config.yaml"),
        ({"checkpoint": "net.pt"}, TargetError, "there is no file"),
        ({"config": "empty.yaml"}, TargetError, "names a model"),
        ({"config": "lost.yaml"}, TargetError, "nowhere"),
        ({"checkpoint": "bad.pt"}, FileError, "bad.pt"),
        ({"checkpoint": "best.pt", "inputs": "net.py::batch"}, UsageError, "--builder"),
        ({"config": "config.yaml", "builder": "net.py::missing"}, TargetError, "has no 'missing'"),
        ({"checkpoint": "best.pt", "model_key": "a.b"}, UsageError, "applies only to a configuration"),
        ({"config": "best.pt"}, UsageError, "--checkpoint best.pt"),
        ({"config": "unnamed"}, UsageError, "--checkpoint unnamed"),
        ({"checkpoint": "config.yaml"}, UsageError, "--config config.yaml"),
        ({"config": "config.yaml", "checkpoint": "config.yaml"}, UsageError, "it has no weights"),
    ],
    ids=[
        *("nothing", "typo", "no-file", "no-model", "no-import", "damaged", "no-code", "no-builder"),
        *("key-of-weights", "weights-as-config", "by-its-bytes", "config-as-weights", "config-twice"),
    ],
)
def test_errors_say_what_to_do(
    options: dict[str, Any], error: type[InspectError], words: str, folder: Path
) -> None:
    (folder / "empty.yaml").write_text("training:\n  lr: 0.1\n")
    (folder / "lost.yaml").write_text("model:\n  _target_: nowhere.at.all.Net\n")
    (folder / "bad.pt").write_bytes(b"PK\x03\x04 and nothing else")
    torch.save(net().state_dict(), folder / "best.pt")
    torch.save(net().state_dict(), folder / "unnamed")
    with pytest.raises(error, match=words) as raised:
        asked(**options)
    assert raised.value.hint


def test_nothing_is_left_behind(folder: Path) -> None:
    torch.save({"model": net().state_dict()}, folder / "best.pt")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    state = torch.get_rng_state()
    modules = set(sys.modules)
    asked(config="config.yaml", checkpoint="best.pt", inputs="net.py::batch")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert torch.equal(torch.get_rng_state(), state)
    assert "net" not in set(sys.modules) - modules


@pytest.mark.slow
def test_a_checkpoint_is_inspected_without_torch(folder: Path) -> None:
    torch.save({"model": net().state_dict()}, folder / "best.pt")
    code = (
        "import sys\nsys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from modelglass.compat.model_inspector import Question, inspect_model\n"
        "print(inspect_model(Question(checkpoint=Path('best.pt'))).described.counts.params)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "74"


def test_a_question_without_statistics_reads_no_values(folder: Path) -> None:
    torch.save({"model": net().state_dict()}, folder / "best.pt")
    question = Question(checkpoint=Path("best.pt"))
    assert inspect_model(replace(question, stats=False)).described.stats is None
    assert inspect_model(question).described.stats is not None


def test_memory_is_of_a_model_in_training_mode(tmp_path: Path) -> None:
    """Dropout that drops keeps a mask; the model is in the mode it was in afterwards."""
    (tmp_path / "c.yaml").write_text("width: 4\n")
    made = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
    masks = {}
    for name, model in (("eval", made), ("train", nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))):
        report = api.inspect(model, torch.ones(256, 4), train=True, optimizer="adamw")
        assert report.memory is not None
        masks[name] = report.memory.peak_nbytes
    assert masks["train"] > masks["eval"]
    question = Question(
        config=tmp_path / "c.yaml", builder=lambda config: made, inputs=(torch.ones(2, 4),), batch_size=256
    )
    found = inspect_model(question)
    assert found.estimate is not None
    assert found.estimate.peak_nbytes == masks["train"]
    assert not any(module.training for module in made.modules())


def test_a_configuration_may_be_called_anything(folder: Path) -> None:
    (folder / "config.yaml").rename(folder / "model.conf")
    assert asked(config="model.conf").name == "Net"


@pytest.mark.slow
def test_a_form_of_storage_that_cannot_be_found_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import BertConfig, BertForMaskedLM, core_model_loading

    def fails(*args: Any) -> None:
        raise KeyError("a weight")

    monkeypatch.setattr(core_model_loading, "revert_weight_conversion", fails)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    native = BertForMaskedLM(BertConfig(**sizes, vocab_size=50, max_position_embeddings=24))
    (tmp_path / "config.json").write_text(native.config.to_json_string())
    state = native.state_dict()
    torch.save(state, tmp_path / "whole.pt")
    del state["bert.embeddings.LayerNorm.bias"]
    torch.save(state, tmp_path / "lacking.pt")
    codes = {}
    for name in ("whole.pt", "lacking.pt"):
        found = asked(config=tmp_path / "config.json", checkpoint=tmp_path / name, batch_size=2)
        assert found.report is not None
        codes[name] = {note.code: note.text for note in found.report.notes}
    assert "stored-form-unknown" not in codes["whole.pt"]  # it did not matter
    assert "KeyError: 'a weight'" in codes["lacking.pt"]["stored-form-unknown"]
