"""The configuration that lies beside the weights in a Hugging Face folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelglass.errors import FileError
from modelglass.formats.reading import Reading

if TYPE_CHECKING:
    from modelglass.report import Json

CONFIG = "config.json"


def config_beside(reading: Reading) -> Json:
    """The configuration beside the weights; None when there is none, or it is not one."""
    first = reading.opened[0] if reading.opened else None
    if first is None or not (first.path.parent / CONFIG).exists():
        return None
    from modelglass.formats.siblings import open_sibling
    from modelglass.formats.strict_json import document

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
