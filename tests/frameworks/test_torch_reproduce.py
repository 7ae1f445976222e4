"""Every distinct operator of a model can be run from a file of its own."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import modelglass as mg
from modelglass.errors import CannotReproduceError
from modelglass.frameworks.torch.inputs.reproduce import reproducer
from modelglass.report import Op, Report
from models import SAMPLES, Apply, ids, quantized


def distinct_ops(report: Report) -> list[Op]:
    assert report.run.failure is None, report.run.failure
    return [report.model.ops[op.ops[0]] for op in mg.unique(report).ops]


def executed(source: str, name: str) -> str:
    """What a file prints; it raises where a user would see a traceback."""
    out = io.StringIO()
    rng = torch.get_rng_state()
    with contextlib.redirect_stdout(out):
        exec(compile(source, name, "exec"), {"__name__": "__main__"})
    torch.set_rng_state(rng)
    return out.getvalue()


@pytest.fixture(autouse=True)
def _no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["op.py"])


def run_all(model: nn.Module, inputs: Any) -> None:
    for op in distinct_ops(mg.inspect(model, inputs=inputs)):
        assert executed(reproducer(op, file="op.py"), op.overload).startswith(op.name)


@pytest.mark.parametrize("sample", [name for name in SAMPLES if name not in ("failing", "lazy")])
def test_every_operator_of_the_samples(sample: str) -> None:
    run_all(*SAMPLES[sample]())


def test_operators_on_uninitialised_weights_have_no_file() -> None:
    model, inputs = SAMPLES["lazy"]()
    ops = distinct_ops(mg.inspect(model, inputs=inputs))
    lazy = [op for op in ops if any(value.text == "uninitialised tensor" for value in op.inputs)]
    for op in ops:
        if op in lazy:
            with pytest.raises(CannotReproduceError, match="has no shape: uninitialised tensor"):
                reproducer(op, file="op.py")
        else:
            executed(reproducer(op, file="op.py"), op.overload)
    assert lazy


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}
TINY_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 1000}
TINY_WHISPER = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "vocab_size": 1000,
    "max_source_positions": 50,
    "max_target_positions": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
FAMILIES: dict[str, tuple[str, dict[str, Any], Callable[[], Any]]] = {
    "Bert": ("Model", SMALL, ids),
    "Llama": ("ForCausalLM", SMALL, ids),
    "Mixtral": ("ForCausalLM", {**SMALL, "num_key_value_heads": 2, "num_local_experts": 4}, ids),
    "T5": (
        "ForConditionalGeneration",
        TINY_T5,
        lambda: {"input_ids": ids(), "decoder_input_ids": ids()},
    ),
    "ViT": ("Model", {**SMALL, "image_size": 32, "patch_size": 8}, lambda: torch.randn(1, 3, 32, 32)),
    "Whisper": (
        "ForConditionalGeneration",
        TINY_WHISPER,
        lambda: {"input_features": torch.randn(1, 80, 100), "decoder_input_ids": ids()},
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operator_of_transformers(family: str) -> None:
    import transformers

    suffix, settings, inputs = FAMILIES[family]
    if family == "ViT":
        settings = {key: item for key, item in settings.items() if key != "vocab_size"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, f"{family}Config")(**settings)
        model = getattr(transformers, family + suffix)(config).eval()
    run_all(model, inputs())


def convolution(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, torch.ones(4, 3, 3, 3), padding="same")


OPERATORS: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "found elements": (lambda x: x.nonzero(), lambda: torch.tensor([[0.0, 2.0], [3.0, 0.0]])),
    "where": (lambda x: torch.where(x), lambda: torch.tensor([[0.0, 2.0], [3.0, 0.0]])),
    "selected by a mask": (lambda x: x.masked_select(x > 0), lambda: torch.tensor([1.0, -1.0, 2.0])),
    "indexed by a mask": (lambda x: x[x.sum(1) > 0], lambda: torch.tensor([[1.0, 1.0], [-1.0, -1.0]])),
    "indexed by numbers": (lambda x: x[torch.tensor([0, 2]), torch.tensor([1, 1])], lambda: torch.ones(3, 2)),
    "indexed in the middle": (lambda x: x[:, torch.tensor([5, 4])], lambda: torch.ones(2, 6, 3)),
    "written by index": (
        lambda x: x.index_put((torch.tensor([4]),), torch.tensor([1.0])),
        lambda: torch.ones(5),
    ),
    "written by a mask": (
        lambda x: torch.ones(5).masked_scatter_(x > 0, x),
        lambda: torch.tensor([1.0, -1, 2, -1, 1]),
    ),
    "assigned by a mask": (lambda x: x.clone().index_put_((x > 0,), x[x > 0]), lambda: torch.ones(5)),
    "distinct values": (lambda x: x.unique(), lambda: torch.tensor([3, 1, 3, 2])),
    "distinct values with counts": (
        lambda x: torch.unique(x, return_counts=True, return_inverse=True),
        lambda: torch.tensor([3, 1, 3, 2]),
    ),
    "runs": (lambda x: torch.unique_consecutive(x), lambda: torch.tensor([3, 3, 1, 1, 2])),
    "repeats": (lambda x: x.repeat_interleave(torch.tensor([2, 0, 3])), lambda: torch.ones(3)),
    "repeats of rows": (lambda x: x.repeat_interleave(torch.tensor([2, 3]), dim=0), lambda: torch.ones(2, 3)),
    "gather": (lambda x: x.gather(1, torch.tensor([[7]])), lambda: torch.ones(1, 8)),
    "scatter": (lambda x: x.scatter_add(0, torch.tensor([2, 2]), torch.ones(2)), lambda: torch.ones(3)),
    "rows by index": (lambda x: x.index_select(-1, torch.tensor([2])), lambda: torch.ones(1, 3)),
    "bag": (
        lambda x: F.embedding_bag(x, torch.ones(10, 3), torch.tensor([0, 2])),
        lambda: torch.tensor([1, 9, 4]),
    ),
    "one-hot": (lambda x: F.one_hot(x, 5), lambda: torch.tensor([4, 0])),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.tensor([2, 0])), lambda: torch.ones(2, 3)),
    "cross entropy of soft labels": (lambda x: F.cross_entropy(x, x.softmax(1)), lambda: torch.ones(2, 3)),
    "cross entropy of an image": (
        lambda x: F.cross_entropy(x, torch.zeros(2, 4, 4, dtype=torch.long)),
        lambda: torch.ones(2, 3, 4, 4),
    ),
    "whole-number division": (lambda x: x // torch.tensor([2, 3]), lambda: torch.tensor([4, 9])),
    "cholesky": (lambda x: torch.linalg.cholesky(x), lambda: torch.eye(3)),
    "solve": (lambda x: torch.linalg.solve(x, torch.ones(3)), lambda: torch.eye(3)),
    "overlapping windows": (lambda x: x.as_strided((3, 4), (2, 1)), lambda: torch.ones(8)),
    "a window on a larger memory": (lambda x: x[:2].as_strided((8,), (1,)), lambda: torch.ones(4, 2)),
    "grouped products": (
        lambda x: torch._grouped_mm(x, torch.ones(2, 16, 32).bfloat16(), offs=torch.tensor([2, 6]).int()),
        lambda: torch.ones(6, 16, dtype=torch.bfloat16),
    ),
    "sparse product": (lambda x: torch.sparse.mm(x.to_sparse(), x), lambda: torch.eye(3)),
    "complex": (lambda x: torch.view_as_real(torch.fft.fft(x) * 2j), lambda: torch.ones(4)),
    "eight bits": (lambda x: x.to(torch.float8_e4m3fn).to(torch.float16), lambda: torch.ones(4)),
    "infinite": (lambda x: x.masked_fill(x > 0, float("-inf")), lambda: torch.ones(4)),
    "padding by name": (convolution, lambda: torch.ones(1, 3, 8, 8)),
    "equation": (lambda x: torch.einsum("ij,kj->ik", x, x), lambda: torch.ones(2, 3)),
    "memory formats": (
        lambda x: x.to(memory_format=torch.channels_last).contiguous(),
        lambda: torch.ones(1, 2, 3, 4),
    ),
    "random": (lambda x: (torch.rand_like(x), torch.randperm(4), x.bernoulli()), lambda: torch.ones(4)),
    "factories": (
        lambda x: (torch.arange(3, dtype=torch.int32), torch.full((2,), 1.5), x.new_zeros(2)),
        lambda: torch.ones(4),
    ),
    "concatenation": (lambda x: torch.cat([x, x.new_ones(1)]), lambda: torch.ones(4)),
    "scalars": (lambda x: x.sum().item(), lambda: torch.ones(4)),
    "nothing": (lambda x: x[:0].relu().sum(), lambda: torch.ones(4)),
    "an overload that Python has another use for": (lambda x: x.clone().random_(2, 7), lambda: torch.ones(4)),
    "one-hot of as many as there are": (lambda x: F.one_hot(x), lambda: torch.tensor([0, 11, 3])),
    "tallies": (lambda x: (x.bincount(), (x % 4).bincount(minlength=4)), lambda: torch.tensor([0, 37, 5])),
    "runs of truth": (lambda x: torch.unique_consecutive(x > 0), lambda: torch.tensor([1.0, -1, 1, 1, -1])),
    "runs of rows": (lambda x: torch.unique_consecutive(x, dim=0), lambda: torch.ones(4, 2)),
    "runs in a plane": (lambda x: torch.unique_consecutive(x), lambda: torch.ones(4, 2)),
    "distinct rows": (lambda x: torch.unique(x, dim=1), lambda: torch.ones(4, 2)),
    "sequences of targets": (
        lambda x: (
            F.ctc_loss(x, torch.ones(2, 3).long(), torch.tensor([5, 5]), torch.tensor([3, 2])),
            F.ctc_loss(x, torch.ones(5).long(), torch.tensor([5, 5]), torch.tensor([3, 2])),
        ),
        lambda: torch.randn(5, 2, 4).log_softmax(-1),
    ),
    "sorted by another": (lambda x: torch.searchsorted(x, x, sorter=x.argsort()), lambda: torch.ones(9)),
    "factors": (
        lambda x: (torch.linalg.lu_solve(*torch.linalg.lu_factor(x), x), torch.lu_unpack(*x.lu())),
        lambda: torch.eye(3),
    ),
    "pooled and back": (
        lambda x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2),
        lambda: torch.randn(1, 2, 20),
    ),
    "margins": (
        lambda x: (
            F.multi_margin_loss(x, torch.tensor([2, 0])),
            F.multilabel_margin_loss(x, torch.tensor([[2, 0, -1], [1, -1, 0]])),
        ),
        lambda: torch.randn(2, 3),
    ),
    "bounded embedding": (
        lambda x: F.embedding(x, torch.ones(10, 3), max_norm=1.0),
        lambda: torch.tensor([1, 2]),
    ),
    "bag with its last offset": (
        lambda x: F.embedding_bag(
            x, torch.ones(10, 3), torch.tensor([0, 2, 3]), include_last_offset=True, mode="sum"
        ),
        lambda: torch.tensor([1, 9, 4]),
    ),
    "parts of a sparse tensor": (
        lambda x: (x.to_sparse().indices(), x.to_sparse().values(), torch.sparse.sum(x.to_sparse())),
        lambda: torch.eye(3),
    ),
    "unpacked sequences": (
        lambda x: nn.utils.rnn.pad_packed_sequence(
            nn.utils.rnn.pack_padded_sequence(x, torch.tensor([1, 7, 3]), enforce_sorted=False)
        )[0],
        lambda: torch.ones(7, 3, 2),
    ),
    "split at places": (lambda x: x.tensor_split(torch.tensor([2, 5])), lambda: torch.ones(9)),
    "split in parts": (lambda x: x.tensor_split(torch.tensor(4), 1), lambda: torch.ones(2, 9)),
    "lengths of segments": (
        lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 3])),
        lambda: torch.ones(4),
    ),
    "padded sequences": (
        lambda x: nn.utils.rnn.pack_padded_sequence(x, torch.tensor([7, 3, 1]))[0],
        lambda: torch.ones(7, 3, 2),
    ),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_values_are_made_that_the_operator_accepts(case: str) -> None:
    body, inputs = OPERATORS[case]
    run_all(Apply(lambda self, x: body(x)), inputs())


def static_quantized() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2)
        )
        model = torch.ao.quantization.QuantWrapper(model).eval()
        model.qconfig = torch.ao.quantization.get_default_qconfig("x86")
        torch.ao.quantization.prepare(model, inplace=True)
        model(torch.randn(1, 3, 8, 8))
        return torch.ao.quantization.convert(model)


def test_quantized_operators_pack_their_weights() -> None:
    report = mg.inspect(static_quantized(), inputs=torch.randn(1, 3, 8, 8))
    ops = {op.overload.split(".")[1]: op for op in distinct_ops(report)}
    convolution = next(op for name, op in ops.items() if name.startswith("conv2d"))
    assert [item for key, item in convolution.attributes.items() if key.endswith(".stride")] == [[2, 2]]
    for op in ops.values():
        executed(reproducer(op, file="op.py"), op.overload)


def test_weights_packed_as_half_precision() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), dtype=torch.float16)
    run_all(model, torch.ones(2, 4))


def test_weights_in_opaque_objects_have_no_file() -> None:
    ops = distinct_ops(
        mg.inspect(quantized(nn.Sequential(nn.LSTM(4, 4)), nn.LSTM), inputs=torch.ones(3, 2, 4))
    )
    op = next(op for op in ops if "lstm" in op.overload)
    with pytest.raises(CannotReproduceError, match="packed in an object"):
        reproducer(op, file="op.py")


def test_what_cannot_be_reproduced_says_why() -> None:
    op = distinct_ops(mg.inspect(nn.ReLU(), inputs=torch.ones(1)))[0]
    with pytest.raises(CannotReproduceError, match="not as an operator"):
        reproducer(replace(op, overload="torch.nn.functional.relu"), file="op.py")
    with pytest.raises(CannotReproduceError, match="does not know"):
        reproducer(replace(op, overload="aten.relu.gone"), file="op.py")
    with pytest.raises(CannotReproduceError, match="takes functions"):
        reproducer(replace(op, overload="higher_order.cond"), file="op.py")
    with pytest.raises(CannotReproduceError, match="the library that defines"):
        reproducer(replace(op, overload="nobody_knows.relu.default"), file="op.py")


def test_files_are_written_replaced_and_run(tmp_path: Path) -> None:
    folder = tmp_path / "ops"
    first = mg.inspect(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Tanh()), inputs=torch.ones(2, 3))
    assert mg.reproduce(first, folder).files == ("op_000_linear.py", "op_001_relu.py", "op_002_tanh.py")
    (folder / "op_mine.py").write_text("my own")
    second = mg.inspect(nn.GELU(), inputs=torch.ones(2, 3))
    made = mg.reproduce(second, folder)
    assert (made.files, made.missing) == (("op_000_gelu.py",), {})
    assert sorted(path.name for path in folder.iterdir()) == ["op_000_gelu.py", "op_mine.py"]
    ran = subprocess.run(
        [sys.executable, folder / "op_000_gelu.py", "cpu"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "torch.nn.functional.gelu 2x3 torch.float32\n"


def test_a_file_fails_when_the_operator_does_something_else() -> None:
    op = distinct_ops(mg.inspect(nn.Softmax(dim=0), inputs=torch.ones(2, 3)))[0]
    wrong = replace(op, outputs=(replace(op.outputs[0], shape=(3, 2)),))
    with pytest.raises(AssertionError, match="expected"):
        executed(reproducer(wrong, file="op.py"), "wrong")


def test_an_unwritable_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = mg.inspect(nn.ReLU(), inputs=torch.ones(2))
    with pytest.raises(mg.InspectError, match="cannot make the folder"):
        mg.reproduce(report, tmp_path / "file")


def test_names_from_a_model_never_become_code(tmp_path: Path) -> None:
    inner = nn.ModuleDict({'a"""\nraise SystemExit("code")\n': nn.ReLU()})
    model = Apply(lambda self, x: next(iter(self.inner.values()))(x), inner=inner)
    name = mg.reproduce(mg.inspect(model, inputs=torch.ones(2)), tmp_path).files[0]
    assert executed((tmp_path / name).read_text(), name) == "torch.relu 2 torch.float32\n"


@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_types_from_a_report_never_become_code(where: str) -> None:
    op = distinct_ops(mg.inspect(nn.ReLU(), inputs=torch.ones(2)))[0]
    hostile = replace(op.inputs[0], dtype="float32); raise SystemExit(")
    with pytest.raises(CannotReproduceError, match="torch has no"):
        reproducer(replace(op, **{where: (hostile,)}), file="op.py")
