"""YAML as values and nothing else: no tag can name code, no key is there twice, no alias grows without end.

The text is taken event by event, so that how deep it is nested costs no stack. Numbers are those that Hydra
reads: `1e-4` is one, dates are texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from modelglass.errors import CorruptFileError

MOST_DEEP = 64
MOST_NODES = 1_000_000  # values, each as often as aliases repeat it

_CORE = "tag:yaml.org,2002:"
_SCALARS = ("str", "int", "float", "bool", "null")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_RESOLVERS = yaml.resolver.Resolver.yaml_implicit_resolvers  # by the first character
_IMPLICIT = ("bool", "int", "null")
_PARSER = getattr(yaml, "CLoader", yaml.Loader)  # taken for its events alone: it constructs nothing


def loads(data: bytes, file: str) -> Any:
    """The one value that a YAML document spells."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as cause:
        problem = f"this is not UTF-8: {cause.reason}, at byte {cause.start:,}"
        raise _refuse(file, "yaml.encoding", problem) from cause
    try:
        return _Document(file).value(yaml.parse(text, Loader=_PARSER))
    except (yaml.YAMLError, ValueError) as cause:  # of a version with thousands of digits
        mark = getattr(cause, "problem_mark", None)
        line = "" if mark is None else f"line {mark.line + 1}: "
        problem = getattr(cause, "problem", None) or str(cause).splitlines()[0]
        raise _refuse(file, "yaml.syntax", f"{line}this is not YAML: {problem}") from cause


def _refuse(file: str, code: str, problem: str, hint: str = "correct the file") -> CorruptFileError:
    return CorruptFileError(problem, file=file, code=code, hint=hint)


class _Open:
    """A sequence or mapping that has not ended yet."""

    def __init__(self, value: Any, anchor: str | None, before: int) -> None:
        self.value, self.anchor, self.before = value, anchor, before
        self.key: Any = None
        self.has_key = False
        self.lines: dict[Any, int] = {}  # of the keys of a mapping
        self.merged: list[Any] = []  # what "<<" brings, the first winning


class _Document:
    """One document on its way from events to a value."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.open: list[_Open] = []
        self.anchors: dict[str, tuple[Any, int]] = {}  # with the number of nodes
        self.nodes = 0
        self.done: Any = None
        self.documents = 0

    def value(self, events: Iterator[Any]) -> Any:
        for event in events:
            self._take(event)
        return self.done

    def _take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._add(self._scalar(event), event, event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)
        elif isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            self._begin(event)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            self._end(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self._wrong(event, "yaml.documents", "a second document begins; a configuration is one")

    def _wrong(self, event: Any, code: str, problem: str, hint: str = "correct the file") -> CorruptFileError:
        return _refuse(self.file, code, f"line {event.start_mark.line + 1}: {problem}", hint)

    def _count(self, event: Any, number: int = 1) -> None:
        self.nodes += number
        if self.nodes > MOST_NODES:
            problem = f"its aliases expand to more than {MOST_NODES:,} values"
            raise self._wrong(event, "yaml.aliases", problem, "write out what is meant")

    def _begin(self, event: Any) -> None:
        kind = "seq" if isinstance(event, yaml.SequenceStartEvent) else "map"
        self._check_tag(event, (kind,))
        if len(self.open) >= MOST_DEEP:
            raise self._wrong(event, "yaml.depth", f"this is nested more than {MOST_DEEP} levels deep")
        top = self.open[-1] if self.open else None
        if top is not None and isinstance(top.value, dict) and not top.has_key:
            raise self._wrong(event, "yaml.key", "a list or mapping is where a name is expected")
        self.open.append(_Open([] if kind == "seq" else {}, event.anchor, self.nodes))

    def _end(self, event: Any) -> None:
        ended = self.open.pop()
        for mapping in ended.merged:
            for key, value in mapping.items():
                ended.value.setdefault(key, value)
        self._add(ended.value, event, ended.anchor, size=self.nodes - ended.before + 1)

    def _alias(self, event: Any) -> None:
        if any(each.anchor == event.anchor for each in self.open):
            raise self._wrong(event, "yaml.alias", f"*{event.anchor} is inside of its own anchor")
        if event.anchor not in self.anchors:
            raise self._wrong(event, "yaml.alias", f"no anchor before it is called &{event.anchor}")
        value, size = self.anchors[event.anchor]
        self._count(event, size - 1)
        self._add(value, event, None)

    def _add(self, value: Any, event: Any, anchor: str | None, *, size: int = 1) -> None:
        """Put a finished value where it belongs."""
        self._count(event)
        if anchor is not None:
            self.anchors[anchor] = value, size
        if not self.open:
            self.done = value
            return
        top = self.open[-1]
        if isinstance(top.value, list):
            top.value.append(value)
        elif not top.has_key:
            self._name(top, value, event)
        else:
            if top.key is _MERGE:
                top.merged += self._mappings(value, event)
            else:
                top.value[top.key] = value
            top.has_key = False

    def _name(self, top: _Open, key: Any, event: Any) -> None:
        if isinstance(key, (list, dict)):  # by an alias
            raise self._wrong(event, "yaml.key", "a list or mapping is where a name is expected")
        if key == "<<" and getattr(event, "style", None) in (None, ""):
            key = _MERGE
        if key in top.lines:
            first = f"it is also in line {top.lines[key]}"
            raise self._wrong(event, "yaml.duplicate-key", f"the name {key!r} is there twice: {first}")
        top.lines[key] = event.start_mark.line + 1
        top.key, top.has_key = key, True

    def _mappings(self, value: Any, event: Any) -> list[Any]:
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in several):
            raise self._wrong(event, "yaml.merge", "only a mapping can be merged with <<")
        return several

    def _check_tag(self, event: Any, known: tuple[str, ...]) -> str | None:
        """The kind that a tag asks for, None without one; a tag that no plain value has is refused."""
        tag = event.tag
        if tag is None or tag == "!":
            return None
        name = tag.removeprefix(_CORE)
        if not tag.startswith(_CORE) or name not in known:
            shown = f"!!{name}" if tag.startswith(_CORE) else tag
            raise self._wrong(
                event,
                "yaml.tag",
                f"the tag {shown[:200]!r} asks for an object, and only plain values are read",
                "name a class with _target_ or class_path instead, or give --builder file.py::function",
            )
        return str(name)

    def _scalar(self, event: Any) -> Any:
        kind = self._check_tag(event, _SCALARS)
        if kind is None:
            kind = _kind_of(event.value) if event.implicit[0] else "str"
        if kind == "str":
            return event.value
        try:
            return getattr(_CONSTRUCTOR, f"construct_yaml_{kind}")(
                yaml.ScalarNode(tag=_CORE + kind, value=event.value)
            )
        except (ValueError, KeyError, IndexError, TypeError, OverflowError) as cause:
            raise self._wrong(
                event, "yaml.value", f"{event.value[:80]!r} cannot be read as {kind}"
            ) from cause


_MERGE = object()
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


def _kind_of(text: str) -> str:
    """What a plain scalar is taken for."""
    if _FLOAT.fullmatch(text):
        return "float"
    for tag, pattern in (*_RESOLVERS.get(text[:1], ()), *_RESOLVERS.get(None, ())):
        kind = tag.removeprefix(_CORE)
        if kind in _IMPLICIT and pattern.match(text):
            return str(kind)
    return "str"
