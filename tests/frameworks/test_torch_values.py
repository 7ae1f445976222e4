"""Values of torch tensors of every kind, read as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import modelglass as mg
from modelglass.report import TensorStats
from models import quantized, scripted

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SMALL_FLOATS = [
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
    *([torch.float8_e8m0fnu] if hasattr(torch, "float8_e8m0fnu") else []),  # since torch 2.7
]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32]


class Holder(nn.Module):
    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("x", tensor)


def stats_of(tensor: torch.Tensor) -> TensorStats:
    report = mg.inspect(Holder(tensor), stats=True)
    assert report.stats is not None
    found = report.stats["x"]
    assert found is not None
    return found


def check(tensor: torch.Tensor, values: torch.Tensor | None = None) -> TensorStats:
    """The figures are those torch computes in double precision."""
    stats = stats_of(tensor)
    truth = (tensor if values is None else values).detach().double().reshape(-1)
    assert stats.count == truth.numel()
    assert stats.mean == pytest.approx(truth.mean().item(), rel=1e-12)
    assert stats.std == pytest.approx(truth.std().item(), rel=1e-12)
    assert (stats.min, stats.max) == (truth.min().item(), truth.max().item())
    assert stats.l2 == pytest.approx(truth.norm().item(), rel=1e-12)
    assert stats.zeros == (truth == 0).sum().item()
    assert stats.quantiles[0.5] == pytest.approx(truth.quantile(0.5).item(), rel=2**-7)
    return stats


@pytest.mark.parametrize("dtype", [*FLOATS, *SMALL_FLOATS, *INTEGERS], ids=str)
def test_every_type(dtype: torch.dtype) -> None:
    values = torch.randn(64, 30).abs() * 10 + 1
    check(values.to(dtype))


def test_booleans() -> None:
    stats = check(torch.rand(50, 3) > 0.3)
    assert (stats.min, stats.max) == (0, 1)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32], ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex_numbers_by_magnitude(dtype: torch.dtype) -> None:
    tensor = torch.randn(40, 3, dtype=torch.complex64).to(dtype)
    truth = torch.view_as_real(tensor).double()
    stats = stats_of(tensor)
    assert stats.described == "magnitudes"
    assert stats.mean == pytest.approx(truth.norm(dim=-1).mean().item(), rel=1e-12)


@pytest.mark.skipif(not hasattr(torch, "float4_e2m1fn_x2"), reason="this torch has no float4")
def test_four_bit_floats() -> None:
    tensor = torch.arange(256, dtype=torch.uint8).view(16, 16).view(torch.float4_e2m1fn_x2)
    stats = stats_of(tensor)
    assert (stats.count, stats.min, stats.max, stats.zeros) == (512, -6.0, 6.0, 64)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda t: t.transpose(0, 2),
    "strided": lambda t: t[::2, 1:, ::3],
    "expanded": lambda t: t[:, :1].expand(-1, 7, -1),
    "channels last": lambda t: t[None].contiguous(memory_format=torch.channels_last),
    "one column": lambda t: t[:, 0, 0],
    "scalar": lambda t: t[0, 0, 0],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("chunk", [40, 8 << 20])
def test_views_with_gaps(view: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modelglass.analyses.stats.fold.CHUNK_NBYTES", chunk)
    tensor = VIEWS[view](torch.randn(6, 8, 9))
    if tensor.numel() == 1:
        stats = stats_of(tensor)
        assert (stats.mean, stats.std, stats.count) == (tensor.item(), None, 1)
        return
    check(tensor)
    marked = tensor.clone(memory_format=torch.preserve_format)
    place = tuple(size - 1 for size in tensor.shape)
    if view != "expanded":
        marked[place] = float("nan")
        assert stats_of(marked).first_nan == tensor.numel() - 1


def test_conjugated_and_negated_views() -> None:
    tensor = torch.randn(30, dtype=torch.complex64).conj()
    assert stats_of(tensor).mean == pytest.approx(tensor.abs().double().mean().item(), rel=1e-6)
    check(tensor.imag)


def test_empty_tensors() -> None:
    stats = stats_of(torch.empty(0, 3))
    assert (stats.count, stats.mean, stats.std, stats.min, stats.histogram) == (0, None, None, None, None)


STORED: dict[str, tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]] = {
    "coo": (lambda: torch.randn(9, 9).relu().to_sparse(), lambda t: t.coalesce().values()),
    "csr": (lambda: torch.randn(9, 9).relu().to_sparse_csr(), lambda t: t.values()),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.randn(9, 9), 0.1, 3, torch.quint8),
        lambda t: t.int_repr(),
    ),
    "by channel": (
        lambda: torch.quantize_per_channel(
            torch.randn(9, 9), torch.rand(9) + 0.1, torch.zeros(9), 0, torch.qint8
        ),
        lambda t: t.int_repr(),
    ),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged),
        lambda t: t.values(),
    ),
}


@pytest.mark.filterwarnings(
    "ignore:.*[Ss]parse CSR.*", "ignore:The PyTorch API of nested tensors", "ignore:torch.quantize"
)
@pytest.mark.parametrize("kind", STORED)
def test_stored_values_are_described_and_said_to_be(kind: str) -> None:
    make, stored = STORED[kind]
    tensor = make()
    assert check(tensor, stored(tensor)).described == "stored"
    report = mg.inspect(Holder(tensor), stats=True)
    assert ("x",) in [note.where for note in report.notes if note.code == "stored-values"]


def test_weights_in_packed_objects() -> None:
    model = quantized(nn.Sequential(nn.Linear(16, 32)), nn.Linear)
    stats = mg.inspect(model, stats=True).stats
    assert stats is not None
    weight = next(found for name, found in stats.items() if name.endswith("weight"))
    assert weight is not None
    assert weight.described == "stored"
    truth = model[0].weight().int_repr().double()
    assert weight.mean == pytest.approx(truth.mean().item(), rel=1e-12)


def test_layouts_that_cannot_be_read_are_named() -> None:
    report = mg.inspect(Holder(torch.randn(3, 3).to_mkldnn()), stats=True)
    assert report.stats == {"x": None}
    assert "mkldnn" in next(note.text for note in report.notes if note.code == "no-values")


@pytest.mark.filterwarnings("ignore:torch.quantize")
def test_a_tensor_that_cannot_be_read_costs_no_other_its_statistics() -> None:
    holder = Holder(torch.randn(4, 4))
    packed = torch.quantize_per_channel(torch.randn(4, 4), torch.ones(4), torch.zeros(4), 0, torch.quint4x2)
    holder.register_buffer("packed", packed)
    stats = mg.inspect(holder, stats=True).stats
    assert stats is not None
    assert stats["packed"] is None
    assert stats["x"] is not None


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_sparse_complex_numbers() -> None:
    values = torch.arange(12).to(torch.complex64)
    values[3] = float("nan")
    places = torch.arange(12) % 9
    tensor = torch.sparse_coo_tensor(torch.stack([places, places]), values, (9, 9))
    stats = stats_of(tensor)
    assert (stats.described, stats.count, stats.first_nan) == ("stored", 12, 3)
    report = mg.inspect(Holder(tensor), stats=True)
    nan = next(note for note in report.notes if note.code == "nan")
    assert nan.details == ("has 1, the first at stored value 3",)


class Opaque(torch.Tensor):
    """A tensor that answers nothing."""

    @staticmethod
    def __new__(cls, shape: tuple[int, ...]) -> Opaque:
        return torch.Tensor._make_wrapper_subclass(cls, shape)  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class Scaled(torch.Tensor):
    """Integers with a scale for each, beside something that is not a tensor."""

    data_: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> Scaled:
        made = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)  # type: ignore[attr-defined]
        made.scale, made.data_, made.mesh = scale, data, object()
        return made  # type: ignore[no-any-return]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["mesh", "scale", "data_", "missing"], None

    @staticmethod
    def __tensor_unflatten__(*parts: Any) -> Scaled:
        raise NotImplementedError

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise ValueError(f"no {func}")


def test_tensors_of_somebodys_own() -> None:
    holder = Holder(torch.randn(3))
    holder.register_buffer("opaque", Opaque((3, 3)))
    holder.register_buffer("scaled", Scaled(torch.arange(40, dtype=torch.int8), torch.rand(10).double()))
    report = mg.inspect(holder, stats=True)
    stats = report.stats
    assert stats is not None
    assert stats["opaque"] is None
    assert stats["x"] is not None
    scaled = stats["scaled"]
    assert scaled is not None
    assert (scaled.described, scaled.count, scaled.max) == ("stored", 40, 39)


def test_distributed_tensors(tmp_path: Any) -> None:
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        layer = nn.Linear(8, 8)
        truth = stats_of(layer.weight.detach().clone())
        fully_shard(layer, mesh=dist.init_device_mesh("cpu", (1,)))
        report = mg.inspect(layer, stats=True)
    finally:
        dist.destroy_process_group()
    assert report.stats is not None
    weight = report.stats["weight"]
    assert weight is not None
    assert (weight.mean, weight.std, weight.described) == (truth.mean, truth.std, "stored")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_of_a_jagged_tensor_the_values_are_read_not_its_offsets() -> None:
    rows = [torch.full((1,), 0.5) for _ in range(50)]
    stats = stats_of(torch.nested.nested_tensor(rows, layout=torch.jagged))
    assert (stats.count, stats.mean) == (50, 0.5)


def test_a_negated_view_is_not_tied_to_its_original() -> None:
    z = torch.randn(50, dtype=torch.complex64) + 3j
    holder = Holder(z.imag)
    holder.register_buffer("negated", z.conj().imag)
    stats = mg.inspect(holder, stats=True).stats
    assert stats is not None
    assert stats["x"].mean == -stats["negated"].mean


def test_frozen_torchscript() -> None:
    frozen = torch.jit.freeze(scripted(nn.Linear(3, 4).eval()))
    assert mg.inspect(frozen, stats=True).stats is not None


def test_shapes_that_only_look_packed() -> None:
    module = nn.Module()
    shapes = {"qweight": (2, 4, 8), "qzeros": (2, 1, 1), "scales": (2, 1, 8)}
    for name, shape in shapes.items():
        module.register_buffer(name, torch.ones(shape, dtype=torch.int32))
    module.register_buffer("w_blocks", torch.ones(8, dtype=torch.uint8))
    module.register_buffer("w_scales", torch.ones(1, dtype=torch.uint8))
    stats = mg.inspect(module, stats=True).stats
    assert stats is not None
    assert all(found is not None and found.described == "values" for found in stats.values())


def test_bits_that_are_no_numbers() -> None:
    report = mg.inspect(Holder(torch.zeros(3, dtype=torch.uint8).view(torch.bits8)), stats=True)
    assert report.stats == {"x": None}
    assert "bits8" in next(note.text for note in report.notes if note.code == "no-values")


def test_inside_modes_and_without_gradients() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    layer = nn.Linear(8, 8)
    truth = stats_of(layer.weight.detach())
    contexts: list[Any] = [torch.inference_mode(), torch.no_grad(), torch.device("meta"), FakeTensorMode()]
    for context in contexts:
        with context:
            found = mg.inspect(layer, stats=True).stats
        assert found is not None
        assert found["weight"] == truth


def test_exported_programs_have_values_too() -> None:
    layer = nn.Linear(4, 4)
    program = torch.export.export(layer, (torch.zeros(2, 4),))
    stats = mg.inspect(program, stats=True).stats
    assert stats is not None
    assert stats["weight"] == stats_of(layer.weight.detach())
