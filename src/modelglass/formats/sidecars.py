"""JSON and YAML beside weights: which code they name, that loading the model would import or run.

Nothing is imported, rendered or constructed. JSON is parsed strictly and walked; of YAML only the tokens are
looked at, because building its values is what runs code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from modelglass.formats.reading import Reading
from modelglass.formats.source import Source
from modelglass.formats.templates import judge
from modelglass.report import Json, Level

EXPANDED = 1_000_000  # nodes that its aliases may stand for
_SHOWN = 100  # findings of one code

_Node: TypeAlias = tuple["_Node | None", str]  # the way to a value: where its container is, and its key


def code_references(document: Json, source: Source, reading: Reading) -> None:
    """Find what code a tree of dicts and lists names; it may be deep, and hold a value twice.

    Each finding has the place in the tree under `path` in its details, as in "trainer.model._target_".
    """
    found = _Findings(source, reading)
    seen: set[int] = set()
    pending: list[tuple[Json, _Node | None]] = [(document, None)]
    while pending:
        value, node = pending.pop()
        is_mapping = isinstance(value, Mapping)
        if not is_mapping and not isinstance(value, (list, tuple)):
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if is_mapping:
            _look_at(value, node, found)
        items = ((item, (node, name)) for name, item in _items(value) if _may_hold(item))
        pending.extend(reversed(list(items)))
    found.close()


def read_yaml(source: Source, reading: Reading) -> None:
    """Find the tags, references to code and expanding aliases of a YAML text."""
    reading.format = reading.format or "yaml"
    data = _whole(source, reading)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as cause:
        raise source.corrupt(
            f"this is not {encoding[:6].upper()} text", code="yaml.encoding", offset=cause.start
        ) from cause
    if _INTERESTING.search(text) is not None:
        _Yaml(text, encoding, source, reading).scan()


def _whole(source: Source, reading: Reading) -> bytes:
    limit = reading.limits.json_nbytes
    if source.nbytes > limit:
        raise source.over("json_nbytes", limit)
    return source.read(0, source.nbytes, "the document")


class _Findings:
    """Findings of one document: the first of each kind one by one, the rest as a number."""

    def __init__(self, source: Source, reading: Reading) -> None:
        self.source, self.reading = source, reading
        self.counts: Counter[tuple[str, Level]] = Counter()

    def add(self, code: str, level: Level, text: str, *, offset: int | None = None, **details: Json) -> None:
        if self.wants(code, level):
            self.reading.found(self.source, code, level, text, offset=offset, **details)

    def wants(self, code: str, level: Level) -> bool:
        """Count one more, and tell whether it is to be shown."""
        self.counts[code, level] += 1
        return self.counts[code, level] <= _SHOWN

    def close(self) -> None:
        for (code, level), count in self.counts.items():
            if count > _SHOWN:
                more = count - _SHOWN
                self.reading.found(self.source, code, level, f"{more:,} more of this kind", count=more)


# JSON


def _may_hold(value: Json) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _items(value: Json) -> Iterator[tuple[str, Json]]:
    """What a mapping or a list holds, by the names that paths have for it."""
    if isinstance(value, Mapping):
        return ((_key(key), item) for key, item in value.items())
    return ((f"[{index}]", item) for index, item in enumerate(value))


def _key(key: Json) -> str:
    return key if isinstance(key, str) else repr(key)[:80]


def _path(node: _Node | None, last: str) -> str:
    parts = [last]
    while node is not None and len(parts) < 70:
        node, part = node
        parts.append(part[:200])
    text = ""
    for part in reversed(parts):
        text += part if part.startswith("[") or not text else f".{part}"
    return text if node is None else f"….{text}"


def _look_at(value: Mapping[Json, Json], node: _Node | None, found: _Findings) -> None:
    for key, (code, what) in _REFERENCES.items():
        named = value.get(key)
        if isinstance(named, str) and named:
            text = f"{what} {named[:200]!r}"
            found.add(code, "notice", text, path=_path(node, key), names=named[:200])
    if "auto_map" in value:
        _look_at_auto_map(value["auto_map"], node, found)
    for key in value:
        if isinstance(key, str) and "chat_template" in key:
            _look_at_template(value[key], key, node, found)
    if isinstance(value.get("class_name"), str):
        _look_at_keras(value, value["class_name"], node, found)


def _look_at_auto_map(auto_map: Json, node: _Node | None, found: _Findings) -> None:
    if not isinstance(auto_map, Mapping) or not auto_map:
        return
    names: list[str] = []
    for value in auto_map.values():
        several = value if isinstance(value, (list, tuple)) else (value,)
        names += [name[:200] for name in several[:10] if isinstance(name, str)]
    files = sorted({_python_file(name) for name in names})
    shown = ", ".join(repr(file) for file in files[:10])
    found.add(
        "code.auto-map",
        "notice",
        f"loading with trust_remote_code runs the Python files {shown}",
        path=_path(node, "auto_map"),
        names=names[:50],
    )


def _python_file(name: str) -> str:
    """The file of a class: "org/repo--modeling_x.Net" is in modeling_x.py of that repository."""
    repository, _, local = name.rpartition("--")
    file = local.rpartition(".")[0].replace(".", "/") + ".py"
    return f"{repository}/{file}" if repository else file


def _look_at_template(template: Json, key: str, node: _Node | None, found: _Findings) -> None:
    """A template as a text, a list of {name, template}, or a mapping of names."""
    pending: list[tuple[Json, _Node | None, str]] = [(template, node, key)]
    seen: set[int] = set()
    while pending:
        value, above, key = pending.pop()
        if isinstance(value, str) and value:
            judge(value, found.source, found.reading, path=_path(above, key))
        elif _may_hold(value) and id(value) not in seen:
            seen.add(id(value))
            pending += [(item, (above, key), name) for name, item in _items(value) if name != "name"]


def _look_at_keras(value: Mapping[Json, Json], class_name: str, node: _Node | None, found: _Findings) -> None:
    path, module = _path(node, "class_name"), value.get("module")
    if class_name.rpartition(">")[2] == "Lambda" and "config" in value:
        found.add("code.lambda", "high", "a Lambda layer holds Python code that loading may run", path=path)
    elif class_name == "__lambda__":
        found.add("code.lambda", "high", "a serialized Python function, as marshalled bytecode", path=path)
    elif isinstance(module, str) and "registered_name" in value and "config" in value:
        outside = module.partition(".")[0] not in _KERAS
        if outside or class_name == "function":
            text = f"loading looks up {class_name[:200]!r} in the Python module {module[:200]!r}"
            found.add("code.module", "notice", text, path=path, names=f"{module[:200]}.{class_name[:200]}")


# YAML


class _Yaml:
    """Tokens of a YAML text, line by line.

    Strings over several lines and scalars that go on in the next line are not followed. Where they might
    have been, `unsure` is set, and from then on nothing that looks like a Python tag is skipped, not even in
    quotes or comments: better one finding too many.
    """

    def __init__(self, text: str, encoding: str, source: Source, reading: Reading) -> None:
        self.text, self.encoding, self.source = text, encoding, source
        self.most_aliases = reading.limits.yaml_aliases
        self.found = _Findings(source, reading)
        self.aliases = _Aliases(self)
        self.handles = {"!": "!", "!!": _STANDARD}
        self.flow = 0
        self.unsure = False
        self.block: int | None = None  # the least indentation of a block scalar's text, while in one
        self.block_parent: int | None = None  # the indentation its text must exceed, before its first line

    def scan(self) -> None:
        start = 0
        for end in _LINE_END.finditer(self.text):
            self._line(start, self.text[start : end.start()])
            start = end.end()
        self._line(start, self.text[start:])
        self.aliases.finish()
        self.found.close()

    def offset(self, at: int) -> int:
        codec = "utf-16-le" if self.encoding == "utf-16" else "utf-8"
        mark = 2 if self.encoding == "utf-16" else 3 * (self.source.up_to(0, 3) == b"\xef\xbb\xbf")
        return mark + len(self.text[:at].encode(codec))

    def _line(self, start: int, line: str) -> None:
        indent = len(line) - len(line.lstrip(" "))
        if self._in_block_scalar(indent, line):
            self._skipped(start, line)
            return
        if not line.strip():
            return
        if self.flow == 0:
            self.aliases.line(indent, line.startswith("-", indent))
        if line.startswith("%"):
            self._directive(start, line)
            return
        at = indent
        if line.startswith(("---", "...")) and (len(line) == 3 or line[3].isspace()):
            self.flow, at = 0, 3
        self._tokens(start, line, at)

    def _in_block_scalar(self, indent: int, line: str) -> bool:
        if self.block_parent is not None and line.strip(" "):
            self.block = indent if indent > self.block_parent else None
            self.block_parent = None
        if self.block is not None and line.strip(" ") and indent < self.block:
            self.block = None
        return self.block is not None

    def _directive(self, start: int, line: str) -> None:
        parts = line.split()
        if parts[0] == "%TAG" and len(parts) >= 3:
            self.unsure = True
            self.handles[parts[1]] = parts[2]
        elif parts[0] != "%YAML":
            self._tokens(start, line, 1)  # no directive, so it may be anything

    def _tokens(self, start: int, line: str, at: int) -> None:
        first, column = at, at  # column: of the last key or dash, which a block scalar's text must exceed
        open_quotes = ""
        while True:
            at = _SPACES.match(line, at).end()  # type: ignore[union-attr]
            if at >= len(line):
                return
            char = line[at]
            if char == "#" and (at == 0 or line[at - 1].isspace()):
                self._skipped(start + at, line[at:])
                return
            if char in "\"'" and char not in open_quotes:
                quoted = _QUOTED[char].match(line, at)
                self.unsure = self.unsure or quoted is None or at == first
                if quoted is None:
                    open_quotes += char
                    at += 1
                    continue
                self._skipped(start + at, quoted[0])
                column = self._after_key(start, line, at, quoted.end(), quoted[0][1:-1], column)
                at = quoted.end()
            elif char in "!&*":
                match = _WORD.match(line, at)
                word = match[0] if match is not None else char
                at += len(word)
                self._marked(start + at - len(word), word)
            elif char in "[{":
                self.flow, self.unsure, at = self.flow + 1, True, at + 1
            elif char in "]}":
                self.flow, at = max(0, self.flow - 1), at + 1
                self.aliases.close(self.flow)
            elif char == "," and self.flow:
                self.aliases.separate(self.flow)
                at += 1
            elif char in "-?:" and (at + 1 == len(line) or line[at + 1].isspace() or self.flow):
                column = column if char == ":" else at
                at += 1
            elif char in "|>" and not self.flow and (header := _BLOCK.match(line, at)) is not None:
                if not header["digit"]:  # with a digit, the text may begin with spaces: look at all of it
                    self.block_parent = column
                return
            else:
                end = (_FLOW_END if self.flow else _PLAIN_END).search(line, at + 1)
                stop = len(line) if end is None else end.start()
                plain = line[at:stop]
                self.unsure = self.unsure or '"' in plain or "'" in plain
                self._skipped(start + at, plain)
                column = self._after_key(start, line, at, stop, plain.strip(), column)
                at = max(stop, at + 1)

    def _after_key(self, start: int, line: str, at: int, end: int, key: str, column: int) -> int:
        """What follows a scalar: when it was a key that names code, a finding. The key's column."""
        colon = _COLON.match(line, end)
        if colon is None:
            return column
        if key in _REFERENCES:
            code, what = _REFERENCES[key]
            value = line[colon.end() : colon.end() + 400].partition(" #")[0].strip().strip("\"',}] ")
            if value and self.found.wants(code, "notice"):
                self.found.reading.found(
                    self.source,
                    code,
                    "notice",
                    f"{what} {value[:200]!r}",
                    offset=self.offset(start + at),
                    path=key,
                    names=value[:200],
                )
        return at

    def _marked(self, at: int, word: str) -> None:
        if word[0] == "*" and len(word) > 1:
            self.aliases.use(word[1:].rstrip(":"), at)
        elif word[0] == "&" and len(word) > 1:
            self.aliases.define(word[1:], self.flow)
        elif word[0] == "!":
            self._tag(at, word)

    def _tag(self, at: int, word: str) -> None:
        tag = self._resolved(word.rstrip(",]"))
        if tag in ("!", "") or tag.removeprefix(_STANDARD) in _PLAIN_TAGS:
            return
        if tag.startswith(_PYTHON):
            self._report(at, "yaml.python-tag", "high", word, tag, "has a loader import or call Python code")
        else:
            self._report(at, "yaml.tag", "notice", word, tag, "asks the loader for an object")

    def _report(self, at: int, code: str, level: Level, word: str, tag: str, effect: str) -> None:
        if self.found.wants(code, level):
            text, offset = f"the tag {word[:200]!r} {effect}", self.offset(at)
            self.found.reading.found(self.source, code, level, text, offset=offset, tag=tag[:200])

    def _resolved(self, word: str) -> str:
        """The tag in full: handles put in, escapes undone."""
        if word.startswith("!<"):
            full = word[2:].rstrip(">")
        else:
            end = word.find("!", 1) + 1
            handle = word[:end] if end > 0 and word[:end] in self.handles else "!"
            full = self.handles[handle] + word[len(handle) :]
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), full[:4096])

    def _skipped(self, at: int, text: str) -> None:
        if self.unsure and "!" in text:
            for match in _TAG_IN_TEXT.finditer(text):
                if self._resolved(match[1].rstrip("\"',]")).startswith(_PYTHON):
                    self._tag(at + match.start(1), match[1].rstrip("\"'"))


