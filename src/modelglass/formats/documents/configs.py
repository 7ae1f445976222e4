"""The configuration that lies beside the weights in a Hugging Face folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelglass.errors import FileError
from modelglass.formats.reading import Reading
from modelglass.report import huggingface_keys as hf

if TYPE_CHECKING:
    from modelglass.report import Json

CONFIG = "config.json"


# What a GGUF file says of its architecture, under the names that configurations have for it.
_GGUF = {
    "block_count": hf.LAYERS[0],
    "embedding_length": hf.HIDDEN_SIZE[0],
    "attention.head_count": hf.HEADS[0],
    "attention.head_count_kv": hf.KV_HEADS[0],
    "attention.key_length": hf.HEAD_DIM[0],
    "attention.value_length": "v_head_dim",
    "attention.sliding_window": hf.SLIDING_WINDOW[0],
    "expert_count": hf.EXPERTS[0],
    "expert_used_count": hf.CHOSEN_EXPERTS[0],
    "context_length": hf.POSITIONS[0],
    "vocab_size": hf.VOCABULARY[0],
}


def config_of(reading: Reading) -> Json:
    """What is said about the architecture: beside the weights, or by a GGUF file itself; None: nothing."""
    beside = config_beside(reading)
    name = reading.metadata.get("general.architecture")
    if beside is not None or reading.format not in ("gguf", "gguf shards") or not isinstance(name, str):
        return beside
    said = {key: reading.metadata.get(f"{name}.{theirs}") for theirs, key in _GGUF.items()}
    # Caches are kept in half precision unless somebody asks for another type.
    return {"model_type": name, hf.DTYPE[0]: "float16", **{k: v for k, v in said.items() if v is not None}}


def config_beside(reading: Reading) -> Json:
    """The configuration beside the weights; None when there is none, or it is not one."""
    first = reading.opened[0] if reading.opened else None
    if first is None or not (first.path.parent / CONFIG).exists():
        return None
    from modelglass.formats.documents.strict_json import document
    from modelglass.formats.files_beside import open_sibling

    quiet = Reading(limits=reading.limits)
    source = open_sibling(first, CONFIG, quiet)
    reading.opened += quiet.opened
    if source is None:
        return None
    try:
        config = document(source, reading.limits)
    except FileError as error:
        text = f"the configuration beside it cannot be read: {error.text}"
        reading.found(source, "config.unreadable", "notice", text, offset=error.offset)
        return None
    return config if isinstance(config, dict) else None
