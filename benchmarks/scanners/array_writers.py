"""Arrays without a framework: NumPy, SciPy's own files, MLX."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np


def numpy_files(folder: Path) -> None:
    point = np.dtype([("x", "<f4"), ("name", "U8"), ("inner", [("a", "i2"), ("b", "?")])])
    arrays = {
        "float32": np.ones((2, 3), np.float32),
        "fortran": np.asfortranarray(np.ones((3, 4))),
        "big-endian": np.arange(4, dtype=">i4"),
        "complex": np.ones(2, np.complex128),
        "structured": np.zeros(3, point),
        "texts": np.array(["a", "bcd"]),
        "dates": np.array(["2024-01-02"], "datetime64[D]"),
        "scalar": np.array(1.5),
        "empty": np.zeros((0, 3)),
        "objects": np.array([{"a": 1}, [1, 2], "text", None], dtype=object),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.savez(folder / "several.npz", **arrays)
    np.savez_compressed(folder / "compressed.npz", weight=np.ones((10, 10)), bias=np.zeros(10))


def numpy_pickles(folder: Path) -> None:
    values = {
        "array": np.arange(6.0).reshape(2, 3),
        "scalars": [np.float32(1), np.int64(2), np.bool_(True), np.str_("a"), np.datetime64("2024-01-01")],
        "masked": np.ma.masked_array([1, 2, 3], [0, 1, 0]),
        "records": np.rec.fromarrays([[1, 2], ["a", "b"]], names="n,t"),
        "generator": np.random.default_rng(0),
        "state": np.random.RandomState(0),
        "polynomial": np.polynomial.Polynomial([1, 2, 3]),
    }
    for name, value in values.items():
        for protocol in (2, 5):
            (folder / f"{name}-{protocol}.pkl").write_bytes(pickle.dumps(value, protocol=protocol))


def mlx_files(folder: Path) -> None:
    import mlx.core as mx
    import mlx.nn as nn
    import mlx.optimizers as optim
    from mlx.utils import tree_flatten

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64))
    model.save_weights(str(folder / "weights.npz"))
    model.save_weights(str(folder / "weights.safetensors"))
    nn.quantize(model, group_size=32, bits=4)
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "quantized.safetensors"), weights, metadata={"format": "mlx"})
    mx.save_gguf(str(folder / "plain.gguf"), {"weight": mx.ones((4, 4))})
    mx.save(str(folder / "array.npy"), mx.ones((2, 3)))
    optimizer = optim.Adam(1e-3)
    optimizer.init(model.trainable_parameters())
    state = dict(tree_flatten(optimizer.state))
    mx.save_safetensors(str(folder / "optimizer.safetensors"), state)


WRITERS = {"numpy": numpy_files, "numpy-pickles": numpy_pickles, "mlx": mlx_files}
