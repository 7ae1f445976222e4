"""Documents that name code under keys of their own, as several libraries write them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from modelglass.formats.limits import Limits
from modelglass.formats.scan.scan import scan


def levels(path: Path) -> dict[str, str]:
    found = scan([path], Limits(), lambda text: None).findings
    return {finding.code: finding.level for finding in found if finding.level in ("notice", "high")}


def judged(folder: Path, name: str, content: Any) -> dict[str, str]:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return levels(path)


NAMING = {
    "latent diffusion": (
        "x.yaml",
        "model: {target: ldm.models.ddpm.LatentDiffusion, params: {a: 1}}",
        "code.target",
    ),
    "its functions": ("x.yaml", "target: ldm.util.make\nparams: {}", "code.target"),
    "nemo": ("x.yaml", "target: nemo.collections.asr.models.EncDecCTCModel", "code.target"),
    "json": ("x.json", {"target": "ldm.util.make", "params": {}}, "code.target"),
    "an expression": ("x.yaml", "net: \"$__import__('os').system('id')\"", "code.expression"),
    "an import": ("x.json", {"imports": ["$import os"]}, "code.expression"),
    "in a list": ("x.json", {"a": [["$os.system('id')"]]}, "code.expression"),
    "a list of calls": ("x.json", {"a": "$[f(x) for x in @net]"}, "code.expression"),
    "a pipeline": ("config.json", {"custom_pipelines": {"x": {"impl": "evil.Pipe"}}}, "code.auto-map"),
    "generation": ("generation_config.json", {"custom_generate": "somebody/code"}, "code.auto-map"),
    "attention": ("config.json", {"attn_implementation": "somebody/kernels"}, "code.kernel"),
    "its other name": ("config.json", {"_attn_implementation_internal": "somebody/k"}, "code.kernel"),
    "of a part": ("config.json", {"text_config": {"attn_implementation": {"": "a/b"}}}, "code.kernel"),
    "experts": ("config.json", {"experts_implementation": "somebody/kernels"}, "code.kernel"),
    "an adapter": ("adapter_config.json", {"auto_mapping": {"parent_library": "evil.sub"}}, "code.module"),
}


@pytest.mark.parametrize("case", NAMING.values(), ids=list(NAMING))
def test_code_is_found_under_the_keys_of_other_libraries(case: tuple[str, Any, str], tmp_path: Path) -> None:
    name, content, code = case
    assert judged(tmp_path, name, content) == {code: "notice"}


KERAS = {
    "torch": (
        {"module": "keras.layers", "class_name": "TorchModuleWrapper", "config": {}},
        "code.lambda",
        "high",
    ),
    "saved model": (
        {"module": "keras.layers", "class_name": "TFSMLayer", "config": {}},
        "code.module",
        "notice",
    ),
    "registered": (
        {"class_name": "Net", "config": {}, "registered_name": "evil>Net"},
        "code.module",
        "notice",
    ),
    "older": ({"class_name": "Custom>Net", "config": {}}, "code.module", "notice"),
}


@pytest.mark.parametrize("case", KERAS.values(), ids=list(KERAS))
def test_keras_classes_that_load_or_need_code_are_found(case: tuple[Any, str, str], tmp_path: Path) -> None:
    layer, code, level = case
    path = tmp_path / "model.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "config.json", json.dumps({"class_name": "Functional", "config": {"layers": [layer]}})
        )
    assert levels(path)[code] == level


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {"attn_implementation": "sdpa", "_attn_implementation": "flash_attention_2"}),
        (
            "adapter_config.json",
            {"auto_mapping": {"parent_library": "transformers.models.llama.modeling_llama"}},
        ),
        (
            "adapter_config.json",
            {"auto_mapping": None, "target_modules": ["q_proj"], "target_parameters": None},
        ),
        ("config.json", {"custom_pipelines": {}, "target": "label", "params": {"a": 1}}),
        ("config.json", {"target": "es2020", "price": "$100", "home": "$HOME", "tex": "$\\alpha$"}),
        ("tokenizer.json", {"model": {"vocab": [["$f()", -1.5], ["$(", -2.0]], "unk_id": 0}}),
        ("tokenizer.json", {"model": {"vocab": {"$f()": 1}, "merges": [["$", "("], ["$f", "("]]}}),
        ("generation_config.json", {"custom_generate": None}),
    ],
)
def test_what_such_documents_say_else_is_quiet(name: str, content: Any, tmp_path: Path) -> None:
    assert judged(tmp_path, name, content) == {}