class _Aliases:
    """How many nodes a document would have if every alias were written out, as far as lines tell."""

    def __init__(self, yaml: _Yaml) -> None:
        self.yaml = yaml
        self.count = 0
        self.sizes: dict[str, int] = {}  # of what an anchor names
        self.open: list[tuple[str, int, bool, int]] = []  # anchors: name, indentation, in a list, flow level
        self.inside = [0]  # nodes by aliases, in the document and in each open anchor
        self.indent, self.in_list = 0, False

    def line(self, indent: int, is_item: bool) -> None:
        """A line begins: anchors of lines that were not further in end there."""
        while self.open:
            _, outer, in_list, _ = self.open[-1]
            # The items of a list may stand in the column of the key that it belongs to.
            goes_on = indent > outer or (indent == outer and is_item and not in_list)
            if goes_on:
                break
            self._end()
        self.indent, self.in_list = indent, is_item

    def separate(self, flow: int) -> None:
        while self.open and self.open[-1][3] >= flow:
            self._end()

    def close(self, flow: int) -> None:
        while self.open and self.open[-1][3] > flow:
            self._end()

    def define(self, name: str, flow: int) -> None:
        self.open.append((name, self.indent, self.in_list, flow))
        self.inside.append(1)

    def use(self, name: str, at: int) -> None:
        self.count += 1
        self.inside[-1] += self.sizes.get(name, 1)
        if self.count > self.yaml.most_aliases or self.inside[-1] > EXPANDED:
            raise self.yaml.source.over("yaml_aliases", self.yaml.most_aliases, offset=self.yaml.offset(at))

    def finish(self) -> None:
        while self.open:
            self._end()
        if self.inside[-1] > EXPANDED:
            raise self.yaml.source.over("yaml_aliases", self.yaml.most_aliases)

    def _end(self) -> None:
        name, *_ = self.open.pop()
        size = self.inside.pop()
        self.sizes[name] = size
        self.inside[-1] += size


