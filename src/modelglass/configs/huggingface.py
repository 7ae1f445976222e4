"""Models of transformers from their config.json: without weights, without the hub, without foreign code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from modelglass.configs.process import offline_and_quiet
from modelglass.errors import MissingPackageError, TargetError
from modelglass.user_code import user_errors

Notes = tuple[tuple[str, str], ...]

# Which kind of model is meant by a configuration that does not say it: the first that there is.
_KINDS = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING",
    "MODEL_FOR_CAUSAL_LM_MAPPING",
    "MODEL_MAPPING",
)
_ENCODERS = "MODEL_FOR_MASKED_LM_MAPPING"


def built(content: dict[str, Any], file: str, *, weightless: bool = True) -> tuple[Any, Notes]:
    """The model that a configuration describes, in eval mode as if it had been loaded; and what is odd."""
    with _library() as transformers, offline_and_quiet():
        config = _config(content, file, transformers)
        model_class, notes = _model_class(config, content, file, transformers)
        native, remarks = _native(model_class, config, file, weightless)
        notes = (*notes, *remarks)
        quantized = content.get("quantization_config")
        if isinstance(quantized, dict):
            method = quantized.get("quant_method") or "some method"
            text = f"the configuration asks for weights quantized by {method}; they were built as they are"
            notes = (*notes, ("not-quantized", f"{text} before that"))
        return native.eval(), notes


@contextmanager
def _library() -> Iterator[Any]:
    """transformers, also where a torchvision is installed that cannot be imported."""
    hidden = _hides_torchvision()
    try:
        if hidden:
            sys.modules["torchvision"] = None  # type: ignore[assignment]
        yield _imported()
    finally:
        if hidden:
            del sys.modules["torchvision"]


def _imported() -> Any:
    try:
        import_module("torch")
        transformers = import_module("transformers")
        import_module("transformers.models.auto.modeling_auto")
    except ModuleNotFoundError as cause:
        missing = (cause.name or "").partition(".")[0]
        if missing == "torch":
            raise MissingPackageError("torch", wanted_by="building a model", extra="torch,config") from cause
        if missing != "transformers":
            raise
        raise MissingPackageError(
            "transformers", wanted_by="a configuration of Hugging Face", extra="config"
        ) from cause
    return transformers


def _hides_torchvision() -> bool:
    """Whether transformers would stumble over a torchvision that is there and cannot be imported."""
    if "torchvision" in sys.modules:
        return False
    try:
        import_module("torchvision")
    except ModuleNotFoundError:
        return False
    except (ImportError, RuntimeError, OSError, AttributeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half of it was loaded
        return True
    return False


def _config(content: dict[str, Any], file: str, transformers: Any) -> Any:
    """The configuration as transformers keeps it."""
    given = _without_code(deepcopy(content))
    given.pop("model_type", None)
    config_class = _config_class(content, file, transformers)
    with user_errors(f"{file}: reading it as a {config_class.__name__}", whole=True):
        return config_class.from_dict(given)


def _without_code(value: Any) -> Any:
    """A configuration without what names code of its own, at any depth: transformers would ask for leave."""
    if isinstance(value, list):
        return [_without_code(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_code(each) for name, each in value.items() if not _names_code(name, each)}


def _names_code(name: str, value: Any) -> bool:
    is_kernel = str(name).endswith("_implementation") and "/" in str(value)  # of a repository
    return name in ("auto_map", "custom_pipelines", "trust_remote_code") or is_kernel


def _config_class(content: dict[str, Any], file: str, transformers: Any) -> Any:
    known = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    name = content.get("model_type")
    if name is None:
        model_class = _named_class((content.get("architectures") or [""])[0], transformers)
        if model_class is not None and model_class.config_class is not None:
            return model_class.config_class
    elif isinstance(name, str) and name in known:
        with _installed(file, str(name)):
            return known[name]
    if "auto_map" in content:
        raise _remote(content, file)
    close = get_close_matches(str(name), list(known), n=3, cutoff=0.6)
    guess = f"did you mean {', '.join(close)}? " if close else ""
    raise TargetError(
        f"{file}: transformers {transformers.__version__} does not know the model_type {name!r}",
        hint=f"{guess}a newer transformers may know it; or give --builder file.py::function",
    )


def _remote(content: dict[str, Any], file: str) -> TargetError:
    names = content["auto_map"]
    listed = ", ".join(map(str, names.values() if isinstance(names, dict) else [names]))
    return TargetError(
        f"{file}: this model's code is not in transformers but in files of its own ({listed[:200]}), which "
        "modelglass does not run",
        hint="load it in a function of yours, with trust_remote_code=True, and name that: file.py::function",
    )


@contextmanager
def _installed(file: str, what: str) -> Iterator[None]:
    """What transformers cannot import for want of another package is an error that names it."""
    try:
        yield
    except ImportError as cause:
        lines = [line for line in str(cause).strip().splitlines() if line.strip()] or [
            "it cannot be imported"
        ]
        raise TargetError(
            f"{file}: {what} cannot be built here: {lines[0].strip()}",
            hint=_install(" ".join(lines)),
        ) from cause


def _install(text: str) -> str:
    needed = re.findall(r"requires the ([\w-]+) library", text)
    return f"pip install {' '.join(needed)}" if needed else "install the package that it names"


def _model_class(config: Any, content: dict[str, Any], file: str, transformers: Any) -> tuple[Any, Notes]:
    """The class of the model, and a note where the configuration does not name one that there is."""
    names = content.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None
    if name is not None:
        with _installed(file, name):
            found = _named_class(name, transformers)
        if found is not None:
            return found, ()
        if "auto_map" in content:
            raise _remote(content, file)
    with _installed(file, f"a model of type {config.model_type!r}"):
        found = _usual_class(config)
    if found is None:
        raise TargetError(
            f"{file}: in transformers {transformers.__version__}, {config.model_type!r} is not a whole model",
            hint='it is a part of other models; name a class: "architectures": ["..."]',
        )
    said = f"names the architecture {name!r}, which transformers does not have" if name else "names no class"
    return found, (("architecture-chosen", f"the configuration {said}; it was built as a {found.__name__}"),)


def _named_class(name: str, transformers: Any) -> Any:
    """The model class of that name, None where transformers has none."""
    found = getattr(transformers, name, None) if name.isidentifier() else None
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if isinstance(found, type) and not is_model and hasattr(found, "_backends"):
        getattr(found, "config_class", None)  # a stand-in for want of a package, which tells which
    return found if is_model else None


def _usual_class(config: Any) -> Any:
    auto = import_module("transformers.models.auto.modeling_auto")
    is_encoder = type(config) in getattr(auto, _ENCODERS) and not getattr(config, "is_decoder", False)
    if is_encoder and not getattr(config, "is_encoder_decoder", False):
        return _first(getattr(auto, _ENCODERS)[type(config)])
    others = [name for name in vars(auto) if name.startswith("MODEL_FOR_") and name.endswith("_MAPPING")]
    for kind in (*_KINDS, *others):
        mapping = getattr(auto, kind)
        if type(config) in mapping:
            return _first(mapping[type(config)])
    return None


def _first(found: Any) -> Any:
    return found[0] if isinstance(found, (tuple, list)) else found


def _part_for(model_class: Any, config: Any) -> Any:
    """The configuration, or that part of it which a class of a part of the model is built from."""
    wanted = model_class.config_class
    if wanted is None or isinstance(config, wanted):
        return config
    parts = (getattr(config, name, None) for name in getattr(config, "sub_configs", ()))
    return next((part for part in parts if isinstance(part, wanted)), config)


def _native(model_class: Any, config: Any, file: str, weightless: bool) -> tuple[Any, Notes]:
    """The model, by the attention that is there when the configuration's own is not."""
    from modelglass.configs.weightless import noted, without_weights

    config = _part_for(model_class, config)

    def make() -> Any:
        return model_class._from_config(deepcopy(config))

    with user_errors(f"{file}: building a {model_class.__name__}"), _installed(file, model_class.__name__):
        if config._attn_implementation not in (None, "eager", "sdpa"):
            config._attn_implementation = "sdpa" if model_class._supports_sdpa else "eager"
        return noted(*without_weights(make, expected=(Exception,))) if weightless else (make(), ())
