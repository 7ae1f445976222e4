"""Good files of every format, and the small ones of the bad files that are tested, to make new ones from.

`python fuzz/seeds.py FOLDER FORMAT...` writes them as FOLDER/FORMAT/NAME. It is a process of its own, so that
the one that reads mutated files has not imported the libraries that wrote them. A run gives the same bytes,
but for torch's oldest format, which orders and names storages by where they lay in memory.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_NBYTES = 64 << 10  # of one seed: small inputs are many inputs
LARGE = (14, 52, 54, 55, 56)  # rows of bad files that are larger, and take long to build

Seeds = dict[str, bytes]


def seeds(formats: list[str]) -> dict[str, Seeds]:
    """The seeds of each format by name, made in another process; those of bad files begin with "hostile"."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{ROOT}:{ROOT / 'tests/support'}"
        subprocess.run(
            [sys.executable, "-B", __file__, folder, *formats],
            check=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        return {
            format: {path.name: path.read_bytes() for path in sorted(Path(folder, format).iterdir())}
            for format in formats
        }


def write(folder: Path, formats: list[str]) -> None:
    """Write the seeds of the formats below the folder."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(scratch)  # what is written tells paths: relative ones are the same in every run
        for format in formats:
            for name, data in MAKERS[format]().items():
                _put(folder, format, name, data)
        for format, name, data in _hostile():
            if format in formats:
                _put(folder, format, name, data)
        os.chdir(here)


def _put(folder: Path, format: str, name: str, data: bytes) -> None:
    if len(data) <= MOST_NBYTES:
        (folder / format).mkdir(exist_ok=True)
        (folder / format / name).write_bytes(data)


def _hostile() -> Iterator[tuple[str, str, bytes]]:
    from hostile.cases import CASES

    for case in CASES:
        if case.row in LARGE:
            continue
        folder = Path("parent", "case")
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        path = case.build(folder)
        if path.is_file() and path.stat().st_size <= MOST_NBYTES:
            data = path.read_bytes()
            format = _format(path.name, data)
            if format is not None:
                yield format, f"hostile-{case.id}", data


def _format(name: str, data: bytes) -> str | None:
    if name.endswith(".index.json"):
        return "index"
    by_suffix = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".safetensors": "safetensors"}
    by_suffix |= {f".{each}": each for each in ("gguf", "onnx", "npy", "npz", "pt2")}
    suffix = Path(name).suffix
    if suffix in by_suffix:
        return by_suffix[suffix]
    if data.startswith(b"PK"):
        return "torch-zip"
    if data[257:262] == b"ustar":
        return "torch-tar"
    if data[2:6] == b"\x8a\x0a\x6c\xfc":
        return "torch-legacy"
    return "pickle" if suffix in (".pkl", ".pt", ".bin") else None


def _safetensors() -> Seeds:
    import torch
    from safetensors.torch import save

    return {
        "plain": save({"a.weight": torch.zeros(2, 3), "a.bias": torch.ones(3)}, {"format": "pt"}),
        "types": save({str(t): torch.zeros(3, dtype=t) for t in (torch.bfloat16, torch.int8, torch.bool)}),
        "gptq": save(
            {
                "x.qweight": torch.zeros(4, 8, dtype=torch.int32),
                "x.qzeros": torch.zeros(1, 1, dtype=torch.int32),
                "x.scales": torch.zeros(1, 8, dtype=torch.float16),
                "x.g_idx": torch.zeros(32, dtype=torch.int32),
            }
        ),
        "float8": save(
            {"x.weight": torch.zeros(4, 4).to(torch.float8_e4m3fn), "x.weight_scale": torch.ones(1)}
        ),
        "empty": save({}),
    }


def _index() -> Seeds:
    weights = {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors"}
    document = {"metadata": {"total_size": 48}, "weight_map": weights}
    return {
        "plain": json.dumps(document).encode(),
        "hostile-missing": json.dumps({"weight_map": {"w": "a.bin"}}).encode(),
    }


def _torch(legacy: bool) -> Callable[[], Seeds]:
    def make() -> Seeds:
        import torch

        from genuine import CONTENTS

        made = {}
        for name, content in CONTENTS.items():
            torch.manual_seed(0)
            buffer = io.BytesIO()
            torch.save(content(), buffer, _use_new_zipfile_serialization=not legacy)
            made[name] = buffer.getvalue()
        return made

    return make


def _tar() -> Seeds:
    from hostile import legacy

    return {"plain": legacy.tar()}


def _torchscript() -> Seeds:
    import torch

    from genuine import network

    made = {}
    for name, native in (("linear", torch.nn.Linear(3, 2)), ("network", network().eval())):
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.trace(native, torch.ones(2, 3 if name == "linear" else 4)), buffer)
        made[name] = buffer.getvalue()
    return made


def _pt2() -> Seeds:
    import torch

    torch.manual_seed(0)
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.Linear(3, 2), (torch.ones(1, 3),)), buffer)
    return {"linear": buffer.getvalue()}


def _dcp() -> Seeds:
    """The `.metadata` of a checkpoint, and one whose piece lies in `__0_0.distcp` (see `targets`)."""
    import torch
    from torch.distributed import checkpoint

    from genuine import trained

    made = {}
    for name, content in (
        ("plain", {"w": torch.ones(2, 2), "note": "plain"}),
        ("trained", trained(torch.optim.Adam)),
    ):
        checkpoint.save(  # type: ignore[attr-defined]
            content, checkpoint_id=name, no_dist=True
        )
        data = Path(name, ".metadata").read_bytes()
        made[name] = re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", b"0" * 36, data)
    return made


def _pickle() -> Seeds:
    import pickle

    import numpy as np

    from genuine import plain_data

    content = {
        key: value for key, value in plain_data().items() if key not in ("state_dict", "device", "dtype")
    }
    made = {f"data-{protocol}": pickle.dumps(content, protocol) for protocol in range(6)}
    made["array"] = pickle.dumps({"w": np.ones((2, 3), np.float32)}, 4)
    made["two"] = pickle.dumps([1, "a"], 2) + pickle.dumps({"b": (1.5, None)}, 2)
    return made


def _joblib() -> Seeds:
    """Pickles with arrays between their opcodes, as they are and compressed."""
    import bz2
    import gzip
    import lzma

    from hostile import views

    plain = views.joblib_arrays()
    packed = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zlib": zlib.compress}
    return {"plain": plain, **{name: pack(plain) for name, pack in packed.items()}}


def _gguf() -> Seeds:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter("model.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(2048)
    writer.add_token_list(["a", "b", "<s>"])
    writer.add_array("numbers", [1.5, 2.5])
    writer.add_chat_template("{{ messages }}")
    writer.add_tensor("token_embd.weight", np.ones((4, 32), np.float32))
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((2, 34), np.uint8), raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {"writer": Path("model.gguf").read_bytes()}


def _onnx() -> Seeds:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    bias = helper.make_tensor("b", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    half = helper.make_tensor("h", TensorProto.FLOAT16, [2], [1.0, 2.0])
    outside = helper.make_tensor("o", TensorProto.FLOAT, [4], bytes(16), raw=True)
    outside.ClearField("raw_data")
    outside.data_location = TensorProto.EXTERNAL
    outside.external_data.add(key="location", value="outside.data")
    outside.external_data.add(key="length", value="16")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    inner = helper.make_graph([helper.make_node("Identity", ["x"], ["z"])], "then", [], [y])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="/layers.0/MatMul"),
        helper.make_node("Add", ["m", "b"], ["y"]),
        helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=inner),
        helper.make_node("Constant", [], ["c"], value=half),
        helper.make_node("Odd", ["x"], ["q"], domain="ours", names=["a"], alpha=0.5, sizes=[1, 2]),
    ]
    graph = helper.make_graph(nodes, "graph", [x], [y], [weight, bias, outside])
    function = helper.make_function(
        "ours", "Odd", ["x"], ["q"], [helper.make_node("Relu", ["x"], ["q"])], [helper.make_opsetid("", 17)]
    )
    model = helper.make_model(graph, functions=[function])
    model.metadata_props.add(key="author", value="nobody")
    return {"model": model.SerializeToString(deterministic=True)}


def _npy() -> Seeds:
    import numpy as np

    made = {}
    arrays = {
        "plain": np.ones((2, 3), np.float32),
        "fields": np.zeros(2, [("a", "<i4"), ("b", "<f8", (2,))]),
        "fortran": np.asfortranarray(np.ones((2, 3), ">f8")),
        "objects": np.array([{"a": 1}, None], object),
        "text": np.array(["ab", "c"]),
    }
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        made[name] = buffer.getvalue()
    return made


def _npz() -> Seeds:
    import numpy as np

    made = {}
    for name, save in (("plain", np.savez), ("packed", np.savez_compressed)):
        buffer = io.BytesIO()
        save(buffer, w=np.ones((2, 3), np.float32), o=np.array([{"a": 1}], object))
        made[name] = buffer.getvalue()
    return made


def _json() -> Seeds:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "auto_map": {"AutoModel": "org/repo--modeling.Net"},
        "chat_template": [{"name": "a", "template": "{{ x }}"}],
        "trainer": {"_target_": "os.system", "depth": [[[1, -2.5e3]], {"a": None}]},
        "quantization_config": {"quant_method": "gptq", "bits": 4},
        "text": '\u00e9 \\ " \U0001f600 \u2028',
    }
    keras: dict[str, object] = {
        "class_name": "Lambda",
        "config": {},
        "module": "a.b",
        "registered_name": None,
    }
    return {
        "config": json.dumps(config).encode(),
        "unicode": json.dumps(config, ensure_ascii=False, indent=1).encode(),
        "keras": json.dumps({"layers": [keras, {**keras, "class_name": "function"}]}).encode(),
    }


def _yaml() -> Seeds:
    text = """%YAML 1.1
%TAG !p! tag:yaml.org,2002:python/
---
base: &base
  _target_: torch.optim.Adam
  lr: !!float 0.1
child: {<<: *base, list: [1, "two", 'three', !p!name:os.system x]}
code: !!python/object/apply:os.system ["id"]
text: |
  !!python/none of this
folded: >-2
    # more
? key
: value # comment
...
"""
    return {"plain": text.encode(), "wide": text.encode("utf-16")}


MAKERS: dict[str, Callable[[], Seeds]] = {
    "safetensors": _safetensors,
    "index": _index,
    "torch-zip": _torch(legacy=False),
    "torch-legacy": _torch(legacy=True),
    "torch-tar": _tar,
    "torchscript": _torchscript,
    "pt2": _pt2,
    "dcp": _dcp,
    "pickle": _pickle,
    "joblib": _joblib,
    "gguf": _gguf,
    "onnx": _onnx,
    "npy": _npy,
    "npz": _npz,
    "json": _json,
    "yaml": _yaml,
}

if __name__ == "__main__":
    write(Path(sys.argv[1]).absolute(), sys.argv[2:])