_STANDARD = "tag:yaml.org,2002:"
_PYTHON = (_STANDARD + "python/", "!python/")
_PLAIN_TAGS = frozenset(
    {
        *("null", "bool", "int", "float", "str", "seq", "map", "set", "omap", "pairs", "binary", "timestamp"),
        *("merge", "value", "yaml"),
    }
)
_REFERENCES = {
    "_target_": ("code.target", "building it imports and calls"),
    "class_path": ("code.class-path", "building it imports and calls"),
    "_instantiator": ("code.instantiator", "loading it imports and calls"),
}
_KERAS = frozenset({"keras", "keras_core", "tf_keras", "keras_hub", "keras_nlp", "keras_cv", "tensorflow"})
_INTERESTING = re.compile("[!&*]|" + "|".join(_REFERENCES))
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_SPACES = re.compile(r"[ \t]*+")
_QUOTED = {'"': re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'), "'": re.compile(r"'[^']*+(?:''[^']*+)*+'")}
_WORD = re.compile(r"!<[^>\s]*+>|![^\s{}]*+|[&*][^\s,\[\]{}]++")
_BLOCK = re.compile(r"[|>](?:[+-]?(?P<digit>[0-9])?[+-]?)[ \t]*(?:[ \t]#.*)?$")
_PLAIN_END = re.compile(r":(?=\s|$)|\s#")
_FLOW_END = re.compile(r":(?=[\s,\[\]{}]|$)|\s#|[,\[\]{}]")
_COLON = re.compile(r"[ \t]*:(?=\s|$|[\"'\[{])")
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_TAG_IN_TEXT = re.compile(r"(?:^|(?<=[\s\[{,:?\"'-]))(![^\s{}]+)")
