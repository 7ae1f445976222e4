"""Packed weights in checkpoints count as the weights they stand for, and their scales as overhead."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import build
from modelglass.analyses.counts import count
from modelglass.formats.packing.layers import packed
from modelglass.report import Counts, Tensor

Spec = tuple[str, tuple[int, ...], str]


def tensors(*specs: Spec) -> list[Tensor]:
    return [build.tensor(name, shape, dtype=dtype, trainable=None) for name, shape, dtype in specs]


def counted(
    given: list[Tensor], config: Any = None, metadata: Any = None
) -> tuple[Counts, dict[str, Tensor]]:
    result = packed(given, config, metadata)
    assert [tensor.name for tensor in result] == [tensor.name for tensor in given]
    counts = count(build.model(*result))
    assert counts.nbytes == sum(tensor.nbytes or 0 for tensor in given)  # nothing is counted twice
    assert counts.params == counts.logical_params
    return counts, {tensor.name: tensor for tensor in result}


def mlx(bits: int, group: int = 64, outputs: int = 512, inputs: int = 512, path: str = "l.") -> list[Tensor]:
    return tensors(
        (f"{path}weight", (outputs, inputs * bits // 32), "uint32"),
        (f"{path}scales", (outputs, inputs // group), "float16"),
        (f"{path}biases", (outputs, inputs // group), "float16"),
        (f"{path}bias", (outputs,), "float16"),
    )


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_gptq(bits: int) -> None:
    given = tensors(
        ("l.qweight", (1024 * bits // 32, 512), "int32"),
        ("l.qzeros", (8, 512 * bits // 32), "int32"),
        ("l.scales", (8, 512), "float16"),
        ("l.g_idx", (1024,), "int32"),
        ("l.bias", (512,), "float16"),
    )
    counts, by_name = counted(given)
    assert counts.logical_params == 1024 * 512 + 512
    packing = by_name["l.qweight"].packing
    assert packing is not None
    assert packing.scheme == f"gptq-{bits}bit"
    assert packing.logical_shape == (512, 1024)
    assert packing.side_nbytes == sum(given[i].nbytes or 0 for i in (1, 2, 3))
    assert {name for name, tensor in by_name.items() if tensor.kind == "buffer"} == {
        "l.qzeros",
        "l.scales",
        "l.g_idx",
    }


def test_awq() -> None:
    given = tensors(
        ("l.qweight", (1024, 64), "int32"),
        ("l.qzeros", (8, 64), "int32"),
        ("l.scales", (8, 512), "float16"),
    )
    counts, by_name = counted(given)
    assert counts.logical_params == 1024 * 512
    assert by_name["l.qweight"].packing is not None
    assert by_name["l.qweight"].packing.scheme == "awq-4bit"


def test_words_in_an_order_of_their_own_count_by_the_configured_bits() -> None:
    given = tensors(("l.qweight", (512, 128), "int32"), ("l.scales", (512, 8), "float16"))
    config = {"quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemv"}}
    assert counted(given, config)[0].logical_params == 512 * 1024


@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_bitsandbytes_with_four_bits(kind: str) -> None:
    given = tensors(
        ("l.weight", (512 * 256, 1), "uint8"),
        ("l.weight.absmax", (4096,), "uint8"),
        ("l.weight.quant_map", (16,), "float32"),
        ("l.weight.nested_absmax", (16,), "float32"),
        ("l.weight.nested_quant_map", (256,), "float32"),
        (f"l.weight.quant_state.bitsandbytes__{kind}", (81,), "uint8"),
    )
    counts, by_name = counted(given)
    assert counts.logical_params == 512 * 512
    packing = by_name["l.weight"].packing
    assert packing is not None
    assert packing.scheme == f"bitsandbytes-{kind}"
    assert packing.side_nbytes == 4096 + 64 + 64 + 1024 + 81


def test_bitsandbytes_with_eight_bits() -> None:
    given = tensors(
        ("l.weight", (512, 512), "int8"), ("l.SCB", (512,), "float32"), ("l.weight_format", (), "uint8")
    )
    counts, by_name = counted(given)
    assert counts.logical_params == 512 * 512
    assert counts.buffers == 513
    assert by_name["l.weight"].bits_per_weight == 8 * (512 * 512 + 4 * 512 + 1) / 512**2


def test_the_documented_case_of_mlx() -> None:
    given = mlx(4, outputs=4096, inputs=4096)[:3]
    counts, by_name = counted(given, {"quantization": {"bits": 4, "group_size": 64}})
    assert counts.logical_params == 16_777_216
    assert counts.nbytes == 9_437_184
    assert by_name["l.weight"].bits_per_weight == 4.5


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("path", ["l.", "", "model.layers.0.mlp.down_proj."])
def test_mlx_with_and_without_its_configuration(bits: int, path: str) -> None:
    for config in ({"quantization": {"bits": bits, "group_size": 64}}, None):
        assert counted(mlx(bits, path=path), config)[0].logical_params == 262_144 + 512


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_every_width_and_group_of_mlx_by_configuration(bits: int, group: int) -> None:
    given = mlx(bits, group, outputs=96, inputs=1536)
    config = {"quantization_config": {"bits": bits, "group_size": group}}
    assert counted(given, config)[0].logical_params == 96 * 1536 + 96
    metadata = {"quantization_config": f'{{"bits": {bits}, "group_size": {group}}}'}
    assert counted(given, None, metadata)[0].logical_params == 96 * 1536 + 96


def test_layers_of_mlx_have_settings_of_their_own() -> None:
    given = [*mlx(8, 32, path="a.b."), *mlx(2, 128, path="a.c."), *mlx(4, 64, path="d.")]
    config = {
        "quantization": {
            "bits": 4,
            "group_size": 64,
            "a.b": {"bits": 8, "group_size": 32},
            "a.c": {"bits": 2, "group_size": 128},
        }
    }
    assert counted(given, config)[0].logical_params == 3 * (262_144 + 512)


def test_an_assumed_group_size_is_called_assumed() -> None:
    _, by_name = counted(mlx(4, outputs=96, inputs=1536))
    packing = by_name["l.weight"].packing
    assert packing is not None
    assert packing.logical_shape == (96, 1536)
    assert packing.scheme == "mlx-4bit, if groups have 64"


@pytest.mark.parametrize(("scheme", "bits", "group"), [("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)])
def test_float_modes_of_mlx_have_no_biases(scheme: str, bits: int, group: int) -> None:
    given = tensors(
        ("e.weight", (8, 96, 1024 * bits // 32), "uint32"), ("e.scales", (8, 96, 1024 // group), "uint8")
    )
    counts, by_name = counted(given)
    assert counts.logical_params == 8 * 96 * 1024
    assert by_name["e.weight"].packing is not None
    assert by_name["e.weight"].packing.scheme == scheme


@pytest.mark.parametrize(
    "scales",
    [
        [("l.weight_scale_inv", (4, 8), "float32")],
        [("l.weight_scale", (), "float32"), ("l.input_scale", (), "float32")],
        [("l.scale_weight", (1,), "float32"), ("l.scale_input", (1,), "float32")],
        [("l.scale", (4, 8), "float8_e8m0fnu")],
    ],
)
def test_float8_weights_are_one_element_each(scales: list[Spec]) -> None:
    given = tensors(("l.weight", (512, 1024), "float8_e4m3fn"), *scales, ("norm.scale", (7,), "float32"))
    counts, by_name = counted(given)
    assert counts.logical_params == 512 * 1024 + 7
    assert by_name["l.weight"].kind == "parameter"
    assert by_name["l.weight"].packing is not None
    assert by_name["l.weight"].packing.side_nbytes == sum(t.nbytes or 0 for t in given[1:-1])


def test_stacked_experts_in_float8() -> None:
    given = tensors(("e.up", (8, 64, 32), "float8_e4m3fn"), ("e.up_scale_inv", (8, 1, 1), "float32"))
    assert counted(given)[0].logical_params == 8 * 64 * 32


def test_scales_of_the_attention_cache_are_no_parameters() -> None:
    given = tensors(("l.weight", (8, 8), "float8_e4m3fn"), ("l.weight_scale", (), "float32"))
    scales = tensors(("attn.k_scale", (), "float32"), ("attn.v_scale", (1,), "float32"))
    config = {"quantization_config": {"quant_method": "fp8"}}
    assert counted([*given, *scales], config)[0].logical_params == 64
    assert counted(scales)[0].logical_params == 2  # nobody said that they are scales


def test_nvfp4() -> None:
    sides: list[Spec] = [("l.weight_scale", (64, 32), "float8_e4m3fn"), ("l.input_scale", (), "float32")]
    given = tensors(("l.weight", (64, 256), "uint8"), *sides, ("l.weight_scale_2", (), "float32"))
    assert counted(given)[0].logical_params == 64 * 512
    given = tensors(("l.weight_packed", (64, 256), "uint8"), *sides, ("l.weight_global_scale", (), "float32"))
    assert counted(given)[0].logical_params == 64 * 512


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("groups", [1, 8])
def test_compressed_tensors(bits: int, groups: int) -> None:
    given = tensors(
        ("l.weight_packed", (64, 1024 * bits // 32), "int32"),
        ("l.weight_scale", (64, groups), "bfloat16"),
        ("l.weight_shape", (2,), "int64"),
    )
    group = 128 if groups == 8 else None
    weights = {"weights": {"num_bits": bits, "group_size": group}}
    config = {"quantization_config": {"config_groups": {"group_0": weights}}}
    assert counted(given, config)[0].logical_params == 64 * 1024
    zeros = tensors(("l.weight_zero_point", (64 * bits // 32, groups), "int32"))
    assert counted([*given, *zeros])[0].logical_params == 64 * 1024
    assert packed(given, None, None) == given  # the width could be any


def test_mxfp4_blocks() -> None:
    given = tensors(
        ("e.gate_up_proj_blocks", (32, 5760, 90, 16), "uint8"),
        ("e.gate_up_proj_scales", (32, 5760, 90), "uint8"),
        ("e.gate_up_proj_bias", (32, 5760), "bfloat16"),
    )
    counts, by_name = counted(given)
    assert counts.logical_params == 32 * 5760 * 2880 + 32 * 5760
    assert by_name["e.gate_up_proj_blocks"].bits_per_weight == 4.25


@pytest.mark.parametrize(
    ("bits", "stored", "dtype"), [(8, 4096, "uint8"), (4, 2048, "uint8"), (3, 410, "int32")]
)
def test_hqq(bits: int, stored: int, dtype: str) -> None:
    given = tensors(
        ("l.W_q", (stored, 64), dtype),
        ("l.scale", (4096, 1), "float16"),
        ("l.zero", (4096, 1), "float16"),
        ("l.nbits", (), "int32"),
    )
    counts, by_name = counted(given)
    assert counts.logical_params == 512 * 512
    assert by_name["l.W_q"].packing is not None
    assert by_name["l.W_q"].packing.scheme == f"hqq-{bits}bit"


def test_one_byte_weights_of_other_schemes() -> None:
    quanto = tensors(("l.weight._data", (8, 8), "int8"), ("l.weight._scale", (8, 1), "float32"))
    eetq = tensors(("m.weight", (8, 8), "int8"), ("m.weight_scales", (8,), "float16"))
    assert counted([*quanto, *eetq])[0].logical_params == 128
    bitnet = tensors(("l.weight", (16, 8), "uint8"), ("l.weight_scale", (1,), "bfloat16"))
    assert counted(bitnet, {"quantization_config": {"quant_method": "bitnet"}})[0].logical_params == 512


@pytest.mark.parametrize(
    "given",
    [
        tensors(
            ("l.qweight", (10, 10), "int32"), ("l.scales", (3, 7), "float16"), ("l.qzeros", (3, 5), "int32")
        ),
        tensors(("l.qweight", (10, 10), "int32")),
        tensors(
            ("l.weight", (8, 3), "uint32"), ("l.scales", (8, 7), "float16"), ("l.biases", (8, 7), "float16")
        ),
        tensors(("l.weight", (8, 3), "uint32"), ("l.scales", (0, 0), "float16")),
        tensors(("l.weight", (8, 8), "float32"), ("l.scales", (8, 1), "float16")),
        tensors(("norm.scale", (8,), "float32"), ("norm.weight", (8,), "float32")),
        tensors(("a_blocks", (8,), "uint8"), ("a_scales", (8,), "uint8")),
        tensors(("W_q", (8, 8), "float32"), ("scale", (8, 1), "float32")),
        tensors(("weight", (8, 8), "uint8"), ("weight_scale", (8, 1), "float32")),
    ],
)
def test_what_fits_no_layout_stays_as_it_is(given: list[Tensor]) -> None:
    assert packed(given, None, None) == given


NAMES = st.sampled_from(
    [
        stem + name
        for stem in ("", "a.", "a.weight")
        for name in (
            *("qweight", "qzeros", "scales", "g_idx", "weight", "biases", ".absmax", ".quant_map", "SCB"),
            *("weight_scale", "weight_scale_inv", "weight_packed", "weight_zero_point", "W_q", "scale"),
            *("x_blocks", "x_scales", "._data", "._scale", "k_scale", "weight_g_idx"),
        )
    ]
)
DTYPES = st.sampled_from(["uint8", "int8", "int32", "uint32", "float16", "float8_e4m3fn", "strange"])
SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 8, 16, 64, 512]), max_size=3).map(tuple)
CONFIGS = st.recursive(
    st.none() | st.integers(-2, 64) | st.text(max_size=3),
    lambda inner: st.dictionaries(
        st.sampled_from(["quantization", "quantization_config", "bits", "group_size", "config_groups", "a"]),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(SHAPES, DTYPES), max_size=8), CONFIGS, CONFIGS)
def test_no_names_and_shapes_break_it(
    specs: dict[str, tuple[tuple[int, ...], str]], config: Any, metadata: Any
) -> None:
    given = tensors(*((name, shape, dtype) for name, (shape, dtype) in specs.items()))
    result = packed(given, config, metadata)
    assert [(t.name, t.shape, t.dtype, t.nbytes) for t in result] == [
        (t.name, t.shape, t.dtype, t.nbytes) for t in given
    ]


def test_time_is_linear() -> None:
    quarter = 25_000
    given = tensors(
        *(
            spec
            for i in range(quarter)
            for spec in (
                (f"layers.{i}.weight", (64, 8), "uint32"),
                (f"layers.{i}.scales", (64, 1), "float16"),
                (f"layers.{i}.biases", (64, 1), "float16"),
                (f"layers.{i}.bias", (64,), "float16"),
            )
        )
    )
    start = time.process_time()
    assert sum(tensor.packing is not None for tensor in packed(given, None, None)) == quarter
    assert time.process_time() - start < 5
