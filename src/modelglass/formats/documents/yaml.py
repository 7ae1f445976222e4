"""YAML beside weights: its tags, and the code that its values name.

The text is taken event by event from PyYAML's two parsers, which differ in places: one in Python, which
OmegaConf and `safe_load` use, and libyaml's. No value is constructed, because that is what runs code; of the
events a tree of texts is made, in which every key, value and alias is what a loader would see.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import yaml

from modelglass.errors import FileError
from modelglass.formats.documents.code_in_text import Findings, code_references
from modelglass.formats.pickles.known import is_data
from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.report import Json, Level

EXPANDED = 1_000_000  # nodes that aliases may stand for

# Taken for their events alone; libyaml is not everywhere.
_PARSERS = (yaml.Loader, yaml.CLoader) if hasattr(yaml, "CLoader") else (yaml.Loader,)
_STANDARD = "tag:yaml.org,2002:"
_PYTHON = (_STANDARD + "python/", "!python/")
_PLAIN_PYTHON = frozenset(
    ["bool", "bytes", "complex", "dict", "float", "int", "list", "long", "none", "str", "tuple", "unicode"]
)
_MADE = ("object", "object/apply", "object/new")
_PLAIN_TAGS = frozenset(
    {
        *("null", "bool", "int", "float", "str", "seq", "map", "set", "omap", "pairs", "binary", "timestamp"),
        *("merge", "value", "yaml"),
    }
)


def read(source: Source, reading: Reading) -> None:
    """Find the tags, references to code and expanding aliases of a YAML text."""
    reading.format = reading.format or "yaml"
    limit = reading.limits.json_nbytes
    if source.nbytes > limit:
        raise source.over("json_nbytes", limit)
    text = _Text(source)
    views = [_View(text, reading) for _ in _PARSERS]
    errors: list[Exception] = []
    try:
        for view, parser in zip(views, _PARSERS, strict=True):
            try:
                view.take(yaml.parse(text.text, Loader=parser))
            except (yaml.YAMLError, ValueError) as error:  # of a version with thousands of digits
                errors.append(error)
    finally:
        for view in {view.seen.digest(): view for view in views}.values():
            view.tell()
    if errors:
        raise _not_yaml(errors[0], text) from errors[0]


def _not_yaml(error: Exception, text: _Text) -> FileError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return text.source.corrupt(
        f"this is not YAML: {problem}",
        code="yaml.syntax",
        offset=None if mark is None else text.offset(mark.index),
    )


class _Text:
    """A decoded text that knows at which byte each of its characters is."""

    def __init__(self, source: Source) -> None:
        self.source = source
        data = source.read(0, source.nbytes, "the document")
        wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        self._codec, self._mark = (
            ("utf-16-le", 2) if wide else ("utf-8", 3 * data.startswith(b"\xef\xbb\xbf"))
        )
        try:
            self.text = data.decode("utf-16" if wide else "utf-8-sig")
        except UnicodeDecodeError as cause:
            name = self._codec[:6].upper().rstrip("-")
            problem = f"this is not {name} text"
            raise source.corrupt(problem, code="yaml.encoding", offset=cause.start) from cause

    def offset(self, index: int) -> int:
        return self._mark + len(self.text[:index].encode(self._codec))


@dataclass(slots=True)
class _Open:
    """A list or mapping that has not ended yet, and how many nodes it stands for so far."""

    value: list[Json] | dict[Json, Json]
    nodes: int = 1
    key: Json = None
    has_key: bool = False
    anchor: str | None = None


@dataclass(slots=True)
class _View:
    """Events of one parser on their way to trees of texts.

    What a repeated key had before is a tree of its own.
    """

    text: _Text
    reading: Reading
    seen: Any = field(default_factory=blake2b)  # the events, to tell whether two parsers see the same
    trees: list[Json] = field(default_factory=list)
    tags: list[tuple[str, int]] = field(default_factory=list)  # with their places in the text
    _open: list[_Open] = field(default_factory=list)
    _anchors: dict[str, tuple[Json, int]] = field(default_factory=dict)  # with the nodes it stands for
    _aliases: int = 0

    def take(self, events: Iterator[Any]) -> None:
        for event in events:
            self.seen.update(repr(event).encode("utf-8", "backslashreplace"))
            if isinstance(event, yaml.NodeEvent):
                self.reading.limits.take("yaml_nodes", 1, self.text.source)
                self._node(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                ended = self._open.pop()
                self._add(ended.value, ended.anchor, ended.nodes, event)
            elif isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()

    def tell(self) -> None:
        """Report what was found."""
        code_references(self.text.source, self.reading, *self.trees, *(each.value for each in self._open))
        found = Findings(self.text.source, self.reading)
        for tag, index in self.tags:
            code, level, effect = _judged(tag)
            if found.wants(code, level):
                shown, at = f"the tag {tag[:200]!r} {effect}", self.text.offset(index)
                self.reading.found(self.text.source, code, level, shown, offset=at, tag=tag[:200])
        found.close()

    def _node(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self._alias(event)
            return
        if event.tag not in (None, "!", "") and event.tag.removeprefix(_STANDARD) not in _PLAIN_TAGS:
            self.tags.append((event.tag, event.start_mark.index))
        if isinstance(event, yaml.ScalarEvent):
            self._add(event.value, event.anchor, 1, event)
            return
        limits = self.reading.limits
        if len(self._open) >= limits.json_depth:
            raise self._over("json_depth", event)
        value: list[Json] | dict[Json, Json] = [] if isinstance(event, yaml.SequenceStartEvent) else {}
        if event.anchor is not None:
            self._anchors[event.anchor] = value, 1  # an alias may stand inside of what it stands for
        self._open.append(_Open(value, anchor=event.anchor))

    def _alias(self, event: Any) -> None:
        self._aliases += 1
        if self._aliases > self.reading.limits.yaml_aliases:
            raise self._over("yaml_aliases", event)
        value, nodes = self._anchors.get(event.anchor, (None, 1))
        self._add(value, None, nodes, event)

    def _add(self, value: Json, anchor: str | None, nodes: int, event: Any) -> None:
        """Put a finished value where it belongs."""
        if nodes > EXPANDED:
            raise self._over("yaml_aliases", event)
        if anchor is not None:
            self._anchors[anchor] = value, nodes
        if not self._open:
            self.trees.append(value)
            return
        top = self._open[-1]
        top.nodes += nodes
        if isinstance(top.value, list):
            top.value.append(value)
        elif not top.has_key:
            top.key, top.has_key = self._key(value), True
        else:
            if top.key in top.value:
                self.trees.append({top.key: top.value[top.key]})
            top.value[top.key] = value
            top.has_key = False

    def _key(self, value: Json) -> Json:
        """What stands for a key; one that is a list or mapping is looked at as a tree of its own."""
        if isinstance(value, (list, dict)):
            self.trees.append(value)
            return None
        return value

    def _over(self, limit: str, event: Any) -> FileError:
        value = getattr(self.reading.limits, limit)
        return self.text.source.over(limit, value, offset=self.text.offset(event.start_mark.index))


def _judged(tag: str) -> tuple[str, Level, str]:
    if tag.startswith(_PYTHON):
        kind, _, name = tag.partition("python/")[2].partition(":")
        if kind in _PLAIN_PYTHON or (kind in _MADE and is_data(name)):
            return "yaml.python-tag", "info", "stands for plain data"
        return "yaml.python-tag", "high", "has a loader import or call Python code"
    return "yaml.tag", "notice", "asks the loader for an object"
