"""Configuration files as plain data: strict JSON, and YAML that can only be data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelglass.errors import CorruptFileError, TargetError
from modelglass.files import suggest_path
from modelglass.formats.documents.strict_json import document
from modelglass.formats.limits import Limits
from modelglass.formats.source import OpenFile

MOST_NBYTES = 16 << 20  # of a configuration; lists of labels are the longest that there are
MOST_YAML_NBYTES = 2 << 20  # which takes far longer to read


def read(path: Path) -> dict[str, Any]:
    """The sections of a configuration file."""
    if not path.exists():
        raise TargetError(f"there is no file {str(path)!r}", hint=suggest_path(path))
    content = _json(path) if path.suffix.lower() == ".json" else _yaml(path)
    if not isinstance(content, dict):
        found = "nothing" if content is None else f"a {type(content).__name__}"
        raise CorruptFileError(
            f"a configuration has names and values, and this holds {found}",
            file=str(path),
            code="config.no-mapping",
            hint="write it as name: value, with the model under a name of its own",
        )
    return content


def _json(path: Path) -> Any:
    limits = Limits(json_nbytes=MOST_NBYTES)
    with OpenFile(path) as source:
        try:
            return _numbers(document(source, limits), {})
        except CorruptFileError as error:
            if error.code != "json.number":
                raise
            # Configurations of models have infinite limits in them, which no JSON should.
            return _numbers(document(source, limits, lenient=True), _ODD_NUMBERS)


_ODD_NUMBERS = {text: float(text) for text in ("NaN", "Infinity", "-Infinity")}


def _numbers(value: Any, odd: dict[str, float]) -> Any:
    """The value, with numbers in the place of texts that stand for them, and of {"__float__": "Infinity"}."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"} and value["__float__"] in _ODD_NUMBERS:
            return _ODD_NUMBERS[value["__float__"]]
        return {key: _numbers(item, odd) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item, odd) for item in value]
    return odd.get(value, value) if isinstance(value, str) else value


def _yaml(path: Path) -> Any:
    with OpenFile(path) as source:
        if source.nbytes > MOST_YAML_NBYTES:
            raise CorruptFileError(
                f"it has {source.nbytes:,} bytes, and more than {MOST_YAML_NBYTES:,} of YAML are not read",
                file=source.file,
                code="yaml.size",
                hint="a configuration is short; is this one?",
            )
        data = source.read(0, source.nbytes, "the document")
    from modelglass.configs import yaml_values

    return yaml_values.loads(data, str(path))
