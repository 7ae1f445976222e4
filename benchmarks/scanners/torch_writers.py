"""What torch itself writes: saved objects of every kind, TorchScript, exported programs, pieces."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.nn.utils import prune

from genuine import CONTENTS, nested, network, trained  # of the tests

Make = Callable[[], Any]


def contents(folder: Path) -> None:
    """Everything that the tests save, in the present form and the one before 1.6."""
    for name, make in CONTENTS.items():
        torch.save(make(), folder / f"{name}.pt")
        if name != "every-dtype":  # the old form has no room for types after 2021
            torch.save(make(), folder / f"{name}-legacy.pth", _use_new_zipfile_serialization=False)
    torch.save(nested(), folder / "nested.pt")
    torch.save(network().state_dict(), folder / "protocol-4.pt", pickle_protocol=4)
    torch.save(network().state_dict(), folder / "protocol-5.bin", pickle_protocol=5)


def kinds_of_tensors(folder: Path) -> None:
    marked = torch.ones(3)
    marked.note = "said of a tensor"  # type: ignore[attr-defined]
    weight = nn.Parameter(torch.ones(2))
    weight.is_bias = True  # type: ignore[attr-defined]
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    made: dict[str, Any] = {
        "with-attributes": {"marked": marked, "weight": weight},
        "jagged": jagged,
        "block-sparse": {
            "bsr": torch.eye(4).to_sparse_bsr((2, 2)),
            "bsc": torch.eye(4).to_sparse_bsc((2, 2)),
        },
        "conjugate": torch.zeros(2, dtype=torch.complex64).conj(),
        "negative": torch.zeros(2, dtype=torch.complex64).conj().imag,
        "lazy": nn.LazyLinear(3),
        "returned": torch.ones(2, 3).max(dim=1),
        "packed-sequence": nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]),
        "storages": {"typed": torch.ones(3).storage(), "untyped": torch.ones(3).untyped_storage()},
        "generator-state": torch.Generator().get_state(),
        "constants": {"layout": torch.strided, "scheme": torch.per_tensor_affine},
        "random-states": {
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "torch": torch.get_rng_state(),
        },
        "distribution": torch.distributions.Normal(torch.zeros(2), torch.ones(2)),
        "dataset": torch.utils.data.TensorDataset(torch.ones(4, 2), torch.zeros(4)),
    }
    for name, value in made.items():
        torch.save(value, folder / f"{name}.pt")


def optimizers(folder: Path) -> None:
    """Whole optimizers, after a step, and what their `state_dict` gives."""
    names = "Adadelta Adafactor Adagrad Adam AdamW Adamax ASGD LBFGS NAdam RAdam RMSprop Rprop SGD".split()
    for name in names:
        net = network()
        made = getattr(torch.optim, name)(net.parameters(), lr=0.1)

        def closure(net: nn.Module = net) -> torch.Tensor:
            loss: torch.Tensor = net(torch.randn(5, 4)).square().sum()
            loss.backward()
            return loss

        closure()
        made.step(closure if name == "LBFGS" else None)
        torch.save(made, folder / f"{name}.pt")
        torch.save(made.state_dict(), folder / f"{name}-state.pt")
    sparse = nn.Embedding(5, 3, sparse=True)
    torch.save(torch.optim.SparseAdam(sparse.parameters()), folder / "SparseAdam.pt")
    torch.save(torch.optim.Muon([nn.Parameter(torch.ones(3, 3))]), folder / "Muon.pt")


def schedules(folder: Path) -> None:
    """Learning rates over time, by their states, and whole where they can be saved so."""
    of = torch.optim.lr_scheduler
    makers: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
        "StepLR": lambda made: of.StepLR(made, 3),
        "MultiStepLR": lambda made: of.MultiStepLR(made, [2, 4]),
        "CosineAnnealingLR": lambda made: of.CosineAnnealingLR(made, 10),
        "OneCycleLR": lambda made: of.OneCycleLR(made, 0.1, 10),
        "CyclicLR": lambda made: of.CyclicLR(made, 0.1, 0.2),
        "LinearLR": of.LinearLR,
        "SequentialLR": lambda made: of.SequentialLR(made, [of.LinearLR(made), of.StepLR(made, 2)], [3]),
        "ReduceLROnPlateau": of.ReduceLROnPlateau,
        "LambdaLR": lambda made: of.LambdaLR(made, [lambda epoch: 0.9**epoch]),
    }
    for name, make in makers.items():
        scheduler = make(torch.optim.SGD(network().parameters(), lr=0.1, momentum=0.9))
        torch.save(scheduler.state_dict(), folder / f"{name}-state.pt")
    torch.save(of.ReduceLROnPlateau(torch.optim.SGD(network().parameters(), lr=0.1)), folder / "plateau.pt")
    torch.save(torch.amp.GradScaler("cpu").state_dict(), folder / "scaler-state.pt")
    torch.save(torch.amp.GradScaler("cpu"), folder / "scaler.pt")


_MODULES: dict[str, Make] = {
    "convolutions": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 3, 3)),
    "recurrent": lambda: nn.ModuleDict({"lstm": nn.LSTM(3, 4), "gru": nn.GRU(3, 4), "rnn": nn.RNN(3, 4)}),
    "attention": lambda: nn.MultiheadAttention(8, 2),
    "transformer": lambda: nn.Transformer(8, 2, 1, 1, 16),
    "encoder": lambda: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"),
    "norms": lambda: nn.ModuleList([nn.LayerNorm(3), nn.GroupNorm(1, 3), nn.BatchNorm2d(3), nn.RMSNorm(3)]),
    "activations": lambda: nn.Sequential(nn.GELU(), nn.SiLU(), nn.PReLU(), nn.Softmax(-1), nn.Hardtanh()),
    "pooling": lambda: nn.Sequential(nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout()),
    "losses": lambda: nn.ModuleList([nn.CrossEntropyLoss(), nn.MSELoss(), nn.TripletMarginLoss()]),
    "parameters": lambda: nn.ParameterDict({"a": torch.ones(2), "b": torch.zeros(3)}),
    "data-parallel": lambda: nn.DataParallel(network()),
    "averaged": lambda: torch.optim.swa_utils.AveragedModel(network()),
    "weight-norm": lambda: nn.utils.weight_norm(nn.Linear(3, 2)),
    "spectral-norm": lambda: nn.utils.spectral_norm(nn.Linear(3, 2)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(3, 2), "weight", 0.5),
}


def modules(folder: Path) -> None:
    for name, make in _MODULES.items():
        torch.save(make(), folder / f"{name}.pt")


def quantized(folder: Path) -> None:
    """Modules that torch made smaller, dynamically, with observed ranges, and while training."""
    dynamic = torch.ao.quantization.quantize_dynamic(network(), {nn.Linear}, dtype=torch.qint8)
    static = torch.ao.quantization.QuantWrapper(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())).eval()
    static.qconfig = torch.ao.quantization.get_default_qconfig("fbgemm")
    observed = torch.ao.quantization.prepare(static)
    observed(torch.randn(1, 3, 8, 8))
    torch.save(observed.state_dict(), folder / "observed-state.pt")
    made = {"dynamic": dynamic, "static": torch.ao.quantization.convert(observed)}
    for name, model in made.items():
        torch.save(model, folder / f"{name}.pt")
        torch.save(model.state_dict(), folder / f"{name}-state.pt")
    torch.jit.save(torch.jit.script(dynamic), folder / "dynamic-script.pt")
    torch.jit.save(torch.jit.trace(made["static"], torch.randn(1, 3, 8, 8)), folder / "static-trace.pt")


def scripts(folder: Path) -> None:
    from scanners.scripted import Branching, Stateful

    net = network().eval()
    torch.jit.save(torch.jit.script(net), folder / "script.pt")
    torch.jit.save(torch.jit.trace(net, torch.randn(2, 4)), folder / "trace.pt")
    torch.jit.save(torch.jit.script(Branching()), folder / "branching.pt")
    torch.jit.save(torch.jit.script(Stateful()), folder / "stateful.pt")
    torch.jit.save(
        torch.jit.script(net), folder / "extra-files.pt", _extra_files={"labels.txt": b"cat\ndog\n"}
    )
    torch.jit.save(torch.jit.freeze(torch.jit.script(net)), folder / "frozen.pt")
    torch.jit.script(net)._save_for_lite_interpreter(str(folder / "mobile.ptl"))
    torch.jit.save(torch.jit.script(nn.LSTM(3, 4)), folder / "lstm.pt")
    torch.jit.save(torch.jit.trace(nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8)), folder / "convolution.pt")


def exported(folder: Path) -> None:
    from scanners.scripted import Choosing, Counting, Several

    def save(name: str, model: nn.Module, args: tuple[Any, ...], **options: Any) -> None:
        torch.export.save(torch.export.export(model.eval(), args, **options), folder / f"{name}.pt2")

    batch = torch.export.Dim("batch", min=2, max=64)
    save("plain", network(), (torch.randn(2, 4),))
    save("dynamic", network(), (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    save("automatic", network(), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    image, free = torch.randn(3, 3, 16, 16), torch.export.Dim.AUTO
    shapes = {"x": {0: free, 2: free, 3: free}}
    pooled = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    save("symbolic-sizes", Several(pooled), (image,), dynamic_shapes=shapes)
    save("counting", Counting(), (torch.randn(3),))
    save("choosing", Choosing(), (torch.randn(3),))
    save("attention", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (torch.randn(2, 5, 8),))
    save("recurrent", nn.LSTM(3, 4), (torch.randn(5, 2, 3),))


def compiled(folder: Path) -> None:
    """A program with its compiled code, which loading runs."""
    program = torch.export.export(network().eval(), (torch.randn(2, 4),))
    torch._inductor.aoti_compile_and_package(program, package_path=str(folder / "compiled.pt2"))


def distributed(folder: Path) -> None:
    import torch.distributed.checkpoint as dcp

    content = trained(torch.optim.Adam)
    everything = {"model": content["model"], "optim": content["optimizer"], "epoch": 3, "lr": [0.1, 0.2]}
    dcp.save(everything, checkpoint_id=folder / "training")
    dcp.save({"model": content["model"]}, checkpoint_id=folder / "model")
    dcp_to_torch_save(folder / "model", folder / "joined.pt")
    writer = dcp.FileSystemWriter(folder / "one-file", single_file_per_rank=False)
    dcp.save({"model": content["model"]}, storage_writer=writer)


def packaged(folder: Path) -> None:
    """A module together with the source of its class."""
    from scanners import scripted

    with torch.package.PackageExporter(folder / "packaged.pt") as exporter:
        exporter.intern("scanners.**")
        exporter.extern(["torch.**", "numpy.**"])
        exporter.save_pickle("model", "model.pkl", scripted.Branching())


def graphs(folder: Path) -> None:
    """A module whose code torch.fx wrote, and writes anew when it is loaded."""
    torch.save(torch.fx.symbolic_trace(network()), folder / "graph.pt")


WRITERS = {
    "torch": contents,
    "torch-tensors": kinds_of_tensors,
    "torch-optimizers": optimizers,
    "torch-schedules": schedules,
    "torch-modules": modules,
    "torch-quantized": quantized,
    "torch-script": scripts,
    "torch-export": exported,
    "torch-distributed": distributed,
}
# Loading these runs code that came along, and a scanner may say so.
WITH_CODE = {"torch-compiled": compiled, "torch-package": packaged, "torch-fx": graphs}
