"""What lies beside a model or inside its settings and names code."""

from __future__ import annotations

import json
from pathlib import Path

from hostile.case import Build, case, file
from hostile.pickles import command, dict_of, pickled, text
from hostile.safetensors_files import GOOD
from hostile.torch_files import pt_zip, state_dict, tensor


def _beside(name: str, content: str) -> Build:
    """A folder with a plain model and that file; `{command}` in it would create the canary."""

    def build(folder: Path) -> Path:
        (folder / "model").mkdir()
        (folder / "model" / "model.safetensors").write_bytes(GOOD)
        (folder / "model" / name).write_text(content.replace("{command}", command(folder)))
        return folder / "model"

    return build


def _aliases() -> str:
    """Nine levels of nine aliases: 387 million items from 500 bytes."""
    lines = ['a0: &a0 ["x","x","x","x","x","x","x","x","x"]']
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    return "\n".join(lines) + "\n"


def _lightning(folder: Path) -> bytes:
    settings = dict_of((text("_instantiator"), text("os.system")), (text("_class_path"), text("os.system")))
    return pt_zip(
        pickled(
            dict_of(
                (text("pytorch-lightning_version"), text("2.4.0")),
                (text("hyper_parameters"), settings),
                (text("state_dict"), state_dict(("w", tensor()))),
            )
        )
    )


_AUTO_MAP = {"model_type": "x", "auto_map": {"AutoModel": "modeling_x.XModel"}}

CASES = [
    case(
        "110-apply",
        "hparams.yaml with !!python/object/apply",
        _beside("hparams.yaml", 'lr: !!python/object/apply:os.system ["{command}"]\n'),
        {1},
        contains="python/object/apply",
    ),
    case(
        "110-aliases",
        "hparams.yaml with an alias bomb",
        _beside("hparams.yaml", _aliases()),
        {4},
        codes={"limit"},
    ),
    case(
        "111-instantiator",
        "Lightning _instantiator",
        file("model.ckpt", _lightning),
        {0, 1},
        contains="_instantiator",
    ),
    case(
        "111-target",
        "Hydra _target_",
        _beside("config.yaml", "model:\n  _target_: os.system\n  command: {command}\n"),
        {0, 1},
        contains="_target_",
    ),
    case(
        "111-target-json",
        "_target_ in config.json",
        _beside("config.json", '{"model": {"_target_": "os.system", "command": "{command}"}}'),
        {0, 1},
        contains="_target_",
    ),
    case(
        "111-auto-map", "auto_map", _beside("config.json", json.dumps(_AUTO_MAP)), {0, 1}, contains="auto_map"
    ),
]
