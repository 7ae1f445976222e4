"""JSON and YAML documents: an index of shards is a model, anything else only says something about one."""

from __future__ import annotations

from modelglass.errors import NotAModelError
from modelglass.formats import shards, table
from modelglass.formats.documents import code_in_text as sidecars
from modelglass.formats.documents.strict_json import document
from modelglass.formats.jinja import chat_templates as templates
from modelglass.formats.reading import Reading
from modelglass.formats.source import OpenFile

_STRICT = ("config.json", "model.safetensors.index.json")  # what loaders of models go by


def read(source: OpenFile, reading: Reading) -> None:
    """Fill the reading from the shards of an index. Another document is only searched for code."""
    suffix = source.path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        # It needs PyYAML, which takes longer to import than most files to read.
        from modelglass.formats.documents import yaml as yaml_documents

        yaml_documents.read(source, reading)
    elif suffix in (".jinja", ".jinja2", ".j2"):
        reading.format = "template"
        templates.read(source, reading)
    elif suffix == ".py":
        reading.format = "python"
        text = "Python code: it runs when it is imported, as loading with trust_remote_code does"
        reading.found(source, "code.python", "info", text)
    else:
        content = document(source, reading.limits, lenient=source.path.name not in _STRICT)
        if isinstance(content, dict) and "weight_map" in content:
            shards.read_index(source, content, reading, read_shard)
            return
        reading.format = "json"
        sidecars.code_references(source, reading, content)
    raise _no_weights(source)


def read_shard(shard: OpenFile, reading: Reading) -> None:
    """Fill the reading from a shard, which holds weights."""
    table.read(shard, reading, _refuse_document)


def _refuse_document(shard: OpenFile, reading: Reading) -> None:
    # Another index in the place of a shard could go round in circles.
    raise shard.corrupt("a document where a shard should be", code="index.shards", offset=0)


class DocumentError(NotAModelError):
    """A document that belongs to a model, and is fine for what it is."""


def _no_weights(source: OpenFile) -> DocumentError:
    return DocumentError(
        "this is a document about a model, without weights",
        file=source.file,
        code="no-weights",
        hint="pass the folder that it is in, or the file with the weights",
    )
