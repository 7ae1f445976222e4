"""Every distinct primitive of an MLX model can be run from a file of its own."""

from __future__ import annotations

import contextlib
import importlib
import io
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

import modelglass as mg
from mlx_ops import ops_of
from modelglass.errors import CannotReproduceError
from modelglass.frameworks.mlx.graph.primitives import public_name
from modelglass.frameworks.mlx.inputs.reproduce import reproducer
from modelglass.report import Op, Report, Value


def executed(source: str, name: str) -> str:
    """What a file prints; it raises where a user would see a traceback."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, name, "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.fixture(autouse=True)
def _no_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["op.py"])


def line(op: Op) -> str:
    made = " ".join(f"{'x'.join(map(str, v.shape or ())) or 'scalar'} mlx.core.{v.dtype}" for v in op.outputs)
    return f"{op.name} {made}\n"


def zeros(*shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.zeros(shape, dtype)


def whole(*shape: int) -> mx.array:
    return mx.zeros(shape, mx.int32)


def set_at(x: mx.array, place: Any, values: Any) -> mx.array:
    x = mx.array(x)
    x[place] = values
    return x


SQUARE = zeros(4, 4)
PACKED = mx.quantize(zeros(64, 128), 64, 4)
BANK = mx.quantize(zeros(3, 64, 128), 32, 4, "mxfp4")
UNARY = """
    abs arccos arccosh arcsin arcsinh arctan arctanh ceil cos cosh erf erfinv exp expm1 floor log log2 log10
    log1p logical_not negative round rsqrt sigmoid sign sin sinh sqrt square tan tanh
    """
BINARY = """
    add arctan2 divide divmod equal floor_divide greater greater_equal less less_equal logaddexp logical_and
    logical_or matmul maximum minimum multiply not_equal power remainder subtract
    """
CPU = {"stream": mx.cpu}
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[mx.array, ...]]] = {
    **{name: (getattr(mx, name), (SQUARE,)) for name in UNARY.split()},
    **{name: (getattr(mx, name), (SQUARE, SQUARE)) for name in BINARY.split()},
    "whole numbers": (lambda i: (i // i, i % i, i**i, i << i, i >> i, i & i, i | i, i ^ i), (whole(3),)),
    "complex": (lambda c: (c.real, c.imag, mx.conj(c), mx.abs(c), c * c), (zeros(3, dtype=mx.complex64),)),
    "half precision": (lambda a, b: (a @ b, a + b), (zeros(2, 2, dtype=mx.bfloat16),) * 2),
    "added product": (lambda a, b: mx.addmm(a, a, b, 2.0, 3.0), (SQUARE, SQUARE)),
    "ranges": (lambda a: (mx.arange(1, 9, 2) + a, mx.arange(0.0, 1.0, 0.25) + a), (zeros(4),)),
    "order": (
        lambda a: (
            mx.argpartition(a, 1, 0),
            mx.partition(a, 2),
            mx.argsort(a, 0),
            mx.sort(a, 0),
            mx.topk(a, 2),
        ),
        (SQUARE,),
    ),
    "extremes": (lambda a: (mx.argmin(a, 0), mx.argmax(a), mx.max(a, 1), mx.min(a)), (SQUARE,)),
    "reductions": (lambda a: (mx.sum(a, 0), mx.prod(a), mx.all(a), mx.any(a, (0, 1)), mx.var(a)), (SQUARE,)),
    "scans": (
        lambda a: (
            mx.cumsum(a, 0),
            mx.cumprod(a, inclusive=False),
            mx.cummax(a, 1),
            mx.cummin(a, reverse=True),
        ),
        (SQUARE,),
    ),
    "memory": (
        lambda a: (mx.as_strided(a, (2, 3), (4, 1), 1), a.view(mx.int16), a.astype(mx.float16)),
        (SQUARE,),
    ),
    "shapes": (
        lambda a: (
            a.reshape(2, -1),
            a.flatten(),
            mx.unflatten(a, 1, (2, 2)),
            a[:, None],
            a.T,
            mx.broadcast_to(a, (3, 4, 4)),
            mx.expand_dims(a, (0, 2)).squeeze(0),
        ),
        (SQUARE,),
    ),
    "joined and split": (
        lambda a: (mx.concatenate([a, a], 1), mx.stack([a, a]), *mx.split(a, [1, 3]), *mx.split(a, 2, -1)),
        (SQUARE,),
    ),
    "filled": (lambda a: (mx.full((2, 3), a[0, 0]), mx.zeros_like(a), mx.ones((2,)) + a[0, :2]), (SQUARE,)),
    "slices": (lambda a: (a[1:3, ::2], a[::-1], a[..., -1], a[2:, 0:0], a[3:1:-1]), (SQUARE,)),
    "moving slices": (
        lambda a, i: (mx.slice(a, i, (0, 1), (2, 3)), mx.slice_update(a, a[:2, :2], i, (0, 1))),
        (SQUARE, whole(2)),
    ),
    "written slices": (
        lambda a: (set_at(a, 0, 1.0), set_at(a, (slice(1, 3), slice(None, None, 2)), 2.0), a.at[1:].add(1.0)),
        (SQUARE,),
    ),
    "indices": (
        lambda a, i: (a[i[0]], a[i[0], i[1]], mx.take(a, i, 1), mx.take(a, i), a[:, i[0]], a[2], a[i]),
        (SQUARE, whole(2, 3)),
    ),
    "indices into the middle": (
        lambda a, i: (a[:, i], a[:, i, :, i], a[..., i], mx.take(a, i, 2)),
        (zeros(2, 3, 4, 5), whole(7)),
    ),
    "indices along an axis": (
        lambda a, i: (mx.take_along_axis(a, i, 1), mx.put_along_axis(a, i, a, 1)),
        (SQUARE, whole(4, 4)),
    ),
    "written by indices": (
        lambda a, i: (
            set_at(a, i, 0.0),
            a.at[i].add(1.0),
            a.at[i, i].multiply(2.0),
            a.at[:, i].maximum(3.0),
            a.at[i].minimum(a[i]),
        ),
        (SQUARE, whole(3)),
    ),
    "written by a mask": (lambda a: set_at(a, a > 0, 1.0), (SQUARE,)),
    "padded": (
        lambda a: (mx.pad(a, 1), mx.pad(a, ((1, 2), (0, 3)), constant_values=2.0), mx.pad(a, 2, mode="edge")),
        (SQUARE,),
    ),
    "softmax": (
        lambda a: (mx.softmax(a, -1, precise=True), mx.softmax(a, 0), mx.logsumexp(a, -1)),
        (SQUARE,),
    ),
    "places in order": (lambda a, b: mx.searchsorted(a, b, side="right"), (zeros(5), zeros(2, 3))),
    "choice": (lambda a, b: mx.where(a > b, a, b), (SQUARE, SQUARE)),
    "after another": (lambda a, b: mx.depends([a, b], [a + b]), (SQUARE, SQUARE)),
    "convolutions": (
        lambda x, w: (
            mx.conv2d(x, w, (2, 3), (1, 4), (1, 2), 2),
            mx.conv_general(x, w, 1, ([1, 2], [3, 4]), groups=2),
        ),
        (zeros(2, 9, 9, 4), zeros(6, 3, 3, 2)),
    ),
    "transposed convolution": (
        lambda x, w: mx.conv_transpose2d(x, w, (2, 3), 1, (1, 2), (1, 0)),
        (zeros(2, 5, 6, 4), zeros(6, 3, 3, 4)),
    ),
    "convolution in one and three": (
        lambda a, b, c, d: (mx.conv1d(a, b, 2), mx.conv3d(c, d, padding=1), mx.conv_transpose1d(a, b)),
        (zeros(1, 8, 3), zeros(5, 3, 3), zeros(1, 4, 4, 4, 2), zeros(3, 2, 2, 2, 2)),
    ),
    "gradients": (
        lambda x, w: mx.grad(lambda x, w: mx.conv2d(x, w, 2, 1).square().sum(), (0, 1))(x, w),
        (zeros(1, 9, 9, 2), zeros(3, 3, 3, 2)),
    ),
    "masked blocks": (
        lambda a, b, m: (mx.block_masked_mm(a, b, 32, m), mx.block_masked_mm(a, b, 32, None, m, m)),
        (zeros(64, 64), zeros(64, 64), zeros(2, 2)),
    ),
    "chosen matrices": (
        lambda x, w, i: (mx.gather_mm(x, w, rhs_indices=i), mx.gather_mm(x, w, i, i, sorted_indices=True)),
        (zeros(3, 1, 4), zeros(3, 4, 5), mx.zeros(3, mx.uint32)),
    ),
    "packed": (lambda x, *w: mx.quantized_matmul(x, *w, group_size=64, bits=4), (zeros(3, 128), *PACKED)),
    "packed the other way": (
        lambda x, *w: mx.quantized_matmul(x, *w, transpose=False, group_size=64, bits=4),
        (zeros(3, 64), *PACKED),
    ),
    "chosen packed": (
        lambda x, i, *w: mx.gather_qmm(x, *w, rhs_indices=i, group_size=32, bits=4, mode="mxfp4"),
        (zeros(5, 1, 128), mx.zeros(5, mx.uint32), *BANK),
    ),
    "packing": (lambda w: mx.quantize(w, 64, 4), (zeros(64, 128),)),
    "transforms": (
        lambda a: (
            mx.fft.fft(a),
            mx.fft.rfft(a, axis=0),
            mx.fft.irfft(a, 7),
            mx.fft.ifft2(a),
            mx.fft.irfftn(a),
        ),
        (SQUARE,),
    ),
    "decompositions": (
        lambda a: (
            *mx.linalg.qr(a, **CPU),
            *mx.linalg.svd(a, **CPU),
            mx.linalg.svd(a, compute_uv=False, **CPU),
            mx.linalg.inv(a, **CPU),
            mx.linalg.tri_inv(a, upper=True, **CPU),
            mx.linalg.cholesky(a, upper=True, **CPU),
            *mx.linalg.eig(a, **CPU),
            mx.linalg.eigvals(a, **CPU),
            *mx.linalg.eigh(a, **CPU),
            mx.linalg.eigvalsh(a, "U", **CPU),
        ),
        (SQUARE,),
    ),
    "walsh": (lambda a: mx.hadamard_transform(a, 0.5), (SQUARE,)),
    "loss": (mx.fast.cross_entropy, (SQUARE, whole(4))),
    "nothing": (lambda a: (a[:0] + 1, mx.sum(a[:0]), a[:0] @ a), (SQUARE,)),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_values_are_made_that_the_function_accepts(case: str) -> None:
    function, arrays = FUNCTIONS[case]
    ops = ops_of(function, *arrays)
    assert ops
    for op in ops:
        assert executed(reproducer(op, file="op.py"), op.overload) == line(op)


def distinct_ops(report: Report) -> list[Op]:
    assert report.run.failure is None, report.run.failure
    return [report.model.ops[op.ops[0]] for op in mg.unique(report).ops]


def language_model(name: str, **settings: Any) -> nn.Module:
    module = importlib.import_module(f"mlx_lm.models.{name}")
    return module.Model(module.ModelArgs.from_dict({"model_type": name, **SMALL, **settings}))


def quantized(model: nn.Module, **settings: Any) -> nn.Module:
    nn.quantize(model, **settings)
    return model


SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "rms_norm_eps": 1e-5,
    "head_dim": 16,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
MAMBA = {"state_size": 8, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "time_step_rank": 4}
MODELS: dict[str, tuple[Callable[[], nn.Module], mx.array]] = {
    "Llama": (lambda: language_model("llama"), whole(1, 6)),
    "Llama of 3 bits": (lambda: quantized(language_model("llama"), group_size=32, bits=3), whole(1, 6)),
    "Mixtral": (lambda: language_model("mixtral", **EXPERTS), whole(2, 5)),
    "Mixtral in mxfp4": (
        lambda: quantized(language_model("mixtral", **EXPERTS), group_size=32, bits=4, mode="mxfp4"),
        whole(1, 6),
    ),
    "Mamba": (lambda: language_model("mamba", **MAMBA), whole(1, 6)),
    "a convolutional network": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm(8),
            nn.MaxPool2d(2),
            nn.ConvTranspose2d(8, 4, 3, stride=2),
            nn.GroupNorm(2, 4),
            nn.GELU(),
            nn.AvgPool2d(2),
            nn.Upsample(2.0, mode="linear"),
        ),
        zeros(1, 8, 8, 3),
    ),
    "a recurrent network": (lambda: nn.Sequential(nn.GRU(4, 8), nn.RNN(8, 4)), zeros(2, 5, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_primitive_of_a_model(name: str) -> None:
    model, inputs = MODELS[name]
    ops = distinct_ops(mg.inspect(model(), inputs=inputs))
    assert len(ops) > 20
    for op in ops:
        assert executed(reproducer(op, file="op.py"), op.overload) == line(op)


def op_of(primitive: str, *inputs: Value, **settings: Any) -> Op:
    return Op(
        index=0,
        name=public_name(primitive),
        overload=f"mlx.{primitive}",
        module="",
        call=None,
        phase="forward",
        attributes=settings,
        inputs=inputs,
        outputs=(Value(name="", shape=(1, 4, 3, 8), dtype="float32"),),
    )


def value(name: str, *shape: int) -> Value:
    return Value(name=name, shape=shape, dtype="float32")


HEADS = value("q", 1, 4, 3, 8), value("k", 1, 2, 5, 8), value("v", 1, 2, 5, 8)
FUSED = {
    "attention": op_of("ScaledDotProductAttention", *HEADS, scale=0.5, do_causal=True),
    "attention with a mask": op_of(
        "ScaledDotProductAttention", *HEADS, value("mask", 3, 5), scale=0.5, do_causal=False
    ),
    "attention with sinks": op_of(
        "ScaledDotProductAttention", *HEADS, value("sinks", 4), scale=0.5, do_causal=False, has_sinks=True
    ),
    "positions": op_of(
        "RoPE",
        value("a", 1, 4, 3, 8),
        Value(name="offset", shape=(), dtype="int32"),
        dims=8,
        traditional=False,
        base=1e4,
        scale=1.0,
        forward=True,
    ),
    "positions by frequencies": op_of(
        "RoPE",
        value("a", 1, 4, 3, 8),
        Value(name="offset", shape=(), dtype="int32"),
        value("freqs", 4),
        dims=8,
        traditional=True,
        base=0.0,
        scale=1.0,
        forward=True,
    ),
    "root mean square": op_of("RMSNorm", value("x", 1, 4, 3, 8), value("weight", 8), eps=1e-5),
    "layer": op_of("LayerNorm", value("x", 1, 4, 3, 8), value("weight", 8), value("bias", 8), eps=1e-5),
}


@pytest.mark.parametrize("case", FUSED)
def test_primitives_of_a_gpu_run_here_as_their_parts(case: str) -> None:
    assert executed(reproducer(FUSED[case], file="op.py"), case) == line(FUSED[case])


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (op_of("RandomBits", value("key", 2), shape=[4, 4], width=4), "makes random bits"),
        (op_of("CustomKernel", value("inputs.0", 2), name="mine"), "not in the report"),
        (op_of("NumberOfElements", value("a", 2), axes=[0], inverted=False), "makes it by itself"),
        (op_of("OfALaterRelease", value("0", 2)), "makes it by itself"),
        (op_of("Softmax", value("a", 2)), "does not report its precise"),
        (op_of("Exp", Value(name="a", text="array of unknown shape")), "has no shape"),
        (
            op_of("ScatterAxis", *(value(r, 2) for r in ("a", "indices", "updates")), reduce="add"),
            "adds along",
        ),
    ],
    ids=lambda given: given.overload if isinstance(given, Op) else "",
)
def test_what_cannot_be_reproduced_says_why(op: Op, reason: str) -> None:
    with pytest.raises(CannotReproduceError, match=reason):
        reproducer(op, file="op.py")


def test_a_file_fails_when_the_function_does_something_else() -> None:
    (op,) = ops_of(mx.exp, zeros(2, 3))
    wrong = replace(op, outputs=(replace(op.outputs[0], shape=(3, 2)),))
    with pytest.raises(AssertionError, match="expected"):
        executed(reproducer(wrong, file="op.py"), "wrong")


def test_files_are_written_and_run(tmp_path: Path) -> None:
    report = mg.inspect(nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh()), inputs=zeros(2, 3))
    made = mg.reproduce(report, tmp_path)
    assert (made.files, made.missing) == (
        ("op_000_Transpose.py", "op_001_Matmul.py", "op_002_Tanh.py"),
        {},
    )
    program = [sys.executable, tmp_path / "op_001_Matmul.py", "cpu"]
    ran = subprocess.run(program, capture_output=True, text=True, check=True)
    assert ran.stdout == "mx.matmul 2x4 mlx.core.float32\n"


HOSTILE = "float32); raise SystemExit("


@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_types_from_a_report_never_become_code(where: str) -> None:
    (op,) = ops_of(mx.exp, zeros(2, 3))
    hostile = replace(op.inputs[0], dtype=HOSTILE)
    with pytest.raises(CannotReproduceError, match="MLX has no type"):
        reproducer(replace(op, **{where: (hostile,)}), file="op.py")


def test_names_and_settings_from_a_report_never_become_code() -> None:
    (op,) = ops_of(mx.exp, zeros(2, 3))
    with pytest.raises(CannotReproduceError, match="makes it by itself"):
        reproducer(replace(op, name="mx.exp(0); raise SystemExit(); mx.exp"), file="op.py")
    named = replace(op, inputs=(replace(op.inputs[0], name="a\nraise SystemExit()"),))
    details = "in a\nraise SystemExit()"
    assert executed(reproducer(named, file="op.py", details=details), "named") == line(op)
    (scan,) = ops_of(lambda a: mx.cumsum(a, 0), zeros(2, 3))
    settings = {**scan.attributes, "axis": "0) or exit("}
    with pytest.raises(TypeError):
        executed(reproducer(replace(scan, attributes=settings), file="op.py"), "scan")
